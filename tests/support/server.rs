//! A real sshd of the test's own, with counters read from its own log.

use super::{PATIENCE, census, wait_for};
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/cluster/cluster");

/// What alice and bob type where a server asks for the account's password.
pub const PASSWORD: &str = "towline-password";
/// The passcode that the second factor accepts.
pub const PASSCODE: &str = "123456";
/// What opens the key `id_encrypted`.
pub const KEY_PASSPHRASE: &str = "towline-passphrase";
/// One user a login shell.
pub const SHELL_USERS: [&str; 10] = [
    "tl-sh", "tl-dash", "tl-bash", "tl-rbash", "tl-zsh", "tl-csh", "tl-tcsh", "tl-fish", "tl-ksh", "tl-mksh",
];

/// How a server lets people in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// A key is enough.
    Key,
    /// A key, then a menu: `1` is a push, `123456` the passcode.
    Menu,
    /// A key, then one bare prompt for the passcode.
    Code,
    /// The account's password, then the menu.
    Password,
}

/// What a private sshd differs in from the one of [`Sshd::key_only`].
pub struct ThrowawayOptions {
    /// How it lets people in.
    pub auth: Auth,
    /// For `AllowUsers`: names separated by blanks.
    pub users: String,
    /// More lines of `sshd_config`; they win over ours.
    pub lines: Vec<String>,
    /// More options of the second-factor module: `deny`, `delay_ms=N`, `tries=N`.
    pub factor: String,
}

impl Default for ThrowawayOptions {
    fn default() -> Self {
        Self {
            auth: Auth::Key,
            users: "alice bob carol tl-*".to_owned(),
            lines: Vec::new(),
            factor: String::new(),
        }
    }
}

/// A running sshd on loopback with `MaxSessions 1`. It ends, with its connections, when dropped.
#[derive(Debug)]
pub struct Sshd {
    name: String,
    port: u16,
}

impl Sshd {
    /// Starts a server where a key is enough.
    pub fn key_only() -> Self {
        Self::throwaway(ThrowawayOptions::default())
    }

    /// Starts a server that wants a key and then asks with a menu.
    pub fn second_factor() -> Self {
        Self::throwaway(ThrowawayOptions { auth: Auth::Menu, ..ThrowawayOptions::default() })
    }

    /// Starts a server as told.
    pub fn throwaway(options: ThrowawayOptions) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        require("base");
        let mut refusal = String::new();
        // Between our asking for a free port and sshd's taking it somebody else can be quicker.
        for _ in 0..5 {
            let name = format!("t-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let port = free_port();
            match start(&name, port, &options) {
                Ok(()) => return Self { name, port },
                Err(text) => refusal = text,
            }
        }
        panic!("no sshd: {refusal}");
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its three host keys as lines of a `known_hosts` file, under the name that `port` gives it.
    pub fn known_hosts(&self) -> String {
        known_hosts(self.port)
    }

    /// Its log so far. Lines of a connection are complete once [`Sshd::wait_until_idle`] returns.
    pub fn log(&self) -> String {
        read(&self.directory().join("log"))
    }

    /// TCP connections accepted so far.
    pub fn connections(&self) -> usize {
        count(&self.log(), "Connection from ")
    }

    /// Session channels asked for so far, refused ones included.
    pub fn session_channels(&self) -> usize {
        count(&self.log(), "debug1: server_input_channel_open: ctype session ")
    }

    /// Forwarded connections asked for so far (what a jump uses).
    pub fn forwarded_channels(&self) -> usize {
        count(&self.log(), "debug1: server_input_channel_open: ctype direct-tcpip ")
    }

    /// Commands, shells and subsystems started so far.
    pub fn sessions(&self) -> usize {
        count(&self.log(), "Starting session: ")
    }

    /// Second-factor prompts shown so far, wrong answers included.
    pub fn prompts(&self) -> usize {
        count(&read(&self.directory().join("prompts")), "prompt ")
    }

    /// Logins that have succeeded so far.
    pub fn logins(&self) -> usize {
        count(&read(&self.directory().join("prompts")), "login ")
    }

    /// Live connections: sshd has a process for each.
    pub fn open_connections(&self) -> usize {
        census::children_of(self.pid()).len()
    }

    /// Waits until no connection is open, so that the counters are final.
    pub fn wait_until_idle(&self) {
        wait_for(PATIENCE, "all connections have ended", || (self.open_connections() == 0).then_some(()));
    }

    /// Ends all open connections from the server's side, as a restart or an administrator does.
    pub fn kill_connections(&self) {
        for monitor in census::children_of(self.pid()) {
            // The one that speaks to the client is a child of the one that watches over it, and would outlive it.
            let speakers = census::children_of(monitor.pid).into_iter();
            speakers.filter(|process| process.name.starts_with("sshd")).chain([monitor]).for_each(
                |process| {
                    process.signal(nix::sys::signal::Signal::SIGKILL);
                },
            );
        }
    }

    /// The listener's process.
    pub fn pid(&self) -> u32 {
        read(&state_directory().join(format!("run/sshd-{}.pid", self.name)))
            .trim()
            .parse()
            .expect("a pid file")
    }

    fn directory(&self) -> PathBuf {
        state_directory().join("sshd").join(&self.name)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the server saw is often what explains a failure.
            eprintln!("--- log of sshd {} ---\n{}", self.name, tail(&self.log(), 60));
        }
        let ended = Command::new(CLUSTER).args(["sshd-stop", &self.name]).status();
        assert!(ended.is_ok_and(|status| status.success()) || std::thread::panicking(), "sshd was not ended");
        // The log goes with it; a failure to remove it changes no result.
        drop(fs::remove_dir_all(self.directory()));
    }
}

