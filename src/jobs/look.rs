//! Putting rows of queue and accounting together into what a caller asked about. Pure.

use std::collections::BTreeMap;

use super::id::{JobId, Part, count_tasks};
use super::record::{ArrayPlace, Job, JobPart, State};

/// Merges what the queue and the accounting say about one id.
///
/// The queue wins wherever it has a row, since accounting lags by seconds; accounting fills what the queue doesn't
/// know, and tells of the tasks that the queue has forgotten. `None` when neither has a row.
pub(super) fn merge(id: &JobId, queue: &[Job], history: &[Job]) -> Option<Job> {
    let mine = |job: &&Job| id.covers(&job.id, job.raw_number);
    let mut rows: Vec<Job> = queue.iter().filter(mine).cloned().collect();
    for old in history.iter().filter(mine) {
        if let Some(row) = rows.iter_mut().find(|row| same(row, old)) {
            row.fill_from(old);
            continue;
        }
        // Pending tasks of an array are stale in accounting: what the queue shows of that array is all that waits.
        let stale = matches!(old.id.part, Part::Tasks(_))
            && !old.state.terminal()
            && rows.iter().any(|row| row.id.number == old.id.number);
        if !stale {
            rows.push(old.clone());
        }
    }
    gather(id, rows)
}

/// Tells whether two rows are about the same thing.
fn same(row: &Job, other: &Job) -> bool {
    match (&row.id.part, &other.id.part) {
        (Part::Tasks(_), Part::Tasks(_)) => {
            row.id.number == other.id.number && row.state.terminal() == other.state.terminal()
        }
        _ => row.id.number == other.id.number && row.id.part == other.id.part,
    }
}

/// Makes one job out of the rows that an id covers.
pub(super) fn gather(id: &JobId, mut rows: Vec<Job>) -> Option<Job> {
    if rows.len() <= 1 {
        let mut job = rows.pop()?;
        // A range that was asked as one task is shown as that task.
        if let (Part::Task(task), Part::Tasks(_)) = (&id.part, &job.id.part) {
            job.array = Some(ArrayPlace { id: id.number.to_string(), task: Some(*task), pending: None });
            job.id = id.clone();
        }
        let lone_part = matches!(id.part, Part::Whole)
            && matches!(job.id.part, Part::Task(_) | Part::Tasks(_))
            && job.id.number == id.number;
        return Some(if lone_part { whole(id, vec![job]) } else { job });
    }
    Some(whole(id, rows))
}

/// Folds the components of heterogeneous jobs together; tasks of arrays stay rows of their own.
pub(super) fn fold_components(rows: Vec<Job>) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut groups: BTreeMap<(Option<String>, u64), usize> = BTreeMap::new();
    let mut members: Vec<Vec<Job>> = Vec::new();
    for row in rows {
        if !matches!(row.id.part, Part::Component(_)) {
            members.push(Vec::new());
            jobs.push(row);
            continue;
        }
        let key = (row.id.cluster.clone(), row.id.number);
        match groups.get(&key) {
            Some(at) => members.get_mut(*at).into_iter().for_each(|list| list.push(row.clone())),
            None => {
                groups.insert(key, jobs.len());
                members.push(vec![row.clone()]);
                jobs.push(row);
            }
        }
    }
    jobs.into_iter()
        .zip(members)
        .map(|(job, parts)| match parts.is_empty() {
            true => job,
            false => whole(&job.id.whole(), parts),
        })
        .collect()
}

