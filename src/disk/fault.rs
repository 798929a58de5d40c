//! What can be wrong with a file that should be the caller's alone.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It does not exist.
    #[error("{} does not exist", .path.display())]
    Missing {
        /// Its path.
        path: PathBuf,
    },
    /// It is of another type, belongs to somebody else, or is open to others.
    #[error("{} {reason}", .path.display())]
    Unsafe {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is longer than it may be.
    #[error("{} is longer than {limit} bytes, the limit", .path.display())]
    TooLarge {
        /// Its path.
        path: PathBuf,
        /// The bound.
        limit: u64,
    },
    /// Another process held its lock for all the time that could be waited.
    #[error("another process has held {} for {} ms", .path.display(), .waited.as_millis())]
    Busy {
        /// The locked file.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The system refused.
    #[error("cannot {doing} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl Fault {
    /// Tells whether the object is missing, which is no fault to many callers.
    pub fn is_missing(&self) -> bool {
        matches!(self, Fault::Missing { .. })
    }

    /// The file or directory.
    pub fn path(&self) -> &Path {
        match self {
            Fault::Missing { path }
            | Fault::Unsafe { path, .. }
            | Fault::TooLarge { path, .. }
            | Fault::Busy { path, .. }
            | Fault::Io { path, .. } => path,
        }
    }

    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Fault {
        match source.kind() {
            io::ErrorKind::NotFound => Fault::Missing { path: path.to_owned() },
            _ => Fault::Io { doing, path: path.to_owned(), source },
        }
    }
}
