//! Appending: one chain, several processes, several files.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::FILE;
use super::chain::{End, end_of};
use super::clock::Clock;
use super::entry::{Entry, Tip, What, encode};
use super::error::Error;
use super::sync::Syncer;
use crate::disk::{Fault, Files, Folder, Locked, Open, System};

/// Largest file; the next line begins a new one.
pub const FILE_BYTES_MAX: u64 = 8 << 20;
/// How many files are kept, the newest included.
pub const FILES_MAX: u64 = 8;
/// How much of a file's end is read to find its last line; a line is shorter by far.
const END_BYTES: u64 = 64 << 10;
/// How long an append waits for other processes' appends; each takes microseconds, so a longer wait means a stopped one.
const WAIT: Duration = Duration::from_secs(2);

/// When an appended line is safe from a power failure; from a crash of the process it is at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before the append returns.
    Now,
    /// Within a second.
    Batched,
}

/// The audit log of a state directory, to append to. Cheap to keep, safe to share between threads.
///
/// Dropping it waits until what was appended is on the disk.
#[derive(Debug)]
pub struct Audit {
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    limits: Limits,
    /// Where our own last line ended: while the file is still that long, its end need not be read again.
    known: Mutex<Option<Known>>,
    syncer: Syncer,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    file_bytes: u64,
    files: u64,
}

#[derive(Debug)]
struct Known {
    identity: (u64, u64),
    size: u64,
    tip: Tip,
}

impl Audit {
    /// Prepares to append to the log in a state directory; touches no file.
    pub fn new(dir: &Path, clock: Arc<dyn Clock>) -> Audit {
        Audit::on(Arc::new(System), dir, clock)
    }

    /// As [`Audit::new`], on other file operations than the system's.
    pub fn on(files: Arc<dyn Files>, dir: &Path, clock: Arc<dyn Clock>) -> Audit {
        let limits = Limits { file_bytes: FILE_BYTES_MAX, files: FILES_MAX };
        let syncer = Syncer::new(Arc::clone(&files));
        Audit { files, clock, dir: dir.to_owned(), limits, known: Mutex::default(), syncer }
    }

