//! A job as towline tells it: the pinned fields, with the scheduler's own words beside them.

use base64::Engine as _;
use jiff::Timestamp;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::id::JobId;
use super::key::SubmissionKey;

/// The normalised state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for its turn.
    Pending,
    /// Waits until somebody releases it.
    Held,
    /// Runs.
    Running,
    /// Was stopped for a while.
    Suspended,
    /// Its processes are ending; not finished.
    Completing,
    /// Ended well, with exit code 0.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Its time limit or deadline ended it.
    TimedOut,
    /// Was killed for memory.
    OutOfMemory,
    /// Was cancelled.
    Cancelled,
    /// A node failed under it.
    NodeFailed,
    /// Gave way to another job.
    Preempted,
    /// A job of ours whose truth is gone.
    Lost,
    /// A word or a contradiction that can't be settled.
    Unknown,
}

impl State {
    /// Tells whether the job will not run any more.
    pub fn terminal(self) -> bool {
        match self {
            State::Succeeded
            | State::Failed
            | State::TimedOut
            | State::OutOfMemory
            | State::Cancelled
            | State::NodeFailed
            | State::Preempted
            | State::Lost => true,
            State::Pending
            | State::Held
            | State::Running
            | State::Suspended
            | State::Completing
            | State::Unknown => false,
        }
    }

    /// Shows the pinned word.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Held => "held",
            State::Running => "running",
            State::Suspended => "suspended",
            State::Completing => "completing",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::TimedOut => "timed_out",
            State::OutOfMemory => "out_of_memory",
            State::Cancelled => "cancelled",
            State::NodeFailed => "node_failed",
            State::Preempted => "preempted",
            State::Lost => "lost",
            State::Unknown => "unknown",
        }
    }
}

/// One of the three answers: there, not there, or could not ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence<T> {
    /// It is there.
    Present(T),
    /// The one who was asked answered, and doesn't know it.
    Absent,
    /// Nobody answered, for this reason; nothing follows from it.
    CouldNotAsk(String),
}

/// The place of a job in an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArrayPlace {
    /// The array's own id.
    pub id: String,
    /// The task, or `None` for the array as a whole or a range of it.
    pub task: Option<u64>,
    /// Tasks that have not been started, as the scheduler writes them: `6-10%2`.
    pub pending: Option<String>,
}

/// A part of a job: an array's task, a range of them, or a component of a heterogeneous job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobPart {
    /// The scheduler's own text.
    pub id: String,
    /// Its state.
    pub state: State,
    /// The scheduler's own word.
    pub state_raw: String,
    /// How many tasks it stands for: 1, or those of a pending range.
    pub tasks: u64,
    /// Its exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Where it runs.
    pub nodes: Vec<String>,
}

/// Something that a caller should know about a job, without it being an error.
///
/// Serializes to one text, the code in front: `oom_in_step: step 4711.0 …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A word to test for, such as `oom_in_step`.
    pub code: &'static str,
    /// What it means here.
    pub message: String,
}

impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}: {}", self.code, self.message))
    }
}

