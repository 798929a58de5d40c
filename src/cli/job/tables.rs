//! Jobs and queues as tables for people.

use crate::cli::table;
use crate::jobs::{Job, Queue, QueueState, shown};

/// A job as a row of the table for people; what is unknown stays empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRow {
    /// The scheduler's own id.
    pub id: String,
    /// Its name, with bytes that are not UTF-8 escaped.
    pub name: String,
    /// Whose it is; shown only when jobs of several users are.
    pub user: Option<String>,
    /// Its queue.
    pub queue: Option<String>,
    /// The contract's word for its state.
    pub state: &'static str,
    /// How long it has run.
    pub elapsed_s: Option<u64>,
    /// How long it may run.
    pub time_limit_s: Option<u64>,
    /// How many nodes.
    pub node_count: Option<u64>,
    /// Its exit code, or the signal that ended it, or the scheduler's reason: whatever says most.
    pub detail: String,
}

impl JobRow {
    /// What a person wants to see of a job.
    pub fn of(job: &Job) -> JobRow {
        let detail = match (job.signal, job.exit_code, &job.reason) {
            (Some(signal), _, _) => format!("signal {signal}"),
            (None, Some(code), _) if code != 0 => format!("exit {code}"),
            (None, _, Some(reason)) => reason.clone(),
            (None, _, None) => String::new(),
        };
        JobRow {
            id: job.id.text.clone(),
            name: job.name.as_deref().map(shown).unwrap_or_default(),
            user: job.user.clone(),
            queue: job.queue.clone(),
            state: job.state.as_str(),
            elapsed_s: job.elapsed_s,
            time_limit_s: job.time_limit_s,
            node_count: job.node_count,
            detail,
        }
    }
}

/// Lays jobs out; with `all_users` whose they are, too.
pub fn jobs_table(jobs: &[JobRow], all_users: bool) -> String {
    let mut titles = vec!["ID", "NAME", "USER", "QUEUE", "STATE", "ELAPSED", "LIMIT", "NODES", "DETAIL"];
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let clock = |seconds: Option<u64>| seconds.map(table::seconds).unwrap_or_default();
    let mut rows: Vec<Vec<String>> = jobs
        .iter()
        .map(|job| {
            vec![
                job.id.clone(),
                job.name.clone(),
                job.user.clone().unwrap_or_default(),
                job.queue.clone().unwrap_or_default(),
                job.state.to_owned(),
                clock(job.elapsed_s),
                clock(job.time_limit_s),
                number(job.node_count),
                job.detail.clone(),
            ]
        })
        .collect();
    if !all_users {
        titles.remove(USER_COLUMN);
        for row in &mut rows {
            row.remove(USER_COLUMN);
        }
    }
    table::render(&titles, rows)
}

const USER_COLUMN: usize = 2;

/// A queue as a row of the table for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueRow {
    /// Its name.
    pub name: String,
    /// Whether it takes and starts jobs.
    pub up: bool,
    /// Whether jobs go there unless told otherwise.
    pub default: bool,
    /// Longest time limit.
    pub max_time_s: Option<u64>,
    /// How many nodes it has.
    pub nodes: Option<u64>,
    /// How many CPUs it has.
    pub cpus: Option<u64>,
}

impl QueueRow {
    /// What a person wants to see of a queue.
    pub fn of(queue: &Queue) -> QueueRow {
        QueueRow {
            name: queue.name.clone(),
            up: queue.state == QueueState::Up,
            default: queue.default,
            max_time_s: queue.max_time_s,
            nodes: queue.nodes,
            cpus: queue.cpus,
        }
    }
}

/// Lays queues out; the default one is marked with an asterisk.
pub fn queues_table(queues: &[QueueRow]) -> String {
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let rows = queues.iter().map(|queue| {
        vec![
            format!("{}{}", queue.name, if queue.default { "*" } else { "" }),
            if queue.up { "up" } else { "down" }.to_owned(),
            queue.max_time_s.map(table::seconds).unwrap_or_default(),
            number(queue.nodes),
            number(queue.cpus),
        ]
    });
    table::render(&["QUEUE", "STATE", "MAX TIME", "NODES", "CPUS"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<JobRow> {
        let job = |id: &str, name: &str, state| JobRow {
            id: id.to_owned(),
            name: name.to_owned(),
            state,
            ..JobRow::default()
        };
        vec![
            JobRow {
                user: Some("ada".to_owned()),
                queue: Some("short".to_owned()),
                elapsed_s: Some(3_661),
                time_limit_s: Some(7_200),
                node_count: Some(2),
                ..job("4711_3", "train the model", "running")
            },
            JobRow { detail: "exit 3".to_owned(), ..job("4712", "évaluer", "failed") },
            JobRow { detail: "Priority".to_owned(), ..job("86[2].server1", "a\tb", "pending") },
        ]
    }

    #[test]
    fn jobs_stand_in_columns() {
        insta::assert_snapshot!(jobs_table(&rows(), false));
        insta::assert_snapshot!(jobs_table(&rows(), true));
    }

    #[test]
    fn queues_stand_in_columns() {
        let normal = QueueRow {
            name: "normal".to_owned(),
            up: true,
            default: true,
            max_time_s: Some(259_200),
            nodes: Some(120),
            cpus: Some(3_840),
        };
        let debug = QueueRow { name: "debug".to_owned(), ..QueueRow::default() };
        insta::assert_snapshot!(queues_table(&[normal, debug]));
    }

    #[test]
    fn no_jobs_are_a_head_without_rows() {
        assert_eq!(jobs_table(&[], false).lines().count(), 1);
    }
}
