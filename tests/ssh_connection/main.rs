//! The SSH room against real servers, servers that misbehave, and servers that ask odd questions.
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

mod bench;
mod certificates;
mod channel;
mod host_keys;
mod interactive;
mod keys;
mod odd_servers;
mod routes;
