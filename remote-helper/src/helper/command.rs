//! A running command: its input, its outputs, its deadline, and when its answer is due.
//!
//! The command is over when its main process is. Its answer follows once both outputs have been read to what the
//! main process can have written, at the latest half a second later when a descendant still holds a pipe. Such a
//! pipe stays with the helper, which goes on reading and drops what comes: the descendant neither blocks nor gets
//! SIGPIPE, and no byte of it can reach another command.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, write};
use towline_helper::wire::endpoint::{STDERR, STDIN, STDOUT};
use towline_helper::wire::message::{Exec, ExecOutcome, Refusal};

use super::ending::{GRACE, GRACE_OF_HOLDERS, Scope};
use super::fault::refuse_errno;
use super::launch::{Launched, Obstacle, Step};
use super::link::{Got, Link};
use super::output::Output;
use super::pieces::Pieces;
use super::processes::Root;
use super::program::Image;

/// How long a held pipe is waited for after the main process ended (`o2.md` 3.4).
const PIPE_GRACE: Duration = Duration::from_millis(500);
/// From the deadline or cancel to an answer, even when the process can't be killed.
const ANSWER_AFTER_STOP: Duration = Duration::from_millis(4500);
/// Exit code of a command that its deadline ended.
const RC_DEADLINE: i32 = 124;
/// What a shell adds to the number of the signal that ended a command.
const RC_SIGNAL_BASE: i32 = 128;

/// Exit codes of a command that could not be started, and of a program that is not there, as shells have them.
const RC_NOT_STARTED: i32 = 126;
const RC_NOT_FOUND: i32 = 127;

/// Why a command is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its deadline passed.
    Deadline,
    /// The client asked for it.
    Cancel,
}

/// What the server has to do for a command.
#[derive(Debug)]
pub(crate) enum Due {
    /// Nothing now.
    Nothing,
    /// Descendants have to be ended.
    Campaign(Scope),
    /// The command's answer is due.
    Answer(ExecOutcome),
}

#[derive(Debug)]
struct Stop {
    at: Duration,
    why: Why,
    is_killed: bool,
}

/// A command that was launched.
#[derive(Debug)]
pub(crate) struct Command {
    stream: u32,
    pid: Pid,
    detach: bool,
    end_background: bool,
    began: Duration,
    deadline: Option<Duration>,
    /// The program and the working directory, for error texts.
    shown: String,
    cwd: Option<PathBuf>,
    loading: Option<OwnedFd>,
    input: Input,
    outputs: [Output; 2],
    /// The kernel's numbers of the output pipes, while their holders may have to be found.
    pipes: Vec<u64>,
    ended: Option<(Duration, ExitStatus)>,
    stop: Option<Stop>,
    holders_ended: Option<Duration>,
    is_finishing: bool,
}

impl Command {
    /// Takes a process that was just forked.
    pub(crate) fn new(stream: u32, exec: &Exec, image: &Image, launched: Launched, now: Duration) -> Command {
        let pipes = if exec.end_background { launched.output_numbers() } else { Vec::new() };
        Command {
            stream,
            pid: launched.pid,
            detach: exec.detach,
            end_background: exec.end_background,
            began: now,
            deadline: exec.deadline_ms.map(|ms| now + Duration::from_millis(ms)),
            shown: image.shown.clone(),
            cwd: image.cwd.as_ref().map(|cwd| PathBuf::from(OsStr::from_bytes(cwd.to_bytes()))),
            loading: Some(launched.loading),
            input: Input { pipe: launched.stdin, pieces: Pieces::default(), is_ended: false },
            outputs: [
                Output::new(stream, STDOUT, launched.stdout, exec.keep),
                Output::new(stream, STDERR, launched.stderr, exec.keep),
            ],
            pipes,
            ended: None,
            stop: None,
            holders_ended: None,
            is_finishing: false,
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether its main process was reaped.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.detach
    }

    /// The answer when something stood in the program's way: a refusal about the working directory, or an outcome.
    pub(crate) fn not_started(&self, obstacle: Obstacle) -> Result<ExecOutcome, Refusal> {
        let errno = obstacle.errno;
        match (obstacle.step, &self.cwd) {
            (Step::ChangeFolder, Some(cwd)) => {
                Err(refuse_errno(errno, "change to the working directory", cwd))
            }
            (Step::Load, _) if errno == Errno::ENOENT => {
                Ok(not_started(RC_NOT_FOUND, format!("cannot find {}: {}", self.shown, errno.desc())))
            }
            _ => Ok(not_started(RC_NOT_STARTED, format!("cannot run {}: {}", self.shown, errno.desc()))),
        }
    }

    /// The process as the root of its descendants.
    pub(crate) fn root(&self) -> Root {
        let is_alive = self.ended.is_none();
        Root { pid: self.pid.as_raw(), stream: self.stream, detach: self.detach, is_alive }
    }

    /// The pipe that tells whether the program was loaded.
    pub(crate) fn loading(&self) -> Option<BorrowedFd<'_>> {
        Some(self.loading.as_ref()?.as_fd())
    }

