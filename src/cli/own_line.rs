//! The line for one command: the broker's, else one of its own in this process.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::output::Output;
use crate::broker::{self, Destination, Place, client};
use crate::config::{Config, Role, Site};
use crate::failure::Failure;
use crate::kind::{EXIT_INTERRUPTED, Kind};
use crate::line::{self, Line};
use crate::opening::Opening;
use crate::policy::state::Mode;
use crate::policy::{self, Store};
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

/// Uses the line of a role that a broker serves; where there is none, opens one for this command alone, asking on this
/// terminal or through the site's askpass program. A signal that wants us gone meanwhile gives our exit code in its
/// place.
///
/// # Errors
/// `config`, `ssh_config_rejected`, `destination_changed`, `policy_denied` and `policy_invalid` before anything is dialled
/// where there is a policy, and every kind of a failed opening.
pub async fn open(
    config: &Config,
    (site, role): (&Site, Role),
    output: &Output,
    signals: &mut Signals,
) -> Result<ControlFlow<u8, Line>, Failure> {
    // Whoever can enter there could have put another configuration in its place.
    config.home.check()?;
    let opening = Opening::of(config, site, role)?;
    let place = Place::of(&config.home, &site.name, role)?;
    if place.look().ready().is_some() {
        let alias = broker::alias(site, role)?;
        return Ok(ControlFlow::Continue(
            client::line(&place, &alias, &Destination::of(&opening.target)).await?,
        ));
    }
    obey(&Store::new(&config.home))?;
    output.note(&format!("opening a line of its own to {} ({role})", site.name))?;
    tokio::select! {
        biased;
        code = signals.arrived() => Ok(ControlFlow::Break(code)),
        line = line::open(opening.target, prompter(site), opening.options) => Ok(ControlFlow::Continue(line?)),
    }
}

/// Obeys the policy where there is one.
fn obey(store: &Store) -> Result<(), Failure> {
    let shown = store.show();
    if shown.valid && shown.mode == Mode::Disabled {
        let reason = "the policy is disabled, so no line may be opened or used".to_owned();
        return Err(policy::Error::Denied { reason }.into());
    }
    if !shown.valid && (shown.stop_marker || shown.path.symlink_metadata().is_ok()) {
        let reason = shown.error.unwrap_or_default();
        let reason = reason.strip_prefix("the policy file ").unwrap_or(&reason).to_owned();
        return Err(policy::Error::Invalid { reason, file: Some(shown.path) }.into());
    }
    Ok(())
}

/// Who asks the human: the terminal, else the site's askpass program, else nobody.
pub(super) fn prompter(site: &Site) -> Arc<dyn Prompter> {
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
