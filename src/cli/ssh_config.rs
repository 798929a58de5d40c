//! `towline ssh-config`: what the ssh config means.

use std::path::Path;

use serde_json::{Value, json};
use ssh_config_parser::{Finding, Severity, Snapshot, World, check};

use super::args::SshConfigCommand;
use super::output::{Colour, Output};
use crate::failure::Failure;
use crate::kind::Kind;

pub(super) fn run(command: &SshConfigCommand, output: &Output) -> Result<u8, Failure> {
    let world = World::from_system()?;
    match command {
        SshConfigCommand::Resolve { file, host } => {
            let resolved = Snapshot::read(file.as_deref(), world)?.resolve(host)?;
            output.document(&resolved.to_json())?;
        }
        SshConfigCommand::Flatten { file } => {
            let flattened = Snapshot::read(file.as_deref(), world)?.flatten()?;
            if output.json() {
                let files: Vec<_> = flattened.files.iter().map(|file| file.to_string_lossy()).collect();
                // The text is shown with replacement characters where it is not UTF-8, as the parser's page says.
                output
                    .document(&json!({ "text": String::from_utf8_lossy(&flattened.text), "files": files }))?;
            } else {
                output.bytes(&flattened.text)?;
            }
        }
        SshConfigCommand::Check { file } => return findings(&check(file.as_deref(), &world), output),
    }
    Ok(0)
}

/// Prints every finding; one that is an error makes the exit code that of a rejection.
fn findings(findings: &[Finding], output: &Output) -> Result<u8, Failure> {
    if output.json() {
        let list: Vec<Value> = findings.iter().map(Finding::to_json).collect();
        output.document(&json!({ "findings": list }))?;
    } else {
        output.text(&findings.iter().map(|finding| line(finding, output)).collect::<String>())?;
        if findings.is_empty() {
            output.text("no findings\n")?;
        }
    }
    let errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if errors { Kind::SshConfigRejected.exit_code() } else { 0 })
}

fn line(finding: &Finding, output: &Output) -> String {
    let colour = match finding.severity {
        Severity::Error => Colour::Red,
        Severity::Note => Colour::Yellow,
    };
    let place = match (&finding.file, finding.line) {
        (Some(file), Some(line)) => format!("{}:{line}: ", shown(file)),
        (Some(file), None) => format!("{}: ", shown(file)),
        (None, _) => String::new(),
    };
    let severity = output.on_stdout(finding.severity.as_str(), colour);
    format!("{place}{severity}: {}\n", super::table::clean(&finding.message))
}

fn shown(file: &Path) -> String {
    super::table::clean(&file.to_string_lossy())
}
