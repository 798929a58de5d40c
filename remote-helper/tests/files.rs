//! Files: what is told, what is written, and what is never touched.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use sha2::{Digest as _, Sha256};
use support::{Helper, Stream, shell};
use tempfile::TempDir;
use towline_helper::wire::ByteText;
use towline_helper::wire::message::{Code, Entry, FileKind, Metadata, Outcome, Request, TailFrom, Write};

fn bytes(path: &Path) -> ByteText {
    ByteText(path.as_os_str().as_bytes().to_vec())
}

fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(path: &Path, overwrite: bool) -> Write {
    Write { path: bytes(path), overwrite, mode: None, size: None, sha256: None, parents: false }
}

fn put(helper: &mut Helper, request: Write, content: &[u8]) -> Stream {
    let stream = helper.open(Request::Write(request));
    helper.send(stream, content, true);
    helper.finish(stream)
}

fn get(helper: &mut Helper, path: &Path) -> Vec<u8> {
    let done = helper.ask(Request::Read { path: bytes(path), offset: 0, length: None });
    done.outcome();
    done.stdout
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn code(stream: &Stream) -> Code {
    stream.refusal().code
}

fn world() -> (Helper, TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (Helper::start(), folder, path)
}

#[test]
fn one_odd_name_hides_no_other_and_names_are_sorted_as_bytes() {
    let (mut helper, _folder, root) = world();
    for number in 0..500 {
        fs::write(root.join(format!("file{number:03}")), "x").unwrap();
    }
    let odd = OsStr::from_bytes(b"caf\xe9\n\"x.txt");
    fs::write(root.join(odd), "odd").unwrap();
    symlink("nowhere", root.join("zlink")).unwrap();
    let done = helper.ask(Request::List { path: bytes(&root) });
    assert_eq!(done.outcome(), &Outcome::List { entries: 502 });
    let lines = done.stdout.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n');
    let entries: Vec<Entry> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    assert_eq!(entries.len(), 502);
    assert!(entries.is_sorted_by_key(|entry| entry.name.clone()));
    assert_eq!(entries[0].name.as_bytes(), odd.as_bytes());
    assert_eq!(entries[0].metadata.as_ref().unwrap().size, 3);
    let link = entries.last().unwrap().metadata.as_ref().unwrap();
    assert_eq!((link.kind, link.target.clone()), (FileKind::Symlink, Some("nowhere".into())));
    assert_eq!(get(&mut helper, &root.join(odd)), b"odd");
}

#[test]
fn a_path_is_told_as_it_is() {
    let (mut helper, _folder, root) = world();
    fs::write(root.join("file"), "12345").unwrap();
    fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", root.join("link")).unwrap();
    let mut stat = |path: &str, follow| -> Metadata {
        match helper.ask(Request::Stat { path: bytes(&root.join(path)), follow }).outcome() {
            Outcome::Stat(metadata) => metadata.clone(),
            other => panic!("{other:?}"),
        }
    };
    let facts = fs::metadata(root.join("file")).unwrap();
    let file = stat("link", true);
    assert_eq!((file.kind, file.size, file.mode, file.uid), (FileKind::File, 5, 0o640, facts.uid()));
    assert_eq!((file.mtime_s, file.inode, file.device), (facts.mtime(), facts.ino(), facts.dev()));
    let link = stat("link", false);
    assert_eq!((link.kind, link.target), (FileKind::Symlink, Some("file".into())));
    assert_eq!(stat(".", true).kind, FileKind::Directory);
    let missing = helper.ask(Request::Stat { path: bytes(&root.join("none")), follow: true });
    assert_eq!((code(&missing), missing.refusal().errno), (Code::NotFound, Some(2)));
    let through = helper.ask(Request::Stat { path: bytes(&root.join("file/x")), follow: true });
    assert_eq!(code(&through), Code::NotDirectory);
}

#[test]
fn a_leading_tilde_is_the_home_and_nothing_else_is_expanded() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("$HOME"), "literal").unwrap();
    let mut helper = Helper::start_with(towline_helper::wire::message::Environment::None, |command| {
        command.env("HOME", folder.path());
    });
    assert_eq!(get(&mut helper, Path::new("~/$HOME")), b"literal");
    assert_eq!(get(&mut helper, Path::new("~///$HOME")), b"literal");
    let home = helper.ask(Request::Remove { path: bytes(folder.path()), recursive: true });
    assert_eq!(code(&home), Code::InvalidRequest);
    let root = helper.ask(Request::Remove { path: "//".into(), recursive: true });
    assert_eq!(code(&root), Code::InvalidRequest);
    assert_eq!(names(folder.path()), ["$HOME"]);
}

