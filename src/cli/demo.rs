//! `towline demo`: the embedded server and mini cluster, shown at work.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use super::args::DemoArgs;
use super::output::Output;
use super::{own_line, table};
use crate::demo::{self, Report, Server, ShowError};
use crate::failure::Failure;
use crate::kind::{EXIT_INTERRUPTED, Kind};

/// The one site of a kept demo's configuration.
const SITE: &str = "demo";

/// Runs the demo.
///
/// # Errors
/// Those of the rooms that it shows.
pub fn run(args: &DemoArgs, output: &Output) -> Result<u8, Failure> {
    let scratch = if args.keep { Some(kept_directory()?) } else { None };
    output
        .note("starting an SSH server and a mini cluster of its own, on a Unix socket in a scratch home")?;
    let server = Server::start(demo::Options { scratch: scratch.clone(), ..demo::Options::default() })?;
    let report = own_line::block_on(async {
        tokio::select! {
            report = demo::show(&server) => Ok(Some(report?)),
            _ = tokio::signal::ctrl_c() => Ok(None),
        }
    })?;
    let Some(report) = report else {
        server.stop();
        return Ok(EXIT_INTERRUPTED);
    };
    let kept = scratch.map(|scratch| configure(&server, &scratch)).transpose()?;
    if output.json() {
        let mut document = document(&report);
        if let (Some(home), Some(fields)) = (&kept, document.as_object_mut()) {
            let kept = json!({ "home": home, "site": SITE, "passcode": server.passcode() });
            fields.insert("kept".to_owned(), kept);
        }
        output.document(&document)?;
    } else {
        output.text(&text(&report))?;
    }
    if let Some(home) = kept {
        stay(&server, &home, output)?;
    }
    server.stop();
    Ok(0)
}

fn document(report: &Report) -> serde_json::Value {
    let milliseconds = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
    json!({
        "connections": report.counters.connections,
        "session_channels": report.counters.session_channels,
        "prompts": report.counters.second_factor_prompts,
        "commands": report.commands,
        "median_ms": milliseconds(report.median),
        "job": report.job,
        "result": report.result,
        "log": report.log,
        "elapsed_ms": milliseconds(report.elapsed),
        "one_channel_per_command": {
            "connections": report.without.counters.connections,
            "session_channels": report.without.counters.session_channels,
            "prompts": report.without.counters.second_factor_prompts,
            "median_ms": milliseconds(report.without.median),
            "elapsed_ms": milliseconds(report.without.elapsed),
        },
    })
}

fn text(report: &Report) -> String {
    let name = report.job.name.as_deref().map(crate::jobs::shown).unwrap_or_default();
    let mut text = format!("job {} ({name}) {}\n", report.job.id.text, report.job.state.as_str());
    for line in report.log.lines() {
        text.push_str(&format!("  log         {}\n", table::clean(line)));
    }
    text.push_str(&format!("  result.txt  {}\n\n", table::clean(report.result.trim_end())));
    let (ours, theirs) = (&report.counters, &report.without.counters);
    let milliseconds = |duration: std::time::Duration| format!("{:.1} ms", duration.as_secs_f64() * 1e3);
    let row = |what: &str, ours: String, theirs: String| vec![what.to_owned(), ours, theirs];
    let rows = [
        row("connections", ours.connections.to_string(), theirs.connections.to_string()),
        row("session channels", ours.session_channels.to_string(), theirs.session_channels.to_string()),
        row(
            "second-factor prompts",
            ours.second_factor_prompts.to_string(),
            theirs.second_factor_prompts.to_string(),
        ),
        row("commands run", format!("{} and a job", report.commands), report.commands.to_string()),
        row("median of a command", milliseconds(report.median), milliseconds(report.without.median)),
    ];
    text.push_str(&table::render(&["", "towline", "one channel per command"], rows));
    text.push_str("\nThe second factor was answered at once here; a person needs seconds for each prompt.\n");
    text
}

/// A short path of its own, since a socket's path has a limit.
fn kept_directory() -> Result<std::path::PathBuf, Failure> {
    // Whatever the umask, the server refuses a directory that others can enter.
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("towline-demo-").permissions(std::fs::Permissions::from_mode(0o700));
    builder
        .tempdir()
        .map(tempfile::TempDir::keep)
        .map_err(|error| Failure::new(Kind::Config, format!("cannot make a scratch home: {error}")))
}

/// Writes a configuration that the other commands can use, and returns its `TOWLINE_HOME`.
fn configure(server: &Server, scratch: &Path) -> Result<std::path::PathBuf, Failure> {
    let home = scratch.join("towline");
    let failed = |error: std::io::Error| {
        Failure::new(Kind::Config, format!("cannot write {}: {error}", home.display()))
    };
    let mut directory = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut directory, 0o700);
    directory.create(&home).map_err(failed)?;
    let mut site = toml::Table::new();
    let text = |path: &Path| toml::Value::String(path.display().to_string());
    site.insert("socket".to_owned(), text(&server.socket()));
    site.insert("user".to_owned(), server.user().into());
    site.insert("known_hosts".to_owned(), text(&server.known_hosts_file()));
    site.insert("identity".to_owned(), text(&server.identity_file()));
    site.insert("approval".to_owned(), "open".into());
    let sites = toml::Table::from_iter([(SITE.to_owned(), toml::Value::Table(site))]);
    let config = toml::Table::from_iter([("site".to_owned(), toml::Value::Table(sites))]);
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create_new(true), 0o600);
    let mut file = options.open(home.join("config.toml")).map_err(failed)?;
    std::io::Write::write_all(&mut file, config.to_string().as_bytes()).map_err(failed)?;
    Ok(home)
}

/// Leaves the server running until somebody presses Ctrl-C or ends the process.
fn stay(server: &Server, home: &Path, output: &Output) -> Result<(), Failure> {
    // After `cargo run` the program is in no PATH.
    let program = std::env::current_exe().unwrap_or_else(|_unknown| "towline".into());
    output.note(&format!(
        "\nthe server stays until you press Ctrl-C; its second factor is {}. In another terminal:\n  \
         TOWLINE_HOME={} {} exec {SITE} -- uname -a\nits home stays afterwards too: rm -r {}",
        server.passcode(),
        home.display(),
        program.display(),
        home.parent().unwrap_or(home).display(),
    ))?;
    own_line::block_on(async {
        let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|error| Failure::new(Kind::Internal, format!("cannot wait for signals: {error}")))?;
        tokio::select! {
            // Without a way to hear Ctrl-C, leaving at once is the safe thing.
            _ = tokio::signal::ctrl_c() => {}
            _ = ended.recv() => {}
        }
        Ok(())
    })
}

impl From<demo::Error> for Failure {
    fn from(error: demo::Error) -> Failure {
        let message = error.to_string();
        match error {
            demo::Error::SocketPath { .. } => {
                Failure::new(Kind::Config, message).hint("set TMPDIR to a shorter path")
            }
            demo::Error::Prepare { .. } => {
                Failure::new(Kind::Config, message).hint("the demo needs a writable TMPDIR")
            }
            demo::Error::Key(_) => Failure::new(Kind::Internal, message),
        }
    }
}

impl From<ShowError> for Failure {
    fn from(error: ShowError) -> Failure {
        match error {
            ShowError::Open(error) => Failure::from(error),
            ShowError::Line(error) => Failure::from(error),
            ShowError::Jobs(error) => Failure::from(error),
            ShowError::Ssh(error) => Failure::from(error),
            ShowError::Unexpected { .. } => Failure::new(Kind::RemoteError, error.to_string()),
        }
    }
}
