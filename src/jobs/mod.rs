//! Jobs of batch schedulers: submit, list, show, wait, cancel, hold, release, logs, queues.
//!
//! Promises: "not in the queue" and "could not ask" are different answers everywhere; a submission whose outcome is
//! not known is said to be so and never repeated; no text that a user can choose is ever shell text, an option or a
//! separator. Thinking is pure ([`Scheduler`] and its dialects); [`Jobs`] runs it over a [`Remote`].
//! Imports: `line`. Read on: `scheduler.rs`, then `driver.rs`.

mod act;
mod driver;
mod error;
mod id;
mod key;
mod logs;
mod look;
mod options;
mod over_line;
mod pace;
mod record;
mod remote;
mod scheduler;
mod script;
mod slurm;
mod submit;
mod wait;

pub use driver::{Jobs, Limits, Submitted as OwnJob};
pub use error::Error;
pub use id::{JobId, Part, count_tasks, parse_tasks};
pub use key::{KEY_BYTES_MAX, SubmissionKey};
pub use logs::{Follow, LogOptions, LogPart, Output};
pub use options::{Gpus, Mail, Script, SubmitOptions};
pub use record::{ArrayPlace, Job, JobPart, Presence, State, Warning, shown};
pub use remote::{Answer, Call, Fault, FileFacts, FilePart, Remote, RemoteError};
pub use scheduler::{
    Action, Dialect, Fence, Question, Queue, QueueState, Request, Rows, Scheduler, Scope, Submission,
    Submitted,
};
pub use script::{Directive, SCRIPT_BYTES_MAX, check as check_script};
pub use slurm::{ANSWER_BYTES_MAX, Slurm};
pub use submit::{DryRun, ResolvedBy, Submitting};
pub use wait::Waited;
