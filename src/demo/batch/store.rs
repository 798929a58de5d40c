//! The jobs and the locks: a JSON file a job, replaced whole, changed only under a lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::{CLUSTER, Failure, clock};

/// How long the queue's commands remember an ended job, in seconds (Slurm's default `MinJobAge`).
const MEMORY_S: i64 = 300;

/// How often, and how many times, [`Store::await_runner`] looks: 10 s in all, more than a stubborn job gets.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
    Timeout,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) account: String,
    pub(super) qos: String,
    pub(super) comment: Option<String>,
    /// The script's path and arguments, as scontrol shows them.
    pub(super) command: Option<String>,
    pub(super) arguments: Vec<String>,
    /// The whole command line of its submission.
    pub(super) submit_line: String,
    pub(super) submit_dir: String,
    pub(super) work_dir: String,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) environment: Vec<(String, String)>,
    pub(super) cpus: u32,
    pub(super) memory: String,
    pub(super) limit_s: i64,
    pub(super) submitted: i64,
    pub(super) started: Option<i64>,
    pub(super) ended: Option<i64>,
    pub(super) held: bool,
    pub(super) state: State,
    pub(super) code: i32,
    pub(super) signal: i32,
    pub(super) cancelled_by: Option<u32>,
    /// The process group while it runs.
    pub(super) group: Option<i32>,
    /// Why it failed.
    pub(super) reason: Option<String>,
}

impl Job {
    /// The state's full name and its two letters.
    pub(super) fn words(&self) -> (&'static str, &'static str) {
        match self.state {
            State::Pending => ("PENDING", "PD"),
            State::Running if self.cancelled_by.is_some() => ("COMPLETING", "CG"),
            State::Running => ("RUNNING", "R"),
            State::Completed => ("COMPLETED", "CD"),
            State::Failed => ("FAILED", "F"),
            State::Cancelled => ("CANCELLED", "CA"),
            State::Timeout => ("TIMEOUT", "TO"),
        }
    }

    pub(super) fn active(&self) -> bool {
        matches!(self.state, State::Pending | State::Running)
    }

    /// Whether squeue and scontrol still know it.
    pub(super) fn remembered(&self) -> bool {
        let age = self.ended.map_or(0, |ended| clock::now() - ended);
        self.active() || age < MEMORY_S
    }

    pub(super) fn elapsed(&self) -> i64 {
        let end = self.ended.unwrap_or_else(clock::now);
        self.started.map_or(0, |started| end - started)
    }

    /// When it ended, or will at the latest.
    pub(super) fn end(&self) -> Option<i64> {
        self.ended.or(self.started.map(|start| start.saturating_add(self.limit_s)))
    }

    pub(super) fn priority(&self) -> u32 {
        if self.held { 0 } else { 1000 }
    }

    /// Why it waits, in Slurm's words; `None` is Slurm's word for no reason.
    pub(super) fn reason(&self, jobs: &[Self]) -> String {
        let ahead = |other: &Self| other.active() && !other.held && other.id < self.id;
        match self.state {
            State::Pending if self.held => "JobHeldUser".to_owned(),
            State::Pending => match jobs.iter().filter(|other| ahead(other)).count() {
                0 => "None".to_owned(),
                1 => "Resources".to_owned(),
                _ => "Priority".to_owned(),
            },
            _ => self.reason.clone().unwrap_or_else(|| "None".to_owned()),
        }
    }
}

pub(super) struct Store {
    dir: PathBuf,
}

/// Held while jobs change.
pub(super) type Lock = Flock<File>;

impl Store {
    pub(super) fn at(dir: &Path) -> Self {
        let dir = dir.to_owned();
        Self { dir }
    }

    pub(super) fn from_environment() -> Result<Self, Failure> {
        let dir = std::env::var_os(CLUSTER)
            .ok_or_else(|| Failure::new(1, format!("towline demo: {CLUSTER} is not set\n")))?;
        Ok(Self::at(Path::new(&dir)))
    }

    pub(super) fn script(&self, id: u64) -> PathBuf {
        self.dir.join(format!("{id}.sh"))
    }

    /// Waits for the right to change jobs.
    pub(super) fn lock(&self) -> io::Result<Lock> {
        let file = self.lock_file("lock")?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
    }

    /// Takes the runner's place; `None` while another has it.
    pub(super) fn lock_runner(&self) -> io::Result<Option<Lock>> {
        let file = self.lock_file("runner.lock")?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, nix::Error::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }

    /// Waits until no runner is left.
    pub(super) fn await_runner(&self) -> io::Result<()> {
        for _ in 0..LOOKS {
            if self.lock_runner()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        options.open(self.dir.join(name))
    }

    /// All jobs, oldest first.
    pub(super) fn jobs(&self) -> io::Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                jobs.push(serde_json::from_slice(&fs::read(path)?)?);
            }
        }
        jobs.sort_by_key(|job: &Job| job.id);
        Ok(jobs)
    }

    pub(super) fn job(&self, id: u64) -> io::Result<Option<Job>> {
        Ok(self.jobs()?.into_iter().find(|job| job.id == id))
    }

    /// Replaces a job's file whole, so that readers need no lock.
    pub(super) fn save(&self, job: &Job, _lock: &Lock) -> io::Result<()> {
        let path = self.dir.join(format!("{}.json", job.id));
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(job)?)?;
        fs::rename(new, path)
    }
}
