//! sbatch: rendering a submission as an argument vector, and reading what it answers.

use std::time::Duration;

use crate::jobs::error::{Error, words as said};
use crate::jobs::id::{JobId, digits};
use crate::jobs::options::SubmitOptions;
use crate::jobs::record::shown;
use crate::jobs::remote::Answer;
use crate::jobs::scheduler::{Question, Request, Submission, Submitted};
use crate::jobs::script::{self, Directive};

use super::{SUBMIT, words};

/// Native flags that would take the key's carrier away, or make sbatch do something else than submit and answer.
const FORBIDDEN: [(&str, Option<u8>, &str); 7] = [
    ("comment", None, "the comment carries the submission key; the script's own is kept in front of it"),
    ("wrap", None, "the script is given as SCRIPT"),
    ("wait", Some(b'W'), "towline never waits on sbatch; use job wait"),
    ("test-only", None, "it submits nothing; use --dry-run"),
    ("help", Some(b'h'), "it submits nothing"),
    ("usage", None, "it submits nothing"),
    ("version", Some(b'V'), "it submits nothing"),
];

/// Long and short names of sbatch's options that towline renders, to tell a contradiction with a directive.
const RENDERED: [(&str, &str); 19] = [
    ("job-name", "-J"),
    ("partition", "-p"),
    ("account", "-A"),
    ("time", "-t"),
    ("nodes", "-N"),
    ("ntasks", "-n"),
    ("cpus-per-task", "-c"),
    ("mem", ""),
    ("gpus", "-G"),
    ("array", "-a"),
    ("dependency", "-d"),
    ("chdir", "-D"),
    ("output", "-o"),
    ("error", "-e"),
    ("export", ""),
    ("qos", "-q"),
    ("reservation", ""),
    ("mail-type", ""),
    ("mail-user", ""),
];

/// Renders a submission: the script goes to sbatch's standard input, every option is one argument.
pub(super) fn render(request: &Request<'_>) -> Result<Submission, Error> {
    let options = request.options;
    options.check()?;
    script::check(request.script)?;
    for flag in &options.native {
        check_native(flag)?;
    }
    let directives = script::directives(request.script, b"#SBATCH");
    let mut flags = flags(request)?;
    let mut env = Vec::new();
    let mut warnings = Vec::new();
    export(options, &directives, &mut flags, &mut env)?;
    let own_name = directive(&directives, "job-name").and_then(|found| found.value.clone());
    let name = options.name.clone().or(own_name.clone());
    let name = name.or_else(|| request.script_name.map(<[u8]>::to_vec));
    if let (Some(name), true) = (&name, options.name.is_some() || own_name.is_none()) {
        flags.push(("job-name", name.clone()));
    }
    for (option, value) in &flags {
        if let Some(found) = directive(&directives, option)
            && found.value.as_ref() != Some(value)
        {
            warnings.push(format!(
                "line {} of the script asks for --{option}={}; --{option}={} is used",
                found.line,
                found.value.as_deref().map_or_else(String::new, shown),
                shown(value),
            ));
        }
    }
    // Natives stand in front, so that a flag which forgot its value can't swallow the key.
    let mut argv = vec![b"sbatch".to_vec()];
    argv.extend(options.native.iter().cloned());
    argv.push(b"--parsable".to_vec());
    argv.extend(flags.into_iter().map(|(option, value)| long(option, &value)));
    if options.hold {
        argv.push(b"--hold".to_vec());
    }
    let comment = directive(&directives, "comment").and_then(|found| found.value.as_deref());
    argv.push(long("comment", &request.key.comment(comment)));
    if !options.args.is_empty() {
        // Arguments need a script operand before them; this one is the standard input itself.
        argv.push(b"/dev/stdin".to_vec());
        argv.extend(options.args.iter().cloned());
    }
    Ok(Submission {
        question: Question { argv, stdin: request.script.to_vec(), env, deadline: SUBMIT },
        name,
        array: options.array.is_some() || directive(&directives, "array").is_some(),
        warnings,
    })
}

