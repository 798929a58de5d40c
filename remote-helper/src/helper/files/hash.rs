//! The SHA-256 of a file's bytes.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use towline_helper::wire::message::{Outcome, Refusal};

use super::done;
use super::open::open_regular;
use super::read::read_at;
use crate::helper::fault::{cancelled, refuse_io};
use crate::helper::pool::{Next, Turn, Work};
use crate::helper::session::hex;

/// Bytes read at a time.
const PIECE_BYTES: usize = 128 << 10;
/// Bytes hashed before other files get their turn on the thread.
const TURN_BYTES: u64 = 64 << 20;

/// A `hash` request.
pub(super) struct Hash {
    path: PathBuf,
    offset: u64,
    left: u64,
    hashed: u64,
    file: Option<File>,
    digest: Sha256,
}

impl Hash {
    pub(super) fn new(path: PathBuf, offset: u64, length: Option<u64>) -> Hash {
        let left = length.unwrap_or(u64::MAX);
        Hash { path, offset, left, hashed: 0, file: None, digest: Sha256::new() }
    }

    fn advance(&mut self, turn: &Turn) -> Result<Option<Outcome>, Refusal> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open_regular(&self.path)?.0),
        };
        let mut buffer = vec![0; PIECE_BYTES];
        let turn_ends = self.hashed.saturating_add(TURN_BYTES);
        while self.hashed < turn_ends {
            if turn.is_cancelled() {
                return Err(cancelled());
            }
            let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            let count =
                read_at(file, piece, self.offset).map_err(|error| refuse_io(&error, "read", &self.path))?;
            if count == 0 {
                let sha256 = hex(&std::mem::take(&mut self.digest).finalize());
                return Ok(Some(Outcome::Hash { size: self.hashed, sha256 }));
            }
            self.digest.update(piece.get(..count).unwrap_or_default());
            self.offset += count as u64;
            self.left -= count as u64;
            self.hashed += count as u64;
        }
        Ok(None)
    }
}

impl Work for Hash {
    fn step(&mut self, turn: &mut Turn) -> Next {
        match self.advance(turn).transpose() {
            Some(result) => done(result),
            None => Next::Later(Duration::ZERO),
        }
    }
}
