//! Slurm's dialect.
//!
//! Promises: pure (no I/O, clock or randomness); user text never shares a separator with what is parsed; an unknown
//! word degrades its own row only; "could not ask" is never "not there". Imports the rest of the room's records only.

mod sacct;
mod scontrol;
mod squeue;
mod submit;
mod words;

use std::time::Duration;

use jiff::Timestamp;

use super::error::{Error, words as said};
use super::id::{JobId, Part};
use super::record::{Job, State};
use super::remote::Answer;
use super::scheduler::{
    Action, Dialect, Fence, Question, Queue, Request, Rows, Scheduler, Scope, Submission, Submitted,
};

/// Most bytes of one answer; rows of a queue have some 300 bytes.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// How long a question may take. Slurm's commands give up by themselves after 9 to 20 s.
const ASK: Duration = Duration::from_secs(30);
/// How long a submission may take.
const SUBMIT: Duration = Duration::from_secs(60);

/// Major and minor number of a version: `22.05` is `Version(22, 5)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

/// Slurm, of a certain version.
#[derive(Clone, Debug)]
pub struct Slurm {
    text: String,
    version: Version,
}

impl Slurm {
    /// Renders the question that tells whether Slurm is there: `sbatch --version`.
    pub fn detect() -> Question {
        Question {
            argv: vec![b"sbatch".to_vec(), b"--version".to_vec()],
            env: base_env(),
            deadline: ASK,
            ..Question::default()
        }
    }

    /// Reads `slurm 23.11.4` or Debian's `slurm-wlm 22.05.8`; `None` when it is neither.
    pub fn from_version(stdout: &[u8]) -> Option<Slurm> {
        let text = std::str::from_utf8(stdout).ok()?; // A version that isn't text is not Slurm's.
        // Noise of a start-up file may stand in front.
        let text =
            text.lines().rev().find(|line| line.starts_with("slurm ") || line.starts_with("slurm-wlm "))?;
        let number = text.split_ascii_whitespace().nth(1)?;
        let mut pieces = number.split('.');
        let mut next = || pieces.next().and_then(|piece| piece.parse().ok()); // Not a number: not a version.
        Some(Slurm { version: Version(next()?, next()?), text: number.to_owned() })
    }
}

impl Scheduler for Slurm {
    fn dialect(&self) -> Dialect {
        Dialect::Slurm
    }

    fn version(&self) -> &str {
        &self.text
    }

    fn parse_id(&self, text: &str) -> Result<JobId, Error> {
        words::parse_id(text).ok_or_else(|| {
            Error::invalid("id", format!("{text:?} is no Slurm job id, such as 4711, 4711_3 or 4711;cluster"))
        })
    }

    fn leaks(&self, variable: &[u8]) -> bool {
        // What a site sets so that its controller is reached at all.
        let kept: [&[u8]; 4] = [b"SLURM_CONF", b"SLURM_CONF_SERVER", b"SLURM_CLUSTERS", b"SLURM_JWT"];
        let prefixes: [&[u8]; 11] = [
            b"SLURM_",
            b"SLURMD_",
            b"SBATCH_",
            b"SRUN_",
            b"SALLOC_",
            b"SQUEUE_",
            b"SACCT_",
            b"SCANCEL_",
            b"SCONTROL_",
            b"PMIX_",
            b"PMI_",
        ];
        !kept.contains(&variable) && prefixes.iter().any(|prefix| variable.starts_with(prefix))
    }

    fn submit(&self, request: &Request<'_>) -> Result<Submission, Error> {
        submit::render(request)
    }

    fn read_submit(&self, answer: &Answer) -> Submitted {
        submit::read(answer)
    }

    fn queue(&self, scope: &Scope, fence: &Fence) -> Question {
        squeue::question(scope, fence)
    }

    fn read_queue(&self, scope: &Scope, fence: &Fence, answer: &Answer) -> Result<Rows, Error> {
        squeue::read(scope, fence, answer)
    }

    fn history(&self, ids: &[JobId], since: Option<Timestamp>, fence: &Fence) -> Option<Question> {
        Some(sacct::question(self.version, ids, since, fence))
    }

