//! A directory of the caller's alone, held open, and what is done with the files in it.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::Fault;
use super::files::{Facts, FileKind, Files, Open};

/// A checked directory, held open: whoever swaps the path afterwards changes nothing here.
#[derive(Debug)]
pub struct Folder {
    pub(super) files: Arc<dyn Files>,
    pub(super) path: PathBuf,
    pub(super) dir: File,
}

impl Folder {
    /// Opens a directory that exists.
    ///
    /// # Errors
    /// [`Fault::Missing`]; [`Fault::Unsafe`] when it is a link, not the caller's, open to others, or when somebody else
    /// could swap it because of a directory above it; [`Fault::Io`].
    pub fn open(files: Arc<dyn Files>, path: &Path) -> Result<Folder, Fault> {
        check_above(files.as_ref(), path)?;
        let dir = files.open_dir(path).map_err(|source| match files.look_at(path) {
            // The system's word for a link here is that it is no directory, or a loop of links.
            Ok(facts) if facts.kind != FileKind::Directory => not_ours(path, "is not a directory itself"),
            Ok(_) | Err(_) => Fault::io("open", path, source),
        })?;
        let facts = files.facts(&dir).map_err(|source| Fault::io("look at", path, source))?;
        judge(path, &facts, FileKind::Directory)?;
        Ok(Folder { files, path: path.to_owned(), dir })
    }

    /// Opens a directory, and makes it with all its parents where it is missing, each 0700.
    ///
    /// # Errors
    /// As [`Folder::open`]; one that exists is never tightened.
    pub fn make(files: Arc<dyn Files>, path: &Path) -> Result<Folder, Fault> {
        match Folder::open(Arc::clone(&files), path) {
            Err(Fault::Missing { .. }) => {
                files.make_dirs(path).map_err(|source| Fault::io("make the directory", path, source))?;
                Folder::open(files, path)
            }
            opened => opened,
        }
    }

    /// The path of a name inside.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file and judges the descriptor: regular, the caller's, no right for others.
    ///
    /// # Errors
    /// [`Fault::Missing`], [`Fault::Unsafe`], [`Fault::Io`].
    pub fn open_file(&self, name: &str, open: Open) -> Result<(File, Facts), Fault> {
        let path = self.path_of(name);
        let file = self.files.open(&self.dir, name, open).map_err(|source| {
            match self.files.look(&self.dir, name) {
                Ok(facts) if facts.kind != FileKind::Regular => not_ours(&path, "is not a regular file"),
                Ok(_) | Err(_) => Fault::io("open", &path, source),
            }
        })?;
        let facts = self.files.facts(&file).map_err(|source| Fault::io("look at", &path, source))?;
        judge(&path, &facts, FileKind::Regular)?;
        Ok((file, facts))
    }

    /// Reads a whole file of at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Folder::open_file`], and [`Fault::TooLarge`].
    pub fn read(&self, name: &str, limit: u64) -> Result<(Vec<u8>, Facts), Fault> {
        let (file, facts) = self.open_file(name, Open::Read)?;
        let path = self.path_of(name);
        let bytes =
            self.files.read(&file, limit + 1).map_err(|source| Fault::Io { doing: "read", path, source })?;
        if bytes.len() as u64 > limit {
            return Err(Fault::TooLarge { path: self.path_of(name), limit });
        }
        Ok((bytes, facts))
    }

