//! A hostile or broken other end: each broken rule ends the line with an exact error, and nothing grows.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "tests fail by panicking"
)]

use std::time::Duration;

use serde::Serialize;
use towline_helper::wire::endpoint::{STDERR, STDIN, STDOUT};
use towline_helper::wire::frame::{Decoder, FLAG_ACK, FLAG_END, encode_parts};
use towline_helper::wire::message::{
    self, Bye, Cancel, Code, Dispatched, Environment, Hello, Open, Outcome, Refusal, Request, STREAMS_MAX,
    Start,
};
use towline_helper::wire::sending::CREDIT_BYTES_START;
use towline_helper::wire::{Endpoint, Event, Frame, FrameError, Kind, PROTOCOL, ProtocolError, Role};

const NOW: Duration = Duration::from_secs(1);

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_parts(kind, flags, stream, payload, &mut out).unwrap();
    out
}

fn control<T: Serialize>(kind: Kind, stream: u32, message: &T) -> Vec<u8> {
    frame(kind, 0, stream, &message::encode("test", message).unwrap())
}

fn hello(protocol: u32) -> Hello {
    Hello {
        protocol,
        version: String::new(),
        sha256: String::new(),
        pid: 1,
        boot_id: String::new(),
        host: String::new(),
        uid: 1,
        home: "/".into(),
        cwd: "/".into(),
        capabilities: Vec::new(),
    }
}

fn start(protocol: u32) -> Start {
    Start { protocol, version: String::new(), environment: Environment::None }
}

fn open(stream: u32) -> Vec<u8> {
    control(Kind::Open, stream, &Open { request: Request::Probe {} })
}

/// A helper that has been started.
fn helper() -> Endpoint {
    let mut helper = Endpoint::new(Role::Helper);
    helper.handle_bytes(NOW, &control(Kind::Start, 0, &start(PROTOCOL))).unwrap();
    helper
}

/// A client that has been greeted and has opened streams 1 and 2.
fn client() -> Endpoint {
    let mut client = Endpoint::new(Role::Client);
    client.handle_bytes(NOW, &control(Kind::Hello, 0, &hello(PROTOCOL))).unwrap();
    client.start(&start(PROTOCOL)).unwrap();
    assert_eq!([1, 2].map(|_| client.open(NOW, Request::Probe {}).unwrap()), [1, 2]);
    drain(&mut client);
    client
}

/// What an endpoint has to send.
fn drain(endpoint: &mut Endpoint) -> Vec<Frame> {
    let mut out = Vec::new();
    endpoint.transmit(NOW, &mut out, usize::MAX);
    let (mut decoder, mut input, mut frames) = (Decoder::default(), out.as_slice(), Vec::new());
    while let Some(frame) = decoder.next_frame(&mut input).unwrap() {
        frames.push(frame);
    }
    frames
}

fn events(endpoint: &mut Endpoint) -> Vec<Event> {
    std::iter::from_fn(|| endpoint.next_event()).collect()
}

/// Feeds bytes that break a rule, and checks that the line is over for good.
fn broken(mut endpoint: Endpoint, bytes: &[u8]) -> ProtocolError {
    let error = endpoint.handle_bytes(NOW, bytes).unwrap_err();
    let pong = frame(Kind::Ping, 0, 0, &[0; 8]);
    assert_eq!(endpoint.handle_bytes(NOW, &pong), Err(error.clone()), "the first error stays");
    error
}

fn unexpected(kind: Kind) -> ProtocolError {
    ProtocolError::Unexpected { kind }
}

#[test]
fn nothing_but_the_greeting_comes_first_and_it_comes_once() {
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]);
    let early =
        [ping, open(1), frame(Kind::Data, 0, 1, b"x"), control(Kind::Cancel, 1, &Cancel { discard: true })];
    for bytes in &early {
        let kind = Decoder::default().next_frame(&mut bytes.as_slice()).unwrap().unwrap().kind;
        assert_eq!(broken(Endpoint::new(Role::Helper), bytes), unexpected(kind));
        assert_eq!(broken(Endpoint::new(Role::Client), bytes), unexpected(kind));
    }
    let (hello, start) =
        (control(Kind::Hello, 0, &hello(PROTOCOL)), control(Kind::Start, 0, &start(PROTOCOL)));
    assert_eq!(broken(helper(), &start), unexpected(Kind::Start));
    assert_eq!(broken(client(), &hello), unexpected(Kind::Hello));
    assert_eq!(broken(Endpoint::new(Role::Helper), &hello), unexpected(Kind::Hello));
    assert_eq!(broken(Endpoint::new(Role::Client), &start), unexpected(Kind::Start));
}

