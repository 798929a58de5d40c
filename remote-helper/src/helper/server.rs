//! The loop of the line: one thread that never waits for anything but all of its descriptors together.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use towline_helper::wire::message::{Outcome, Request};

use super::command::{Command, Due};
use super::ending::{Campaign, Ender, Scope};
use super::environment::{Recipe, Snapshot};
use super::housekeeping;
use super::keeper::Keeper;
use super::launch::{Launcher, reap};
use super::link::{Got, Link, Over, READ_BYTES};
use super::pieces::Pieces;
use super::pool::{Job, Pool};
use super::processes::Root;
use super::session::{Marker, Session};
use super::shutdown;
use super::work_stream::{Fate, WorkStream};

/// Threads for file work: each one can hang with a file system, and each counts against the user's limit.
const FILE_THREADS_MAX: usize = 8;
/// Threads for hashing, which give way to everybody's work.
const HASH_THREADS_MAX: usize = 2;
/// Ended commands that are remembered so that their orphans are known.
const FORMER_ROOTS_MAX: usize = 256;
/// Signals that end the line.
const SIGNALS_OF_END: [Signal; 3] = [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT];

/// Everything that serves one line.
pub(crate) struct Server {
    pub(super) session: Session,
    pub(super) link: Link,
    pub(super) commands: BTreeMap<u32, Command>,
    pub(super) works: BTreeMap<u32, WorkStream>,
    pub(super) snapshot: Option<Box<Snapshot>>,
    pub(super) launcher: Launcher,
    /// What commands run in, once it's known.
    pub(super) recipe: Option<Recipe>,
    /// Requests that wait for it.
    pub(super) waiting: Vec<Waiting>,
    /// Bytes of output ends that commands may keep, by stream.
    pub(super) tails: BTreeMap<u32, u64>,
    /// Pipes of answered commands that a descendant still holds: read and dropped here until they end.
    pub(super) held: BTreeMap<u64, OwnedFd>,
    pub(super) some_detached: bool,
    pub(super) has_launched: bool,
    pub(super) keeper: Option<Keeper>,
    held_newest: u64,
    former_roots: VecDeque<Root>,
    ender: Ender,
    pool: Pool,
    polite_pool: Pool,
    signals: SignalFd,
    done: Receiver<Job>,
    wake: Arc<EventFd>,
}

/// A request that waits for the environment, and the input that came for it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) stream: u32,
    pub(super) request: Request,
    pub(super) input: Pieces,
    pub(super) input_ended: bool,
}

/// What a descriptor of the loop belongs to.
#[derive(Clone, Copy, Debug)]
enum Source {
    Stdin,
    Stdout,
    Signals,
    Steps,
    Loading(u32),
    Input(u32),
    Output(u32, usize),
    Held(u64),
    Snapshot,
}

/// What the loop waits for: descriptors, and beside each whose it is.
struct Watched<'a> {
    sources: Vec<Source>,
    fds: Vec<PollFd<'a>>,
}

impl<'a> Watched<'a> {
    fn add(&mut self, source: Source, fd: Option<BorrowedFd<'a>>, flags: PollFlags) {
        if let Some(fd) = fd {
            self.sources.push(source);
            self.fds.push(PollFd::new(fd, flags));
        }
    }
}

/// Serves the line until it's over.
pub(crate) fn serve(marker: Marker) -> ExitCode {
    match Server::new(marker) {
        Ok(mut server) => {
            housekeeping::start();
            server.run();
            shutdown::shutdown(server)
        }
        Err(error) => {
            // There is nobody left to tell when stderr is closed.
            writeln!(std::io::stderr(), "towline-helper: cannot start: {error}").unwrap_or_default();
            ExitCode::FAILURE
        }
    }
}

impl Server {
    fn new(marker: Marker) -> std::io::Result<Server> {
        // Kernels before 3.4 know no subreaper: then only a command's own group can be ended.
        prctl::set_child_subreaper(true).unwrap_or_default();
        prctl::set_name(c"towline-helper")?;
        let session = Session::read(marker.clone());
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        SIGNALS_OF_END.into_iter().for_each(|signal| mask.add(signal));
        // Before any other thread exists, so that all of them inherit it.
        let former_mask = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let (steps, done) = channel();
        let mut link = Link::new()?;
        link.preface(format!("{}\n", marker.as_str()).as_bytes(), &session.hello());
        Ok(Server {
            session,
            link,
            commands: BTreeMap::new(),
            works: BTreeMap::new(),
            snapshot: None,
            launcher: Launcher::new(former_mask)?,
            recipe: None,
            waiting: Vec::new(),
            tails: BTreeMap::new(),
            held: BTreeMap::new(),
            some_detached: false,
            has_launched: false,
            keeper: None,
            held_newest: 0,
            former_roots: VecDeque::new(),
            ender: Ender::start(marker),
            pool: Pool::new(FILE_THREADS_MAX, false, steps.clone(), Arc::clone(&wake)),
            polite_pool: Pool::new(HASH_THREADS_MAX, true, steps, Arc::clone(&wake)),
            signals,
            done,
            wake,
        })
    }

