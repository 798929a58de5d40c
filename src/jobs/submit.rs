//! Submitting: judged before it is sent, and never repeated when its outcome is not known.

use std::time::Duration;

use tokio::time::sleep;

use super::driver::{Jobs, Submitted as Own, program};
use super::error::Error;
use super::key::SubmissionKey;
use super::options::{Script, SubmitOptions};
use super::record::{Job, State, shown};
use super::remote::{Fault, Remote};
use super::scheduler::{Request, Scope, Submission, Submitted};
use super::script::SCRIPT_BYTES_MAX;

/// How often a submission in doubt is looked for in the queue, with pauses that double from [`SEARCH_PAUSE`].
const SEARCH_LOOKS: u32 = 4;
/// First pause of that search.
const SEARCH_PAUSE: Duration = Duration::from_secs(2);

/// How it is known which job a submission made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResolvedBy {
    /// The scheduler's answer said so.
    Answer,
    /// A record on disk said so.
    Record,
    /// A job with the key was found.
    Search,
}

/// A submission that made a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Submitting {
    /// The job.
    pub job: Job,
    /// The array's id, when it is one.
    pub array_id: Option<String>,
    /// The key that it carries.
    pub key: SubmissionKey,
    /// How it is known.
    pub resolved_by: ResolvedBy,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// What a submission would send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// The script's bytes.
    pub script: Vec<u8>,
    /// The command, each argument by itself.
    pub argv: Vec<Vec<u8>>,
    /// What is set in the command's environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// What the user should know first.
    pub warnings: Vec<String>,
}

/// A submission that was judged and rendered.
struct Prepared {
    script: Vec<u8>,
    key: SubmissionKey,
    submission: Submission,
}

impl<R: Remote> Jobs<R> {
    /// Shows what a submission would send; nothing is sent but what is needed to read a remote script.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] as [`Jobs::submit`]; [`Error::Remote`] for a remote script.
    ///
    /// # Cancel safety
    /// It may be dropped.
    pub async fn dry_run(&self, script: &Script, options: &SubmitOptions) -> Result<DryRun, Error> {
        let prepared = self.prepare(script, options).await?;
        Ok(DryRun {
            argv: self.argv(&prepared.submission.question),
            env: prepared.submission.question.env,
            warnings: prepared.submission.warnings,
            script: prepared.script,
        })
    }

    /// Submits a script.
    ///
    /// The job carries the key in its comment. When a key is given and a job of ours with it is in the queue, that
    /// job is the answer and nothing is sent. A submission in doubt is looked for by its key.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] before anything is sent; [`Error::Refused`] with the scheduler's words;
    /// [`Error::OutcomeUnknown`] with the key when a job may have been made and none was found: never repeat that
    /// with another key; [`Error::Remote`] when nothing was sent.
    ///
    /// # Cancel safety
    /// When dropped, a job may or may not have been made.
    pub async fn submit(&self, script: &Script, options: &SubmitOptions) -> Result<Submitting, Error> {
        let mut prepared = self.prepare(script, options).await?;
        if options.key.is_some()
            && let Some(job) = self.find(&prepared.key).await?
        {
            prepared.submission.warnings.push(format!(
                "job {} carries this key already; nothing was sent, and its script and options were not compared",
                job.id
            ));
            // What this call asked for says nothing about a job that another one made.
            return Ok(Submitting {
                array_id: job.array.is_some().then(|| job.id.number.to_string()),
                job,
                key: prepared.key,
                resolved_by: ResolvedBy::Search,
                warnings: prepared.submission.warnings,
            });
        }
        self.warn_of_places(options, &mut prepared.submission.warnings).await?;
        let question = &prepared.submission.question;
        let submitted = match self.send(question).await {
            Ok(answer) => self.scheduler.read_submit(&answer),
            Err(error) if error.dispatched => {
                return Err(Error::OutcomeUnknown {
                    what: format!("submission {}", prepared.key),
                    key: Some(prepared.key.to_string()),
                    words: error.message,
                });
            }
            Err(source) => {
                return Err(Error::Remote { doing: program(question), source });
            }
        };
        match submitted {
            Submitted::Job(id) => {
                let state = if options.hold { State::Held } else { State::Pending };
                let job = Job::bare(id, state, "");
                Ok(self.made(prepared, job, ResolvedBy::Answer, options))
            }
            Submitted::Refused { words, meaning } => {
                Err(Error::Refused { command: program(question), rc: None, words, meaning })
            }
            Submitted::Doubt { words } => self.search(prepared, words, options).await,
        }
    }

    /// Looks for a job whose submission is in doubt.
    async fn search(
        &self,
        prepared: Prepared,
        words: String,
        options: &SubmitOptions,
    ) -> Result<Submitting, Error> {
        for look in 0..SEARCH_LOOKS {
            sleep(SEARCH_PAUSE * 2_u32.pow(look)).await;
            match self.find(&prepared.key).await {
                Ok(Some(job)) => return Ok(self.made(prepared, job, ResolvedBy::Search, options)),
                // Not there yet, or not to be asked: both leave the doubt as it is.
                Ok(None) | Err(Error::Unreachable { .. }) => {}
                // A line that ended must not hide that a job may exist; the doubt is the answer.
                Err(_other) => break,
            }
        }
        Err(Error::OutcomeUnknown {
            what: format!("submission {}", prepared.key),
            key: Some(prepared.key.to_string()),
            words,
        })
    }