#[test]
fn another_protocol_version_ends_the_line_on_both_ends() {
    for got in [0, PROTOCOL + 1, u32::MAX] {
        let error = ProtocolError::Version { got, ours: PROTOCOL };
        let bytes = control(Kind::Start, 0, &start(got));
        assert_eq!(broken(Endpoint::new(Role::Helper), &bytes), error);
        let bytes = control(Kind::Hello, 0, &hello(got));
        assert_eq!(broken(Endpoint::new(Role::Client), &bytes), error);
    }
}

#[test]
fn a_bye_is_heard_at_any_time() {
    for mut endpoint in [Endpoint::new(Role::Client), Endpoint::new(Role::Helper), helper(), client()] {
        events(&mut endpoint);
        endpoint.handle_bytes(NOW, &control(Kind::Bye, 0, &Bye { reason: "x".into() })).unwrap();
        assert_eq!(events(&mut endpoint), [Event::Bye(Bye { reason: "x".into() })]);
    }
}

#[test]
fn each_end_refuses_what_only_the_other_may_send() {
    for kind in [Kind::Dispatched, Kind::Outcome, Kind::Refusal] {
        assert_eq!(broken(helper(), &frame(kind, 0, 1, b"{}")), unexpected(kind));
    }
    for kind in [Kind::Open, Kind::Cancel, Kind::Resize] {
        assert_eq!(broken(client(), &frame(kind, 0, 1, b"{}")), unexpected(kind));
    }
}

#[test]
fn stream_numbers_only_rise() {
    let mut helper = helper();
    helper.handle_bytes(NOW, &open(5)).unwrap();
    for stream in [5, 4, 1] {
        let mut other = self::helper();
        other.handle_bytes(NOW, &open(5)).unwrap();
        assert_eq!(broken(other, &open(stream)), ProtocolError::Stream { kind: Kind::Open, stream });
    }
    helper.handle_bytes(NOW, &open(u32::MAX)).unwrap();
    assert_eq!(broken(helper, &open(6)), ProtocolError::Stream { kind: Kind::Open, stream: 6 });
}

