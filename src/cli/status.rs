//! `towline status`: policy and lines, from this workstation's files and brokers alone.

use serde_json::{Value, json};

use super::output::Output;
use super::own_line;
use super::table::render;
use crate::broker::{Place, client};
use crate::config::{Config, Environment};
use crate::failure::Failure;
use crate::policy::Store;

/// Shows how everything stands.
///
/// # Errors
/// Those of the configuration.
pub(super) fn run(environment: Environment, output: &Output) -> Result<u8, Failure> {
    let config = Config::load(environment)?;
    let policy = Store::new(&config.home).show();
    let lines = own_line::block_on(async {
        let mut asking = tokio::task::JoinSet::new();
        let places = config.sites().flat_map(|site| site.roles().map(|role| (site.name.clone(), role)));
        for (at, (site, role)) in places.enumerate() {
            let place = Place::of(&config.home, &site, role)?;
            // All at once, so that one broker that does not answer costs the others no time.
            asking.spawn(async move { (at, line(&place).await) });
        }
        let mut lines = asking.join_all().await;
        lines.sort_by_key(|(at, _)| *at);
        Ok(lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>())
    })?;
    let document = json!({
        "policy": {
            "mode": policy.mode,
            "generation": policy.generation,
            "revision": policy.revision,
            "valid": policy.valid,
        },
        "lines": lines,
        "runs": { "active": 0 },
        "transfers": { "active": 0 },
    });
    if output.json() {
        output.document(&document)?;
    } else {
        output.text(&format!("policy  {}\n\n{}", policy.mode.as_str(), table(&lines)))?;
    }
    Ok(0)
}

async fn line(place: &Place) -> Value {
    let look = place.look();
    let (state, reason) = look.state();
    let pong = if look.ready().is_some() { client::ping(place).await } else { None };
    let reason = match (&pong, look.ready()) {
        (None, Some(receipt)) => Some(format!("its broker (pid {}) does not answer", receipt.pid)),
        _ => reason,
    };
    let receipt = look.receipt.as_ref();
    json!({
        "site": place.site,
        "role": place.role,
        "state": state,
        "pid": receipt.filter(|_| look.alive).map(|receipt| receipt.pid),
        "since": receipt.map(|receipt| {
            let over = receipt.stopped_at.as_ref();
            over.or(receipt.ready_at.as_ref()).unwrap_or(&receipt.started_at).clone()
        }),
        "session_channels": receipt.map_or(0, |receipt| receipt.session_channels),
        "prompts": receipt.map_or(0, |receipt| receipt.prompts),
        "streams": pong.as_ref().map_or(0, |pong| pong.streams),
        "clients": pong.as_ref().map_or(0, |pong| pong.clients),
        "commands_completed": pong.as_ref().map_or(0, |pong| pong.commands_completed),
        "bytes_in": pong.as_ref().map_or(0, |pong| pong.bytes_in),
        "bytes_out": pong.as_ref().map_or(0, |pong| pong.bytes_out),
        "reason": reason,
    })
}

fn table(lines: &[Value]) -> String {
    let cell = |line: &Value, key: &str| match line.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let keys = ["site", "role", "state", "pid", "since", "streams", "reason"];
    let rows = lines.iter().map(|line| keys.iter().map(|key| cell(line, key)).collect());
    render(&["SITE", "ROLE", "STATE", "PID", "SINCE", "STREAMS", "REASON"], rows)
}
