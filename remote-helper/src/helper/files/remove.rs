//! Removes files, links and trees.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fstatat, stat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use towline_helper::wire::message::{Code, FileKind, Outcome, Refusal};

use super::metadata::kind;
use super::walk::{Stopped, Visit, walk};
use crate::helper::fault::{cancelled, refuse_errno, refuse_path};
use crate::helper::session::bytes_of;

/// How often a folder is walked again that got new entries while its old ones were removed.
const ROUNDS_MAX: usize = 3;

/// Answers a `remove` request.
pub(super) fn remove(
    path: &Path,
    recursive: bool,
    home: &Path,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Outcome, Refusal> {
    let refuse = |errno| refuse_errno(errno, "remove", path);
    let (parent, name) = split(path)?;
    let facts = fstatat(&parent, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW).map_err(refuse)?;
    if kind(&facts) != FileKind::Directory {
        unlinkat(&parent, name.as_c_str(), UnlinkatFlags::NoRemoveDir).map_err(refuse)?;
        return Ok(Outcome::Done {});
    }
    for (what, guarded) in [("the root directory", Path::new("/")), ("the home directory", home)] {
        let is_guarded =
            stat(guarded).is_ok_and(|there| (there.st_dev, there.st_ino) == (facts.st_dev, facts.st_ino));
        if is_guarded {
            let message = format!("{} is {what}, which is never removed", bytes_of(path).escaped());
            return Err(refuse_path(Code::InvalidRequest, message, &bytes_of(path)));
        }
    }
    if !recursive {
        unlinkat(&parent, name.as_c_str(), UnlinkatFlags::RemoveDir).map_err(refuse)?;
        return Ok(Outcome::Done {});
    }
    for _round in 1..ROUNDS_MAX {
        match remove_tree(parent.as_fd(), &name, path, is_cancelled) {
            Err(refusal) if refusal.errno == Some(Errno::ENOTEMPTY as i32) => {}
            result => return result,
        }
    }
    remove_tree(parent.as_fd(), &name, path, is_cancelled)
}

fn remove_tree(
    parent: BorrowedFd<'_>,
    name: &CStr,
    path: &Path,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Outcome, Refusal> {
    match walk(parent, name, &mut Removing, is_cancelled) {
        Ok(()) => Ok(Outcome::Done {}),
        Err(Stopped::Cancelled) => Err(cancelled()),
        Err(Stopped::Failed(errno, place)) => {
            let place = if place.is_empty() { path.to_owned() } else { path.join(os_path(&place)) };
            Err(refuse_errno(errno, "remove", &place))
        }
    }
}

/// The parent of a path, opened, and the name in it.
fn split(path: &Path) -> Result<(OwnedFd, CString), Refusal> {
    let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/."));
    let name = name.and_then(|name| CString::new(name.as_bytes()).ok()).ok_or_else(|| {
        let message = format!("{} names no entry of a directory", bytes_of(path).escaped());
        refuse_path(Code::InvalidRequest, message, &bytes_of(path))
    })?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent = open(parent, flags, Mode::empty()).map_err(|errno| refuse_errno(errno, "remove", path))?;
    Ok((parent, name))
}

fn os_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

struct Removing;

impl Visit for Removing {
    fn leaf(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn enter(&mut self, _folder: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn leave(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn unreadable(&mut self, errno: Errno) -> Result<(), Errno> {
        if errno == Errno::ENOENT { Ok(()) } else { Err(errno) }
    }
}
