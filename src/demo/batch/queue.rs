//! squeue: the jobs in the queue, in the caller's format.

use super::arguments::{Grammar, Parsed};
use super::store::{Job, Store, parse_id};
use super::{Answer, Failure, NODE, PARTITION, VERSION, clock};
use crate::demo::account::current_user;

const GRAMMAR: Grammar = Grammar {
    command: "squeue",
    table: "h/noheader a/all r/array l/long -/me j/jobs= u/user= t/states= o/format= O/Format= n/name= A/account= \
            p/partition= q/qos= S/sort= V/version",
    in_order: false,
    code: 1,
};

const DEFAULT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";

/// `%` letter, `--Format` name, heading.
const FIELDS: [(char, &str, &str); 28] = [
    ('i', "jobarrayid", "JOBID"),
    ('A', "jobid", "JOBID"),
    ('F', "arrayjobid", "ARRAY_JOB_ID"),
    ('K', "arraytaskid", "ARRAY_TASK_ID"),
    ('T', "state", "STATE"),
    ('t', "statecompact", "ST"),
    ('r', "reason", "REASON"),
    ('R', "reasonlist", "NODELIST(REASON)"),
    ('j', "name", "NAME"),
    ('u', "username", "USER"),
    ('U', "userid", "USER"),
    ('a', "account", "ACCOUNT"),
    ('P', "partition", "PARTITION"),
    ('q', "qos", "QOS"),
    ('D', "numnodes", "NODES"),
    ('C', "numcpus", "CPUS"),
    ('m', "minmemory", "MIN_MEMORY"),
    ('M', "timeused", "TIME"),
    ('l', "timelimit", "TIME_LIMIT"),
    ('L', "timeleft", "TIME_LEFT"),
    ('V', "submittime", "SUBMIT_TIME"),
    ('S', "starttime", "START_TIME"),
    ('e', "endtime", "END_TIME"),
    ('Q', "prioritylong", "PRIORITY"),
    ('N', "nodelist", "NODELIST"),
    ('o', "command", "COMMAND"),
    ('Z', "workdir", "WORK_DIR"),
    ('k', "comment", "COMMENT"),
];

pub(super) fn squeue(store: &Store, arguments: &[String]) -> Result<Answer, Failure> {
    let options = GRAMMAR.parse(arguments)?;
    if options.has("version") {
        return Ok(VERSION.to_owned().into());
    }
    let (layout, stderr) = match (options.value("Format"), options.value("format")) {
        (Some(names), _) => by_names(names),
        (None, format) => (by_letters(format.unwrap_or(DEFAULT)), String::new()),
    };
    let mut stdout = String::new();
    if !options.has("noheader") {
        stdout.push_str(&line(&layout, heading));
    }
    let jobs: Vec<Job> = store.jobs()?.into_iter().filter(Job::remembered).collect();
    for job in chosen(&options, &jobs)? {
        stdout.push_str(&line(&layout, |letter| field(job, letter, &jobs)));
    }
    Ok(Answer { stdout, stderr })
}

fn chosen<'a>(options: &Parsed, jobs: &'a [Job]) -> Result<Vec<&'a Job>, Failure> {
    let ids = options
        .list("jobs")
        .iter()
        .map(|id| parse_id(id, "squeue: error: Invalid job id: "))
        .collect::<Result<Vec<_>, _>>()?;
    // One unknown id is an error, two unknown ids are none: so does Slurm.
    if let [id] = ids.as_slice()
        && !jobs.iter().any(|job| job.id == *id)
    {
        return Err(Failure::new(1, "slurm_load_jobs error: Invalid job id specified"));
    }
    let (users, names, states) = (options.list("user"), options.list("name"), options.list("states"));
    let me = options.has("me").then(current_user);
    let wanted = |job: &Job| {
        let (long, short) = job.words();
        let shown = match states.as_slice() {
            [] => job.active(),
            states => states
                .iter()
                .any(|state| ["all", long, short].iter().any(|word| word.eq_ignore_ascii_case(state))),
        };
        shown
            && (ids.is_empty() || ids.contains(&job.id))
            && (users.is_empty()
                || users.iter().any(|user| *user == job.user || *user == job.uid.to_string()))
            && (names.is_empty() || names.contains(&job.name))
            && me.as_ref().is_none_or(|me| *me == job.user)
    };
    Ok(jobs.iter().filter(|job| wanted(job)).collect())
}

