//! Slurm's dialect and the jobs driver, on real bytes and against a scripted far end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod answers;
mod driver;
mod logs;
mod properties;
mod support;
mod waiting;
