//! The line for one command: the broker's, else one of its own in this process.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

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

/// How long a signal that was sent may take to be seen.
const SIGNAL_WITHIN: std::time::Duration = std::time::Duration::from_millis(20);

/// Uses the line of a role that a broker serves; where there is none, opens one for this command alone, asking on this
/// terminal or through the site's askpass program.
///
/// # Errors
/// `config`, `ssh_config_rejected`, `destination_changed`, those of a policy that is there, and every kind of a failed
/// opening.
pub async fn open(config: &Config, site: &Site, role: Role, output: &Output) -> Result<Line, Failure> {
    let opening = Opening::of(config, site, role)?;
    let place = Place::of(&config.home, &site.name, role)?;
    if place.look().ready().is_some() {
        let alias = broker::alias(site, role)?;
        return Ok(client::line(&place, &alias, &Destination::of(&opening.target)).await?);
    }
    obey(&Store::new(&config.home))?;
    output.note(&format!("opening a line of its own to {} ({role})", site.name))?;
    let mut interrupts = signal(SignalKind::interrupt())
        .map_err(|error| Failure::new(Kind::Internal, format!("cannot hear Ctrl-C: {error}")))?;
    let opened = tokio::select! {
        opened = line::open(opening.target, prompter(site), opening.options) => opened,
        _ = interrupts.recv() => leave(output),
    };
    match opened {
        Ok(line) => Ok(line),
        // A prompt without echo reads Ctrl-C itself: it sends us the signal, and fails. Either may be seen first.
        Err(error) => match tokio::time::timeout(SIGNAL_WITHIN, interrupts.recv()).await {
            Ok(_) => leave(output),
            Err(_not_interrupted) => Err(error.into()),
        },
    }
}

/// Ends this process on Ctrl-C before there is a line: nothing was done, but a prompt may have the terminal.
fn leave(output: &Output) -> ! {
    TerminalPrompter::restore();
    // The prompt's line is unfinished. That it cannot be finished changes nothing.
    drop(output.note(""));
    std::process::exit(EXIT_INTERRUPTED.into())
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
