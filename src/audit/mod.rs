//! The audit log: a hash-chained file of every policy event and every remote operation.
//!
//! Promises: what cannot be written is an error before anything is dispatched; several processes append to one chain;
//! a line torn by a crash is sealed and told, never mistaken for a whole one; nothing secret and nothing long goes in.
//! The chain shows accidents and tampering, not an attacker with the same uid, who can write a new one.
//! Imports `disk` only.

mod chain;
mod clock;
mod entry;
mod error;
mod log;
mod read;
pub mod redact;
mod sync;

pub use chain::{Broken, Place, Report};
pub use clock::{Clock, SystemClock, rfc3339};
pub use entry::{Entry, Line, What, Who};
pub use error::Error;
pub use log::{Audit, Durability, FILE_BYTES_MAX, FILES_MAX};
pub use read::{Reader, Record, verify};

/// The name of the newest file in the state directory; older ones are `audit.jsonl.1` and so on.
pub const FILE: &str = "audit.jsonl";
