//! `towline job submit`.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use serde_json::{Map, Value, json};

use crate::cli::args::{ScriptSource, SubmitArgs};
use crate::cli::output::Output;
use crate::config::Site;
use crate::failure::Failure;
use crate::jobs::{
    Gpus, Jobs, Mail, SCRIPT_BYTES_MAX, Script, SubmissionKey, SubmitOptions, check_script, shown,
};
use crate::kind::Kind;
use crate::line::Line;

/// Reads and checks the script and the options, as far as they are on this side.
pub(super) fn prepare(args: &SubmitArgs) -> Result<(Script, SubmitOptions), Failure> {
    let options = options(args)?;
    options.check()?;
    let script = script(&args.script)?;
    if let Script::Bytes { bytes, .. } = &script {
        check_script(bytes)?;
    }
    Ok((script, options))
}

fn script(source: &ScriptSource) -> Result<Script, Failure> {
    match source {
        ScriptSource::Remote(path) => Ok(Script::Remote(path.clone())),
        ScriptSource::Stdin => {
            Ok(Script::Bytes { bytes: read(std::io::stdin().lock(), "standard input")?, name: None })
        }
        ScriptSource::Local(path) => {
            let shown = path.display().to_string();
            let file = std::fs::File::open(path).map_err(|error| unreadable(&shown, &error))?;
            let name = path.file_name().map(|name| name.as_bytes().to_vec());
            Ok(Script::Bytes { bytes: read(file, &shown)?, name })
        }
    }
}

fn read(from: impl std::io::Read, what: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the jobs room sees that it is too long.
    from.take(SCRIPT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(what, &error))?;
    Ok(bytes)
}

fn unreadable(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Kind::InvalidInput, format!("cannot read the script from {what}: {error}"))
        .hint("name a readable file, remote:PATH, or - for standard input")
        .field("file", what)
}

/// Submits.
pub(super) async fn run(
    jobs: &Jobs<Line>,
    (script, options): (&Script, &SubmitOptions),
    site: &Site,
    output: &Output,
) -> Result<u8, Failure> {
    let made = jobs.submit(script, options).await?;
    if !output.json() {
        output.text(&format!("{}\n", made.job.id.text))?;
        for warning in &made.warnings {
            output.note(&format!("warning: {warning}"))?;
        }
        return Ok(0);
    }
    let mut job = Map::new();
    job.insert("id".to_owned(), made.job.id.text.clone().into());
    if let Some(array) = made.array_id {
        job.insert("array_id".to_owned(), array.into());
    }
    job.insert("cluster".to_owned(), made.job.id.cluster.clone().into());
    job.insert("site".to_owned(), site.name.as_str().into());
    job.insert("scheduler".to_owned(), jobs.dialect().as_str().into());
    job.insert("submission_key".to_owned(), made.key.as_str().into());
    job.insert("name".to_owned(), made.job.name.as_deref().map(shown).into());
    job.insert("state".to_owned(), made.job.state.as_str().into());
    let answer = json!({ "job": job, "resolved_by": made.resolved_by, "warnings": made.warnings });
    output.document(&answer)?;
    Ok(0)
}

/// Shows what would be sent.
pub(super) async fn dry_run(
    jobs: &Jobs<Line>,
    (script, options): (&Script, &SubmitOptions),
    output: &Output,
) -> Result<u8, Failure> {
    let dry = jobs.dry_run(script, options).await?;
    let argv: Vec<String> = dry.argv.iter().map(|argument| shown(argument)).collect();
    let env: Map<String, Value> =
        dry.env.iter().map(|(name, value)| (shown(name), shown(value).into())).collect();
    if output.json() {
        let script = shown(&dry.script);
        output.document(&json!({ "script": script, "argv": argv, "env": env, "warnings": dry.warnings }))?;
        return Ok(0);
    }
    for warning in &dry.warnings {
        output.note(&format!("warning: {warning}"))?;
    }
    for (name, value) in &env {
        output.text(&format!("env {name}={value}\n"))?;
    }
    for argument in &argv {
        output.text(&format!("argv {argument}\n"))?;
    }
    output.bytes(&dry.script)?;
    Ok(0)
}

fn options(args: &SubmitArgs) -> Result<SubmitOptions, Failure> {
    let bytes = |word: &OsString| word.clone().into_vec();
    Ok(SubmitOptions {
        name: args.name.as_ref().map(bytes),
        queue: args.queue.clone(),
        account: args.account.clone(),
        time: args.time,
        nodes: args.nodes,
        tasks: args.tasks,
        cpus: args.cpus,
        mem_bytes: args.mem,
        gpus: args.gpus.as_deref().map(Gpus::parse).transpose()?,
        array: args.array.clone(),
        after_ok: args.after_ok.clone(),
        after_any: args.after_any.clone(),
        hold: args.hold,
        chdir: args.chdir.as_ref().map(bytes),
        output: args.output.as_ref().map(bytes),
        error: args.error.as_ref().map(bytes),
        env: args.env.iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect(),
        qos: args.qos.clone(),
        reservation: args.reservation.clone(),
        mail: args.mail.as_deref().map(Mail::parse).transpose()?,
        native: args.native.iter().map(bytes).collect(),
        args: args.args.iter().map(bytes).collect(),
        key: args.key.as_deref().map(SubmissionKey::parse).transpose()?,
    })
}
