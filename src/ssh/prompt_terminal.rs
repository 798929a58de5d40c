//! Questions on the controlling terminal.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::sync::Mutex;

use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};

use super::prompt::{Prompt, Prompter, Secret, Unanswered};

const TERMINAL: &str = "/dev/tty";

/// The terminal's settings from before a question without echo, while it is open.
static SETTINGS_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Asks on the controlling terminal, whatever stdin and stdout are; secrets are read without echo.
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminalPrompter;

impl TerminalPrompter {
    /// Tells whether there is a controlling terminal to ask on.
    pub fn available() -> bool {
        OpenOptions::new().read(true).write(true).open(TERMINAL).is_ok()
    }

    /// Gives the terminal its settings back when a question is left open, for a program that leaves on Ctrl-C.
    pub fn restore() {
        let before = SETTINGS_BEFORE.lock().ok().and_then(|mut before| before.take());
        let (Some(before), Ok(terminal)) = (before, OpenOptions::new().write(true).open(TERMINAL)) else {
            return;
        };
        // A terminal that is gone needs no settings.
        tcsetattr(&terminal, SetArg::TCSANOW, &before).unwrap_or_default();
    }
}

/// Reads a secret with rpassword, which does not restore the terminal when the program ends while it waits.
fn ask_without_echo(text: String) -> std::io::Result<String> {
    let settings = OpenOptions::new().read(true).open(TERMINAL).ok().and_then(|tty| tcgetattr(&tty).ok());
    let note = |settings| {
        // A poisoned lock only means that an interrupted prompt leaves no echo.
        if let Ok(mut before) = SETTINGS_BEFORE.lock() {
            *before = settings;
        }
    };
    note(settings);
    let answer = rpassword::prompt_password(text);
    note(None);
    answer
}

fn failed(error: &std::io::Error) -> Unanswered {
    Unanswered::Failed(format!("{TERMINAL}: {error}"))
}

fn ask_with_echo(prompt: &str) -> Result<String, Unanswered> {
    let mut terminal =
        OpenOptions::new().read(true).write(true).open(TERMINAL).map_err(|_| Unanswered::Nobody)?;
    terminal.write_all(prompt.as_bytes()).map_err(|error| failed(&error))?;
    let mut line = String::new();
    let read = BufReader::new(terminal).read_line(&mut line).map_err(|error| failed(&error))?;
    if read == 0 {
        return Err(Unanswered::Declined);
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

impl Prompter for TerminalPrompter {
    fn ask(&self, prompt: &Prompt) -> Result<Secret, Unanswered> {
        let text = prompt.to_string();
        if prompt.echo() {
            return ask_with_echo(&text).map(Secret::new);
        }
        if !TerminalPrompter::available() {
            return Err(Unanswered::Nobody);
        }
        ask_without_echo(text).map(Secret::new).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::Interrupted => Unanswered::Declined,
            _ => failed(&error),
        })
    }

    fn tell(&self, text: &str) {
        let shown = OpenOptions::new()
            .write(true)
            .open(TERMINAL)
            .and_then(|mut terminal| writeln!(terminal, "{}", text.trim_end()));
        if let Err(error) = shown {
            tracing::info!("{text} (not shown: {error})");
        }
    }
}
