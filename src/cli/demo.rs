//! `towline demo`: the embedded server and mini cluster, shown at work.

use super::args::DemoArgs;
use super::output::Output;
use crate::config::Environment;
use crate::failure::Failure;
use crate::kind::Kind;

/// Runs the demo.
///
/// # Errors
/// Those of the rooms that it shows.
pub fn run(_args: &DemoArgs, _environment: &Environment, _output: &Output) -> Result<u8, Failure> {
    Err(Failure::new(Kind::Internal, "this build has no demo"))
}
