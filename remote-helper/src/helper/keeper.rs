//! Ends what a killed helper leaves behind.
//!
//! Nothing in a process survives its SIGKILL, so this is a small second process: the same file, which waits for the end
//! of a pipe that only the helper holds. It begins with the first command that is not detached, and ends with the helper.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;

use super::ending::{GRACE, signal};
use super::processes::{Owner, parse_mark, read_environment, read_table};
use super::session::{Marker, STREAM_VARIABLE, Session};

/// The first argument of the keeper.
pub(crate) const ARGUMENT: &str = "-k";
/// The stream of its own mark: none has this number, and what is marked as detached nobody ends.
const STREAM: u32 = 0;
/// What the helper says when it ends in good order.
const DISMISSED: &[u8] = b".";
/// How long after KILL the survivors are looked for.
const KILLING: Duration = Duration::from_secs(2);
/// Between two looks at the table.
const PAUSE: Duration = Duration::from_millis(50);

/// The helper's hold on its keeper.
#[derive(Debug)]
pub(crate) struct Keeper(ChildStdin);

impl Keeper {
    /// Starts the process. Without it (a limit on processes, no `/proc`) only a killed helper's commands would stay.
    pub(crate) fn start(session: &Session) -> Option<Keeper> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("towline-helper").arg(ARGUMENT).arg(session.marker.as_str());
        command.env(STREAM_VARIABLE, session.stream_mark(STREAM, true));
        // It must hold nothing of the channel, whose end is how the other side learns of the helper's, and what is
        // sent to the helper's process group is not meant for it.
        command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The loop reaps it with all other children.
        command.spawn().ok()?.stdin.take().map(Keeper)
    }

    /// Lets it go: the helper has ended everything itself.
    pub(crate) fn dismiss(mut self) {
        // If it has gone already there is nobody to dismiss.
        self.0.write_all(DISMISSED).unwrap_or_default();
    }
}

/// Waits for the helper's end, and ends what is left when it was none in good order.
pub(crate) fn keep(marker: &Marker) -> ExitCode {
    prctl::set_name(c"towline-keeper").unwrap_or_default();
    let mut said = Vec::new();
    // The pipe's end, however it comes, is the helper's.
    let read = std::io::stdin().lock().take(16).read_to_end(&mut said);
    if read.is_ok() && said == DISMISSED {
        return ExitCode::SUCCESS;
    }
    let (began, mut termed) = (Instant::now(), BTreeSet::new());
    while began.elapsed() < GRACE + KILLING {
        let left = left_behind(marker);
        if left.is_empty() {
            break;
        }
        for (pid, process_began) in left {
            if began.elapsed() >= GRACE {
                signal(pid, process_began, Signal::SIGKILL);
            } else if termed.insert((pid, process_began)) {
                signal(pid, process_began, Signal::SIGTERM);
            }
        }
        std::thread::sleep(PAUSE);
    }
    ExitCode::SUCCESS
}

/// The living processes of this line's commands that were not detached, with the time when each began.
///
/// Their ancestry is lost with the helper; the variable that each command inherits is not.
fn left_behind(marker: &Marker) -> Vec<(i32, u64)> {
    let is_meant = |pid| {
        matches!(parse_mark(&read_environment(pid), marker), Some(Owner::Command { detach: false, .. }))
    };
    let table = read_table().into_iter().filter(|(_, process)| !process.is_dead);
    table.filter(|(pid, _)| is_meant(*pid)).map(|(pid, process)| (pid, process.began)).collect()
}
