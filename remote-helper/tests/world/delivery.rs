//! What is sent arrives: every byte, in order, its end after it, and the outcome after all of them.

use std::time::Duration;

use towline_helper::wire::Kind;
use towline_helper::wire::endpoint::{STDERR, STDIN, STDOUT};
use towline_helper::wire::frame::Decoder;
use towline_helper::wire::sending::CREDIT_BYTES_START;

use super::chance::{Chance, in_worlds};
use super::jobs::{Job, Pace};
use super::link::LinkSpec;
use super::sim::{CLIENT, HELPER, Stop, World};

const LONG: Duration = Duration::from_secs(3600);

fn any_link(chance: &mut Chance) -> LinkSpec {
    let rates = [20_000, 200_000, 2_000_000, 10_000_000, 100_000_000, 1_000_000_000];
    let round_trips = [0, 100, 1_000, 20_000, 100_000, 400_000];
    let buffers = [1 << 10, 8 << 10, 64 << 10, 512 << 10, 2 << 20, 16 << 20];
    LinkSpec {
        latency: Duration::from_micros(round_trips[chance.within(0, 5) as usize] / 2),
        jitter: if chance.happens(30) { Duration::from_millis(5) } else { Duration::ZERO },
        rate: rates[chance.within(0, 5) as usize],
        buffer: buffers[chance.within(0, 5) as usize],
        window: chance.happens(30).then(|| buffers[chance.within(1, 5) as usize]),
    }
}

fn any_pace(chance: &mut Chance) -> Pace {
    if chance.happens(50) {
        return Pace::FAST;
    }
    let bytes = 1 + chance.magnitude(256 << 10);
    // Tiny pieces come without long pauses, or the world would take days.
    let pause = if bytes < 64 { Duration::from_micros(200) } else { Duration::from_millis(1500) };
    Pace { bytes, pause: chance.time(pause), stops_at: u64::MAX }
}

fn any_job(chance: &mut Chance) -> Job {
    let totals = std::array::from_fn(|_| if chance.happens(30) { 0 } else { chance.magnitude(3 << 20) });
    let mut job = Job::new(chance.time(Duration::from_secs(5)), totals);
    for flow in &mut job.flows {
        (flow.writes, flow.reads) = (any_pace(chance), any_pace(chance));
        if flow.total > 200_000 {
            (flow.writes.bytes, flow.reads.bytes) = (flow.writes.bytes.max(1000), flow.reads.bytes.max(1000));
        }
        flow.ends = chance.happens(90);
    }
    // The helper knows by its end that all of its input has come.
    job.flows[usize::from(STDIN)].ends = true;
    job
}

/// A random world in which nobody cancels and nothing is lost.
fn any_world(seed: u64) -> World {
    let mut chance = Chance::new(seed);
    let mut world = World::new(seed, any_link(&mut chance), any_link(&mut chance));
    for _ in 0..chance.within(1, 8) {
        world.jobs.push(any_job(&mut chance));
    }
    world.jobs.sort_by_key(|job| job.open_at);
    world
}

fn assert_all_arrived(job: &Job) {
    assert!(job.outcome_at.is_some(), "no outcome: {job:?}");
    for flow in &job.flows {
        assert_eq!(flow.received, flow.total, "bytes of {job:?}");
        assert_eq!(flow.end_received, flow.ends, "end of {job:?}");
    }
}

#[test]
fn what_is_sent_arrives_byte_for_byte_and_its_end_after_it() {
    in_worlds(300, |seed| {
        let mut world = any_world(seed);
        assert_eq!(world.run(LONG * 100), Stop::Quiet);
        world.jobs.iter().for_each(assert_all_arrived);
        for end in &world.ends {
            assert_eq!((end.endpoint.streams(), end.endpoint.in_flight()), (0, 0));
        }
    });
}

#[test]
fn an_end_behind_a_full_window_and_a_slow_reader_does_not_overtake_the_data() {
    // Case 53 of the field: 5 MiB, the command exits at once, the reader is slow, the window is full.
    let link = LinkSpec::new(Duration::from_millis(40), 50_000_000, 64 << 10);
    let mut world = World::new(0, link, link);
    let mut job = Job::new(Duration::ZERO, [0, 5 << 20, 100]);
    job.flows[usize::from(STDOUT)].reads =
        Pace { bytes: 10_000, pause: Duration::from_millis(3), stops_at: u64::MAX };
    world.jobs.push(job);
    assert_eq!(world.run(LONG), Stop::Quiet);
    assert_all_arrived(&world.jobs[0]);
}

