//! Opens a line for one command, in this process.

use std::io::ErrorKind;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::output::Output;
use crate::config::{Config, Home, Role, Site};
use crate::failure::Failure;
use crate::kind::{EXIT_INTERRUPTED, Kind};
use crate::line::{self, Line};
use crate::opening::Opening;
use crate::policy::Store;
use crate::policy::state::Mode;
use crate::ssh::{AskpassPrompter, NoPrompter, Prompter, TerminalPrompter};

/// How long a signal that was sent may take to be seen.
const SIGNAL_WITHIN: std::time::Duration = std::time::Duration::from_millis(20);

/// Opens the line of a role, asking on this terminal or through the site's askpass program.
///
/// # Errors
/// `policy_denied` and `policy_invalid` before anything is dialled, `config`, `ssh_config_rejected`, and every kind of a
/// failed opening.
pub async fn open(config: &Config, site: &Site, role: Role, output: &Output) -> Result<Line, Failure> {
    permitted(&config.home)?;
    let opening = Opening::of(config, site, role)?;
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

/// Ends this process on Ctrl-C before there is a line: nothing was done, but a prompt may have the terminal.
fn leave(output: &Output) -> ! {
    TerminalPrompter::restore();
    // The prompt's line is unfinished. That it cannot be finished changes nothing.
    drop(output.note(""));
    std::process::exit(EXIT_INTERRUPTED.into())
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
