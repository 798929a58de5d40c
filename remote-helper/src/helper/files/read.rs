//! Reads a range of a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use towline_helper::wire::message::{Outcome, Refusal};

use super::done;
use super::open::open_regular;
use crate::helper::fault::refuse_io;
use crate::helper::pool::{Next, Turn, Work};

/// Bytes read at a time.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// A `read` request.
pub(super) struct Read {
    path: PathBuf,
    offset: u64,
    /// Bytes that are still wanted.
    left: u64,
    /// The file and its size when it was opened.
    file: Option<(File, u64)>,
}

impl Read {
    pub(super) fn new(path: PathBuf, offset: u64, length: Option<u64>) -> Read {
        Read { path, offset, left: length.unwrap_or(u64::MAX), file: None }
    }

    fn advance(&mut self, turn: &mut Turn) -> Result<Option<Outcome>, Refusal> {
        let (file, size) = match &mut self.file {
            Some(file) => file,
            None => {
                let (file, metadata) = open_regular(&self.path)?;
                self.file.insert((file, metadata.len()))
            }
        };
        while turn.room > 0 && !turn.is_cancelled() {
            let wanted = turn.room.min(PIECE_BYTES).min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let mut piece = vec![0; wanted];
            let count = read_at(file, &mut piece, self.offset)
                .map_err(|error| refuse_io(&error, "read", &self.path))?;
            if count == 0 {
                return Ok(Some(Outcome::Read { end: self.offset, size: *size }));
            }
            piece.truncate(count);
            turn.send(piece);
            self.offset += count as u64;
            self.left -= count as u64;
        }
        Ok(None)
    }
}

impl Work for Read {
    fn step(&mut self, turn: &mut Turn) -> Next {
        match self.advance(turn).transpose() {
            Some(result) => done(result),
            None => Next::Room,
        }
    }
}

/// Reads once at an offset; beyond the largest offset that a file can have there is nothing.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    if buffer.is_empty() || i64::try_from(offset).is_err() {
        return Ok(0);
    }
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
