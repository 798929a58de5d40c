//! A stream whose work is done in steps on a thread: the line's side of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towline_helper::wire::endpoint::{STDIN, STDOUT};
use towline_helper::wire::message::{Code, Outcome, Refusal};

use super::fault::{self, refuse};
use super::link::Link;
use super::pieces::Pieces;
use super::pool::{Flags, Job, Next, Pool, Turn, Work};

/// How far work may be ahead of the line, so that reading and sending overlap.
const AHEAD_BYTES_MAX: usize = 256 << 10;
/// How long work may wait for its first step before the client is told that all threads hang.
const QUEUED_MOST: Duration = Duration::from_secs(10);
/// How long a step may go on after it was cancelled before the client gets its answer without it.
const CANCELLED_MOST: Duration = Duration::from_secs(2);

/// One stream of work.
pub(crate) struct WorkStream {
    stream: u32,
    place: Place,
    flags: Arc<Flags>,
    cancelled_at: Option<Duration>,
    input: Pieces,
    input_ended: bool,
    /// Bytes of input that the step under way was given.
    input_away: usize,
    /// Output that there was no room for in the line yet.
    ready: Pieces,
    is_discarded: bool,
    is_polite: bool,
}

/// Where the work is.
enum Place {
    /// On a thread, or in the queue for one, since then.
    Away(Duration),
    /// Here, until its condition holds.
    Here(Box<dyn Work>, Condition),
    /// Done; this is the answer, once all output is on its way.
    Done(Result<Outcome, Box<Refusal>>),
}

/// What the next step waits for.
#[derive(Clone, Copy)]
enum Condition {
    Room,
    Input,
    Time(Duration),
}

/// What became of a stream.
pub(crate) enum Fate {
    /// It goes on.
    Open,
    /// It was answered.
    Over,
}

impl WorkStream {
    /// Takes work that has not begun. `is_polite` work runs on threads that give way to all others.
    pub(crate) fn new(stream: u32, work: Box<dyn Work>, is_polite: bool) -> WorkStream {
        WorkStream {
            stream,
            place: Place::Here(work, Condition::Time(Duration::ZERO)),
            flags: Arc::default(),
            cancelled_at: None,
            input: Pieces::default(),
            input_ended: false,
            input_away: 0,
            ready: Pieces::default(),
            is_discarded: false,
            is_polite,
        }
    }

    /// Whether a step of it is on a thread.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.place, Place::Away(_))
    }

    pub(crate) fn is_polite(&self) -> bool {
        self.is_polite
    }

    /// When [`WorkStream::advance`] is due without any event.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        match &self.place {
            Place::Here(_, Condition::Time(at)) => Some(*at),
            Place::Here(..) | Place::Done(_) => None,
            Place::Away(since) => {
                let queued = (!self.has_begun()).then_some(*since + QUEUED_MOST);
                let cancelled = self.cancelled_at.map(|at| at + CANCELLED_MOST);
                [queued, cancelled].into_iter().flatten().min()
            }
        }
    }

    /// Takes input from the client.
    pub(crate) fn handle_input(&mut self, bytes: Vec<u8>, end: bool) {
        self.input.push(bytes);
        self.input_ended |= end;
    }

    /// Takes that the client, or the end of the line, wants it ended; with `discard`, its output is of no use.
    pub(crate) fn cancel(&mut self, now: Duration, discard: bool) {
        self.flags.is_cancelled.store(true, Ordering::Relaxed);
        self.cancelled_at.get_or_insert(now);
        if discard {
            self.is_discarded = true;
            self.ready.clear();
        }
    }

    /// Does what is due by now: sends what there is room for, begins the next step when its condition holds.
    pub(crate) fn advance(&mut self, link: &mut Link, pool: &Pool) -> Fate {
        let now = link.now();
        self.send_ready(link);
        let is_due = match &self.place {
            Place::Away(since) => {
                let since = *since;
                return self.check_away(link, now, since);
            }
            Place::Done(_) => return self.answer(link),
            Place::Here(_, Condition::Room) => self.ready.len() <= AHEAD_BYTES_MAX / 2,
            Place::Here(_, Condition::Input) => !self.input.is_empty() || self.input_ended,
            Place::Here(_, Condition::Time(at)) => *at <= now,
        };
        if !is_due && self.cancelled_at.is_none() {
            return Fate::Open;
        }
        let Place::Here(work, _) = std::mem::replace(&mut self.place, Place::Away(now)) else {
            return Fate::Open;
        };
        let input = std::mem::take(&mut self.input);
        self.input_away = input.len();
        let room = AHEAD_BYTES_MAX.saturating_sub(self.ready.len());
        let turn = Turn::new(input, self.input_ended, room, Arc::clone(&self.flags));
        match pool.submit(Job { stream: self.stream, work, turn, next: Next::Room }) {
            Ok(()) => Fate::Open,
            Err(_job) => {
                let message = "no thread for file work can be started".to_owned();
                link.refuse(self.stream, &refuse(Code::Busy, message));
                Fate::Over
            }
        }
    }

    /// Takes a finished step.
    pub(crate) fn handle_step(&mut self, link: &mut Link, mut job: Job) -> Fate {
        let used = std::mem::take(&mut self.input_away);
        if used > 0 {
            link.consumed(self.stream, STDIN, used);
        }
        while let Some(bytes) = job.turn.output.pop(usize::MAX).filter(|_| !self.is_discarded) {
            self.ready.push(bytes);
        }
        self.send_ready(link);
        let condition = match job.next {
            Next::Done(result) => {
                self.place = Place::Done(result);
                return self.answer(link);
            }
            Next::Room => Condition::Room,
            Next::Input => Condition::Input,
            Next::Later(pause) => Condition::Time(link.now() + pause),
        };
        self.place = Place::Here(job.work, condition);
        Fate::Open
    }

    fn send_ready(&mut self, link: &mut Link) {
        loop {
            let room = link.room(self.stream, STDOUT);
            let Some(bytes) = (room > 0).then(|| self.ready.pop(room)).flatten() else { return };
            link.send(self.stream, STDOUT, bytes, false);
        }
    }

    /// Gives the answer, once all output is on its way.
    fn answer(&mut self, link: &mut Link) -> Fate {
        let Place::Done(result) = &self.place else { return Fate::Open };
        if !self.ready.is_empty() {
            return Fate::Open;
        }
        link.send(self.stream, STDOUT, Vec::new(), true);
        match result {
            Ok(outcome) => link.outcome(self.stream, outcome),
            Err(refusal) => link.refuse(self.stream, refusal),
        }
        Fate::Over
    }

    fn has_begun(&self) -> bool {
        self.flags.has_begun.load(Ordering::Relaxed)
    }

    /// Answers for work that a thread does not come back from.
    fn check_away(&mut self, link: &mut Link, now: Duration, since: Duration) -> Fate {
        let refusal: Refusal = if self.cancelled_at.is_some_and(|at| now >= at + CANCELLED_MOST) {
            fault::cancelled()
        } else if !self.has_begun() && now >= since + QUEUED_MOST {
            let message =
                format!("no file thread was free for {} s; file systems may hang", QUEUED_MOST.as_secs());
            refuse(Code::Busy, message)
        } else {
            return Fate::Open;
        };
        self.flags.is_cancelled.store(true, Ordering::Relaxed);
        link.refuse(self.stream, &refusal);
        Fate::Over
    }
}
