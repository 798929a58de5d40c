//! The environment that commands run in: the session's, or one snapshot of a login shell's or a script's.
//!
//! `module`, `conda` and their like exist only after start-up files have run. One snapshot a line runs them once,
//! between random markers, so that neither what they print nor their time falls on any command.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use towline_helper::wire::message::{Environment, Refusal};

use super::launch::Launcher;
use super::link::{Got, Link, READ_BYTES};
use super::processes::Root;
use super::program::{Image, argv, environment, shells};
use super::session::{STREAM_VARIABLE, Session, Variables, without_start_files};

/// How long start-up files may take.
const SNAPSHOT_TIME: Duration = Duration::from_secs(10);
/// What start-up files may print, the environment included.
const SNAPSHOT_BYTES_MAX: usize = 4 << 20;
/// Variables that describe the snapshot's own shell rather than what it set up.
const VARIABLES_OF_SHELL: [&str; 5] = ["_", "SHLVL", "PWD", "OLDPWD", STREAM_VARIABLE];
/// The stream number of the snapshot's own processes; real streams begin at 1.
pub(crate) const SNAPSHOT_STREAM: u32 = 0;

/// What commands get.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recipe {
    /// The variables.
    pub(crate) variables: Variables,
    /// `none`, `login` or `script`: where they come from.
    pub(crate) name: &'static str,
    /// Why that is not what was asked for.
    pub(crate) note: Option<String>,
}

/// A snapshot under way.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pid: Pid,
    name: &'static str,
    what: String,
    marker: String,
    stdout: OwnedFd,
    /// Kept and never read: what start-up files complain about is dropped with the pipe's end.
    stderr: Option<OwnedFd>,
    text: Vec<u8>,
    until: Duration,
    is_reaped: bool,
}

/// What start-up gives at once, or what has to be waited for.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The environment is there.
    Ready(Recipe),
    /// A shell is at work.
    Waiting(Box<Snapshot>),
}

/// The session's own environment.
fn session_recipe(session: &Session, note: Option<String>) -> Recipe {
    Recipe { variables: session.variables.clone(), name: "none", note }
}

/// Begins to gather the environment that the client asked for.
pub(crate) fn begin(wanted: &Environment, session: &Session, launcher: &Launcher, now: Duration) -> Begun {
    let (name, what) = match wanted {
        Environment::None => return Begun::Ready(session_recipe(session, None)),
        Environment::LoginIfPossible | Environment::Login => ("login", "the login shell".to_owned()),
        Environment::Script(path) => ("script", format!("the script {}", path.escaped())),
    };
    let marker = random_marker();
    let image = match image(wanted, &marker, session) {
        Ok(image) => image,
        Err(refusal) => return Begun::Ready(session_recipe(session, Some(refusal.message))),
    };
    match launcher.launch(&image, false) {
        Ok(launched) => Begun::Waiting(Box::new(Snapshot {
            pid: launched.pid,
            name,
            what,
            marker,
            stdout: launched.stdout,
            stderr: Some(launched.stderr),
            text: Vec::new(),
            until: now + SNAPSHOT_TIME,
            is_reaped: false,
        })),
        Err(errno) => {
            let note = format!("no environment of {what}: it could not be started: {}", errno.desc());
            Begun::Ready(session_recipe(session, Some(note)))
        }
    }
}

