//! sacct: accounting, which lags behind the controller by seconds and keeps what the controller forgot.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::jobs::error::{Error, words};
use crate::jobs::id::{JobId, digits};
use crate::jobs::key::SubmissionKey;
use crate::jobs::record::{Job, State, shown};
use crate::jobs::remote::Answer;
use crate::jobs::scheduler::{Fence, Question, Rows};

use super::words::{self as slurm, ExitSource, known};
use super::{ANSWER_BYTES_MAX, ASK, Version, base_env, failure};

/// Columns in the order asked. The first and the last are Slurm's own, so that the line end between two records
/// always stands between them and never inside a text.
const COLUMNS: [&str; 25] = [
    "JobID",
    "JobIDRaw",
    "Cluster",
    "State",
    "ExitCode",
    "DerivedExitCode",
    "Submit",
    "Start",
    "End",
    "TimelimitRaw",
    "NNodes",
    "AllocCPUS",
    "ReqCPUS",
    "MaxRSS",
    "ReqTRES",
    "AllocTRES",
    "NodeList",
    "User",
    "Account",
    "Partition",
    "QOS",
    "JobName",
    "WorkDir",
    "Comment",
    "ElapsedRaw",
];
/// Where the optional columns go: in front of the last one.
const OPTIONAL_AT: usize = COLUMNS.len() - 1;

/// How far before a job's submission the window begins, since clocks differ.
const MARGIN: SignedDuration = SignedDuration::from_hours(24);

/// Columns that only newer versions have.
fn optional(version: Version) -> Vec<&'static str> {
    let mut columns = Vec::new();
    if version >= Version(20, 11) {
        columns.push("Reason");
    }
    if version >= Version(21, 8) {
        columns.push("SubmitLine");
    }
    if version >= Version(24, 5) {
        columns.extend(["StdOut", "StdErr"]);
    }
    columns
}

/// Asks sacct. The window always has a start, as its default is today's midnight; `--duplicates` shows each run of
/// a requeued job, of which the newest decides.
pub(super) fn question(version: Version, ids: &[JobId], since: Option<Timestamp>, fence: &Fence) -> Question {
    let start = since
        .and_then(|since| since.checked_sub(MARGIN).ok()) // Before the calendar: from the beginning.
        .map_or_else(
            || "1970-01-02T00:00:00".to_owned(),
            |start| start.strftime("%Y-%m-%dT%H:%M:%S").to_string(),
        );
    let mut argv = vec![
        b"sacct".to_vec(),
        b"--noheader".to_vec(),
        b"--parsable2".to_vec(),
        b"--duplicates".to_vec(),
        format!("--starttime={start}").into_bytes(),
        format!("--delimiter=\x1f{}\x1f", fence.as_str()).into_bytes(),
    ];
    argv.extend(super::cluster_flag(ids));
    argv.push(super::id_list("--jobs=", ids));
    let mut columns = COLUMNS.to_vec();
    for (at, column) in (OPTIONAL_AT..).zip(optional(version)) {
        columns.insert(at, column);
    }
    argv.push(format!("--format={}", columns.join(",")).into_bytes());
    Question { argv, env: base_env(), deadline: ASK, ..Question::default() }
}

/// Reads sacct's answer: one record for each job, task and component, the newest run of each.
pub(super) fn read(version: Version, ids: &[JobId], fence: &Fence, answer: &Answer) -> Result<Rows, Error> {
    if answer.stdout_dropped > 0 {
        return Err(Error::TooLarge { command: "sacct".to_owned(), bytes_max: ANSWER_BYTES_MAX, rows: 0 });
    }
    if answer.rc != Some(0) || answer.timed_out {
        return Err(failure("sacct", answer));
    }
    if answer.stdout.is_empty() && words(&[], &answer.stderr).contains("error:") {
        return Err(failure("sacct", answer));
    }
    let extra = optional(version);
    let mut runs: Vec<Job> = Vec::new();
    for row in rows(fence, &answer.stdout, COLUMNS.len() + extra.len())? {
        read_row(&row, &extra, &mut runs)?;
    }
    let mut jobs = newest(runs);
    jobs.retain(|job| ids.iter().any(|id| id.covers(&job.id, job.raw_number)));
    Ok(Rows { jobs })
}

/// Splits at the delimiter; the line end between two records is the one between a last and a first column.
fn rows<'a>(fence: &Fence, stdout: &'a [u8], columns: usize) -> Result<Vec<Vec<&'a [u8]>>, Error> {
    let unreadable = |row: &[u8]| Error::Unreadable { command: "sacct".to_owned(), row: shown(row) };
    let stdout = stdout.strip_suffix(b"\n").unwrap_or(stdout);
    if stdout.is_empty() {
        return Ok(Vec::new());
    }
    let delimiter = format!("\x1f{}\x1f", fence.as_str());
    let mut rows = Vec::new();
    let mut row: Vec<&[u8]> = Vec::with_capacity(columns);
    for piece in super::split(stdout, delimiter.as_bytes()) {
        if row.len() + 1 < columns {
            row.push(piece);
            continue;
        }
        let mut ends = piece.splitn(2, |byte| *byte == b'\n');
        row.extend(ends.next());
        rows.push(std::mem::take(&mut row));
        row.extend(ends.next());
    }
    if !row.is_empty() {
        return Err(unreadable(&row.join(&b'|')));
    }
    Ok(rows)
}

