//! squeue, sacct and `scontrol show`: what is told about jobs, all of it from one table of fields.

use nix::unistd::geteuid;

use super::arguments::{Arguments, ids};
use super::store::{Job, State, Store};
use super::{Answer, CLUSTER_NAME, Failure, NODE, PARTITION, times};
use crate::demo::account::current_user;

type Value = fn(&Job) -> String;

/// The names of each field and its value: bare names are sacct's, `%T` is squeue's, `=JobState` scontrol's.
const FIELDS: [(&str, Value); 39] = [
    ("JobID JobIDRaw =JobId %i %A %F", |job| job.id.to_string()),
    ("JobName =JobName %j", |job| job.name.clone()),
    ("User %u", |_| current_user()),
    ("=UserId", |_| format!("{}({})", current_user(), geteuid())),
    ("Account =Account %a", |job| job.account.clone()),
    ("QOS =QOS %q", |job| job.qos.clone()),
    ("Partition =Partition %P", |_| PARTITION.to_owned()),
    ("Cluster", |_| CLUSTER_NAME.to_owned()),
    ("=JobState %T", |job| job.word().to_owned()),
    ("State", |job| match job.cancelled_by {
        Some(uid) if job.state == State::Cancelled => format!("CANCELLED by {uid}"),
        _ => job.word().to_owned(),
    }),
    ("Reason =Reason %r", |job| job.reason().to_owned()),
    ("=ExitCode", |job| format!("{}:{}", job.code, job.signal)),
    // In accounting only a script's own end counts; who was stopped has 0:0.
    ("ExitCode", |job| match job.state {
        State::Cancelled | State::Timeout => "0:0".to_owned(),
        _ => format!("{}:{}", job.code, job.signal),
    }),
    ("DerivedExitCode", |_| "0:0".to_owned()),
    ("=Restarts", |_| "0".to_owned()),
    ("Submit =SubmitTime %V", |job| times::stamp(Some(job.submitted), "Unknown")),
    ("Start =StartTime", |job| times::stamp(job.started, "Unknown")),
    ("%S", |job| times::stamp(job.started, "N/A")),
    ("End =EndTime", |job| times::stamp(job.ended, "Unknown")),
    ("%e", |job| times::stamp(job.ended, "N/A")),
    ("ElapsedRaw", |job| job.elapsed().to_string()),
    ("=RunTime %M", |job| times::duration(job.elapsed())),
    ("TimelimitRaw", |job| (job.limit_s / 60).to_string()),
    ("=TimeLimit %l", |job| times::duration(job.limit_s)),
    ("NNodes =NumNodes %D", |_| "1".to_owned()),
    ("AllocCPUS ReqCPUS =NumCPUs %C", |job| job.cpus.to_string()),
    ("ReqTRES =TRES", resources),
    ("AllocTRES", |job| job.started.map_or(String::new(), |_| resources(job))),
    ("MaxRSS", |_| String::new()),
    ("%b", |_| "N/A".to_owned()),
    ("=NodeList %N", |job| job.started.map_or("", |_| NODE).to_owned()),
    ("NodeList", |job| job.started.map_or("None assigned", |_| NODE).to_owned()),
    ("WorkDir =WorkDir %Z", |job| job.work_dir.display().to_string()),
    ("Comment", |job| job.comment.clone().unwrap_or_default()),
    ("%k", |job| job.comment.clone().unwrap_or_else(|| "(null)".to_owned())),
    ("SubmitLine", |job| job.submit_line.clone()),
    ("=Command", |job| if job.command.is_empty() { "(null)".to_owned() } else { job.command.join(" ") }),
    ("=StdErr", |job| job.stderr.display().to_string()),
    ("=StdOut", |job| job.stdout.display().to_string()),
];

/// The lines of `scontrol show job`, a subset of Slurm's in its order.
const RECORD: &str = "JobId JobName/UserId/Account QOS/JobState Reason/Restarts ExitCode/RunTime TimeLimit/\
    SubmitTime/StartTime EndTime/Partition/NodeList/NumNodes NumCPUs/TRES/Command/WorkDir/StdErr/StdOut";

fn resources(job: &Job) -> String {
    format!("billing={0},cpu={0},mem={1},node=1", job.cpus, job.memory)
}

fn field(name: &str) -> Option<Value> {
    let found = FIELDS.iter().find(|(names, _)| names.split(' ').any(|known| known == name));
    found.map(|(_, value)| *value)
}

/// Fills in the marks of a format, such as `%i`; `None` where one has no value.
pub(super) fn fill(format: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '%' => text.push_str(&value(&String::from_iter(['%'].into_iter().chain(letters.next())))?),
            _ => text.push(letter),
        }
    }
    Some(text)
}

/// squeue: active jobs, or all with `--states=all`, unpadded and without a heading. All are the one user's.
pub(super) fn squeue(store: &Store, arguments: &[String]) -> Answer {
    let known = "h/noheader me M/clusters= t/states= j/jobs= o/format=";
    let options = Arguments::read("squeue", known, arguments)?;
    if let Some(states) = options.value("states").filter(|states| *states != "all") {
        return Err(Failure(1, format!("squeue: error: Invalid job state specified: {states}\n")));
    }
    let asked = ids(options.value("jobs").unwrap_or_default(), "squeue: error: Invalid job id: ")?;
    let mut jobs = store.jobs()?;
    jobs.retain(|job| asked.is_empty() || asked.contains(&job.id));
    // One unknown id is an error, two unknown ids are none: so does Slurm.
    if jobs.is_empty() && asked.len() == 1 {
        return Err(Failure(1, "slurm_load_jobs error: Invalid job id specified\n".to_owned()));
    }
    let format = options.value("format").unwrap_or("%i %P %j %u %T %M %D %N");
    let row = |job| fill(format, |mark| field(mark).map(|value| value(job)));
    let rows =
        jobs.iter().filter(|job| job.active() || options.has("states")).map(|job| Some(row(job)? + "\n"));
    let unknown = || Failure(1, format!("squeue: error: Invalid job format specification: {format}\n"));
    rows.collect::<Option<String>>().ok_or_else(unknown)
}

/// sacct: always in the form of `--noheader --parsable2`, whatever the `--starttime`.
pub(super) fn sacct(store: &Store, arguments: &[String]) -> Answer {
    let known = "n/noheader P/parsable2 duplicates starttime= delimiter= M/clusters= j/jobs= o/format=";
    let options = Arguments::read("sacct", known, arguments)?;
    let asked = ids(options.value("jobs").unwrap_or_default(), "sacct: fatal: Bad job/step specified: ")?;
    let mut fields = Vec::new();
    let format = options.value("format").unwrap_or("JobID,JobName,Partition,State,ExitCode");
    for name in format.split(',') {
        let unknown = || Failure(1, format!("sacct: error: Invalid field requested: \"{name}\"\n"));
        fields.push(field(name).ok_or_else(unknown)?);
    }
    let delimiter = options.value("delimiter").unwrap_or("|");
    let row = |job: &Job| fields.iter().map(|value| value(job)).collect::<Vec<_>>().join(delimiter) + "\n";
    let jobs = store.jobs()?;
    Ok(jobs.iter().filter(|job| asked.is_empty() || asked.contains(&job.id)).map(row).collect())
}

/// A job's record in `scontrol show job`; all lines but the first are indented there.
pub(super) fn record(job: &Job) -> String {
    let word = |label: &str| {
        let value = field(&format!("={label}")).map_or(String::new(), |value| value(job));
        format!("{label}={value}")
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    RECORD.split('/').map(line).collect::<Vec<_>>().join("\n   ") + "\n   \n\n"
}
