//! Reads `ssh_config(5)` and known_hosts as the OpenSSH client does, without running anything.
//!
//! [`Snapshot`] holds every file of a configuration, read once; [`Snapshot::resolve`] answers what
//! `ssh -G -F FILE HOST` would, [`Snapshot::flatten`] gives one text without `Include` that means the same
//! for every host, and [`check`] lists all that is wrong or without effect. [`known_hosts`] judges host keys.
//!
//! Nothing here starts a process, writes a configuration file or opens a connection; the only look-up of a
//! name is the one that `CanonicalizeHostname` asks for, and its resolver can be replaced.

mod address;
mod algorithms;
mod canonical;
mod check;
mod context;
mod effective;
mod expand;
mod expanded;
mod file;
mod flatten;
mod forward;
mod glob;
mod include;
mod intersect;
mod jump;
mod keywords;
pub mod known_hosts;
mod lines;
mod parse;
mod patterns;
mod policy;
mod print;
mod reading;
mod rejection;
mod resolve;
mod resolved;
mod route;
mod snapshot;
mod specs;
mod store;
mod typed;
mod values;
mod walk;
mod words;
mod world;

pub use canonical::NameLookup;
pub use check::check;

pub use rejection::{Finding, Note, Reason, Rejection, Severity};
pub use resolved::{
    AddressFamily, FingerprintHash, IdentityAgent, IdentityFile, Jump, Resolved, StrictHostKeyChecking,
};
pub use snapshot::{Flattened, Snapshot};
pub use world::World;
