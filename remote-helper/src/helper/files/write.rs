//! Writes a file: beside its target under a name of its own, then in one rename.
//!
//! Until then the target is what it was; afterwards it is whole. A link as the target is replaced, not followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstatat};
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};
use sha2::{Digest as _, Sha256};
use towline_helper::wire::message::{Code, FileKind, Outcome, Refusal, Write};

use super::change::make_parents;
use super::done;
use super::metadata::kind;
use super::place::rename_new;
use crate::helper::fault::{cancelled, refuse_errno, refuse_io, refuse_path};
use crate::helper::pool::{Next, Turn, Work};
use crate::helper::session::{bytes_of, hex};

/// Longest name of a file that every file system has.
const NAME_BYTES_MAX: usize = 255;
/// Mode bits of a new file, before the umask.
const MODE_OF_NEW: Mode = Mode::from_bits_truncate(0o666);
/// Mode bits that a replaced file's successor inherits: not those that lend its owner's rights to new content.
const MODE_INHERITED: Mode = Mode::from_bits_truncate(0o1777);

/// A `write` request.
pub(super) struct WriteFile {
    path: PathBuf,
    request: Write,
    umask: Mode,
    draft: Option<Draft>,
}

/// The file beside the target. It's removed when it's dropped before it was put in place.
struct Draft {
    folder: OwnedFd,
    /// Whether the folder was opened so that it can be flushed.
    can_flush: bool,
    name: OsString,
    temporary: PathBuf,
    file: File,
    digest: Sha256,
    written: u64,
    mode: Mode,
    is_placed: bool,
}

impl WriteFile {
    pub(super) fn new(path: PathBuf, request: Write, umask: Mode) -> WriteFile {
        WriteFile { path, request, umask, draft: None }
    }

    fn advance(&mut self, turn: &mut Turn) -> Result<Option<Outcome>, Refusal> {
        let draft = match &mut self.draft {
            Some(draft) => draft,
            None => {
                let draft = Draft::begin(&self.path, &self.request, self.umask)?;
                self.draft.insert(draft)
            }
        };
        while let Some(bytes) = turn.input.pop(usize::MAX) {
            if turn.is_cancelled() {
                return Err(cancelled());
            }
            draft.write(&bytes).map_err(|error| refuse_io(&error, "write", &self.path))?;
            check_size(&self.path, &self.request, draft.written, false)?;
        }
        if !turn.input_ended {
            return Ok(None);
        }
        check_size(&self.path, &self.request, draft.written, true)?;
        let sha256 = hex(&std::mem::take(&mut draft.digest).finalize());
        if let Some(wanted) =
            self.request.sha256.as_ref().filter(|wanted| !wanted.eq_ignore_ascii_case(&sha256))
        {
            let message = format!("content has sha256 {sha256}, {wanted} was announced");
            return Err(refuse_path(Code::ChecksumMismatch, message, &bytes_of(&self.path)));
        }
        if turn.is_cancelled() {
            return Err(cancelled());
        }
        draft
            .place(self.request.overwrite, self.request.mode.is_some())
            .map_err(|errno| refuse_errno(errno, "write", &self.path))?;
        Ok(Some(Outcome::Written { size: draft.written, sha256 }))
    }
}

impl Work for WriteFile {
    fn step(&mut self, turn: &mut Turn) -> Next {
        match self.advance(turn).transpose() {
            Some(result) => {
                // Without its draft, so that nothing is left behind once the client knows.
                self.draft = None;
                done(result)
            }
            None => Next::Input,
        }
    }
}

