//! A `TOWLINE_HOME` of the test's own, and the built program run in it.

use super::server::{self, Sshd};
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// No command of a test may take longer.
const COMMAND_MAX: Duration = Duration::from_secs(120);

/// The site that [`TempHome::for_server`] configures.
pub const SITE: &str = "hpc";

/// A home with `config.toml`, an ssh config, known host keys and an identity; removed when dropped.
///
/// `towline/` is the `TOWLINE_HOME`, `home/` the user's home with its `.ssh`.
#[derive(Debug)]
pub struct TempHome {
    root: TempDir,
}

impl TempHome {
    /// Makes an empty home: no configuration, no keys.
    pub fn empty() -> Self {
        // Socket paths must stay under 100 bytes, whatever TMPDIR says.
        let root = tempfile::Builder::new().prefix("tl-").tempdir_in("/tmp").expect("a scratch folder");
        let home = Self { root };
        for directory in ["towline", "home", "home/.ssh"] {
            fs::DirBuilder::new().mode(0o700).create(home.root.path().join(directory)).expect("a folder");
        }
        home
    }

    /// Makes a home whose site `hpc` is `user` on `server`.
    pub fn for_server(server: &Sshd, user: &str) -> Self {
        Self::for_address(server.address(), user)
    }

    /// Makes a home whose site `hpc` is `user` at `address`: a server, or a link in front of one.
    pub fn for_address(address: SocketAddr, user: &str) -> Self {
        let home = Self::empty();
        home.add_host("login", address, user, "ed25519");
        home.set_config(&format!(
            "[site.{SITE}]\nhost = \"login\"\nssh_config = \"{}\"\napproval = \"open\"\n",
            home.ssh_config().display()
        ));
        home
    }

    /// Adds a `Host` to the ssh config, its host keys and the identity `kind`.
    pub fn add_host(&self, host: &str, address: SocketAddr, user: &str, kind: &str) {
        let key = format!("home/.ssh/id_{kind}");
        if !self.root.path().join(&key).exists() {
            self.append(&key, &fs::read(server::identity(kind)).expect("the client's key"));
        }
        self.append("home/.ssh/known_hosts", server::known_hosts(address.port()).as_bytes());
        let block = format!(
            "Host {host}\n  HostName {}\n  Port {}\n  User {user}\n  IdentityFile {}\n  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {}\n",
            address.ip(),
            address.port(),
            self.root.path().join(&key).display(),
            self.known_hosts().display(),
        );
        self.append("home/.ssh/config", block.as_bytes());
    }

    /// Replaces `config.toml`.
    pub fn set_config(&self, text: &str) {
        let path = self.path().join("config.toml");
        if path.exists() {
            fs::remove_file(&path).expect("config.toml goes");
        }
        self.append("towline/config.toml", text.as_bytes());
    }

    /// Adds lines to `config.toml`; they belong to the last table there.
    pub fn extend_config(&self, text: &str) {
        self.append("towline/config.toml", text.as_bytes());
    }

    /// The `TOWLINE_HOME`.
    pub fn path(&self) -> PathBuf {
        self.root.path().join("towline")
    }

    /// The user's home.
    pub fn user_home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The ssh config that the site names.
    pub fn ssh_config(&self) -> PathBuf {
        self.root.path().join("home/.ssh/config")
    }

    /// The host keys that the ssh config names.
    pub fn known_hosts(&self) -> PathBuf {
        self.root.path().join("home/.ssh/known_hosts")
    }

    /// The environment that towline sees, and nothing else of ours: no agent, no locale, no display.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        vec![
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), self.user_home().display().to_string()),
            ("TOWLINE_HOME".to_owned(), self.path().display().to_string()),
            ("TERM".to_owned(), "xterm".to_owned()),
            ("TZ".to_owned(), "UTC".to_owned()),
        ]
    }

    fn append(&self, file: &str, bytes: &[u8]) {
        let path = self.root.path().join(file);
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .expect("a file of the home");
        file.write_all(bytes).expect("the file is written");
    }
}

/// The built `towline` in `home`, without a terminal and with a bound on its time.
pub fn towline(home: &TempHome) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.env_clear().envs(home.environment()).current_dir(home.user_home()).timeout(COMMAND_MAX);
    command
}

/// What a call with `--json` answered.
#[derive(Debug)]
pub struct Answer {
    /// The exit code; null where a signal ended it (the time bound does).
    pub code: Option<i32>,
    /// The document on stdout, or null.
    pub json: Value,
    /// The document on stderr (the error), or null.
    pub error: Value,
    /// Both streams as they came.
    pub text: String,
}

impl Answer {
    /// The result of a call that must have succeeded.
    pub fn ok(&self) -> &Value {
        assert_eq!(self.code, Some(0), "{}", self.text);
        &self.json
    }

    /// The kind of a failure, for `assert_eq!` with the exit code.
    pub fn failure(&self) -> (Option<i32>, &str) {
        (self.code, self.error["error"]["kind"].as_str().unwrap_or(""))
    }
}

/// Runs `towline --json ARGS` in `home`.
pub fn run_json(home: &TempHome, args: &[&str]) -> Answer {
    let output = towline(home).arg("--json").args(args).output().expect("towline runs");
    let text = format!(
        "towline {args:?}: {:?}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Answer {
        code: output.status.code(),
        json: document(&output.stdout),
        error: document(&output.stderr),
        text,
    }
}

/// One JSON document, nothing before or after it; null for anything else.
fn document(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// The bytes of a file of the home, for tests that assert that nothing was written.
pub fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok()
}
