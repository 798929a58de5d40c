//! Questions on the controlling terminal.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};

use super::prompt::{Prompt, Prompter, Secret, Unanswered};

const TERMINAL: &str = "/dev/tty";

/// Asks on the controlling terminal, whatever stdin and stdout are; secrets are read without echo.
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminalPrompter;

impl TerminalPrompter {
    /// Tells whether there is a controlling terminal to ask on.
    pub fn available() -> bool {
        OpenOptions::new().read(true).write(true).open(TERMINAL).is_ok()
    }
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
        rpassword::prompt_password(text).map(Secret::new).map_err(|error| match error.kind() {
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
