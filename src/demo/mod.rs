//! The embedded login node and mini cluster behind `towline demo` and the tests.
//!
//! Promises a server that behaves as a cluster's login node does (key, second factor, one session channel, real
//! processes, real flow control) and that counts what a client costs it. Imports nothing of the project.

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

pub use link::Faults;
pub use options::{Counters, Options, Push};
pub use scratch::HOST;
pub use server::{Error, Server};
