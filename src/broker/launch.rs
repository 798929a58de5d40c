//! Starts a broker's process, answers its questions, and waits until its line is ready.

use std::io::BufReader;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;

use super::error::Error;
use super::pipe::{Answer, Note, Payload, SCHEMA, read_line, write_line};
use super::place::{LOG, Place};
use super::receipt::{Destination, Receipt, alias};
use crate::config::{Role, Site};
use crate::disk::{Folder, Open};
use crate::opening::Opening;
use crate::policy::state::{Attempt, Ending, Scope};
use crate::policy::{GrantSecret, SiteId, Spend, Store};
use crate::ssh::Prompter;

/// The broker's own subcommand.
pub const SUBCOMMAND: &str = "broker";
/// How long the broker has to say that it has started the connection, or why not.
const ACK_WITHIN: Duration = Duration::from_secs(5);
/// What an opening may take besides the site's own limits: the bootstrap, and a slow machine.
const READY_MARGIN: Duration = Duration::from_secs(150);
/// How long a broker that is told to end may take before it is killed.
const END_WITHIN: Duration = Duration::from_secs(2);

/// What permits the opening.
#[derive(Clone, Debug)]
pub enum Permission {
    /// A grant, to be spent.
    Grant(GrantSecret),
    /// The site's own `approval = "open"`; the text is for the record.
    OpenSite(String),
}

/// What is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct Launcher<'a> {
    /// The policy that has to permit it.
    pub store: &'a Store,
    /// Where the line will live.
    pub place: &'a Place,
    /// The site.
    pub site: &'a Site,
    /// The role of it.
    pub role: Role,
    /// Where it leads.
    pub opening: &'a Opening,
}

impl Launcher<'_> {
    /// Spends the permission and opens the line: once, whatever happens. Blocks until the line is ready or has failed;
    /// questions are asked meanwhile, on this thread.
    ///
    /// # Errors
    /// [`Error`]. Before the permission is spent nothing was done; afterwards the attempt has ended with it.
    pub fn launch(&self, permission: Permission, prompter: &Arc<dyn Prompter>) -> Result<Receipt, Error> {
        let folder = self.place.make()?;
        let alias = alias(self.site, self.role)?;
        let program = std::env::current_exe().map_err(|error| launch(&"finding this program", &error))?;
        let site = SiteId::from(&self.site.name);
        let pid = std::process::id();
        let start = |attempt: &Attempt| {
            let payload = Payload {
                schema: SCHEMA,
                site: self.site.name.to_string(),
                role: self.role.to_string(),
                alias,
                destination: Destination::of(&self.opening.target),
                grant: attempt.grant.to_string(),
                client: attempt.client.as_str().to_owned(),
                launcher_pid: pid,
            };
            (attempt.grant.clone(), Running::start(&program, &folder, &payload))
        };
        let (grant, running) = match permission {
            Permission::Grant(secret) => {
                let spend = Spend { secret, site, role: self.role, launcher_pid: pid };
                self.store.consume(&spend, start)?
            }
            Permission::OpenSite(reference) => {
                let scope = Scope { site, role: self.role, allow_offvpn: true };
                self.store.open_site(&scope, pid, &reference, start)?
            }
        };
        let ready = running.and_then(|running| self.wait(running, prompter));
        if ready.is_err()
            && let Err(error) = self.store.finish(&grant, Ending::Error)
        {
            // Mostly the broker has ended it already, and knows better how.
            tracing::debug!("the attempt was not ended by its launcher: {error}");
        }
        ready
    }

    fn wait(&self, mut running: Running, prompter: &Arc<dyn Prompter>) -> Result<Receipt, Error> {
        let deadlines = &self.opening.options.deadlines;
        let ready_within = deadlines.connect + deadlines.start + READY_MARGIN;
        let mut within = ACK_WITHIN;
        loop {
            let note = match running.notes.recv_timeout(within) {
                Ok(note) => note,
                Err(RecvTimeoutError::Timeout) => {
                    running.end();
                    let seconds = within.as_secs();
                    return Err(Error::Launch {
                        reason: format!("the broker said nothing for {seconds} s, and was ended"),
                    });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    running.end();
                    let log = self.place.socket().with_file_name(LOG);
                    let reason = format!("the broker ended without a word; see {}", log.display());
                    return Err(Error::Launch { reason });
                }
            };
            match note {
                Note::Ack => within = ready_within,
                Note::Tell { text } => prompter.tell(&text),
                Note::Prompt { id, question } => {
                    // However long it takes: human time counts against nothing of ours.
                    let answer = Answer::new(id, &prompter.ask(&question.prompt()));
                    if let Some(stdin) = &mut running.stdin
                        && let Err(error) = write_line(stdin, &answer)
                    {
                        tracing::debug!("the broker takes no answer: {error}");
                    }
                }
                Note::Ready { receipt } => {
                    running.leave();
                    return Ok(*receipt);
                }
                Note::Failed { error } => {
                    running.end();
                    let error = error.get("error").cloned().unwrap_or(Value::Null);
                    return Err(Error::Told { error });
                }
            }
        }
    }
}

/// A broker's process that is being started.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    notes: mpsc::Receiver<Note>,
}

impl Running {
    fn start(program: &std::path::Path, folder: &Folder, payload: &Payload) -> Result<Running, Error> {
        let (log, _) = folder.open_file(LOG, Open::Append)?;
        let mut command = Command::new(program);
        command.arg(SUBCOMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // A working directory would keep its file system busy for the line's whole life.
        command.current_dir("/");
        let mut child = command.spawn().map_err(|error| launch(&program.display(), &error))?;
        let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (to, notes) = mpsc::channel();
        let mut running = Running { child, stdin: None, notes };
        let Some(stdout) = stdout else { return Err(running.broken(&"it has no output")) };
        let read = move || {
            let mut from = BufReader::new(stdout);
            while let Ok(Some(note)) = read_line(&mut from) {
                if to.send(note).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("broker-notes".to_owned()).spawn(read);
        if let Err(error) = thread {
            return Err(running.broken(&error));
        }
        if let Some(stdin) = &mut stdin
            && let Err(error) = write_line(stdin, payload)
        {
            return Err(running.broken(&error));
        }
        running.stdin = stdin;
        Ok(running)
    }

    fn broken(&mut self, why: &dyn std::fmt::Display) -> Error {
        self.end();
        launch(&"handing over the launch", why)
    }

    /// Ends a broker that did not become ready.
    fn end(&mut self) {
        // Its input ends, by which it knows that its launcher has given up.
        self.stdin = None;
        let pid = i32::try_from(self.child.id()).map(nix::unistd::Pid::from_raw);
        let begun = std::time::Instant::now();
        let mut told = false;
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > END_WITHIN {
                // Best effort: it may have ended in this very moment.
                drop(self.child.kill());
                drop(self.child.wait());
                return;
            }
            if let (Ok(pid), false) = (pid, told) {
                told = begun.elapsed() > END_WITHIN / 2;
                if told {
                    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).ok();
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Leaves a broker that is ready to itself.
    fn leave(self) {
        let Running { mut child, .. } = self;
        // A launcher that lives on must not keep its end as a zombie. Without a thread it does, which is no harm.
        let wait = move || drop(child.wait());
        drop(std::thread::Builder::new().name("broker-end".to_owned()).stack_size(64 << 10).spawn(wait));
    }
}

fn launch(what: &dyn std::fmt::Display, error: &dyn std::fmt::Display) -> Error {
    Error::Launch { reason: format!("the broker could not be started: {what}: {error}") }
}