#[test]
fn frames_of_streams_that_never_were_end_the_line() {
    for (kind, payload) in
        [(Kind::Data, &b"x"[..]), (Kind::Credit, &[0; 4]), (Kind::Cancel, br#"{"discard":true}"#)]
    {
        assert_eq!(broken(helper(), &frame(kind, 0, 1, payload)), ProtocolError::Stream { kind, stream: 1 });
    }
    let outcome = control(Kind::Outcome, 3, &Outcome::Done {});
    assert_eq!(broken(client(), &outcome), ProtocolError::Stream { kind: Kind::Outcome, stream: 3 });
}

#[test]
fn what_crossed_the_end_of_a_stream_is_ignored_by_the_helper_only() {
    let mut helper = helper();
    helper.handle_bytes(NOW, &open(1)).unwrap();
    helper.outcome(1, &Outcome::Done {}).unwrap();
    assert_eq!(drain(&mut helper).last().unwrap().kind, Kind::Outcome);
    events(&mut helper);
    let late = [
        frame(Kind::Data, STDIN | FLAG_ACK, 1, b"late"),
        frame(Kind::Credit, STDOUT, 1, &9u32.to_be_bytes()),
        control(Kind::Cancel, 1, &Cancel { discard: false }),
    ];
    helper.handle_bytes(NOW, &late.concat()).unwrap();
    assert_eq!(events(&mut helper), []);
    // Its bytes count for the acknowledgement all the same, or the client's window would leak.
    assert_eq!(drain(&mut helper).iter().map(|frame| frame.payload[7]).collect::<Vec<_>>(), [4]);

    let outcome = control(Kind::Outcome, 1, &Outcome::Done {});
    for late in [frame(Kind::Data, STDOUT, 1, b"x"), outcome.clone(), frame(Kind::Credit, STDIN, 1, &[0; 4])]
    {
        let mut client = client();
        client.handle_bytes(NOW, &outcome).unwrap();
        assert!(matches!(broken(client, &late), ProtocolError::Stream { stream: 1, .. }));
    }
}

#[test]
fn channels_have_one_direction() {
    let helper = || {
        let mut helper = helper();
        helper.handle_bytes(NOW, &open(1)).unwrap();
        helper
    };
    for (to_helper, channel) in [(true, STDOUT), (true, STDERR), (true, 3), (false, STDIN), (false, 3)] {
        let endpoint = if to_helper { helper() } else { client() };
        let bytes = frame(Kind::Data, channel, 1, b"x");
        assert_eq!(broken(endpoint, &bytes), ProtocolError::Channel { stream: 1, channel });
    }
    for (to_helper, channel) in [(true, STDIN), (true, 3), (false, STDOUT), (false, STDERR), (false, 3)] {
        let endpoint = if to_helper { helper() } else { client() };
        let bytes = frame(Kind::Credit, channel, 1, &[0; 4]);
        assert_eq!(broken(endpoint, &bytes), ProtocolError::Channel { stream: 1, channel });
    }
}

#[test]
fn not_a_byte_above_the_credit_is_taken() {
    let full = |last: usize| {
        let piece = frame(Kind::Data, STDOUT, 1, &[7; 32 << 10]);
        let pieces = CREDIT_BYTES_START as usize / (32 << 10) - 1;
        [piece.repeat(pieces), frame(Kind::Data, STDOUT, 1, &vec![7; last])].concat()
    };
    let mut exact = client();
    exact.handle_bytes(NOW, &full(32 << 10)).unwrap();
    let error = ProtocolError::Credit { stream: 1, channel: STDOUT };
    assert_eq!(broken(exact, &frame(Kind::Data, STDOUT, 1, b"x")), error);
    // Consumed bytes are lent again, in steps that are worth a frame, and can be used then.
    let mut client = client();
    client.handle_bytes(NOW, &full(32 << 10)).unwrap();
    client.consumed(NOW, 1, STDOUT, 10).unwrap();
    assert_eq!(drain(&mut client).iter().filter(|frame| frame.kind == Kind::Credit).count(), 0);
    client.consumed(NOW, 1, STDOUT, 32 << 10).unwrap();
    let credit = drain(&mut client).into_iter().find(|frame| frame.kind == Kind::Credit).unwrap();
    assert_eq!(u32::from_be_bytes(credit.payload.try_into().unwrap()), (32 << 10) + 10);
    client.handle_bytes(NOW, &frame(Kind::Data, STDOUT, 1, &[7; 32 << 10])).unwrap();
}

#[test]
fn credit_that_cannot_be_counted_ends_the_line() {
    let mut helper = helper();
    helper.handle_bytes(NOW, &open(1)).unwrap();
    let most = u32::MAX - CREDIT_BYTES_START as u32;
    helper.handle_bytes(NOW, &frame(Kind::Credit, STDOUT, 1, &most.to_be_bytes())).unwrap();
    let error = ProtocolError::Credit { stream: 1, channel: STDOUT };
    assert_eq!(broken(helper, &frame(Kind::Credit, STDOUT, 1, &1u32.to_be_bytes())), error);
}

#[test]
fn a_channel_that_has_ended_and_frames_without_a_byte_are_refused() {
    let mut ended = client();
    ended.handle_bytes(NOW, &frame(Kind::Data, STDOUT | FLAG_END, 1, b"")).unwrap();
    let error = ProtocolError::AfterEnd { stream: 1, channel: STDOUT };
    assert_eq!(broken(ended, &frame(Kind::Data, STDOUT, 1, b"x")), error);
    assert_eq!(broken(client(), &frame(Kind::Data, STDOUT, 1, b"")), ProtocolError::Empty { stream: 1 });
}

#[test]
fn acknowledgements_of_what_was_not_sent_and_of_less_than_before_are_refused() {
    let ack = |bytes: u64| frame(Kind::Ack, 0, 0, &[bytes.to_be_bytes(), 5u64.to_be_bytes()].concat());
    let sending = || {
        let mut helper = helper();
        helper.handle_bytes(NOW, &open(1)).unwrap();
        helper.send(1, STDOUT, vec![1; 100], false);
        drain(&mut helper);
        helper
    };
    assert_eq!(broken(sending(), &ack(101)), ProtocolError::Ack { acked: 101, sent: 100 });
    let mut helper = sending();
    helper.handle_bytes(NOW, &ack(100)).unwrap();
    assert_eq!(helper.in_flight(), 0);
    helper.handle_bytes(NOW, &ack(100)).unwrap();
    assert_eq!(broken(helper, &ack(99)), ProtocolError::Ack { acked: 99, sent: 100 });
    // A clock of the other end that is anywhere does no harm.
    let mut helper = sending();
    let bytes = [100u64.to_be_bytes(), u64::MAX.to_be_bytes()].concat();
    helper.handle_bytes(Duration::MAX, &frame(Kind::Ack, 0, 0, &bytes)).unwrap();
}

#[test]
fn a_pong_answers_the_oldest_ping_or_ends_the_line() {
    let pong = |nanos: u64| frame(Kind::Pong, 0, 0, &nanos.to_be_bytes());
    let second = 1_000_000_000;
    assert_eq!(broken(helper(), &pong(0)), unexpected(Kind::Pong));
    let pinged = || {
        let mut helper = helper();
        helper.ping(NOW).unwrap();
        helper.ping(NOW * 2).unwrap();
        helper
    };
    assert_eq!(broken(pinged(), &pong(2 * second)), unexpected(Kind::Pong));
    let mut helper = pinged();
    events(&mut helper);
    helper.handle_bytes(NOW * 3, &[pong(second), pong(2 * second)].concat()).unwrap();
    let round_trips = [NOW * 2, NOW].map(|round_trip| Event::Pong { round_trip });
    assert_eq!(events(&mut helper), round_trips);
    assert_eq!(broken(helper, &pong(2 * second)), unexpected(Kind::Pong));
}

#[test]
fn pings_without_answers_do_not_pile_up() {
    let mut helper = helper();
    for second in 0..10_000 {
        helper.ping(NOW * second).unwrap();
    }
    assert_eq!(drain(&mut helper).len(), 64);
}

#[test]
fn requests_for_acknowledgements_share_one_answer() {
    let mut client = client();
    for _ in 0..10_000 {
        client.handle_bytes(NOW, &frame(Kind::Data, STDOUT | FLAG_ACK, 1, b"x")).unwrap();
        events(&mut client);
    }
    let frames = drain(&mut client);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].payload[..8], 10_000u64.to_be_bytes());
}