    /// Looks at a name, not through a link; none where nothing has it.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn look(&self, name: &str) -> Result<Option<Facts>, Fault> {
        match self.files.look(&self.dir, name) {
            Ok(facts) => Ok(Some(facts)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Fault::Io { doing: "look at", path: self.path_of(name), source }),
        }
    }

    /// Writes a file as a whole, durably: a temporary file of mode 0600, synced, renamed over it, directory synced.
    ///
    /// Callers see to it that one process at a time replaces a name. A crash leaves the old file or the new one, and
    /// perhaps `NAME.tmp`, which nobody reads and which the next call replaces.
    ///
    /// # Errors
    /// [`Fault::Io`]; the old file is then still whole, unless only the directory's sync failed.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let temporary = format!("{name}.tmp");
        self.remove(&temporary)?;
        let path = self.path_of(&temporary);
        let failed = |doing| {
            let path = path.clone();
            move |source| Fault::Io { doing, path, source }
        };
        let file = self.files.open(&self.dir, &temporary, Open::CreateNew).map_err(failed("make"))?;
        let written = self
            .files
            .write(&file, bytes)
            .map_err(failed("write"))
            .and_then(|()| self.files.sync(&file).map_err(failed("sync")))
            .and_then(|()| self.files.rename(&self.dir, &temporary, name).map_err(failed("rename")));
        if let Err(fault) = written {
            // The first failure is the one to tell; a temporary file that stays is harmless.
            drop(self.remove(&temporary));
            return Err(fault);
        }
        self.sync()
    }

    /// Makes a new file durably; false where the name is taken already, by whatever it is.
    ///
    /// # Errors
    /// [`Fault::Io`]; the name may exist then, with a part of the bytes or none.
    pub fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, Fault> {
        let failed = |doing| move |source| Fault::Io { doing, path: self.path_of(name), source };
        let file = match self.files.open(&self.dir, name, Open::CreateNew) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
            Err(source) => return Err(failed("make")(source)),
        };
        self.files.write(&file, bytes).map_err(failed("write"))?;
        self.files.sync(&file).map_err(failed("sync"))?;
        self.sync()?;
        Ok(true)
    }

    /// Removes a name; false where it was gone already. Of several callers exactly one gets true.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn remove(&self, name: &str) -> Result<bool, Fault> {
        match self.files.remove(&self.dir, name) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(Fault::Io { doing: "remove", path: self.path_of(name), source }),
        }
    }

    /// Renames a name inside, over whatever has the new one; false where the old one is missing.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn rename(&self, from: &str, to: &str) -> Result<bool, Fault> {
        match self.files.rename(&self.dir, from, to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(Fault::Io { doing: "rename", path: self.path_of(from), source }),
        }
    }

    /// The names inside, in no order.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn names(&self) -> Result<Vec<OsString>, Fault> {
        self.files.names(&self.path).map_err(|source| Fault::io("list", &self.path, source))
    }

    /// Waits until what was made, renamed and removed here is on the disk.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn sync(&self) -> Result<(), Fault> {
        self.files.sync(&self.dir).map_err(|source| Fault::Io {
            doing: "sync",
            path: self.path.clone(),
            source,
        })
    }
}

/// Whether an object is of the right type and the caller's alone.
fn judge(path: &Path, facts: &Facts, kind: FileKind) -> Result<(), Fault> {
    judge_for(nix::unistd::geteuid().as_raw(), path, facts, kind)
}

fn judge_for(caller: u32, path: &Path, facts: &Facts, kind: FileKind) -> Result<(), Fault> {
    if facts.kind != kind {
        let what =
            if kind == FileKind::Directory { "is not a directory itself" } else { "is not a regular file" };
        return Err(not_ours(path, what));
    }
    if facts.uid != caller {
        return Err(not_ours(path, &format!("belongs to the user {}, not to {caller}", facts.uid)));
    }
    if facts.mode & 0o077 != 0 {
        let reason = format!("has mode {:04o}, and nobody else may have any right there", facts.mode);
        return Err(not_ours(path, &reason));
    }
    Ok(())
}

/// Nobody but root and the caller may be able to put another object in the place of the directory.
///
/// Both the path as written and the one behind its links are walked: either may be swapped.
fn check_above(files: &dyn Files, path: &Path) -> Result<(), Fault> {
    let caller = nix::unistd::geteuid().as_raw();
    let Some(parent) = path.parent() else { return Ok(()) };
    let mut seen_link = false;
    for above in parent.ancestors() {
        let facts = match files.look_at(above) {
            Ok(facts) => facts,
            // The directory itself is missing then, which its own opening tells.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(Fault::io("look at", above, source)),
        };
        seen_link |= facts.kind == FileKind::Link;
        judge_above(caller, above, &facts)?;
    }
    if seen_link {
        let real = match files.real_path(parent) {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(Fault::io("resolve", parent, source)),
        };
        for above in real.ancestors() {
            let facts = files.look_at(above).map_err(|source| Fault::io("look at", above, source))?;
            judge_above(caller, above, &facts)?;
        }
    }
    Ok(())
}

fn judge_above(caller: u32, path: &Path, facts: &Facts) -> Result<(), Fault> {
    if facts.uid != 0 && facts.uid != caller {
        let reason = format!("belongs to the user {}, who could replace what is below it", facts.uid);
        return Err(not_ours(path, &reason));
    }
    // The mode of a link means nothing, and in a sticky directory nobody renames what is not his.
    let open = facts.kind != FileKind::Link && facts.mode & 0o022 != 0 && facts.mode & 0o1000 == 0;
    if open {
        let reason = format!("has mode {:04o}: others could replace what is below it", facts.mode);
        return Err(not_ours(path, &reason));
    }
    Ok(())
}

fn not_ours(path: &Path, reason: &str) -> Fault {
    Fault::Unsafe { path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