    /// The input pipe, while bytes wait for it.
    pub(crate) fn wanted_input(&self) -> Option<BorrowedFd<'_>> {
        self.input.wanted()
    }

    /// An output pipe, while it's to be read.
    pub(crate) fn wanted_output(&self, index: usize, link: &Link) -> Option<BorrowedFd<'_>> {
        self.outputs.get(index).filter(|_| !self.is_finishing)?.wanted(link)
    }

    /// When [`Command::advance`] is due without any event.
    pub(crate) fn next_time(&self, now: Duration) -> Option<Duration> {
        let times = match (&self.ended, &self.stop) {
            (None, None) => [self.deadline, None],
            (None, Some(stop)) => [Some(stop.at + GRACE), Some(stop.at + ANSWER_AFTER_STOP)],
            (Some((at, _)), _) => [Some(self.grace_until(*at)), None],
        };
        times.into_iter().flatten().filter(|time| *time > now).min()
    }

    /// Looks whether the program was loaded. Returns what stood in its way, if anything did.
    pub(crate) fn handle_loading(&mut self, link: &mut Link, note: Option<&str>) -> Option<Obstacle> {
        let obstacle = match link.read(self.loading.as_ref()?.as_fd(), READ_OBSTACLE_BYTES) {
            Got::Nothing => return None,
            Got::Bytes(bytes) => Obstacle::parse(bytes),
            Got::End => None,
        };
        self.loading = None;
        if obstacle.is_none() {
            let pid = u32::try_from(self.pid.as_raw()).ok();
            link.dispatched(self.stream, pid, note.map(str::to_owned));
        }
        obstacle
    }

    /// Takes input from the client.
    pub(crate) fn handle_input(&mut self, link: &mut Link, bytes: Vec<u8>, end: bool) {
        self.input.push(bytes, end);
        self.write_input(link);
    }

    /// Writes input as far as the pipe takes it.
    pub(crate) fn write_input(&mut self, link: &mut Link) {
        let used = self.input.write();
        if used > 0 {
            link.consumed(self.stream, STDIN, used);
        }
    }

    /// Reads an output once.
    pub(crate) fn read_output(&mut self, index: usize, link: &mut Link) {
        if let Some(output) = self.outputs.get_mut(index) {
            output.read(link);
        }
    }

    /// Takes the end of the main process.
    pub(crate) fn handle_ended(&mut self, link: &mut Link, status: ExitStatus) {
        self.ended = Some((link.now(), status));
        self.outputs.iter_mut().for_each(Output::handle_ended);
        self.close_input(link);
    }

    /// Drops the output that is still to come; nobody waits for it.
    pub(crate) fn discard(&mut self) {
        self.outputs.iter_mut().for_each(Output::discard);
    }

    /// Begins to end the command. Returns whom besides its own group.
    pub(crate) fn stop(&mut self, now: Duration, why: Why) -> Option<Scope> {
        if self.stop.is_some() || self.ended.is_some() {
            return None;
        }
        self.stop = Some(Stop { at: now, why, is_killed: false });
        self.signal(Signal::SIGTERM);
        (!self.detach).then_some(Scope::Command(self.stream))
    }

    /// Does what is due by now.
    pub(crate) fn advance(&mut self, link: &mut Link) -> Due {
        let now = link.now();
        if self.deadline.is_some_and(|deadline| deadline <= now)
            && let Some(scope) = self.stop(now, Why::Deadline)
        {
            return Due::Campaign(scope);
        }
        let kill_due = self.ended.is_none()
            && self.stop.as_ref().is_some_and(|stop| !stop.is_killed && now >= stop.at + GRACE);
        if kill_due {
            self.signal(Signal::SIGKILL);
            self.stop.iter_mut().for_each(|stop| stop.is_killed = true);
        }
        for output in &mut self.outputs {
            if !output.is_held() && !output.is_finished() {
                output.finish(link);
            }
        }
        let gave_up = self.stop.as_ref().is_some_and(|stop| now >= stop.at + ANSWER_AFTER_STOP);
        match self.ended {
            Some((at, _)) if !gave_up => self.advance_ended(link, now, at),
            None if !gave_up => Due::Nothing,
            _ => self.answer(link),
        }
    }

    /// The pipes that descendants still hold, once the command is answered.
    pub(crate) fn into_held_pipes(self) -> impl Iterator<Item = OwnedFd> {
        self.outputs.into_iter().filter_map(Output::into_pipe)
    }

    fn advance_ended(&mut self, link: &mut Link, now: Duration, ended: Duration) -> Due {
        if self.outputs.iter().any(Output::is_held) && !self.is_finishing {
            if now < self.grace_until(ended) {
                return Due::Nothing;
            }
            if self.end_background && self.holders_ended.is_none() {
                self.holders_ended = Some(now);
                return Due::Campaign(Scope::Holders(self.stream, self.pipes.clone()));
            }
            // An empty pipe reports nothing, so it has to be asked. And bytes that the command wrote may still lie in
            // it because the client has no room for them.
            for output in self.outputs.iter_mut().filter(|output| !output.is_settled()) {
                output.read(link);
            }
            if !self.outputs.iter().all(Output::is_settled) {
                return Due::Nothing;
            }
        }
        self.answer(link)
    }

    fn answer(&mut self, link: &mut Link) -> Due {
        self.is_finishing = true;
        for output in &mut self.outputs {
            if !output.is_finished() {
                output.finish(link);
            }
        }
        match self.outputs.iter().all(Output::is_finished) {
            true => Due::Answer(self.outcome(link.now())),
            false => Due::Nothing,
        }
    }

    /// Until when held pipes are waited for. What is being ended lets go of them within its own grace time.
    fn grace_until(&self, ended: Duration) -> Duration {
        let stopping = self.stop.as_ref().filter(|_| !self.detach).map(|stop| stop.at + GRACE);
        let holders = self.holders_ended.map(|at| at + GRACE_OF_HOLDERS);
        [Some(ended), stopping, holders].into_iter().flatten().max().unwrap_or(ended) + PIPE_GRACE
    }

    fn outcome(&self, now: Duration) -> ExecOutcome {
        let timed_out = self.stop.as_ref().is_some_and(|stop| stop.why == Why::Deadline);
        let (at, status) = match self.ended {
            Some((at, status)) => (at, Some(status)),
            None => (now, None),
        };
        // A process that even KILL has not ended yet counts as ended by it.
        let signal = status.map_or(Some(Signal::SIGKILL as i32), |status| status.signal());
        let rc = match (status.and_then(|status| status.code()), signal) {
            _ if timed_out => RC_DEADLINE,
            (Some(code), _) => code,
            (None, signal) => RC_SIGNAL_BASE + signal.unwrap_or(0),
        };
        let [stdout, stderr] = &self.outputs;
        ExecOutcome {
            rc,
            signal,
            timed_out,
            pipes_held: stdout.is_held() || stderr.is_held(),
            duration_ms: u64::try_from(at.saturating_sub(self.began).as_millis()).unwrap_or(u64::MAX),
            stdout_dropped: stdout.dropped(),
            stderr_dropped: stderr.dropped(),
            start_error: None,
        }
    }

    /// Signals the command's group, or a detached one's main process. Only called before it was reaped, so that the
    /// number can't be another's.
    fn signal(&self, signal: Signal) {
        let result = if self.detach { kill(self.pid, signal) } else { killpg(self.pid, signal) };
        // A child that has not made its session yet has no group of that number.
        if result == Err(Errno::ESRCH) {
            kill(self.pid, signal).unwrap_or_default();
        }
    }

    fn close_input(&mut self, link: &mut Link) {
        self.input.pipe = None;
        self.write_input(link);
    }
}