#[test]
fn ranges_and_digests_are_exact() {
    let (mut helper, _folder, root) = world();
    let content: Vec<u8> = (0..1_000_003_u32).map(|number| (number % 251) as u8).collect();
    let path = root.join("data");
    fs::write(&path, &content).unwrap();
    for (offset, length) in [(0, None), (5, Some(7)), (999_999, Some(100)), (2_000_000, None), (3, Some(0))] {
        let begin = (offset as usize).min(content.len());
        let end = length.map_or(content.len(), |length| (begin + length as usize).min(content.len()));
        let expected = &content[begin..end];
        let read = helper.ask(Request::Read { path: bytes(&path), offset, length });
        assert_eq!(read.stdout, expected, "{offset} {length:?}");
        let end = offset + expected.len() as u64;
        assert_eq!(read.outcome(), &Outcome::Read { end, size: content.len() as u64 });
        let hash = helper.ask(Request::Hash { path: bytes(&path), offset, length });
        let expected = Outcome::Hash { size: expected.len() as u64, sha256: hex(expected) };
        assert_eq!(hash.outcome(), &expected);
    }
    let folder = helper.ask(Request::Read { path: bytes(&root), offset: 0, length: None });
    assert_eq!(code(&folder), Code::IsDirectory);
    nix::unistd::mkfifo(&root.join("fifo"), Mode::S_IRWXU).unwrap();
    let fifo = helper.ask(Request::Hash { path: bytes(&root.join("fifo")), offset: 0, length: None });
    assert_eq!(code(&fifo), Code::Unsupported);
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let (mut helper, _folder, root) = world();
    let content: Vec<u8> = (0..2_000_000_u32).map(|number| (number % 253) as u8).collect();
    let path = root.join("a/b/data");
    let request = Write {
        size: Some(content.len() as u64),
        sha256: Some(hex(&content)),
        parents: true,
        mode: Some(0o755),
        ..write(&path, false)
    };
    let stream = helper.open(Request::Write(request.clone()));
    for piece in content.chunks(50_000) {
        helper.wait(|helper| helper.endpoint.room(stream, 0) >= piece.len());
        helper.send(stream, piece, false);
        assert!(!path.exists());
    }
    helper.send(stream, b"", true);
    let done = helper.finish(stream);
    let expected = Outcome::Written { size: content.len() as u64, sha256: hex(&content) };
    assert_eq!((done.outcome(), done.is_dispatched), (&expected, true));
    assert_eq!(fs::read(&path).unwrap(), content);
    let again = put(&mut helper, request, b"");
    assert_eq!(code(&again), Code::Exists);
    for wrong in [
        Write { size: Some(4), ..write(&path, true) },
        Write { size: Some(6), ..write(&path, true) },
        Write { sha256: Some(hex(b"other")), ..write(&path, true) },
    ] {
        assert_eq!(code(&put(&mut helper, wrong, b"12345")), Code::ChecksumMismatch);
    }
    assert_eq!(fs::read(&path).unwrap(), content);
    assert_eq!(names(path.parent().unwrap()), ["data"]);
}

