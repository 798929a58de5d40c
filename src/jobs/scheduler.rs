//! What a scheduler's dialect must be able to say and understand. Everything here is pure: bytes, times and random
//! numbers come in as arguments, questions and records go out.

use std::time::Duration;

use jiff::Timestamp;

use super::error::Error;
use super::id::JobId;
use super::key::SubmissionKey;
use super::options::SubmitOptions;
use super::record::Job;
use super::remote::Answer;

/// The schedulers that towline knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// Slurm.
    Slurm,
    /// OpenPBS and PBS Pro.
    Pbs,
    /// Torque.
    Torque,
    /// IBM Spectrum LSF and OpenLava.
    Lsf,
    /// Grid Engine in its several editions.
    Sge,
}

impl Dialect {
    /// Shows the word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Slurm => "slurm",
            Dialect::Pbs => "pbs",
            Dialect::Torque => "torque",
            Dialect::Lsf => "lsf",
            Dialect::Sge => "sge",
        }
    }
}

/// A question to the scheduler: one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The program and its arguments.
    pub argv: Vec<Vec<u8>>,
    /// What it reads from its standard input.
    pub stdin: Vec<u8>,
    /// Variables that it needs beyond the session's.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// How long it may take.
    pub deadline: Duration,
}

/// Sixteen hexadecimal digits that nobody could have put into a job's name beforehand, as they were drawn just now.
///
/// They stand between fields, so that a name with any byte in it can't forge a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence(String);

impl Fence {
    /// Makes a fence of 64 random bits.
    pub fn from_random(bits: u64) -> Self {
        Fence(format!("{bits:016x}"))
    }

    /// Shows the digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which jobs a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The asking user's own.
    Mine,
    /// Everybody's.
    AllUsers,
    /// Exactly these, all of one cluster.
    Ids(Vec<JobId>),
}

/// What a queue or an accounting answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// One record a row that is a job, a task, a range of tasks or a component; none is left out.
    pub jobs: Vec<Job>,
}

/// What can be done with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// End it.
    Cancel,
    /// Keep it from starting.
    Hold,
    /// Let it start.
    Release,
}

impl Action {
    /// Shows the command's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Cancel => "cancel",
            Action::Hold => "hold",
            Action::Release => "release",
        }
    }
}

/// A script and what it asks for, resolved and ready to be rendered.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The script's bytes.
    pub script: &'a [u8],
    /// The base name of the script's file.
    pub script_name: Option<&'a [u8]>,
    /// The options.
    pub options: &'a SubmitOptions,
    /// The key that the job will carry.
    pub key: &'a SubmissionKey,
    /// The session's home directory, which a leading `~/` stands for.
    pub home: &'a [u8],
}

/// A submission ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The command.
    pub question: Question,
    /// The name that the job will have, where it is known.
    pub name: Option<Vec<u8>>,
    /// Whether it is an array.
    pub array: bool,
    /// What the user should know first, such as an option that overrides the script's own.
    pub warnings: Vec<String>,
}

/// What the scheduler's answer to a submission proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// A job was made.
    Job(JobId),
    /// None was made.
    Refused {
        /// The scheduler's own words.
        words: String,
        /// What they mean and what to do, where that is known.
        meaning: Option<&'static str>,
    },
    /// One may have been made.
    Doubt {
        /// The scheduler's own words.
        words: String,
    },
}

/// A queue (Slurm: partition).
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether it takes and starts jobs.
    pub state: QueueState,
    /// The scheduler's own word.
    pub state_raw: String,
    /// Whether jobs without a queue go there.
    pub default: bool,
    /// Longest time of a job in seconds; `None` when there is no limit.
    pub max_time_s: Option<u64>,
    /// How many nodes it has.
    pub nodes: Option<u64>,
    /// How many CPUs it has.
    pub cpus: Option<u64>,
}

/// Whether a queue takes and starts jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueState {
    /// It does.
    Up,
    /// It doesn't.
    Down,
}

/// One scheduler's language: renders questions and reads answers, without any I/O.
///
/// A reader returns [`Error::Unreachable`] when the answer shows that the scheduler could not be asked; an empty
/// list always means that it was asked and knows none.
pub trait Scheduler: Send + Sync {
    /// Tells whose language it is.
    fn dialect(&self) -> Dialect;

    /// Tells the version, as the scheduler writes it.
    fn version(&self) -> &str;

    /// Reads an id that a user typed.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it is none, for example when it begins with a dash.
    fn parse_id(&self, text: &str) -> Result<JobId, Error>;

    /// Tells whether a variable of the session describes a surrounding job, and so must not reach the scheduler's
    /// commands.
    fn leaks(&self, variable: &[u8]) -> bool;

    /// Renders a submission.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for what this scheduler can't take.
    fn submit(&self, request: &Request<'_>) -> Result<Submission, Error>;

    /// Reads the answer to a submission.
    fn read_submit(&self, answer: &Answer) -> Submitted;

    /// Asks the queue.
    fn queue(&self, scope: &Scope, fence: &Fence) -> Question;

    /// Reads the queue's answer.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`], [`Error::Unreadable`] or [`Error::TooLarge`].
    fn read_queue(&self, scope: &Scope, fence: &Fence, answer: &Answer) -> Result<Rows, Error>;

    /// Asks the accounting, from `since` on; `None` where a scheduler has none.
    fn history(&self, ids: &[JobId], since: Option<Timestamp>, fence: &Fence) -> Option<Question>;

    /// Reads the accounting's answer.
    ///
    /// # Errors
    /// As [`Scheduler::read_queue`].
    fn read_history(&self, ids: &[JobId], fence: &Fence, answer: &Answer) -> Result<Rows, Error>;

    /// Asks for all that the scheduler keeps of one job, on the cluster that `asked` names; `None` where that adds
    /// nothing. A cluster that only an answer named is not asked by name: that needs the database of all clusters.
    fn detail(&self, asked: &JobId, job: &Job) -> Option<Question>;

    /// Adds what the answer says to the job; an answer about another job, or none, adds nothing.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the scheduler could not be asked.
    fn read_detail(&self, job: &mut Job, answer: &Answer) -> Result<(), Error>;

    /// Renders an action on jobs of one cluster.
    fn act(&self, action: Action, ids: &[JobId]) -> Question;

    /// Reads the answer to an action. Success here proves nothing yet; the caller looks.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::Refused`], [`Error::NotFound`], [`Error::Unreachable`] where nothing was
    /// done, [`Error::OutcomeUnknown`] where it may have been.
    fn read_act(&self, action: Action, ids: &[JobId], answer: &Answer) -> Result<(), Error>;

    /// Asks for the queues.
    fn queues(&self) -> Question;

    /// Reads the queues.
    ///
    /// # Errors
    /// As [`Scheduler::read_queue`].
    fn read_queues(&self, answer: &Answer) -> Result<Vec<Queue>, Error>;

    /// Expands the scheduler's patterns in the path of an output file for one job.
    fn expand(&self, pattern: &[u8], job: &Job) -> Option<Vec<u8>>;

    /// Names the file that standard output goes to when nothing was asked for.
    fn default_output(&self, job: &Job) -> Vec<u8>;

    /// Explains, for a job that ended, why there is no output file at all; `None` when it should be there.
    fn explain_missing_log(&self, job: &Job) -> Option<String>;
}
