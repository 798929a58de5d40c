//! sbatch: from a script, its directives and a command line to a job in the queue.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::arguments::Arguments;
use super::store::{Job, Store};
use super::{Answer, Failure, NODE, NODE_CPUS, PARTITION, report, times};
use crate::demo::account::current_user;

/// What sbatch takes. `--export` changes nothing: the job always gets the submitter's whole environment.
const OPTIONS: &str = "J/job-name= D/chdir= o/output= e/error= t/time= n/ntasks= c/cpus-per-task= N/nodes= \
    mem= p/partition= A/account= q/qos= comment= export= M/clusters= H/hold parsable";

pub(super) fn sbatch(store: &Store, arguments: &[String]) -> Answer {
    let mut options = Arguments::read("sbatch", OPTIONS, arguments)?;
    let script = script(options.rest.first())?;
    options.add_weaker(directives(&String::from_utf8_lossy(&script))?);
    let mut job = describe(&options)?;
    job.submit_line = format!("sbatch {}", arguments.join(" "));
    let lock = store.lock()?;
    job.id = store.jobs()?.last().map_or(1, |last| last.id + 1);
    for path in [&mut job.stdout, &mut job.stderr] {
        // A mark that isn't known stays as it is.
        let filled = report::fill(&path.to_string_lossy(), |mark| {
            Some(match mark {
                "%j" | "%J" | "%A" => job.id.to_string(),
                "%x" => job.name.clone(),
                "%u" => current_user(),
                "%N" => NODE.to_owned(),
                "%%" => "%".to_owned(),
                other => other.to_owned(),
            })
        });
        *path = job.work_dir.join(filled.unwrap_or_default());
    }
    fs::write(store.script(job.id), &script)?;
    fs::set_permissions(store.script(job.id), fs::Permissions::from_mode(0o700))?;
    store.save(&job, &lock)?;
    let told = if options.has("parsable") { "" } else { "Submitted batch job " };
    Ok(format!("{told}{}\n", job.id))
}

fn complaint(text: &str) -> Failure {
    Failure(1, format!("sbatch: error: {text}\n"))
}

/// Reads the script, from stdin where no path is given.
fn script(path: Option<&String>) -> Result<Vec<u8>, Failure> {
    let path = path.map_or("/dev/stdin", String::as_str);
    let script = fs::read(path).map_err(|_| complaint(&format!("Unable to open file {path}")))?;
    let no_script = "This does not look like a batch script.  The first\n\
        sbatch: error: line must start with #! followed by the path to an interpreter.";
    if script.starts_with(b"#!") { Ok(script) } else { Err(complaint(no_script)) }
}

/// Reads the `#SBATCH` lines before the first command. Quotes are dropped; they hold no words together here.
fn directives(script: &str) -> Result<Arguments, Failure> {
    let head = script.lines().take_while(|line| line.starts_with('#') || line.trim().is_empty());
    let lines = head.filter_map(|line| line.strip_prefix("#SBATCH"));
    // A word that begins with `#` is a comment up to the line's end.
    let words = lines.flat_map(|line| line.split_whitespace().take_while(|word| !word.starts_with('#')));
    let words: Vec<String> = words.map(|word| word.replace(['"', '\''], "")).collect();
    let options = Arguments::read("sbatch", OPTIONS, &words)?;
    match options.rest.first() {
        Some(word) => Err(complaint(&format!("{word} in a #SBATCH line is no option"))),
        None => Ok(options),
    }
}

fn describe(options: &Arguments) -> Result<Job, Failure> {
    if options.value("partition").is_some_and(|name| name != PARTITION) {
        return Err(complaint("Batch job submission failed: Invalid partition name specified"));
    }
    let number = |name| options.value(name).map_or(Some(1), |text| text.parse::<u32>().ok());
    let cpus = number("ntasks").zip(number("cpus-per-task")).and_then(|(n, each)| n.checked_mul(each));
    let cpus = cpus.filter(|cpus| (1..=NODE_CPUS).contains(cpus) && number("nodes") == Some(1));
    let too_much = "Batch job submission failed: Requested node configuration is not available";
    let cpus = cpus.ok_or_else(|| complaint(too_much))?;
    let limit_s = times::limit(options.value("time").unwrap_or("5"))
        .ok_or_else(|| Failure(255, "sbatch: error: Invalid --time specification\n".to_owned()))?;
    let text = |name: &str, default: &str| options.value(name).unwrap_or(default).to_owned();
    let path = options.rest.first().map_or(Path::new("sbatch"), Path::new);
    let submit_dir = std::env::current_dir()?;
    let stdout = text("output", "slurm-%j.out");
    // What isn't UTF-8 is left behind.
    let variables = std::env::vars_os().chain([("SLURM_SUBMIT_DIR".into(), submit_dir.clone().into())]);
    let variables =
        variables.filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()));
    Ok(Job {
        name: text("job-name", &path.file_name().unwrap_or_default().to_string_lossy()),
        account: text("account", "demo"),
        qos: text("qos", "normal"),
        comment: options.value("comment").map(str::to_owned),
        command: options.rest.clone(),
        work_dir: options.value("chdir").map_or_else(|| submit_dir.clone(), |dir| submit_dir.join(dir)),
        stderr: text("error", &stdout).into(),
        stdout: stdout.into(),
        environment: variables.collect(),
        cpus,
        memory: text("mem", &format!("{}M", cpus.saturating_mul(100))),
        limit_s,
        submitted: times::now(),
        held: options.has("hold"),
        ..Job::default()
    })
}
