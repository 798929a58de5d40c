//! The thin driver: runs a dialect's questions over a remote end and keeps the three answers apart.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::error::Error;
use super::id::{JobId, Part};
use super::key::SubmissionKey;
use super::look;
use super::pace::Pace;
use super::record::{Job, Presence, State};
use super::remote::{Answer, Call, Fault, Remote, RemoteError};
use super::scheduler::{Dialect, Fence, Question, Queue, Rows, Scheduler, Scope};
use super::slurm::{ANSWER_BYTES_MAX, Slurm};

/// Most ids of one question, which keeps its argument vector far below the wire's bound.
const IDS_MAX: usize = 1000;
/// Most jobs of one call that are asked about one by one, for what only a single answer holds (files, exact codes).
pub(super) const DETAILS_MAX: usize = 16;

/// Bounds of a [`Jobs`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Ceiling of questions a minute while waiting; default 4. Up to 12 while a job is younger than two minutes.
    pub calls_per_min: u32,
    /// How long nobody may know a job of ours until it is lost; default 10 minutes, since accounting lags.
    pub accounting_grace: Duration,
    /// How long an end that a requeue may follow is looked at again; default 3 minutes.
    pub requeue_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            calls_per_min: 4,
            accounting_grace: Duration::from_secs(600),
            requeue_grace: Duration::from_secs(180),
        }
    }
}

/// What we know of a job because we submitted it.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// Its id.
    pub id: JobId,
    /// The key that it carries.
    pub key: SubmissionKey,
    /// When it was submitted, by our clock.
    pub at: Timestamp,
    /// Its name.
    pub name: Option<Vec<u8>>,
    /// The file of standard output as asked for, with patterns.
    pub output: Option<Vec<u8>>,
    /// The file of standard error as asked for, with patterns.
    pub error: Option<Vec<u8>>,
}

/// The jobs of one site, seen through its scheduler.
pub struct Jobs<R> {
    pub(super) remote: R,
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) limits: Limits,
    /// Variables of the session that describe a surrounding job; they are taken out of each command's environment.
    leaks: Vec<Vec<u8>>,
    /// Protects the record of our own jobs; held for single look-ups only, never across an await.
    own: Mutex<HashMap<(Option<String>, u64), Submitted>>,
    /// Protects the count of questions; held for single look-ups only, never across an await.
    pace: Mutex<Pace>,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl<R> std::fmt::Debug for Jobs<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs")
            .field("dialect", &self.scheduler.dialect())
            .field("version", &self.scheduler.version())
            .finish_non_exhaustive()
    }
}

impl<R: Remote> Jobs<R> {
    /// Finds out which scheduler the far end has; `expected` (from the configuration) is checked, not believed.
    ///
    /// # Errors
    /// [`Error::NoScheduler`] when none is found, [`Error::Refused`] when it is another one than expected or can't
    /// say its version, [`Error::Remote`]. A retry is safe.
    ///
    /// # Cancel safety
    /// Nothing is changed; it may be dropped.
    pub async fn detect(remote: R, expected: Option<Dialect>, limits: Limits) -> Result<Self, Error> {
        if let Some(other) = expected.filter(|dialect| *dialect != Dialect::Slurm) {
            return Err(Error::NoScheduler {
                looked_for: format!("a client of {} that this version can drive", other.as_str()),
            });
        }
        let version = call(&Slurm::detect(), &[]);
        let environment = Call { argv: vec![b"env".to_vec(), b"-0".to_vec()], ..call(&Slurm::detect(), &[]) };
        let (version, environment) = tokio::join!(remote.run(version), remote.run(environment));
        let answer = match version {
            Err(error) if error.fault == Fault::NotFound => Err(missing()),
            Err(source) => Err(Error::Remote { doing: "sbatch --version".to_owned(), source }),
            Ok(answer) if answer.rc == Some(127) => Err(missing()),
            Ok(answer) => Ok(answer),
        }?;
        let slurm = Slurm::from_version(&answer.stdout).ok_or_else(|| Error::Refused {
            command: "sbatch --version".to_owned(),
            rc: answer.rc,
            words: super::error::words(&answer.stdout, &answer.stderr),
            meaning: Some("it does not name Slurm and a version"),
        })?;
        let mut jobs = Self::with_scheduler(remote, Box::new(slurm), limits);
        let environment =
            environment.map_err(|source| Error::Remote { doing: "env -0".to_owned(), source })?;
        jobs.leaks = environment
            .stdout
            .split(|byte| *byte == 0)
            .filter_map(|entry| entry.split(|byte| *byte == b'=').next())
            .filter(|name| jobs.scheduler.leaks(name))
            .map(<[u8]>::to_vec)
            .collect();
        Ok(jobs)
    }