#[test]
fn a_replaced_file_keeps_its_mode_and_a_link_is_replaced_not_followed() {
    let (mut helper, _folder, root) = world();
    let path = root.join("script");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
    put(&mut helper, write(&path, true), b"new").outcome();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751);
    symlink("script", root.join("link")).unwrap();
    put(&mut helper, write(&root.join("link"), true), b"linked").outcome();
    assert_eq!(
        (fs::read(&path).unwrap(), fs::read(root.join("link")).unwrap()),
        (b"new".to_vec(), b"linked".to_vec())
    );
    assert_eq!(code(&put(&mut helper, write(&root, true), b"x")), Code::IsDirectory);
    assert_eq!(code(&put(&mut helper, write(&root.join("no/x"), true), b"x")), Code::NotFound);
    assert_eq!(code(&put(&mut helper, write(&path.join("x"), true), b"x")), Code::NotDirectory);
}

#[test]
fn of_many_writers_at_once_one_wins_and_nothing_is_overwritten() {
    let (mut helper, _folder, root) = world();
    let path = root.join("target");
    let streams: Vec<u32> = (0..16).map(|_| helper.open(Request::Write(write(&path, false)))).collect();
    // All of them have found no target before the first one ends.
    for (index, stream) in streams.iter().enumerate() {
        helper.send(*stream, format!("writer {index}").as_bytes(), false);
    }
    helper.wait(|_| names(&root).len() == 16);
    for stream in &streams {
        helper.send(*stream, b"", true);
    }
    let ends: Vec<Stream> = streams.into_iter().map(|stream| helper.finish(stream)).collect();
    let winners: Vec<usize> = (0..16).filter(|index| matches!(ends[*index].end, Some(Ok(_)))).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(fs::read(&path).unwrap(), format!("writer {}", winners[0]).as_bytes());
    let losers =
        ends.iter().filter(|end| matches!(&end.end, Some(Err(refusal)) if refusal.code == Code::Exists));
    assert_eq!(losers.count(), 15);
    assert_eq!(names(&root), ["target"]);
}

#[test]
fn a_write_that_is_cancelled_or_loses_its_line_leaves_nothing_behind() {
    let (mut helper, _folder, root) = world();
    fs::write(root.join("target"), "old").unwrap();
    let stream = helper.open(Request::Write(write(&root.join("target"), true)));
    helper.send(stream, b"half", false);
    helper.wait(|_| names(&root).len() == 2);
    helper.endpoint.cancel(stream, true).unwrap();
    assert_eq!(code(&helper.finish(stream)), Code::Cancelled);
    assert_eq!(names(&root), ["target"]);
    let stream = helper.open(Request::Write(write(&root.join("target"), true)));
    helper.send(stream, b"half", false);
    helper.wait(|_| names(&root).len() == 2);
    assert!(helper.close().0.success());
    assert_eq!(names(&root), ["target"]);
    assert_eq!(fs::read(root.join("target")).unwrap(), b"old");
}

