//! What the window achieves on links of several kinds: the share of the link's rate that bulk gets, and what a small
//! command waits for meanwhile.
//!
//! The table of `docs/wire.md`:
//! `cargo test -p towline-helper --test world the_window -- --nocapture --test-threads 1`

use std::time::Duration;

use super::chance::Chance;
use super::jobs::{Flow, Job, Pace};
use super::link::LinkSpec;
use super::sim::{HELPER, World};

const MS: Duration = Duration::from_millis(1);
const MB: u64 = 1_000_000;

/// Which direction carries bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bulk {
    Down,
    Up,
    Both,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    bulk: Bulk,
    round_trip: Duration,
    rate: u64,
    buffer: usize,
    jitter: Duration,
}

impl Case {
    const fn new(name: &'static str, bulk: Bulk, round_trip: Duration, rate: u64, buffer: usize) -> Self {
        Case { name, bulk, round_trip, rate, buffer, jitter: Duration::ZERO }
    }

    fn spec(&self) -> LinkSpec {
        LinkSpec { jitter: self.jitter, ..LinkSpec::new(self.round_trip, self.rate, self.buffer) }
    }

    /// The world of this case; what the SSH channel's windows allow is part of it.
    fn world(&self) -> World {
        let up = LinkSpec { window: Some(2 << 20), ..self.spec() };
        let down = LinkSpec { window: Some(64 << 20), ..self.spec() };
        let mut world = World::new(1, up, down);
        world.refereed = false;
        world
    }

    /// Bytes a second that a direction could carry at best.
    fn limit(&self, channel: usize) -> f64 {
        let window = if channel == 0 { 2 << 20 } else { 32 << 20 };
        (self.rate as f64).min(f64::from(window) / self.round_trip.as_secs_f64())
    }
}

#[derive(Debug)]
struct Row {
    /// Share of what the link could carry at best, after the ramp: up and down.
    share: [Option<f64>; 2],
    /// Milliseconds of a small command on the idle line: median.
    idle: f64,
    /// While bulk moves: median and 95th percentile.
    busy: [f64; 2],
    /// Seconds until nine tenths of the final rate.
    ramp: f64,
    /// Most bytes in flight after the ramp.
    flight: u64,
}

/// A command with a line of output, such as an agent sends all the time.
fn small_command(at: Duration) -> Job {
    Job::new(at, [0, 100, 0])
}

fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

fn delays(world: &World, from: Duration) -> Vec<f64> {
    let small = |job: &&Job| job.flows[1].total == 100 && job.open_at >= from;
    let delay = |job: &Job| Some((job.outcome_at? - job.opened_at).as_secs_f64() * 1000.0);
    world.jobs.iter().filter(small).filter_map(delay).collect()
}

/// Runs small commands alone, then with bulk for `busy`, and measures both.
fn measure(case: &Case, busy: Duration) -> Row {
    let mut world = case.world();
    let mut chance = Chance::new(3);
    let idle = Duration::from_secs(2);
    let mut at = Duration::from_millis(10);
    while at < idle + busy {
        world.jobs.push(small_command(at));
        at += Duration::from_millis(10) + chance.time(busy / 100);
    }
    world.run(idle);
    let idle_delay = percentile(&mut delays(&world, Duration::ZERO), 50);
    let endless = |on: bool| Flow::new(if on { u64::MAX } else { 0 });
    let mut bulk = Job::new(idle, [0; 3]);
    bulk.flows[0] = endless(case.bulk != Bulk::Down);
    bulk.flows[1] = endless(case.bulk != Bulk::Up);
    bulk.flows[2].ends = false;
    bulk.flows[2].total = u64::from(case.bulk == Bulk::Up);
    bulk.flows[2].writes.stops_at = 0;
    // In front, for the world skips what is over from the front.
    let number = world.jobs.len();
    world.jobs.push(bulk);
    let slices = 100;
    let mut received = vec![[0; 2]];
    let mut flight = 0;
    for slice in 1..=slices {
        world.run(idle + busy * slice / slices);
        received.push([0, 1].map(|channel| world.jobs[number].flows[channel].received));
        if slice > slices / 2 {
            flight = flight.max(world.ends.iter().map(|end| end.endpoint.in_flight()).max().unwrap());
        }
    }
    let slice_s = busy.as_secs_f64() / f64::from(slices);
    let half = received.len() / 2;
    let rate = |channel: usize, from: usize, to: usize| {
        (received[to][channel] - received[from][channel]) as f64 / ((to - from) as f64 * slice_s)
    };
    let share = [0, 1].map(|channel| {
        let on = world.jobs[number].flows[channel].total == u64::MAX;
        on.then(|| rate(channel, half, slices as usize) / case.limit(channel))
    });
    let main = usize::from(case.bulk != Bulk::Up);
    let last = rate(main, half, slices as usize);
    let ramp = (1..=slices as usize).find(|slice| rate(main, slice - 1, *slice) >= 0.9 * last).unwrap();
    let mut late = delays(&world, idle + busy / 2);
    let busy = [percentile(&mut late, 50), percentile(&mut late, 95)];
    Row { share, idle: idle_delay, busy, ramp: ramp as f64 * slice_s, flight }
}

