//! squeue: the controller's memory, asked with every state and a fence around what users can write.

use crate::jobs::error::{Error, words};
use crate::jobs::id::{JobId, Part, digits};
use crate::jobs::key::SubmissionKey;
use crate::jobs::record::{Job, State, shown};
use crate::jobs::remote::Answer;
use crate::jobs::scheduler::{Fence, Question, Rows, Scope};

use super::words::{self as slurm, known};
use super::{ANSWER_BYTES_MAX, ASK, base_env, failure};

/// What Slurm itself writes, one column each: id, raw id, array id, state, reason, user, account, partition, QOS,
/// node count, CPUs, submit, start, end, time used, limit, nodes, generic resources.
const COLUMNS: [&str; 18] = [
    "%i", "%A", "%F", "%T", "%r", "%u", "%a", "%P", "%q", "%D", "%C", "%V", "%S", "%e", "%M", "%l", "%N",
    "%b",
];
/// What a user can write: name, working directory, comment.
const TEXTS: [&str; 3] = ["%j", "%Z", "%k"];

/// Asks squeue. `--states=all` shows ended jobs too while the controller remembers them, so that an end is seen
/// where it is first known; `--json` takes no notice of filters and sends everybody's jobs.
pub(super) fn question(scope: &Scope, fence: &Fence) -> Question {
    let mut argv = vec![b"squeue".to_vec(), b"--noheader".to_vec(), b"--states=all".to_vec()];
    match scope {
        Scope::Mine => argv.push(b"--me".to_vec()),
        Scope::AllUsers => {}
        Scope::Ids(ids) => {
            argv.extend(super::cluster_flag(ids));
            argv.push(super::id_list("--jobs=", ids));
        }
    }
    let fence = fence.as_str();
    let mut format = format!("--format=\x1e{fence}\x1f");
    for column in COLUMNS {
        format.push_str(column);
        format.push('\x1f');
    }
    for text in TEXTS {
        format.push_str(&format!("{fence}\x1f{text}\x1f"));
    }
    format.push_str(&format!("{fence}\x1e"));
    argv.push(format.into_bytes());
    Question { argv, env: base_env(), deadline: ASK, ..Question::default() }
}

/// Reads squeue's answer.
pub(super) fn read(scope: &Scope, fence: &Fence, answer: &Answer) -> Result<Rows, Error> {
    let rows = rows(fence, &answer.stdout);
    if answer.stdout_dropped > 0 {
        return Err(Error::TooLarge {
            command: "squeue".to_owned(),
            bytes_max: ANSWER_BYTES_MAX,
            rows: rows.len().saturating_sub(1),
        });
    }
    if answer.rc != Some(0) || answer.timed_out {
        // The only refusal that is an answer: the controller was asked, and has forgotten or never knew the one id.
        let said = words(&answer.stdout, &answer.stderr);
        if !answer.timed_out && said.contains("Invalid job id specified") {
            return Ok(Rows::default());
        }
        return Err(failure("squeue", answer));
    }
    if rows.is_empty() && !answer.stderr.trim_ascii().is_empty() {
        // `squeue -u nosuchuser` and a field that this version lacks end with 0 and nothing but a complaint.
        let said = words(&[], &answer.stderr);
        if said.contains("error:") {
            return Err(failure("squeue", answer));
        }
    }
    let mut jobs = Vec::new();
    for row in rows {
        let mut job = read_row(fence, row)?;
        if let Scope::Ids(ids) = scope {
            // The answer of a cluster that was asked by name doesn't repeat it.
            if job.id.cluster.is_none() {
                job.id.cluster = ids.first().and_then(|id| id.cluster.clone());
            }
            // Filtered again: what was not asked for is not passed on.
            if !ids.iter().any(|id| id.covers(&job.id, job.raw_number)) {
                continue;
            }
        }
        jobs.push(job);
    }
    Ok(Rows { jobs })
}

/// Splits the answer at the fence that opens a record. What stands before the first one is no record.
fn rows<'a>(fence: &Fence, stdout: &'a [u8]) -> Vec<&'a [u8]> {
    let open = format!("\x1e{}\x1f", fence.as_str());
    super::split(stdout, open.as_bytes()).into_iter().skip(1).collect()
}

