//! The relay between two clients and a scripted helper, without sockets or time.

use towline_helper::wire::endpoint::STDIN;
use towline_helper::wire::message::{Dispatched, Environment, Outcome, Program, Start};
use towline_helper::wire::{ByteText, PROTOCOL};

use super::*;

const NOW: Duration = Duration::from_secs(1);

/// The relay, its clients by number, and the helper's end.
struct World {
    relay: Relay,
    clients: BTreeMap<ClientId, Endpoint>,
    helper: Endpoint,
    /// What the helper and each client were told.
    at_helper: Vec<Event>,
    at_client: BTreeMap<ClientId, Vec<Event>>,
    /// Clients that read nothing.
    stalled: Vec<ClientId>,
    gate_open: bool,
}

fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: "1".to_owned(),
        sha256: "ab".to_owned(),
        pid: 7,
        boot_id: "b".to_owned(),
        host: "node".to_owned(),
        uid: 1,
        home: "/home/u".into(),
        cwd: "/home/u".into(),
        capabilities: Vec::new(),
    }
}

fn start() -> Start {
    Start { protocol: PROTOCOL, version: "1".to_owned(), environment: Environment::None }
}

impl World {
    fn new(clients: u64) -> World {
        let (mut line, mut helper) = (Endpoint::new(Role::Client), Endpoint::new(Role::Helper));
        helper.hello(&hello()).unwrap();
        let mut bytes = Vec::new();
        helper.transmit(NOW, &mut bytes, 1 << 20);
        line.handle_bytes(NOW, &bytes).unwrap();
        assert!(matches!(line.next_event(), Some(Event::Hello(_))));
        line.start(&start()).unwrap();
        let mut world = World {
            relay: Relay::new(line, hello()),
            clients: BTreeMap::new(),
            helper,
            at_helper: Vec::new(),
            at_client: BTreeMap::new(),
            stalled: Vec::new(),
            gate_open: true,
        };
        for id in 1..=clients {
            let mut client = Endpoint::new(Role::Client);
            client.start(&start()).unwrap();
            world.clients.insert(id, client);
            world.relay.add(id).unwrap();
        }
        world.run();
        world
    }

    /// Moves bytes until nothing moves any more. Whatever a client or the helper gets, it keeps unread.
    fn run(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            let client = self.clients.get_mut(&id).unwrap();
            let mut bytes = Vec::new();
            client.transmit(NOW, &mut bytes, 64 << 10);
            if !bytes.is_empty() {
                moved = true;
                self.relay.handle_client_bytes(NOW, id, &bytes).unwrap();
            }
            if !self.stalled.contains(&id) {
                let mut bytes = Vec::new();
                self.relay.transmit_client(NOW, id, &mut bytes, 64 << 10);
                moved |= !bytes.is_empty();
                let client = self.clients.get_mut(&id).unwrap();
                client.handle_bytes(NOW, &bytes).unwrap();
                while let Some(event) = client.next_event() {
                    self.at_client.entry(id).or_default().push(event);
                }
            }
        }
        while self.gate_open
            && let Some(pending) = self.relay.next_pending()
        {
            self.relay.admit(NOW, pending.client, pending.stream).unwrap();
        }
        let mut bytes = Vec::new();
        self.relay.transmit_line(NOW, &mut bytes, 64 << 10);
        moved |= !bytes.is_empty();
        self.helper.handle_bytes(NOW, &bytes).unwrap();
        while let Some(event) = self.helper.next_event() {
            self.at_helper.push(event);
        }
        let mut bytes = Vec::new();
        self.helper.transmit(NOW, &mut bytes, 64 << 10);
        moved |= !bytes.is_empty();
        assert_eq!(self.relay.handle_line_bytes(NOW, &bytes).unwrap(), None);
        moved
    }

    fn open(&mut self, client: ClientId, word: &str) -> u32 {
        self.clients.get_mut(&client).unwrap().open(NOW, exec(word)).unwrap()
    }

    /// The helper's number of the stream that runs `word`.
    fn helper_stream(&self, word: &str) -> Option<u32> {
        self.at_helper.iter().find_map(|event| match event {
            Event::Open { stream, request } if **request == exec(word) => Some(*stream),
            _ => None,
        })
    }

    /// The bytes that a client has got on a stream's channel.
    fn got(&self, client: ClientId, stream: u32, channel: u8) -> Vec<u8> {
        data(self.at_client.get(&client).map_or(&[], Vec::as_slice), stream, channel)
    }

    fn refusals(&self, client: ClientId) -> Vec<Code> {
        let events = self.at_client.get(&client).map_or(&[][..], Vec::as_slice);
        let code = |event: &Event| match event {
            Event::Refusal { refusal, .. } => Some(refusal.code),
            _ => None,
        };
        events.iter().filter_map(code).collect()
    }
}

