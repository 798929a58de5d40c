//! The static helper that towline runs at the far end of a line.
//!
//! `towline-helper -t` exits 0, which proves that this file runs on this host. `towline-helper MARKER` prints the
//! marker (32 hexadecimal digits) and a newline, then speaks frames on stdin and stdout until the end of its input.
//! It starts `towline-helper -k MARKER` itself, which ends that line's commands when the helper is killed.

mod helper;

use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of wrong usage.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (Some(argument), None, None) if argument == "-t" => ExitCode::SUCCESS,
        (Some(argument), Some(marker), None) if argument == helper::KEEPER_ARGUMENT => {
            helper::Marker::parse(&marker).map_or_else(usage, |marker| helper::keep(&marker))
        }
        (Some(argument), None, None) => match helper::Marker::parse(&argument) {
            Some(marker) => helper::serve(marker),
            None => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    let text = "towline-helper: usage: towline-helper -t | MARKER (32 lower-case hexadecimal digits)\n";
    // There is nobody left to tell when stderr is closed.
    std::io::stderr().write_all(text.as_bytes()).unwrap_or_default();
    ExitCode::from(USAGE)
}
