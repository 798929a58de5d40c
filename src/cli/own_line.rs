//! Opens a line for one command, in this process.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::output::Output;
use crate::config::{Config, Role, Site};
use crate::failure::Failure;
use crate::kind::{EXIT_INTERRUPTED, Kind};
use crate::line::{self, Line};
use crate::opening::Opening;
use crate::ssh::{AskpassPrompter, NoPrompter, Prompter, TerminalPrompter};

/// Exit code after SIGTERM: 128 + 15.
const EXIT_TERMINATED: u8 = 143;
/// Exit code after SIGHUP, when the terminal is gone: 128 + 1.
const EXIT_HUNG_UP: u8 = 129;

/// Opens the line of a role, asking on this terminal or through the site's askpass program; a signal that wants us
/// gone meanwhile gives our exit code in its place.
///
/// # Errors
/// `policy_invalid`, `config`, `ssh_config_rejected`, and every kind of a failed opening.
pub async fn open(
    config: &Config,
    site: &Site,
    role: Role,
    output: &Output,
) -> Result<ControlFlow<u8, Line>, Failure> {
    // Whoever can enter there could have put another configuration in its place.
    config.home.check()?;
    let opening = Opening::of(config, site, role)?;
    output.note(&format!("opening a line of its own to {} ({role})", site.name))?;
    tokio::select! {
        biased;
        code = interrupted() => Ok(ControlFlow::Break(code)),
        line = line::open(opening.target, prompter(site), opening.options) => Ok(ControlFlow::Continue(line?)),
    }
}

/// Waits for a signal that wants us gone, and tells the exit code that a shell sees of a program that it ends.
///
/// Once this was called, those signals end nothing by themselves: whoever works on must wait for them here.
pub async fn interrupted() -> u8 {
    tokio::select! {
        () = arrives(SignalKind::interrupt()) => EXIT_INTERRUPTED,
        () = arrives(SignalKind::terminate()) => EXIT_TERMINATED,
        () = arrives(SignalKind::hangup()) => EXIT_HUNG_UP,
    }
}

async fn arrives(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signals) => {
            // `None` would mean that no more can arrive.
            if signals.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
        }
        Err(error) => {
            // The signal keeps its usual effect, which is to end us.
            tracing::debug!(%error, "a signal cannot be awaited");
            std::future::pending::<()>().await;
        }
    }
}

/// Who asks the human: the terminal, else the site's askpass program, else nobody.
fn prompter(site: &Site) -> Arc<dyn Prompter> {
    match &site.askpass {
        _ if TerminalPrompter::available() => Arc::new(TerminalPrompter),
        Some(program) => Arc::new(AskpassPrompter::new(program.clone())),
        None => Arc::new(NoPrompter),
    }
}

/// Runs a future on a runtime of this thread.
///
/// # Errors
/// `internal` when the system gives no runtime; else the future's own.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Kind::Internal, format!("the system gives no event loop: {error}")))?;
    let result = runtime.block_on(future);
    // A thread that still reads our standard input must not keep the process.
    runtime.shutdown_background();
    result
}