fn read_row(row: &[&[u8]], extra: &[&str], runs: &mut Vec<Job>) -> Result<(), Error> {
    let unreadable = || Error::Unreadable { command: "sacct".to_owned(), row: shown(&row.join(&b'|')) };
    let column = |name: &str| -> &[u8] {
        let at = COLUMNS.iter().position(|column| *column == name);
        let at = at.map(|at| if at == OPTIONAL_AT { at + extra.len() } else { at });
        let at = at.or_else(|| Some(OPTIONAL_AT + extra.iter().position(|column| *column == name)?));
        at.and_then(|at| row.get(at)).copied().unwrap_or_default()
    };
    // A column of Slurm's own that is not text is read as nothing.
    let text = |name: &str| std::str::from_utf8(column(name)).unwrap_or_default();
    let id = text("JobID");
    if let Some((of, step)) = id.split_once('.') {
        let job = runs.iter_mut().rev().find(|job| job.id.text == of);
        read_step(job.ok_or_else(unreadable)?, step, text("State"), text("MaxRSS"));
        return Ok(());
    }
    let mut id = slurm::parse_id(id).ok_or_else(unreadable)?;
    id.cluster = known(text("Cluster")).map(str::to_owned);
    let mut job = Job::bare(id, State::Unknown, "");
    slurm::set_state(&mut job, text("State").trim(), known(text("Reason")));
    job.raw_number = digits(text("JobIDRaw"));
    job.array = slurm::array_place(&job.id);
    job.submitted_at = slurm::time(text("Submit"));
    job.started_at = slurm::time(text("Start"));
    job.ended_at = slurm::time(text("End"));
    slurm::set_exit(&mut job, text("ExitCode"), ExitSource::Accounting);
    job.elapsed_s = digits(text("ElapsedRaw"));
    job.time_limit_s = digits(text("TimelimitRaw")).and_then(|minutes| minutes.checked_mul(60));
    job.nodes = slurm::nodes(text("NodeList"));
    job.node_count = digits(text("NNodes"));
    job.cpus = digits(text("AllocCPUS")).filter(|n| *n > 0).or_else(|| digits(text("ReqCPUS")));
    slurm::set_resources(&mut job, text("ReqTRES"));
    slurm::set_resources(&mut job, text("AllocTRES"));
    job.user = known(text("User")).map(str::to_owned);
    job.account = known(text("Account")).map(str::to_owned);
    job.queue = known(text("Partition")).map(str::to_owned);
    job.qos = known(text("QOS")).map(str::to_owned);
    // In the first seconds a record is partial: the name `allocation`, and no partition yet.
    if job.queue.is_some() || column("JobName") != b"allocation" {
        job.name = Some(column("JobName").to_vec());
    }
    let path = |name| Some(column(name)).filter(|path| !path.is_empty()).map(<[u8]>::to_vec);
    job.work_dir = path("WorkDir");
    job.stdout = path("StdOut").or_else(|| output_of(column("SubmitLine")));
    job.stderr = path("StdErr");
    job.submission_key = SubmissionKey::in_comment(column("Comment"));
    let derived = text("DerivedExitCode");
    if job.state == State::Succeeded && !matches!(derived, "" | "0:0") {
        job.warn("step_failed", format!("a step ended with {derived} although the script ended with 0"));
    }
    runs.push(job);
    Ok(())
}

fn read_step(job: &mut Job, step: &str, state: &str, max_rss: &str) {
    let bytes = slurm::size(max_rss, 1 << 10);
    job.max_rss_bytes = job.max_rss_bytes.max(bytes);
    if slurm::state(state, None).0 == State::OutOfMemory && job.state == State::Succeeded {
        job.warn(
            "oom_in_step",
            format!("step {}.{step} was killed for memory although the job ended with 0", job.id.text),
        );
    }
}

/// Finds the output file in a submit line as we write it. Words of the line are joined with blanks there, so a path
/// with a blank in it can't be told; it is not guessed.
fn output_of(line: &[u8]) -> Option<Vec<u8>> {
    let start = super::split(line, b" --output=");
    let [_, value] = start.as_slice() else {
        return None;
    };
    let mut words = value.split(|byte| *byte == b' ');
    let path = words.next().filter(|path| !path.is_empty())?;
    // The next word must be another option of ours, or the end.
    match words.next() {
        Some(next) if !next.starts_with(b"--") => None,
        _ => Some(path.to_vec()),
    }
}

/// Keeps the newest run of each job and counts the older ones that led to it.
fn newest(runs: Vec<Job>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut places: HashMap<JobId, usize> = HashMap::new();
    for mut run in runs {
        let place = *places.entry(run.id.clone()).or_insert(jobs.len());
        let Some(job) = jobs.get_mut(place) else {
            run.restarts = Some(0);
            jobs.push(run);
            continue;
        };
        let restarts = job.restarts.unwrap_or(0);
        // A run that ends when the next one is submitted was put back; numbers that wrapped round have years between.
        let put_back = |old: &Job, new: &Job| match (old.ended_at, new.submitted_at) {
            (Some(ended), Some(submitted)) => {
                submitted.duration_since(ended).abs() <= SignedDuration::from_secs(5)
            }
            _ => false,
        };
        let newer = (run.submitted_at, run.started_at) >= (job.submitted_at, job.started_at);
        let follows = if newer { put_back(job, &run) } else { put_back(&run, job) };
        if newer {
            *job = run;
        }
        job.restarts = Some(if follows {
            restarts + 1
        } else if newer {
            0
        } else {
            restarts
        });
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_taken_from_the_submit_line_only_when_it_is_certain() {
        let told = |line: &str| output_of(line.as_bytes());
        assert_eq!(told("sbatch --parsable --output=/o/%j.out --comment=x"), Some(b"/o/%j.out".to_vec()));
        assert_eq!(told("sbatch --output=/o/a"), Some(b"/o/a".to_vec()));
        assert_eq!(told("sbatch --output=/o/a b --comment=x"), None);
        assert_eq!(told("sbatch --output=/a --output=/b"), None);
        assert_eq!(told("sbatch job.sh"), None);
    }
}