fn data(events: &[Event], of: u32, on: u8) -> Vec<u8> {
    let mut all = Vec::new();
    for event in events {
        if let Event::Data { stream, channel, bytes, .. } = event
            && (*stream, *channel) == (of, on)
        {
            all.extend_from_slice(bytes);
        }
    }
    all
}

fn exec(word: &str) -> Request {
    let argv = Program::Argv(vec![ByteText::from(word)]);
    Request::Exec(towline_helper::wire::message::Exec {
        command: argv,
        cwd: None,
        env: Vec::new(),
        deadline_ms: None,
        stdin: true,
        detach: false,
        end_background: false,
        keep: None,
    })
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..=250_u8).cycle().take(length).map(|byte| byte ^ seed).collect()
}

#[test]
fn two_clients_share_the_line_and_each_gets_exactly_its_own_bytes() {
    let mut world = World::new(2);
    let (one, other) = (world.open(1, "a"), world.open(2, "b"));
    // Both number their streams from one; the line keeps them apart.
    assert_eq!(one, other);
    world.clients.get_mut(&1).unwrap().send(one, STDIN, pattern(100_000, 1), true);
    world.run();
    let (a, b) = (world.helper_stream("a").unwrap(), world.helper_stream("b").unwrap());
    assert_ne!(a, b);
    assert_eq!(data(&world.at_helper, a, STDIN), pattern(100_000, 1));
    for (stream, seed) in [(a, 2), (b, 3)] {
        world.helper.dispatched(stream, &Dispatched { pid: Some(9), note: None }).unwrap();
        world.helper.send(stream, STDOUT, pattern(60_000, seed), true);
        world.helper.send(stream, STDERR, pattern(50, seed), true);
        world.helper.outcome(stream, &Outcome::Done {}).unwrap();
    }
    world.run();
    for (client, seed) in [(1, 2), (2, 3)] {
        assert_eq!(world.got(client, one, STDOUT), pattern(60_000, seed));
        assert_eq!(world.got(client, one, STDERR), pattern(50, seed));
        let ended = |event: &Event| matches!(event, Event::Outcome { .. });
        assert_eq!(world.at_client[&client].iter().filter(|event| ended(event)).count(), 1);
    }
    assert_eq!(world.relay.streams(), 0);
}

