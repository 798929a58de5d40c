//! sbatch: from a script, its directives and a command line to a job in the queue.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, absolute};
use std::process::{Command, Stdio};

use super::arguments::{Grammar, Parsed};
use super::store::{Job, State, Store};
use super::{Answer, Failure, PARTITION, RUNNER, clock};
use crate::demo::account::{current_user, own_session};

/// The time limit of a job that asks for none, in seconds.
const DEFAULT_LIMIT_S: i64 = 300;

/// What sbatch takes. Arrays and dependencies are left out, so that they are refused and not ignored.
const GRAMMAR: Grammar = Grammar {
    command: "sbatch",
    table: "J/job-name= D/chdir= o/output= e/error= i/input= t/time= n/ntasks= c/cpus-per-task= N/nodes= \
            p/partition= A/account= q/qos= -/comment= -/export= -/wrap= -/open-mode= -/mem= -/mem-per-cpu= \
            C/constraint= -/gres= G/gpus= -/gpus-per-node= -/ntasks-per-node= -/mail-type= -/mail-user= \
            -/signal= -/nice= -/tmp= w/nodelist= x/exclude= L/licenses= M/clusters= -/reservation= H/hold -/parsable Q/quiet \
            v/verbose -/requeue -/no-requeue -/exclusive s/oversubscribe",
    in_order: true,
    code: 255,
};

pub(super) fn sbatch(store: &Store, arguments: &[String]) -> Answer {
    let mut options = GRAMMAR.parse(arguments)?;
    let script = Script::read(&options)?;
    options.add_weaker(directives(&script.text)?);
    let mut job = describe(&options, &script)?;
    let lock = store.lock()?;
    job.submit_line = format!("sbatch {}", arguments.join(" "));
    job.id = store.jobs()?.last().map_or(1, |last| last.id + 1);
    let id = job.id;
    for pattern in [&mut job.stdout, &mut job.stderr] {
        *pattern = expand(pattern, id, &job.name, &job.user);
        *pattern = Path::new(&job.work_dir).join(&*pattern).display().to_string();
    }
    fs::write(store.script(id), &script.text)?;
    fs::set_permissions(store.script(id), fs::Permissions::from_mode(0o700))?;
    store.save(&job, &lock)?;
    drop(lock);
    if !job.held {
        start_runner()?;
    }
    Ok(if options.has("parsable") { format!("{id}\n") } else { format!("Submitted batch job {id}\n") })
}

/// Starts a runner that outlives this command, its channel and its process group; it ends at once where one runs.
pub(super) fn start_runner() -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    std::os::unix::process::CommandExt::arg0(&mut command, "sbatch");
    command.arg(RUNNER).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    own_session(&mut command);
    command.spawn().map(drop)
}

struct Script {
    text: String,
    /// The job's name where none is given.
    name: String,
    path: Option<String>,
    arguments: Vec<String>,
}

impl Script {
    fn read(options: &Parsed) -> Result<Self, Failure> {
        let mut rest = options.rest.iter().cloned();
        let (path, arguments) = (rest.next(), rest.collect());
        let (text, name, path) = if let Some(wrapped) = options.value("wrap") {
            let text = format!("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{wrapped}\n");
            return Ok(Self { text, name: "wrap".to_owned(), path: None, arguments });
        } else if let Some(path) = path {
            let unreadable = |_| complaint(&format!("Unable to open file {path}"));
            let full = absolute(&path).map_err(unreadable)?;
            let empty = fs::metadata(&full).map_err(unreadable)?.is_dir();
            let text = if empty { Vec::new() } else { fs::read(&full).map_err(unreadable)? };
            let name = full.file_name().unwrap_or_default().to_string_lossy();
            (text, name.into_owned(), Some(full.display().to_string()))
        } else {
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text)?;
            (text, "sbatch".to_owned(), None)
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        if text.is_empty() {
            return Err(complaint("Batch script is empty!"));
        } else if !text.starts_with("#!") {
            return Err(complaint(
                "This does not look like a batch script.  The first\n\
                 sbatch: error: line must start with #! followed by the path to an interpreter.\n\
                 sbatch: error: For instance: #!/bin/sh",
            ));
        }
        Ok(Self { text, name, path, arguments })
    }
}

