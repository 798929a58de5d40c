//! `towline approve` and `towline deny`: what clients without a terminal have asked for.

use serde_json::json;

use super::args::DenyArgs;
use super::output::Output;
use super::table::render;
use crate::audit::{Clock as _, SystemClock};
use crate::config::{Environment, Home};
use crate::failure::Failure;
use crate::policy::requests::{Request, Requests, Wanted};

/// Lists the requests that wait.
pub(super) fn list(environment: &Environment, output: &Output) -> Result<u8, Failure> {
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