/// The outcome of a command that never ran.
pub(crate) fn could_not_start(reason: String) -> ExecOutcome {
    not_started(RC_NOT_STARTED, reason)
}

fn not_started(rc: i32, reason: String) -> ExecOutcome {
    ExecOutcome {
        rc,
        signal: None,
        timed_out: false,
        pipes_held: false,
        duration_ms: 0,
        stdout_dropped: 0,
        stderr_dropped: 0,
        start_error: Some(reason),
    }
}

/// More than an obstacle takes.
const READ_OBSTACLE_BYTES: usize = 16;

/// A command's stdin: bytes that wait for the pipe, bounded by the credit that was lent for them.
#[derive(Debug)]
struct Input {
    pipe: Option<OwnedFd>,
    pieces: Pieces,
    is_ended: bool,
}

impl Input {
    fn wanted(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pipe.as_ref().filter(|_| !self.pieces.is_empty())?.as_fd())
    }

    fn push(&mut self, bytes: Vec<u8>, end: bool) {
        self.pieces.push(bytes);
        self.is_ended |= end;
    }

    /// Writes what the pipe takes; without a reader everything counts as used. Returns the number of bytes used.
    fn write(&mut self) -> usize {
        let mut used = 0;
        while let Some(pipe) = self.pipe.as_ref().filter(|_| !self.pieces.is_empty()) {
            match write(pipe, self.pieces.front()) {
                Ok(count) => used += self.pieces.pop(count).map_or(0, |written| written.len()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return used,
                // The command does not read any more; that is its right.
                Err(_closed) => self.pipe = None,
            }
        }
        if self.is_ended {
            self.pipe = None;
        }
        if self.pipe.is_none() {
            used += self.pieces.clear();
        }
        used
    }
}
