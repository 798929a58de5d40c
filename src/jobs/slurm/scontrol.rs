//! scontrol: one job in full, the queues, hold and release.
//!
//! Its output has user text between machine text and no way to fence it, so a job's name, known from squeue, is cut
//! out first, and nothing behind `Command=` is taken for machine text.

use crate::jobs::error::Error;
use crate::jobs::id::{JobId, Part, digits};
use crate::jobs::record::{Job, State, shown};
use crate::jobs::remote::Answer;
use crate::jobs::scheduler::{Question, Queue, QueueState};

use super::words::{self as slurm, ExitSource, known};
use super::{ASK, base_env, failure};

/// Asks for one job in full. Arrays as a whole are not asked: their records say nothing about all tasks.
pub(super) fn detail(asked: &JobId, job: &Job) -> Option<Question> {
    match job.id.part {
        Part::Tasks(_) => return None,
        Part::Whole if job.array.is_some() => return None,
        Part::Whole | Part::Task(_) | Part::Component(_) => {}
    }
    let mut argv = vec![b"scontrol".to_vec()];
    argv.extend(super::cluster_flag(std::slice::from_ref(asked)));
    argv.extend([b"show".to_vec(), b"job".to_vec()]);
    argv.push(job.id.text.clone().into_bytes());
    Some(Question { argv, env: base_env(), deadline: ASK, ..Question::default() })
}

/// Adds what the answer says; an answer about another job, or "Invalid job id", adds nothing.
pub(super) fn read_detail(job: &mut Job, answer: &Answer) -> Result<(), Error> {
    if answer.rc != Some(0) || answer.timed_out {
        return match failure("scontrol", answer) {
            error @ Error::Unreachable { .. } => Err(error),
            // The controller was asked and doesn't know the job any more; accounting has told what there is.
            _forgotten => Ok(()),
        };
    }
    let number = job.raw_number.unwrap_or(job.id.number);
    let Some(rest) = answer.stdout.strip_prefix(format!("JobId={number} ").as_bytes()) else {
        return Ok(());
    };
    let Some(rest) = behind_name(rest, job.name.as_deref()) else {
        return Ok(());
    };
    let machine = super::split(rest, b"\n   Command=");
    let machine = String::from_utf8_lossy(machine.first().copied().unwrap_or_default());
    let field = |name: &str| {
        machine.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    job.restarts = field("Restarts").and_then(digits).or(job.restarts);
    // For a job that has not started this is what it asks for, as CPUs and nodes are.
    if let Some(list) = field("TRES").or_else(|| field("AllocTRES")) {
        slurm::set_resources(job, list);
    }
    if job.node_count.is_none() {
        job.node_count = field("NumNodes").and_then(|text| digits(text.split('-').next()?));
    }
    if let Some(exit) = field("ExitCode")
        && (job.exit_raw.is_none() || job.state == State::Failed)
        && field("JobState").is_some_and(|word| slurm::state(word, None).0 == job.state)
    {
        // The controller keeps the whole code, where accounting drops 128.
        job.warnings.retain(|warning| warning.code != "exit_code_ambiguous");
        slurm::set_exit(job, exit, ExitSource::Controller);
    }
    if job.reason.is_none() && job.state.terminal() {
        job.reason = field("Reason").and_then(known).map(|reason| reason.replace('_', " "));
    }
    read_paths(job, rest);
    Ok(())
}

/// Skips to the text behind the job's name. Without a known name the first field that follows names is taken.
fn behind_name<'a>(record: &'a [u8], name: Option<&[u8]>) -> Option<&'a [u8]> {
    let at = super::find(record, b"JobName=")? + b"JobName=".len();
    let rest = record.get(at..)?;
    let end = b"\n   UserId=";
    if let Some(name) = name
        && let Some(behind) = rest.strip_prefix(name)
        && behind.starts_with(end)
    {
        return Some(behind);
    }
    rest.get(super::find(rest, end)?..)
}

/// Reads directory and files: the last of each, since a comment that imitates them stands in front.
fn read_paths(job: &mut Job, rest: &[u8]) {
    let value = |name: &str| -> Option<Vec<u8>> {
        let mark = format!("\n   {name}=");
        let pieces = super::split(rest, mark.as_bytes());
        if pieces.len() < 2 {
            return None;
        }
        let line = super::split(pieces.last()?, b"\n   ");
        let path = line.first()?.trim_ascii_end();
        (!path.is_empty() && path != b"(null)").then(|| path.to_vec())
    };
    if job.work_dir.is_none() {
        job.work_dir = value("WorkDir");
    }
    job.stdout = value("StdOut").or_else(|| job.stdout.take());
    job.stderr = value("StdErr").or_else(|| job.stderr.take());
}

/// Asks for the queues.
pub(super) fn queues() -> Question {
    Question {
        argv: ["scontrol", "--oneliner", "show", "partition"].map(|word| word.as_bytes().to_vec()).to_vec(),
        env: base_env(),
        deadline: ASK,
        ..Question::default()
    }
}

/// Reads the queues: administrators write them, so a line is a line.
pub(super) fn read_queues(answer: &Answer) -> Result<Vec<Queue>, Error> {
    if answer.rc != Some(0) || answer.timed_out {
        return Err(failure("scontrol", answer));
    }
    let mut queues = Vec::new();
    for line in answer.stdout.split(|byte| *byte == b'\n') {
        if line.trim_ascii().is_empty() || line.starts_with(b"No partitions") {
            continue;
        }
        queues.push(
            read_queue(line)
                .ok_or_else(|| Error::Unreadable { command: "scontrol".to_owned(), row: shown(line) })?,
        );
    }
    Ok(queues)
}

fn read_queue(line: &[u8]) -> Option<Queue> {
    let line = std::str::from_utf8(line).ok()?; // A partition's line is text, or it is none.
    let field = |name: &str| {
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let state_raw = field("State")?.to_owned();
    Some(Queue {
        name: field("PartitionName")?.to_owned(),
        state: if state_raw == "UP" { QueueState::Up } else { QueueState::Down },
        state_raw,
        default: field("Default") == Some("YES"),
        max_time_s: field("MaxTime").and_then(slurm::duration),
        nodes: field("TotalNodes").and_then(digits),
        cpus: field("TotalCPUs").and_then(digits),
    })
}