    /// Drives a scheduler that is known already, in a session without a surrounding job.
    pub fn with_scheduler(remote: R, scheduler: Box<dyn Scheduler>, limits: Limits) -> Self {
        Jobs {
            remote,
            scheduler,
            limits,
            leaks: Vec::new(),
            own: Mutex::default(),
            pace: Mutex::new(Pace::new(limits.calls_per_min)),
            clock: Box::new(Timestamp::now),
        }
    }

    /// Replaces the clock, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Tells which scheduler it is.
    pub fn dialect(&self) -> Dialect {
        self.scheduler.dialect()
    }

    /// Tells the scheduler's version.
    pub fn version(&self) -> &str {
        self.scheduler.version()
    }

    /// Gives the remote end back.
    pub fn remote(&self) -> &R {
        &self.remote
    }

    /// Reads an id that a user typed.
    ///
    /// # Errors
    /// [`Error::InvalidInput`].
    pub fn parse_id(&self, text: &str) -> Result<JobId, Error> {
        self.scheduler.parse_id(text)
    }

    /// Reads ids that a user typed.
    pub(super) fn parse_ids(&self, ids: &[String]) -> Result<Vec<JobId>, Error> {
        ids.iter().map(|id| self.parse_id(id)).collect()
    }

    /// Tells it about a job of ours that another process submitted, so that it is never taken for a stranger's.
    pub fn remember(&self, own: Submitted) {
        let key = (own.id.cluster.clone(), own.id.number);
        lock(&self.own).insert(key, own);
    }

    /// Lists the jobs that the queue knows: those that live, and ended ones that it still remembers.
    ///
    /// # Errors
    /// [`Error::Unreachable`] instead of an empty list when the scheduler could not be asked; [`Error::Refused`],
    /// [`Error::Unreadable`], [`Error::TooLarge`], [`Error::Remote`]. It is a pure read: a retry is safe.
    ///
    /// # Cancel safety
    /// It may be dropped.
    pub async fn list(&self, scope: &Scope) -> Result<Vec<Job>, Error> {
        let mut jobs = look::fold_components(self.ask_queue(scope).await?.jobs);
        for job in &mut jobs {
            self.add_own(job);
        }
        Ok(jobs)
    }

    /// Shows jobs, in the order asked, with all that queue, accounting and the scheduler's own record know.
    ///
    /// # Errors
    /// [`Error::NotFound`] with every id that nobody knows, [`Error::Unreachable`] when one could not be asked
    /// about, [`Error::InvalidInput`], and as [`Jobs::list`]. It is a pure read: a retry is safe.
    ///
    /// # Cancel safety
    /// It may be dropped.
    pub async fn show(&self, ids: &[String]) -> Result<Vec<Job>, Error> {
        let ids = self.parse_ids(ids)?;
        let mut jobs = present(&ids, self.look(&ids).await?)?;
        for (id, job) in ids.iter().zip(&mut jobs).take(DETAILS_MAX) {
            self.add_detail(id, job).await?;
        }
        Ok(jobs)
    }

    /// Lists the queues.
    ///
    /// # Errors
    /// As [`Jobs::list`]. It is a pure read: a retry is safe.
    ///
    /// # Cancel safety
    /// It may be dropped.
    pub async fn queues(&self) -> Result<Vec<Queue>, Error> {
        let answer = self.ask(&self.scheduler.queues()).await?;
        self.scheduler.read_queues(&answer)
    }