/// Makes the job of several parts: its state is what still has to happen, or how the worst part ended.
fn whole(id: &JobId, mut rows: Vec<Job>) -> Job {
    rows.sort_by_key(|row| match &row.id.part {
        Part::Whole => (0, 0),
        Part::Task(n) | Part::Component(n) => (0, *n),
        Part::Tasks(_) => (1, 0),
    });
    let lead = rows.iter().max_by_key(|row| rank(row.state));
    let (state, state_raw, reason) = lead.map_or((State::Unknown, String::new(), None), |row| {
        (row.state, row.state_raw.clone(), row.reason.clone())
    });
    let mut job = rows.first().cloned().unwrap_or_else(|| Job::bare(id.clone(), state, ""));
    let pending: Vec<String> = rows
        .iter()
        .filter(|row| !row.state.terminal())
        .filter_map(|row| row.array.as_ref()?.pending.clone())
        .collect();
    let is_array = rows.iter().any(|row| row.array.is_some());
    let number = rows.first().map_or(id.number, |row| row.id.number);
    job.id = JobId {
        text: number.to_string(),
        number,
        cluster: job.id.cluster.take().or_else(|| id.cluster.clone()),
        part: Part::Whole,
    };
    job.raw_number = None;
    (job.state, job.state_raw, job.reason) = (state, state_raw, reason);
    job.array = is_array.then(|| ArrayPlace {
        id: number.to_string(),
        task: None,
        pending: (!pending.is_empty()).then(|| pending.join(",")),
    });
    job.parts = rows.iter().map(part).collect();
    combine(&mut job, &rows, is_array);
    job
}

fn part(row: &Job) -> JobPart {
    let tasks = match &row.id.part {
        Part::Tasks(list) => count_tasks(list).unwrap_or(1),
        Part::Whole | Part::Task(_) | Part::Component(_) => 1,
    };
    JobPart {
        id: row.id.text.clone(),
        state: row.state,
        state_raw: row.state_raw.clone(),
        tasks,
        exit_code: row.exit_code,
        signal: row.signal,
        nodes: row.nodes.clone(),
    }
}

/// Times, codes and sums over all parts.
fn combine(job: &mut Job, rows: &[Job], is_array: bool) {
    let ended = job.state.terminal();
    // The code of an array is the highest of its tasks, as the scheduler's own waiting command would say.
    job.exit_code = rows.iter().filter_map(|row| row.exit_code).max().filter(|_| ended);
    let mut signals = rows.iter().filter_map(|row| row.signal);
    job.signal = signals.next().filter(|_| ended && job.exit_code.is_none_or(|code| code == 0));
    if job.signal.is_some() {
        job.exit_code = None;
    }
    job.exit_raw = None;
    job.cancelled_by = rows.iter().find_map(|row| row.cancelled_by).filter(|_| ended);
    job.submitted_at = rows.iter().filter_map(|row| row.submitted_at).min();
    job.started_at = rows.iter().filter_map(|row| row.started_at).min();
    job.ended_at = rows.iter().filter_map(|row| row.ended_at).max().filter(|_| ended);
    job.elapsed_s = rows.iter().filter_map(|row| row.elapsed_s).max();
    job.max_rss_bytes = rows.iter().filter_map(|row| row.max_rss_bytes).max();
    job.restarts = rows.iter().filter_map(|row| row.restarts).max();
    job.nodes = Vec::new();
    for node in rows.iter().flat_map(|row| &row.nodes) {
        if !job.nodes.contains(node) {
            job.nodes.push(node.clone());
        }
    }
    if is_array {
        // Each task has files of its own.
        (job.stdout, job.stderr) = (None, None);
    } else {
        let sum = |of: fn(&Job) -> Option<u64>| rows.iter().map(of).sum::<Option<u64>>();
        job.node_count = sum(|row| row.node_count);
        job.cpus = sum(|row| row.cpus);
        job.mem_bytes = sum(|row| row.mem_bytes);
        job.gpus = sum(|row| row.gpus);
    }
    for warning in rows.iter().flat_map(|row| &row.warnings) {
        job.warn(warning.code, warning.message.clone());
    }
}

/// Orders states by what a job of several parts is said to be: first what still happens, then the worst end.
fn rank(state: State) -> u8 {
    match state {
        State::Succeeded => 0,
        State::Cancelled => 1,
        State::Preempted => 2,
        State::Lost => 3,
        State::NodeFailed => 4,
        State::TimedOut => 5,
        State::OutOfMemory => 6,
        State::Failed => 7,
        State::Unknown => 8,
        State::Held => 9,
        State::Pending => 10,
        State::Suspended => 11,
        State::Completing => 12,
        State::Running => 13,
    }
}
