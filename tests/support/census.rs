//! Who runs on this machine: the proof that nothing is left behind.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A live process, as /proc tells. Zombies are none: they hold nothing but a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    pub uid: u32,
    pub threads: u32,
    /// At most 15 bytes, the kernel's name.
    pub name: String,
    /// The arguments, joined by blanks; what a title change has made of them.
    pub command: String,
}

impl Process {
    /// Sends a signal; a process that has just ended is no error.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).expect("a pid");
        match kill(Pid::from_raw(pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("no signal to {self:?}: {error}"),
        }
    }
}

/// All processes.
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(read_process)
        .collect()
}

/// The processes of a user.
pub fn of_user(name: &str) -> Vec<Process> {
    let uid = User::from_name(name)
        .expect("the user list")
        .unwrap_or_else(|| panic!("no user {name}"))
        .uid
        .as_raw();
    all().into_iter().filter(|process| process.uid == uid).collect()
}

/// The processes that were started with `marker` (`KEY=VALUE`) in their environment.
pub fn with_environment(marker: &str) -> Vec<Process> {
    all()
        .into_iter()
        .filter(|process| {
            // A process that ended meanwhile is none.
            let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == marker.as_bytes())
        })
        .collect()
}

/// The processes that descend from a login at the sshd that listens on `port`, orphans too: the helper and what it runs.
pub fn of_logins(port: u16) -> Vec<Process> {
    let is_one = |entry: &[u8]| {
        let text = entry.strip_prefix(b"SSH_CONNECTION=").and_then(|text| std::str::from_utf8(text).ok());
        text.is_some_and(|text| text.rsplit(' ').next() == Some(&port.to_string()))
    };
    let environment = |pid| fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    all()
        .into_iter()
        .filter(|process| environment(process.pid).split(|byte| *byte == 0).any(is_one))
        .collect()
}

/// The most memory that a process has had in use, in bytes; none when it has gone.
pub fn memory_peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The bytes that a process has written so far; none when it has gone.
pub fn bytes_written(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar: "))?.parse().ok()
}

/// The processes of a session.
pub fn in_session(session: u32) -> Vec<Process> {
    all().into_iter().filter(|process| process.session == session).collect()
}

/// The direct children of a process.
pub fn children_of(pid: u32) -> Vec<Process> {
    all().into_iter().filter(|process| process.parent == pid).collect()
}

/// Waits until `census` is empty; panics with those who are left.
pub fn wait_until_none(within: Duration, census: impl Fn() -> Vec<Process>) {
    let end = Instant::now() + within;
    loop {
        let left = census();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "still there after {within:?}: {left:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read_process(pid: u32) -> Option<Process> {
    let directory = Path::new("/proc").join(pid.to_string());
    let stat = String::from_utf8_lossy(&fs::read(directory.join("stat")).ok()?).into_owned();
    // The name stands in parentheses and may hold blanks and parentheses itself.
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = after.split_whitespace().collect();
    if matches!(fields.first(), Some(&"Z" | &"X")) {
        return None;
    }
    let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
    let status = String::from_utf8_lossy(&fs::read(directory.join("status")).ok()?).into_owned();
    let uid =
        status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()?;
    let command = fs::read(directory.join("cmdline")).ok()?;
    let words: Vec<_> = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    Some(Process {
        pid,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        uid,
        threads: number(17)?,
        name,
        command: words.join(" "),
    })
}
