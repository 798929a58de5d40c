//! What integration tests stand on: real servers, a home of their own, a terminal, a census, a bad link.
//!
//! Promises that each server is private to its test (own port, log and counters), that nothing waits
//! for ever, and that a missing package is a failure which names the command, never a skip.
//! Imports nothing of towline: it drives the built program from outside. More: `docs/testing.md`.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "every test binary uses a part of this module, and tests fail by panicking"
)]

pub mod census;
pub mod home;
pub mod link;
pub mod pty;
pub mod server;
pub mod slurm;

pub use census::Process;
pub use home::{Answer, TempHome, run_json, towline};
pub use link::{Direction, Endpoint, Link, Shape};
pub use pty::Pty;
pub use server::{Auth, Sshd, ThrowawayOptions};
pub use slurm::Slurm;

use std::time::{Duration, Instant};

/// How long a test waits for something that takes milliseconds on a quiet machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `condition` gives a value; panics with `what` once `within` has passed.
pub fn wait_for<T>(within: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