/// A job, with `None` for what is not known.
///
/// Serializes to the pinned fields; texts that are not UTF-8 are shown escaped, their bytes in `…_b64` beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// The number that the scheduler keeps for this part alone (`JobIDRaw` of a Slurm array task).
    pub raw_number: Option<u64>,
    /// Its name, exactly.
    pub name: Option<Vec<u8>>,
    /// Whose it is.
    pub user: Option<String>,
    /// Its queue (Slurm: partition), or several with commas between.
    pub queue: Option<String>,
    /// The account that pays.
    pub account: Option<String>,
    /// Its quality of service.
    pub qos: Option<String>,
    /// Its state.
    pub state: State,
    /// The scheduler's own word.
    pub state_raw: String,
    /// Why it is in that state, in the scheduler's own words.
    pub reason: Option<String>,
    /// Exit code; `None` while it lives and when a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it, 1 to 64.
    pub signal: Option<i32>,
    /// Exit code and signal as the scheduler wrote them: `0:125`.
    pub exit_raw: Option<String>,
    /// The numeric user who cancelled it.
    pub cancelled_by: Option<u64>,
    /// When it was submitted; after a requeue, when it was put back.
    pub submitted_at: Option<Timestamp>,
    /// When it began to run.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How long it has run, in seconds.
    pub elapsed_s: Option<u64>,
    /// How long it may run, in seconds; `None` also when there is no limit.
    pub time_limit_s: Option<u64>,
    /// The nodes that it has.
    pub nodes: Vec<String>,
    /// How many nodes it has or wants.
    pub node_count: Option<u64>,
    /// How many CPUs it has or wants.
    pub cpus: Option<u64>,
    /// How much memory it has or wants, all nodes together, in bytes.
    pub mem_bytes: Option<u64>,
    /// The largest resident size of one of its tasks, in bytes.
    pub max_rss_bytes: Option<u64>,
    /// How many GPUs it has or wants, all nodes together.
    pub gpus: Option<u64>,
    /// Its working directory, exactly.
    pub work_dir: Option<Vec<u8>>,
    /// The file of its standard output, exactly.
    pub stdout: Option<Vec<u8>>,
    /// The file of its standard error, exactly.
    pub stderr: Option<Vec<u8>>,
    /// Its place in an array.
    pub array: Option<ArrayPlace>,
    /// The key under which towline submitted it.
    pub submission_key: Option<SubmissionKey>,
    /// How often it was put back into the queue.
    pub restarts: Option<u64>,
    /// Tasks of an array or components of a heterogeneous job.
    pub parts: Vec<JobPart>,
    /// What a caller should know.
    pub warnings: Vec<Warning>,
}

