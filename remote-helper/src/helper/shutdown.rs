//! The end of a line: whatever was not detached is ended, half-written files are removed, and all that within five
//! seconds, whatever hangs.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::poll::PollTimeout;

use super::command::Why;
use super::ending::{Campaign, Scope};
use super::link::Over;
use super::server::Server;

/// When the helper ends in any case.
const ALL_MOST: Duration = Duration::from_millis(4500);
/// How long file work may take to remove what it has left half-done.
const WORKS_MOST: Duration = Duration::from_secs(2);
/// How long the other end may take to read why the line ended.
const BYE_MOST: Duration = Duration::from_secs(1);
/// Between two looks.
const PAUSE_MS: u16 = 20;
/// What a shell adds to a signal's number in an exit code.
const CODE_SIGNAL_BASE: u8 = 128;

/// Ends everything and says how the line ended.
pub(super) fn shutdown(mut server: Server) -> ExitCode {
    let began = Instant::now();
    let (code, reason) = match server.link.over() {
        None | Some(Over::Closed) => (0, None),
        Some(Over::Broken(error)) => (1, Some(error.to_string())),
        Some(Over::Signal(number)) => (
            CODE_SIGNAL_BASE.saturating_add(u8::try_from(*number).unwrap_or(0)),
            Some(format!("signal {number}")),
        ),
    };
    if let Some(reason) = reason {
        server.link.bye(reason);
    }
    let mut campaign = begin(&mut server);
    loop {
        let elapsed = began.elapsed();
        let is_said =
            server.link.flush_encoded() || server.link.blocked_stdout().is_none() || elapsed > BYE_MOST;
        server.handle_signals();
        server.handle_steps();
        server.advance_works();
        let works_are_done = !server.works.values().any(|work| work.is_away()) || elapsed > WORKS_MOST;
        let marker = &server.session.marker;
        if campaign.as_mut().is_some_and(|campaign| campaign.step(marker)) {
            campaign = None;
        }
        if (is_said && works_are_done && campaign.is_none()) || elapsed > ALL_MOST {
            if let Some(keeper) = server.keeper.take() {
                keeper.dismiss();
            }
            return ExitCode::from(code);
        }
        server.wait_ending(PollTimeout::from(PAUSE_MS));
    }
}

/// Asks all commands and all file work to end. Returns the campaign that sees to it.
fn begin(server: &mut Server) -> Option<Campaign> {
    let now = server.link.now();
    server.works.values_mut().for_each(|work| work.cancel(now, true));
    if let Some(snapshot) = &server.snapshot {
        snapshot.kill();
    }
    let groups =
        server.commands.values_mut().filter(|command| !command.is_detached()).filter_map(|command| {
            // A group whose leader was reaped may have another owner by now; the table tells who is left of it.
            command.stop(now, Why::Cancel).map(|_| command.pid().as_raw())
        });
    let groups = groups.collect();
    // Whoever waits for input or for room in a pipe has no reason to wait any more.
    server.held.clear();
    let scope = Scope::Line { some_detached: server.some_detached };
    let roots = server.roots();
    server.has_launched.then(|| Campaign::new(scope, roots, groups))
}
