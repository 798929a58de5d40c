//! The rules of the protocol, as the ways in which the other end can break them.

use super::frame::{FrameError, Kind};
use super::message::MessageError;

/// A rule of the protocol that the other end broke. It ends the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Bytes that are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A payload that is no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A frame that this end never receives, or not at this time.
    #[error("frame of kind {kind:?} is not due here")]
    Unexpected {
        /// Its kind.
        kind: Kind,
    },
    /// A frame for a stream that was never opened, or an id used twice.
    #[error("frame of kind {kind:?} for stream {stream}, which is not open")]
    Stream {
        /// Its kind.
        kind: Kind,
        /// Its stream.
        stream: u32,
    },
    /// A channel that streams don't have.
    #[error("stream {stream} has no channel {channel}")]
    Channel {
        /// The stream.
        stream: u32,
        /// The channel.
        channel: u8,
    },
    /// More bytes than were lent, or more lent than can be counted.
    #[error("stream {stream} exceeds the credit of its channel {channel}")]
    Credit {
        /// The stream.
        stream: u32,
        /// The channel.
        channel: u8,
    },
    /// Bytes after a channel's end.
    #[error("stream {stream} sends on its channel {channel} after its end")]
    AfterEnd {
        /// The stream.
        stream: u32,
        /// The channel.
        channel: u8,
    },
    /// A data frame without a byte that does not end its channel.
    #[error("stream {stream} sends a data frame without a byte")]
    Empty {
        /// The stream.
        stream: u32,
    },
    /// An acknowledgement of bytes that were not sent.
    #[error("{acked} bytes are acknowledged, {sent} were sent")]
    Ack {
        /// Acknowledged bytes in all.
        acked: u64,
        /// Sent bytes in all.
        sent: u64,
    },
    /// This line has opened as many streams as there are numbers for them.
    #[error("the line has used up its stream numbers")]
    StreamsUsedUp,
    /// The other end asks and never reads.
    #[error("{bytes} bytes of control frames wait, the limit is {most}")]
    ControlQueue {
        /// Bytes that wait.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The other end speaks another version.
    #[error("the other end speaks protocol {got}, this one {ours}")]
    Version {
        /// Its version.
        got: u32,
        /// Ours.
        ours: u32,
    },
}
