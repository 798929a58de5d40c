//! Why the policy refuses, or cannot be asked.

use std::path::PathBuf;
use std::time::Duration;

use crate::audit;
use crate::disk::Fault;

/// What is wrong with a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantFault {
    /// There is none.
    None,
    /// There is one already, and at most one may wait.
    Exists,
    /// The id is not the grant's.
    OtherId,
    /// Another process minted it for itself.
    OtherClient,
    /// It is for another site.
    OtherSite,
    /// It is for the site's other role.
    OtherRole,
    /// Its attempt is used up.
    Used,
    /// Its time is over.
    Expired,
    /// No attempt under way has these values.
    OtherAttempt,
}

impl GrantFault {
    /// The word that stands in `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            GrantFault::None => "none",
            GrantFault::Exists => "exists",
            GrantFault::OtherId => "other_id",
            GrantFault::OtherClient => "other_client",
            GrantFault::OtherSite => "other_site",
            GrantFault::OtherRole => "other_role",
            GrantFault::Used => "used",
            GrantFault::Expired => "expired",
            GrantFault::OtherAttempt => "other_attempt",
        }
    }
}

impl std::fmt::Display for GrantFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            GrantFault::None => "there is no grant",
            GrantFault::Exists => "a grant exists already, and only one may wait",
            GrantFault::OtherId => "the id is not that of the grant",
            GrantFault::OtherClient => "the grant belongs to another process",
            GrantFault::OtherSite => "the grant is for another site",
            GrantFault::OtherRole => "the grant is for the site's other role",
            GrantFault::Used => "the grant has no attempt left",
            GrantFault::Expired => "the grant has expired",
            GrantFault::OtherAttempt => {
                "no attempt under way belongs to this grant, role, client and process"
            }
        })
    }
}

/// Why an operation on the policy was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The policy file is missing, unsafe or malformed.
    #[error("the policy file {reason}")]
    Invalid {
        /// What is wrong, to be read behind "the policy file".
        reason: String,
        /// The file or directory, where the driver knows it.
        file: Option<PathBuf>,
    },
    /// A text for the record is empty or too long.
    #[error("the {what} {reason}")]
    Text {
        /// Which text.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// An argument is out of its bounds.
    #[error("the {what} {reason}")]
    Input {
        /// Which argument.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The policy, or the attempt, is not what the caller saw.
    #[error("{reason}")]
    Conflict {
        /// What differs.
        reason: String,
    },
    /// The mode forbids it.
    #[error("{reason}")]
    Denied {
        /// What forbids it.
        reason: String,
    },
    /// The grant cannot be issued, matched or consumed.
    #[error("{fault}")]
    Grant {
        /// Why.
        fault: GrantFault,
    },
    /// An attempt on the site was too recent.
    #[error("an attempt on {site} was too recent: {seconds_left} s are left")]
    Cooldown {
        /// The site.
        site: String,
        /// Whole seconds until another attempt may be granted, rounded up.
        seconds_left: u64,
    },
    /// Other processes held the policy's mutex for all the time that could be waited; nothing was done.
    #[error("other processes have held the policy for {} ms", .waited.as_millis())]
    Busy {
        /// The mutex file.
        file: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// No pending request has this id.
    #[error("there is no pending request `{id}`")]
    NoRequest {
        /// The id that was asked for.
        id: String,
    },
    /// As many requests wait as may wait.
    #[error("{limit} requests wait already, the limit is {limit}")]
    TooManyRequests {
        /// The bound.
        limit: usize,
    },
    /// A file of the policy's could not be read or written.
    #[error(transparent)]
    Disk(Fault),
    /// It could not be written to the audit log, so it was not done.
    #[error("not done, since {0}")]
    Audit(#[from] audit::Error),
    /// The policy cannot be written as JSON.
    #[error("the policy cannot be written as JSON: {0}")]
    Encode(#[from] serde_json::Error),
}

impl Error {
    /// Fills in where the policy file is.
    pub(super) fn at(self, path: &std::path::Path) -> Error {
        match self {
            Error::Invalid { reason, file: None } => Error::Invalid { reason, file: Some(path.to_owned()) },
            other => other,
        }
    }
}

impl From<GrantFault> for Error {
    fn from(fault: GrantFault) -> Error {
        Error::Grant { fault }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            Fault::Busy { path, waited } => Error::Busy { file: path, waited },
            Fault::Unsafe { path, reason } => Error::Invalid {
                reason: format!("cannot be trusted: {} {reason}", path.display()),
                file: Some(path),
            },
            other @ (Fault::Missing { .. } | Fault::TooLarge { .. } | Fault::Io { .. }) => Error::Disk(other),
        }
    }
}
