//! One output of a command: the only reader of its pipe until the pipe is closed.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use towline_helper::wire::message::Keep;

use super::keep::Kept;
use super::link::{Got, Link, READ_BYTES};

/// The reading end of a command's stdout or stderr, and where its bytes go.
#[derive(Debug)]
pub(crate) struct Output {
    stream: u32,
    channel: u8,
    pipe: Option<OwnedFd>,
    kept: Option<Kept>,
    /// Whether the last read found the pipe empty, while it was being read.
    is_empty: bool,
    /// Bytes read since the command's main process ended.
    read_since_end: Option<usize>,
    is_discarded: bool,
    is_ended: bool,
}

impl Output {
    pub(crate) fn new(stream: u32, channel: u8, pipe: OwnedFd, keep: Option<Keep>) -> Output {
        Output {
            stream,
            channel,
            pipe: Some(pipe),
            kept: keep.map(Kept::new),
            is_empty: false,
            read_since_end: None,
            is_discarded: false,
            is_ended: false,
        }
    }

    /// The pipe, while its bytes are wanted and have a place to go: that's what makes a slow reader slow the command.
    pub(crate) fn wanted(&self, link: &Link) -> Option<BorrowedFd<'_>> {
        (self.limit(link) > 0).then_some(self.pipe.as_ref()?.as_fd())
    }

    /// Bytes that were dropped between head and tail.
    pub(crate) fn dropped(&self) -> u64 {
        self.kept.as_ref().map_or(0, Kept::dropped)
    }

    /// Whether a writer still holds the pipe.
    pub(crate) fn is_held(&self) -> bool {
        self.pipe.is_some()
    }

    /// Whether every byte that the command itself wrote has been read: the pipe is at its end, or was found empty
    /// after the main process ended, or gave as much as a pipe can have held then.
    pub(crate) fn is_settled(&self) -> bool {
        let since = |bytes: usize| self.is_empty || bytes >= READ_BYTES;
        self.pipe.is_none() || self.read_since_end.is_some_and(since)
    }

    /// Notes that the main process has ended.
    pub(crate) fn handle_ended(&mut self) {
        self.is_empty = false;
        self.read_since_end = Some(0);
    }

    /// Drops all that comes from now on.
    pub(crate) fn discard(&mut self) {
        self.is_discarded = true;
        self.kept = None;
    }

    /// Reads once, as much as has a place to go.
    pub(crate) fn read(&mut self, link: &mut Link) {
        let limit = self.limit(link);
        let Some(pipe) = self.pipe.as_ref().filter(|_| limit > 0) else { return };
        let bytes = match link.read(pipe.as_fd(), limit) {
            Got::Bytes(bytes) => bytes,
            Got::Nothing => {
                self.is_empty = true;
                return;
            }
            Got::End => {
                self.pipe = None;
                return self.finish(link);
            }
        };
        self.is_empty = false;
        if let Some(since) = &mut self.read_since_end {
            *since = since.saturating_add(bytes.len());
        }
        if self.is_discarded {
            return;
        }
        let head = self.kept.as_mut().map_or(bytes.len(), |kept| kept.absorb(bytes));
        let bytes = bytes.get(..head).unwrap_or_default().to_vec();
        if !bytes.is_empty() {
            link.send(self.stream, self.channel, bytes, false);
        }
    }

    /// Sends what is kept of the end, as far as there is room, and then the channel's end. Called until it says that
    /// all is sent. Not called before the output is settled.
    pub(crate) fn finish(&mut self, link: &mut Link) {
        if let Some(kept) = self.kept.as_mut().filter(|kept| !kept.is_drained()) {
            let room = link.room(self.stream, self.channel);
            let bytes = kept.take_tail(room);
            let is_drained = kept.is_drained();
            if !bytes.is_empty() {
                link.send(self.stream, self.channel, bytes, false);
            }
            if !is_drained {
                return;
            }
        }
        if !self.is_ended {
            self.is_ended = true;
            link.send(self.stream, self.channel, Vec::new(), true);
        }
    }

    /// Whether the channel's end is queued.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_ended
    }

    /// The pipe, if somebody still holds its other end.
    pub(crate) fn into_pipe(self) -> Option<OwnedFd> {
        self.pipe
    }

    /// Bytes that may be read now.
    fn limit(&self, link: &Link) -> usize {
        let head_wanted = self.kept.as_ref().is_none_or(Kept::wants_head);
        match self.is_discarded || !head_wanted {
            true => READ_BYTES,
            false => link.room(self.stream, self.channel).min(READ_BYTES),
        }
    }
}
