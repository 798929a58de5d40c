//! placeholder

pub mod ssh;
