//! The account behind a login: which user, where at home, and how a command of it begins.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::batch;

/// The shell of the account.
const SHELL: &str = "/bin/sh";

#[derive(Debug)]
pub(super) struct Account {
    pub(super) user: String,
    pub(super) home: PathBuf,
    pub(super) cluster: PathBuf,
    pub(super) environment: Vec<(OsString, OsString)>,
}

impl Account {
    /// Prepares `sh -c TEXT` as sshd does: at home, with a clean environment, in a session of its own, on three pipes.
    pub(super) fn shell(&self, text: &[u8]) -> Command {
        let mut command = Command::new(SHELL);
        command
            .arg("-c")
            .arg(OsStr::from_bytes(text))
            .current_dir(&self.home)
            .env_clear()
            .env("HOME", &self.home)
            .env("USER", &self.user)
            .env("LOGNAME", &self.user)
            .env("SHELL", SHELL)
            .env("PATH", self.path())
            .env(batch::CLUSTER, &self.cluster)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        own_session(&mut command);
        command
    }

    fn path(&self) -> OsString {
        let mut path = self.home.join("bin").into_os_string();
        if let Some(inherited) = std::env::var_os("PATH") {
            path.push(":");
            path.push(inherited);
        }
        path
    }
}

/// Who runs this process: its name, or its number where it has none.
pub(super) fn current_user() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// Makes the command the leader of a session and process group of its own, without a terminal.
#[expect(unsafe_code, reason = "the standard library has no safe setsid")]
pub(super) fn own_session(command: &mut Command) {
    // SAFETY: the closure runs between fork and exec. It only calls setsid(2), which is async-signal-safe, and builds
    // an error from a number; it allocates nothing and touches no memory or lock of the parent.
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from));
    }
}
