//! What can go wrong with jobs; the facts are in the fields.

use super::remote::RemoteError;

/// Most bytes of a scheduler's own words that an error carries.
const WORDS_BYTES_MAX: usize = 4096;

/// A failure of a job operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the caller gave can't be sent; nothing was (`invalid_input`).
    #[error("{message}")]
    InvalidInput {
        /// The option or input at fault, such as `script` or `native`.
        what: &'static str,
        /// The script's line at fault, counted from 1.
        line: Option<u64>,
        /// The thing, the value and the bound.
        message: String,
    },
    /// The host has no scheduler that towline knows (`scheduler_error`).
    #[error("no supported scheduler: {looked_for} was not found")]
    NoScheduler {
        /// The command that was looked for.
        looked_for: String,
    },
    /// The scheduler could not be asked; nothing is known and nothing changed (`scheduler_unreachable`).
    #[error("{command} could not ask the scheduler: {words}")]
    Unreachable {
        /// The scheduler's command.
        command: String,
        /// Its own words.
        words: String,
    },
    /// The scheduler said no (`scheduler_error`).
    #[error("{command} refused: {words}")]
    Refused {
        /// The scheduler's command.
        command: String,
        /// Its exit code.
        rc: Option<i32>,
        /// Its own words.
        words: String,
        /// What they mean and what to do, where that is known.
        meaning: Option<&'static str>,
    },
    /// The scheduler's answer can't be read (`scheduler_error`).
    #[error("{command} answered something that can't be read: {row:?}")]
    Unreadable {
        /// The scheduler's command.
        command: String,
        /// The row at fault, as it came.
        row: String,
    },
    /// The scheduler's answer is larger than its bound (`scheduler_error`).
    #[error("{command} answered more than {bytes_max} bytes, with {rows} rows before the bound")]
    TooLarge {
        /// The scheduler's command.
        command: String,
        /// The bound in bytes.
        bytes_max: u64,
        /// How many rows came before the bound.
        rows: usize,
    },
    /// The scheduler doesn't let this user do it (`permission`).
    #[error("job {id}: not permitted: {words}")]
    Permission {
        /// The job.
        id: String,
        /// The scheduler's own words.
        words: String,
    },
    /// A job may or may not have been made, or changed (`outcome_unknown`); never repeat the call blindly.
    #[error("{what}: whether it was done is not known: {words}")]
    OutcomeUnknown {
        /// What was asked for, such as `submission 3f…` or `cancel 4711`.
        what: String,
        /// The submission's key, by which a job of it can be found later.
        key: Option<String>,
        /// The scheduler's or the line's own words.
        words: String,
    },
    /// Neither queue nor accounting knows these jobs, and they were never ours (`not_found`).
    #[error("no such job: {}", ids.join(", "))]
    NotFound {
        /// The ids.
        ids: Vec<String>,
    },
    /// The job has no output file where one is expected (`not_found`).
    #[error("{explanation}")]
    NoLog {
        /// The job.
        id: String,
        /// The path that was looked at, where one is known.
        path: Option<String>,
        /// Why there is none, and what to do.
        explanation: String,
    },
    /// The far end failed; see [`RemoteError::dispatched`].
    #[error("{doing}: {source}")]
    Remote {
        /// What was being done.
        doing: String,
        /// The cause.
        source: RemoteError,
    },
}

impl Error {
    /// Makes an [`Error::InvalidInput`] that is about no line.
    pub(crate) fn invalid(what: &'static str, message: String) -> Self {
        Error::InvalidInput { what, line: None, message }
    }

    /// Tells whether the same call may be repeated as it is: nothing was done.
    pub fn retry_safe(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Remote { source, .. } => !source.dispatched,
            Error::InvalidInput { .. }
            | Error::NoScheduler { .. }
            | Error::Refused { .. }
            | Error::Unreadable { .. }
            | Error::TooLarge { .. }
            | Error::Permission { .. }
            | Error::OutcomeUnknown { .. }
            | Error::NotFound { .. }
            | Error::NoLog { .. } => false,
        }
    }
}

/// Shows a scheduler's own words: both outputs, without blank lines, bounded, as text.
pub(crate) fn words(stdout: &[u8], stderr: &[u8]) -> String {
    let mut said: Vec<String> = Vec::new();
    for output in [stderr, stdout] {
        let cut = output.get(..WORDS_BYTES_MAX).unwrap_or(output);
        let text = crate::jobs::record::shown(cut);
        said.extend(text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned));
    }
    if said.is_empty() { "(no words)".to_owned() } else { said.join("; ") }
}
