//! A stream whose work is done in steps on a thread: the line's side of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use towline_helper::wire::endpoint::{STDIN, STDOUT};
use towline_helper::wire::message::{Code, Refusal};

use super::fault::{self, refuse};
use super::link::Link;
use super::pool::{Flags, Job, Next, Pool, Turn, Work};

/// Room that is worth a step: half of what a channel queues, so that reading and sending overlap.
const ROOM_BYTES_WORTH: usize = 64 << 10;
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
    input: VecDeque<Vec<u8>>,
    input_ended: bool,
    /// Bytes of input that the step under way was given.
    input_away: usize,
    is_polite: bool,
}

/// Where the work is.
enum Place {
    /// On a thread, or in the queue for one, since then.
    Away(Duration),
    /// Here, until its condition holds.
    Here(Box<dyn Work>, Next),
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
            place: Place::Here(work, Next::Later(Duration::ZERO)),
            flags: Arc::default(),
            cancelled_at: None,
            input: VecDeque::new(),
            input_ended: false,
            input_away: 0,
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
            Place::Here(_, Next::Later(at)) => Some(*at),
            Place::Here(..) => None,
            Place::Away(since) => {
                let queued = (!self.has_begun()).then_some(*since + QUEUED_MOST);
                let cancelled = self.cancelled_at.map(|at| at + CANCELLED_MOST);
                [queued, cancelled].into_iter().flatten().min()
            }
        }
    }

    /// Takes input from the client.
    pub(crate) fn handle_input(&mut self, bytes: Vec<u8>, end: bool) {
        if !bytes.is_empty() {
            self.input.push_back(bytes);
        }
        self.input_ended |= end;
    }

    /// Takes that the client, or the end of the line, wants it ended.
    pub(crate) fn cancel(&mut self, now: Duration) {
        self.flags.is_cancelled.store(true, Ordering::Relaxed);
        self.cancelled_at.get_or_insert(now);
    }

    /// Does what is due by now: begins the next step when its condition holds.
    pub(crate) fn advance(&mut self, link: &mut Link, pool: &Pool) -> Fate {
        let now = link.now();
        if let Place::Away(since) = self.place {
            return self.check_away(link, now, since);
        }
        let room = link.room(self.stream, STDOUT);
        let is_cancelled = self.cancelled_at.is_some();
        let is_due = match &self.place {
            Place::Here(_, Next::Room) => room >= ROOM_BYTES_WORTH,
            Place::Here(_, Next::Input) => !self.input.is_empty() || self.input_ended,
            Place::Here(_, Next::Later(at)) => *at <= now,
            Place::Here(_, Next::Done(_)) | Place::Away(_) => false,
        };
        if !is_due && !is_cancelled {
            return Fate::Open;
        }
        let Place::Here(work, _) = std::mem::replace(&mut self.place, Place::Away(now)) else {
            return Fate::Open;
        };
        let input = std::mem::take(&mut self.input);
        self.input_away = input.iter().map(Vec::len).sum();
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
    pub(crate) fn handle_step(&mut self, link: &mut Link, job: Job) -> Fate {
        let used = std::mem::take(&mut self.input_away);
        if used > 0 {
            link.consumed(self.stream, STDIN, used);
        }
        for bytes in job.turn.output {
            link.send(self.stream, STDOUT, bytes, false);
        }
        match job.next {
            Next::Done(result) => {
                link.send(self.stream, STDOUT, Vec::new(), true);
                match result {
                    Ok(outcome) => link.outcome(self.stream, &outcome),
                    Err(refusal) => link.refuse(self.stream, &refusal),
                }
                Fate::Over
            }
            Next::Later(pause) => {
                self.place = Place::Here(job.work, Next::Later(link.now() + pause));
                Fate::Open
            }
            next => {
                self.place = Place::Here(job.work, next);
                Fate::Open
            }
        }
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