    /// Looks at jobs once: three answers, in the order asked. Costs one question to the queue for each thousand ids
    /// of a cluster, and one to accounting where the queue doesn't tell all.
    ///
    /// # Errors
    /// [`Error::Remote`] when the line failed, [`Error::Refused`] and the like when the scheduler said no.
    ///
    /// # Cancel safety
    /// It may be dropped.
    pub async fn look(&self, ids: &[JobId]) -> Result<Vec<Presence<Job>>, Error> {
        let mut clusters: BTreeMap<Option<String>, Vec<JobId>> = BTreeMap::new();
        for id in ids {
            clusters.entry(id.cluster.clone()).or_default().push(id.clone());
        }
        let mut found: HashMap<JobId, Presence<Job>> = HashMap::new();
        for group in clusters.values().flat_map(|group| group.chunks(IDS_MAX)) {
            found.extend(self.look_at(group).await?);
        }
        Ok(ids.iter().map(|id| found.get(id).cloned().unwrap_or(Presence::Absent)).collect())
    }

    /// Looks at up to a thousand ids of one cluster.
    async fn look_at(&self, ids: &[JobId]) -> Result<Vec<(JobId, Presence<Job>)>, Error> {
        let queue = match self.ask_queue(&Scope::Ids(ids.to_vec())).await {
            Ok(rows) => rows.jobs,
            Err(Error::Unreachable { words, .. }) => {
                return Ok(ids.iter().map(|id| (id.clone(), Presence::CouldNotAsk(words.clone()))).collect());
            }
            Err(error) => return Err(error),
        };
        // The queue tells all about a job that lives and has one row. Of an array it forgets the ended tasks, and of
        // an ended job it shows no exit code.
        let asked: Vec<JobId> = ids
            .iter()
            .filter(|id| {
                let mut rows = queue.iter().filter(|job| id.covers(&job.id, job.raw_number));
                match (rows.next(), rows.next()) {
                    (Some(one), None) => {
                        one.state.terminal() || (one.array.is_some() && id.part == Part::Whole)
                    }
                    _ => true,
                }
            })
            .cloned()
            .collect();
        let history = self.ask_history(&asked).await;
        let mut told = Vec::new();
        for id in ids {
            let presence = match (&history, asked.contains(id)) {
                (Ok(rows), _) => self.judge(id, &queue, rows),
                (Err(_), false) => self.judge(id, &queue, &[]),
                (Err(Error::Unreachable { words, .. }), true) => {
                    // Without accounting the queue's own row still counts, but an absence there proves nothing.
                    match look::merge(id, &queue, &[]) {
                        Some(job) => Presence::Present(self.owned(job)),
                        None => Presence::CouldNotAsk(words.clone()),
                    }
                }
                (Err(_), true) => {
                    return match history {
                        Err(error) => Err(error),
                        Ok(_) => Ok(told),
                    };
                }
            };
            told.push((id.clone(), presence));
        }
        Ok(told)
    }

    /// Judges one id by what queue and accounting answered. An absence from both says nothing about a job of ours
    /// until accounting has had time to catch up.
    fn judge(&self, id: &JobId, queue: &[Job], history: &[Job]) -> Presence<Job> {
        if let Some(mut job) = look::merge(id, queue, history) {
            let in_queue = queue.iter().any(|row| id.covers(&row.id, row.raw_number));
            if !in_queue && super::slurm::provisional(&job) {
                job.warn("may_run_again", "only accounting shows this end; a requeue may follow it");
            }
            return Presence::Present(self.owned(job));
        }
        let Some(own) = self.own(id) else {
            return Presence::Absent;
        };
        let age = (self.clock)().duration_since(own.at);
        let grace = SignedDuration::try_from(self.limits.accounting_grace).unwrap_or(SignedDuration::MAX);
        let mut job = if age < grace {
            let mut job = Job::bare(id.clone(), State::Pending, "");
            job.reason = Some("not visible yet".to_owned());
            job
        } else {
            let mut job = Job::bare(id.clone(), State::Lost, "");
            job.reason = Some(format!(
                "neither queue nor accounting knows it; job {} may still be queued or running",
                id.text
            ));
            job
        };
        job.submitted_at = Some(own.at);
        Presence::Present(self.owned(job))
    }

    /// Finds what we know of a job because we submitted it.
    pub(super) fn own(&self, id: &JobId) -> Option<Submitted> {
        let own = lock(&self.own);
        own.get(&(id.cluster.clone(), id.number)).or_else(|| own.get(&(None, id.number))).cloned()
    }

    fn owned(&self, mut job: Job) -> Job {
        self.add_own(&mut job);
        job
    }

