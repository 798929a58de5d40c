//! A file system whose operation number N goes wrong, for tests.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::files::{Facts, Files, Open, System};

/// How an operation goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is not done, and says so; the next ones work.
    Fails,
    /// It is done, and yet says that it failed.
    DoneButFails,
    /// The process dies before it: nothing afterwards is done.
    CrashBefore,
    /// The process dies after it.
    CrashAfter,
    /// The process dies in the middle of it: half of a write is done.
    CrashWithin,
}

impl Wrong {
    pub(crate) const ALL: [Wrong; 5] =
        [Wrong::Fails, Wrong::DoneButFails, Wrong::CrashBefore, Wrong::CrashAfter, Wrong::CrashWithin];
}

/// The real file system until operation number `at`, counted from 1.
#[derive(Debug)]
pub(crate) struct Faulty {
    at: usize,
    wrong: Wrong,
    done: AtomicUsize,
    dead: AtomicBool,
}

impl Faulty {
    pub(crate) fn new(at: usize, wrong: Wrong) -> Faulty {
        Faulty { at, wrong, done: AtomicUsize::new(0), dead: AtomicBool::new(false) }
    }

    /// Whether the chosen operation came at all.
    pub(crate) fn struck(&self) -> bool {
        self.done.load(Ordering::SeqCst) >= self.at
    }

    /// How many operations came so far.
    pub(crate) fn count(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    fn step<T>(&self, half: impl FnOnce(), whole: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let wrong = || Err(io::Error::other("an injected fault"));
        if self.dead.load(Ordering::SeqCst) {
            return wrong();
        }
        if self.done.fetch_add(1, Ordering::SeqCst) + 1 != self.at {
            return whole();
        }
        match self.wrong {
            Wrong::Fails => return wrong(),
            Wrong::DoneButFails => {
                whole()?;
                return wrong();
            }
            Wrong::CrashBefore => {}
            Wrong::CrashAfter => {
                whole()?;
            }
            Wrong::CrashWithin => half(),
        }
        self.dead.store(true, Ordering::SeqCst);
        wrong()
    }
}

impl Files for Faulty {
    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        self.step(|| {}, || System.make_dirs(path))
    }
    fn look_at(&self, path: &Path) -> io::Result<Facts> {
        self.step(|| {}, || System.look_at(path))
    }
    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.step(|| {}, || System.real_path(path))
    }
    fn open_dir(&self, path: &Path) -> io::Result<File> {
        self.step(|| {}, || System.open_dir(path))
    }
    fn look(&self, dir: &File, name: &str) -> io::Result<Facts> {
        self.step(|| {}, || System.look(dir, name))
    }
    fn open(&self, dir: &File, name: &str, open: Open) -> io::Result<File> {
        self.step(|| {}, || System.open(dir, name, open))
    }
    fn facts(&self, file: &File) -> io::Result<Facts> {
        self.step(|| {}, || System.facts(file))
    }
    fn read(&self, file: &File, limit: u64) -> io::Result<Vec<u8>> {
        self.step(|| {}, || System.read(file, limit))
    }
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        let half = || System.write(file, &bytes[..bytes.len() / 2]).unwrap();
        self.step(half, || System.write(file, bytes))
    }
    fn set_length(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.step(|| {}, || System.set_length(file, bytes))
    }
    fn sync(&self, file: &File) -> io::Result<()> {
        self.step(|| {}, || System.sync(file))
    }
    fn rename(&self, dir: &File, from: &str, to: &str) -> io::Result<()> {
        self.step(|| {}, || System.rename(dir, from, to))
    }
    fn remove(&self, dir: &File, name: &str) -> io::Result<()> {
        self.step(|| {}, || System.remove(dir, name))
    }
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.step(|| {}, || System.names(dir))
    }
    fn try_lock(&self, file: &File) -> io::Result<bool> {
        self.step(|| {}, || System.try_lock(file))
    }
}
