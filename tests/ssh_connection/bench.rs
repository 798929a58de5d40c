//! What the tests of this binary share: a scratch ssh config, a human with prepared answers, a runtime.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ssh_config_parser::{Snapshot, World};
use towline::ssh::{
    Channel, Deadlines, Error, Overrides, Part, Prompt, Prompter, Secret, Target, Transport, Unanswered,
    connect,
};

use crate::support::server::{identity, known_hosts};

pub const DEADLINES: Deadlines =
    Deadlines { connect: Duration::from_secs(20), start: Duration::from_secs(60) };

/// A human who gives prepared answers, and remembers what was asked and shown.
#[derive(Default)]
pub struct Human {
    answers: Mutex<VecDeque<String>>,
    pub asked: Mutex<Vec<Prompt>>,
    pub told: Mutex<Vec<String>>,
}

impl Human {
    pub fn answering<const N: usize>(answers: [&str; N]) -> Arc<Human> {
        let human = Human::default();
        *human.answers.lock().unwrap() = answers.into_iter().map(str::to_owned).collect();
        Arc::new(human)
    }

    pub fn asked(&self) -> Vec<Prompt> {
        self.asked.lock().unwrap().clone()
    }

    pub fn told(&self) -> String {
        self.told.lock().unwrap().join("\n")
    }
}

impl Prompter for Human {
    fn ask(&self, prompt: &Prompt) -> Result<Secret, Unanswered> {
        self.asked.lock().unwrap().push(prompt.clone());
        let answer = self.answers.lock().unwrap().pop_front();
        answer.map(Secret::new).ok_or(Unanswered::Nobody)
    }

    fn tell(&self, text: &str) {
        self.told.lock().unwrap().push(text.to_owned());
    }
}

/// A home folder with an ssh config.
pub struct Bench {
    pub dir: tempfile::TempDir,
    config: String,
    pub overrides: Overrides,
    pub deadlines: Deadlines,
}

impl Bench {
    pub fn new() -> Bench {
        let dir = tempfile::Builder::new().prefix("tl-").tempdir_in("/tmp").unwrap();
        std::fs::write(dir.path().join("known_hosts"), "").unwrap();
        Bench { dir, config: String::new(), overrides: Overrides::default(), deadlines: DEADLINES }
    }

    /// Host `site` at `address` as alice with the key `kind`; its host keys are known.
    pub fn for_site(address: SocketAddr, kind: &str) -> Bench {
        let mut bench = Bench::new();
        bench.know(&known_hosts(address.port()));
        bench.host("site", address, kind, "");
        bench
    }

    /// Adds a host; `lines` go first, so they win.
    pub fn host(&mut self, name: &str, address: SocketAddr, kind: &str, lines: &str) {
        let key = self.key(kind);
        self.config.push_str(&format!(
            "Host {name}\n{lines}\n HostName {}\n Port {}\n User alice\n IdentityFile {}\n IdentityAgent none\n \
             UserKnownHostsFile {}\n GlobalKnownHostsFile none\n",
            address.ip(),
            address.port(),
            key.display(),
            self.path("known_hosts").display(),
        ));
    }

    /// Puts lines before all others.
    pub fn prepend(&mut self, lines: &str) {
        self.config = format!("{lines}\n{}", self.config);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A copy of a client key, readable by us alone.
    pub fn key(&self, kind: &str) -> PathBuf {
        let path = self.path(&format!("id_{kind}"));
        if !path.exists() && identity(kind).exists() {
            std::fs::copy(identity(kind), &path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        path
    }

    /// Replaces the known host keys.
    pub fn know(&self, lines: &str) {
        std::fs::write(self.path("known_hosts"), lines).unwrap();
    }

    pub fn known(&self) -> String {
        std::fs::read_to_string(self.path("known_hosts")).unwrap()
    }

    pub fn target(&self, host: &str) -> Target {
        let file = self.path("config");
        std::fs::write(&file, &self.config).unwrap();
        let world = World {
            home: self.dir.path().to_owned(),
            home_env: None,
            user: "alice".to_owned(),
            uid: 1000,
            local_host: "here".to_owned(),
            env: BTreeMap::new(),
        };
        let snapshot = Snapshot::read(Some(&file), world).unwrap();
        Target::from_config(&snapshot, host, &self.overrides).unwrap()
    }

    pub async fn connect(&self, human: Arc<Human>) -> Result<Transport, Error> {
        connect(&self.target("site"), human, &self.deadlines).await
    }

    /// Connects without a human and runs a command.
    pub async fn run(&self, command: &str) -> Ran {
        let transport = self.connect(Human::answering([])).await.unwrap();
        collect(transport.into_channel(command).await.unwrap()).await
    }
}

/// What a command did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ran {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Option<u32>,
    pub signal: Option<String>,
}

impl Ran {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap().trim()
    }
}

/// Reads a channel to its end; checks that the exit comes after the last byte.
pub async fn collect(channel: Channel) -> Ran {
    let Channel { mut reader, mut writer, .. } = channel;
    writer.finish().await.unwrap();
    let mut ran = Ran::default();
    let mut exited = false;
    while let Some(part) = reader.next().await {
        match part {
            Part::Stdout(bytes) => {
                assert!(!exited, "a byte came after the exit");
                ran.stdout.extend(bytes);
            }
            Part::Stderr(bytes) => {
                assert!(!exited, "a byte came after the exit");
                ran.stderr.extend(bytes);
            }
            Part::Exit { code, signal } => {
                exited = true;
                (ran.exit, ran.signal) = (code, signal);
            }
            Part::Closed { .. } => {}
        }
    }
    ran
}

/// Runs a future on a runtime as the broker has it.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(120), work).await.expect("the test hangs")
    })
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Runs a program to its end; its stdout is the result.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a key without a passphrase.
pub fn keygen(path: &Path, kind: &str) {
    run("ssh-keygen", &["-q", "-t", kind, "-N", "", "-f", path.to_str().unwrap()]);
}

/// `type base64` of a public key file.
pub fn public(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// The fingerprint as OpenSSH shows it.
pub fn fingerprint(path: &Path) -> String {
    run("ssh-keygen", &["-l", "-E", "sha256", "-f", path.to_str().unwrap()])
        .split_whitespace()
        .nth(1)
        .unwrap()
        .to_owned()
}
