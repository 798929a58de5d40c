//! The one writer of stdout and stderr.
//!
//! A reader that went away (`towline … | head`) ends the output, not the operation: what follows is dropped quietly.

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::failure::Failure;
use crate::kind::Kind;

/// Bytes of a document that are written at a time.
const DOCUMENT_BUFFER_BYTES: usize = 64 << 10;

/// How this process prints.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
    stdout_colour: bool,
    stderr_colour: bool,
}

/// A standard stream of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The answer.
    Stdout,
    /// Everything beside it.
    Stderr,
}

/// What became of bytes that were passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// They were written.
    Written,
    /// The stream's reader is gone.
    NobodyReads,
}

/// Colours of a terminal's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Something is wrong.
    Red,
    /// Something deserves a look.
    Yellow,
    /// All is well.
    Green,
    /// Something of lesser weight.
    Cyan,
}

impl Output {
    /// Decides once: JSON or text, and colour only on a terminal whose user did not forbid it.
    pub fn new(json: bool, no_color: bool) -> Output {
        Output {
            json,
            stdout_colour: !no_color && io::stdout().is_terminal(),
            stderr_colour: !no_color && io::stderr().is_terminal(),
        }
    }

    /// Tells whether the answer is to be JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Prints one JSON document on a line of its own.
    ///
    /// # Errors
    /// `no_space` or `internal` when stdout takes nothing more; the operation itself was done.
    pub fn document(&self, document: &impl Serialize) -> Result<Passed, Failure> {
        // Straight to stdout: as a text of its own, an answer with outputs would take a multiple of their size.
        let mut stdout = io::BufWriter::with_capacity(DOCUMENT_BUFFER_BYTES, io::stdout().lock());
        let written = serde_json::to_writer(&mut stdout, document).map_err(io::Error::from);
        let written = written.and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush());
        // What a failed write has left in the buffer would be tried again.
        drop(stdout.into_parts());
        passed(written, "stdout")
    }

    /// Prints text for a person; the line end is the caller's.
    ///
    /// # Errors
    /// As [`Output::document`].
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes()).map(drop)
    }

    /// Passes bytes to stdout as they are.
    ///
    /// # Errors
    /// As [`Output::document`].
    pub fn bytes(&self, bytes: &[u8]) -> Result<Passed, Failure> {
        self.pass(Stream::Stdout, bytes)
    }

    /// Passes bytes to stderr as they are.
    ///
    /// # Errors
    /// As [`Output::document`].
    pub fn stderr_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.pass(Stream::Stderr, bytes).map(drop)
    }

    /// Passes bytes to a stream as they are, and tells whether somebody still reads it.
    ///
    /// # Errors
    /// As [`Output::document`].
    pub fn pass(&self, stream: Stream, bytes: &[u8]) -> Result<Passed, Failure> {
        match stream {
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                passed(stdout.write_all(bytes).and_then(|()| stdout.flush()), "stdout")
            }
            Stream::Stderr => passed(io::stderr().lock().write_all(bytes), "stderr"),
        }
    }

    /// Tells a person something beside the answer; nothing with `--json`, where stderr belongs to the error object.
    ///
    /// # Errors
    /// As [`Output::document`].
    pub fn note(&self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.stderr_bytes(format!("{text}\n").as_bytes()) }
    }

    /// Shows a failure on stderr: one JSON object, or `error:` and `hint:`.
    pub fn failure(&self, failure: &Failure) {
        let text = if self.json {
            format!("{}\n", failure.to_json())
        } else {
            let message = super::table::clean(&failure.human_message());
            let hint = super::table::clean(&failure.hint);
            format!(
                "{} {message}\n{} {hint}\n",
                self.on_stderr("error:", Colour::Red),
                self.on_stderr("hint:", Colour::Cyan)
            )
        };
        // There is nowhere left to report that stderr is gone; the exit code still tells.
        drop(io::stderr().lock().write_all(text.as_bytes()));
    }

    /// Colours a text of stdout, on a terminal.
    pub fn on_stdout(&self, text: &str, colour: Colour) -> String {
        paint(text, colour, self.stdout_colour)
    }

    fn on_stderr(&self, text: &str, colour: Colour) -> String {
        paint(text, colour, self.stderr_colour)
    }
}

fn paint(text: &str, colour: Colour, wanted: bool) -> String {
    let code = match colour {
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Yellow => 33,
        Colour::Cyan => 36,
    };
    if wanted { format!("\x1b[1;{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn passed(result: io::Result<()>, stream: &str) -> Result<Passed, Failure> {
    match result {
        Ok(()) => Ok(Passed::Written),
        // The reader has what it wanted.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Passed::NobodyReads),
        Err(error) => {
            let full = matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
            );
            let kind = if full { Kind::NoSpace } else { Kind::Internal };
            Err(Failure::new(kind, format!("cannot write to {stream}: {error}"))
                .hint("the operation itself was done; only its answer is lost"))
        }
    }
}
