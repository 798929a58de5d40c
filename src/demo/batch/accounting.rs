//! sacct: every job ever, and the step of its script.

use super::arguments::{Grammar, Parsed};
use super::store::{Job, State, Store, parse_id};
use super::{Answer, CLUSTER_NAME, Failure, NODE, PARTITION, VERSION, clock};

const GRAMMAR: Grammar = Grammar {
    command: "sacct",
    table: "n/noheader P/parsable2 p/parsable -/delimiter= o/format= j/jobs= S/starttime= E/endtime= D/duplicates \
            X/allocations u/user= a/allusers L/allclusters l/long s/state= -/name= A/accounts= V/version",
    in_order: false,
    code: 1,
};

const DEFAULT: &str = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode";

/// Field, and its width without `-P`; a negative one aligns left.
const FIELDS: [(&str, i16); 36] = [
    ("JobID", -12),
    ("JobIDRaw", -12),
    ("JobName", 10),
    ("User", 9),
    ("UID", 6),
    ("GID", 6),
    ("Account", 10),
    ("Partition", 10),
    ("QOS", 10),
    ("State", 10),
    ("ExitCode", 8),
    ("DerivedExitCode", 15),
    ("Submit", 19),
    ("Eligible", 19),
    ("Start", 19),
    ("End", 19),
    ("Elapsed", 10),
    ("ElapsedRaw", 10),
    ("Timelimit", 10),
    ("TimelimitRaw", 13),
    ("NNodes", 8),
    ("AllocNodes", 10),
    ("NCPUS", 10),
    ("AllocCPUS", 10),
    ("ReqCPUS", 8),
    ("ReqMem", 10),
    ("ReqTRES", 10),
    ("MaxRSS", 10),
    ("AllocTRES", 10),
    ("NodeList", 15),
    ("Reason", 22),
    ("Priority", 10),
    ("Comment", 14),
    ("WorkDir", 20),
    ("SubmitLine", 20),
    ("Cluster", 10),
];

struct Column {
    name: &'static str,
    width: i16,
}

pub(super) fn sacct(store: &Store, arguments: &[String]) -> Result<Answer, Failure> {
    let options = GRAMMAR.parse(arguments)?;
    if options.has("version") {
        return Ok(VERSION.to_owned().into());
    }
    let columns =
        options.value("format").unwrap_or(DEFAULT).split(',').map(column).collect::<Result<Vec<_>, _>>()?;
    let mut stdout = String::new();
    if !options.has("noheader") {
        let names = columns.iter().map(|column| column.name.to_owned());
        stdout.push_str(&row(&options, &columns, names));
        if !options.has("parsable") && !options.has("parsable2") {
            let rules = columns.iter().map(|column| "-".repeat(column.width.unsigned_abs().into()));
            stdout.push_str(&row(&options, &columns, rules));
        }
    }
    let jobs = store.jobs()?;
    for job in chosen(&options, &jobs)? {
        stdout.push_str(&row(
            &options,
            &columns,
            columns.iter().map(|column| job_field(job, column.name, &jobs)),
        ));
        if job.started.is_some() && !options.has("allocations") {
            stdout.push_str(&row(
                &options,
                &columns,
                columns.iter().map(|column| step_field(job, column.name)),
            ));
        }
    }
    Ok(stdout.into())
}

fn column(text: &str) -> Result<Column, Failure> {
    let (name, width) = match text.split_once('%') {
        Some((name, width)) => (name, width.parse::<i16>().ok().map(|width| width.saturating_neg())),
        None => (text, None),
    };
    let unknown = || Failure::new(1, format!("sacct: error: Invalid field requested: \"{name}\""));
    let known = FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let (name, usual) = known.ok_or_else(unknown)?;
    // `%-20` aligns left, as a negative width does here.
    Ok(Column { name, width: width.map_or(*usual, |width| width.saturating_neg()) })
}

fn chosen<'a>(options: &Parsed, jobs: &'a [Job]) -> Result<Vec<&'a Job>, Failure> {
    let ids = options
        .list("jobs")
        .iter()
        .map(|id| parse_id(id.trim_end_matches(".batch"), "sacct: fatal: Bad job/step specified: "))
        .collect::<Result<Vec<_>, _>>()?;
    let since = options.value("starttime").and_then(clock::parse_stamp).unwrap_or(0);
    let (users, names) = (options.list("user"), options.list("name"));
    let states = options.list("state");
    let wanted = |job: &Job| {
        (ids.is_empty() || ids.contains(&job.id))
            && job.ended.is_none_or(|ended| ended >= since)
            && (users.is_empty() || users.contains(&job.user))
            && (names.is_empty() || names.contains(&job.name))
            && (states.is_empty()
                || states.iter().any(|state| {
                    <[&str; 2]>::from(job.words()).iter().any(|word| word.eq_ignore_ascii_case(state))
                }))
    };
    Ok(jobs.iter().filter(|job| wanted(job)).collect())
}

