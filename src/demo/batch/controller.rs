//! The controller: runs the jobs, ends them at their limits or when they are cancelled.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::store::{Job, State, Store};
use super::{CLUSTER_NAME, NODE, NODE_CPUS, PARTITION, control, times};
use crate::demo::account::own_session;

/// How often the queue is looked at, and a running job's end, limit and cancellation.
const LOOK: Duration = Duration::from_millis(20);
/// The time between SIGTERM and SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(2);
/// The signal that Slurm reports where a job can't be launched, such as when its output can't be opened.
const NOT_LAUNCHED: i32 = 53;

/// How often the end of the controller is looked for: 10 s in all, more than a stubborn job gets.
const LAST_LOOKS: u32 = 500;

/// A thread that works through a cluster's queue, one job at a time.
pub(in crate::demo) struct Controller {
    store: Store,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Controller {
    pub(in crate::demo) fn start(cluster: &Path) -> io::Result<Self> {
        let store = Store(cluster.to_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let (queue, stopped) = (store.clone(), Arc::clone(&stop));
        let work = move || {
            while !stopped.load(Ordering::SeqCst) {
                match run_next(&queue) {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%error, "the demo's batch system failed"),
                }
                thread::sleep(LOOK);
            }
        };
        let thread = thread::Builder::new().name("towline-demo-jobs".to_owned()).spawn(work)?;
        Ok(Self { store, stop, thread })
    }

    /// Cancels every job and waits until the one that runs has ended.
    pub(in crate::demo) fn end(&self) -> io::Result<()> {
        let cancelled = control::cancel(&self.store, |_| true);
        self.stop.store(true, Ordering::SeqCst);
        let mut looks = 0..LAST_LOOKS;
        while !self.thread.is_finished() {
            looks.next().ok_or(io::ErrorKind::TimedOut)?;
            thread::sleep(LOOK);
        }
        cancelled
    }
}

/// Runs the next job to its end; `false` where none waits.
fn run_next(store: &Store) -> io::Result<bool> {
    let lock = store.lock()?;
    let next = store.jobs()?.into_iter().find(|job| job.state == State::Pending && !job.held);
    let Some(mut job) = next else {
        return Ok(false);
    };
    job.state = State::Running;
    job.started = Some(times::now());
    store.save(&job, &lock)?;
    drop(lock);
    let (status, timed_out) = match spawn(store, &job) {
        Ok(child) => watch(store, &job, child)?,
        // A missing directory or interpreter ends the same way; Slurm tells these apart.
        Err(_) => (ExitStatus::from_raw(NOT_LAUNCHED), false),
    };
    let lock = store.lock()?;
    // Read again: it may have been cancelled meanwhile.
    job.cancelled_by = store.job(job.id)?.and_then(|job| job.cancelled_by);
    job.ended = Some(times::now());
    (job.code, job.signal) = (status.code().unwrap_or(0), status.signal().unwrap_or(0));
    job.state = match status.success() {
        _ if job.cancelled_by.is_some() => State::Cancelled,
        _ if timed_out => State::Timeout,
        true => State::Completed,
        false => State::Failed,
    };
    store.save(&job, &lock)?;
    Ok(true)
}

fn spawn(store: &Store, job: &Job) -> io::Result<Child> {
    let stdout = File::create(&job.stdout)?;
    let stderr = if job.stderr == job.stdout { stdout.try_clone()? } else { File::create(&job.stderr)? };
    let (id, cpus) = (job.id.to_string(), NODE_CPUS.to_string());
    let mut command = Command::new(store.script(job.id));
    command
        .args(job.command.iter().skip(1))
        .env_clear()
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .envs([
            ("SLURM_CLUSTER_NAME", CLUSTER_NAME),
            ("SLURM_CPUS_ON_NODE", &cpus),
            ("SLURM_JOB_ID", &id),
            ("SLURM_JOB_NAME", &job.name),
            ("SLURM_JOB_NODELIST", NODE),
            ("SLURM_JOB_PARTITION", PARTITION),
        ]);
    own_session(&mut command);
    command.current_dir(&job.work_dir).stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn()
}

/// Waits for the job, ends it at its limit or when it is cancelled, and says whether it met its limit.
fn watch(store: &Store, job: &Job, mut child: Child) -> io::Result<(ExitStatus, bool)> {
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let (begun, limit) = (Instant::now(), Duration::from_secs(job.limit_s.unsigned_abs()));
    let (mut timed_out, mut terminated) = (false, None::<Instant>);
    loop {
        if let Some(status) = child.try_wait()? {
            // What the script left behind. The group's number stays taken as long as it has members.
            send(group, Signal::SIGKILL)?;
            return Ok((status, timed_out));
        }
        let cancelled = store.job(job.id)?.is_some_and(|job| job.cancelled_by.is_some());
        timed_out = timed_out || (!cancelled && begun.elapsed() >= limit);
        match terminated {
            None if cancelled || timed_out => {
                terminated = Some(Instant::now());
                // A stopped job hears nothing before it is continued.
                send(group, Signal::SIGCONT)?;
                send(group, Signal::SIGTERM)?;
            }
            Some(since) if since.elapsed() >= KILL_WAIT => send(group, Signal::SIGKILL)?,
            _ => {}
        }
        thread::sleep(LOOK);
    }
}

/// Signals a group; one without members is no error.
fn send(group: Pid, signal: Signal) -> io::Result<()> {
    match killpg(group, signal) {
        Ok(()) | Err(nix::Error::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
