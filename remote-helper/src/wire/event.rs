//! What an endpoint tells its driver.

use std::time::Duration;

use super::message::{Bye, Dispatched, Hello, Outcome, Refusal, Request, Resize, Start};

/// Something that happened, for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The helper introduced itself.
    Hello(Box<Hello>),
    /// The client answered the hello.
    Start(Start),
    /// The client opened a stream.
    Open {
        /// The stream.
        stream: u32,
        /// What it is to do.
        request: Box<Request>,
    },
    /// A request crossed its execution boundary.
    Dispatched {
        /// The stream.
        stream: u32,
        /// What is known of it.
        dispatched: Dispatched,
    },
    /// Bytes arrived. The driver tells by [`consumed`](super::Endpoint::consumed) when they are used.
    Data {
        /// The stream.
        stream: u32,
        /// Its channel.
        channel: u8,
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether the channel ends with them.
        end: bool,
    },
    /// The other end lends bytes on a channel; only in relay mode ([`relay`](super::Endpoint::relay)).
    Credit {
        /// The stream.
        stream: u32,
        /// Its channel.
        channel: u8,
        /// How many more.
        bytes: u32,
    },
    /// The client wants the stream ended.
    Cancel {
        /// The stream.
        stream: u32,
        /// Whether output is of no use any more.
        discard: bool,
    },
    /// The stream ended and did what it should.
    Outcome {
        /// The stream.
        stream: u32,
        /// How it ended.
        outcome: Box<Outcome>,
    },
    /// The stream ended and could not do what it should.
    Refusal {
        /// The stream.
        stream: u32,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// A pseudo-terminal has a new size.
    Resize {
        /// The stream.
        stream: u32,
        /// The size.
        size: Resize,
    },
    /// A ping came back after this time.
    Pong {
        /// The round trip.
        round_trip: Duration,
    },
    /// The other end closes the line.
    Bye(Bye),
}
