//! Opens a line for one command, in this process.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::Output;
use crate::config::{Config, Home, Role, Site};
use crate::failure::Failure;
use crate::kind::{EXIT_INTERRUPTED, Kind};
use crate::line::{self, Line};
use crate::opening::Opening;
use crate::policy::Store;
use crate::policy::state::Mode;
use crate::ssh::{AskpassPrompter, NoPrompter, Prompter, TerminalPrompter};

/// Exit code after SIGTERM: 128 + 15.
const EXIT_TERMINATED: u8 = 143;
/// Exit code after SIGHUP, when the terminal is gone: 128 + 1.
const EXIT_HUNG_UP: u8 = 129;

/// The signals that want us gone. What arrives while nobody waits is remembered.
///
/// Once made, those signals end nothing by themselves: whoever works on must wait for them here.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// `internal` when the system does not let us.
    pub fn listen() -> Result<Signals, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Kind::Internal, format!("cannot hear signals: {error}")))
        };
        Ok(Signals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one, and tells the exit code that a shell sees of a program that it ends. Cancel safe.
    pub async fn arrived(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => EXIT_INTERRUPTED,
            _ = self.terminate.recv() => EXIT_TERMINATED,
            _ = self.hang_up.recv() => EXIT_HUNG_UP,
        }
    }
}

/// Opens the line of a role, asking on this terminal or through the site's askpass program; a signal that wants us
/// gone meanwhile gives our exit code in its place.
///
/// # Errors
/// `policy_denied` and `policy_invalid` before anything is dialled, `config`, `ssh_config_rejected`, and every kind of a
/// failed opening.
pub async fn open(
    config: &Config,
    (site, role): (&Site, Role),
    output: &Output,
    signals: &mut Signals,
) -> Result<ControlFlow<u8, Line>, Failure> {
    // Whoever can enter there could have put another configuration in its place.
    config.home.check()?;
    permitted(&config.home)?;
    let opening = Opening::of(config, site, role)?;
    output.note(&format!("opening a line of its own to {} ({role})", site.name))?;
    tokio::select! {
        biased;
        code = signals.arrived() => Ok(ControlFlow::Break(code)),
        line = line::open(opening.target, prompter(site), opening.options) => Ok(ControlFlow::Continue(line?)),
    }
}

/// Obeys a policy that says disabled, or that cannot be trusted. Where there is none yet, a line of one's own is free.
fn permitted(home: &Home) -> Result<(), Failure> {
    let store = Store::new(home);
    let path = store.path();
    let shown = store.show();
    let missing = std::fs::symlink_metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    match (missing && !shown.stop_marker, shown.valid, shown.mode) {
        (true, _, _) | (_, true, Mode::ReuseOnly) => Ok(()),
        (false, true, Mode::Disabled) => {
            Err(Failure::new(Kind::PolicyDenied, "the policy is disabled, so no line is opened")
                .hint("a human can permit it on a terminal with `towline policy enable-reuse`"))
        }
        (false, false, _) => {
            let reason = shown.error.unwrap_or_else(|| "the policy cannot be trusted".to_owned());
            Err(Failure::new(Kind::PolicyInvalid, reason)
                .hint("see `towline policy show`")
                .field("file", path.display().to_string()))
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
