//! The world: two ends, two links, one clock.

use std::collections::HashMap;
use std::time::Duration;

use towline_helper::wire::endpoint::{STDERR, STDIN, STDOUT};
use towline_helper::wire::message::{Code, Dispatched, Environment, Hello, Outcome, Refusal, Request, Start};
use towline_helper::wire::window::RESERVE_BYTES;
use towline_helper::wire::{Endpoint, Event, PROTOCOL, Role};

use super::jobs::Job;
use super::link::{Link, LinkSpec};
use super::referee::Referee;

pub const CLIENT: usize = 0;
pub const HELPER: usize = 1;
/// What a driver asks for at once, and feeds at once.
const DRIVER_BYTES: usize = 64 << 10;

/// Why a run is over.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing will ever happen again.
    Quiet,
    /// The time is up.
    Deadline,
}

pub struct World {
    pub now: Duration,
    pub ends: [End; 2],
    /// The link that leaves the end of the same number.
    pub links: [Link; 2],
    pub jobs: Vec<Job>,
    /// Bounds in force at the same time, checked after every step.
    pub held_most: [u64; 2],
    /// Whether referees read along, which takes time.
    pub refereed: bool,
    started: bool,
    of_stream: HashMap<u32, usize>,
    /// Jobs before this one are over.
    first: usize,
}

pub struct End {
    pub endpoint: Endpoint,
    pub referee: Referee,
    out: Vec<u8>,
    pub pongs: Vec<Duration>,
}

impl End {
    fn new(role: Role) -> Self {
        End { endpoint: Endpoint::new(role), referee: Referee::default(), out: Vec::new(), pongs: Vec::new() }
    }
}

impl World {
    pub fn new(seed: u64, up: LinkSpec, down: LinkSpec) -> Self {
        let mut ends = [End::new(Role::Client), End::new(Role::Helper)];
        ends[HELPER].endpoint.hello(&hello()).unwrap();
        World {
            now: Duration::ZERO,
            ends,
            links: [Link::new(up, seed), Link::new(down, !seed)],
            jobs: Vec::new(),
            held_most: [u64::MAX; 2],
            refereed: true,
            started: false,
            of_stream: HashMap::new(),
            first: 0,
        }
    }

    pub fn is_lost(&self) -> bool {
        self.links.iter().any(|link| link.lost)
    }

    /// Runs until `deadline` or until nothing happens any more.
    pub fn run(&mut self, deadline: Duration) -> Stop {
        loop {
            while self.step(CLIENT) | self.step(HELPER) {}
            self.check_bounds();
            match self.next_time() {
                None => return Stop::Quiet,
                Some(next) if next > deadline => {
                    self.now = deadline;
                    return Stop::Deadline;
                }
                Some(next) => self.now = next,
            }
        }
    }

    fn next_time(&self) -> Option<Duration> {
        if self.is_lost() {
            return self.links.iter().filter_map(Link::next_arrival).min();
        }
        let jobs = self.jobs[self.first..].iter().filter_map(|job| job.next_time(self.now)).min();
        let links = self.links.iter().flat_map(|link| [link.next_arrival(), link.next_room()]);
        let ends = self.ends.iter().map(|end| end.endpoint.next_time());
        links.chain(ends).flatten().chain(jobs).map(|time| time.max(self.now)).min()
    }

    fn step(&mut self, side: usize) -> bool {
        if self.is_lost() {
            // What was under way when the link was lost still arrives, up to the last byte.
            return self.arrive(side);
        }
        let mut moved = self.arrive(side);
        let end = &mut self.ends[side].endpoint;
        if end.next_time().is_some_and(|due| due <= self.now) {
            end.handle_time(self.now).unwrap();
            moved = true;
        }
        moved |= self.act(side);
        moved | self.transmit(side)
    }

    fn arrive(&mut self, side: usize) -> bool {
        let mut moved = false;
        while let Some(bytes) = self.links[1 - side].take(self.now) {
            assert!(bytes.len() <= DRIVER_BYTES);
            moved = true;
            let end = &mut self.ends[side];
            if self.refereed {
                end.referee.receives(&bytes);
            }
            end.endpoint.handle_bytes(self.now, &bytes).unwrap();
            while let Some(event) = self.ends[side].endpoint.next_event() {
                self.handle(side, event);
            }
        }
        moved
    }

    fn handle(&mut self, side: usize, event: Event) {
        match event {
            Event::Hello(hello) => {
                assert_eq!(hello.protocol, PROTOCOL);
                let start = Start { protocol: PROTOCOL, version: "1".into(), environment: Environment::None };
                self.ends[CLIENT].endpoint.start(&start).unwrap();
                self.started = true;
            }
            Event::Start(_) => assert_eq!(side, HELPER),
            Event::Open { stream, request } => {
                let Request::Read { offset, .. } = *request else { panic!("not a scripted request") };
                let number = offset as usize;
                self.of_stream.insert(stream, number);
                self.jobs[number].running = true;
                self.ends[HELPER].endpoint.dispatched(stream, &Dispatched { pid: None, note: None }).unwrap();
            }
            Event::Dispatched { stream, .. } => self.job(stream).dispatched = true,
            Event::Data { stream, channel, bytes, end } => {
                assert_eq!(channel == STDIN, side == HELPER);
                assert!(!bytes.is_empty() || end, "an event that tells nothing");
                let job = self.job(stream);
                assert!(job.outcome_at.is_none(), "bytes after the outcome");
                job.receive(stream, channel, &bytes, end);
            }
            Event::Cancel { stream, .. } => self.job(stream).helper_cancelled = true,
            Event::Outcome { stream, .. } => self.finish(stream),
            Event::Refusal { stream, .. } => {
                assert!(self.job(stream).cancelled);
                self.finish(stream);
            }
            Event::Pong { round_trip } => self.ends[side].pongs.push(round_trip),
            other => panic!("{other:?} is not in the script"),
        }
    }