#[test]
fn a_client_that_leaves_has_its_streams_cancelled_and_nobody_elses() {
    let mut world = World::new(2);
    world.open(1, "a");
    let kept = world.open(2, "b");
    world.run();
    world.relay.remove(1).unwrap();
    world.clients.remove(&1);
    world.run();
    let (a, b) = (world.helper_stream("a").unwrap(), world.helper_stream("b").unwrap());
    let cancelled: Vec<u32> = world
        .at_helper
        .iter()
        .filter_map(|event| match event {
            Event::Cancel { stream, discard: true } => Some(*stream),
            _ => None,
        })
        .collect();
    assert_eq!(cancelled, [a]);
    // What the helper still sends for it goes nowhere, and the other stream goes on.
    world.helper.send(a, STDOUT, pattern(10_000, 1), true);
    world.helper.outcome(a, &Outcome::Done {}).unwrap();
    world.helper.send(b, STDOUT, b"alive".to_vec(), true);
    world.run();
    assert_eq!(world.got(2, kept, STDOUT), b"alive");
    assert_eq!(world.relay.streams(), 1);
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_from_the_line_and_harms_nobody() {
    let mut world = World::new(2);
    let kept = world.open(2, "b");
    world.run();
    let broken = world.relay.handle_client_bytes(NOW, 1, &[0xff; 64]);
    assert!(matches!(broken, Err(ClientError::Client(_))), "{broken:?}");
    world.relay.remove(1).unwrap();
    world.clients.remove(&1);
    let b = world.helper_stream("b").unwrap();
    world.helper.send(b, STDOUT, b"alive".to_vec(), true);
    world.run();
    assert_eq!(world.got(2, kept, STDOUT), b"alive");
}

#[test]
fn a_client_that_does_not_read_holds_back_only_its_own_stream() {
    let mut world = World::new(2);
    let (slow, quick) = (world.open(1, "slow"), world.open(2, "quick"));
    world.run();
    world.stalled.push(1);
    let (a, b) = (world.helper_stream("slow").unwrap(), world.helper_stream("quick").unwrap());
    let more = 3 << 20;
    world.helper.send(a, STDOUT, pattern(more, 1), true);
    world.helper.send(b, STDOUT, pattern(more, 2), true);
    // The quick client uses what it gets, the slow one gets nothing.
    for _ in 0..64 {
        world.run();
        let got = world.got(2, quick, STDOUT).len();
        world.clients.get_mut(&2).unwrap().consumed(NOW, quick, STDOUT, got).unwrap();
    }
    assert_eq!(world.got(2, quick, STDOUT), pattern(more, 2));
    // No more has left the helper for the slow one than a fresh stream's credit.
    assert_eq!(more - world.helper.queued(a, STDOUT), 256 << 10);
    assert_eq!(world.got(1, slow, STDOUT), b"");
    world.stalled.clear();
    for _ in 0..64 {
        world.run();
        let got = world.got(1, slow, STDOUT).len();
        world.clients.get_mut(&1).unwrap().consumed(NOW, slow, STDOUT, got).unwrap();
    }
    assert_eq!(world.got(1, slow, STDOUT), pattern(more, 1));
}

#[test]
fn a_stream_waits_for_the_gate_and_what_leaves_or_is_cancelled_meanwhile_never_runs() {
    let mut world = World::new(3);
    world.gate_open = false;
    let (denied, gone, cancelled) =
        (world.open(1, "denied"), world.open(2, "gone"), world.open(3, "cancelled"));
    world.clients.get_mut(&1).unwrap().send(denied, STDIN, b"early".to_vec(), true);
    world.run();
    assert_eq!(world.relay.next_pending().map(|pending| pending.client), Some(1));
    assert_eq!(world.relay.streams(), 0);
    world.relay.remove(2).unwrap();
    world.clients.get_mut(&3).unwrap().cancel(cancelled, false).unwrap();
    world.clients.remove(&2);
    world.run();
    world.relay.deny(1, denied, &refusal(Code::PolicyDenied, "no".to_owned()));
    // The gate's late word about streams that are over has no effect.
    world.relay.admit(NOW, 2, gone).unwrap();
    world.relay.admit(NOW, 3, cancelled).unwrap();
    world.gate_open = true;
    world.run();
    assert_eq!(world.refusals(1), [Code::PolicyDenied]);
    assert_eq!(world.refusals(3), [Code::Cancelled]);
    assert!(["denied", "gone", "cancelled"].iter().all(|word| world.helper_stream(word).is_none()));
    // Bytes that came before the word go along with the stream.
    let late = world.open(1, "late");
    world.clients.get_mut(&1).unwrap().send(late, STDIN, b"early".to_vec(), true);
    world.run();
    assert_eq!(data(&world.at_helper, world.helper_stream("late").unwrap(), STDIN), b"early");
}

#[test]
fn a_client_with_many_streams_does_not_keep_another_from_its_first() {
    let mut world = World::new(2);
    world.gate_open = false;
    for at in 0..STREAMS_MAX {
        world.open(1, &format!("many {at}"));
    }
    world.run();
    for _ in 0..40 {
        let pending = world.relay.next_pending().unwrap();
        world.relay.admit(NOW, pending.client, pending.stream).unwrap();
    }
    world.open(2, "first");
    world.run();
    assert_eq!(world.relay.next_pending().map(|pending| pending.client), Some(2));
    // At most 64 streams are on the line; the last one waits for a place.
    world.gate_open = true;
    world.run();
    assert_eq!((world.relay.streams(), world.relay.next_pending()), (STREAMS_MAX, None));
    let over = world.helper_stream("many 0").unwrap();
    world.helper.outcome(over, &Outcome::Done {}).unwrap();
    world.run();
    assert_eq!(world.relay.streams(), STREAMS_MAX);
    assert!(world.helper_stream("many 63").is_some());
    assert!(world.helper_stream("first").is_some());
}

#[test]
fn an_ended_line_tells_what_was_done_from_what_was_not() {
    let mut world = World::new(1);
    world.open(1, "runs");
    world.run();
    world.gate_open = false;
    world.open(1, "waits");
    world.run();
    world.relay.end("stopped");
    world.run();
    assert_eq!(world.refusals(1), [Code::NotConnected]);
    assert!(
        world.at_client[&1].iter().any(|event| matches!(event, Event::Bye(bye) if bye.reason == "stopped"))
    );
}