/// Feeds the same bytes again and again to an endpoint that is never read from, until it has had enough.
fn flood(mut endpoint: Endpoint, mut bytes: impl FnMut(u32) -> Vec<u8>) -> ProtocolError {
    for count in 1..3_000_000 {
        if let Err(error) = endpoint.handle_bytes(NOW, &bytes(count)) {
            return error;
        }
        events(&mut endpoint);
    }
    panic!("the flood was endless");
}

#[test]
fn floods_of_what_needs_an_answer_end_at_the_control_queue() {
    let ping = frame(Kind::Ping, 0, 0, &[0; 8]).repeat(100);
    assert!(matches!(flood(helper(), |_| ping.clone()), ProtocolError::ControlQueue { .. }));
    // Opening more streams than there may be costs no more than the refusals.
    let error = flood(helper(), open);
    assert!(matches!(error, ProtocolError::ControlQueue { most: 8_388_608, .. }), "{error}");
}

#[test]
fn a_stream_over_the_limit_is_refused_and_the_others_go_on() {
    let mut helper = helper();
    for stream in 1..=STREAMS_MAX as u32 + 1 {
        helper.handle_bytes(NOW, &open(stream)).unwrap();
    }
    let opened = events(&mut helper).iter().filter(|event| matches!(event, Event::Open { .. })).count();
    assert_eq!((opened, helper.streams()), (STREAMS_MAX, STREAMS_MAX));
    let frames = drain(&mut helper);
    let refusal = frames.last().unwrap();
    assert_eq!((refusal.kind, refusal.stream), (Kind::Refusal, STREAMS_MAX as u32 + 1));
    let refusal: Refusal = message::parse("refusal", &refusal.payload).unwrap();
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (Code::Busy, "64 streams are open, which is the limit")
    );
    // What its client sent meanwhile is ignored; when one ends, the next may begin.
    helper.handle_bytes(NOW, &frame(Kind::Data, STDIN, STREAMS_MAX as u32 + 1, b"x")).unwrap();
    helper.outcome(7, &Outcome::Done {}).unwrap();
    drain(&mut helper);
    helper.handle_bytes(NOW, &open(STREAMS_MAX as u32 + 2)).unwrap();
    assert!(matches!(events(&mut helper).last(), Some(Event::Open { .. })));
}