    /// Where the newest file is.
    pub fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }

    /// Appends an entry and gives its number.
    ///
    /// # Errors
    /// [`Error`] when it could not be written, or when an earlier batched line did not reach the disk: the operation
    /// that it tells of must not be dispatched then.
    pub fn append(&self, entry: &Entry, durability: Durability) -> Result<u64, Error> {
        self.append_within(entry, durability, WAIT)
    }

    /// As [`Audit::append`], with a bound on the wait for other processes.
    ///
    /// # Errors
    /// As [`Audit::append`].
    pub fn append_within(&self, entry: &Entry, durability: Durability, wait: Duration) -> Result<u64, Error> {
        if let Some(reason) = self.syncer.failure() {
            return Err(Error::NotDurable { file: self.path(), reason });
        }
        let folder = Folder::make(Arc::clone(&self.files), &self.dir)?;
        // A rotation leads back to the beginning with an empty file, which is not rotated again.
        loop {
            let locked = folder.lock(FILE, wait)?;
            let end = self.end(&folder, &locked)?;
            let (bytes, tip) = self.lines(entry, &end)?;
            let size = self.size(&folder, &locked)?;
            if size > 0 && size + bytes.len() as u64 > self.limits.file_bytes {
                rotate(&folder, self.limits.files)?;
                continue;
            }
            folder.append(FILE, &locked, &bytes)?;
            let failed = |doing| move |source| Fault::Io { doing, path: self.path(), source };
            match durability {
                Durability::Now => self.files.sync(locked.file()).map_err(failed("sync"))?,
                Durability::Batched => self.syncer.soon(&locked).map_err(failed("sync"))?,
            }
            if size == 0 {
                folder.sync()?;
            }
            let seq = tip.seq;
            let known = Known { identity: locked.facts().identity, size: size + bytes.len() as u64, tip };
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
            return Ok(seq);
        }
    }

    fn size(&self, folder: &Folder, locked: &Locked) -> Result<u64, Error> {
        let facts = self.files.facts(locked.file());
        let path = || folder.path_of(FILE);
        Ok(facts.map_err(|source| Fault::Io { doing: "look at", path: path(), source })?.size)
    }

    /// Where the chain ends: in this file, or in the one before while this one is empty.
    fn end(&self, folder: &Folder, locked: &Locked) -> Result<End, Error> {
        let size = self.size(folder, locked)?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref()
            && (known.identity, known.size) == (locked.facts().identity, size)
        {
            return Ok(End { tip: Some(known.tip.clone()), damaged: Vec::new(), unterminated: false });
        }
        drop(known);
        let path = folder.path_of(FILE);
        let end =
            read_end(locked.file(), size).map_err(|source| Fault::Io { doing: "read", path, source })?;
        if end.tip.is_some() {
            return Ok(end);
        }
        let (name, path) = (rotated(1), folder.path_of(&rotated(1)));
        let before = match folder.open_file(&name, Open::Read) {
            Ok((file, facts)) => {
                read_end(&file, facts.size).map_err(|source| Fault::Io { doing: "read", path, source })?
            }
            Err(Fault::Missing { .. }) => return Ok(end),
            Err(fault) => return Err(fault.into()),
        };
        if size == 0 {
            // A line end missing in the file before is missing there, not here.
            return Ok(End { unterminated: false, ..before });
        }
        let damaged = [before.damaged, end.damaged].concat();
        Ok(End { tip: before.tip, damaged, unterminated: end.unterminated })
    }

    /// The bytes to append: the entry, and before it a sealing line where the end is damaged.
    fn lines(&self, entry: &Entry, end: &End) -> Result<(Vec<u8>, Tip), Error> {
        let now = self.clock.unix_ms();
        let mut tip = end.tip.clone().unwrap_or_else(Tip::beginning);
        let mut bytes = Vec::new();
        if end.unterminated {
            bytes.push(b'\n');
        }
        if !end.damaged.is_empty() {
            let text = format!("{} bytes behind line {} are no whole entry", end.damaged.len(), tip.seq);
            let seal = Entry {
                who: entry.who.clone(),
                site: None,
                role: None,
                what: What::new("audit_sealed", &text),
                outcome: "sealed".to_owned(),
            };
            let (line, next) = encode(&seal, tip.seq + 1, now, &tip.sealing(&end.damaged))?;
            bytes.extend(line);
            tip = next;
        }
        let (line, tip) = encode(entry, tip.seq + 1, now, &tip.hash)?;
        bytes.extend(line);
        Ok((bytes, tip))
    }
}

/// The name of the file that was the newest `age` rotations ago.
pub(super) fn rotated(age: u64) -> String {
    if age == 0 { FILE.to_owned() } else { format!("{FILE}.{age}") }
}

/// Makes room for a new newest file; the caller holds the lock of the present one.
///
/// A crash half-way leaves a gap in the numbers, which the next rotation fills; the order stays right.
fn rotate(folder: &Folder, files_max: u64) -> Result<(), Fault> {
    let mut free = 1;
    while free + 1 < files_max && folder.look(&rotated(free))?.is_some() {
        free += 1;
    }
    for age in (0..free).rev() {
        folder.rename(&rotated(age), &rotated(age + 1))?;
    }
    folder.sync()
}

fn read_end(mut file: &std::fs::File, size: u64) -> std::io::Result<End> {
    let mut from = size.saturating_sub(END_BYTES);
    loop {
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(size - from).read_to_end(&mut bytes)?;
        let end = end_of(&bytes);
        // Damage longer than what was read hides the last whole line.
        if end.tip.is_some() || from == 0 {
            return Ok(end);
        }
        from = 0;
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
