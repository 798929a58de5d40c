//! A question that only a human on the controlling terminal can answer.
//!
//! It guards against carelessness: a script, an agent without a terminal, a habit of pressing return. A process of the
//! same user that makes a pseudo-terminal can answer it all the same.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};

use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{getpgrp, tcgetpgrp};

use super::table::clean;
use crate::failure::Failure;
use crate::kind::Kind;

const TERMINAL: &str = "/dev/tty";

/// Shows what is at stake, and has the human type a word.
///
/// # Errors
/// `policy_denied` without a terminal in whose foreground we are, and for every other answer.
pub(super) fn demand(stake: &[String], word: &str) -> Result<(), Failure> {
    let mut terminal = foreground_terminal()?;
    let failed = |error: std::io::Error| denied(format!("the terminal cannot be asked: {error}"));
    let mut text: String = stake.iter().map(|line| format!("{}\n", clean(line))).collect();
    text.push_str(&format!("Type `{}` to approve: ", clean(word)));
    // What was typed before the question is no answer to it.
    tcflush(&terminal, FlushArg::TCIFLUSH).map_err(|error| failed(error.into()))?;
    terminal.write_all(text.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer).map_err(failed)?;
    if answer.trim() == word {
        return Ok(());
    }
    Err(denied(format!("the answer was not `{word}`")))
}

fn foreground_terminal() -> Result<File, Failure> {
    let none = |reason: &str| denied(format!("a human has to approve this, and {reason}"));
    let terminal = OpenOptions::new().read(true).write(true).open(TERMINAL);
    let terminal = terminal.map_err(|_no_terminal| none("there is no terminal to ask on"))?;
    // Reading from the background would stop this process instead of asking anybody.
    match tcgetpgrp(&terminal) {
        Ok(group) if group == getpgrp() => Ok(terminal),
        Ok(_) | Err(_) => Err(none("this process is in the background of its terminal")),
    }
}

fn denied(message: String) -> Failure {
    Failure::new(Kind::PolicyDenied, message).hint("run the same command on a terminal and answer there")
}
