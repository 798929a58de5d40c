//! The jobs and the locks: a JSON file a job, replaced whole, changed only under a lock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::times;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    #[default]
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
    Timeout,
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) account: String,
    pub(super) qos: String,
    pub(super) comment: Option<String>,
    /// The script's path and its arguments; empty where it came on stdin.
    pub(super) command: Vec<String>,
    /// The whole command line of its submission.
    pub(super) submit_line: String,
    pub(super) work_dir: PathBuf,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
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
}

impl Job {
    /// Its state in Slurm's words.
    pub(super) fn word(&self) -> &'static str {
        match self.state {
            State::Pending => "PENDING",
            State::Running if self.cancelled_by.is_some() => "COMPLETING",
            State::Running => "RUNNING",
            State::Completed => "COMPLETED",
            State::Failed => "FAILED",
            State::Cancelled => "CANCELLED",
            State::Timeout => "TIMEOUT",
        }
    }

    /// Why it waits or failed, in Slurm's words; `None` is one of them.
    pub(super) fn reason(&self) -> &'static str {
        match self.state {
            State::Pending if self.held => "JobHeldUser",
            State::Pending => "Resources",
            State::Failed if self.signal == 0 => "NonZeroExitCode",
            State::Failed => "JobLaunchFailure",
            State::Timeout => "TimeLimit",
            State::Running | State::Completed | State::Cancelled => "None",
        }
    }

    pub(super) fn active(&self) -> bool {
        matches!(self.state, State::Pending | State::Running)
    }

    pub(super) fn elapsed(&self) -> i64 {
        let end = self.ended.unwrap_or_else(times::now);
        self.started.map_or(0, |started| end - started)
    }
}

/// The cluster's directory.
#[derive(Clone)]
pub(super) struct Store(pub(super) PathBuf);

impl Store {
    pub(super) fn script(&self, id: u64) -> PathBuf {
        self.0.join(format!("{id}.sh"))
    }

    /// Waits for the right to change jobs.
    pub(super) fn lock(&self) -> io::Result<Flock<File>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(self.0.join("lock"))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
    }

    /// All jobs, oldest first.
    pub(super) fn jobs(&self) -> io::Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for entry in fs::read_dir(&self.0)? {
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

    /// Replaces a job's file whole, so readers need no lock. A demo needn't outlive a power cut: no fsync.
    pub(super) fn save(&self, job: &Job, _lock: &Flock<File>) -> io::Result<()> {
        let path = self.0.join(format!("{}.json", job.id));
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(job)?)?;
        fs::rename(new, path)
    }
}
