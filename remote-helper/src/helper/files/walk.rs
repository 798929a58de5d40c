//! Walks a tree by descriptors: never through a link, never onto another file system, to any depth.
//!
//! One folder is open at a time. The way back up goes by `..`, and must arrive where the way down came from: a
//! folder that was moved meanwhile ends the walk instead of leading it astray.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, fstat, fstatat};
use towline_helper::wire::message::FileKind;

use super::metadata::kind;

/// Folders that may wait to be entered; their names are in memory.
const WAITING_MAX: usize = 1 << 20;

/// What is done on the way.
pub(super) trait Visit {
    /// Takes something that is no folder.
    fn leaf(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno>;
    /// Takes a folder before its entries.
    fn enter(&mut self, folder: BorrowedFd<'_>) -> Result<(), Errno>;
    /// Takes a folder, as an entry of its parent, after its entries.
    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno>;
    /// Decides about a folder that can't be entered.
    fn unreadable(&mut self, errno: Errno) -> Result<(), Errno>;
}

/// Why a walk ended early.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// It was cancelled.
    Cancelled,
    /// A system call failed, at this place below the walk's root.
    Failed(Errno, Vec<u8>),
}

struct Level {
    name: CString,
    device: u64,
    inode: u64,
    /// Folders that are still to be entered.
    folders: Vec<CString>,
}

struct Walk<'a> {
    visit: &'a mut dyn Visit,
    is_cancelled: &'a dyn Fn() -> bool,
    levels: Vec<Level>,
    here: OwnedFd,
    waiting: usize,
}

/// Walks the folder `name` of `parent`.
///
/// # Errors
/// At the first failure that `visit` does not pass over, or when cancelled.
pub(super) fn walk(
    parent: BorrowedFd<'_>,
    name: &CStr,
    visit: &mut dyn Visit,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), Stopped> {
    let failed = |errno| Stopped::Failed(errno, Vec::new());
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let here = openat(parent, name, flags, Mode::empty()).map_err(failed)?;
    let mut walk = Walk { visit, is_cancelled, levels: Vec::new(), here, waiting: 0 };
    // The root has no name of its own in the place of a failure.
    walk.scan(CString::default()).map_err(|stopped| walk.located(stopped))?;
    loop {
        match walk.levels.last_mut().map(|level| level.folders.pop()) {
            Some(Some(folder)) => {
                walk.waiting = walk.waiting.saturating_sub(1);
                walk.descend(folder).map_err(|stopped| walk.located(stopped))?;
            }
            Some(None) => {
                if walk.levels.len() > 1 {
                    walk.ascend().map_err(|stopped| walk.located(stopped))?;
                } else {
                    return walk.visit.leave(parent, name).map_err(failed);
                }
            }
            None => return Ok(()),
        }
    }
}

impl Walk<'_> {
    fn descend(&mut self, name: CString) -> Result<(), Stopped> {
        match open_below(self.here.as_fd(), &name) {
            Ok(folder) => {
                self.here = folder;
                self.scan(name)
            }
            Err(errno) => self.visit.unreadable(errno).map_err(|errno| failed(errno, &name)),
        }
    }

    fn ascend(&mut self) -> Result<(), Stopped> {
        let Some(left) = self.levels.pop() else { return Ok(()) };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let parent =
            openat(&self.here, c"..", flags, Mode::empty()).map_err(|errno| failed(errno, &left.name))?;
        let facts = fstat(&parent).map_err(|errno| failed(errno, &left.name))?;
        let expected = self.levels.last().map(|level| (level.device, level.inode));
        if expected != Some((facts.st_dev, facts.st_ino)) {
            // Somebody moved the folder while we were in it.
            return Err(failed(Errno::ESTALE, &left.name));
        }
        self.here = parent;
        self.visit.leave(self.here.as_fd(), &left.name).map_err(|errno| failed(errno, &left.name))
    }

    /// Takes the entries of the folder that is open: leaves at once, folders later.
    fn scan(&mut self, name: CString) -> Result<(), Stopped> {
        let fail = |errno| failed(errno, &name);
        let facts = fstat(&self.here).map_err(fail)?;
        self.visit.enter(self.here.as_fd()).map_err(fail)?;
        let mut folders = Vec::new();
        let mut listing =
            Dir::from_fd(self.here.try_clone().map_err(|_| fail(Errno::EMFILE))?).map_err(fail)?;
        for entry in listing.iter() {
            let entry = entry.map_err(fail)?;
            let entry_name = entry.file_name();
            if matches!(entry_name.to_bytes(), b"." | b"..") {
                continue;
            }
            if (self.is_cancelled)() {
                return Err(Stopped::Cancelled);
            }
            let is_folder = match entry.file_type() {
                Some(kind) => kind == Type::Directory,
                None => is_folder(self.here.as_fd(), entry_name).map_err(fail)?,
            };
            if is_folder {
                self.waiting += 1;
                if self.waiting > WAITING_MAX {
                    return Err(fail(Errno::ENOMEM));
                }
                folders.push(entry_name.to_owned());
            } else {
                let result = self.visit.leaf(self.here.as_fd(), entry_name);
                result.map_err(|errno| failed(errno, entry_name)).map_err(|stopped| below(&name, stopped))?;
            }
        }
        self.levels.push(Level { name, device: facts.st_dev, inode: facts.st_ino, folders });
        Ok(())
    }

    /// Completes the place of a failure by the folders that lead to it.
    fn located(&self, stopped: Stopped) -> Stopped {
        self.levels.iter().skip(1).rev().fold(stopped, |stopped, level| below(&level.name, stopped))
    }
}

fn failed(errno: Errno, name: &CStr) -> Stopped {
    Stopped::Failed(errno, name.to_bytes().to_vec())
}

fn below(folder: &CStr, stopped: Stopped) -> Stopped {
    match stopped {
        stopped if folder.is_empty() => stopped,
        Stopped::Failed(errno, place) => Stopped::Failed(errno, [folder.to_bytes(), b"/", &place].concat()),
        Stopped::Cancelled => Stopped::Cancelled,
    }
}

fn is_folder(folder: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(facts) => Ok(kind(&facts) == FileKind::Directory),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Opens a folder in a folder: no link, no mount point, not even one of the same file system (a bind mount).
fn open_below(folder: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(
        ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH,
    );
    match openat2(folder, name, how) {
        // An older kernel, or a filter of system calls: devices tell mount points apart, but for bind mounts.
        Err(Errno::ENOSYS | Errno::EPERM) => {
            let child = openat(folder, name, flags, Mode::empty())?;
            if fstat(&child)?.st_dev == fstat(folder)?.st_dev { Ok(child) } else { Err(Errno::EXDEV) }
        }
        result => result,
    }
}
