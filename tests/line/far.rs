//! A login node as a test wants it: a server, a folder of its own as HOME there, and a link that counts bytes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::unistd::User;
use ssh_config_parser::{Snapshot, World};
use towline::line::bootstrap::Helpers;
use towline::line::message::Environment;
use towline::line::{Line, OpenError, Options};
use towline::ssh::{Deadlines, NoPrompter, Overrides, Target};

use crate::support::{Answer, Direction, Link, Shape, Sshd, TempHome, ThrowawayOptions, run_json, server};

/// A folder below a user's home; gone, with what was mounted in it, when dropped.
#[derive(Debug)]
pub struct Folder {
    user: User,
    name: String,
    mounts: std::sync::Mutex<Vec<String>>,
}

impl Folder {
    pub fn of(user: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        server::require("base");
        let name = format!("t-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let user = User::from_name(user).unwrap().unwrap_or_else(|| panic!("no user {user}"));
        let folder = Folder { user, name, mounts: std::sync::Mutex::default() };
        fs::create_dir(folder.here("")).unwrap();
        folder.give(&folder.here(""), 0o700);
        folder
    }

    /// A path in it as this process sees it.
    pub fn here(&self, path: &str) -> PathBuf {
        server::user_home(&self.user.name).join(&self.name).join(path)
    }

    /// The same path as the far side sees it.
    pub fn there(&self, path: &str) -> String {
        format!("/home/{}/{}/{path}", self.user.name, self.name).trim_end_matches('/').to_owned()
    }

    pub fn uid(&self) -> u32 {
        self.user.uid.as_raw()
    }

    /// Writes a file of the user's, folders included.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.mkdir(parent);
        }
        fs::write(self.here(path), content).unwrap();
        self.give(&self.here(path), 0o600);
    }

    /// Makes a folder of the user's, those above it included.
    pub fn mkdir(&self, path: &str) {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let folder = self.here(&path[..end]);
            if !folder.exists() {
                fs::create_dir(&folder).unwrap();
                self.give(&folder, 0o700);
            }
        }
    }

    pub fn give(&self, path: &Path, mode: u32) {
        chown(path, Some(self.uid()), Some(self.user.gid.as_raw())).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Mounts a small file system over a folder, at the far side alone.
    pub fn mount(&self, path: &str, options: &str) {
        self.mkdir(path);
        let there = self.there(path);
        let options = format!("mode=700,uid={},{options}", self.uid());
        run(server::inside("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs", &there]));
        self.mounts.lock().unwrap().push(there);
    }

    /// All files below, as paths relative to it, but for the helper's README; what is mounted at the far side is not
    /// seen.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let (mut files, mut folders) = (BTreeMap::new(), vec![String::new()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.here(&folder)).unwrap().map(Result::unwrap) {
                let path = format!("{folder}{}", entry.file_name().to_str().unwrap());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(format!("{path}/"));
                } else if entry.file_type().unwrap().is_file() && !path.ends_with("/README") {
                    files.insert(path, fs::read(entry.path()).unwrap());
                }
            }
        }
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for mount in self.mounts.lock().unwrap().drain(..) {
            run(server::inside("umount").args(["--lazy", &mount]));
        }
        // A test's leftover in a scratch home changes no result.
        drop(fs::remove_dir_all(self.here("")));
    }
}

/// Runs a program that must succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A site whose far side has a HOME of the test's own.
pub struct Far {
    // The server goes first: nobody uses the folder any more when it is removed.
    pub server: Sshd,
    pub link: Link,
    pub home: TempHome,
    pub folder: Folder,
}

impl Far {
    /// A site for `user` with nothing unusual.
    pub fn new(user: &str) -> Far {
        Far::with(Folder::of(user), &[], &[])
    }

    /// A site whose sessions have these variables, and HOME as `folder` unless they say otherwise; `lines` go to sshd.
    pub fn with(folder: Folder, variables: &[(&str, &str)], lines: &[&str]) -> Far {
        let home = ("HOME", folder.there(""));
        let mut all: BTreeMap<&str, &str> = BTreeMap::from([(home.0, home.1.as_str())]);
        all.extend(variables.iter().copied());
        // sshd takes one SetEnv line alone.
        let set: Vec<_> = all.iter().map(|(name, value)| format!("\"{name}={value}\"")).collect();
        let lines = [format!("SetEnv {}", set.join(" "))]
            .into_iter()
            .chain(lines.iter().map(|line| (*line).to_owned()));
        let server = Sshd::throwaway(ThrowawayOptions {
            users: folder.user.name.clone(),
            lines: lines.collect(),
            ..ThrowawayOptions::default()
        });
        let link = Link::to_tcp(server.address(), Shape::default());
        let home = TempHome::for_address(link.address(), &folder.user.name);
        Far { server, link, home, folder }
    }

    /// Opens a line.
    pub async fn open(&self) -> Line {
        self.try_open(|_| {}).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Opens a line with other options than usual.
    pub async fn try_open(&self, edit: impl FnOnce(&mut Options)) -> Result<Line, OpenError> {
        let mut options = Options {
            environment: Environment::None,
            helpers: Helpers::embedded(),
            exec_from_memory: false,
            deadlines: Deadlines { connect: Duration::from_secs(20), start: Duration::from_secs(60) },
        };
        edit(&mut options);
        let snapshot = Snapshot::read(Some(&self.home.ssh_config()), World::from_system().unwrap()).unwrap();
        let target = Target::from_config(&snapshot, "login", &Overrides::default()).unwrap();
        towline::line::open(target, Arc::new(NoPrompter), options).await
    }

    /// Opens a line and tells whether the helper was there, and how many bytes went up meanwhile.
    pub async fn opening(&self) -> (Line, Opened) {
        let before = self.link.passed(Direction::Up);
        let line = self.open().await;
        let cached = line.facts().helper.cached;
        (line, Opened { cached, bytes_up: self.link.passed(Direction::Up) - before })
    }

    /// Runs `towline --json exec` of shell text.
    pub fn exec(&self, text: &str) -> Answer {
        run_json(&self.home, &["exec", server_site(), "--", text])
    }
}

fn server_site() -> &'static str {
    crate::support::home::SITE
}

/// How a line came about.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    pub cached: bool,
    pub bytes_up: u64,
}

impl Opened {
    /// Whether the helper was sent `times`, as the link counted it, and as the line says.
    pub fn sent(self, times: u64) -> bool {
        // Key exchange, login, the command and the first frames take some 10 KB.
        let least = times * helper().len() as u64;
        self.cached == (times == 0) && (least..least + (64 << 10)).contains(&self.bytes_up)
    }
}

/// The helper's program file.
pub fn helper() -> Vec<u8> {
    Helpers::embedded().x86_64.expect("a helper for this machine").bytes.into_owned()
}

/// The name under which a host caches it.
pub fn helper_name() -> String {
    Helpers::embedded().x86_64.expect("a helper for this machine").sha256_hex.into_owned()
}