#[test]
fn a_cancel_at_any_step_ends_its_stream_and_harms_no_other() {
    in_worlds(200, |seed| {
        let mut world = any_world(seed);
        let mut chance = Chance::new(!seed);
        for job in &mut world.jobs {
            if chance.happens(60) {
                job.cancel_at = Some(job.open_at + chance.time(Duration::from_secs(3)));
                job.discard = chance.happens(50);
            }
            // Somebody who reads no more usually cancels; without a cancel all must still come.
            if job.cancel_at.is_some() && chance.happens(30) {
                let flow = &mut job.flows[chance.within(0, 2) as usize];
                (flow.reads.stops_at, flow.writes.stops_at) = (chance.magnitude(1 << 20), u64::MAX);
            }
        }
        // Bytes that a stopped reader leaves would keep its stream from ending without a discard.
        for job in
            world.jobs.iter_mut().filter(|job| job.flows.iter().any(|flow| flow.reads.stops_at < u64::MAX))
        {
            job.discard = true;
        }
        assert_eq!(world.run(LONG * 100), Stop::Quiet);
        for job in &world.jobs {
            assert!(job.outcome_at.is_some(), "no outcome: {job:?}");
            if !job.cancelled {
                assert_all_arrived(job);
            }
        }
        assert_eq!(world.ends[HELPER].endpoint.streams(), 0);
        assert_eq!(world.ends[CLIENT].endpoint.streams(), 0);
    });
}

#[test]
fn a_line_lost_at_any_byte_delivers_a_prefix_and_never_panics() {
    in_worlds(300, |seed| {
        let mut world = any_world(seed);
        let mut chance = Chance::new(!seed);
        let side = chance.within(0, 1) as usize;
        world.links[side].lost_at = Some(chance.magnitude(4 << 20));
        world.run(LONG * 100);
        // That the bytes are the right ones has been checked on arrival.
        for job in world.jobs.iter().filter(|job| job.outcome_at.is_some()) {
            assert_all_arrived(job);
        }
    });
}

#[test]
fn a_reader_that_stops_holds_only_its_own_stream() {
    in_worlds(60, |seed| {
        let mut world = any_world(seed);
        let mut chance = Chance::new(!seed);
        let mut stuck = Job::new(Duration::ZERO, [3 << 20, 80 << 20, 0]);
        stuck.flows[usize::from(chance.within(0, 1) as u8)].reads.stops_at = chance.magnitude(1 << 20);
        world.jobs.insert(0, stuck);
        // Nothing else can happen once the others are through.
        assert_eq!(world.run(LONG * 100), Stop::Quiet);
        assert!(world.jobs[0].outcome_at.is_none());
        world.jobs[1..].iter().for_each(assert_all_arrived);
    });
}

#[test]
fn streams_that_want_to_send_get_equal_shares() {
    let link = LinkSpec::new(Duration::from_millis(10), 20_000_000, 2 << 20);
    let mut world = World::new(0, link, link);
    world.jobs = (0..4).map(|_| Job::new(Duration::ZERO, [u64::MAX; 3])).collect();
    // One that writes in small pieces must not get ahead by that.
    world.jobs[3].flows[usize::from(STDOUT)].writes.bytes = 3000;
    assert_eq!(world.run(Duration::from_secs(10)), Stop::Deadline);
    for channel in [STDIN, STDOUT, STDERR] {
        let received = |job: &Job| job.flows[usize::from(channel)].received;
        let shares: Vec<u64> = world.jobs.iter().map(received).collect();
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(*most as f64 <= 1.3 * *least as f64, "channel {channel}: {shares:?}");
    }
}

