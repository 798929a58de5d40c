//! How often a scheduler is asked: a stated ceiling, whatever the number of jobs. Pure; the time comes in.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The window over which questions are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Ceiling while somebody waits on a job that is younger than [`YOUNG`].
pub(super) const CALLS_PER_MIN_YOUNG: u32 = 12;
/// A job younger than this is asked about more often, since it may well end at once.
pub(super) const YOUNG: Duration = Duration::from_secs(120);
/// Shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Counts the questions of the last minute.
#[derive(Debug)]
pub(super) struct Pace {
    ceiling: u32,
    asked: VecDeque<Instant>,
}

impl Pace {
    pub(super) fn new(calls_per_min: u32) -> Self {
        Pace { ceiling: calls_per_min.max(1), asked: VecDeque::new() }
    }

    /// Notes a question.
    pub(super) fn asked(&mut self, now: Instant) {
        self.forget(now);
        self.asked.push_back(now);
    }

    /// Tells when the next look, made of up to `questions`, may begin, after `failures` looks in a row got no answer
    /// and `looks` were made altogether.
    pub(super) fn next(&mut self, now: Instant, look: &Look) -> Instant {
        self.forget(now);
        let ceiling = if look.young { self.ceiling.max(CALLS_PER_MIN_YOUNG) } else { self.ceiling };
        let fair = WINDOW / ceiling;
        // The first looks at a young job come quickly, later ones as the ceiling allows; a scheduler that doesn't
        // answer is asked ever more seldom.
        let pause = if look.failures > 0 {
            fair * 2_u32.pow(look.failures.min(4))
        } else if look.young {
            (PAUSE_MIN * (look.looks + 1)).min(fair)
        } else {
            fair
        };
        let room = usize::try_from(ceiling).unwrap_or(usize::MAX);
        let wanted = self.asked.len() + look.questions.clamp(1, room);
        let free = wanted
            .checked_sub(room + 1)
            .and_then(|oldest| self.asked.get(oldest))
            .map_or(now, |oldest| *oldest + WINDOW);
        free.max(now + pause)
    }

    fn forget(&mut self, now: Instant) {
        while self.asked.front().is_some_and(|then| now.duration_since(*then) >= WINDOW) {
            self.asked.pop_front();
        }
    }
}

/// What the next look is like.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Whether a job that is waited on is young.
    pub(super) young: bool,
    /// How many looks were made.
    pub(super) looks: u32,
    /// How many of the last looks got no answer.
    pub(super) failures: u32,
    /// How many questions a look may take.
    pub(super) questions: usize,
}