fn long(option: &str, value: &[u8]) -> Vec<u8> {
    [b"--", option.as_bytes(), b"=", value].concat()
}

/// Finds the last directive of an option, which is the one that counts.
fn directive<'a>(directives: &'a [Directive], option: &str) -> Option<&'a Directive> {
    let short = RENDERED.iter().find(|(name, _)| *name == option).map(|(_, short)| *short);
    directives.iter().rev().find(|found| {
        found.option == option.as_bytes()
            || short.is_some_and(|short| !short.is_empty() && found.option == short.as_bytes())
    })
}

/// Renders the options that are plain values.
fn flags(request: &Request<'_>) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
    let options = request.options;
    let mut flags: Vec<(&'static str, Vec<u8>)> = Vec::new();
    let mut text = |option, value: Option<String>| {
        flags.extend(value.map(|value| (option, value.into_bytes())));
    };
    text("partition", options.queue.clone());
    text("account", options.account.clone());
    text("time", options.time.map(time));
    text("nodes", options.nodes.map(|n| n.to_string()));
    text("ntasks", options.tasks.map(|n| n.to_string()));
    text("cpus-per-task", options.cpus.map(|n| n.to_string()));
    text("mem", options.mem_bytes.map(memory));
    let gpus = options.gpus.as_ref().map(|gpus| match &gpus.kind {
        Some(kind) => format!("{kind}:{}", gpus.count),
        None => gpus.count.to_string(),
    });
    text("gpus", gpus);
    text("array", options.array.clone());
    text("dependency", dependency(options)?);
    text("qos", options.qos.clone());
    text("reservation", options.reservation.clone());
    let mail = options.mail.as_ref();
    text("mail-type", mail.map(|mail| mail.events.to_ascii_uppercase()));
    text("mail-user", mail.and_then(|mail| mail.address.clone()));
    let home = request.home;
    let paths = [("output", &options.output), ("error", &options.error)];
    for (option, path) in paths {
        // In these two a `%` of the home directory would begin a pattern.
        let escaped = super::split(home, b"%").join(&b"%%"[..]);
        flags.extend(path.as_ref().map(|path| (option, under_home(path, &escaped))));
    }
    flags.extend(options.chdir.as_ref().map(|path| ("chdir", under_home(path, home))));
    Ok(flags)
}

/// Replaces a leading `~/`, or `~` alone, by the home directory; nothing else in a path is special.
fn under_home(path: &[u8], home: &[u8]) -> Vec<u8> {
    match path.strip_prefix(b"~") {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => [home, rest].concat(),
        _ => path.to_vec(),
    }
}

/// Writes `D-HH:MM:SS`, which no reading of the number of pieces can mistake.
fn time(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    format!("{days}-{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Writes mebibytes where that is exact, else kibibytes, rounded up.
fn memory(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{}M", bytes >> 20)
    } else {
        format!("{}K", bytes.div_ceil(1 << 10))
    }
}

fn dependency(options: &SubmitOptions) -> Result<Option<String>, Error> {
    let mut kinds = Vec::new();
    for (kind, what, ids) in
        [("afterok", "after-ok", &options.after_ok), ("afterany", "after-any", &options.after_any)]
    {
        let mut list = String::new();
        for id in ids {
            let parsed = words::parse_id(id).filter(|id| id.cluster.is_none());
            let Some(parsed) = parsed else {
                return Err(Error::invalid(
                    what,
                    format!("{what} {id:?} is no Slurm job id of this cluster"),
                ));
            };
            list.push(':');
            list.push_str(&parsed.text);
        }
        if !list.is_empty() {
            kinds.push(format!("{kind}{list}"));
        }
    }
    Ok((!kinds.is_empty()).then(|| kinds.join(",")))
}

/// Decides what of the environment reaches the job.
///
/// sbatch's own default copies the submitter's whole environment. Here the job gets a fresh login environment on its
/// node with exactly the named variables added: their names stand in the option, their values travel in sbatch's
/// environment, so that no comma or quote in a value can spoil them. `SLURM_EXPORT_ENV=ALL` is one of them, since
/// `srun` inside the job would otherwise start its steps with the named variables only, without even a `PATH`
/// (measured on 22.05). Who asks otherwise, by a native flag or a directive of the script, gets that.
fn export(
    options: &SubmitOptions,
    directives: &[Directive],
    flags: &mut Vec<(&'static str, Vec<u8>)>,
    env: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<(), Error> {
    let native = options.native.iter().any(|flag| flag.starts_with(b"--export"));
    if native && !options.env.is_empty() {
        return Err(Error::invalid(
            "native",
            "native --export and --env contradict each other; name all variables in one of them".to_owned(),
        ));
    }
    if options.env.is_empty() && (native || directive(directives, "export").is_some()) {
        return Ok(());
    }
    let mut names = Vec::new();
    for (name, value) in &options.env {
        names.push(name.as_str());
        env.push((name.clone().into_bytes(), value.clone()));
    }
    if !names.contains(&STEPS) {
        names.push(STEPS);
        env.push((STEPS.into(), b"ALL".to_vec()));
    }
    flags.push(("export", names.join(",").into_bytes()));
    Ok(())
}

/// The variable that tells srun what its steps get.
const STEPS: &str = "SLURM_EXPORT_ENV";

/// Refuses a native flag that isn't one argument, or that would take the key's carrier away.
fn check_native(flag: &[u8]) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::invalid("native", format!("native flag {:?}: {why}", shown(flag))));
    if !flag.starts_with(b"-") || flag == b"-" || flag == b"--" {
        return refuse("it is no flag; give flag and value as one, such as --constraint=fast");
    }
    let Some(name) = flag.strip_prefix(b"--") else {
        let short = flag.get(1).copied();
        return match FORBIDDEN.iter().find(|(_, letter, _)| letter.is_some() && *letter == short) {
            Some((_, _, why)) => refuse(why),
            None => Ok(()),
        };
    };
    let name = name.split(|byte| *byte == b'=').next().unwrap_or_default();
    // getopt takes every unambiguous beginning of a long name, so `--comm=x` is `--comment=x`.
    let hit = FORBIDDEN.iter().find(|(long, _, _)| {
        long.as_bytes() == name || (name.len() >= 3 && long.as_bytes().starts_with(name))
    });
    match hit {
        Some((_, _, why)) => refuse(why),
        None => Ok(()),
    }
}

/// Words after which a job may exist nevertheless: the request had been sent, or it can't be told.
const DOUBT: [&str; 9] = [
    "Socket timed out",
    "Unable to contact",
    "Zero Bytes were transmitted",
    "Connection reset",
    "Connection timed out",
    "Transport endpoint",
    "Message receive failure",
    "Unexpected message received",
    "Insufficient",
];

/// Refusals that people meet often, with what they mean.
const MEANINGS: [(&str, &str); 12] = [
    ("Invalid partition name", "there is no such queue; job queues lists them"),
    ("Invalid account", "the account doesn't exist, or you may not use it in this queue; ask with --account"),
    ("Invalid qos", "the QOS doesn't exist, or you may not use it"),
    ("QOSMaxSubmitJobPerUserLimit", "you have as many jobs in the queue as this QOS allows"),
    (
        "Requested node configuration is not available",
        "no node has that much (CPUs, memory, GPUs or a GPU of that type)",
    ),
    ("Requested time limit is invalid", "the time is above the queue's limit; job queues shows it"),
    ("Node count specification invalid", "the queue doesn't have or allow that many nodes"),
    ("More processors requested than permitted", "the queue doesn't have or allow that many CPUs"),
    ("Invalid job array specification", "the array is malformed or above the site's MaxArraySize"),
    ("Job dependency problem", "a job in --after-ok or --after-any can't be depended on"),
    ("Required partition not available", "the queue takes no jobs at present; job queues shows its state"),
    ("parameter too long", "the script is larger than the site's max_script_size (4 MiB by default)"),
];

/// Reads sbatch's answer. An id proves a job whatever the exit code; without one the words decide.
pub(super) fn read(answer: &Answer) -> Submitted {
    if let Some(id) = id_in(&answer.stdout).or_else(|| id_in(&answer.stderr)) {
        return Submitted::Job(id);
    }
    let words = said(&answer.stdout, &answer.stderr);
    if answer.timed_out {
        return Submitted::Doubt { words: format!("no answer before the deadline; {words}") };
    }
    let Some(rc) = answer.rc else {
        return Submitted::Doubt { words: format!("a signal ended sbatch; {words}") };
    };
    let sure = words.contains("sbatch") || words.contains("Invalid ") || rc == 127;
    if rc == 0 || !sure || DOUBT.iter().any(|text| words.contains(text)) {
        return Submitted::Doubt { words };
    }
    let meaning = MEANINGS.iter().find(|(text, _)| words.contains(text)).map(|(_, why)| *why);
    Submitted::Refused { words, meaning }
}

/// Finds the last line that is an id: `4711`, `4711;cluster`, `Submitted batch job 4711 [on cluster NAME]`.
fn id_in(output: &[u8]) -> Option<JobId> {
    let text = String::from_utf8_lossy(output);
    text.lines().rev().find_map(|line| {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Submitted batch job ") {
            let mut pieces = rest.split_ascii_whitespace();
            let number = pieces.next().filter(|number| digits(number).is_some())?;
            return match (pieces.next(), pieces.next(), pieces.next()) {
                (Some("on"), Some("cluster"), Some(cluster)) => {
                    words::parse_id(&format!("{number};{cluster}"))
                }
                _ => words::parse_id(number),
            };
        }
        let plain = line.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
        words::parse_id(line).filter(|_| plain && !line.contains(['_', '+']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::id::Part;

    fn answer(rc: i32, stdout: &str, stderr: &str) -> Answer {
        Answer { rc: Some(rc), stdout: stdout.into(), stderr: stderr.into(), ..Answer::default() }
    }

    fn id(number: u64, cluster: Option<&str>) -> Submitted {
        Submitted::Job(JobId {
            text: number.to_string(),
            number,
            cluster: cluster.map(str::to_owned),
            part: Part::Whole,
        })
    }

    #[test]
    fn case_003_the_id_is_the_number_and_the_cluster_is_the_cluster() {
        let line = "Submitted batch job 3969755 on cluster nautilus\n";
        assert_eq!(read(&answer(0, line, "")), id(3_969_755, Some("nautilus")));
        assert_eq!(read(&answer(0, "7;towline\n", "")), id(7, Some("towline")));
        assert_eq!(read(&answer(0, "Submitted batch job 14\n", "")), id(14, None));
        assert_eq!(read(&answer(0, "banner 2024\n6\n", "")), id(6, None));
        assert_eq!(read(&answer(0, "", "Submitted batch job 9\n")), id(9, None));
    }

    #[test]
    fn a_native_flag_that_would_replace_the_key_is_refused_however_it_is_written() {
        for flag in [
            "--comment=x",
            "--comment",
            "--comm=x",
            "--com",
            "--wrap=x",
            "-W",
            "--wait",
            "-h",
            "--test-only",
            "debug",
            "--",
            "-",
        ] {
            assert!(check_native(flag.as_bytes()).is_err(), "{flag}");
        }
        for flag in [
            "--constraint=fast",
            "-Cfast",
            "--exclusive",
            "--container=x",
            "--core-spec=1",
            "--export=ALL",
            "-H",
        ] {
            assert!(check_native(flag.as_bytes()).is_ok(), "{flag}");
        }
    }

    #[test]
    fn times_round_up_and_sizes_are_exact() {
        assert_eq!(time(Duration::from_secs(90)), "0-00:01:30");
        assert_eq!(time(Duration::from_millis(500)), "0-00:00:01");
        assert_eq!(time(Duration::from_secs(86_400 * 2 + 3661)), "2-01:01:01");
        assert_eq!(memory(512 << 20), "512M");
        assert_eq!(memory(1025), "2K");
    }
}