fn print(case: &Case, row: &Row) {
    let share = |share: Option<f64>| share.map_or("–".to_owned(), |share| format!("{share:.2}"));
    let [up, down] = row.share.map(share);
    println!(
        "| {} | {:?} | {up} | {down} | {:.2} | {:.2} | {:.2} | ×{:.1} | {:.2} | {} |",
        case.name,
        case.bulk,
        row.idle,
        row.busy[0],
        row.busy[1],
        row.busy[1] / row.idle,
        row.ramp,
        row.flight >> 10
    );
}

const CASES: [Case; 16] = [
    Case::new("loopback: 0.1 ms, 2 GB/s", Bulk::Down, Duration::from_micros(100), 2000 * MB, 2 << 20),
    Case::new("loopback: 0.1 ms, 2 GB/s", Bulk::Up, Duration::from_micros(100), 2000 * MB, 2 << 20),
    Case::new("loopback: 0.1 ms, 2 GB/s", Bulk::Both, Duration::from_micros(100), 2000 * MB, 2 << 20),
    Case::new("LAN: 0.5 ms, 120 MB/s", Bulk::Down, Duration::from_micros(500), 120 * MB, 2 << 20),
    Case::new("LAN: 0.5 ms, 120 MB/s", Bulk::Both, Duration::from_micros(500), 120 * MB, 2 << 20),
    Case::new("20 ms, 10 MB/s", Bulk::Down, Duration::from_millis(20), 10 * MB, 2 << 20),
    Case::new("20 ms, 10 MB/s", Bulk::Up, Duration::from_millis(20), 10 * MB, 2 << 20),
    Case::new("20 ms, 10 MB/s", Bulk::Both, Duration::from_millis(20), 10 * MB, 2 << 20),
    Case::new("20 ms, 10 MB/s, 16 MiB of buffer", Bulk::Down, Duration::from_millis(20), 10 * MB, 16 << 20),
    Case::new("40 ms, 2 MB/s", Bulk::Down, Duration::from_millis(40), 2 * MB, 2 << 20),
    Case::new("40 ms, 2 MB/s", Bulk::Both, Duration::from_millis(40), 2 * MB, 2 << 20),
    Case::new("40 ms, 2 MB/s, 64 KiB of buffer", Bulk::Down, Duration::from_millis(40), 2 * MB, 64 << 10),
    Case::new("60 ms, 0.2 MB/s", Bulk::Down, Duration::from_millis(60), MB / 5, 2 << 20),
    Case::new("100 ms, 100 MB/s", Bulk::Down, Duration::from_millis(100), 100 * MB, 4 << 20),
    Case::new("100 ms, 1 GB/s", Bulk::Down, Duration::from_millis(100), 1000 * MB, 4 << 20),
    Case::new("100 ms, 1 GB/s", Bulk::Up, Duration::from_millis(100), 1000 * MB, 4 << 20),
];

#[test]
fn the_window_fills_links_and_keeps_small_commands_fast() {
    println!(
        "| link | bulk | share up | share down | idle ms | busy p50 | busy p95 | p95/idle | ramp s | KiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for case in &CASES {
        let long = match (case.rate, case.round_trip) {
            (500_000_000.., short) if short < MS => MS * 200,
            (500_000_000.., _) => MS * 3000,
            _ => MS * 6000,
        };
        let row = measure(case, long);
        print(case, &row);
        let target = case.round_trip.as_secs_f64() * 1000.0;
        let target = target.clamp(1.0, 20.0);
        if case.bulk == Bulk::Both {
            // Acknowledgements that queue behind the other direction's bulk gather ours in clumps; see docs/wire.md.
            assert!(row.share.iter().flatten().sum::<f64>() >= 1.3, "{case:?} {row:?}");
            assert!(row.busy[1] <= row.idle + 3.0 * target, "{case:?} {row:?}");
        } else {
            assert!(row.share.iter().flatten().all(|share| *share >= 0.9), "{case:?} {row:?}");
            // A frame of 4 KiB takes long on the slowest link.
            let frames = 2.0 * 4096.0 / case.rate as f64 * 1000.0;
            assert!(row.busy[1] <= row.idle + target + frames, "{case:?} {row:?}");
            assert!(row.busy[1] <= 3.0 * row.idle || row.busy[1] <= row.idle + 1.0, "{case:?} {row:?}");
        }
        assert!(row.ramp <= 1.0 + 10.0 * case.round_trip.as_secs_f64(), "{case:?} {row:?}");
    }
}

/// A world with one endless download from the start, and a small command every 20 ms.
fn downloading(case: &Case, long: Duration) -> World {
    let mut world = case.world();
    let mut bulk = Job::new(Duration::ZERO, [0, u64::MAX, 0]);
    bulk.flows[2].ends = false;
    world.jobs.push(bulk);
    world.jobs.extend((1..long.as_millis() as u32 / 20).map(|number| small_command(MS * 20 * number)));
    world
}

