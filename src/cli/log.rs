//! Log lines on stderr, for those who ask for them with `TOWLINE_LOG`.

use tracing_subscriber::EnvFilter;

use crate::config::{self, Environment};
use crate::failure::Failure;

/// Starts logging when `TOWLINE_LOG` says what; without it stderr belongs to errors alone.
///
/// # Errors
/// `config` when the variable's value is no filter.
pub(super) fn start(environment: &Environment) -> Result<(), Failure> {
    let Some(value) = &environment.log else { return Ok(()) };
    let refused = |reason: String| {
        let value = value.to_string_lossy().into_owned();
        Failure::from(config::Error::Variable { variable: "TOWLINE_LOG", value, reason })
    };
    let text = value.to_str().ok_or_else(|| refused("it must be UTF-8".to_owned()))?;
    let filter = EnvFilter::builder()
        .parse(text)
        .map_err(|error| refused(format!("it must be a filter such as towline=debug ({error})")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init()
        .map_err(|error| {
            Failure::new(crate::kind::Kind::Internal, format!("logging was started twice: {error}"))
        })
}