    fn finish(&mut self, stream: u32) {
        let now = self.now;
        let job = self.job(stream);
        assert!(job.outcome_at.is_none(), "two ends of stream {stream}");
        assert!(job.dispatched);
        for channel in [STDOUT, STDERR] {
            let flow = &job.flows[usize::from(channel)];
            let all = flow.received == flow.pushed && flow.end_received == flow.end_pushed;
            assert!(
                all || (job.cancelled && job.discard),
                "the outcome of stream {stream} overtook its channel {channel}"
            );
        }
        job.outcome_at = Some(now);
    }

    fn job(&mut self, stream: u32) -> &mut Job {
        &mut self.jobs[self.of_stream[&stream]]
    }

    fn act(&mut self, side: usize) -> bool {
        let now = self.now;
        let endpoint = &mut self.ends[side].endpoint;
        let mut moved = false;
        while self.jobs.get(self.first).is_some_and(|job| job.outcome_at.is_some()) {
            self.first += 1;
        }
        for (number, job) in self.jobs.iter_mut().enumerate().skip(self.first) {
            if job.outcome_at.is_some() || job.open_at > now {
                continue;
            }
            if side == CLIENT {
                if job.stream.is_none() && self.started && endpoint.streams() < 64 {
                    job.stream = Some(endpoint.open(now, Job::request(number)).unwrap());
                    job.opened_at = now;
                    moved = true;
                }
                if let (Some(stream), false) = (job.stream, job.cancelled)
                    && job.cancel_at.is_some_and(|at| at <= now)
                {
                    endpoint.cancel(stream, job.discard).unwrap();
                    job.cancelled = true;
                    moved = true;
                }
                moved |= job.write(now, endpoint, STDIN);
                moved |= job.read(now, endpoint, STDOUT) | job.read(now, endpoint, STDERR);
            } else if job.running {
                moved |= serve(now, endpoint, job);
            }
        }
        moved
    }

    fn transmit(&mut self, side: usize) -> bool {
        let mut moved = false;
        loop {
            let End { endpoint, referee, out, .. } = &mut self.ends[side];
            let room = self.links[side].room(self.now);
            if room == 0 {
                return moved;
            }
            if out.is_empty() {
                let has_work = endpoint.has_work();
                // The client's driver trusts the question, the helper's does not ask.
                if side == CLIENT && !has_work {
                    return moved;
                }
                endpoint.transmit(self.now, out, room.min(DRIVER_BYTES));
                assert!(!has_work || !out.is_empty(), "has_work promised something");
                if self.refereed && referee.sends(out) {
                    let bound = endpoint.window().bytes() + RESERVE_BYTES;
                    assert!(endpoint.in_flight() <= bound, "{} in flight", endpoint.in_flight());
                }
            }
            if out.is_empty() {
                return moved;
            }
            moved = true;
            let count = room.min(out.len());
            self.links[side].push(self.now, &out[..count]);
            out.drain(..count);
            if self.is_lost() {
                return true;
            }
        }
    }

    fn check_bounds(&self) {
        let running = || self.jobs[self.first..].iter().filter(|job| job.outcome_at.is_none());
        let held = |channel: u8| running().map(|job| job.flows[usize::from(channel)].held()).sum::<u64>();
        assert!(held(STDOUT) + held(STDERR) <= self.held_most[CLIENT]);
        assert!(held(STDIN) <= self.held_most[HELPER]);
    }
}

fn serve(now: Duration, endpoint: &mut Endpoint, job: &mut Job) -> bool {
    let mut moved = job.read(now, endpoint, STDIN);
    if !job.helper_cancelled {
        moved |= job.write(now, endpoint, STDOUT) | job.write(now, endpoint, STDERR);
    }
    let Some(stream) = job.stream.filter(|_| job.is_done()) else { return moved };
    job.running = false;
    if job.helper_cancelled {
        let refusal = Refusal {
            code: Code::Cancelled,
            message: "cancelled".into(),
            path: None,
            errno: None,
            which: None,
        };
        endpoint.refuse(stream, &refusal).unwrap();
    } else {
        endpoint.outcome(stream, &Outcome::Done {}).unwrap();
    }
    true
}

pub fn hello() -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: "1".into(),
        sha256: String::new(),
        pid: 1,
        boot_id: "b".into(),
        host: "node".into(),
        uid: 1,
        home: "/home/u".into(),
        cwd: "/home/u".into(),
        capabilities: Vec::new(),
    }
}
