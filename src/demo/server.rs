//! Starting, asking and ending the server. It runs on a thread and a runtime of its own.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rand::Rng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey, ssh_key};
use russh::server::Config;
use russh::{MethodKind, MethodSet};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::{mpsc, oneshot};

use super::account::{Account, current_user};
use super::batch::Controller;
use super::link::{Backlog, Faults, Link};
use super::login::{Login, Shared};
use super::options::{Counters, Options, count};
use super::outbox::{Outbox, Posted};
use super::scratch::{HOST, Scratch, write_private};

/// The longest socket path that every supported system takes, in bytes.
const SOCKET_PATH_MAX: usize = 100;

/// How much of a connection is read at once.
const READ_BUFFER: usize = 64 << 10;

/// Messages between a command and its connection; each is one packet of at most 32 KiB.
const EVENT_BUFFER: usize = 32;

/// How long a stopping server waits for what its killed commands leave behind.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// Why a demo server didn't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file, socket or thread could not be made.
    #[error("prepare the demo server: {what}: {source}")]
    Prepare {
        /// What was being made.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No key pair could be made or written.
    #[error("make the demo server's keys: {0}")]
    Key(#[from] ssh_key::Error),
    /// The scratch directory lies too deep for a Unix socket.
    #[error("socket path {path} has {length} bytes, more than {SOCKET_PATH_MAX}")]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        length: usize,
    },
}

/// The demo's server: a running login node with a mini cluster behind it, for `towline demo` and for tests.
///
/// It serves nobody else: commands run as the user who started it, and its keys are made anew at each start.
pub struct Server {
    scratch: Scratch,
    shared: Arc<Shared>,
    faults: Faults,
    address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    controller: Controller,
}

impl Server {
    /// Starts a server; it accepts connections when this returns.
    ///
    /// # Errors
    /// When the scratch directory, a key, the socket or the thread can't be made.
    pub fn start(options: Options) -> Result<Self, Error> {
        let scratch = Scratch::create(options.scratch.clone()).map_err(prepare("directory"))?;
        let program = match &options.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(prepare("batch commands"))?,
        };
        scratch.link_batch_commands(&program).map_err(prepare("batch commands"))?;
        let address = match &options.listener {
            Some(listener) => Some(listener.local_addr().map_err(prepare("listener"))?),
            None => None,
        };
        let (host_key, user_key) = write_keys(&scratch, address)?;
        let unix = bind(&scratch)?;
        let mut options = options;
        let listener = options.listener.take();
        let shared = Arc::new(share(options, &scratch, &user_key));
        let faults = Faults::default();
        let (stop, stopped) = oneshot::channel();
        let service = Service {
            shared: Arc::clone(&shared),
            faults: faults.clone(),
            config: Arc::new(config(host_key)),
        };
        let thread = Some(service.spawn(unix, listener, stopped)?);
        let controller = Controller::start(&scratch.cluster()).map_err(prepare("batch system"))?;
        Ok(Self { scratch, shared, faults, address, stop: Some(stop), thread, controller })
    }

    /// Tells the path of the Unix socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.scratch.socket()
    }

    /// Tells the address of [`Options::listener`].
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Tells the path of the user's private key.
    pub fn identity_file(&self) -> PathBuf {
        self.scratch.identity_file()
    }

    /// Tells the path of a file that holds the host key under the name [`HOST`].
    pub fn known_hosts_file(&self) -> PathBuf {
        self.scratch.known_hosts_file()
    }

    /// Tells who may log in: the user who runs this process.
    pub fn user(&self) -> &str {
        &self.shared.account.user
    }

    /// Tells the passcode; empty where no second factor is asked.
    pub fn passcode(&self) -> &str {
        self.shared.passcode.as_deref().unwrap_or_default()
    }

    /// Tells the home directory of the user.
    pub fn home(&self) -> PathBuf {
        self.scratch.home()
    }

    /// Tells what clients have cost so far.
    pub fn counters(&self) -> Counters {
        self.shared.tally.snapshot()
    }

    /// Hands out the switches that make the network bad.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Cuts all connections, ends all commands and jobs, and removes the scratch directory unless the caller named it.
    ///
    /// Dropping the server does the same. It takes up to [`Options::grace`] and the time that jobs get to end.
    pub fn stop(self) {
        drop(self);
    }
}

/// Shows where it is, not its passcode.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("socket", &self.socket()).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails only when the thread is gone, which is what is wanted.
            stop.send(()).unwrap_or_default();
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the demo server's thread panicked");
        }
        if let Err(error) = self.controller.end() {
            tracing::warn!(%error, "the demo's jobs could not be ended");
        }
        if let Err(error) = self.scratch.remove() {
            tracing::warn!(%error, "the demo's directory could not be removed");
        }
    }
}

fn prepare(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Prepare { what, source }
}

fn bind(scratch: &Scratch) -> Result<UnixListener, Error> {
    let path = scratch.socket();
    let length = path.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        return Err(Error::SocketPath { path, length });
    }
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(prepare("socket")(error));
    }
    let listener = UnixListener::bind(&path).map_err(prepare("socket"))?;
    // Until here the directory's 0700 has kept others out.
    fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(prepare("socket"))?;
    Ok(listener)
}

