//! The runner: works through the queue, one job at a time, and ends with it.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::store::{Job, State, Store};
use super::{Answer, CLUSTER_NAME, NODE, NODE_CPUS, PARTITION, clock};
use crate::demo::account::own_session;

/// How often a running job is checked for its limit and for cancellation.
const LOOK: Duration = Duration::from_millis(50);

/// The time between SIGTERM and SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// What Slurm reports where a job's output can't be opened.
const NOT_LAUNCHED: i32 = 53;

pub(super) fn run(store: &Store) -> Answer {
    let Some(place) = store.lock_runner()? else {
        return Ok(String::new());
    };
    loop {
        let lock = store.lock()?;
        let next = store.jobs()?.into_iter().find(|job| job.state == State::Pending && !job.held);
        let Some(mut job) = next else {
            // Given up before the lock is: who submits after us finds the place free, who did before was seen.
            drop(place);
            return Ok(String::new());
        };
        job.state = State::Running;
        job.started = Some(clock::now());
        store.save(&job, &lock)?;
        drop(lock);
        let end = execute(store, &job)?;
        let lock = store.lock()?;
        // Read again: it may have been cancelled meanwhile.
        if let Some(mut job) = store.job(job.id)? {
            end.record(&mut job);
            store.save(&job, &lock)?;
        }
    }
}

/// How a job ended.
struct End {
    status: Result<ExitStatus, i32>,
    timed_out: bool,
}

impl End {
    fn record(self, job: &mut Job) {
        job.ended = Some(clock::now());
        job.group = None;
        (job.code, job.signal) = match self.status {
            Ok(status) => (status.code().unwrap_or(0), status.signal().unwrap_or(0)),
            Err(signal) => (0, signal),
        };
        let (state, reason) = match (job.code, job.signal) {
            _ if job.cancelled_by.is_some() => (State::Cancelled, None),
            _ if self.timed_out => (State::Timeout, Some("TimeLimit")),
            (0, 0) => (State::Completed, None),
            (_, 0) => (State::Failed, Some("NonZeroExitCode")),
            _ => (State::Failed, Some("JobLaunchFailure")),
        };
        job.state = state;
        job.reason = reason.map(str::to_owned);
    }
}

fn execute(store: &Store, job: &Job) -> io::Result<End> {
    // A missing directory or interpreter ends the same way; Slurm tells these apart.
    let Ok(child) = spawn(store, job) else {
        return Ok(End { status: Err(NOT_LAUNCHED), timed_out: false });
    };
    let group = i32::try_from(child.id()).map_err(io::Error::other)?;
    let lock = store.lock()?;
    if let Some(mut job) = store.job(job.id)? {
        job.group = Some(group);
        store.save(&job, &lock)?;
    }
    drop(lock);
    watch(store, job, child, group)
}

fn spawn(store: &Store, job: &Job) -> io::Result<Child> {
    let stdout = File::create(&job.stdout)?;
    let stderr = if job.stderr == job.stdout { stdout.try_clone()? } else { File::create(&job.stderr)? };
    let mut command = command(store, job);
    command.current_dir(&job.work_dir).stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn()
}

/// Waits for the job; ends it at its limit or when it is cancelled.
fn watch(store: &Store, job: &Job, child: Child, group: i32) -> io::Result<End> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(wait(child, group)));
    let begun = Instant::now();
    let limit = Duration::from_secs(job.limit_s.unsigned_abs());
    let (mut timed_out, mut terminated) = (false, None::<Instant>);
    loop {
        match told.recv_timeout(LOOK) {
            Ok(status) => return Ok(End { status: Ok(status?), timed_out }),
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let cancelled = store.job(job.id)?.is_some_and(|job| job.cancelled_by.is_some());
        timed_out = timed_out || (!cancelled && begun.elapsed() >= limit);
        let signal = match terminated {
            None if cancelled || timed_out => {
                terminated = Some(Instant::now());
                Signal::SIGTERM
            }
            Some(since) if since.elapsed() >= KILL_WAIT => Signal::SIGKILL,
            _ => continue,
        };
        for signal in [Signal::SIGCONT, signal] {
            match killpg(Pid::from_raw(group), signal) {
                Ok(()) | Err(nix::Error::ESRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Waits for the script, then kills what it left behind in its group.
fn wait(mut child: Child, group: i32) -> io::Result<ExitStatus> {
    let status = child.wait();
    // Its number stays taken as long as the group has members; no such group: nothing was left.
    killpg(Pid::from_raw(group), Signal::SIGKILL).unwrap_or_default();
    status
}

fn command(store: &Store, job: &Job) -> Command {
    let mut command = Command::new(store.script(job.id));
    let (id, cpus) = (job.id.to_string(), job.cpus.to_string());
    let (uid, cpus_on_node) = (job.uid.to_string(), NODE_CPUS.to_string());
    command
        .args(&job.arguments)
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .envs([
            ("ENVIRONMENT", "BATCH"),
            ("SLURM_CLUSTER_NAME", CLUSTER_NAME),
            ("SLURM_CPUS_ON_NODE", &cpus_on_node),
            ("SLURM_JOBID", &id),
            ("SLURM_JOB_ACCOUNT", &job.account),
            ("SLURM_JOB_CPUS_PER_NODE", &cpus),
            ("SLURM_JOB_ID", &id),
            ("SLURM_JOB_NAME", &job.name),
            ("SLURM_JOB_NODELIST", NODE),
            ("SLURM_JOB_NUM_NODES", "1"),
            ("SLURM_JOB_PARTITION", PARTITION),
            ("SLURM_JOB_QOS", &job.qos),
            ("SLURM_JOB_UID", &uid),
            ("SLURM_JOB_USER", &job.user),
            ("SLURM_NNODES", "1"),
            ("SLURM_NODELIST", NODE),
            ("SLURM_SUBMIT_DIR", &job.submit_dir),
            ("SLURMD_NODENAME", NODE),
        ]);
    own_session(&mut command);
    command
}
