//! A file's end, and what is appended to it later.
//!
//! Following looks at the path again each time it has reached the end: that's how a network file system is made to
//! ask its server, and how truncation and replacement are seen. Kernel notifications would miss writes of other hosts.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use towline_helper::wire::message::{Code, Outcome, Refusal, TailFrom};

use super::done;
use super::open::open_regular;
use super::read::{PIECE_BYTES, read_at};
use crate::helper::fault::{cancelled, refuse_io};
use crate::helper::pool::{Next, Turn, Work};

/// Between two looks at a file that grows.
const PAUSE_LEAST: Duration = Duration::from_millis(250);
/// Between two looks at one that has not grown for a while.
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// A `tail` request.
pub(super) struct Tail {
    path: PathBuf,
    from: TailFrom,
    follow: bool,
    open: Option<Open>,
    pause: Duration,
    /// Whether a file has been found: a later one is sent from its beginning.
    has_begun: bool,
}

struct Open {
    file: File,
    id: (u64, u64),
    offset: u64,
    /// Largest size seen: a smaller one means that the file was cut.
    size: u64,
}

impl Tail {
    pub(super) fn new(path: PathBuf, from: TailFrom, follow: bool) -> Tail {
        Tail { path, from, follow, open: None, pause: PAUSE_LEAST, has_begun: false }
    }

    fn advance(&mut self, turn: &mut Turn) -> Result<Next, Refusal> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => match self.begin(turn)? {
                Some(open) => open,
                None => return Ok(self.later()),
            },
        };
        loop {
            if turn.is_cancelled() {
                return Err(cancelled());
            }
            if turn.room == 0 {
                self.open = Some(open);
                return Ok(Next::Room);
            }
            if self.send(&mut open, turn)? {
                continue;
            }
            if !self.follow {
                return Ok(done(Ok(Outcome::Read { end: open.offset, size: open.size })));
            }
            if !self.look_again(&mut open, turn)? {
                self.open = Some(open);
                return Ok(self.later());
            }
        }
    }

    /// Opens the file for the first time, or waits for it.
    fn begin(&mut self, turn: &Turn) -> Result<Option<Open>, Refusal> {
        let (file, metadata) = match open_regular(&self.path) {
            Err(refusal) if refusal.code == Code::NotFound && self.follow => return Ok(None),
            result => result?,
        };
        let size = metadata.len();
        let offset = match self.from {
            _ if self.has_begun => 0,
            TailFrom::Offset(offset) => offset,
            TailFrom::Lines(lines) => self.find_line(&file, size, lines, turn)?,
        };
        self.has_begun = true;
        Ok(Some(Open { file, id: (metadata.dev(), metadata.ino()), offset, size }))
    }

    /// Sends a piece. Returns whether there was one.
    fn send(&mut self, open: &mut Open, turn: &mut Turn) -> Result<bool, Refusal> {
        let mut piece = vec![0; turn.room.min(PIECE_BYTES)];
        let count = read_at(&open.file, &mut piece, open.offset)
            .map_err(|error| refuse_io(&error, "read", &self.path))?;
        if count == 0 {
            return Ok(false);
        }
        piece.truncate(count);
        turn.send(piece);
        open.offset += count as u64;
        open.size = open.size.max(open.offset);
        self.pause = PAUSE_LEAST;
        Ok(true)
    }

    /// Looks what the path is now. Returns whether there may be more to read.
    fn look_again(&mut self, open: &mut Open, turn: &mut Turn) -> Result<bool, Refusal> {
        let (file, metadata) = match open_regular(&self.path) {
            // It was moved away; its successor may come. Until then the old one may still grow.
            Err(refusal) if refusal.code == Code::NotFound => return Ok(false),
            result => result?,
        };
        let (id, size) = ((metadata.dev(), metadata.ino()), metadata.len());
        if id != open.id {
            // What was appended to the old one between its end and its replacement comes first.
            while turn.room > 0 && self.send(open, turn)? {}
            if turn.room > 0 {
                *open = Open { file, id, offset: 0, size };
            }
            return Ok(true);
        }
        // The new descriptor knows what the server just said; the old one may not.
        open.file = file;
        if size < open.size {
            open.size = size;
            open.offset = if size < open.offset { 0 } else { open.offset };
        }
        open.size = open.size.max(size);
        Ok(size > open.offset)
    }

    fn later(&mut self) -> Next {
        let pause = self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MOST);
        Next::Later(pause)
    }

    /// The offset where the last `lines` lines begin; a last line without its newline counts as one.
    fn find_line(&self, file: &File, size: u64, lines: u64, turn: &Turn) -> Result<u64, Refusal> {
        if lines == 0 {
            return Ok(size);
        }
        let mut buffer = vec![0; PIECE_BYTES];
        let (mut end, mut left) = (size, lines);
        while end > 0 {
            if turn.is_cancelled() {
                return Err(cancelled());
            }
            let begin = end.saturating_sub(PIECE_BYTES as u64);
            let wanted = usize::try_from(end - begin).unwrap_or(PIECE_BYTES);
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            let count = read_at(file, piece, begin).map_err(|error| refuse_io(&error, "read", &self.path))?;
            for (index, byte) in piece.get(..count).unwrap_or_default().iter().enumerate().rev() {
                let after = begin + index as u64 + 1;
                // The newline at the very end closes the last line and begins none.
                if *byte == b'\n' && after < size {
                    left -= 1;
                    if left == 0 {
                        return Ok(after);
                    }
                }
            }
            end = begin;
        }
        Ok(0)
    }
}

impl Work for Tail {
    fn step(&mut self, turn: &mut Turn) -> Next {
        self.advance(turn).unwrap_or_else(|refusal| done(Err(refusal)))
    }
}
