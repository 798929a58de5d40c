//! What holds for any bytes; the fuzz targets and the corpus tests share it.
//!
//! A frame input is one byte that says where to cut, then bytes of a line. A message input is one byte that picks
//! the message, then its payload. An endpoint input is a script; see [`endpoint`].

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use towline_helper::wire::frame::{Decoder, encode_parts};
use towline_helper::wire::message::{
    self, Bye, Cancel, Dispatched, Entry, Environment, Hello, Open, Outcome, Refusal, Request, Resize, Start,
};
use towline_helper::wire::window::RESERVE_BYTES;
use towline_helper::wire::{Endpoint, Event, Frame, FrameError, Kind, PROTOCOL, Role};

/// Decodes pieces of at most `most` bytes until one is refused.
fn decode(bytes: &[u8], most: usize) -> (Vec<Frame>, Option<FrameError>) {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    for mut piece in bytes.chunks(most) {
        loop {
            match decoder.next_frame(&mut piece) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    let again = decoder.next_frame(&mut piece);
                    assert_eq!(again, Err(error.clone()), "a line that is over stays over");
                    return (frames, Some(error));
                }
            }
        }
        assert!(piece.is_empty());
    }
    (frames, None)
}

/// Frames are the same whatever pieces they come in, and are exactly the bytes that they were read from.
pub fn frame(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let (frames, error) = decode(bytes, usize::MAX);
    assert_eq!((frames.clone(), error), decode(bytes, usize::from(*cut) + 1));
    let mut again = Vec::new();
    for frame in &frames {
        frame.encode(&mut again).unwrap();
    }
    assert_eq!(bytes.get(..again.len()), Some(again.as_slice()));
}

fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(payload: &[u8]) {
    if let Ok(message) = message::parse::<T>("message", payload) {
        let written = message::encode("message", &message).unwrap();
        assert_eq!(message::parse::<T>("message", &written).unwrap(), message);
    }
}

/// What is understood is understood again when it is written.
pub fn message(input: &[u8]) {
    let Some((pick, payload)) = input.split_first() else { return };
    match pick % 10 {
        0 => survives::<Hello>(payload),
        1 => survives::<Start>(payload),
        2 => survives::<Open>(payload),
        3 => survives::<Dispatched>(payload),
        4 => survives::<Cancel>(payload),
        5 => survives::<Outcome>(payload),
        6 => survives::<Refusal>(payload),
        7 => survives::<Bye>(payload),
        8 => survives::<Entry>(payload),
        _ => survives::<Resize>(payload),
    }
}

/// Reads a script from the front.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::from(self.byte()?).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(bytes)
    }

    /// A length of any magnitude up to some 64 KiB.
    fn length(&mut self) -> Option<usize> {
        let byte = self.byte()?;
        Some(usize::from(byte & 0x0f) << (byte >> 4).min(12))
    }
}

/// One end, a clock, and what has been seen.
struct Player {
    endpoint: Endpoint,
    sent: Decoder,
    now: Duration,
    role: Role,
    over: bool,
}

/// Whatever the other end sends, in whatever order with what the driver does: no panic, only legal frames, no more in
/// flight than the window allows, and the first error is the last.
///
/// Script: a role, then steps. Each is a byte that picks what is done, and its operands.
pub fn endpoint(input: &[u8]) {
    let mut script = Script(input);
    let Some(role) = script.byte() else { return };
    let role = if role % 2 == 0 { Role::Client } else { Role::Helper };
    let mut player = Player {
        endpoint: Endpoint::new(role),
        sent: Decoder::default(),
        now: Duration::ZERO,
        role,
        over: false,
    };
    while player.step(&mut script).is_some() {}
    player.transmit(usize::MAX);
}

