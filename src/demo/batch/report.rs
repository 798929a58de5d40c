//! squeue and sacct: lists of jobs in the caller's format.

use super::arguments::Grammar;
use super::store::{Job, State, Store};
use super::{Answer, CLUSTER_NAME, Failure, NODE, PARTITION, clock};
use crate::demo::account::current_user;

const SQUEUE: Grammar = Grammar {
    command: "squeue",
    table: "h/noheader a/all r/array -/me j/jobs= u/user= t/states= o/format= n/name= S/sort= M/clusters=",
    in_order: false,
    code: 1,
};

const SQUEUE_DEFAULT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const SQUEUE_HEADING: &str =
    "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n";

const SACCT: Grammar = Grammar {
    command: "sacct",
    table: "n/noheader P/parsable2 p/parsable -/delimiter= o/format= j/jobs= S/starttime= E/endtime= D/duplicates \
            X/allocations u/user= a/allusers s/state= -/name= M/clusters=",
    in_order: false,
    code: 1,
};

const SACCT_DEFAULT: &str = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode";
const SACCT_FIELDS: &str = "JobID JobIDRaw JobName User UID GID Account Partition QOS State ExitCode DerivedExitCode \
    Submit Eligible Start End Elapsed ElapsedRaw Timelimit TimelimitRaw NNodes AllocNodes NCPUS AllocCPUS ReqCPUS \
    ReqMem MaxRSS AllocTRES ReqTRES NodeList Reason Comment WorkDir SubmitLine Cluster";

pub(super) fn squeue(store: &Store, arguments: &[String]) -> Answer {
    let options = SQUEUE.parse(arguments)?;
    let ids = options.ids("jobs", "squeue: error: Invalid job id: ")?;
    let mut jobs = store.jobs()?;
    jobs.retain(Job::remembered);
    // One unknown id is an error, two unknown ids are none: so does Slurm.
    if let [id] = ids.as_slice()
        && !jobs.iter().any(|job| job.id == *id)
    {
        return Err(Failure::new(1, "slurm_load_jobs error: Invalid job id specified\n"));
    }
    let me = options.has("me").then(current_user);
    let format = options.value("format");
    let heading = format.is_none() && !options.has("noheader");
    let mut text = if heading { SQUEUE_HEADING.to_owned() } else { String::new() };
    for job in &jobs {
        let (long, short) = job.words();
        let shown = job.active() || options.has("states");
        if shown
            && (ids.is_empty() || ids.contains(&job.id))
            && options.admits("states", &["all", long, short])
            && options.admits("user", &[&job.user, &job.uid.to_string()])
            && options.admits("name", &[&job.name])
            && me.as_ref().is_none_or(|me| *me == job.user)
        {
            text.push_str(&line(format.unwrap_or(SQUEUE_DEFAULT), |letter| queue_field(job, letter, &jobs)));
        }
    }
    Ok(text)
}

/// Fills in a format of `%[.][width]letter`; a width cuts and pads, the dot aligns right.
pub(super) fn line(format: &str, field: impl Fn(char) -> String) -> String {
    let mut line = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            line.push(letter);
            continue;
        }
        let right = letters.next_if_eq(&'.').is_some();
        let mut digits = String::new();
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let value = letters.next().map(&field).unwrap_or_default();
        let width = digits.parse().unwrap_or(value.chars().count());
        let value: String = value.chars().take(width).collect();
        line.push_str(&if right { format!("{value:>width$}") } else { format!("{value:width$}") });
    }
    line + "\n"
}

fn queue_field(job: &Job, letter: char, jobs: &[Job]) -> String {
    let (long, short) = job.words();
    let node = if job.started.is_some() { NODE } else { "" };
    match letter {
        'i' | 'A' | 'F' => job.id.to_string(),
        'K' | 'b' => "N/A".to_owned(),
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
        'L' => clock::brief(job.limit_s.saturating_sub(job.elapsed()).max(0)),
        'V' => clock::stamp(Some(job.submitted), "N/A"),
        'S' => clock::stamp(job.started, "N/A"),
        'e' => clock::stamp(job.end(), "N/A"),
        'Q' => job.priority().to_string(),
        'N' | 'R' => node.to_owned(),
        'o' => job.command.clone().unwrap_or_else(|| "(null)".to_owned()),
        'Z' => job.work_dir.clone(),
        'k' => job.comment.clone().unwrap_or_else(|| "(null)".to_owned()),
        _ => String::new(),
    }
}

