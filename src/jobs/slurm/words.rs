//! Slurm's words and numbers: states, exit codes, times, durations, sizes, node lists.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::jobs::id::{JobId, Part, digits};
use crate::jobs::record::{ArrayPlace, Job, State};

/// Most node names that a list is written out to; a longer one stays as the scheduler wrote it.
const NODES_MAX: usize = 65_536;

/// Exit codes that are most often a shell's 128 + signal (ABRT, KILL, SEGV, TERM), of which accounting drops the 128.
const SIGNAL_LIKE: [i32; 4] = [6, 9, 11, 15];

/// Reads an id as squeue, sacct and sbatch write it: `4711`, `4711_3`, `4711_[1-4%2]`, `4711+1`, each with `;cluster`.
pub(super) fn parse_id(text: &str) -> Option<JobId> {
    let (id, cluster) = match text.split_once(';') {
        Some((_, "")) => return None,
        Some((id, cluster)) => (id, Some(cluster.to_owned())),
        None => (text, None),
    };
    if let Some(cluster) = &cluster
        && !cluster.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
    {
        return None;
    }
    let (number, part) = if let Some((number, task)) = id.split_once('_') {
        let part = match task.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
            Some(list) if !list.is_empty() => Part::Tasks(list.to_owned()),
            Some(_) => return None,
            None => Part::Task(digits(task)?),
        };
        (digits(number)?, part)
    } else if let Some((number, component)) = id.split_once('+') {
        (digits(number)?, Part::Component(digits(component)?))
    } else {
        (digits(id)?, Part::Whole)
    };
    Some(JobId { text: id.to_owned(), number, cluster, part })
}

/// Tells an id's place in an array.
pub(super) fn array_place(id: &JobId) -> Option<ArrayPlace> {
    let (task, pending) = match &id.part {
        Part::Task(task) => (Some(*task), None),
        Part::Tasks(list) => (None, Some(list.clone())),
        Part::Whole | Part::Component(_) => return None,
    };
    Some(ArrayPlace { id: id.number.to_string(), task, pending })
}

/// Normalises a state word, with the reason for telling held jobs from waiting ones, and who cancelled it.
///
/// A word in no table is [`State::Unknown`]; a trailing `+` means that the word was cut, so it is in no table.
pub(super) fn state(word: &str, reason: Option<&str>) -> (State, Option<u64>) {
    let mut pieces = word.split_ascii_whitespace();
    let first = pieces.next().unwrap_or_default();
    let by = match (pieces.next(), pieces.next()) {
        (Some("by"), Some(uid)) => digits(uid),
        _ => None,
    };
    let state = match first {
        "PENDING" | "PD" if reason.is_some_and(is_held) => State::Held,
        "PENDING" | "PD" | "CONFIGURING" | "CF" | "REQUEUED" | "RQ" | "REQUEUE_FED" | "RF"
        | "POWER_UP_NODE" | "EXPEDITING" | "EX" => State::Pending,
        "REQUEUE_HOLD" | "RH" | "RESV_DEL_HOLD" | "RD" | "SPECIAL_EXIT" | "SE" | "LAUNCH_FAILED" | "LF" => {
            State::Held
        }
        "RUNNING" | "R" | "RESIZING" | "RS" | "SIGNALING" | "SI" => State::Running,
        "SUSPENDED" | "S" | "STOPPED" | "ST" => State::Suspended,
        "COMPLETING" | "CG" | "STAGE_OUT" | "SO" => State::Completing,
        "COMPLETED" | "CD" => State::Succeeded,
        "FAILED" | "F" => State::Failed,
        "TIMEOUT" | "TO" | "DEADLINE" | "DL" => State::TimedOut,
        "OUT_OF_MEMORY" | "OOM" => State::OutOfMemory,
        "CANCELLED" | "CA" | "REVOKED" | "RV" => State::Cancelled,
        "NODE_FAIL" | "NF" | "BOOT_FAIL" | "BF" => State::NodeFailed,
        "PREEMPTED" | "PR" => State::Preempted,
        _ => State::Unknown,
    };
    (state, by)
}

/// `JobHeldUser`, `JobHeldAdmin`, `job requeued in held state`, `launch failed requeued held`: only held ones say so.
fn is_held(reason: &str) -> bool {
    reason.to_ascii_lowercase().contains("held")
}

/// Puts a state word into a job, and warns where it is in no table.
pub(super) fn set_state(job: &mut Job, word: &str, reason: Option<&str>) {
    let (state, by) = state(word, reason);
    job.state = state;
    word.clone_into(&mut job.state_raw);
    job.reason = reason.map(str::to_owned);
    job.cancelled_by = by;
    if state == State::Unknown {
        job.warn("unknown_state", format!("{word:?} is no state that towline knows"));
    }
}

/// Who wrote an exit code: the controller writes it whole, accounting drops 128 from codes above it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitSource {
    Controller,
    Accounting,
}