#[test]
fn what_readers_leave_unread_is_bounded_whatever_they_do() {
    // A fat link, so that windows grow to their bounds before the readers stop.
    let link = LinkSpec::new(Duration::from_millis(20), 1_000_000_000, 4 << 20);
    let mut world = World::new(0, link, link);
    let most = 6;
    world.held_most = [most * 2 * CREDIT_BYTES_START + (40 << 20), most * CREDIT_BYTES_START + (4 << 20)];
    let mut fullest = 0;
    for _ in 0..most {
        let mut job = Job::new(world.now, [u64::MAX; 3]);
        job.flows.iter_mut().for_each(|flow| flow.reads.stops_at = 64 << 20);
        world.jobs.push(job);
        world.run(world.now + Duration::from_secs(3));
        let held = |job: &Job| job.flows[usize::from(STDOUT)].held() + job.flows[usize::from(STDERR)].held();
        fullest = fullest.max(world.jobs.iter().map(held).sum::<u64>());
        // A sip shrinks the window of a reader that had stalled, but what was lent is memory that is spoken for:
        // the next stream must not get it too.
        for flow in world.jobs.iter_mut().flat_map(|job| &mut job.flows) {
            (flow.reads.bytes, flow.reads.stops_at) = (100, flow.consumed + 100);
        }
    }
    assert!(fullest > 30 << 20, "the readers should have been full: {fullest}");
}

#[test]
fn a_reader_that_pauses_for_seconds_is_lent_little() {
    let link = LinkSpec::new(Duration::from_millis(1), 10_000_000, 2 << 20);
    let mut world = World::new(0, link, link);
    let mut job = Job::new(Duration::ZERO, [0, u64::MAX, 0]);
    job.flows[usize::from(STDOUT)].reads =
        Pace { bytes: 20_000, pause: Duration::from_millis(1500), stops_at: u64::MAX };
    world.jobs.push(job);
    world.run(Duration::from_secs(1));
    assert!(world.jobs[0].flows[usize::from(STDOUT)].held() > 200 << 10);
    world.run(Duration::from_secs(60));
    assert!(world.jobs[0].flows[usize::from(STDOUT)].held() <= 64 << 10);
}

#[test]
fn small_pieces_go_ahead_of_bulk_but_not_for_ever() {
    let link = LinkSpec::new(Duration::from_millis(10), 50_000_000, 1 << 20);
    let mut world = World::new(0, link, link);
    world.jobs = (0..2).map(|_| Job::new(Duration::ZERO, [0, u64::MAX, 0])).collect();
    world.jobs.iter_mut().for_each(|job| job.flows[usize::from(STDOUT)].writes.stops_at = 0);
    world.run(Duration::from_millis(100));
    let now = world.now;
    let helper = &mut world.ends[HELPER].endpoint;
    helper.send(1, STDOUT, vec![0; 128 << 10], false);
    let mut frames = Vec::new();
    for _ in 0..8 {
        // Somebody who writes again as soon as the last piece has left.
        if helper.queued(2, STDOUT) == 0 {
            helper.send(2, STDOUT, vec![0; 3000], false);
        }
        let mut out = Vec::new();
        helper.transmit(now, &mut out, 1);
        let mut input = out.as_slice();
        let mut decoder = Decoder::default();
        frames.extend(std::iter::from_fn(|| decoder.next_frame(&mut input).unwrap()));
    }
    frames.retain(|frame| frame.kind == Kind::Data);
    let streams: Vec<u32> = frames.iter().map(|frame| frame.stream).collect();
    assert_eq!(streams[..2], [2, 1], "the small piece goes ahead, then bulk has its turn: {streams:?}");
    assert!(streams.windows(3).all(|three| three.contains(&1)), "{streams:?}");
}

#[test]
fn a_control_frame_goes_ahead_of_all_bulk_that_waits() {
    let link = LinkSpec::new(Duration::from_millis(10), 1_000_000, 16 << 10);
    let mut world = World::new(0, link, link);
    world.jobs.push(Job::new(Duration::ZERO, [0, u64::MAX, u64::MAX]));
    world.run(Duration::from_secs(2));
    let now = world.now;
    let helper = &mut world.ends[HELPER].endpoint;
    assert!(helper.queued(1, STDOUT) > 0 && helper.queued(1, STDERR) > 0);
    helper.ping(now).unwrap();
    let mut out = Vec::new();
    helper.transmit(now, &mut out, 1);
    let frame = Decoder::default().next_frame(&mut out.as_slice()).unwrap().unwrap();
    assert!(matches!(frame.kind, Kind::Ping | Kind::Ack | Kind::Credit), "{:?} came first", frame.kind);
}
