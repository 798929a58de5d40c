//! Reads known_hosts files, judges host keys by them and records new ones.
//!
//! Parsing and judging are pure; only [`KnownHosts::load`], [`revoked_by_list`] and [`append`] touch files.
//! The name of a host is a [`LookupName`], a key a [`KeyBlob`]; both are valid by construction.

mod hosts;
mod key;
mod line;
mod list;
mod name;
mod verdict;
mod wire;
mod write;

pub use hosts::KnownHosts;
pub use key::{CertificateFacts, InvalidKey, KeyBlob};
pub use list::{ListError, revoked_by_list};
pub use name::LookupName;
pub use verdict::{CertificateVerdict, Place, Verdict};
pub use write::{WriteError, append};
