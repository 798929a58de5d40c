//! How many bytes a second the codec and both ends carry, on one thread and without any link.
//!
//! `cargo run --release -p towline-helper --example wire_speed`
//!
//! Question: can the wire ever be what bulk waits for? Rival: the same bytes copied from buffer to buffer as
//! often as they have to be (into a frame, and out of it). Pieces of 32 KiB, four streams in turn, medians of 9 runs.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a benchmark fails by panicking")]

use std::time::{Duration, Instant};

use towline_helper::wire::endpoint::STDOUT;
use towline_helper::wire::message::{Environment, Hello, Request, Start};
use towline_helper::wire::{Endpoint, Event, PROTOCOL, Role};

const PIECE_BYTES: usize = 32 << 10;
const TOTAL_BYTES: usize = 1 << 30;
const STREAMS: u32 = 4;
const RUNS: usize = 9;
/// What a driver moves at once.
const DRIVER_BYTES: usize = 64 << 10;

/// Both ends of a line, and the clock.
struct Line {
    client: Endpoint,
    helper: Endpoint,
    began: Instant,
    buffer: Vec<u8>,
    received: usize,
}

impl Line {
    fn new() -> Self {
        let mut line = Line {
            client: Endpoint::new(Role::Client),
            helper: Endpoint::new(Role::Helper),
            began: Instant::now(),
            buffer: Vec::new(),
            received: 0,
        };
        let hello = Hello {
            protocol: PROTOCOL,
            version: String::new(),
            sha256: String::new(),
            pid: 1,
            boot_id: String::new(),
            host: String::new(),
            uid: 0,
            home: "/".into(),
            cwd: "/".into(),
            capabilities: Vec::new(),
        };
        let start = Start { protocol: PROTOCOL, version: String::new(), environment: Environment::None };
        line.helper.hello(&hello).unwrap();
        line.turn();
        line.client.start(&start).unwrap();
        for _ in 0..STREAMS {
            line.client.open(Duration::ZERO, Request::Probe {}).unwrap();
        }
        line.turn();
        line
    }

    /// Carries what both ends have to say, a driver's buffer at a time.
    fn turn(&mut self) {
        let now = self.began.elapsed();
        self.helper.transmit(now, &mut self.buffer, DRIVER_BYTES);
        self.client.handle_bytes(now, &self.buffer).unwrap();
        self.buffer.clear();
        while let Some(event) = self.client.next_event() {
            if let Event::Data { stream, channel, bytes, .. } = event {
                self.received += bytes.len();
                self.client.consumed(now, stream, channel, bytes.len()).unwrap();
            }
        }
        self.client.transmit(now, &mut self.buffer, DRIVER_BYTES);
        self.helper.handle_bytes(now, &self.buffer).unwrap();
        self.buffer.clear();
        while self.helper.next_event().is_some() {}
    }
}

fn endpoints(source: &[u8]) -> f64 {
    let mut line = Line::new();
    let began = Instant::now();
    while line.received < TOTAL_BYTES {
        for stream in 1..=STREAMS {
            while line.helper.room(stream, STDOUT) >= PIECE_BYTES {
                line.helper.send(stream, STDOUT, source.to_vec(), false);
            }
        }
        line.turn();
    }
    line.received as f64 / began.elapsed().as_secs_f64()
}

fn copies(source: &[u8]) -> f64 {
    let began = Instant::now();
    let mut copied = 0;
    let mut frame = Vec::new();
    while copied < TOTAL_BYTES {
        let piece = std::hint::black_box(source.to_vec());
        frame.clear();
        frame.extend_from_slice(&piece);
        let payload = std::hint::black_box(frame.as_slice().to_vec());
        copied += payload.len();
    }
    copied as f64 / began.elapsed().as_secs_f64()
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs.get(runs.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let source: Vec<u8> =
        (0..PIECE_BYTES).map(|place| u8::try_from(place % 251).unwrap_or_default()).collect();
    let (mut ours, mut rival) = (Vec::new(), Vec::new());
    // In turn, so that a busy machine is busy for both.
    for _ in 0..RUNS {
        ours.push(endpoints(&source));
        rival.push(copies(&source));
    }
    let (ours, rival) = (median(ours), median(rival));
    println!("both ends of a line: {:.1} GB/s", ours / 1e9);
    println!("the same copies alone: {:.1} GB/s (×{:.2})", rival / 1e9, ours / rival);
}
