//! The frame codec: a header of 16 bytes and a bounded payload.
//!
//! ```text
//!  0               4       5       6       8               12              16
//!  +---------------+-------+-------+-------+---------------+---------------+----
//!  | magic "TLN1"  | kind  | flags | zero  | stream id     | payload bytes | payload …
//!  +---------------+-------+-------+-------+---------------+---------------+----
//! ```
//! All numbers are in network order. Control payloads are JSON (see [`super::message`]), data payloads raw
//! bytes. A reader never resynchronises: the first malformed frame ends the line.

/// The first four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"TLN1";
/// Bytes of a header.
pub const HEADER_BYTES: usize = 16;
/// Largest payload of a control frame, in bytes (`o2.md` 2.5: a frame is at most 1 MiB).
pub const CONTROL_PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Largest payload of a data frame, in bytes: what a small frame may have to wait behind.
pub const DATA_PAYLOAD_BYTES_MAX: usize = 32 << 10;

/// Flag of a data frame: the channel ends with this frame's last byte.
pub const FLAG_END: u8 = 0x80;
/// Flag of a data frame: the receiver answers at once with [`Kind::Ack`].
pub const FLAG_ACK: u8 = 0x40;
/// The bits of a data or credit frame's flags that hold the channel number.
pub const CHANNEL_MASK: u8 = 0x03;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Helper to client, once, first: JSON [`super::message::Hello`]. Stream 0.
    Hello = 0x01,
    /// Client to helper, once, first: JSON [`super::message::Start`]. Stream 0.
    Start = 0x02,
    /// Either way: eight bytes that the other end sends back. Stream 0.
    Ping = 0x03,
    /// Either way: the eight bytes of a ping. Stream 0.
    Pong = 0x04,
    /// Either way: bulk payload bytes received since the hello, and the receiver's clock in nanoseconds when the last of
    /// them arrived, each as a 64-bit number. Stream 0.
    Ack = 0x05,
    /// Either way, last: JSON [`super::message::Bye`]. Stream 0.
    Bye = 0x06,
    /// Client to helper: JSON [`super::message::Open`] opens the stream.
    Open = 0x10,
    /// Helper to client: the request crossed its execution boundary. JSON [`super::message::Dispatched`].
    Dispatched = 0x11,
    /// Either way: raw bytes of one channel of the stream.
    Data = 0x12,
    /// Either way: the receiver lends the sender more bytes on one channel, as a 32-bit number.
    Credit = 0x13,
    /// Client to helper: end what the stream does. JSON [`super::message::Cancel`].
    Cancel = 0x14,
    /// Helper to client, last of its stream: JSON [`super::message::Outcome`].
    Outcome = 0x15,
    /// Helper to client, last of its stream: JSON [`super::message::Refusal`].
    Refusal = 0x16,
    /// Client to helper: JSON [`super::message::Resize`], for streams of kind `pty`.
    Resize = 0x17,
}

impl Kind {
    /// All kinds, for tables and tests.
    pub const ALL: [Kind; 14] = [
        Kind::Hello,
        Kind::Start,
        Kind::Ping,
        Kind::Pong,
        Kind::Ack,
        Kind::Bye,
        Kind::Open,
        Kind::Dispatched,
        Kind::Data,
        Kind::Credit,
        Kind::Cancel,
        Kind::Outcome,
        Kind::Refusal,
        Kind::Resize,
    ];

    /// The kind of a wire byte, if there is one.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether frames of this kind belong to the line itself (stream 0) rather than to a stream.
    pub fn is_of_the_line(self) -> bool {
        (self as u8) < 0x10
    }

    /// Smallest and largest payload of this kind, in bytes.
    pub fn payload_bounds(self) -> (usize, usize) {
        match self {
            Kind::Ping | Kind::Pong => (8, 8),
            Kind::Ack => (16, 16),
            Kind::Credit => (4, 4),
            Kind::Data => (0, DATA_PAYLOAD_BYTES_MAX),
            Kind::Hello
            | Kind::Start
            | Kind::Bye
            | Kind::Open
            | Kind::Dispatched
            | Kind::Cancel
            | Kind::Outcome
            | Kind::Refusal
            | Kind::Resize => (2, CONTROL_PAYLOAD_BYTES_MAX),
        }
    }

    /// The flag bits that frames of this kind may carry.
    fn flags_allowed(self) -> u8 {
        match self {
            Kind::Data => FLAG_END | FLAG_ACK | CHANNEL_MASK,
            Kind::Credit => CHANNEL_MASK,
            _ => 0,
        }
    }
}

/// A header that has passed every check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Flag bits; see the constants of this module.
    pub flags: u8,
    /// The stream, 0 for frames of the line itself.
    pub stream: u32,
    /// Payload bytes that follow.
    pub length: usize,
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the frame is.
    pub kind: Kind,
    /// Flag bits; see the constants of this module.
    pub flags: u8,
    /// The stream, 0 for frames of the line itself.
    pub stream: u32,
    /// The payload, within the bounds of its kind.
    pub payload: Vec<u8>,
}

