//! Both ends of a line in a simulated world: one fake clock, one seed, no threads, no sockets.
//!
//! `TOWLINE_WORLD_SEED=N cargo test -p towline-helper --test world NAME` replays what a failure has printed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod chance;
mod delivery;
mod jobs;
mod link;
mod referee;
mod sim;
mod window;