/// Makes both key pairs and writes what a client needs of them.
fn write_keys(scratch: &Scratch, address: Option<SocketAddr>) -> Result<(PrivateKey, PrivateKey), Error> {
    let mut rng = russh::keys::key::safe_rng();
    let host_key = PrivateKey::random(&mut rng, Algorithm::Ed25519)?;
    let user_key = PrivateKey::random(&mut rng, Algorithm::Ed25519)?;
    let identity = user_key.to_openssh(LineEnding::LF)?;
    write_private(&scratch.identity_file(), &identity).map_err(prepare("identity file"))?;
    let mut names = HOST.to_owned();
    if let Some(address) = address {
        names = format!("{names},[{}]:{}", address.ip(), address.port());
    }
    let line = format!("{names} {}\n", host_key.public_key().to_openssh()?);
    write_private(&scratch.known_hosts_file(), &line).map_err(prepare("known hosts file"))?;
    Ok((host_key, user_key))
}

fn share(options: Options, scratch: &Scratch, user_key: &PrivateKey) -> Shared {
    let passcode =
        options.passcode.unwrap_or_else(|| format!("{:06}", rand::rng().random_range(0..1_000_000)));
    Shared {
        account: Arc::new(Account {
            user: current_user(),
            home: scratch.home(),
            cluster: scratch.cluster(),
            environment: options.environment,
        }),
        key: user_key.public_key().clone(),
        passcode: options.second_factor.then_some(passcode),
        push: options.push,
        delay: options.delay,
        grace: options.grace,
        max_sessions: options.max_sessions,
        tally: Default::default(),
    }
}

fn config(host_key: PrivateKey) -> Config {
    Config {
        // AuthenticationMethods publickey,keyboard-interactive: the second is offered once the first has succeeded.
        methods: MethodSet::from(&[MethodKind::PublicKey][..]),
        auth_rejection_time: Duration::ZERO,
        keys: vec![host_key],
        window_size: Backlog::WINDOW,
        event_buffer_size: EVENT_BUFFER,
        max_auth_attempts: 6,
        inactivity_timeout: None,
        ..Config::default()
    }
}

/// What the server's thread works with.
struct Service {
    shared: Arc<Shared>,
    faults: Faults,
    config: Arc<Config>,
}

impl Service {
    fn spawn(
        self,
        unix: UnixListener,
        tcp: Option<TcpListener>,
        stopped: oneshot::Receiver<()>,
    ) -> Result<JoinHandle<()>, Error> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(prepare("runtime"))?;
        let (unix, tcp) = {
            let _entered = runtime.enter();
            listen(unix, tcp).map_err(prepare("listener"))?
        };
        std::thread::Builder::new()
            .name("towline-demo".to_owned())
            .spawn(move || {
                runtime.block_on(self.serve(unix, tcp, stopped));
                // A push's callback may still block; nothing waits for its answer.
                runtime.shutdown_background();
            })
            .map_err(prepare("thread"))
    }

    async fn serve(
        self,
        unix: tokio::net::UnixListener,
        tcp: Option<tokio::net::TcpListener>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let (alive, mut ended) = mpsc::channel(1);
        loop {
            let tcp_accept = async {
                match &tcp {
                    Some(listener) => listener.accept().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = &mut stopped => break,
                Ok((stream, _)) = unix.accept() => self.connection(stream, &alive),
                Ok((stream, _)) = tcp_accept => match stream.set_nodelay(true) {
                    Ok(()) => self.connection(stream, &alive),
                    Err(error) => tracing::debug!(%error, "connection lost at once"),
                },
            }
        }
        drop((unix, tcp, alive));
        self.faults.thaw();
        self.faults.cut();
        // Ends when all connections and commands have; a bound all the same, as a command can hang in the kernel.
        if tokio::time::timeout(LAST_WAIT, ended.recv()).await.is_err() {
            tracing::warn!("a demo command could not be ended");
        }
    }

    fn connection<S>(&self, stream: S, alive: &mpsc::Sender<()>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        count(&self.shared.tally.connections);
        let backlog = Arc::new(Backlog::default());
        let link = Link::new(stream, self.faults.clone(), Arc::clone(&backlog));
        let (reader, writer) = tokio::io::split(link);
        let outbox = Arc::new(Outbox::default());
        let reader = BufReader::with_capacity(READ_BUFFER, reader);
        let stream = Posted { reader, outbox: Arc::clone(&outbox) };
        let login = Login::new(Arc::clone(&self.shared), backlog, Arc::clone(&outbox), alive.clone());
        let config = Arc::clone(&self.config);
        tokio::spawn(async move { outbox.drain(writer).await });
        tokio::spawn(async move {
            let ended = match russh::server::run_stream(config, stream, login).await {
                Ok(session) => session.await,
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

fn listen(
    unix: UnixListener,
    tcp: Option<TcpListener>,
) -> io::Result<(tokio::net::UnixListener, Option<tokio::net::TcpListener>)> {
    unix.set_nonblocking(true)?;
    let unix = tokio::net::UnixListener::from_std(unix)?;
    let tcp = match tcp {
        Some(listener) => {
            listener.set_nonblocking(true)?;
            Some(tokio::net::TcpListener::from_std(listener)?)
        }
        None => None,
    };
    Ok((unix, tcp))
}
