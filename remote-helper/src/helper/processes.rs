//! Which processes descend from which command.
//!
//! The helper is the subreaper of all its descendants, so each of them is below it in the tree, however often it
//! forked or began a session. To which command an orphan belongs is told, in this order, by a living ancestor, by its
//! session or process group, and by the variable that each command inherits.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::session::{Marker, STREAM_VARIABLE};

/// What the kernel tells of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// When it began, in ticks since boot: with the id it tells a process from a later one of the same id.
    pub(crate) began: u64,
    pub(crate) is_dead: bool,
}

/// All processes that can be seen, by id.
pub(crate) type Table = BTreeMap<i32, Process>;

/// The main process of a command, running or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) pid: i32,
    pub(crate) stream: u32,
    pub(crate) detach: bool,
    /// Whether the process itself is still there; its session may be in any case.
    pub(crate) is_alive: bool,
}

/// Whose descendant a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A command's.
    Command {
        /// Its stream.
        stream: u32,
        /// Whether it outlives the line on purpose.
        detach: bool,
    },
    /// It hid every trace of its command.
    Unknown,
}

/// Reads the table of processes. Empty where there is no `/proc`.
pub(crate) fn read_table() -> Table {
    let Ok(folder) = fs::read_dir("/proc") else { return Table::new() };
    let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, read_process(pid)?))).collect()
}

