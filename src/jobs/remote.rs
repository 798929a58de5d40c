//! What the jobs room needs from a line, so that it can be tested without one.

use std::future::Future;
use std::time::Duration;

/// A command to run at the far end: an argument vector, never shell text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// What it reads from its standard input.
    pub stdin: Vec<u8>,
    /// Its working directory, literal but for a leading `~/`; the session's start directory when absent.
    pub cwd: Option<Vec<u8>>,
    /// Variables added to the session's environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// How long it may run.
    pub deadline: Duration,
    /// How many bytes of its standard output are kept; standard error is always kept to 64 KiB.
    pub stdout_bytes_max: u64,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its exit code, or `None` when a signal ended it.
    pub rc: Option<i32>,
    /// Its standard output, cut at the call's bound.
    pub stdout: Vec<u8>,
    /// How many bytes of standard output were dropped behind the bound.
    pub stdout_dropped: u64,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Whether its deadline ended it.
    pub timed_out: bool,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Size in bytes.
    pub size: u64,
    /// Whether it is a directory.
    pub directory: bool,
}

/// Some bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The bytes; fewer than asked for only at the end of the file.
    pub bytes: Vec<u8>,
    /// Size of the file when it was read.
    pub size: u64,
}

/// Why the far end could not be made to do something.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// What went wrong.
    pub fault: Fault,
    /// Whether the request may have been carried out.
    pub dispatched: bool,
    /// What happened, in one fragment.
    pub message: String,
    /// The line's own error, so that a face can map it exactly.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The classes of remote failure that this room treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The line ended, or there is none.
    Line,
    /// The program or the file does not exist.
    NotFound,
    /// The far end's permissions forbid it.
    Permission,
    /// Anything else.
    Other,
}

/// Runs commands and reads files at the far end.
///
/// # Cancel safety
/// Dropping a future gives up on the answer; whether the command ran is then unknown.
pub trait Remote: Send + Sync {
    /// Tells the session's home directory: what a leading `~/` means.
    fn home(&self) -> Vec<u8>;

    /// Runs a command to its end.
    fn run(&self, call: Call) -> impl Future<Output = Result<Answer, RemoteError>> + Send;

    /// Tells what a path is, following links; `None` when nothing is there.
    fn stat(&self, path: &[u8]) -> impl Future<Output = Result<Option<FileFacts>, RemoteError>> + Send;

    /// Reads at most `length` bytes from `offset` on; behind the end of the file that is none.
    fn read(
        &self,
        path: &[u8],
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<FilePart, RemoteError>> + Send;
}