    /// Adds what only we know: the exact name, since accounting spoils bytes, and the key, which it may not keep.
    fn add_own(&self, job: &mut Job) {
        let Some(own) = self.own(&job.id) else {
            return;
        };
        if job.submission_key.is_none() {
            job.submission_key = Some(own.key);
        }
        if own.name.is_some() {
            job.name = own.name;
        }
    }

    /// Adds what the scheduler keeps of one job while it remembers it.
    pub(super) async fn add_detail(&self, asked: &JobId, job: &mut Job) -> Result<(), Error> {
        // A job that no answer showed isn't known to the controller either.
        if job.state_raw.is_empty() {
            return Ok(());
        }
        let Some(question) = self.scheduler.detail(asked, job) else {
            return Ok(());
        };
        let answer = self.ask(&question).await?;
        match self.scheduler.read_detail(job, &answer) {
            // Details are extra: what queue and accounting said stands without them.
            Err(Error::Unreachable { .. }) => Ok(()),
            other => other,
        }
    }

    pub(super) async fn ask_queue(&self, scope: &Scope) -> Result<Rows, Error> {
        let fence = Fence::from_random(rand::random());
        let answer = self.ask(&self.scheduler.queue(scope, &fence)).await?;
        self.scheduler.read_queue(scope, &fence, &answer)
    }

    async fn ask_history(&self, ids: &[JobId]) -> Result<Vec<Job>, Error> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        // A window from the oldest submission that we know; where one isn't ours, from the beginning.
        let since = ids
            .iter()
            .map(|id| self.own(id).map(|own| own.at))
            .try_fold(Timestamp::MAX, |oldest, at| at.map(|at| oldest.min(at)));
        let fence = Fence::from_random(rand::random());
        let Some(question) = self.scheduler.history(ids, since, &fence) else {
            return Ok(Vec::new());
        };
        let answer = self.ask(&question).await?;
        Ok(self.scheduler.read_history(ids, &fence, &answer)?.jobs)
    }

    /// Runs one question, counted.
    pub(super) async fn ask(&self, question: &Question) -> Result<Answer, Error> {
        self.pace().asked(Instant::now());
        self.send(question).await.map_err(|source| Error::Remote { doing: program(question), source })
    }

    /// Runs one command without the variables of a surrounding job.
    pub(super) async fn send(&self, question: &Question) -> Result<Answer, RemoteError> {
        self.remote.run(call(question, &self.leaks)).await
    }

    /// Shows the argument vector that is really run.
    pub(super) fn argv(&self, question: &Question) -> Vec<Vec<u8>> {
        call(question, &self.leaks).argv
    }

    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        lock(&self.pace)
    }

    pub(super) fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

/// A poisoned lock only means that another caller panicked; both maps are valid after every single step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn missing() -> Error {
    Error::NoScheduler { looked_for: "sbatch".to_owned() }
}

pub(super) fn program(question: &Question) -> String {
    super::record::shown(question.argv.first().map_or(b"", Vec::as_slice))
}

/// Makes a call of a question. What leaks is taken out by `env -u`, but for what the question sets itself.
fn call(question: &Question, leaks: &[Vec<u8>]) -> Call {
    let mut argv = Vec::new();
    for name in leaks {
        if question.env.iter().any(|(set, _)| set == name) {
            continue;
        }
        if argv.is_empty() {
            argv.push(b"env".to_vec());
        }
        argv.extend([b"-u".to_vec(), name.clone()]);
    }
    argv.extend(question.argv.iter().cloned());
    Call {
        argv,
        stdin: question.stdin.clone(),
        cwd: None,
        env: question.env.clone(),
        deadline: question.deadline,
        stdout_bytes_max: ANSWER_BYTES_MAX,
    }
}

/// Turns three answers into jobs, or into the error that names all that are missing.
pub(super) fn present(ids: &[JobId], told: Vec<Presence<Job>>) -> Result<Vec<Job>, Error> {
    let mut jobs = Vec::new();
    let mut missing = Vec::new();
    for (id, presence) in ids.iter().zip(told) {
        match presence {
            Presence::Present(job) => jobs.push(job),
            Presence::Absent => missing.push(id.to_string()),
            Presence::CouldNotAsk(words) => {
                return Err(Error::Unreachable { command: format!("asking for job {id}"), words });
            }
        }
    }
    if missing.is_empty() { Ok(jobs) } else { Err(Error::NotFound { ids: missing }) }
}
