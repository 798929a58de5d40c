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
mod bad_input;
mod callers;
mod demo;
mod ends;
mod environment;
mod exec_cli;
mod far;
mod far_side;
mod other_ways;
mod places;
mod prompts;
mod shells;
mod slurm;
