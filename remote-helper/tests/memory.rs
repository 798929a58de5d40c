//! What a hostile end can make an endpoint allocate, counted by the allocator itself.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use towline_helper::wire::frame::{
    CONTROL_PAYLOAD_BYTES_MAX, DATA_PAYLOAD_BYTES_MAX, Decoder, encode_header,
};
use towline_helper::wire::message::{Environment, Open, Request, Start, encode};
use towline_helper::wire::{Endpoint, Kind, PROTOCOL, Role};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches only atomics.
#[expect(unsafe_code, reason = "an allocator cannot be counted otherwise")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes that were allocated on top of what was before, while `work` ran.
fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let done = work();
    (PEAK.load(Ordering::Relaxed) - before, done)
}

/// One test, for the counters are everybody's.
#[test]
fn a_hostile_end_allocates_no_more_than_the_bounds_say() {
    // A header with a huge length is refused before anything is allocated.
    for (kind, stream) in [(Kind::Data, 1), (Kind::Open, 1), (Kind::Hello, 0)] {
        for length in [u32::MAX, kind.payload_bounds().1 as u32 + 1] {
            let header = encode_header(kind, 0, stream, length);
            let mut decoder = Decoder::default();
            let (peak, result) = peak_of(|| decoder.next_frame(&mut header.as_slice()));
            assert!(result.is_err() && peak <= 64, "{kind:?} {length}: {peak} bytes");
        }
    }
    // One with the largest legal length allocates that, and no more.
    for (kind, most) in [(Kind::Data, DATA_PAYLOAD_BYTES_MAX), (Kind::Open, CONTROL_PAYLOAD_BYTES_MAX)] {
        let header = encode_header(kind, 0, 1, most as u32);
        let mut decoder = Decoder::default();
        let (peak, result) = peak_of(|| decoder.next_frame(&mut header.as_slice()));
        assert!(result.unwrap().is_none() && peak <= most + 64, "{kind:?}: {peak} bytes");
    }
    floods();
    nested();
}

fn helper() -> Endpoint {
    let mut helper = Endpoint::new(Role::Helper);
    let start = Start { protocol: PROTOCOL, version: String::new(), environment: Environment::None };
    let payload = encode("start", &start).unwrap();
    let header = encode_header(Kind::Start, 0, 0, payload.len() as u32);
    helper.handle_bytes(Duration::ZERO, &[&header[..], &payload].concat()).unwrap();
    helper
}

fn floods() {
    let payload = encode("open", &Open { request: Request::Probe {} }).unwrap();
    let open =
        |stream: u32| [&encode_header(Kind::Open, 0, stream, payload.len() as u32)[..], &payload].concat();
    let data = |stream: u32| [&encode_header(Kind::Data, 0x40, stream, 1)[..], b"x"].concat();
    let credit = |stream: u32| [&encode_header(Kind::Credit, 1, stream, 4)[..], &[0, 0, 0, 1]].concat();
    let ping = |_| [&encode_header(Kind::Ping, 0, 0, 8)[..], &[0; 8]].concat();
    let floods: [&dyn Fn(u32) -> Vec<u8>; 4] = [&open, &data, &credit, &ping];
    for flood in floods {
        let mut helper = helper();
        let (peak, ()) = peak_of(|| {
            helper.handle_bytes(Duration::ZERO, &open(1)).unwrap();
            for count in 2..400_000 {
                // Until the control queue or the credit is used up; the driver takes its events and sends nothing.
                let again = if std::ptr::eq(flood, floods[0]) { count } else { 1 };
                if helper.handle_bytes(Duration::ZERO, &flood(again)).is_err() {
                    break;
                }
                while helper.next_event().is_some() {}
            }
        });
        // 8 MiB of control frames, and as much again while their queue grows.
        assert!(peak <= 16 << 20, "{peak} bytes");
    }
}

fn nested() {
    // A megabyte of brackets neither overflows the stack nor multiplies.
    let payload = [br#"{"request":"#.to_vec(), vec![b'['; CONTROL_PAYLOAD_BYTES_MAX - 20]].concat();
    let bytes = [&encode_header(Kind::Open, 0, 1, payload.len() as u32)[..], &payload].concat();
    let mut helper = helper();
    let (peak, result) = peak_of(|| helper.handle_bytes(Duration::ZERO, &bytes));
    assert!(result.is_err() && peak <= 2 << 20, "{peak} bytes");
    // Nor does a list of half a million empty arguments, each of which is a value of its own.
    let mut payload = br#"{"request":{"type":"exec","command":{"argv":["#.to_vec();
    payload.extend(br#""","#.repeat((CONTROL_PAYLOAD_BYTES_MAX - 200) / 3));
    payload.extend(br#"""]},"env":[],"stdin":false,"detach":false,"end_background":false}}"#);
    let bytes = [&encode_header(Kind::Open, 0, 1, payload.len() as u32)[..], &payload].concat();
    let mut helper = self::helper();
    let (peak, result) = peak_of(|| helper.handle_bytes(Duration::ZERO, &bytes));
    result.unwrap();
    assert!(peak <= 40 << 20, "{peak} bytes");
}
