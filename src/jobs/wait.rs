//! Waiting for ends, within the ceiling of questions.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};

use super::driver::{DETAILS_MAX, Jobs, present};
use super::error::Error;
use super::id::JobId;
use super::pace::{Look, YOUNG};
use super::record::{Job, Presence, State};
use super::remote::Remote;

/// How a wait ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Waited {
    /// The jobs as last seen, in the order asked.
    pub jobs: Vec<Job>,
    /// Whether the time was over first; the jobs go on.
    pub interrupted: bool,
    /// Why the last look got no answer, if it got none.
    pub last_poll_error: Option<String>,
}

impl Waited {
    /// Tells whether every job ended well.
    pub fn all_succeeded(&self) -> bool {
        self.jobs.iter().all(|job| job.state == State::Succeeded)
    }
}

/// What is known of one job that is waited for.
#[derive(Debug)]
struct Awaited {
    id: JobId,
    job: Option<Job>,
    /// When an end that a requeue may follow was first seen.
    provisional_since: Option<Instant>,
    done: bool,
}

impl<R: Remote> Jobs<R> {
    /// Waits until all jobs have ended, or `timeout` is over.
    ///
    /// All ids share one question a look, and looks keep to the ceiling. A look that gets no answer changes nothing:
    /// the wait goes on. An end that may be followed by a requeue counts after it was looked at again for a while.
    ///
    /// # Errors
    /// [`Error::NotFound`] when nobody knows one of them, [`Error::Remote`] when the line ended, [`Error::InvalidInput`],
    /// [`Error::Refused`] and the like. Nothing is changed by a wait: a retry is safe.
    ///
    /// # Cancel safety
    /// It may be dropped; the jobs go on.
    pub async fn wait(&self, ids: &[String], timeout: Option<Duration>) -> Result<Waited, Error> {
        let ids = self.parse_ids(ids)?;
        // A time-out beyond the clock's end is none.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut awaited: Vec<Awaited> = ids
            .iter()
            .map(|id| Awaited { id: id.clone(), job: None, provisional_since: None, done: false })
            .collect();
        let mut look = Look { questions: 2, ..Look::default() };
        loop {
            let open: Vec<JobId> = awaited.iter().filter(|a| !a.done).map(|a| a.id.clone()).collect();
            let told = self.look(&open).await?;
            let error = self.note(&mut awaited, &open, told)?;
            look.failures = if error.is_some() { look.failures.saturating_add(1) } else { 0 };
            look.looks = look.looks.saturating_add(1);
            look.young = awaited.iter().any(|a| !a.done && self.is_young(a.job.as_ref()));
            let done = awaited.iter().all(|a| a.done);
            let next = self.pace().next(Instant::now(), &look);
            let over = until.is_some_and(|until| next > until);
            if done || over {
                if let (false, Some(until)) = (done, until) {
                    sleep_until(until).await;
                }
                let jobs = self.last_words(awaited).await?;
                return Ok(Waited { jobs, interrupted: !done, last_poll_error: error });
            }
            sleep_until(next).await;
        }
    }

    /// Adds the exact code of what failed, which accounting spoils and the controller keeps for minutes only.
    async fn last_words(&self, awaited: Vec<Awaited>) -> Result<Vec<Job>, Error> {
        let mut jobs = Vec::new();
        for Awaited { id, job, .. } in awaited {
            let Some(mut job) = job else { continue };
            if job.state == State::Failed && jobs.len() < DETAILS_MAX {
                self.add_detail(&id, &mut job).await?;
            }
            jobs.push(job);
        }
        Ok(jobs)
    }

    /// Takes over what a look told; returns why some could not be asked about.
    fn note(
        &self,
        awaited: &mut [Awaited],
        open: &[JobId],
        told: Vec<Presence<Job>>,
    ) -> Result<Option<String>, Error> {
        let mut error = None;
        for (id, presence) in open.iter().zip(told) {
            let Some(place) = awaited.iter_mut().find(|a| a.id == *id && !a.done) else {
                continue;
            };
            match presence {
                Presence::CouldNotAsk(words) => error = Some(words),
                Presence::Absent => match &place.job {
                    // It was there: accounting has not caught up yet, or the truth is gone.
                    Some(_) => self.note_vanished(place),
                    None => present(std::slice::from_ref(id), vec![Presence::Absent]).map(|_| ())?,
                },
                Presence::Present(job) => self.note_present(place, job),
            }
        }
        Ok(error)
    }

    fn note_present(&self, place: &mut Awaited, job: Job) {
        let again = job.warnings.iter().any(|warning| warning.code == "may_run_again");
        let since = *place.provisional_since.get_or_insert_with(Instant::now);
        if !again {
            place.provisional_since = None;
        }
        let settled = !again || since.elapsed() >= self.limits.requeue_grace;
        place.done = job.state.terminal() && settled;
        place.job = Some(job);
    }

    /// A job that was seen and is now known to nobody is lost after the accounting's grace, and not before.
    fn note_vanished(&self, place: &mut Awaited) {
        let since = *place.provisional_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.limits.accounting_grace {
            return;
        }
        if let Some(job) = &mut place.job {
            job.state = State::Lost;
            job.state_raw = String::new();
            job.reason = Some(format!(
                "neither queue nor accounting knows it any more; job {} may still be queued or running",
                job.id.text
            ));
        }
        place.done = true;
    }

    fn is_young(&self, job: Option<&Job>) -> bool {
        let Some(at) = job.and_then(|job| job.submitted_at) else {
            return true;
        };
        let young = SignedDuration::try_from(YOUNG).unwrap_or(SignedDuration::MAX);
        self.now().duration_since(at) < young
    }
}