/// Puts `code:signal` into a job that ended; the state decides, the code only refines it.
pub(super) fn set_exit(job: &mut Job, text: &str, source: ExitSource) {
    let Some((code, signal)) = text.split_once(':') else {
        return;
    };
    let (Some(code), Some(signal)) = (small(code), small(signal)) else {
        return;
    };
    if !job.state.terminal() {
        return;
    }
    job.exit_raw = Some(text.to_owned());
    let by_signal = (1..=64).contains(&signal);
    // A job that never ran has no code, and of one that was taken down from outside 0:0 says nothing.
    let taken_down = matches!(job.state, State::Cancelled | State::NodeFailed | State::Preempted);
    let says_nothing = job.started_at.is_none() || (taken_down && code == 0);
    job.signal = by_signal.then_some(signal);
    job.exit_code = (!by_signal && !says_nothing).then_some(code);
    if job.state == State::Succeeded && (code != 0 || by_signal) {
        job.state = State::Failed;
        job.warn("completed_with_code", format!("the scheduler says COMPLETED with exit code {text}"));
    }
    if source == ExitSource::Accounting && job.exit_code.is_some_and(|code| SIGNAL_LIKE.contains(&code)) {
        job.warn(
            "exit_code_ambiguous",
            format!("accounting drops 128 from larger exit codes: {code} may be {}", code + 128),
        );
    }
}

fn small(text: &str) -> Option<i32> {
    i32::try_from(digits(text)?).ok() // A code beyond 32 bits is none.
}

/// Reads a time: seconds since 1970 as `SLURM_TIME_FORMAT=%s` gives them, or the default form.
///
/// The default form is local time without an offset; the questions set `TZ=UTC0`, so it is UTC.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    if let Some(seconds) = digits(text) {
        let seconds = i64::try_from(seconds).ok()?; // Beyond the calendar there is no time.
        return (seconds > 0)
            .then(|| Timestamp::from_second(seconds).ok()) // The same.
            .flatten();
    }
    let local: DateTime = text.parse().ok()?; // `Unknown`, `None` and `N/A` are no time.
    local
        .to_zoned(TimeZone::UTC)
        .ok() // Beyond the calendar there is no time.
        .map(|zoned| zoned.timestamp())
}

/// Reads `[D-]HH:MM:SS`, `MM:SS` or `H:MM:SS` as seconds; `UNLIMITED`, `NOT_SET`, `Partition_Limit` are `None`.
pub(super) fn duration(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (digits(days)?, clock),
        None => (0, text),
    };
    // Fractions of a second appear in some columns.
    let clock = clock.split('.').next().unwrap_or_default();
    let mut seconds: u64 = 0;
    let mut pieces = 0;
    for piece in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(digits(piece)?)?;
        pieces += 1;
    }
    match pieces {
        2 | 3 => days.checked_mul(86_400)?.checked_add(seconds),
        _ => None,
    }
}

/// Reads a size such as `500M`, `1.50G` or `1234K` in powers of 1024; without a letter `default_unit` counts.
pub(super) fn size(text: &str, default_unit: u64) -> Option<u64> {
    let (number, unit) = match text.bytes().last()? {
        b'K' | b'k' => (text.get(..text.len() - 1)?, 1 << 10),
        b'M' | b'm' => (text.get(..text.len() - 1)?, 1 << 20),
        b'G' | b'g' => (text.get(..text.len() - 1)?, 1 << 30),
        b'T' | b't' => (text.get(..text.len() - 1)?, 1 << 40),
        b'P' | b'p' => (text.get(..text.len() - 1)?, 1_u64 << 50),
        _ => (text, default_unit),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (digits(whole)?, fraction),
        None => (digits(number)?, ""),
    };
    let mut bytes = whole.checked_mul(unit)?;
    if !fraction.is_empty() {
        let places = u32::try_from(fraction.len()).ok().filter(|n| *n <= 6)?; // More are no size.
        bytes = bytes.checked_add(digits(fraction)?.checked_mul(unit)? / 10_u64.pow(places))?;
    }
    Some(bytes)
}