/// Share of `rate` that the download has had, and the 95th percentile of small commands, in the next `span`.
fn after(world: &mut World, span: Duration, rate: u64) -> (f64, f64) {
    let (began, before) = (world.now, world.jobs[0].flows[1].received);
    world.run(began + span);
    let received = world.jobs[0].flows[1].received - before;
    let mut late = delays(world, began);
    (received as f64 / span.as_secs_f64() / rate as f64, percentile(&mut late, 95))
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_link_that_slows_down_has_no_standing_queue_a_second_later() {
    let case = Case::new("", Bulk::Down, MS * 20, 50 * MB, 8 << 20);
    let mut world = downloading(&case, SECOND * 12);
    world.run(SECOND * 3);
    world.links.iter_mut().for_each(|link| link.spec.rate = 2 * MB);
    world.run(SECOND * 5);
    let (share, delay) = after(&mut world, SECOND * 4, 2 * MB);
    assert!(share > 0.9 && delay < 60.0, "{share} {delay}");
    world.links.iter_mut().for_each(|link| link.spec.rate = 50 * MB);
    world.run(SECOND * 11);
    let (share, delay) = after(&mut world, SECOND, 50 * MB);
    assert!(share > 0.9 && delay < 60.0, "{share} {delay}");
}

#[test]
fn a_longer_route_is_not_taken_for_a_queue() {
    let case = Case::new("", Bulk::Down, MS * 20, 20 * MB, 4 << 20);
    let mut world = downloading(&case, SECOND * 13);
    world.run(SECOND * 3);
    world.links.iter_mut().for_each(|link| link.spec.latency = MS * 60);
    world.run(SECOND * 7);
    let (share, delay) = after(&mut world, SECOND * 2, 20 * MB);
    assert!(share > 0.9 && delay < 170.0, "{share} {delay}");
    world.links.iter_mut().for_each(|link| link.spec.latency = MS * 10);
    world.run(SECOND * 10);
    let (share, delay) = after(&mut world, SECOND * 2, 20 * MB);
    assert!(share > 0.9 && delay < 60.0, "{share} {delay}");
}

#[test]
fn a_delay_that_wavers_does_not_starve_bulk() {
    for (round_trip, jitter) in [(MS, MS / 2), (MS * 20, MS * 8), (MS * 100, MS * 10)] {
        let mut case = Case::new("", Bulk::Down, round_trip, 10 * MB, 4 << 20);
        case.jitter = jitter;
        let mut world = downloading(&case, SECOND * 9);
        world.run(SECOND * 3);
        let (share, delay) = after(&mut world, SECOND * 5, 10 * MB);
        let most = (round_trip + jitter * 2).as_secs_f64() * 1000.0 + 25.0;
        assert!(share > 0.85 && delay < most, "{round_trip:?} {share} {delay}");
    }
}

#[test]
fn a_slow_producer_teaches_nothing_wrong_about_the_link() {
    // 1 MB/s of log lines for ten seconds on a link of 50 MB/s, then all that goes.
    let case = Case::new("", Bulk::Down, MS * 40, 50 * MB, 4 << 20);
    let mut world = downloading(&case, SECOND * 14);
    world.jobs[0].flows[1].writes = Pace { bytes: 10_000, pause: MS * 10, stops_at: u64::MAX };
    let (share, delay) = after(&mut world, SECOND * 10, MB);
    assert!(share > 0.95 && delay < 50.0, "{share} {delay}");
    world.jobs[0].flows[1].writes = Pace::FAST;
    world.run(SECOND * 12);
    let (share, delay) = after(&mut world, SECOND, 50 * MB);
    assert!(share > 0.9 && delay < 65.0, "{share} {delay}");
}

#[test]
fn after_an_idle_night_the_line_learns_the_link_anew() {
    let case = Case::new("", Bulk::Down, MS, 500 * MB, 4 << 20);
    let mut world = case.world();
    world.refereed = false;
    world.jobs.push(Job::new(Duration::ZERO, [0, 300 << 20, 0]));
    world.run(SECOND * 5);
    assert!(world.jobs[0].outcome_at.is_some());
    let learnt = world.ends[HELPER].endpoint.window().bytes();
    assert!(learnt > 512 << 10, "{learnt}");
    // The laptop went home: another link, and a window of the old one would queue for seconds.
    for link in &mut world.links {
        (link.spec.latency, link.spec.rate) = (MS * 20, MB);
    }
    world.jobs.push(Job::new(SECOND * 3600, [0, u64::MAX, 0]));
    world.jobs.extend((0..100).map(|number| small_command(SECOND * 3601 + MS * 20 * number)));
    world.run(SECOND * 3603);
    let mut late = delays(&world, SECOND * 3601);
    let worst = percentile(&mut late, 100);
    assert!(late.len() > 90 && worst < 100.0, "{} {worst}", late.len());
}
