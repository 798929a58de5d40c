//! `towline approve` and `towline deny`: what clients without a terminal have asked for.

use serde_json::json;

use super::args::{ApproveArgs, DenyArgs};
use super::ask;
use super::connect::{Wanting, answer};
use super::output::Output;
use super::table::render;
use crate::audit::{Clock as _, SystemClock};
use crate::config::{Config, Environment, Home, Role};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::policy::Store;
use crate::policy::requests::{Request, Requests, Wanted};

/// How often `--watch` looks for new requests.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(500);
/// The word that a human types to let open lines be used.
const ENABLE: &str = "enable";

/// Lists the requests, or has them answered on this terminal.
///
/// # Errors
/// `policy_denied` without a terminal or for another answer; those of the opening that was approved.
pub(super) fn run(args: &ApproveArgs, environment: Environment, output: &Output) -> Result<u8, Failure> {
    if let Some(id) = &args.request {
        let request = Requests::new(&Home::from_environment(&environment)?).find(id)?;
        return approve(&request, &Config::load(environment)?, output);
    }
    if !args.watch {
        return list(&environment, output);
    }
    if !ask::available() {
        return Err(Failure::new(
            Kind::PolicyDenied,
            "requests are answered on a terminal, and there is none",
        )
        .hint("run `towline approve --watch` on a terminal"));
    }
    let config = Config::load(environment)?;
    let requests = Requests::new(&config.home);
    let mut seen = std::collections::BTreeSet::new();
    output.note("waiting for requests; Ctrl-C ends this")?;
    loop {
        for request in requests.list()? {
            if seen.insert(request.id.clone())
                && let Err(failure) = approve(&request, &config, output)
            {
                // One that was not approved still waits, for `approve` or `deny`.
                output.failure(&failure);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Shows who asks for what, and does it when the human says so.
fn approve(request: &Request, config: &Config, output: &Output) -> Result<u8, Failure> {
    let who = &request.who;
    let why = vec![
        format!("Request {} of {} (pid {}, {}).", request.id, who.program, who.pid, who.client),
        format!("Reason: {}", request.reason),
    ];
    let requests = Requests::new(&config.home);
    match (request.what, &request.site) {
        (Wanted::Connect, Some(site)) => {
            let role = Role::ALL.into_iter().find(|role| Some(role.as_str()) == request.role.as_deref());
            let line = Wanting::new(config, config.site(site)?, role.unwrap_or_default())?;
            let (receipt, reused) = match line.found()? {
                Some(receipt) => (receipt, true),
                None => (line.open(line.by_human(&why)?)?, false),
            };
            requests.take(&request.id)?;
            done(request, answer(&line, &receipt, reused, 0), output)
        }
        (Wanted::EnableReuse, _) => {
            let store = Store::new(&config.home);
            let cas = store.show().cas();
            let cas =
                cas.ok_or_else(|| Failure::new(Kind::PolicyInvalid, "there is no valid policy file"))?;
            ask::demand(&why, ENABLE)?;
            store.enable_reuse(cas, "approved on a terminal, as asked for by a client")?;
            requests.take(&request.id)?;
            done(request, store.show().to_json(), output)
        }
        (Wanted::Connect, None) => Err(Failure::new(Kind::InvalidInput, "the request names no site")),
    }
}

fn done(request: &Request, answer: serde_json::Value, output: &Output) -> Result<u8, Failure> {
    if output.json() {
        output.document(&json!({ "approved": request, "result": answer }))?;
    } else {
        output.text(&format!("the request {} is approved and done\n", request.id))?;
    }
    Ok(0)
}

/// Lists the requests that wait.
fn list(environment: &Environment, output: &Output) -> Result<u8, Failure> {
    let requests = Requests::new(&Home::from_environment(environment)?).list()?;
    if output.json() {
        output.document(&json!({ "requests": requests }))?;
    } else if requests.is_empty() {
        output.note("no request waits")?;
    } else {
        output.text(&table(&requests, SystemClock.unix_ms()))?;
    }
    Ok(0)
}

/// Takes a request away unanswered; the asker has to ask again.
pub(super) fn deny(args: &DenyArgs, environment: &Environment, output: &Output) -> Result<u8, Failure> {
    let request = Requests::new(&Home::from_environment(environment)?).take(&args.request)?;
    if output.json() {
        output.document(&json!({ "denied": request }))?;
    } else {
        output.text(&format!("the request {} is denied\n", request.id))?;
    }
    Ok(0)
}

fn table(requests: &[Request], now_ms: i64) -> String {
    let rows = requests.iter().map(|request| {
        let what = match request.what {
            Wanted::Connect => "connect",
            Wanted::EnableReuse => "enable-reuse",
        };
        vec![
            request.id.clone(),
            what.to_owned(),
            request.site.clone().unwrap_or_default(),
            request.role.clone().unwrap_or_default(),
            format!("{} (pid {})", request.who.program, request.who.pid),
            request.who.client.clone(),
            format!("{} s", request.left_ms(now_ms) / 1000),
            request.reason.clone(),
        ]
    });
    render(&["REQUEST", "WHAT", "SITE", "ROLE", "PROGRAM", "CLIENT", "LEFT", "REASON"], rows)
}
