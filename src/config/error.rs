//! What can be wrong with the configuration, as values that a caller can look into.

use std::path::PathBuf;

use super::name::Role;
use crate::kind::Kind;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: u64,
}

/// What is wrong with towline's configuration or its directories.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An environment variable has a value that cannot be used.
    #[error("{variable} is `{value}`: {reason}")]
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value; invalid bytes are replaced.
        value: String,
        /// What it must be.
        reason: String,
    },
    /// Neither `HOME` nor the user database tells the home directory.
    #[error("the home directory is unknown: HOME is unset and the user database has no entry for this user")]
    NoHome,
    /// `config.toml` holds a mistake.
    #[error("{message}")]
    Entry {
        /// Where.
        place: Place,
        /// What is wrong, with the key and its value.
        message: String,
        /// The nearest right name, when the mistake looks like a mistyped one.
        nearest: Option<String>,
    },
    /// No site of that name is configured.
    #[error("there is no site `{name}` in the configuration")]
    UnknownSite {
        /// The name that was asked for.
        name: String,
        /// The configuration file.
        file: PathBuf,
        /// Line of the nearest right name's table.
        line: Option<u64>,
        /// The nearest right name.
        nearest: Option<String>,
        /// All configured sites.
        known: Vec<String>,
    },
    /// The site has no such role.
    #[error("the site `{site}` has no {role} role")]
    NoRole {
        /// The site's name.
        site: String,
        /// The role that was asked for.
        role: Role,
        /// Where the site's table begins.
        place: Place,
    },
    /// An operation needs a key that the site does not set.
    #[error("the site `{site}` does not set `{key}`, which this operation needs")]
    MissingKey {
        /// The site's name.
        site: String,
        /// The key, with its table.
        key: &'static str,
        /// Where the site's table begins.
        place: Place,
    },
    /// The configuration file could be changed by others, so that they would decide where towline connects to.
    #[error("{} {reason}", .file.display())]
    Untrusted {
        /// The configuration file.
        file: PathBuf,
        /// Who else may change it.
        reason: String,
        /// The command that mends it.
        mend: String,
    },
    /// A file or directory of towline's could not be read, made or written.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The state directory is not exclusively the caller's.
    #[error("the directory {} {reason}", .path.display())]
    Home {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The command that mends it; a person has to give it.
        mend: String,
    },
    /// A socket's path is longer than the system can bind.
    #[error("the socket path {} is {bytes} bytes long with its NUL, the limit is {limit}", .path.display())]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length with the NUL.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// Two roles would share one state directory.
    #[error("{} and {} are the same directory; each role needs its own", .first.display(), .second.display())]
    SharedDirectory {
        /// One role's directory.
        first: PathBuf,
        /// The other's.
        second: PathBuf,
    },
}

impl Error {
    /// Returns the contract's kind of this error.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Home { .. } => Kind::PolicyInvalid,
            Error::Variable { .. }
            | Error::NoHome
            | Error::Entry { .. }
            | Error::UnknownSite { .. }
            | Error::NoRole { .. }
            | Error::MissingKey { .. }
            | Error::Untrusted { .. }
            | Error::Io { .. }
            | Error::SocketPath { .. }
            | Error::SharedDirectory { .. } => Kind::Config,
        }
    }
}