/// The shell that prints its environment between markers.
fn image(wanted: &Environment, marker: &str, session: &Session) -> Result<Image, Refusal> {
    // A profile may leave a PATH without `env` behind, so the usual place comes first. The marker is written in two
    // halves: a shell that shows its commands does not show it.
    let (a, b) = marker.split_at(marker.len() / 2);
    let print = format!("printf %s%s {a} {b};/usr/bin/env -0||env -0;printf %s%s {a} {b}");
    let (bash, sh): (Vec<Vec<u8>>, Vec<Vec<u8>>) = match wanted {
        Environment::Script(path) => {
            let path = session.cwd.join(session.resolve(path)?).into_os_string().into_vec();
            let text = format!("[ -r \"$1\" ]||exit 1;. \"$1\" >/dev/null;{print}").into_bytes();
            let words = |shell: &[&[u8]]| {
                let tail = [b"-c".to_vec(), text.clone(), b"towline".to_vec(), path.clone()];
                shell.iter().map(|word| word.to_vec()).chain(tail).collect()
            };
            (words(&[b"bash", b"--noprofile", b"--norc"]), words(&[b"sh"]))
        }
        _ => {
            let words = |shell: &[u8]| vec![shell.to_vec(), b"-lc".to_vec(), print.clone().into_bytes()];
            (words(b"bash"), words(b"sh"))
        }
    };
    let words = |words: &[Vec<u8>]| argv(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut variables = session.variables.clone();
    variables.insert(STREAM_VARIABLE.into(), session.stream_mark(SNAPSHOT_STREAM, false));
    Ok(Image {
        attempts: shells()?,
        argvs: vec![words(&bash)?, words(&sh)?],
        environment: environment(&variables)?,
        cwd: None,
        shown: "/bin/sh".to_owned(),
    })
}

impl Snapshot {
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// When it is given up.
    pub(crate) fn until(&self) -> Duration {
        self.until
    }

    pub(crate) fn stdout(&self) -> BorrowedFd<'_> {
        self.stdout.as_fd()
    }

    /// The shell as the root of its descendants.
    pub(crate) fn root(&self) -> Root {
        let is_alive = !self.is_reaped;
        Root { pid: self.pid.as_raw(), stream: SNAPSHOT_STREAM, detach: false, is_alive }
    }

    /// Notes that the shell is gone and its number may be used again.
    pub(crate) fn handle_reaped(&mut self) {
        self.is_reaped = true;
    }

    /// Reads what the shell printed. Returns the recipe once it's known: at the second marker, at the end, or when
    /// time or space run out.
    pub(crate) fn advance(&mut self, link: &mut Link, session: &Session) -> Option<Recipe> {
        self.drain_complaints(link);
        let now = link.now();
        let is_over = match link.read(self.stdout.as_fd(), READ_BYTES) {
            Got::Bytes(bytes) => {
                self.text.extend_from_slice(bytes);
                false
            }
            Got::Nothing => false,
            Got::End => true,
        };
        if let Some(variables) = parse(&self.text, self.marker.as_bytes()) {
            let variables = with_session_shell(without_start_files(variables), session);
            return Some(Recipe { variables, name: self.name, note: None });
        }
        let problem = if is_over {
            "it ended without printing it"
        } else if self.text.len() > SNAPSHOT_BYTES_MAX {
            "it printed more than 4 MiB"
        } else if now >= self.until {
            "it did not print it within 10 s"
        } else {
            return None;
        };
        let note = format!("no environment of {}: {problem}; the session's own is used", self.what);
        Some(session_recipe(session, Some(note)))
    }

    /// Ends the shell when it has not ended by itself. What it left in the background goes on until the line ends.
    pub(crate) fn kill(&self) {
        if !self.is_reaped {
            // Only a group that has ended in this moment has no such number.
            killpg(self.pid, Signal::SIGKILL).or_else(ignore_gone).unwrap_or_default();
        }
    }

    fn drain_complaints(&mut self, link: &mut Link) {
        if let Some(stderr) = &self.stderr
            && matches!(link.read(stderr.as_fd(), READ_BYTES), Got::End)
        {
            self.stderr = None;
        }
    }

    /// The complaints' pipe, while it's open.
    pub(crate) fn stderr(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stderr.as_ref()?.as_fd())
    }

    /// The pipes, which processes in the background may hold.
    pub(crate) fn into_pipes(self) -> impl Iterator<Item = OwnedFd> {
        [Some(self.stdout), self.stderr].into_iter().flatten()
    }
}

fn ignore_gone(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::ESRCH { Ok(()) } else { Err(errno) }
}

/// The variables between two markers; none while the second marker has not come.
fn parse(text: &[u8], marker: &[u8]) -> Option<Variables> {
    let begin = find(text, marker)? + marker.len();
    let rest = text.get(begin..)?;
    let body = rest.get(..find(rest, marker)?)?;
    let entries = body.split(|byte| *byte == 0).filter_map(|entry| {
        let equals = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (entry.get(..equals)?, entry.get(equals + 1..)?);
        (!name.is_empty()).then(|| (OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec())))
    });
    Some(entries.collect())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// Gives variables that describe a shell the session's values again.
fn with_session_shell(mut variables: Variables, session: &Session) -> Variables {
    for name in VARIABLES_OF_SHELL {
        let name = OsStr::from_bytes(name.as_bytes());
        variables.remove(name);
        if let Some(value) = session.variables.get(name) {
            variables.insert(name.to_owned(), value.clone());
        }
    }
    variables
}

/// A text that no start-up file prints by accident.
fn random_marker() -> String {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    let random = || RandomState::new().build_hasher().finish();
    format!("towline{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(entries: &[&str]) -> Vec<u8> {
        entries.concat().into_bytes()
    }

    #[test]
    fn noise_around_the_markers_is_no_variable() {
        let text = text(&["Welcome A=1\n", "MARK", "PATH=/x\0E=\0=odd\0none\0", "MARK", "bye B=2"]);
        let variables = parse(&text, b"MARK").unwrap();
        let expected = [("PATH", "/x"), ("E", "")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(variables, Variables::from(expected));
    }

    #[test]
    fn exported_functions_survive_with_their_odd_names_and_newlines() {
        let text = text(&["MARK", "BASH_FUNC_module%%=() {  eval x\n}\0", "MARK"]);
        let variables = parse(&text, b"MARK").unwrap();
        assert_eq!(variables[OsStr::new("BASH_FUNC_module%%")], "() {  eval x\n}");
    }

    #[test]
    fn one_marker_is_not_yet_an_environment() {
        assert_eq!(parse(b"xxMARKPATH=/x\0MAR", b"MARK"), None);
        assert_eq!(parse(b"", b"MARK"), None);
    }
}
