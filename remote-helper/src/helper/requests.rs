//! What the client asks for, and how it begins.

use nix::errno::Errno;
use nix::sys::resource::Resource;
use towline_helper::wire::Event;
use towline_helper::wire::endpoint::STDIN;
use towline_helper::wire::message::{Code, Exec, Outcome, Refusal, Request, Start};

use super::command::{Command, Why, could_not_start};
use super::environment::{self, Begun, Recipe};
use super::fault::{self, refuse};
use super::files;
use super::keeper::Keeper;
use super::link::Over;
use super::pieces::Pieces;
use super::probe::{Probing, soft_limit};
use super::program;
use super::server::{Server, Waiting};
use super::work_stream::WorkStream;

/// Pipes that background processes of answered commands may hold; each costs a descriptor.
const HELD_PIPES_MAX: usize = 256;
/// Bytes of output ends that all commands together may ask to keep.
const TAILS_BYTES_MAX: u64 = 32 << 20;

impl Server {
    /// Takes something that the client did.
    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::Start(start) => self.begin_environment(&start),
            Event::Open { stream, request } => self.open(stream, *request),
            Event::Data { stream, channel, bytes, end } => self.handle_data(stream, channel, bytes, end),
            Event::Cancel { stream, discard } => self.cancel(stream, discard),
            Event::Bye(_reason) => self.link.end(Over::Closed),
            // There are no pseudo-terminals yet, and credits are only told to those who pass them on.
            Event::Resize { .. } | Event::Pong { .. } | Event::Credit { .. } => {}
            // The state machine lets only a client see these.
            Event::Hello(_) | Event::Dispatched { .. } | Event::Outcome { .. } | Event::Refusal { .. } => {}
        }
    }

    /// Gathers the environment, or finds that it's gathered, and begins what waited for it.
    pub(super) fn advance_snapshot(&mut self) {
        let Some(snapshot) = &mut self.snapshot else { return };
        let Some(recipe) = snapshot.advance(&mut self.link, &self.session) else { return };
        snapshot.kill();
        if let Some(snapshot) = self.snapshot.take() {
            self.remember(snapshot.root());
            self.hold(snapshot.into_pipes());
        }
        self.use_environment(recipe);
    }

    fn begin_environment(&mut self, start: &Start) {
        let now = self.link.now();
        match environment::begin(&start.environment, &self.session, &self.launcher, now) {
            Begun::Ready(recipe) => self.use_environment(recipe),
            Begun::Waiting(snapshot) => {
                self.has_launched = true;
                self.snapshot = Some(snapshot);
            }
        }
    }

    fn use_environment(&mut self, recipe: Recipe) {
        self.recipe = Some(recipe);
        for Waiting { stream, request, mut input, input_ended } in std::mem::take(&mut self.waiting) {
            self.open(stream, request);
            while let Some(bytes) = input.pop(usize::MAX) {
                self.handle_data(stream, STDIN, bytes, false);
            }
            if input_ended {
                self.handle_data(stream, STDIN, Vec::new(), true);
            }
        }
    }

    fn open(&mut self, stream: u32, request: Request) {
        let result = match (request, &self.recipe) {
            (request @ (Request::Exec(_) | Request::Probe {}), None) => {
                self.waiting.push(Waiting { stream, request, input: Pieces::default(), input_ended: false });
                Ok(())
            }
            (Request::Exec(exec), Some(_)) => self.exec(stream, &exec),
            (Request::Probe {}, Some(recipe)) => {
                let work = Box::new(Probing::new(recipe.clone()));
                self.works.insert(stream, WorkStream::new(stream, work, false));
                Ok(())
            }
            (request, _) => self.open_file(stream, request),
        };
        if let Err(refusal) = result {
            self.link.refuse(stream, &refusal);
        }
    }

    fn open_file(&mut self, stream: u32, request: Request) -> Result<(), Refusal> {
        let is_change = files::is_change(&request);
        let Some(task) = files::task(request, &self.session)? else {
            let message = "this helper has no streams of kind pty or dial".to_owned();
            return Err(refuse(Code::Unsupported, message));
        };
        if is_change {
            self.link.dispatched(stream, None, None);
        }
        self.works.insert(stream, WorkStream::new(stream, task.work, task.is_polite));
        Ok(())
    }

    fn exec(&mut self, stream: u32, exec: &Exec) -> Result<(), Refusal> {
        program::check(exec)?;
        if self.held.len() >= HELD_PIPES_MAX {
            let message = format!(
                "background processes of ended commands hold {} pipes, the limit is {HELD_PIPES_MAX}",
                self.held.len()
            );
            return Err(refuse(Code::Busy, message));
        }
        let tails = exec.keep.map_or(0, |keep| keep.tail.saturating_mul(2));
        let tails_all = self.tails.values().sum::<u64>().saturating_add(tails);
        if tails_all > TAILS_BYTES_MAX {
            let message =
                format!("{tails_all} bytes of output ends would be kept, the limit is {TAILS_BYTES_MAX}");
            return Err(refuse(Code::Busy, message));
        }
        let Some(recipe) = &self.recipe else { return Ok(()) };
        let image = program::image(exec, stream, &self.session, &recipe.variables)?;
        match self.launcher.launch(&image, exec.stdin) {
            Ok(launched) => {
                let command = Command::new(stream, exec, &image, launched, self.link.now());
                self.has_launched = true;
                self.some_detached |= exec.detach;
                if !exec.detach && self.keeper.is_none() {
                    self.keeper = Keeper::start(&self.session);
                }
                self.tails.insert(stream, tails);
                self.commands.insert(stream, command);
            }
            Err(errno) => {
                self.link.outcome(stream, &Outcome::Exec(could_not_start(limit_text(errno))));
            }
        }
        Ok(())
    }

    fn handle_data(&mut self, stream: u32, channel: u8, bytes: Vec<u8>, end: bool) {
        if let Some(command) = self.commands.get_mut(&stream) {
            command.handle_input(&mut self.link, bytes, end);
        } else if let Some(work) = self.works.get_mut(&stream) {
            work.handle_input(bytes, end);
        } else if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.stream == stream) {
            waiting.input.push(bytes);
            waiting.input_ended |= end;
        } else {
            self.link.consumed(stream, channel, bytes.len());
        }
    }

    fn cancel(&mut self, stream: u32, discard: bool) {
        let now = self.link.now();
        if let Some(index) = self.waiting.iter().position(|waiting| waiting.stream == stream) {
            self.waiting.remove(index);
            self.link.refuse(stream, &fault::cancelled());
        } else if let Some(work) = self.works.get_mut(&stream) {
            work.cancel(now, discard);
        } else if let Some(command) = self.commands.get_mut(&stream) {
            if discard {
                command.discard();
            }
            if discard && command.is_detached() {
                // Its caller has left; that is just what it was detached for.
                let pid = command.pid();
                let message = format!("the detached command goes on as process {pid}");
                self.link.refuse(stream, &refuse(Code::Cancelled, message));
                self.retire(stream);
            } else if let Some(scope) = command.stop(now, Why::Cancel) {
                self.begin_campaign(scope);
            }
        }
    }
}

/// Why no process could be made, with the limit that was reached.
fn limit_text(errno: Errno) -> String {
    let limit = |name: &str, limit| {
        let value = soft_limit(limit).unwrap_or_else(|| "unknown".to_owned());
        format!("; the limit on {name} is {value}")
    };
    let limit = match errno {
        Errno::EAGAIN => limit("processes (ulimit -u)", Resource::RLIMIT_NPROC),
        Errno::EMFILE => limit("open files (ulimit -n)", Resource::RLIMIT_NOFILE),
        _ => String::new(),
    };
    format!("cannot fork: {}{limit}", errno.desc())
}