#[test]
fn malformed_frames_and_messages_end_the_line_with_their_own_errors() {
    let mut bad = frame(Kind::Ping, 0, 0, &[0; 8]);
    bad[0] = b'X';
    assert_eq!(broken(helper(), &bad), ProtocolError::Frame(FrameError::Magic(*b"XLN1")));
    let error = broken(helper(), &frame(Kind::Open, 0, 1, br#"{"request":{"type":"probe","x":1}}"#));
    assert_eq!(
        error.to_string(),
        "open message is malformed: unknown field `x`, there are no fields at line 1 column 34"
    );
}

#[test]
fn all_before_a_broken_rule_is_delivered_and_nothing_after_it() {
    let mut client = client();
    events(&mut client);
    let dispatched = Dispatched { pid: Some(7), note: None };
    let good = control(Kind::Dispatched, 1, &dispatched);
    let bytes = [good.clone(), frame(Kind::Data, 3, 1, b"x"), good].concat();
    assert!(client.handle_bytes(NOW, &bytes).is_err());
    assert_eq!(events(&mut client), [Event::Dispatched { stream: 1, dispatched }]);
}

#[test]
fn a_stream_ends_once_and_takes_nothing_after_its_end() {
    let mut helper = helper();
    helper.handle_bytes(NOW, &open(1)).unwrap();
    helper.send(1, STDOUT, vec![1; 10], false);
    helper.outcome(1, &Outcome::Done {}).unwrap();
    assert_eq!(helper.room(1, STDOUT), 0);
    helper.send(1, STDOUT, vec![2; 10], false);
    helper.outcome(1, &Outcome::List { entries: 1 }).unwrap();
    let frames = drain(&mut helper);
    let kinds: Vec<Kind> = frames.iter().map(|frame| frame.kind).filter(|kind| *kind != Kind::Ping).collect();
    assert_eq!(kinds, [Kind::Data, Kind::Outcome]);
    assert_eq!(frames.last().unwrap().payload, br#"{"type":"done"}"#);
    assert_eq!(helper.streams(), 0);
    assert!(!helper.has_work());
}

#[test]
fn a_discarding_cancel_drops_what_waits_and_what_still_comes() {
    let mut client = client();
    client.send(1, STDIN, vec![1; 1000], true);
    client.cancel(1, true).unwrap();
    assert_eq!((client.queued(1, STDIN), client.room(1, STDIN)), (0, 0));
    events(&mut client);
    client.handle_bytes(NOW, &frame(Kind::Data, STDOUT, 1, &[7; 32 << 10]).repeat(8)).unwrap();
    assert_eq!(events(&mut client), []);
    // Dropped bytes are lent again, so that the helper is never stuck with a stream that nobody reads.
    let lent: u32 = drain(&mut client)
        .iter()
        .filter(|frame| frame.kind == Kind::Credit)
        .map(|frame| u32::from_be_bytes(frame.payload.as_slice().try_into().unwrap()))
        .sum();
    assert!(u64::from(lent) >= CREDIT_BYTES_START, "{lent}");

    let mut helper = helper();
    helper.handle_bytes(NOW, &open(1)).unwrap();
    helper.send(1, STDOUT, vec![1; 1000], false);
    helper.handle_bytes(NOW, &control(Kind::Cancel, 1, &Cancel { discard: true })).unwrap();
    helper.send(1, STDOUT, vec![1; 1000], false);
    helper.outcome(1, &Outcome::Done {}).unwrap();
    assert_eq!(drain(&mut helper).iter().map(|frame| frame.kind).collect::<Vec<_>>(), [Kind::Outcome]);
}
