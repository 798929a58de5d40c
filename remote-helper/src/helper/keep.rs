//! The bounded part of an output that is kept: its first and its last bytes. Pure.

use std::collections::VecDeque;

use towline_helper::wire::message::Keep;

/// What is kept of one output.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Bytes that still belong to the head.
    head_left: u64,
    tail: VecDeque<u8>,
    tail_most: usize,
    dropped: u64,
}

impl Kept {
    /// Keeps as much as was asked for. The caller has checked that the tail is within its bound.
    pub(crate) fn new(keep: Keep) -> Kept {
        let tail_most = usize::try_from(keep.tail).unwrap_or(usize::MAX);
        Kept { head_left: keep.head, tail: VecDeque::new(), tail_most, dropped: 0 }
    }

    /// Whether bytes may come that have to be sent on at once.
    pub(crate) fn wants_head(&self) -> bool {
        self.head_left > 0
    }

    /// Takes bytes. The first ones, as many as are returned, belong to the head; the rest is held or dropped.
    pub(crate) fn absorb(&mut self, bytes: &[u8]) -> usize {
        let head = usize::try_from(self.head_left).unwrap_or(usize::MAX).min(bytes.len());
        self.head_left -= head as u64;
        let rest = bytes.get(head..).unwrap_or_default();
        // Make space first, so that the ring never grows beyond its bound.
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_most);
        let old = surplus.min(self.tail.len());
        self.tail.drain(..old);
        self.tail.extend(rest.get(surplus - old..).unwrap_or_default());
        self.dropped += surplus as u64;
        head
    }

    /// Takes at most `room` bytes of the tail, once the output is over.
    pub(crate) fn take_tail(&mut self, room: usize) -> Vec<u8> {
        let count = room.min(self.tail.len());
        self.tail.drain(..count).collect()
    }

    /// Whether no byte of the tail is left.
    pub(crate) fn is_drained(&self) -> bool {
        self.tail.is_empty()
    }

    /// Bytes between head and tail that are gone.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(keep: Keep, pieces: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>, u64) {
        let (mut kept, mut head) = (Kept::new(keep), Vec::new());
        for piece in pieces {
            let count = kept.absorb(piece);
            head.extend_from_slice(&piece[..count]);
            assert!(kept.tail.len() as u64 <= keep.tail);
        }
        let mut tail = Vec::new();
        while !kept.is_drained() {
            tail.extend(kept.take_tail(3));
        }
        (head, tail, kept.dropped())
    }

    proptest! {
        #[test]
        fn head_dropped_and_tail_add_up_to_the_whole_however_it_was_cut(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            head in 0_u64..100,
            tail in 0_u64..100,
        ) {
            let whole = pieces.concat();
            let (first, last, dropped) = run(Keep { head, tail }, &pieces);
            prop_assert_eq!(first.len() as u64, head.min(whole.len() as u64));
            prop_assert_eq!(&first[..], &whole[..first.len()]);
            prop_assert_eq!((first.len() + last.len()) as u64 + dropped, whole.len() as u64);
            prop_assert_eq!(&last[..], &whole[whole.len() - last.len()..]);
            prop_assert_eq!(last.len() as u64, tail.min(whole.len() as u64 - first.len() as u64));
        }
    }
}