fn complaint(text: &str) -> Failure {
    Failure::new(1, format!("sbatch: error: {text}\n"))
}

/// Reads the `#SBATCH` lines before the first command.
fn directives(script: &str) -> Result<Parsed, Failure> {
    let mut words = Vec::new();
    for line in script.lines() {
        if let Some(directive) = line.strip_prefix("#SBATCH") {
            words.extend(split_words(directive));
        } else if !line.starts_with('#') && !line.trim().is_empty() {
            break;
        }
    }
    GRAMMAR.parse(&words)
}

/// Splits at blanks outside quotes; a word that begins with `#` ends the line.
fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        let last = words.last_mut();
        match (quote, letter) {
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, '#') if last.as_ref().is_some_and(|word| word.is_empty()) => break,
            (None, letter) if letter.is_whitespace() => words.push(String::new()),
            (_, letter) => last.into_iter().for_each(|word| word.push(letter)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn describe(options: &Parsed, script: &Script) -> Result<Job, Failure> {
    let partition = options.value("partition").unwrap_or(PARTITION);
    if !partition.split(',').any(|name| name == PARTITION) {
        return Err(complaint(&format!(
            "invalid partition specified: {partition}\n\
             sbatch: error: Batch job submission failed: Invalid partition name specified"
        )));
    }
    let limit_s = options.value("time").map_or(Some(DEFAULT_LIMIT_S), clock::parse_limit);
    let limit_s = limit_s
        .filter(|limit| *limit > 0)
        .ok_or_else(|| Failure::new(255, "sbatch: error: Invalid --time specification\n"))?;
    let number = |name| options.value(name).and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    let cpus = number("ntasks").saturating_mul(number("cpus-per-task")).max(1);
    let text = |name: &str, default: &str| options.value(name).unwrap_or(default).to_owned();
    let submit_dir = std::env::current_dir()?;
    let work_dir = submit_dir.join(options.value("chdir").unwrap_or_default());
    let stdout = text("output", "slurm-%j.out");
    let command = script.path.clone().map(|path| {
        let words = std::iter::once(path).chain(script.arguments.iter().cloned());
        words.collect::<Vec<_>>().join(" ")
    });
    // What isn't UTF-8 is left behind; `--export` is accepted, and all is exported.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    Ok(Job {
        id: 0,
        name: text("job-name", &script.name),
        user: current_user(),
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        account: text("account", "demo"),
        qos: text("qos", "normal"),
        comment: options.value("comment").map(str::to_owned),
        command,
        arguments: script.arguments.clone(),
        submit_line: String::new(),
        submit_dir: submit_dir.display().to_string(),
        work_dir: work_dir.to_string_lossy().trim_end_matches('/').to_owned(),
        stderr: text("error", &stdout),
        stdout,
        environment,
        cpus,
        memory: options.value("mem").map_or_else(|| format!("{}M", cpus.saturating_mul(100)), str::to_owned),
        limit_s,
        submitted: clock::now(),
        started: None,
        ended: None,
        held: options.has("hold"),
        state: State::Pending,
        code: 0,
        signal: 0,
        cancelled_by: None,
        group: None,
        reason: None,
    })
}

/// Fills in the marks of an output path.
fn expand(pattern: &str, id: u64, name: &str, user: &str) -> String {
    let mut path = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '%') {
            (_, true) => match letters.next() {
                Some('j' | 'A' | 'J') => path.push_str(&id.to_string()),
                Some('x') => path.push_str(name),
                Some('u') => path.push_str(user),
                Some('N') => path.push_str(super::NODE),
                Some('%') | None => path.push('%'),
                Some(other) => path.extend(['%', other]),
            },
            (letter, false) => path.push(letter),
        }
    }
    path
}
