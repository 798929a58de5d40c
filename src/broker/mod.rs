//! The broker: one process of this workstation a role that owns the line, and the clients that share it.
//!
//! Promises: no stream reaches the line before the policy's gate and the audit log let it; a client that leaves, stalls
//! or lies harms nobody else; a line never reconnects, and its end is exact at every caller. [`relay`] is the thinking,
//! `serve` its driver, [`daemon`] the process's life, [`Launcher`] its start, [`client`] the other end of its socket.
//! Imports `opening`, `line`, `ssh`, `policy`, `audit`, `config` and `disk`.

pub mod client;
pub mod daemon;
mod door;
mod error;
mod gate;
mod launch;
mod log;
mod pipe;
mod place;
mod receipt;
pub mod relay;
mod serve;

pub use error::Error;
pub use launch::{Launcher, Permission, SUBCOMMAND};
pub use log::Log;
pub use place::{Look, Place};
pub use receipt::{Destination, PROTOCOL, Receipt, Status, alias};
