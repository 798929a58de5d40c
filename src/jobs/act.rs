//! Cancel, hold, release: by exact id, and confirmed by looking.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

use super::driver::{Jobs, present};
use super::error::Error;
use super::id::JobId;
use super::record::{Job, Presence, State};
use super::remote::Remote;
use super::scheduler::Action;

/// How often it is looked whether an action took effect, with pauses that grow from [`PAUSE`].
const LOOKS: u32 = 4;
/// First pause between two such looks.
const PAUSE: Duration = Duration::from_millis(300);

impl<R: Remote> Jobs<R> {
    /// Cancels jobs, or holds or releases them, and tells them as they are seen afterwards.
    ///
    /// A job that has ended already, or is already so, is left alone and told as it is. The scheduler's silence is
    /// not taken for success: jobs are looked at before and after.
    ///
    /// # Errors
    /// [`Error::NotFound`] before anything is done when nobody knows one of the ids, [`Error::Permission`],
    /// [`Error::Refused`], [`Error::Unreachable`] before anything was done (a retry is safe),
    /// [`Error::OutcomeUnknown`] when the scheduler didn't answer and the look shows no effect.
    ///
    /// # Cancel safety
    /// When dropped, the action may or may not have been done.
    pub async fn act(&self, action: Action, ids: &[String]) -> Result<Vec<Job>, Error> {
        let ids = self.parse_ids(ids)?;
        let mut before = present(&ids, self.look(&ids).await?)?;
        let mut clusters: BTreeMap<Option<String>, Vec<JobId>> = BTreeMap::new();
        for (id, job) in ids.iter().zip(&before) {
            if !effective(action, job) && !job.state.terminal() {
                clusters.entry(id.cluster.clone()).or_default().push(id.clone());
            }
        }
        if clusters.is_empty() {
            return match before.iter().find(|job| !effective(action, job)) {
                Some(job) if action != Action::Cancel => Err(Error::Refused {
                    command: action.as_str().to_owned(),
                    rc: None,
                    words: format!("job {} has ended: {}", job.id, job.state_raw),
                    meaning: None,
                }),
                _ => {
                    tell_limits(action, &mut before);
                    Ok(before)
                }
            };
        }
        let mut doubt = None;
        for group in clusters.values() {
            let answer = match self.ask(&self.scheduler.act(action, group)).await {
                Err(Error::Remote { doing, source }) if source.dispatched => {
                    return Err(Error::OutcomeUnknown { what: doing, key: None, words: source.message });
                }
                other => other?,
            };
            match self.scheduler.read_act(action, group, &answer) {
                // It may have been done all the same: the look decides.
                Err(error @ Error::OutcomeUnknown { .. }) => doubt = Some(error),
                other => other?,
            }
        }
        self.confirm(action, &ids, doubt).await
    }

    async fn confirm(&self, action: Action, ids: &[JobId], doubt: Option<Error>) -> Result<Vec<Job>, Error> {
        let mut seen = Vec::new();
        for look in 0..LOOKS {
            sleep(PAUSE * 3_u32.pow(look)).await;
            let told = self.look(ids).await?;
            if let Some(Presence::CouldNotAsk(words)) =
                told.iter().find(|told| matches!(told, Presence::CouldNotAsk(_)))
            {
                return Err(doubt.unwrap_or_else(|| Error::OutcomeUnknown {
                    what: format!("{} of jobs", action.as_str()),
                    key: None,
                    words: words.clone(),
                }));
            }
            seen = present(ids, told)?;
            tell_limits(action, &mut seen);
            if seen.iter().all(|job| effective(action, job)) {
                return Ok(seen);
            }
        }
        match doubt {
            Some(error) => Err(error),
            // The scheduler took it; what a job makes of it takes its own time (a job that ignores TERM).
            None => Ok(seen),
        }
    }
}

/// Says where an action could not do what its name promises.
fn tell_limits(action: Action, jobs: &mut [Job]) {
    for job in jobs {
        let runs = matches!(job.state, State::Running | State::Suspended | State::Completing);
        if action == Action::Hold && runs {
            job.warn("not_held", "what runs already is not held; only what waits is");
        }
    }
}

/// Tells whether a job is as the action wants it.
fn effective(action: Action, job: &Job) -> bool {
    match action {
        Action::Cancel => {
            let going = job.parts.iter().all(|part| part.state.terminal() || part.state == State::Completing);
            (job.state.terminal() || job.state == State::Completing) && going
        }
        // What runs already can't be held; Slurm takes the wish in silence and does nothing.
        Action::Hold => {
            !job.state.terminal()
                && job.state != State::Pending
                && job.parts.iter().all(|part| part.state != State::Pending)
        }
        Action::Release => {
            job.state != State::Held
                && !job.state.terminal()
                && job.parts.iter().all(|part| part.state != State::Held)
        }
    }
}
