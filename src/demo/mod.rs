//! The embedded login node and mini cluster behind `towline demo` and the tests.
//!
//! Promises a server that behaves as a cluster's login node does (key, second factor, one session channel, real
//! processes, real flow control) and that counts what a client costs it. Imports `line`, `ssh` and `jobs` for the
//! show only; the server knows nothing of them.

mod account;
/// The mini batch system behind the demo's `sbatch`, `squeue` and their like.
pub mod batch;
mod exec;
mod link;
mod login;
mod options;
mod outbox;
mod scratch;
mod server;
mod show;

pub use link::Faults;
pub use options::{Counters, Options, Push};
pub use scratch::HOST;
pub use server::{Error, Server};
pub use show::{COMMANDS, Report, ShowError, Without, show};