    fn read_history(&self, ids: &[JobId], fence: &Fence, answer: &Answer) -> Result<Rows, Error> {
        sacct::read(self.version, ids, fence, answer)
    }

    fn detail(&self, asked: &JobId, job: &Job) -> Option<Question> {
        scontrol::detail(asked, job)
    }

    fn read_detail(&self, job: &mut Job, answer: &Answer) -> Result<(), Error> {
        scontrol::read_detail(job, answer)
    }

    fn act(&self, action: Action, ids: &[JobId]) -> Question {
        let mut argv = match action {
            Action::Cancel => vec![b"scancel".to_vec()],
            Action::Hold | Action::Release => vec![b"scontrol".to_vec()],
        };
        argv.extend(cluster_flag(ids));
        match action {
            Action::Cancel => argv.extend(ids.iter().map(|id| id.text.clone().into_bytes())),
            Action::Hold | Action::Release => {
                argv.push(action.as_str().as_bytes().to_vec());
                argv.push(id_list("", ids));
            }
        }
        Question { argv, env: base_env(), deadline: ASK, ..Question::default() }
    }

    fn read_act(&self, action: Action, ids: &[JobId], answer: &Answer) -> Result<(), Error> {
        read_act(action, ids, answer)
    }

    fn queues(&self) -> Question {
        scontrol::queues()
    }

    fn read_queues(&self, answer: &Answer) -> Result<Vec<Queue>, Error> {
        scontrol::read_queues(answer)
    }

    fn expand(&self, pattern: &[u8], job: &Job) -> Option<Vec<u8>> {
        expand(pattern, job)
    }

    fn default_output(&self, job: &Job) -> Vec<u8> {
        match job.id.part {
            Part::Task(_) | Part::Tasks(_) => b"slurm-%A_%a.out".to_vec(),
            Part::Whole | Part::Component(_) => b"slurm-%j.out".to_vec(),
        }
    }

    fn explain_missing_log(&self, job: &Job) -> Option<String> {
        let unopened =
            job.exit_raw.as_deref() == Some("0:53") || job.reason.as_deref() == Some("RaisedSignal:53");
        if !unopened {
            return None;
        }
        let node = job.nodes.first().map_or("unknown", String::as_str);
        Some(format!(
            "the node {node} could not open the output file or enter the directory (RaisedSignal:53), so there is no \
             log; check that its folder exists on a file system that the compute nodes see"
        ))
    }
}

/// Times as seconds since 1970, and UTC where a version doesn't know that; task lists whole, not cut at 64 bytes.
fn base_env() -> Vec<(Vec<u8>, Vec<u8>)> {
    [("TZ", "UTC0"), ("SLURM_TIME_FORMAT", "%s"), ("SLURM_BITSTR_LEN", "0")]
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .to_vec()
}

/// Names the cluster where the ids name one.
fn cluster_flag(ids: &[JobId]) -> Option<Vec<u8>> {
    let cluster = ids.first()?.cluster.as_ref()?;
    Some(format!("--clusters={cluster}").into_bytes())
}

/// Joins ids with commas. An id was parsed, so it begins with a digit and is never an option.
fn id_list(flag: &str, ids: &[JobId]) -> Vec<u8> {
    let ids: Vec<&str> = ids.iter().map(|id| id.text.as_str()).collect();
    format!("{flag}{}", ids.join(",")).into_bytes()
}

/// Words that mean that a controller or database was not reached, or did not answer.
const UNREACHABLE: [&str; 20] = [
    "Unable to contact slurm controller",
    "Unable to contact",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "No route to host",
    "Transport endpoint",
    "Message receive failure",
    "Unexpected message received",
    "Protocol authentication error",
    "Munge encode failed",
    "standby mode",
    "Problem talking to the database",
    "problem talking to the database",
    "persistent connection",
    "Unable to process configuration file",
    "Unable to connect to database",
    "Resource temporarily unavailable",
];