/// A piece of a line: text, or a field with its width (cut and padded) and side.
enum Piece {
    Text(char),
    Field { letter: char, width: Option<usize>, right: bool },
}

fn by_letters(format: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            pieces.push(Piece::Text(letter));
            continue;
        }
        let right = letters.next_if_eq(&'.').is_some();
        let mut digits = String::new();
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if let Some(letter) = letters.next() {
            let width = digits.parse().ok();
            pieces.push(Piece::Field { letter, width, right });
        }
    }
    pieces
}

/// Reads `Name[:width],…`; unknown names are complained of and left out.
fn by_names(names: &str) -> (Vec<Piece>, String) {
    let mut complaints = String::new();
    let pieces = names.split(',').filter_map(|entry| {
        let (name, width) = entry.split_once(':').unwrap_or((entry, "20"));
        let known = FIELDS.iter().find(|(_, known, _)| known.eq_ignore_ascii_case(name.trim()));
        if known.is_none() {
            complaints.push_str(&format!("squeue: error: Invalid job format specification: {name}\n"));
        }
        let right = width.starts_with('.');
        let width = width.trim_start_matches('.').parse().ok();
        known.map(|(letter, _, _)| Piece::Field { letter: *letter, width, right })
    });
    (pieces.collect(), complaints)
}

fn line(layout: &[Piece], value: impl Fn(char) -> String) -> String {
    let mut line = String::new();
    for piece in layout {
        match piece {
            Piece::Text(letter) => line.push(*letter),
            Piece::Field { letter, width, right } => {
                let value = value(*letter);
                let width = width.unwrap_or(value.chars().count());
                let value: String = value.chars().take(width).collect();
                line.push_str(&if *right { format!("{value:>width$}") } else { format!("{value:width$}") });
            }
        }
    }
    line + "\n"
}

fn heading(letter: char) -> String {
    let found = FIELDS.iter().find(|(known, _, _)| *known == letter);
    found.map_or(String::new(), |(_, _, heading)| (*heading).to_owned())
}

fn field(job: &Job, letter: char, jobs: &[Job]) -> String {
    let (long, short) = job.words();
    let node = if job.started.is_some() { NODE } else { "" };
    let stamp = |time: Option<i64>| time.map_or("N/A".to_owned(), clock::stamp);
    match letter {
        'i' | 'A' | 'F' => job.id.to_string(),
        'K' => "N/A".to_owned(),
        'T' => long.to_owned(),
        't' => short.to_owned(),
        'r' => job.reason(jobs),
        'R' if node.is_empty() => format!("({})", job.reason(jobs)),
        'j' => job.name.clone(),
        'u' => job.user.clone(),
        'U' => job.uid.to_string(),
        'a' => job.account.clone(),
        'P' => PARTITION.to_owned(),
        'q' => job.qos.clone(),
        'D' => "1".to_owned(),
        'C' => job.cpus.to_string(),
        'm' => job.memory.clone(),
        'M' => clock::brief(job.elapsed()),
        'l' => clock::brief(job.limit_s),
        'L' => clock::brief(job.limit_s.saturating_sub(job.elapsed())),
        'V' => clock::stamp(job.submitted),
        'S' => stamp(job.started),
        'e' => stamp(job.ended.or(job.started.map(|start| start.saturating_add(job.limit_s)))),
        'Q' => if job.held { "0" } else { "1000" }.to_owned(),
        'N' | 'R' => node.to_owned(),
        'o' => job.command.clone().unwrap_or_else(|| "(null)".to_owned()),
        'Z' => job.work_dir.clone(),
        'k' => job.comment.clone().unwrap_or_else(|| "(null)".to_owned()),
        _ => String::new(),
    }
}