#[test]
fn a_link_that_points_upward_is_removed_and_never_followed() {
    let (mut helper, _folder, root) = world();
    let outside = root.join("outside");
    fs::create_dir_all(root.join("tree/a/b")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    symlink("..", root.join("tree/a/loop")).unwrap();
    symlink(".", root.join("tree/a/self")).unwrap();
    symlink(&outside, root.join("tree/a/b/out")).unwrap();
    fs::write(root.join("tree/a/b/file"), vec![0; 10_000]).unwrap();
    fs::hard_link(root.join("tree/a/b/file"), root.join("tree/a/again")).unwrap();
    let usage = helper.ask(Request::DiskUsage { path: bytes(&root.join("tree")) });
    let Outcome::DiskUsage(usage) = usage.outcome().clone() else { panic!("{usage:?}", usage = usage.end) };
    assert_eq!(usage.entries, 8);
    assert!((10_000..80_000).contains(&usage.apparent), "{usage:?}");
    assert!(usage.total > 0 && usage.unreadable == 0);
    let bare = helper.ask(Request::Remove { path: bytes(&root.join("tree")), recursive: false });
    assert_eq!(code(&bare), Code::Io);
    helper.ask(Request::Remove { path: bytes(&root.join("tree")), recursive: true }).outcome();
    assert_eq!(names(&root), ["outside"]);
    assert_eq!(names(&outside), ["kept"]);
}

#[test]
fn a_tree_of_any_depth_is_removed() {
    let (mut helper, _folder, root) = world();
    // Deeper than a process may have files open, and than a path may be long.
    let (flags, mode) = (OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::S_IRWXU);
    fs::create_dir(root.join("top")).unwrap();
    let mut here = open(&root.join("top"), flags, mode).unwrap();
    for _ in 0..1100 {
        mkdirat(&here, "down", mode).unwrap();
        drop(openat(&here, "file", OFlag::O_CREAT, mode).unwrap());
        here = openat(&here, "down", flags, mode).unwrap();
    }
    helper.ask(Request::Remove { path: bytes(&root.join("top")), recursive: true }).outcome();
    assert!(names(&root).is_empty());
}

#[test]
fn folders_are_made_and_paths_renamed_without_losing_any() {
    let (mut helper, _folder, root) = world();
    let make = |path: &str, parents| Request::Mkdir { path: bytes(&root.join(path)), parents, mode: 0o700 };
    helper.ask(make("a", false)).outcome();
    assert_eq!(fs::metadata(root.join("a")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(code(&helper.ask(make("a", false))), Code::Exists);
    helper.ask(make("a", true)).outcome();
    assert_eq!(code(&helper.ask(make("x/y", false))), Code::NotFound);
    helper.ask(make("x/y/z", true)).outcome();
    fs::write(root.join("one"), "1").unwrap();
    fs::write(root.join("two"), "2").unwrap();
    assert_eq!(code(&helper.ask(make("one/z", true))), Code::NotDirectory);
    let rename = |from: &str, to: &str, overwrite| Request::Rename {
        from: bytes(&root.join(from)),
        to: bytes(&root.join(to)),
        overwrite,
    };
    assert_eq!(code(&helper.ask(rename("one", "two", false))), Code::Exists);
    assert_eq!(fs::read(root.join("two")).unwrap(), b"2");
    helper.ask(rename("one", "two", true)).outcome();
    assert_eq!(fs::read(root.join("two")).unwrap(), b"1");
    assert_eq!(code(&helper.ask(rename("a", "x", false))), Code::Exists);
    helper.ask(rename("a", "b", false)).outcome();
    assert_eq!(names(&root), ["b", "two", "x"]);
    assert_eq!(code(&helper.ask(rename("none", "c", true))), Code::NotFound);
}

#[test]
fn a_tail_begins_at_the_line_asked_for() {
    let (mut helper, _folder, root) = world();
    let path = root.join("log");
    let mut tail = |content: &str, from| {
        fs::write(&path, content).unwrap();
        let done = helper.ask(Request::Tail { path: bytes(&path), from, follow: false });
        done.outcome();
        String::from_utf8(done.stdout).unwrap()
    };
    assert_eq!(tail("1\n2\n3\n", TailFrom::Lines(2)), "2\n3\n");
    assert_eq!(tail("1\n2\n3", TailFrom::Lines(2)), "2\n3");
    assert_eq!(tail("1\n2\n3\n", TailFrom::Lines(9)), "1\n2\n3\n");
    assert_eq!(tail("1\n2\n3\n", TailFrom::Lines(0)), "");
    assert_eq!(tail("1\n2\n3\n", TailFrom::Offset(4)), "3\n");
    assert_eq!(tail("1\n", TailFrom::Offset(100)), "");
    let long = format!("{}\n{}\n", "a".repeat(200_000), "b".repeat(200_000));
    assert_eq!(tail(&long, TailFrom::Lines(1)), format!("{}\n", "b".repeat(200_000)));
    let missing = helper.ask(Request::Tail {
        path: bytes(&root.join("none")),
        from: TailFrom::Lines(1),
        follow: false,
    });
    assert_eq!(code(&missing), Code::NotFound);
}

#[test]
fn following_sees_growth_truncation_and_replacement() {
    let (mut helper, _folder, root) = world();
    let path = root.join("log");
    let follow = Request::Tail { path: bytes(&path), from: TailFrom::Lines(1), follow: true };
    let stream = helper.open(follow);
    // Tails beyond the number of threads, which must not starve anything.
    let others: Vec<u32> = (0..20)
        .map(|index| {
            let path = bytes(&root.join(format!("other{index}")));
            helper.open(Request::Tail { path, from: TailFrom::Offset(0), follow: true })
        })
        .collect();
    let expect = |helper: &mut Helper, text: &str| {
        helper.wait(|helper| helper.streams[&stream].stdout.ends_with(text.as_bytes()));
    };
    fs::write(&path, "old\nfirst\n").unwrap();
    expect(&mut helper, "first\n");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b"second\n").unwrap();
    expect(&mut helper, "first\nsecond\n");
    fs::write(&path, "cut\n").unwrap();
    expect(&mut helper, "second\ncut\n");
    fs::rename(&path, root.join("log.1")).unwrap();
    let mut old = fs::OpenOptions::new().append(true).open(root.join("log.1")).unwrap();
    std::io::Write::write_all(&mut old, b"last of old\n").unwrap();
    fs::write(&path, "fresh\n").unwrap();
    expect(&mut helper, "cut\nlast of old\nfresh\n");
    assert_eq!(helper.streams[&stream].stdout, b"first\nsecond\ncut\nlast of old\nfresh\n");
    helper.endpoint.cancel(stream, false).unwrap();
    assert_eq!(code(&helper.finish(stream)), Code::Cancelled);
    for index in 0..others.len() {
        fs::write(root.join(format!("other{index}")), "x").unwrap();
    }
    helper.wait(|helper| others.iter().all(|other| helper.streams[other].stdout == b"x"));
}

#[test]
fn errors_carry_their_number_and_path() {
    if !nix::unistd::Uid::effective().is_root() {
        // Only root can run the helper as somebody who may not read a file.
        return;
    }
    use std::os::unix::process::CommandExt as _;
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap();
    let (program, secret) = (folder.path().join("helper"), folder.path().join("secret"));
    fs::copy(env!("CARGO_BIN_EXE_towline-helper"), &program).unwrap();
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let mut helper = Helper::start_with(towline_helper::wire::message::Environment::None, |command| {
        *command = std::process::Command::new(&program);
        command.arg(support::MARKER).uid(54_322).gid(54_322).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    });
    let denied = helper.ask(Request::Read { path: bytes(&secret), offset: 0, length: None });
    let refusal = denied.refusal();
    assert_eq!(
        (refusal.code, refusal.errno, refusal.path.clone()),
        (Code::Permission, Some(13), Some(bytes(&secret)))
    );
    assert_eq!(code(&put(&mut helper, write(&folder.path().join("new"), false), b"x")), Code::Permission);
}

/// A mount that ends with the test, whatever becomes of it.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts, if the user may.
    fn new(arguments: &[&str], place: &Path) -> Option<Mounted> {
        let status =
            std::process::Command::new("mount").args(arguments).arg(place).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then(|| Mounted(place.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount").arg(&self.0).status().unwrap();
        assert!(status.success() || std::thread::panicking());
    }
}

#[test]
fn a_full_disk_is_told_with_its_counters_and_leaves_the_old_file() {
    let mut helper = Helper::start();
    let mounted = tempfile::tempdir().unwrap();
    let small = ["-t", "tmpfs", "-o", "size=1m,nr_inodes=20", "none"];
    // Only somebody who may mount can make a small file system.
    let Some(_mount) = Mounted::new(&small, mounted.path()) else { return };
    let (path, content) = (mounted.path().join("big"), vec![1; 2 << 20]);
    fs::write(&path, "old").unwrap();
    let stream = helper.open(Request::Write(write(&path, true)));
    for piece in content.chunks(50_000) {
        helper.wait(|helper| {
            helper.endpoint.room(stream, 0) >= piece.len() || helper.streams[&stream].end.is_some()
        });
        helper.send(stream, piece, false);
    }
    let full = helper.finish(stream);
    assert_eq!((code(&full), full.refusal().which.as_deref()), (Code::NoSpace, Some("bytes")));
    assert_eq!((names(mounted.path()), fs::read(&path).unwrap()), (vec!["big".to_owned()], b"old".to_vec()));
    helper.sh(&format!("cd {}; for i in $(seq 30); do touch f$i; done", mounted.path().display()));
    let inodes = put(&mut helper, write(&mounted.path().join("one-more"), false), b"x");
    assert_eq!((code(&inodes), inodes.refusal().which.as_deref()), (Code::NoSpace, Some("inodes")));
    let over = helper.ask(Request::Remove { path: bytes(mounted.path()), recursive: true });
    assert_eq!(code(&over), Code::Io, "the mount point itself is busy");
}

#[test]
fn a_mount_below_a_tree_is_not_crossed() {
    let (mut helper, _folder, root) = world();
    fs::create_dir_all(root.join("tree/mnt")).unwrap();
    fs::create_dir_all(root.join("other")).unwrap();
    fs::write(root.join("other/kept"), "x").unwrap();
    let (other, mnt) = (root.join("other"), root.join("tree/mnt"));
    let Some(_mount) = Mounted::new(&["--bind", other.to_str().unwrap()], &mnt) else { return };
    let refused = helper.ask(Request::Remove { path: bytes(&root.join("tree")), recursive: true });
    assert_eq!((code(&refused), refused.refusal().path.clone()), (Code::Io, Some(bytes(&mnt))));
    assert_eq!(names(&other), ["kept"]);
}

#[test]
fn slow_readers_hold_no_thread() {
    let (mut helper, _folder, root) = world();
    let path = root.join("data");
    fs::write(&path, vec![7; 2_000_000]).unwrap();
    let read = Request::Read { path: bytes(&path), offset: 0, length: None };
    let frozen: Vec<u32> = (0..20).map(|_| helper.open(read.clone())).collect();
    for stream in &frozen {
        helper.streams.get_mut(stream).unwrap().is_frozen = true;
    }
    helper.wait(|helper| frozen.iter().all(|stream| helper.streams[stream].received == 256 << 10));
    helper.ask(Request::Stat { path: bytes(&path), follow: true }).outcome();
    for stream in frozen {
        helper.thaw(stream);
        assert_eq!(helper.finish(stream).stdout.len(), 2_000_000);
    }
}

#[test]
fn a_file_system_that_hangs_stops_nobody_else() {
    let (mut helper, _folder, root) = world();
    let path = root.join("leased");
    fs::write(&path, "x").unwrap();
    let lease = support::Lease::take(&path);
    // The opening waits until the lease is given back: so do all of these, more than there are threads.
    let hung: Vec<u32> =
        (0..12).map(|_| helper.open(Request::Read { path: bytes(&path), offset: 0, length: None })).collect();
    helper.wait(|_| lease.is_wanted());
    assert_eq!(helper.ask(Request::Exec(shell("echo alive"))).stdout, b"alive\n");
    helper.endpoint.cancel(hung[0], true).unwrap();
    assert_eq!(code(&helper.finish(hung[0])), Code::Cancelled, "the client gets its answer in any case");
    drop(lease);
    for stream in &hung[1..] {
        assert_eq!(helper.finish(*stream).stdout, b"x");
    }
}
