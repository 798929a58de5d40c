//! Questions on the controlling terminal.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::prompt::{Prompt, Prompter, Secret, Unanswered};

const TERMINAL: &str = "/dev/tty";

/// How long the handling of Ctrl-C may take before the question counts as declined.
const SIGNAL_FOR: Duration = Duration::from_secs(1);

/// How the terminal was before a secret was asked for, while it is asked for.
static BEFORE: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// Asks on the controlling terminal, whatever stdin and stdout are; secrets are read without echo.
#[derive(Clone, Copy, Debug, Default)]
pub struct TerminalPrompter;

impl TerminalPrompter {
    /// Tells whether there is a controlling terminal to ask on.
    pub fn available() -> bool {
        OpenOptions::new().read(true).write(true).open(TERMINAL).is_ok()
    }
}

/// Makes the terminal show again what is typed, when a question for a secret is still open.
///
/// For every way out of the program: a server that hangs up, or a signal, leaves the asking thread behind.
pub fn restore_terminal() {
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((terminal, settings)) = before.take()
        && let Err(error) = tcsetattr(&terminal, SetArg::TCSANOW, &settings)
    {
        tracing::debug!(%error, "the terminal is gone");
    }
}

fn failed(error: &std::io::Error) -> Unanswered {
    Unanswered::Failed(format!("{TERMINAL}: {error}"))
}

fn terminal() -> Result<File, Unanswered> {
    OpenOptions::new().read(true).write(true).open(TERMINAL).map_err(|_| Unanswered::Nobody)
}

fn ask_with_echo(prompt: &str) -> Result<String, Unanswered> {
    let mut terminal = terminal()?;
    terminal.write_all(prompt.as_bytes()).map_err(|error| failed(&error))?;
    let mut line = String::new();
    let read = BufReader::new(terminal).read_line(&mut line).map_err(|error| failed(&error))?;
    if read == 0 {
        return Err(Unanswered::Declined);
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

fn ask_hidden(prompt: &str) -> Result<Secret, Unanswered> {
    let mut terminal = terminal()?;
    loop {
        // Hidden first: what is typed the moment the question appears must not show.
        let keys = hide(&terminal).map_err(|error| failed(&error))?;
        let asked = terminal.write_all(prompt.as_bytes());
        let typed = asked.and_then(|()| read_hidden(&mut terminal, &keys));
        restore_terminal();
        // The return key was not shown either.
        let shown = terminal.write_all(b"\n");
        match typed.map_err(|error| failed(&error))? {
            Typed::Line(line) => {
                shown.map_err(|error| failed(&error))?;
                let text = std::str::from_utf8(&line)
                    .map_err(|_| Unanswered::Failed("what was typed is not UTF-8".to_owned()))?;
                return Ok(Secret::new(text.to_owned()));
            }
            Typed::End => return Err(Unanswered::Declined),
            Typed::Signal(signal) => {
                // With the terminal as it was: the signal may end or stop the program.
                raise(signal).map_err(|error| failed(&error.into()))?;
                if signal == Signal::SIGINT {
                    // Who handles it ends the program meanwhile, and that is what the user should see.
                    std::thread::sleep(SIGNAL_FOR);
                    return Err(Unanswered::Declined);
                }
            }
        }
    }
}

/// What a person typed without seeing it.
enum Typed {
    Line(Zeroizing<Vec<u8>>),
    End,
    Signal(Signal),
}

/// Takes the echo, the line editing and the signal keys from the terminal, and tells which keys they are on.
///
/// The keys are read as bytes, since the terminal must be as before when a signal ends or stops the program.
fn hide(terminal: &File) -> std::io::Result<Termios> {
    let settings = tcgetattr(terminal)?;
    let mut hidden = settings.clone();
    hidden.local_flags &=
        !(LocalFlags::ECHO | LocalFlags::ECHONL | LocalFlags::ICANON | LocalFlags::ISIG | LocalFlags::IEXTEN);
    for (index, value) in [(SpecialCharacterIndices::VMIN, 1), (SpecialCharacterIndices::VTIME, 0)] {
        if let Some(place) = hidden.control_chars.get_mut(index as usize) {
            *place = value;
        }
    }
    let copy = terminal.try_clone()?;
    // Kept before the change, so that there is no moment in which it could not be undone.
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some((copy, settings.clone()));
    if let Err(error) = tcsetattr(terminal, SetArg::TCSADRAIN, &hidden) {
        restore_terminal();
        return Err(error.into());
    }
    Ok(settings)
}

/// Reads a line with the editing keys of the terminal's own.
fn read_hidden(from: &mut impl Read, keys: &Termios) -> std::io::Result<Typed> {
    let key = |index: SpecialCharacterIndices, usual: u8| {
        keys.control_chars.get(index as usize).copied().filter(|key| *key != 0).unwrap_or(usual)
    };
    let (erase, kill, end) = (
        key(SpecialCharacterIndices::VERASE, 0x7f),
        key(SpecialCharacterIndices::VKILL, 0x15),
        key(SpecialCharacterIndices::VEOF, 0x04),
    );
    let signals = [
        (key(SpecialCharacterIndices::VINTR, 0x03), Signal::SIGINT),
        (key(SpecialCharacterIndices::VQUIT, 0x1c), Signal::SIGQUIT),
        (key(SpecialCharacterIndices::VSUSP, 0x1a), Signal::SIGTSTP),
    ];
    let mut line = Zeroizing::new(Vec::with_capacity(256));
    let mut byte = [0];
    loop {
        match from.read(&mut byte) {
            Ok(0) => return Ok(Typed::End),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let [typed] = byte;
        if let Some((_, signal)) = signals.iter().find(|(key, _)| *key == typed) {
            return Ok(Typed::Signal(*signal));
        }
        match typed {
            b'\r' | b'\n' => return Ok(Typed::Line(line)),
            _ if typed == end => {
                return Ok(if line.is_empty() { Typed::End } else { Typed::Line(line) });
            }
            _ if typed == kill => line.clear(),
            _ if typed == erase || typed == 0x08 || typed == 0x7f => {
                // A whole character: the bytes that continue it, and the one that begins it.
                while line.pop().is_some_and(|last| last & 0xc0 == 0x80) {}
            }
            _ => line.push(typed),
        }
    }
}

impl Prompter for TerminalPrompter {
    fn ask(&self, prompt: &Prompt) -> Result<Secret, Unanswered> {
        let text = prompt.to_string();
        match prompt.echo() {
            true => ask_with_echo(&text).map(Secret::new),
            false => ask_hidden(&text),
        }
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
