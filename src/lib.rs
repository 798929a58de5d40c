//! placeholder

#[cfg(feature = "demo")]
pub mod demo;
