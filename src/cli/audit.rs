//! `towline audit`: what was done here, by whom, and whether the record is whole.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::{AuditArgs, AuditCommand};
use super::output::{Output, Passed};
use super::table::clean;
use crate::audit::{Line, Reader, Record, verify};
use crate::config::{Environment, Home};
use crate::failure::Failure;
use crate::kind::EXIT_ANSWER_IS_FAILURE;

/// How often a follower looks for new lines.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn run(args: &AuditArgs, environment: &Environment, output: &Output) -> Result<u8, Failure> {
    let home = Home::from_environment(environment)?;
    match args.command {
        Some(AuditCommand::Verify) => check(&home, output),
        None if args.follow => follow(&home, output),
        None => list(&home, output),
    }
}

fn list(home: &Home, output: &Output) -> Result<u8, Failure> {
    let mut reader = Reader::new(home.state_dir());
    if !output.json() {
        while let Some(record) = reader.next_record()? {
            if output.bytes(text(&record).as_bytes())? == Passed::NobodyReads {
                break;
            }
        }
        return Ok(0);
    }
    let mut entries = Vec::new();
    while let Some(record) = reader.next_record()? {
        entries.push(document(&record));
    }
    output.document(&json!({ "entries": entries }))?;
    Ok(0)
}

fn follow(home: &Home, output: &Output) -> Result<u8, Failure> {
    let mut reader = Reader::new(home.state_dir());
    loop {
        while let Some(record) = reader.next_record()? {
            let passed = if output.json() {
                output.document(&document(&record))?
            } else {
                output.bytes(text(&record).as_bytes())?
            };
            if passed == Passed::NobodyReads {
                return Ok(0);
            }
        }
        std::thread::sleep(PAUSE);
    }
}

fn check(home: &Home, output: &Output) -> Result<u8, Failure> {
    let report = verify(home.state_dir())?;
    if output.json() {
        output.document(&report)?;
    } else {
        let mut text = match &report.broken {
            Some(broken) => format!(
                "the chain is broken at {}:{}, behind entry {}: {}\n",
                broken.place.file.display(),
                broken.place.line,
                broken.after_seq,
                broken.reason
            ),
            None => format!("the chain of {} entries in {} files holds\n", report.entries, report.files),
        };
        for place in &report.torn {
            text.push_str(&format!("a crash tore the line {}:{}\n", place.file.display(), place.line));
        }
        output.text(&text)?;
    }
    Ok(if report.ok { 0 } else { EXIT_ANSWER_IS_FAILURE })
}

fn document(record: &Record) -> Value {
    match record {
        Record::Entry(line) => json!(line),
        Record::Damaged(place) => json!({ "damaged": place }),
    }
}

fn text(record: &Record) -> String {
    match record {
        Record::Entry(line) => format!("{}\n", clean(&of_line(line))),
        Record::Damaged(place) => format!("damaged line {}:{}\n", place.file.display(), place.line),
    }
}

fn of_line(line: &Line) -> String {
    let about = match (&line.site, &line.role) {
        (Some(site), Some(role)) => format!("{site}.{role} "),
        (Some(site), None) => format!("{site} "),
        (None, _) => String::new(),
    };
    let Line { seq, at, who, what, outcome, .. } = line;
    let (kind, detail) = (what.kind(), what.detail());
    format!("{seq} {at} {}[{}] {about}{kind}: {outcome} {detail}", who.program, who.pid).trim_end().to_owned()
}