/// Tells a failed question that could not be asked from one that was refused.
fn failure(command: &str, answer: &Answer) -> Error {
    let words = said(&answer.stdout, &answer.stderr);
    if answer.timed_out {
        return Error::Unreachable {
            command: command.to_owned(),
            words: format!("no answer before the deadline; {words}"),
        };
    }
    // A command that a signal ended has not answered either.
    if answer.rc.is_none() || UNREACHABLE.iter().any(|text| words.contains(text)) {
        return Error::Unreachable { command: command.to_owned(), words };
    }
    Error::Refused { command: command.to_owned(), rc: answer.rc, words, meaning: None }
}

/// Reads the answer of scancel and scontrol. Exit codes mean little (an error number cut to 8 bits; arrays partly
/// done give 1 with `No error`), so the words decide, and the caller looks at the jobs afterwards.
fn read_act(action: Action, ids: &[JobId], answer: &Answer) -> Result<(), Error> {
    if answer.rc == Some(0) && !answer.timed_out {
        return Ok(());
    }
    let command = match action {
        Action::Cancel => "scancel",
        Action::Hold | Action::Release => "scontrol",
    };
    let asked: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let asked = asked.join(", ");
    let error = failure(command, answer);
    if let Error::Unreachable { words, .. } = error {
        return Err(Error::OutcomeUnknown { what: format!("{} {asked}", action.as_str()), key: None, words });
    }
    let text = String::from_utf8_lossy(&answer.stderr);
    let harmless = |line: &str| {
        line.trim().is_empty()
            || line.ends_with(": No error")
            || line.ends_with("Job has already finished")
            || line.ends_with("Job/step already completing or completed")
    };
    let mut bad = text.lines().filter(|line| !harmless(line)).peekable();
    if bad.peek().is_none() && !text.trim().is_empty() {
        return Ok(());
    }
    let words = said(&[], &answer.stderr);
    if words.contains("Access/permission denied") {
        return Err(Error::Permission { id: asked, words });
    }
    Err(error)
}

/// Expands Slurm's patterns: `%j %J %A %a %x %u %N %%`, with a width as in `%4a`; a first backslash turns them off.
///
/// `None` when a pattern asks for what is not known; it is not guessed.
fn expand(pattern: &[u8], job: &Job) -> Option<Vec<u8>> {
    if pattern.contains(&b'\\') {
        return Some(pattern.iter().copied().filter(|byte| *byte != b'\\').collect());
    }
    let mut path = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            path.push(byte);
            continue;
        }
        let mut width = 0_usize;
        while let Some(digit) = bytes.next_if(u8::is_ascii_digit) {
            width = (width * 10 + usize::from(digit - b'0')).min(10);
        }
        let number = |number: u64| format!("{number:0width$}").into_bytes();
        let raw = job.raw_number.unwrap_or(job.id.number);
        path.extend(match bytes.next()? {
            b'%' => vec![b'%'],
            b'j' | b'J' => number(raw),
            b'A' => number(job.id.number),
            b'a' => match job.id.part {
                Part::Task(task) => number(task),
                Part::Whole | Part::Tasks(_) | Part::Component(_) => return None,
            },
            b'x' => job.name.clone()?,
            b'u' => job.user.clone()?.into_bytes(),
            // The batch script writes on the first node of the allocation.
            b'N' => job.nodes.first()?.split('.').next()?.as_bytes().to_vec(),
            _ => return None,
        });
    }
    Some(path)
}

/// Tells whether a state that only accounting shows may still be followed by another run of the job.
pub(super) fn provisional(job: &Job) -> bool {
    matches!(job.state, State::NodeFailed | State::Preempted) || job.state_raw == "REQUEUED"
}

/// Splits bytes at each occurrence of a mark; always at least one piece.
fn split<'a>(bytes: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while let Some(at) = find(rest, mark) {
        let (piece, behind) = rest.split_at(at);
        pieces.push(piece);
        rest = behind.get(mark.len()..).unwrap_or_default();
    }
    pieces.push(rest);
    pieces
}

/// Finds the first occurrence of a mark.
fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    let first = *mark.first()?;
    let mut from = 0;
    loop {
        let rest = bytes.get(from..)?;
        let at = from + rest.iter().position(|byte| *byte == first)?;
        if bytes.get(at..)?.starts_with(mark) {
            return Some(at);
        }
        from = at + 1;
    }
}
