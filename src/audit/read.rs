//! Reading the log, following it, checking it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chain::{Checker, Place, Report};
use super::entry::{Line, decode};
use super::error::Error;
use super::log::{FILES_MAX, rotated};
use crate::disk::{Fault, Folder, Open, System};

/// Longest line that is read; a longer one is damage, shown in parts of this length.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// What stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A whole line.
    Entry(Box<Line>),
    /// A line that is none: torn by a crash, or changed.
    Damaged(Place),
}

/// Reads the log from its oldest line on, and goes on where it stopped when more has come.
#[derive(Debug)]
pub struct Reader {
    folder: Option<Folder>,
    dir: PathBuf,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    identity: (u64, u64),
    path: PathBuf,
    reader: BufReader<File>,
    /// Lines of this file that were given.
    lines: u64,
    /// The beginning of a line whose end has not come yet.
    part: Vec<u8>,
}

impl Reader {
    /// Begins at the oldest line of the log in a state directory; a missing log is an empty one.
    pub fn new(dir: &Path) -> Reader {
        Reader { folder: None, dir: dir.to_owned(), held: None }
    }

    /// Gives the next line; none when there is no further whole line yet.
    ///
    /// # Errors
    /// [`Error::Disk`] when a file is not the caller's alone or cannot be read.
    pub fn next_record(&mut self) -> Result<Option<Record>, Error> {
        Ok(self.next_line(false)?.map(|(place, bytes)| {
            match decode(bytes.strip_suffix(b"\n").unwrap_or(&bytes)) {
                Some(line) => Record::Entry(Box::new(line)),
                None => Record::Damaged(place),
            }
        }))
    }

    /// Gives the next line with its line end; at the very end also one without, when `unfinished` ones are wanted.
    fn next_line(&mut self, unfinished: bool) -> Result<Option<(Place, Vec<u8>)>, Error> {
        loop {
            if self.held.is_none() && !self.open_next(None)? {
                return Ok(None);
            }
            let Some(held) = self.held.as_mut() else { return Ok(None) };
            if let Some(line) = held.line()? {
                return Ok(Some(line));
            }
            let identity = held.identity;
            let rest = std::mem::take(&mut held.part);
            if !rest.is_empty() {
                // What a newer file follows, nobody will finish any more.
                if unfinished || self.is_rotated(identity)? {
                    return Ok(self.held.as_mut().map(|held| held.numbered(rest)));
                }
                if let Some(held) = self.held.as_mut() {
                    held.part = rest;
                }
            }
            if !self.open_next(Some(identity))? {
                return Ok(None);
            }
        }
    }

    fn is_rotated(&self, identity: (u64, u64)) -> Result<bool, Error> {
        let Some(folder) = &self.folder else { return Ok(false) };
        Ok(folder.look(super::FILE)?.is_none_or(|newest| newest.identity != identity))
    }

    /// Opens the file after the one that is held, or the oldest one; false when there is none.
    fn open_next(&mut self, held: Option<(u64, u64)>) -> Result<bool, Error> {
        if self.folder.is_none() {
            match Folder::open(Arc::new(System), &self.dir) {
                Ok(folder) => self.folder = Some(folder),
                Err(Fault::Missing { .. }) => return Ok(false),
                Err(fault) => return Err(fault.into()),
            }
        }
        let Some(folder) = &self.folder else { return Ok(false) };
        let mut newer = None;
        for age in 0..FILES_MAX {
            let Some(facts) = folder.look(&rotated(age))? else { continue };
            if Some(facts.identity) == held {
                break;
            }
            newer = Some(age);
        }
        let Some(age) = newer else { return Ok(false) };
        match folder.open_file(&rotated(age), Open::Read) {
            Ok((file, facts)) => {
                self.held = Some(Held {
                    identity: facts.identity,
                    path: folder.path_of(&rotated(age)),
                    reader: BufReader::new(file),
                    lines: 0,
                    part: Vec::new(),
                });
                Ok(true)
            }
            // It was rotated at this very moment; the next call finds it under its new name.
            Err(Fault::Missing { .. }) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }
}

impl Held {
    fn line(&mut self) -> Result<Option<(Place, Vec<u8>)>, Error> {
        use std::io::Read as _;
        let left = LINE_BYTES_MAX.saturating_sub(self.part.len() as u64).max(1);
        let path = self.path.clone();
        (&mut self.reader).take(left).read_until(b'\n', &mut self.part).map_err(|source| Fault::Io {
            doing: "read",
            path,
            source,
        })?;
        let whole = self.part.ends_with(b"\n") || self.part.len() as u64 >= LINE_BYTES_MAX;
        if !whole {
            return Ok(None);
        }
        let bytes = std::mem::take(&mut self.part);
        Ok(Some(self.numbered(bytes)))
    }

    fn numbered(&mut self, bytes: Vec<u8>) -> (Place, Vec<u8>) {
        self.lines += 1;
        (Place { file: self.path.clone(), line: self.lines }, bytes)
    }
}

/// Checks the whole chain of a state directory; a missing log holds.
///
/// # Errors
/// [`Error::Disk`] when a file is not the caller's alone or cannot be read.
pub fn verify(dir: &Path) -> Result<Report, Error> {
    let mut reader = Reader::new(dir);
    let mut checker = Checker::default();
    let mut file: Option<(u64, u64)> = None;
    while let Some((place, bytes)) = reader.next_line(true)? {
        let now = reader.held.as_ref().map(|held| held.identity);
        if now != file {
            checker.file();
            file = now;
        }
        checker.line(&place.file, place.line, &bytes);
    }
    Ok(checker.finish(FILES_MAX))
}
