//! `towline doctor`: shows what the doctor found.

use serde_json::json;

use super::output::{Colour, Output};
use super::table::clean;
use crate::config::Environment;
use crate::doctor::{Check, Status, examine};
use crate::failure::Failure;
use crate::kind::EXIT_ANSWER_IS_FAILURE;

pub(super) fn run(site: Option<&str>, environment: Environment, output: &Output) -> Result<u8, Failure> {
    let report = examine(site, environment)?;
    if output.json() {
        output.document(&json!({ "checks": report.checks }))?;
    } else {
        output.text(&report.checks.iter().map(|check| lines(check, output)).collect::<String>())?;
    }
    // Whatever cannot be read is more than a failing check: every other command would fail the same way.
    match report.failure {
        Some(failure) => Err(failure),
        None if report.failing() => Ok(EXIT_ANSWER_IS_FAILURE),
        None => Ok(0),
    }
}

/// A check as a line, and its mend below.
fn lines(check: &Check, output: &Output) -> String {
    let colour = match check.status {
        Status::Ok => Colour::Green,
        Status::Warn => Colour::Yellow,
        Status::Fail => Colour::Red,
        Status::Skipped => Colour::Cyan,
    };
    // Padded before it is coloured, since colours have no width.
    let status = output.on_stdout(&format!("{:<7}", check.status.as_str()), colour);
    let about = match (&check.site, check.role) {
        (Some(site), Some(role)) => format!("{site}.{role} "),
        (Some(site), None) => format!("{site} "),
        (None, _) => String::new(),
    };
    let mend = check.mend.as_ref().map(|mend| format!("{:9}{}\n", "", clean(mend))).unwrap_or_default();
    format!("{status}  {about}{}: {}\n{mend}", check.name, clean(&check.message))
}