/// Where the servers keep their state.
pub fn state_directory() -> PathBuf {
    std::env::var_os("TOWLINE_TEST_DIR")
        .map_or_else(|| PathBuf::from("/var/tmp/towline-tests"), PathBuf::from)
}

/// A user's home as this process sees it; the user sees it as `/home/NAME`.
pub fn user_home(user: &str) -> PathBuf {
    state_directory().join("home").join(user)
}

/// A private key that all users accept (`ed25519`, `rsa`, `ecdsa`, `encrypted`), or one that nobody does (`stranger`).
pub fn identity(kind: &str) -> PathBuf {
    state_directory().join("keys").join(format!("id_{kind}"))
}

/// The host keys of every sshd here, as `known_hosts` lines for 127.0.0.1 at `port`.
pub fn known_hosts(port: u16) -> String {
    ["ed25519", "ecdsa", "rsa"]
        .iter()
        .map(|kind| {
            let public = read(&state_directory().join(format!("keys/host_{kind}.pub")));
            let mut words = public.split_whitespace();
            format!("[127.0.0.1]:{port} {} {}\n", words.next().unwrap(), words.next().unwrap())
        })
        .collect()
}

/// Starts a part of the cluster (`base`, `sshd`, `dropbear`, `slurm`, `sge`) unless it runs.
///
/// # Panics
/// With the command to type where a package is missing.
pub fn require(part: &str) {
    // Every private server asks for the base; the answer doesn't change while we run.
    static BASE: OnceLock<()> = OnceLock::new();
    if part == "base" {
        BASE.get_or_init(|| start_part(part));
    } else {
        start_part(part);
    }
}

fn start_part(part: &str) {
    let output = Command::new(CLUSTER)
        .args(["start", part])
        .stdin(Stdio::null())
        .output()
        .expect("the cluster script runs");
    assert!(output.status.success(), "cluster start {part}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A command that runs as root on the host `login1`, where the servers are.
pub fn inside(program: &str) -> Command {
    let mut command = Command::new(CLUSTER);
    command.args(["enter", program]);
    command
}

/// A TCP port of loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().unwrap().port()
}

fn start(name: &str, port: u16, options: &ThrowawayOptions) -> Result<(), String> {
    let auth = match options.auth {
        Auth::Key => "key",
        Auth::Menu => "menu",
        Auth::Code => "code",
        Auth::Password => "password",
    };
    let mut child = Command::new(CLUSTER)
        .args(["sshd", name, &port.to_string(), auth, &options.users])
        .env("TOWLINE_FACTOR", &options.factor)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the cluster script runs");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(options.lines.join("\n").as_bytes()).expect("the script reads its lines");
    drop(stdin);
    let output = child.wait_with_output().expect("the script ends");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn count(text: &str, beginning: &str) -> usize {
    text.lines().filter(|line| line.starts_with(beginning)).count()
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

fn read(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}
