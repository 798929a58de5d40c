//! The wire protocol of towline: what travels through the one channel of a line.
//!
//! Promise: pure code, bytes in and values out; no socket, file, clock or randomness. Every length is
//! bounded before anything is allocated, and after the hello one malformed frame ends the line.
//! May import: nothing of towline. Read on in [`wire`].

pub mod wire;