/// Reads one process; none when it has gone.
pub(crate) fn read_process(pid: i32) -> Option<Process> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`; the name in it may hold anything, so the fields are counted from its last parenthesis.
fn parse_stat(bytes: &[u8]) -> Option<Process> {
    let end = bytes.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(bytes.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<i32>().ok());
    Some(Process {
        is_dead: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        began: fields.get(19)?.parse().ok()?,
    })
}

/// The descendants of `own` and whose they are. `environment` reads a process's start environment.
pub(crate) fn attribute(
    table: &Table,
    own: i32,
    roots: &[Root],
    marker: &Marker,
    environment: &mut dyn FnMut(i32) -> Vec<u8>,
) -> BTreeMap<i32, Owner> {
    // The newest command wins where a process id was used again.
    let by_pid: BTreeMap<i32, Root> = roots.iter().map(|root| (root.pid, *root)).collect();
    let owner_of_root = |root: &Root| Owner::Command { stream: root.stream, detach: root.detach };
    let mut owners = BTreeMap::new();
    for pid in table.keys() {
        let Some(line) = line_of_descent(table, own, *pid) else { continue };
        let ancestor = line.iter().find_map(|pid| by_pid.get(pid).filter(|root| root.is_alive));
        let of_session = || {
            line.iter()
                .rev()
                .filter_map(|pid| table.get(pid))
                .find_map(|process| by_pid.get(&process.session).or_else(|| by_pid.get(&process.group)))
        };
        let owner = ancestor.or_else(of_session).map(owner_of_root);
        let owner =
            owner.or_else(|| line.iter().rev().find_map(|pid| parse_mark(&environment(*pid), marker)));
        owners.insert(*pid, owner.unwrap_or(Owner::Unknown));
    }
    owners
}

/// A process and its ancestors up to the child of `own`; none when it's no descendant.
fn line_of_descent(table: &Table, own: i32, pid: i32) -> Option<Vec<i32>> {
    let mut line = vec![pid];
    let mut seen = BTreeSet::from([pid]);
    let mut at = pid;
    loop {
        let parent = table.get(&at)?.parent;
        if parent == own {
            return Some(line);
        }
        // A table read while processes come and go may hold a circle.
        if parent <= 1 || !seen.insert(parent) {
            return None;
        }
        line.push(parent);
        at = parent;
    }
}

/// The command that an environment names, if it is one of this line.
pub(crate) fn parse_mark(environment: &[u8], marker: &Marker) -> Option<Owner> {
    let prefix = format!("{STREAM_VARIABLE}={}.", marker.as_str());
    let mark =
        environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(prefix.as_bytes()))?;
    let (number, detach) = match mark.strip_suffix(b"d") {
        Some(number) => (number, true),
        None => (mark, false),
    };
    let stream = std::str::from_utf8(number).ok()?.parse().ok()?;
    Some(Owner::Command { stream, detach })
}

/// A process's start environment; empty when it may not be read.
pub(crate) fn read_environment(pid: i32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

/// Whether a process holds one of these pipes.
pub(crate) fn holds_pipe(pid: i32, numbers: &[u64]) -> bool {
    let Ok(folder) = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else { return false };
    let names: Vec<String> = numbers.iter().map(|number| format!("pipe:[{number}]")).collect();
    folder
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|link| names.iter().any(|name| link.as_os_str() == OsStr::new(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: i32 = 100;

    fn process(parent: i32, group: i32, session: i32) -> Process {
        Process { parent, group, session, began: 7, is_dead: false }
    }

    fn root(pid: i32, stream: u32, is_alive: bool) -> Root {
        Root { pid, stream, detach: stream == 9, is_alive }
    }

    fn marker() -> Marker {
        Marker::parse(OsStr::new("0123456789abcdef0123456789abcdef")).unwrap()
    }

    fn owners(table: &Table, roots: &[Root], environments: &[(i32, &str)]) -> BTreeMap<i32, Owner> {
        let environments: BTreeMap<i32, &str> = environments.iter().copied().collect();
        attribute(table, OWN, roots, &marker(), &mut |pid| {
            environments.get(&pid).copied().unwrap_or_default().as_bytes().to_vec()
        })
    }

    #[test]
    fn a_process_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let line = b"42 (a) b (c) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1000 10";
        let expected = Process { parent: 7, group: 8, session: 9, began: 12345, is_dead: false };
        assert_eq!(parse_stat(line), Some(expected));
        assert_eq!(parse_stat(b"42 (a"), None);
    }

    #[test]
    fn descendants_belong_to_their_living_ancestor_whatever_session_they_made() {
        let table = Table::from([
            (200, process(OWN, 200, 200)),
            (201, process(200, 201, 201)),
            (202, process(201, 202, 202)),
            (300, process(1, 300, 300)),
        ]);
        let owners = owners(&table, &[root(200, 3, true)], &[]);
        let ours = Owner::Command { stream: 3, detach: false };
        assert_eq!(owners, BTreeMap::from([(200, ours), (201, ours), (202, ours)]));
    }

    #[test]
    fn orphans_belong_to_the_command_of_their_session_or_of_their_variable() {
        let table = Table::from([
            (201, process(OWN, 200, 200)),
            (202, process(OWN, 202, 202)),
            (203, process(202, 203, 203)),
            (204, process(OWN, 204, 204)),
        ]);
        let mark = "A=1\0TOWLINE_STREAM=0123456789abcdef0123456789abcdef.9d\0B=2";
        let owners = owners(&table, &[root(200, 3, false)], &[(202, mark), (204, "A=1")]);
        let detached = Owner::Command { stream: 9, detach: true };
        assert_eq!(
            owners,
            BTreeMap::from([
                (201, Owner::Command { stream: 3, detach: false }),
                (202, detached),
                (203, detached),
                (204, Owner::Unknown),
            ])
        );
    }

    #[test]
    fn another_lines_mark_says_nothing() {
        let table = Table::from([(202, process(OWN, 202, 202))]);
        let mark = "TOWLINE_STREAM=ffffffffffffffffffffffffffffffff.3";
        assert_eq!(owners(&table, &[], &[(202, mark)]), BTreeMap::from([(202, Owner::Unknown)]));
    }

    #[test]
    fn a_circle_in_the_table_ends() {
        let table = Table::from([(202, process(203, 1, 1)), (203, process(202, 1, 1))]);
        assert_eq!(owners(&table, &[], &[]), BTreeMap::new());
    }
}