fn read_row(fence: &Fence, row: &[u8]) -> Result<Job, Error> {
    parse_row(fence, row).ok_or_else(|| Error::Unreadable { command: "squeue".to_owned(), row: shown(row) })
}

fn parse_row(fence: &Fence, row: &[u8]) -> Option<Job> {
    let between = format!("\x1f{}", fence.as_str());
    let mut pieces = super::split(row, between.as_bytes()).into_iter();
    let columns = std::str::from_utf8(pieces.next()?).ok()?; // Slurm's own columns are ASCII.
    let columns: Vec<&str> = columns.split('\x1f').collect();
    let columns: &[&str; COLUMNS.len()] = columns.as_slice().try_into().ok()?; // Another count is another format.
    let mut text = || pieces.next()?.strip_prefix(b"\x1f");
    let (name, work_dir, comment) = (text()?, text()?, text()?);
    if !pieces.next()?.starts_with(b"\x1e") || pieces.next().is_some() {
        return None;
    }
    let mut job = read_columns(columns)?;
    job.name = Some(name.to_vec());
    job.work_dir = (!work_dir.is_empty() && work_dir != b"(null)").then(|| work_dir.to_vec());
    job.submission_key = SubmissionKey::in_comment(comment);
    Some(job)
}

fn read_columns(columns: &[&str; COLUMNS.len()]) -> Option<Job> {
    let [
        id,
        raw,
        array,
        state,
        reason,
        user,
        account,
        queue,
        qos,
        node_count,
        cpus,
        submitted,
        started,
        ended,
        used,
        limit,
        nodes,
        gres,
    ] = *columns;
    let raw_number = digits(raw);
    // An id in a form that nobody has seen yet degrades its row, and no more.
    let id = slurm::parse_id(id).or_else(|| {
        Some(JobId {
            text: id.to_owned(),
            number: digits(array).or(raw_number)?,
            cluster: None,
            part: Part::Whole,
        })
    })?;
    let mut job = Job::bare(id, State::Unknown, "");
    slurm::set_state(&mut job, state.trim(), known(reason));
    job.raw_number = raw_number;
    job.array = slurm::array_place(&job.id);
    job.user = known(user).map(str::to_owned);
    job.account = known(account).map(str::to_owned);
    job.queue = known(queue).map(str::to_owned);
    job.qos = known(qos).map(str::to_owned);
    job.node_count = digits(node_count);
    job.cpus = digits(cpus);
    job.submitted_at = slurm::time(submitted);
    job.nodes = slurm::nodes(nodes);
    // Start and end of a job that has not got there yet are the scheduler's guess.
    let waits = matches!(job.state, State::Pending | State::Held | State::Unknown);
    let never_ran = waits || (job.state.terminal() && job.nodes.is_empty());
    if !never_ran {
        job.started_at = slurm::time(started);
    }
    if job.state.terminal() {
        job.ended_at = slurm::time(ended);
    }
    job.elapsed_s = slurm::duration(used);
    job.time_limit_s = slurm::duration(limit);
    job.gpus = gpus_of(gres, job.node_count);
    Some(job)
}

/// `gres:gpu:a100:2` is meant for each node; several kinds add up.
fn gpus_of(gres: &str, nodes: Option<u64>) -> Option<u64> {
    let mut sum: Option<u64> = None;
    for item in gres.split(',') {
        let item = item.strip_prefix("gres:").or_else(|| item.strip_prefix("gres/")).unwrap_or(item);
        let Some(rest) = item.strip_prefix("gpu") else {
            continue;
        };
        let last = rest.rsplit([':', '=']).next().unwrap_or_default();
        let count = if rest.is_empty() { 1 } else { digits(last).unwrap_or(1) };
        sum = Some(sum.unwrap_or(0).checked_add(count.checked_mul(nodes?)?)?);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted_over_all_nodes_and_never_guessed() {
        assert_eq!(gpus_of("gres:gpu:1", Some(2)), Some(2));
        assert_eq!(gpus_of("gres/gpu:a100:4", Some(3)), Some(12));
        assert_eq!(gpus_of("N/A", Some(1)), None);
        assert_eq!(gpus_of("gres:gpu:1", None), None);
    }
}
