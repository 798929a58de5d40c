//! The built binary against a real sshd and a real Slurm: what a user would notice.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

#[path = "../support/mod.rs"]
mod support;

mod acceptance;
mod far;
mod shells;
mod slurm;
