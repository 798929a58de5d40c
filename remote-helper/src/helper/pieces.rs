//! Bytes that wait, in pieces of a sensible size. Pure.

use std::collections::VecDeque;

/// Up to this size, pieces are joined: each one costs memory of its own, and the other end may send single bytes.
const PIECE_BYTES: usize = 64 << 10;

/// A queue of bytes.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Pieces {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The first bytes.
    pub(crate) fn front(&self) -> &[u8] {
        self.queue.front().map(Vec::as_slice).unwrap_or_default()
    }

    /// Adds bytes at the end.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        match self.queue.back_mut() {
            Some(back) if back.len() + bytes.len() <= PIECE_BYTES => back.extend(bytes),
            _ if bytes.is_empty() => {}
            _ => self.queue.push_back(bytes),
        }
    }

    /// Takes the first piece, cut to `most` bytes.
    pub(crate) fn pop(&mut self, most: usize) -> Option<Vec<u8>> {
        let mut front = self.queue.pop_front()?;
        if front.len() > most {
            let rest = front.split_off(most);
            self.queue.push_front(rest);
        }
        self.bytes -= front.len();
        Some(front)
    }

    /// Drops everything. Returns how many bytes it was.
    pub(crate) fn clear(&mut self) -> usize {
        self.queue.clear();
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_are_joined_and_come_out_in_order() {
        let mut pieces = Pieces::default();
        let all: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        all.iter().for_each(|byte| pieces.push(vec![*byte]));
        pieces.push(Vec::new());
        assert_eq!((pieces.len(), pieces.queue.len()), (200_000, 4));
        let mut out = Vec::new();
        while let Some(piece) = pieces.pop(10_000) {
            assert!(piece.len() <= 10_000);
            out.extend(piece);
        }
        assert_eq!((out, pieces.len()), (all, 0));
    }
}
