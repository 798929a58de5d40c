//! What can go wrong between a client, the broker's process and its start.

use std::path::PathBuf;

use serde_json::Value;

use crate::config::{self, Role, SiteName};
use crate::disk::Fault;
use crate::line::{EndReason, OpenError};
use crate::{opening, policy};

/// Why a line could not be opened, reached or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration lacks something.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The site can't be opened as configured.
    #[error(transparent)]
    Opening(#[from] opening::Error),
    /// The opening failed.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The policy refused.
    #[error(transparent)]
    Policy(#[from] policy::Error),
    /// A file or directory of the line is missing, unsafe or unreadable.
    #[error(transparent)]
    Disk(#[from] Fault),
    /// No broker serves the line.
    #[error("there is no open line to {site} ({role}): {reason}")]
    NotConnected {
        /// The site.
        site: SiteName,
        /// The role of it.
        role: Role,
        /// What was found instead.
        reason: String,
    },
    /// The open line leads elsewhere than the configuration now says.
    #[error("the line to {site} ({role}) leads to {was}, and the configuration now says {now}")]
    DestinationChanged {
        /// The site.
        site: SiteName,
        /// The role of it.
        role: Role,
        /// Where the line leads.
        was: String,
        /// Where it should lead.
        now: String,
    },
    /// Another process opens or closes the line.
    #[error("another opening of {site} ({role}) is under way, or its broker does not answer")]
    AlreadyConnected {
        /// The site.
        site: SiteName,
        /// The role of it.
        role: Role,
    },
    /// Something that is no socket of the caller's has the socket's name.
    #[error("{} is not a socket of this user, and it is left as it is", .path.display())]
    SocketTaken {
        /// The path.
        path: PathBuf,
    },
    /// The broker's process could not be started, or did not do what it should.
    #[error("{reason}")]
    Launch {
        /// What happened.
        reason: String,
    },
    /// The system refused.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The broker's process failed and told why, as the contract's error object.
    #[error("{}", .error.get("message").and_then(Value::as_str).unwrap_or("the broker failed without a message"))]
    Told {
        /// The members of `error`.
        error: Value,
    },
    /// The line ended by itself.
    #[error("{0}")]
    Ended(EndReason),
}
