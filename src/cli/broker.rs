//! `towline broker`: the process that owns a line. Not for people: `connect` starts it and speaks with it.

use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

use crate::broker::{Log, daemon};
use crate::config::Environment;
use crate::failure::Failure;

/// What is logged when `TOWLINE_LOG` does not say.
const LOGGED: &str = "towline=info";

pub(super) fn run(environment: Environment) -> u8 {
    let filter = environment.log.as_ref().and_then(|value| value.to_str()).unwrap_or(LOGGED).to_owned();
    let log_to = move |log: Log| {
        let filter = EnvFilter::builder().parse(&filter).unwrap_or_else(|_wrong| EnvFilter::new(LOGGED));
        let writer =
            tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Mutex::new(log));
        // Started twice, the first one goes on.
        drop(writer.try_init());
    };
    let explain = |error| Failure::from(error).to_json();
    daemon::run(environment, &explain, &log_to)
}
