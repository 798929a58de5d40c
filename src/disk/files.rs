//! The file operations, as a trait that tests replace.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// What an object of the file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link itself, not what it leads to.
    Link,
    /// A socket, pipe or device.
    Other,
}

/// What the system says about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: FileKind,
    /// Its owner.
    pub uid: u32,
    /// Its permission bits, with set-id and sticky.
    pub mode: u32,
    /// The device and inode: two names are one object exactly when these are equal.
    pub identity: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// When its content was last changed, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// How a file is opened; never through a link, never waiting for the other end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// To be read.
    Read,
    /// Made anew with mode 0600; an error where anything of that name exists.
    CreateNew,
    /// To be read and appended to; made with mode 0600 where it is missing.
    Append,
}

/// The file operations that the rooms above use; one method is one step that can fail or be the last.
pub trait Files: Send + Sync + std::fmt::Debug {
    /// Makes a directory with all its parents, each 0700; one that exists is left as it is.
    ///
    /// # Errors
    /// As every method: the system's.
    fn make_dirs(&self, path: &Path) -> io::Result<()>;
    /// Looks at a path itself, not through a link.
    ///
    /// # Errors
    /// The system's.
    fn look_at(&self, path: &Path) -> io::Result<Facts>;
    /// Resolves every link of a path.
    ///
    /// # Errors
    /// The system's.
    fn real_path(&self, path: &Path) -> io::Result<std::path::PathBuf>;
    /// Opens a directory, not through a link.
    ///
    /// # Errors
    /// The system's.
    fn open_dir(&self, path: &Path) -> io::Result<File>;
    /// Looks at a name inside a directory, not through a link.
    ///
    /// # Errors
    /// The system's.
    fn look(&self, dir: &File, name: &str) -> io::Result<Facts>;
    /// Opens a name inside a directory.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, dir: &File, name: &str, open: Open) -> io::Result<File>;
    /// Looks at an open object.
    ///
    /// # Errors
    /// The system's.
    fn facts(&self, file: &File) -> io::Result<Facts>;
    /// Reads from the present position, at most `limit` bytes.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, file: &File, limit: u64) -> io::Result<Vec<u8>>;
    /// Writes all bytes.
    ///
    /// # Errors
    /// The system's; a part may have been written.
    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()>;
    /// Cuts or grows a file.
    ///
    /// # Errors
    /// The system's.
    fn set_length(&self, file: &File, bytes: u64) -> io::Result<()>;
    /// Waits until a file or directory is on the disk.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Renames inside a directory, over whatever has the new name.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, dir: &File, from: &str, to: &str) -> io::Result<()>;
    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, dir: &File, name: &str) -> io::Result<()>;
    /// The names inside a directory, without `.` and `..`, in no order.
    ///
    /// # Errors
    /// The system's.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// Takes the exclusive lock of an open file unless another descriptor has it.
    ///
    /// # Errors
    /// The system's.
    fn try_lock(&self, file: &File) -> io::Result<bool>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Files for System {
    fn make_dirs(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn look_at(&self, path: &Path) -> io::Result<Facts> {
        fs::symlink_metadata(path).map(|metadata| of_metadata(&metadata))
    }

    fn real_path(&self, path: &Path) -> io::Result<std::path::PathBuf> {
        fs::canonicalize(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(nix::fcntl::open(path, flags, Mode::empty())?.into())
    }

    fn look(&self, dir: &File, name: &str) -> io::Result<Facts> {
        Ok(of_stat(&fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)?))
    }

    fn open(&self, dir: &File, name: &str, open: Open) -> io::Result<File> {
        // O_NONBLOCK changes nothing for regular files; on a pipe in their place, opening would wait for ever.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let flags = flags
            | match open {
                Open::Read => OFlag::O_RDONLY,
                Open::CreateNew => OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL,
                Open::Append => OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_APPEND,
            };
        Ok(openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    fn facts(&self, file: &File) -> io::Result<Facts> {
        file.metadata().map(|metadata| of_metadata(&metadata))
    }

    fn read(&self, file: &File, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn set_length(&self, file: &File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, dir: &File, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(dir, from, dir, to)?)
    }

    fn remove(&self, dir: &File, name: &str) -> io::Result<()> {
        Ok(unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?)
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn try_lock(&self, file: &File) -> io::Result<bool> {
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

fn of_metadata(metadata: &fs::Metadata) -> Facts {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => FileKind::Regular,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Link,
        _ => FileKind::Other,
    };
    Facts {
        kind,
        uid: metadata.uid(),
        mode: metadata.mode() & 0o7777,
        identity: (metadata.dev(), metadata.ino()),
        size: metadata.len(),
        modified_ms: milliseconds(metadata.mtime(), metadata.mtime_nsec()),
    }
}

/// The widths of these fields differ between systems.
#[expect(clippy::useless_conversion, clippy::unnecessary_cast, reason = "they differ on other systems")]
fn of_stat(stat: &FileStat) -> Facts {
    let kind = match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG => FileKind::Regular,
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Link,
        _ => FileKind::Other,
    };
    Facts {
        kind,
        uid: stat.st_uid,
        mode: u32::from(stat.st_mode) & 0o7777,
        identity: (stat.st_dev as u64, stat.st_ino as u64),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified_ms: milliseconds(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn milliseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}