impl Job {
    /// Makes a job of which nothing but id and state is known.
    pub fn bare(id: JobId, state: State, state_raw: impl Into<String>) -> Self {
        Job {
            id,
            raw_number: None,
            name: None,
            user: None,
            queue: None,
            account: None,
            qos: None,
            state,
            state_raw: state_raw.into(),
            reason: None,
            exit_code: None,
            signal: None,
            exit_raw: None,
            cancelled_by: None,
            submitted_at: None,
            started_at: None,
            ended_at: None,
            elapsed_s: None,
            time_limit_s: None,
            nodes: Vec::new(),
            node_count: None,
            cpus: None,
            mem_bytes: None,
            max_rss_bytes: None,
            gpus: None,
            work_dir: None,
            stdout: None,
            stderr: None,
            array: None,
            submission_key: None,
            restarts: None,
            parts: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a warning once.
    pub(crate) fn warn(&mut self, code: &'static str, message: impl Into<String>) {
        if !self.warnings.iter().any(|known| known.code == code) {
            self.warnings.push(Warning { code, message: message.into() });
        }
    }

    /// Takes from another record of the same job what this one doesn't know.
    pub(crate) fn fill_from(&mut self, other: &Job) {
        fn fill<T: Clone>(ours: &mut Option<T>, theirs: &Option<T>) {
            if ours.is_none() {
                ours.clone_from(theirs);
            }
        }
        fill(&mut self.raw_number, &other.raw_number);
        fill(&mut self.id.cluster, &other.id.cluster);
        fill(&mut self.name, &other.name);
        fill(&mut self.user, &other.user);
        fill(&mut self.queue, &other.queue);
        fill(&mut self.account, &other.account);
        fill(&mut self.qos, &other.qos);
        fill(&mut self.submitted_at, &other.submitted_at);
        fill(&mut self.elapsed_s, &other.elapsed_s);
        fill(&mut self.time_limit_s, &other.time_limit_s);
        fill(&mut self.node_count, &other.node_count);
        fill(&mut self.cpus, &other.cpus);
        fill(&mut self.mem_bytes, &other.mem_bytes);
        fill(&mut self.max_rss_bytes, &other.max_rss_bytes);
        fill(&mut self.gpus, &other.gpus);
        fill(&mut self.work_dir, &other.work_dir);
        fill(&mut self.stdout, &other.stdout);
        fill(&mut self.stderr, &other.stderr);
        fill(&mut self.submission_key, &other.submission_key);
        fill(&mut self.restarts, &other.restarts);
        if self.nodes.is_empty() {
            self.nodes.clone_from(&other.nodes);
        }
        for warning in &other.warnings {
            self.warn(warning.code, warning.message.clone());
        }
        // What ends a job belongs together: it is taken only when the other one saw the same end.
        if self.state.terminal() && other.state.terminal() {
            fill(&mut self.started_at, &other.started_at);
            fill(&mut self.ended_at, &other.ended_at);
            fill(&mut self.cancelled_by, &other.cancelled_by);
            if self.exit_raw.is_none() {
                self.exit_code = other.exit_code;
                self.signal = other.signal;
                self.exit_raw.clone_from(&other.exit_raw);
            }
        }
    }
}

/// Shows bytes as text for people, with each byte that is not UTF-8 as `\xNN`.
pub fn shown(bytes: &[u8]) -> String {
    towline_helper::wire::ByteText(bytes.to_vec()).escaped()
}

/// Writes a text of bytes: `key` escaped, and `key_b64` where that loses something.
fn bytes_entry<M: SerializeMap>(map: &mut M, key: &str, bytes: Option<&[u8]>) -> Result<(), M::Error> {
    map.serialize_entry(key, &bytes.map(shown))?;
    match bytes {
        Some(bytes) if std::str::from_utf8(bytes).is_err() => map
            .serialize_entry(&format!("{key}_b64"), &base64::engine::general_purpose::STANDARD.encode(bytes)),
        _ => Ok(()),
    }
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = |time: &Option<Timestamp>| time.map(|time| time.to_string());
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("cluster", &self.id.cluster)?;
        bytes_entry(&mut map, "name", self.name.as_deref())?;
        map.serialize_entry("user", &self.user)?;
        map.serialize_entry("queue", &self.queue)?;
        map.serialize_entry("account", &self.account)?;
        map.serialize_entry("qos", &self.qos)?;
        map.serialize_entry("state", &self.state)?;
        map.serialize_entry("state_raw", &self.state_raw)?;
        map.serialize_entry("reason", &self.reason)?;
        map.serialize_entry("exit_code", &self.exit_code)?;
        map.serialize_entry("signal", &self.signal)?;
        map.serialize_entry("exit_raw", &self.exit_raw)?;
        map.serialize_entry("cancelled_by", &self.cancelled_by)?;
        map.serialize_entry("submitted_at", &time(&self.submitted_at))?;
        map.serialize_entry("started_at", &time(&self.started_at))?;
        map.serialize_entry("ended_at", &time(&self.ended_at))?;
        map.serialize_entry("elapsed_s", &self.elapsed_s)?;
        map.serialize_entry("time_limit_s", &self.time_limit_s)?;
        map.serialize_entry("nodes", &self.nodes)?;
        map.serialize_entry("node_count", &self.node_count)?;
        map.serialize_entry("cpus", &self.cpus)?;
        map.serialize_entry("mem_bytes", &self.mem_bytes)?;
        map.serialize_entry("max_rss_bytes", &self.max_rss_bytes)?;
        map.serialize_entry("gpus", &self.gpus)?;
        bytes_entry(&mut map, "work_dir", self.work_dir.as_deref())?;
        bytes_entry(&mut map, "stdout", self.stdout.as_deref())?;
        bytes_entry(&mut map, "stderr", self.stderr.as_deref())?;
        map.serialize_entry("array", &self.array)?;
        map.serialize_entry("submission_key", &self.submission_key)?;
        map.serialize_entry("restarts", &self.restarts)?;
        map.serialize_entry("parts", &self.parts)?;
        map.serialize_entry("warnings", &self.warnings)?;
        map.end()
    }
}