pub(super) fn sacct(store: &Store, arguments: &[String]) -> Answer {
    let options = SACCT.parse(arguments)?;
    let ids = options.ids("jobs", "sacct: fatal: Bad job/step specified: ")?;
    let mut fields = Vec::new();
    for name in options.value("format").unwrap_or(SACCT_DEFAULT).split(',') {
        // A width (`JobID%30`) says nothing in the parsable forms.
        let name = name.split('%').next().unwrap_or_default();
        let known = SACCT_FIELDS.split_whitespace().find(|known| known.eq_ignore_ascii_case(name));
        let unknown = || Failure::new(1, format!("sacct: error: Invalid field requested: \"{name}\"\n"));
        fields.push(known.ok_or_else(unknown)?);
    }
    let row = |field: &dyn Fn(&'static str) -> String| {
        let values: Vec<String> = fields.iter().map(|name| field(name)).collect();
        let delimiter = options.value("delimiter").unwrap_or("|");
        if options.has("parsable2") {
            values.join(delimiter) + "\n"
        } else if options.has("parsable") {
            values.join(delimiter) + delimiter + "\n"
        } else {
            values.iter().map(|value| format!("{value:>12} ")).collect::<String>() + "\n"
        }
    };
    let since = options.value("starttime").and_then(clock::parse_stamp).unwrap_or(0);
    let mut text = if options.has("noheader") { String::new() } else { row(&str::to_owned) };
    let jobs = store.jobs()?;
    for job in &jobs {
        let (long, short) = job.words();
        if (ids.is_empty() || ids.contains(&job.id))
            && job.ended.is_none_or(|ended| ended >= since)
            && options.admits("user", &[&job.user, &job.uid.to_string()])
            && options.admits("state", &[long, short])
            && options.admits("name", &[&job.name])
        {
            text.push_str(&row(&|name| job_field(job, name, &jobs)));
            if job.started.is_some() && !options.has("allocations") {
                text.push_str(&row(&|name| step_field(job, name)));
            }
        }
    }
    Ok(text)
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
        "Submit" | "Eligible" => clock::stamp(Some(job.submitted), "Unknown"),
        "Start" if never => if job.active() { "Unknown" } else { "None" }.to_owned(),
        "Timelimit" => clock::full(job.limit_s),
        "TimelimitRaw" => (job.limit_s / 60).to_string(),
        "AllocNodes" if never => "0".to_owned(),
        "AllocTRES" if never => String::new(),
        "AllocTRES" | "ReqTRES" => format!("billing={0},cpu={0},mem={1},node=1", job.cpus, job.memory),
        "NodeList" if never => "None assigned".to_owned(),
        "Reason" => job.reason(jobs),
        "Comment" => job.comment.clone().unwrap_or_default(),
        "WorkDir" => job.work_dir.clone(),
        "SubmitLine" => job.submit_line.clone(),
        _ => shared_field(job, name),
    }
}

fn step_field(job: &Job, name: &str) -> String {
    match name {
        "JobID" | "JobIDRaw" => format!("{}.batch", job.id),
        "JobName" => "batch".to_owned(),
        "State" if job.signal != 0 => "CANCELLED".to_owned(),
        "State" if job.code != 0 => "FAILED".to_owned(),
        "State" => if job.ended.is_some() { "COMPLETED" } else { "RUNNING" }.to_owned(),
        "Submit" => shared_field(job, "Start"),
        "AllocTRES" => format!("cpu={},mem={},node=1", job.cpus, job.memory),
        _ => shared_field(job, name),
    }
}

/// What a job and its step say alike; empty for what only the job says, and for what nobody measured.
fn shared_field(job: &Job, name: &str) -> String {
    match name {
        "Account" => job.account.clone(),
        "ExitCode" => format!("{}:{}", job.code, job.signal),
        "Start" => clock::stamp(job.started, "Unknown"),
        "End" => clock::stamp(job.ended, "Unknown"),
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
