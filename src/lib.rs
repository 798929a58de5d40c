//! placeholder
pub mod jobs;
