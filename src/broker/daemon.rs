//! The broker's process: from its launch to the end of its line.
//!
//! lock → receipt `starting` → the launcher is our parent → the policy's word → connect → hello → socket → receipt
//! `ready` → attempt `success` → serve. Whatever fails before the success ends the attempt; nothing is tried twice.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::door;
use super::error::Error;
use super::gate::{Gate, Guarded};
use super::log::Log;
use super::pipe::{self, Note, Payload, Pipe};
use super::place::{LOCK, Place};
use super::receipt::{Destination, Receipt, alias};
use super::relay::Relay;
use super::serve::{self, End, Serving, Signals};
use crate::config::{Config, Environment, Role, Site};
use crate::disk::{Fault, Folder, Locked};
use crate::line::{self, OpenError, Opened};
use crate::opening::Opening;
use crate::policy::state::{Ending, Launch};
use crate::policy::{ClientId, GrantName, SiteId, Store};
use crate::ssh;

/// How long the life-time lock may be held by somebody who only looks whether it is free.
const LOCK_WAIT: Duration = Duration::from_millis(500);
/// Visitors that wait for the owner.
const RINGS_MAX: usize = 32;

/// Runs a broker that was started with its launch on standard input, until its line ends. Returns the exit code.
///
/// `explain` makes the contract's error object of an error, for the launcher; `log_to` has log lines written.
pub fn run(environment: Environment, explain: &dyn Fn(Error) -> Value, log_to: &dyn Fn(Log)) -> u8 {
    // A child of its own session outlives the launcher's terminal. One that leads a session already needs none.
    nix::unistd::setsid().ok();
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let life = Pipe::open().and_then(|(payload, pipe, gone)| {
        let store = match Config::load(environment) {
            Ok(config) => config,
            Err(error) => return Err(error.into()),
        };
        Life::begin(store, payload, log_to).map(|life| (life, pipe, gone))
    });
    let (life, pipe, gone) = match life {
        Ok(life) => life,
        Err(error) => {
            pipe::tell(&Note::Failed { error: explain(error) });
            return 1;
        }
    };
    life.run(pipe, gone, explain)
}

/// A broker that holds the life-time lock.
struct Life {
    payload: Payload,
    place: Place,
    folder: Folder,
    receipt: Receipt,
    store: Store,
    launch: Launch,
    opening: Opening,
    _lock: Locked,
}

/// A line that is open, and the doors to it.
struct Line {
    opened: Opened,
    listener: tokio::net::UnixListener,
    signals: Signals,
}

impl Life {
    /// Checks the launch against what the configuration says, and takes the lock.
    fn begin(config: Config, payload: Payload, log_to: &dyn Fn(Log)) -> Result<Life, Error> {
        let store = Store::new(&config.home);
        let grant = GrantName::of_name_or_id(&payload.grant);
        Life::checked(&config, payload, log_to).inspect_err(|error| {
            // The grant is spent, so the attempt has ended here.
            conclude(&store, &grant, ending(error));
        })
    }

    fn checked(config: &Config, payload: Payload, log_to: &dyn Fn(Log)) -> Result<Life, Error> {
        let wrong = |what: &str| Error::Launch { reason: format!("the launch payload names no {what}") };
        let site: &Site = config.site(&payload.site)?;
        let role = Role::ALL.into_iter().find(|role| role.as_str() == payload.role);
        let role = role.ok_or_else(|| wrong("role"))?;
        let opening = Opening::of(config, site, role)?;
        let place = Place::of(&config.home, &site.name, role)?;
        let now = Destination::of(&opening.target);
        if payload.destination != now || payload.alias != alias(site, role)? {
            let was = payload.destination.to_string();
            return Err(Error::DestinationChanged {
                site: site.name.clone(),
                role,
                was,
                now: now.to_string(),
            });
        }
        let folder = place.make()?;
        let lock = folder.lock(LOCK, LOCK_WAIT).map_err(|fault| match fault {
            Fault::Busy { .. } => Error::AlreadyConnected { site: site.name.clone(), role },
            fault => fault.into(),
        })?;
        write_pid(&folder, &lock)?;
        log_to(Log::open(place.open()?)?);
        tracing::info!(site = %site.name, %role, destination = %now, "the broker begins");
        let parent = u32::try_from(nix::unistd::getppid().as_raw()).unwrap_or(0);
        if parent != payload.launcher_pid {
            return Err(Error::Launch { reason: "whoever started the broker has gone".to_owned() });
        }
        let mut receipt = Receipt::starting(payload.alias.clone(), now);
        receipt.write(&folder)?;
        let launch = Launch {
            grant: GrantName::of_name_or_id(&payload.grant),
            site: SiteId::from(&site.name),
            role,
            client: ClientId::named(&payload.client),
            launcher_pid: payload.launcher_pid,
        };
        let store = Store::new(&config.home);
        Ok(Life { payload, place, folder, receipt, store, launch, opening, _lock: lock })
    }

