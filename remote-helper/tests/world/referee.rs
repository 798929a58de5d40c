//! Reads along at both ends of a link, and counts for itself what was lent and what was sent.

use std::collections::HashMap;

use towline_helper::wire::Kind;
use towline_helper::wire::frame::{CHANNEL_MASK, Decoder};
use towline_helper::wire::sending::CREDIT_BYTES_START;

/// What one end has sent and what it may have known.
#[derive(Debug, Default)]
pub struct Referee {
    sent: Decoder,
    arrived: Decoder,
    credit: HashMap<(u32, u8), (u64, u64)>,
    pub data_bytes: u64,
    pub frames: u64,
    pub data_frames: u64,
}

impl Referee {
    /// Takes bytes that this end sends. Returns whether bulk was among them.
    pub fn sends(&mut self, mut bytes: &[u8]) -> bool {
        let mut bulk = false;
        while let Some(frame) = self.sent.next_frame(&mut bytes).unwrap() {
            self.frames += 1;
            if frame.kind == Kind::Data {
                bulk |= !frame.payload.is_empty();
                self.data_frames += 1;
                self.data_bytes += frame.payload.len() as u64;
                let place = (frame.stream, frame.flags & CHANNEL_MASK);
                let (lent, used) = self.credit.entry(place).or_insert((CREDIT_BYTES_START, 0));
                *used += frame.payload.len() as u64;
                assert!(*used <= *lent, "{place:?} sent {used} bytes, {lent} were lent");
            }
        }
        bulk
    }

    /// Takes bytes that arrive at this end.
    pub fn receives(&mut self, mut bytes: &[u8]) {
        while let Some(frame) = self.arrived.next_frame(&mut bytes).unwrap() {
            if frame.kind == Kind::Credit {
                let place = (frame.stream, frame.flags & CHANNEL_MASK);
                let bytes = u32::from_be_bytes(frame.payload.try_into().unwrap());
                self.credit.entry(place).or_insert((CREDIT_BYTES_START, 0)).0 += u64::from(bytes);
            }
        }
    }
}