    /// Finds the job of ours in the queue that carries a key: the oldest, should there be several.
    async fn find(&self, key: &SubmissionKey) -> Result<Option<Job>, Error> {
        let rows = self.ask_queue(&Scope::Mine).await?;
        let mut hits: Vec<Job> =
            rows.jobs.into_iter().filter(|job| job.submission_key.as_ref() == Some(key)).collect();
        hits.sort_by_key(|job| job.id.number);
        let Some(first) = hits.first().map(|job| job.id.whole()) else {
            return Ok(None);
        };
        hits.retain(|job| job.id.number == first.number);
        Ok(super::look::gather(&first, hits))
    }

    fn made(
        &self,
        prepared: Prepared,
        mut job: Job,
        resolved_by: ResolvedBy,
        options: &SubmitOptions,
    ) -> Submitting {
        let own = Own {
            id: job.id.whole(),
            key: prepared.key.clone(),
            at: job.submitted_at.unwrap_or_else(|| self.now()),
            name: prepared.submission.name.clone(),
            output: options.output.clone(),
            error: options.error.clone(),
        };
        self.remember(own);
        job.submission_key = Some(prepared.key.clone());
        job.name = prepared.submission.name.or(job.name);
        let is_array = prepared.submission.array || job.array.is_some();
        Submitting {
            array_id: is_array.then(|| job.id.number.to_string()),
            job,
            key: prepared.key,
            resolved_by,
            warnings: prepared.submission.warnings,
        }
    }

    async fn prepare(&self, script: &Script, options: &SubmitOptions) -> Result<Prepared, Error> {
        let (bytes, name) = match script {
            Script::Bytes { bytes, name } => (bytes.clone(), name.clone()),
            Script::Remote(path) => {
                let name = path.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
                (self.read_script(path).await?, name)
            }
        };
        let key = options.key.clone().unwrap_or_else(|| SubmissionKey::from_random(rand::random()));
        let home = self.remote.home();
        let submission = self.scheduler.submit(&Request {
            script: &bytes,
            script_name: name.as_deref(),
            options,
            key: &key,
            home: &home,
        })?;
        Ok(Prepared { script: bytes, key, submission })
    }

    /// Reads a remote script, so that what was judged is what is sent.
    async fn read_script(&self, path: &[u8]) -> Result<Vec<u8>, Error> {
        let limit = u64::try_from(SCRIPT_BYTES_MAX).unwrap_or(u64::MAX);
        match self.remote.read(path, 0, limit.saturating_add(1)).await {
            Ok(part) => Ok(part.bytes),
            Err(error) if error.fault == Fault::NotFound => Err(Error::invalid(
                "script",
                format!("script {} does not exist on the remote side", shown(path)),
            )),
            Err(source) => {
                Err(Error::Remote { doing: format!("reading the script {}", shown(path)), source })
            }
        }
    }

    /// Warns of a working directory or an output folder that isn't there: Slurm then runs the job in /tmp and calls
    /// it completed, or ends it without any log. The nodes may see another file system, so it is no error.
    async fn warn_of_places(&self, options: &SubmitOptions, warnings: &mut Vec<String>) -> Result<(), Error> {
        let parent = |path: &Vec<u8>| {
            let at = path.iter().rposition(|byte| *byte == b'/').filter(|at| *at > 0)?;
            let (parent, _) = path.split_at(at);
            // A folder with a pattern in it, and one below the working directory, can't be looked at beforehand.
            let known = !parent.contains(&b'%') && (parent.starts_with(b"/") || parent.starts_with(b"~/"));
            known.then(|| parent.to_vec())
        };
        let places = [
            ("working directory", options.chdir.clone(), "the job would run in /tmp"),
            (
                "folder of --output",
                options.output.as_ref().and_then(parent),
                "the job would end without a log",
            ),
            ("folder of --error", options.error.as_ref().and_then(parent), "the job would end without a log"),
        ];
        for (what, place, otherwise) in places {
            let Some(place) = place else { continue };
            let facts = self
                .remote
                .stat(&place)
                .await
                .map_err(|source| Error::Remote { doing: format!("looking at {}", shown(&place)), source })?;
            if !facts.is_some_and(|facts| facts.directory) {
                warnings.push(format!(
                    "{what} {} does not exist here; unless the nodes have it, {otherwise}",
                    shown(&place)
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_resolved_by_are_the_pinned_ones() {
        let words = [ResolvedBy::Answer, ResolvedBy::Record, ResolvedBy::Search]
            .map(|by| serde_json::to_value(by).unwrap());
        assert_eq!(words, ["answer", "record", "search"]);
    }
}