    fn run(mut self, pipe: Pipe, gone: oneshot::Receiver<()>, explain: &dyn Fn(Error) -> Value) -> u8 {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let reason = format!("the system gives no event loop: {error}");
                return self.fail(Error::Launch { reason }, explain);
            }
        };
        let code = runtime.block_on(async {
            let line = match self.open(pipe, gone).await {
                Ok(line) => line,
                Err(error) => return self.fail(error, explain),
            };
            let (end, code) = match self.serve(line).await {
                Ok(End::Stopped(reason)) => (Ok(reason), 0),
                Ok(End::Failed(reason)) => (Err(reason.to_string()), 1),
                Err(error) => (Err(error.to_string()), 1),
            };
            self.over(end);
            code
        });
        // A prompt that nobody answers any more must not hold the process.
        runtime.shutdown_background();
        code
    }

    /// Opens the line, publishes it, and ends the attempt with success.
    async fn open(&mut self, pipe: Pipe, gone: oneshot::Receiver<()>) -> Result<Line, Error> {
        let (target, options) = (self.opening.target.clone(), self.opening.options.clone());
        let prompter: Arc<dyn ssh::Prompter> = Arc::new(pipe);
        let mut signals = Signals::new();
        let start = || tokio::spawn(async move { line::open_channel(&target, prompter, options).await });
        let mut opening = self.store.authorize_launch(&self.launch, start)?;
        pipe::tell(&Note::Ack);
        let opened = tokio::select! {
            opened = &mut opening => opened.map_err(|error| Error::Launch { reason: error.to_string() })??,
            name = signals.next() => {
                opening.abort();
                return Err(Error::Launch { reason: format!("the broker got {name} before the line was ready") });
            }
            _ = gone => {
                opening.abort();
                return Err(Error::Launch { reason: "whoever started the broker has gone".to_owned() });
            }
        };
        let listener = serve::bind(&self.place)?;
        self.receipt.ready(&opened.facts);
        self.receipt.write(&self.folder)?;
        self.store.finish(&self.launch.grant, Ending::Success)?;
        pipe::tell(&Note::Ready { receipt: Box::new(self.receipt.clone()) });
        if let Err(error) = Pipe::close() {
            tracing::warn!("the pipes to the launcher stay open: {error}");
        }
        tracing::info!(host_key = self.receipt.host_key_sha256, "the line is ready");
        Ok(Line { opened, listener, signals })
    }

    async fn serve(&mut self, line: Line) -> Result<End, Error> {
        let Line { opened: Opened { reader, writer, endpoint, clock, control, facts }, listener, signals } =
            line;
        let (verdict, verdicts) = mpsc::unbounded_channel();
        let guarded = Guarded { site: self.payload.site.clone(), role: self.payload.role.clone() };
        let path = self.place.socket().to_owned();
        let gate = Gate::start(self.store.again(), guarded, verdict).map_err(|source| Error::Io {
            doing: "start the gate of",
            path,
            source,
        })?;
        let (ring, rings) = mpsc::channel(RINGS_MAX);
        let accepting = tokio::spawn(door::accept(listener, ring));
        let relay = Relay::new(endpoint, facts.helper.hello);
        let serving = Serving::new((relay, signals), (clock, control), (gate, verdicts), rings);
        let (end, counts) = serving.run(reader, writer).await;
        accepting.abort();
        self.receipt.commands_completed = counts.completed;
        self.receipt.last_command_at = counts.last_at;
        Ok(end)
    }

    /// What remains to be done when the line could not be opened.
    fn fail(&mut self, error: Error, explain: &dyn Fn(Error) -> Value) -> u8 {
        tracing::error!("the line was not opened: {error}");
        conclude(&self.store, &self.launch.grant, ending(&error));
        self.over(Err(error.to_string()));
        pipe::tell(&Note::Failed { error: explain(error) });
        1
    }

    fn over(&mut self, end: Result<String, String>) {
        tracing::info!(?end, "the line is over");
        // What is no socket of ours was not bound by us, and stays.
        if self.place.has_socket() == Ok(true)
            && let Err(error) = std::fs::remove_file(self.place.socket())
        {
            tracing::warn!("the socket stays: {error}");
        }
        self.receipt.over(end);
        if let Err(fault) = self.receipt.write(&self.folder) {
            tracing::error!("the receipt could not be written: {fault}");
        }
    }
}

fn conclude(store: &Store, grant: &GrantName, ending: Ending) {
    // One that has ended already says more than we could.
    if let Err(error) = store.finish(grant, ending) {
        tracing::warn!("the attempt could not be ended: {error}");
    }
}

/// How an attempt ends that fails this way.
fn ending(error: &Error) -> Ending {
    match error {
        Error::Open(OpenError::Ssh(ssh::Error::ConnectFailed { phase, .. })) => match phase {
            ssh::Phase::Authentication | ssh::Phase::Channel => Ending::Failed(Some(1)),
            ssh::Phase::Resolve | ssh::Phase::Tcp | ssh::Phase::Version | ssh::Phase::KeyExchange => {
                Ending::Unreached
            }
        },
        Error::Open(_) | Error::SocketTaken { .. } => Ending::Failed(Some(1)),
        _ => Ending::Error,
    }
}

/// Leaves our pid in the lock, for whoever has to stop a broker whose receipt is of no use.
fn write_pid(folder: &Folder, lock: &Locked) -> Result<(), Error> {
    let failed = |source| Error::Io { doing: "write", path: folder.path_of(LOCK), source };
    lock.file().set_len(0).map_err(failed)?;
    folder.append(LOCK, lock, format!("{}\n", std::process::id()).as_bytes())?;
    Ok(())
}