    fn run(&mut self) {
        loop {
            self.advance();
            self.link.flush();
            // Sending made room: whoever waited for it goes on before the loop sleeps.
            self.advance();
            if self.link.over().is_some() {
                return;
            }
            for source in self.wait() {
                self.handle(source);
            }
            while let Some(event) = self.link.next_event() {
                self.handle_event(event);
            }
        }
    }

    /// Waits until a descriptor is ready or a time is due.
    fn wait(&self) -> Vec<Source> {
        let Watched { sources, mut fds } = self.watched();
        let now = self.link.now();
        let times = [self.link.next_time(), self.snapshot.as_ref().map(|snapshot| snapshot.until())];
        let commands = self.commands.values().map(|command| command.next_time(now));
        let works = self.works.values().map(WorkStream::next_time);
        let due = times.into_iter().chain(commands).chain(works).flatten().min();
        let timeout = due.map_or(PollTimeout::NONE, |due| {
            // Rounded up, or the loop would spin through the last millisecond.
            let wait = due.saturating_sub(now).as_micros().div_ceil(1000);
            PollTimeout::try_from(wait.min(60_000)).unwrap_or(PollTimeout::ZERO)
        });
        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(_interrupted) => return Vec::new(),
        }
        let ready =
            fds.iter().zip(sources).filter(|(fd, _)| fd.revents().is_some_and(|events| !events.is_empty()));
        ready.map(|(_, source)| source).collect()
    }

    fn watched(&self) -> Watched<'_> {
        let mut watched = Watched { sources: Vec::new(), fds: Vec::new() };
        watched.add(Source::Stdin, Some(self.link.stdin()), PollFlags::POLLIN);
        watched.add(Source::Stdout, self.link.blocked_stdout(), PollFlags::POLLOUT);
        watched.add(Source::Signals, Some(self.signals.as_fd()), PollFlags::POLLIN);
        watched.add(Source::Steps, Some(self.wake.as_fd()), PollFlags::POLLIN);
        for (stream, command) in &self.commands {
            watched.add(Source::Loading(*stream), command.loading(), PollFlags::POLLIN);
            watched.add(Source::Input(*stream), command.wanted_input(), PollFlags::POLLOUT);
            for index in 0..2 {
                let output = command.wanted_output(index, &self.link);
                watched.add(Source::Output(*stream, index), output, PollFlags::POLLIN);
            }
        }
        for (number, pipe) in &self.held {
            watched.add(Source::Held(*number), Some(pipe.as_fd()), PollFlags::POLLIN);
        }
        if let Some(snapshot) = &self.snapshot {
            watched.add(Source::Snapshot, Some(snapshot.stdout()), PollFlags::POLLIN);
            watched.add(Source::Snapshot, snapshot.stderr(), PollFlags::POLLIN);
        }
        watched
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Stdin => self.link.handle_readable(),
            // The loop writes at each turn anyway, and looks at the snapshot.
            Source::Stdout | Source::Snapshot => {}
            Source::Signals => self.handle_signals(),
            Source::Steps => self.handle_steps(),
            Source::Loading(stream) => self.handle_loading(stream),
            Source::Input(stream) => {
                if let Some(command) = self.commands.get_mut(&stream) {
                    command.write_input(&mut self.link);
                }
            }
            Source::Output(stream, index) => {
                if let Some(command) = self.commands.get_mut(&stream) {
                    command.read_output(index, &mut self.link);
                }
            }
            Source::Held(number) => self.drain_held(number),
        }
    }

    /// Does what is due by now.
    fn advance(&mut self) {
        self.link.handle_time();
        self.advance_snapshot();
        let streams: Vec<u32> = self.commands.keys().copied().collect();
        for stream in streams {
            let Some(command) = self.commands.get_mut(&stream) else { continue };
            match command.advance(&mut self.link) {
                Due::Nothing => {}
                Due::Campaign(scope) => self.begin_campaign(scope),
                Due::Answer(outcome) => {
                    self.link.outcome(stream, &Outcome::Exec(outcome));
                    self.retire(stream);
                }
            }
        }
        self.advance_works();
    }

    pub(super) fn advance_works(&mut self) {
        let (link, pool, polite) = (&mut self.link, &self.pool, &self.polite_pool);
        self.works.retain(|_, work| {
            let pool = if work.is_polite() { polite } else { pool };
            matches!(work.advance(link, pool), Fate::Open)
        });
    }

    /// Takes the steps that threads have finished.
    pub(super) fn handle_steps(&mut self) {
        // The counter only wakes the loop; the channel tells what there is.
        self.wake.read().map(drop).unwrap_or_default();
        while let Ok(job) = self.done.try_recv() {
            let stream = job.stream;
            // A stream that was answered already has no use for it.
            let Some(work) = self.works.get_mut(&stream) else { continue };
            if matches!(work.handle_step(&mut self.link, job), Fate::Over) {
                self.works.remove(&stream);
            }
        }
    }

    pub(super) fn handle_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            if number != Signal::SIGCHLD as i32 {
                self.link.end(Over::Signal(number));
            }
        }
        // One signal may stand for many children.
        while let Some((pid, status)) = reap() {
            self.handle_reaped(pid, status);
        }
    }

    fn handle_reaped(&mut self, pid: Pid, status: ExitStatus) {
        if let Some(snapshot) = self.snapshot.as_mut().filter(|snapshot| snapshot.pid() == pid) {
            return snapshot.handle_reaped();
        }
        let found = self.commands.iter().find(|(_, command)| command.pid() == pid && !command.has_ended());
        if let Some(stream) = found.map(|(stream, _)| *stream) {
            // Why it never became its program may not have been read yet; that answers the command.
            self.handle_loading(stream);
            if let Some(command) = self.commands.get_mut(&stream) {
                command.handle_ended(&mut self.link, status);
            }
        }
        for root in self.former_roots.iter_mut().filter(|root| root.pid == pid.as_raw()) {
            root.is_alive = false;
        }
    }

    fn handle_loading(&mut self, stream: u32) {
        let Some(command) = self.commands.get_mut(&stream) else { return };
        let note = self.recipe.as_ref().and_then(|recipe| recipe.note.as_deref());
        let Some(obstacle) = command.handle_loading(&mut self.link, note) else { return };
        match command.not_started(obstacle) {
            Ok(outcome) => self.link.outcome(stream, &Outcome::Exec(outcome)),
            Err(refusal) => self.link.refuse(stream, &refusal),
        }
        self.retire(stream);
    }

    /// Forgets an answered command, but for its root and the pipes that are still held.
    pub(super) fn retire(&mut self, stream: u32) {
        self.tails.remove(&stream);
        let Some(command) = self.commands.remove(&stream) else { return };
        self.remember(command.root());
        self.hold(command.into_held_pipes());
    }

    pub(super) fn remember(&mut self, root: Root) {
        self.former_roots.push_back(root);
        if self.former_roots.len() > FORMER_ROOTS_MAX {
            self.former_roots.pop_front();
        }
    }

    /// Takes pipes that descendants hold; they are read until their end.
    pub(super) fn hold(&mut self, pipes: impl Iterator<Item = OwnedFd>) {
        for pipe in pipes {
            self.held_newest += 1;
            self.held.insert(self.held_newest, pipe);
        }
    }

    fn drain_held(&mut self, number: u64) {
        let Some(pipe) = self.held.get(&number) else { return };
        if matches!(self.link.read(pipe.as_fd(), READ_BYTES), Got::End) {
            self.held.remove(&number);
        }
    }

    pub(super) fn begin_campaign(&mut self, scope: Scope) {
        let groups = match scope {
            Scope::Command(stream) => self.commands.get(&stream).map(|command| command.pid().as_raw()),
            Scope::Holders(..) | Scope::Line { .. } => None,
        };
        self.ender.begin(Campaign::new(scope, self.roots(), groups.into_iter().collect()));
    }

    /// The main processes of all commands, the newest last.
    pub(super) fn roots(&self) -> Vec<Root> {
        let snapshot = self.snapshot.as_ref().map(|snapshot| snapshot.root());
        let commands = self.commands.values().map(Command::root);
        self.former_roots.iter().copied().chain(snapshot).chain(commands).collect()
    }

    /// Waits a little for a signal, a finished step, or room in stdout.
    pub(super) fn wait_ending(&self, pause: PollTimeout) {
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(self.link.blocked_stdout().map(|stdout| PollFd::new(stdout, PollFlags::POLLOUT)));
        // Whether anything is ready is looked at in any case.
        poll(&mut fds, pause).map(drop).unwrap_or_default();
    }
}
