//! The errors of `jobs` as the contract's kinds.

use super::Failure;
use crate::jobs::{Error, Fault, RemoteError};
use crate::kind::Kind;
use crate::line;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (message, retry_safe) = (error.to_string(), error.retry_safe());
        let failure = match error {
            Error::InvalidInput { what, line, .. } => {
                let failure = Failure::new(Kind::InvalidInput, message).field("which", what);
                match line {
                    Some(line) => failure.field("line", line),
                    None => failure,
                }
            }
            Error::NoScheduler { .. } => Failure::new(Kind::SchedulerError, message)
                .hint("set `scheduler` and, if its commands are elsewhere, `environment` for the site"),
            Error::Unreachable { command, words } => Failure::new(Kind::SchedulerUnreachable, message)
                .field("command", command)
                .field("scheduler_says", words),
            Error::Refused { command, rc, words, meaning } => {
                let failure = Failure::new(Kind::SchedulerError, message)
                    .field("command", command)
                    .field("rc", rc)
                    .field("scheduler_says", words);
                match meaning {
                    Some(meaning) => failure.hint(meaning),
                    None => failure,
                }
            }
            Error::Unreadable { command, row } => Failure::new(Kind::SchedulerError, message)
                .field("command", command)
                .field("row", row)
                .hint("please report it with that row"),
            Error::TooLarge { command, bytes_max, rows } => Failure::new(Kind::SchedulerError, message)
                .field("command", command)
                .field("limit", bytes_max)
                .field("rows", rows)
                .hint("ask about fewer jobs"),
            Error::Permission { id, .. } => Failure::new(Kind::Permission, message).field("id", id),
            Error::OutcomeUnknown { key, .. } => {
                let failure = Failure::new(Kind::OutcomeUnknown, message)
                    .hint("do not repeat it; look with `towline job list` whether it was done");
                match key {
                    Some(key) => failure.field("submission_key", key),
                    None => failure,
                }
            }
            Error::NotFound { ids } => Failure::new(Kind::NotFound, message)
                .field("id", ids.join(","))
                .hint("see `towline job list`"),
            Error::NoLog { id, path, .. } => {
                Failure::new(Kind::NotFound, message).field("id", id).field("path", path)
            }
            Error::Remote { source, .. } => remote(source, message),
        };
        Failure { retry_safe, ..failure }
    }
}

/// A failure below: the line's own kind where the line failed.
fn remote(source: RemoteError, message: String) -> Failure {
    let below = source.source.and_then(|error| error.downcast::<line::Error>().ok());
    match (below, source.fault) {
        (Some(error), _) => Failure { message, ..Failure::from(*error) },
        (None, Fault::Line) => Failure::new(Kind::NotConnected, message),
        (None, Fault::NotFound) => Failure::new(Kind::NotFound, message),
        (None, Fault::Permission) => Failure::new(Kind::Permission, message),
        (None, Fault::Other) => Failure::new(Kind::RemoteError, message),
    }
}
