//! When a silent line counts as dead: a pure function of times.
//!
//! Only while an answer is due: after two seconds without a byte a ping is sent, and after ten the SSH server is
//! asked. If it answers and the helper still does not, the helper is stalled and the line has failed; if the server is
//! silent too, it is the network, and the keepalive's limit decides, so that a short outage never costs a login.

use std::time::Duration;

/// Silence after which a ping frame is sent.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(2);
/// Silence after which the SSH server is asked.
pub(crate) const ASK_AFTER: Duration = Duration::from_secs(10);
/// How long the SSH server has to answer.
pub(crate) const ASK_FOR: Duration = Duration::from_secs(5);
/// How long the helper has after the server's answer. When an outage ends, both questions arrive together, and the
/// server, being nearer, answers first.
const ANSWER_AFTER: Duration = Duration::from_secs(3);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until then; `None` while no answer is due.
    Wait(Option<Duration>),
    /// Send a ping frame.
    Ping,
    /// Ask the SSH server.
    Ask,
    /// Give the line up: the helper has been silent for so long, and the server has not.
    Stalled(Duration),
}

/// Watches one line.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    pinged: Option<Duration>,
    asked: Option<Duration>,
    due_since: Option<Duration>,
    /// When the server last answered.
    answered: Option<Duration>,
}

impl Liveness {
    /// Notes that the SSH server has answered.
    pub(crate) fn handle_answer(&mut self, now: Duration) {
        self.answered = Some(now);
    }

    /// Decides, given the time, the last byte's time and whether an answer is due.
    pub(crate) fn step(&mut self, now: Duration, last_received: Duration, answer_due: bool) -> Step {
        if !answer_due {
            *self = Liveness::default();
            return Step::Wait(None);
        }
        // Silence before there was anything to answer does not count.
        let since = last_received.max(*self.due_since.get_or_insert(now));
        let after = |mark: Option<Duration>| mark.is_some_and(|mark| mark >= since);
        if now >= since + ASK_AFTER {
            if let Some(answered) = self.answered.filter(|answered| *answered >= since) {
                return match now >= answered + ANSWER_AFTER {
                    true => Step::Stalled(now - since),
                    false => Step::Wait(Some(answered + ANSWER_AFTER)),
                };
            }
            return match self.asked {
                Some(asked) if after(Some(asked)) && now < asked + ASK_AFTER => {
                    Step::Wait(Some(asked + ASK_AFTER))
                }
                _ => {
                    self.asked = Some(now);
                    Step::Ask
                }
            };
        }
        if now >= since + PING_AFTER && !after(self.pinged) {
            self.pinged = Some(now);
            return Step::Ping;
        }
        let next = if after(self.pinged) { ASK_AFTER } else { PING_AFTER };
        Step::Wait(Some(since + next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_idle_line_is_left_alone() {
        assert_eq!(Liveness::default().step(s(3600), s(0), false), Step::Wait(None));
    }

    #[test]
    fn silence_is_pinged_after_two_seconds_and_the_server_asked_after_ten() {
        let mut live = Liveness::default();
        assert_eq!(live.step(s(100), s(0), true), Step::Wait(Some(s(102))));
        assert_eq!(live.step(s(102), s(0), true), Step::Ping);
        assert_eq!(live.step(s(103), s(0), true), Step::Wait(Some(s(110))));
        assert_eq!(live.step(s(110), s(0), true), Step::Ask);
        assert_eq!(live.step(s(111), s(0), true), Step::Wait(Some(s(120))));
        assert_eq!(live.step(s(120), s(0), true), Step::Ask);
    }

    #[test]
    fn a_helper_that_stays_silent_after_the_servers_answer_is_stalled() {
        let mut live = Liveness::default();
        assert_eq!(live.step(s(0), s(0), true), Step::Wait(Some(s(2))));
        assert_eq!(live.step(s(10), s(0), true), Step::Ask);
        live.handle_answer(s(11));
        assert_eq!(live.step(s(11), s(0), true), Step::Wait(Some(s(14))));
        assert_eq!(live.step(s(14), s(0), true), Step::Stalled(s(14)));
    }

    #[test]
    fn an_outage_that_ends_is_no_stall_though_the_server_answers_first() {
        let mut live = Liveness::default();
        assert_eq!(live.step(s(0), s(0), true), Step::Wait(Some(s(2))));
        assert_eq!(live.step(s(10), s(0), true), Step::Ask);
        live.handle_answer(s(12));
        // The helper's bytes come a moment later.
        assert_eq!(live.step(s(13), s(13), true), Step::Wait(Some(s(15))));
        // The old answer says nothing about a new silence.
        assert_eq!(live.step(s(23), s(13), true), Step::Ask);
    }

    #[test]
    fn any_byte_begins_the_silence_anew() {
        let mut live = Liveness::default();
        assert_eq!(live.step(s(100), s(100), true), Step::Wait(Some(s(102))));
        assert_eq!(live.step(s(102), s(100), true), Step::Ping);
        assert_eq!(live.step(s(103), s(103), true), Step::Wait(Some(s(105))));
        assert_eq!(live.step(s(105), s(103), true), Step::Ping);
    }
}