/// Reads one value of a list such as `billing=2,cpu=2,gres/gpu=1,mem=500M,node=1`.
pub(super) fn resource<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.split(',')
        .filter_map(|item| item.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// Puts memory and GPUs of a resource list into a job.
pub(super) fn set_resources(job: &mut Job, list: &str) {
    if let Some(bytes) = resource(list, "mem").and_then(|text| size(text, 1 << 20)) {
        job.mem_bytes = Some(bytes);
    }
    if let Some(gpus) = resource(list, "gres/gpu").and_then(digits) {
        job.gpus = Some(gpus);
    }
}

/// Writes a node list such as `n[1-3,07],m` out.
pub(super) fn nodes(list: &str) -> Vec<String> {
    if matches!(list, "" | "(null)" | "N/A" | "None assigned" | "None") {
        return Vec::new();
    }
    let mut names = Vec::new();
    for item in split_outside_brackets(list) {
        if expand(item, &mut names).is_none() {
            return vec![list.to_owned()];
        }
    }
    names
}

fn split_outside_brackets(list: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    list.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

/// Adds the names of one item; `None` when it is not one or the list would grow too long.
fn expand(item: &str, names: &mut Vec<String>) -> Option<()> {
    let Some((prefix, rest)) = item.split_once('[') else {
        names.push(item.to_owned());
        return (names.len() <= NODES_MAX).then_some(());
    };
    let (ranges, suffix) = rest.split_once(']')?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to, width) = (digits(first)?, digits(last)?, first.len());
        if to < from || to - from >= u64::try_from(NODES_MAX).ok()? {
            return None;
        }
        for number in from..=to {
            expand(&format!("{prefix}{number:0width$}{suffix}"), names)?;
        }
    }
    Some(())
}

/// Takes Slurm's words for "nothing" as nothing.
pub(super) fn known(text: &str) -> Option<&str> {
    match text.trim() {
        "" | "(null)" | "N/A" | "None" | "Unknown" | "n/a" => None,
        text => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_form_are_taken_apart() {
        let part = |text| parse_id(text).map(|id| (id.number, id.part, id.cluster));
        assert_eq!(part("4711"), Some((4711, Part::Whole, None)));
        assert_eq!(part("4711_3"), Some((4711, Part::Task(3), None)));
        let range = Part::Tasks("6-10%2".into());
        assert_eq!(part("62_[6-10%2]"), Some((62, range, None)));
        assert_eq!(part("72+1"), Some((72, Part::Component(1), None)));
        assert_eq!(part("7;towline"), Some((7, Part::Whole, Some("towline".into()))));
        for text in ["", "--me", "-1", "4711.batch", "x", "1_", "1_[]", "1+", "7;", "7;a b", " 7", "1,2"] {
            assert_eq!(parse_id(text), None, "{text:?}");
        }
    }

    #[test]
    fn case_005_cancelled_by_somebody_is_cancelled() {
        assert_eq!(state("CANCELLED by 1234", None), (State::Cancelled, Some(1234)));
        assert_eq!(state("CANCELLED", None), (State::Cancelled, None));
        assert_eq!(state("CANCELLED+", None).0, State::Unknown);
    }

    #[test]
    fn case_015_seldom_seen_states_are_known_and_unheard_of_ones_are_unknown() {
        let table = [
            ("RD", State::Held),
            ("RF", State::Pending),
            ("RH", State::Held),
            ("RQ", State::Pending),
            ("RS", State::Running),
            ("RV", State::Cancelled),
            ("SE", State::Held),
            ("SI", State::Running),
            ("SO", State::Completing),
            ("ST", State::Suspended),
            ("EX", State::Pending),
            ("LF", State::Held),
            ("CF", State::Pending),
            ("XX", State::Unknown),
            ("", State::Unknown),
        ];
        for (word, expected) in table {
            assert_eq!(state(word, None).0, expected, "{word:?}");
        }
        assert_eq!(state("PENDING", Some("JobHeldAdmin")).0, State::Held);
        assert_eq!(state("PENDING", Some("job requeued in held state")).0, State::Held);
        assert_eq!(state("RUNNING", Some("JobHeldUser")).0, State::Running);
    }

    #[test]
    fn times_durations_and_sizes_are_read() {
        assert_eq!(time("1796048844").unwrap().to_string(), "2026-11-30T14:27:24Z");
        assert_eq!(time("2026-11-30T14:27:24").unwrap().to_string(), "2026-11-30T14:27:24Z");
        for text in ["Unknown", "None", "N/A", "", "0", "-5"] {
            assert_eq!(time(text), None, "{text:?}");
        }
        assert_eq!(duration("1-00:00:00"), Some(86_400));
        assert_eq!(duration("0:08"), Some(8));
        assert_eq!(duration("1:00:00"), Some(3600));
        assert_eq!(duration("UNLIMITED"), None);
        assert_eq!(size("500M", 1), Some(500 << 20));
        assert_eq!(size("1.50G", 1), Some(3 << 29));
        assert_eq!(size("12", 1 << 20), Some(12 << 20));
        assert_eq!(size("", 1), None);
    }

    #[test]
    fn node_lists_are_written_out_or_left_alone() {
        assert_eq!(nodes("node[1-2]"), ["node1", "node2"]);
        assert_eq!(nodes("a[08-10,12],b"), ["a08", "a09", "a10", "a12", "b"]);
        assert_eq!(nodes("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(nodes("None assigned"), Vec::<String>::new());
        assert_eq!(nodes("n[1-99999999]"), ["n[1-99999999]"]);
        assert_eq!(nodes("n[1-"), ["n[1-"]);
    }
}