impl Draft {
    fn begin(path: &Path, request: &Write, umask: Mode) -> Result<Draft, Refusal> {
        let name = match path.file_name() {
            Some(name) if !path.as_os_str().as_bytes().ends_with(b"/") => name.to_owned(),
            _ => return Err(refuse_errno(Errno::EISDIR, "write", path)),
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if request.parents {
            make_parents(parent)?;
        }
        let refuse = |errno| refuse_errno(errno, "write", path);
        let (folder, can_flush) =
            open_folder(parent).map_err(|errno| refuse_errno(errno, "open the directory", parent))?;
        let mode = match fstatat(&folder, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(_there) if !request.overwrite => return Err(refuse_errno(Errno::EEXIST, "replace", path)),
            Ok(there) if kind(&there) == FileKind::Directory => {
                return Err(refuse_errno(Errno::EISDIR, "replace", path));
            }
            Ok(there) if kind(&there) == FileKind::File => {
                Mode::from_bits_truncate(there.st_mode) & MODE_INHERITED
            }
            Ok(_) | Err(Errno::ENOENT) => MODE_OF_NEW & !umask,
            Err(errno) => return Err(refuse(errno)),
        };
        let mode = request.mode.map_or(mode, |asked| Mode::from_bits_truncate(asked & 0o7777) & !umask);
        let (temporary, file) = create_beside(&folder, &name).map_err(refuse)?;
        Ok(Draft {
            folder,
            can_flush,
            name,
            temporary,
            file,
            digest: Sha256::new(),
            written: 0,
            mode,
            is_placed: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Makes the content durable, then gives it its name.
    fn place(&mut self, overwrite: bool, mode_asked: bool) -> Result<(), Errno> {
        match fchmod(&self.file, self.mode) {
            // File systems without modes say so; only who asked for one has to know.
            Err(Errno::EPERM | Errno::EOPNOTSUPP) if !mode_asked => {}
            result => result?,
        }
        fsync(&self.file)?;
        let name = Path::new(&self.name);
        match overwrite {
            true => renameat(&self.folder, self.temporary.as_path(), &self.folder, name)?,
            false => rename_new(self.folder.as_fd(), &self.temporary, name)?,
        }
        self.is_placed = true;
        match self.can_flush.then(|| fsync(&self.folder)) {
            // Not every file system flushes directories; the content itself is safe.
            None | Some(Ok(()) | Err(Errno::EINVAL | Errno::EROFS | Errno::EOPNOTSUPP)) => Ok(()),
            Some(Err(errno)) => Err(errno),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_placed {
            // On a file system that fails here, the name says what the file is.
            unlinkat(&self.folder, self.temporary.as_path(), UnlinkatFlags::NoRemoveDir).unwrap_or_default();
        }
    }
}

/// Opens a folder, if need be only for the names in it: one may write where one may not list.
fn open_folder(path: &Path) -> Result<(OwnedFd, bool), Errno> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    match open(path, flags | OFlag::O_RDONLY, Mode::empty()) {
        Err(Errno::EACCES) => Ok((open(path, flags | OFlag::O_PATH, Mode::empty())?, false)),
        result => Ok((result?, true)),
    }
}

/// Creates an empty file of our own beside the target.
fn create_beside(folder: &OwnedFd, name: &OsStr) -> Result<(PathBuf, File), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    loop {
        let random = RandomState::new().build_hasher().finish();
        let ending = format!(".towline-{random:016x}");
        let most = NAME_BYTES_MAX.saturating_sub(ending.len() + 1);
        let shown = name.as_bytes().get(..most).unwrap_or(name.as_bytes());
        let temporary = [b".", shown, ending.as_bytes()].concat();
        let temporary = PathBuf::from(OsStr::from_bytes(&temporary));
        match openat(folder, temporary.as_path(), flags, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(file) => return Ok((temporary, File::from(file))),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Compares the bytes so far, or all of them, with what was announced.
fn check_size(path: &Path, request: &Write, written: u64, is_all: bool) -> Result<(), Refusal> {
    match request.size {
        Some(size) if written > size || (is_all && written < size) => {
            let more = if written > size { "at least " } else { "" };
            let message = format!("content is {more}{written} bytes, {size} were announced");
            Err(refuse_path(Code::ChecksumMismatch, message, &bytes_of(path)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_has_a_temporary_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let (fd, _) = open_folder(folder.path()).unwrap();
        let name = "x".repeat(NAME_BYTES_MAX);
        let (temporary, _file) = create_beside(&fd, OsStr::new(&name)).unwrap();
        assert_eq!(temporary.as_os_str().len(), NAME_BYTES_MAX);
    }
}