fn row(options: &Parsed, columns: &[Column], values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    let delimiter = options.value("delimiter").unwrap_or("|");
    if options.has("parsable2") {
        return values.join(delimiter) + "\n";
    } else if options.has("parsable") {
        return values.join(delimiter) + delimiter + "\n";
    }
    let mut line = String::new();
    for (column, value) in columns.iter().zip(values) {
        let width = usize::from(column.width.unsigned_abs());
        let value = if value.chars().count() > width {
            value.chars().take(width.saturating_sub(1)).chain(['+']).collect()
        } else {
            value
        };
        line.push_str(&if column.width < 0 {
            format!("{value:width$} ")
        } else {
            format!("{value:>width$} ")
        });
    }
    line + "\n"
}

fn job_field(job: &Job, name: &str, jobs: &[Job]) -> String {
    let never = job.started.is_none();
    match name {
        "JobID" | "JobIDRaw" => job.id.to_string(),
        "JobName" => job.name.clone(),
        "User" => job.user.clone(),
        "UID" => job.uid.to_string(),
        "GID" => job.gid.to_string(),
        "Partition" => PARTITION.to_owned(),
        "QOS" => job.qos.clone(),
        "State" => match job.cancelled_by {
            Some(uid) if job.state == State::Cancelled => format!("CANCELLED by {uid}"),
            _ => job.words().0.to_owned(),
        },
        // Only a script's own end is told here; who was stopped has 0:0.
        "ExitCode" if matches!(job.state, State::Cancelled | State::Timeout) => "0:0".to_owned(),
        "DerivedExitCode" => "0:0".to_owned(),
        "Submit" | "Eligible" => clock::stamp(job.submitted),
        "Start" if never => if job.active() { "Unknown" } else { "None" }.to_owned(),
        "Timelimit" => clock::full(job.limit_s),
        "TimelimitRaw" => (job.limit_s / 60).to_string(),
        "AllocNodes" if never => "0".to_owned(),
        "AllocTRES" if never => String::new(),
        "AllocTRES" | "ReqTRES" => format!("billing={0},cpu={0},mem={1},node=1", job.cpus, job.memory),
        "NodeList" if never => "None assigned".to_owned(),
        "Reason" => job.reason(jobs),
        "Priority" => if job.held { "0" } else { "1000" }.to_owned(),
        "Comment" => job.comment.clone().unwrap_or_default(),
        "WorkDir" => job.work_dir.clone(),
        "SubmitLine" => format!("sbatch {}", job.command.as_deref().unwrap_or_default()),
        _ => shared_field(job, name),
    }
}

fn step_field(job: &Job, name: &str) -> String {
    match name {
        "JobID" | "JobIDRaw" => format!("{}.batch", job.id),
        "JobName" => "batch".to_owned(),
        "State" if job.signal != 0 => "CANCELLED".to_owned(),
        "State" if job.code != 0 => "FAILED".to_owned(),
        "State" if job.ended.is_some() => "COMPLETED".to_owned(),
        "State" => "RUNNING".to_owned(),
        "Submit" => shared_field(job, "Start"),
        "AllocTRES" => format!("cpu={},mem={},node=1", job.cpus, job.memory),
        _ => shared_field(job, name),
    }
}

/// What a job and its step say alike; empty for what only the job says.
fn shared_field(job: &Job, name: &str) -> String {
    let stamp = |time: Option<i64>| time.map_or("Unknown".to_owned(), clock::stamp);
    match name {
        "Account" => job.account.clone(),
        "ExitCode" => format!("{}:{}", job.code, job.signal),
        "Start" => stamp(job.started),
        "End" => stamp(job.ended),
        "Elapsed" => clock::full(job.elapsed()),
        "ElapsedRaw" => job.elapsed().to_string(),
        "NNodes" | "AllocNodes" => "1".to_owned(),
        "NCPUS" | "AllocCPUS" | "ReqCPUS" => job.cpus.to_string(),
        "ReqMem" => job.memory.clone(),
        "NodeList" => NODE.to_owned(),
        "Cluster" => CLUSTER_NAME.to_owned(),
        _ => String::new(),
    }
}