/// Why bytes are not a frame. Each of these ends the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first four bytes are not the magic.
    #[error("frame begins with {0:02x?}, not with the magic of a frame")]
    Magic([u8; 4]),
    /// No kind has this number.
    #[error("frame kind 0x{0:02x} is unknown")]
    Kind(u8),
    /// Flag bits that the kind does not have, or a reserved byte that is not zero.
    #[error("frame of kind {kind:?} carries reserved bits (flags 0x{flags:02x}, reserved 0x{reserved:04x})")]
    Reserved {
        /// Kind of the frame.
        kind: Kind,
        /// Its flags.
        flags: u8,
        /// The two reserved bytes.
        reserved: u16,
    },
    /// A frame of the line with a stream id, or one of a stream without.
    #[error("frame of kind {kind:?} has stream id {stream}")]
    Stream {
        /// Kind of the frame.
        kind: Kind,
        /// Its stream id.
        stream: u32,
    },
    /// The payload's length is outside the bounds of its kind.
    #[error("frame of kind {kind:?} has {length} payload bytes, the bounds are {least} to {most}")]
    Length {
        /// Kind of the frame.
        kind: Kind,
        /// Payload bytes that the header announces.
        length: usize,
        /// Smallest payload of this kind.
        least: usize,
        /// Largest payload of this kind.
        most: usize,
    },
}

/// Reads a header.
///
/// # Errors
/// [`FrameError`] when any field breaks a rule; nothing has been allocated then.
pub fn parse_header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
    let [m0, m1, m2, m3, kind, flags, r0, r1, s0, s1, s2, s3, l0, l1, l2, l3] = *bytes;
    let magic = [m0, m1, m2, m3];
    if magic != MAGIC {
        return Err(FrameError::Magic(magic));
    }
    let kind = Kind::from_byte(kind).ok_or(FrameError::Kind(kind))?;
    let reserved = u16::from_be_bytes([r0, r1]);
    if flags & !kind.flags_allowed() != 0 || reserved != 0 {
        return Err(FrameError::Reserved { kind, flags, reserved });
    }
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    if kind.is_of_the_line() != (stream == 0) {
        return Err(FrameError::Stream { kind, stream });
    }
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let (least, most) = kind.payload_bounds();
    if length < least || length > most {
        return Err(FrameError::Length { kind, length, least, most });
    }
    Ok(Header { kind, flags, stream, length })
}

/// Writes a header for a payload of `length` bytes.
pub fn encode_header(kind: Kind, flags: u8, stream: u32, length: u32) -> [u8; HEADER_BYTES] {
    let [m0, m1, m2, m3] = MAGIC;
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    let [l0, l1, l2, l3] = length.to_be_bytes();
    [m0, m1, m2, m3, kind as u8, flags, 0, 0, s0, s1, s2, s3, l0, l1, l2, l3]
}

impl Frame {
    /// Appends the frame's bytes to `out`.
    ///
    /// # Errors
    /// [`FrameError::Length`] when the payload is outside the bounds of its kind.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        encode_parts(self.kind, self.flags, self.stream, &self.payload, out)
    }
}

/// Appends a frame's bytes to `out` without needing an owned payload.
///
/// # Errors
/// [`FrameError::Length`] when the payload is outside the bounds of its kind.
pub fn encode_parts(
    kind: Kind,
    flags: u8,
    stream: u32,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let (least, most) = kind.payload_bounds();
    let length = payload.len();
    let wire_length = u32::try_from(length).ok().filter(|_| (least..=most).contains(&length));
    let Some(wire_length) = wire_length else {
        return Err(FrameError::Length { kind, length, least, most });
    };
    out.extend_from_slice(&encode_header(kind, flags, stream, wire_length));
    out.extend_from_slice(payload);
    Ok(())
}

/// Cuts a stream of bytes into frames, whatever pieces they come in.
///
/// Holds at most one incomplete frame: a header and a payload within its kind's bounds.
#[derive(Debug, Default)]
pub struct Decoder {
    header: Vec<u8>,
    pending: Option<(Header, Vec<u8>)>,
    failed: Option<FrameError>,
}

impl Decoder {
    /// Takes bytes from the front of `input` until one frame is complete or the input is used up.
    ///
    /// # Errors
    /// [`FrameError`] on the first malformed header, and the same again on every later call.
    pub fn next_frame(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let (header, mut payload) = match self.pending.take() {
            Some(pending) => pending,
            None => {
                take(&mut self.header, input, HEADER_BYTES);
                let Ok(bytes) = <[u8; HEADER_BYTES]>::try_from(self.header.as_slice()) else {
                    return Ok(None);
                };
                self.header.clear();
                let header = parse_header(&bytes).inspect_err(|error| self.failed = Some(error.clone()))?;
                (header, Vec::with_capacity(header.length))
            }
        };
        take(&mut payload, input, header.length);
        if payload.len() < header.length {
            self.pending = Some((header, payload));
            return Ok(None);
        }
        Ok(Some(Frame { kind: header.kind, flags: header.flags, stream: header.stream, payload }))
    }

    /// Whether the bytes so far end between two frames.
    pub fn is_between_frames(&self) -> bool {
        self.header.is_empty() && self.pending.is_none()
    }
}

/// Moves bytes from the front of `input` to `buffer` until the buffer holds `wanted` bytes.
fn take(buffer: &mut Vec<u8>, input: &mut &[u8], wanted: usize) {
    let count = wanted.saturating_sub(buffer.len()).min(input.len());
    let (head, rest) = input.split_at(count);
    buffer.extend_from_slice(head);
    *input = rest;
}