impl Player {
    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        let endpoint = &mut self.endpoint;
        match script.byte()? % 16 {
            0 => self.feed(script.bytes()?),
            1 => self.greet(),
            2 | 3 => {
                let (kind, flags, stream) = (script.byte()?, script.byte()?, script.byte()?);
                let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
                let payload = script.bytes()?;
                self.feed_frame(kind, flags, u32::from(stream % 8), payload);
            }
            4 => {
                let (flags, stream, length) = (script.byte()?, script.byte()?, script.length()?);
                self.feed_frame(Kind::Data, flags, u32::from(stream % 8), &vec![7; length]);
            }
            5 => {
                let payload = message::encode("open", &Open { request: Request::Probe {} }).unwrap();
                self.feed_frame(Kind::Open, 0, u32::from(script.byte()?), &payload);
            }
            6 => {
                let received =
                    [u64::from(script.byte()?), script.length()? as u64, self.now.as_nanos() as u64];
                let [more, received, at] = received;
                let payload = [(received + more).to_be_bytes(), at.to_be_bytes()].concat();
                self.feed_frame(Kind::Ack, 0, 0, &payload);
            }
            7 => self.now += Duration::from_micros(script.length()? as u64 * 20),
            8 => drop(endpoint.open(self.now, Request::Probe {})),
            9 => {
                let (stream, channel, length) = (script.byte()?, script.byte()?, script.length()?);
                let (stream, channel) = (u32::from(stream % 8), channel % 4);
                let count = length.min(endpoint.room(stream, channel));
                endpoint.send(stream, channel, vec![9; count], length % 5 == 0);
            }
            10 => {
                let (stream, channel, length) = (script.byte()?, script.byte()?, script.length()?);
                drop(endpoint.consumed(self.now, u32::from(stream % 8), channel % 4, length));
            }
            11 => drop(endpoint.cancel(u32::from(script.byte()? % 8), script.byte()? % 2 == 0)),
            12 => drop(endpoint.outcome(u32::from(script.byte()? % 8), &Outcome::Done {})),
            13 => drop(endpoint.ping(self.now)),
            14 => drop(endpoint.handle_time(self.now)),
            _ => {
                let most = script.length()?;
                self.transmit(most);
            }
        }
        Some(())
    }

    fn greet(&mut self) {
        let environment = Environment::None;
        let start = Start { protocol: PROTOCOL, version: String::new(), environment };
        let hello = br#"{"protocol":1,"version":"","sha256":"","pid":1,"boot_id":"","host":"","uid":1,"home":"/","cwd":"/","capabilities":[]}"#;
        match self.role {
            Role::Client => self.feed_frame(Kind::Hello, 0, 0, hello),
            Role::Helper => self.feed_frame(Kind::Start, 0, 0, &message::encode("start", &start).unwrap()),
        }
    }

    /// Feeds a frame whose length is legal; flags and streams need not be.
    fn feed_frame(&mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        let (least, most) = kind.payload_bounds();
        let mut payload = payload.to_vec();
        payload.resize(payload.len().clamp(least, most), b' ');
        let mut bytes = Vec::new();
        encode_parts(kind, flags, stream, &payload, &mut bytes).unwrap();
        self.feed(&bytes);
    }

    fn feed(&mut self, bytes: &[u8]) {
        let result = self.endpoint.handle_bytes(self.now, bytes);
        assert!(result.is_err() || !self.over, "an endpoint took bytes after an error");
        self.over = result.is_err();
        if let Err(error) = result {
            assert_eq!(self.endpoint.handle_bytes(self.now, &[]), Err(error));
        }
        while let Some(event) = self.endpoint.next_event() {
            if let Event::Data { bytes, end, .. } = event {
                assert!(!bytes.is_empty() || end);
            }
        }
    }

    fn transmit(&mut self, most: usize) {
        let has_work = self.endpoint.has_work();
        let mut out = Vec::new();
        self.endpoint.transmit(self.now, &mut out, most);
        assert!(!has_work || !out.is_empty() || most == 0, "has_work promised something");
        let mut bulk = false;
        let mut input = out.as_slice();
        while let Some(frame) = self.sent.next_frame(&mut input).unwrap() {
            bulk |= frame.kind == Kind::Data && !frame.payload.is_empty();
        }
        assert!(self.sent.is_between_frames(), "half a frame was written");
        let bound = self.endpoint.window().bytes() + RESERVE_BYTES;
        assert!(!bulk || self.endpoint.in_flight() <= bound, "{} in flight", self.endpoint.in_flight());
    }
}
