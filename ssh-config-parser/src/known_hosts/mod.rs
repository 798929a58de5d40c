//! Reads known_hosts files, judges host keys by them and records new ones.

mod key;
mod list;
mod verdict;
mod write;

pub use key::{CertificateFacts, InvalidKey, KeyBlob};
pub use list::{ListError, revoked_by_list};
pub use verdict::{CertificateVerdict, KnownHosts, LookupName, Place, Verdict};
pub use write::{WriteError, append};
