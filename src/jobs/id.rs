//! Names of jobs: the scheduler's own text, taken apart once at the edge.

use std::fmt;

use serde::{Serialize, Serializer};

/// A job as its scheduler names it.
///
/// Two clusters may use the same number at the same time, so number and cluster together are the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId {
    /// The scheduler's own text without the cluster, such as `4711_3` or `86[2].server1`.
    pub text: String,
    /// The number in front: the job's, the array's, or that of a heterogeneous job's first part.
    pub number: u64,
    /// The cluster of a federation, or `None` for the one that answers by default.
    pub cluster: Option<String>,
    /// Which part of the job is meant.
    pub part: Part,
}

/// Which part of a job an id names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// All of it.
    Whole,
    /// One task of an array.
    Task(u64),
    /// Tasks of an array that have not been started, as the scheduler writes them: `6-10%2`.
    Tasks(String),
    /// One component of a heterogeneous job, counted from 0.
    Component(u64),
}

impl JobId {
    /// Names the whole job (or array) that this id belongs to.
    pub fn whole(&self) -> JobId {
        JobId {
            text: self.number.to_string(),
            number: self.number,
            cluster: self.cluster.clone(),
            part: Part::Whole,
        }
    }

    /// Tells whether a row that the scheduler printed belongs to this id.
    ///
    /// `raw` is the number that the scheduler keeps for one array task or component beside the array's, so that
    /// `62`, `62_2` and the task's own `64` all find the same row.
    pub fn covers(&self, row: &JobId, raw: Option<u64>) -> bool {
        if let (Some(ours), Some(theirs)) = (&self.cluster, &row.cluster)
            && ours != theirs
        {
            return false;
        }
        match &self.part {
            Part::Whole => self.number == row.number || Some(self.number) == raw,
            _ if self.number != row.number => false,
            Part::Task(task) => match &row.part {
                Part::Task(theirs) => task == theirs,
                Part::Tasks(range) => tasks_contain(range, *task),
                Part::Whole | Part::Component(_) => false,
            },
            Part::Tasks(range) => match &row.part {
                Part::Task(theirs) => tasks_contain(range, *theirs),
                Part::Tasks(theirs) => tasks_overlap(range, theirs),
                Part::Whole | Part::Component(_) => false,
            },
            Part::Component(component) => {
                matches!(&row.part, Part::Component(theirs) if theirs == component)
            }
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.cluster {
            Some(cluster) => write!(f, ";{cluster}"),
            None => Ok(()),
        }
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// One piece of a task list: first, last, step.
type Span = (u64, u64, u64);

/// Takes a task list such as `0-12:4,20,30-31%5` apart; the limit behind `%` is returned beside it.
///
/// `None` when it is not one, for example when the scheduler cut it with `...`.
pub fn parse_tasks(list: &str) -> Option<(Vec<Span>, Option<u64>)> {
    let (list, limit) = match list.split_once('%') {
        Some((list, limit)) => (list, Some(digits(limit)?)),
        None => (list, None),
    };
    let mut spans = Vec::new();
    for piece in list.split(',') {
        let (range, step) = match piece.split_once(':') {
            Some((range, step)) => (range, digits(step)?),
            None => (piece, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (digits(first)?, digits(last)?),
            None => (digits(range)?, digits(range)?),
        };
        if step == 0 || last < first || (piece.contains(':') && !range.contains('-')) {
            return None;
        }
        spans.push((first, last, step));
    }
    Some((spans, limit))
}

/// Counts the tasks of a list without writing them out.
pub fn count_tasks(list: &str) -> Option<u64> {
    let (spans, _) = parse_tasks(list)?;
    spans
        .iter()
        .try_fold(0_u64, |sum, (first, last, step)| sum.checked_add(((last - first) / step).checked_add(1)?))
}

fn tasks_contain(list: &str, task: u64) -> bool {
    let Some((spans, _)) = parse_tasks(list) else {
        return false;
    };
    spans
        .iter()
        .any(|(first, last, step)| task >= *first && task <= *last && (task - first).is_multiple_of(*step))
}

fn tasks_overlap(ours: &str, theirs: &str) -> bool {
    let (Some((ours, _)), Some((theirs, _))) = (parse_tasks(ours), parse_tasks(theirs)) else {
        return false;
    };
    // Bounds only: a stepped list that interleaves with another one is taken as touching it, which shows a row too
    // many rather than hiding one.
    ours.iter().any(|(a, b, _)| theirs.iter().any(|(c, d, _)| a <= d && c <= b))
}

/// Reads a number of plain ASCII digits; signs and blanks, which `str::parse` takes, are refused.
pub(crate) fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A number beyond 64 bits is none that a scheduler gives out.
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u64, task: u64) -> JobId {
        JobId { text: format!("{number}_{task}"), number, cluster: None, part: Part::Task(task) }
    }

    #[test]
    fn case_017_array_id_task_id_and_raw_id_all_find_the_task() {
        let row = task(2_653_325, 1);
        let raw = Some(2_653_326);
        assert!(task(2_653_325, 1).whole().covers(&row, raw));
        assert!(task(2_653_325, 1).covers(&row, raw));
        assert!(task(2_653_326, 9).whole().covers(&row, raw));
        assert!(!task(2_653_325, 2).covers(&row, raw));
        assert!(!task(2_653_327, 9).whole().covers(&row, raw));
    }

    #[test]
    fn a_pending_range_holds_exactly_its_tasks() {
        let range = JobId {
            text: "69_[0-12:4,20,30-31%2]".into(),
            number: 69,
            cluster: None,
            part: Part::Tasks("0-12:4,20,30-31%2".into()),
        };
        let held: Vec<u64> = (0..40).filter(|n| task(69, *n).covers(&range, Some(69))).collect();
        assert_eq!(held, [0, 4, 8, 12, 20, 30, 31]);
        assert_eq!(count_tasks("0-12:4,20,30-31%2"), Some(7));
        assert_eq!(count_tasks("1-400:3%5"), Some(134));
    }

    #[test]
    fn a_list_that_was_cut_or_is_malformed_is_not_counted() {
        for list in ["", "1-", "3-1", "1-4:0", "5:2", "1,...", "a-b", "+1", "1 2"] {
            assert_eq!(count_tasks(list), None, "{list:?}");
        }
    }

    #[test]
    fn the_same_number_on_another_cluster_is_another_job() {
        let here = JobId { cluster: Some("a".into()), ..task(1, 1).whole() };
        let there = JobId { cluster: Some("b".into()), ..task(1, 1).whole() };
        assert!(!here.covers(&there, None));
        assert!(here.covers(&task(1, 1).whole(), None));
    }
}
