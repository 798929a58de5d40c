//! Reads `ssh_config(5)` and known_hosts as the OpenSSH client does, without running anything.
//!
//! [`Snapshot`] holds every file of a configuration, read once; [`Snapshot::resolve`] answers what
//! `ssh -G -F FILE HOST` would, [`Snapshot::flatten`] gives one text without `Include` that means the same
//! for every host, and [`check`] lists all that is wrong or without effect. [`known_hosts`] judges host keys.
//!
//! Nothing here starts a process, writes a configuration file or opens a connection; the only look-up of a
//! name is the one that `CanonicalizeHostname` asks for, and its resolver can be replaced.

pub mod known_hosts;
mod rejection;
mod resolved;
mod snapshot;
mod world;

pub use rejection::{Finding, Note, Reason, Rejection, Severity};
pub use resolved::{
    AddressFamily, FingerprintHash, IdentityAgent, IdentityFile, Jump, Resolved,
    StrictHostKeyChecking,
};
pub use snapshot::{Flattened, Snapshot, check};
pub use world::World;
