//! Frames, messages and the two-ended state machine that carries them.
//!
//! [`frame`] is the codec, [`message`] the typed control payloads, [`endpoint`] the state machine that
//! both ends run (credits, queues, acknowledgements), [`window`] the delay-adaptive limit on bytes in
//! flight. All of it is pure: time and bytes come in as arguments.

pub mod byte_text;
pub mod endpoint;
mod error;
mod event;
pub mod frame;
pub mod message;
mod receiving;
mod send_channel;
pub mod sending;
pub mod window;

pub use byte_text::ByteText;
pub use endpoint::{Endpoint, Event, ProtocolError, Role};
pub use frame::{Frame, FrameError, Header, Kind};

/// Version of the protocol that this crate speaks; the hello carries it and both ends check it.
pub const PROTOCOL: u32 = 1;
