//! The policy file: what it says when every rule holds, and why it does not otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::id::{ClientId, SiteId};
use super::attempt::{Attempt, AttemptForm};
use super::event::{EVENTS_MAX, Event};
use super::grant::{Grant, GrantForm};
use super::strict::Strict;
use super::time::Timestamp;

const SCHEMA_VERSION: u64 = 1;
/// Largest revision: every JSON reader holds it exactly. The next `disable` begins a new generation.
pub const REVISION_MAX: u64 = (1 << 53) - 1;

/// What the file permits for good; opening a line always needs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    Disabled,
    /// Lines that are open may be used.
    ReuseOnly,
}

impl Mode {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Disabled => "disabled",
            Mode::ReuseOnly => "reuse_only",
        }
    }
}

/// What stays the same until a repair: an approval against another generation can never match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Generation(String);

impl Generation {
    /// A new generation.
    pub fn new(uuid: uuid::Uuid) -> Generation {
        Generation(uuid.to_string())
    }

    /// Reads one; none when it is no UUID.
    pub fn parse(text: &str) -> Option<Generation> {
        uuid::Uuid::parse_str(text).ok().map(|_| Generation(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A policy all of whose rules hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Fixed until a repair.
    pub generation: Generation,
    /// One more with every write.
    pub revision: u64,
    /// What is permitted for good.
    pub mode: Mode,
    /// The one unconsumed grant of the workstation.
    pub grant: Option<Grant>,
    /// The newest attempt of each site.
    pub attempts: BTreeMap<SiteId, Attempt>,
    /// What happened, newest last, at most 64.
    pub events: Vec<Event>,
    /// When and by whom it was written; for information only, so a stranger's value is dropped.
    pub updated: Option<(Timestamp, ClientId, u32)>,
}

/// What is found in the place of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Nothing.
    Missing,
    /// Something that others may have made; it is never replaced.
    Unsafe {
        /// What is wrong, to be read behind "the policy file".
        reason: String,
    },
    /// A safe file whose content breaks a rule.
    Malformed {
        /// Which rule.
        reason: String,
        /// When the file was last changed.
        modified_at: Timestamp,
    },
    /// A policy.
    Valid(Box<Policy>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    schema_version: u64,
    generation: String,
    revision: u64,
    mode: Mode,
    #[serde(deserialize_with = "Option::deserialize")]
    login_grant: Option<GrantForm>,
    #[serde(deserialize_with = "Option::deserialize")]
    login_attempt: Option<BTreeMap<String, AttemptForm>>,
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    updated_at: Value,
    #[serde(default)]
    updated_by: Value,
}

/// Reads a policy file, and checks every rule.
///
/// # Errors
/// The rule that it breaks, to be read behind "the policy file".
pub fn decode(bytes: &[u8], now: Timestamp) -> Result<Policy, String> {
    let broken = |error: serde_json::Error| format!("is malformed: {error}");
    let Strict(value) = serde_json::from_slice(bytes).map_err(broken)?;
    let form: Form = serde_json::from_value(value).map_err(broken)?;
    check(form, now).map_err(|reason| format!("is malformed: {reason}"))
}

fn check(form: Form, now: Timestamp) -> Result<Policy, String> {
    if form.schema_version != SCHEMA_VERSION {
        return Err(format!("its schema_version is {}, not {SCHEMA_VERSION}", form.schema_version));
    }
    let generation = Generation::parse(&form.generation).ok_or("its generation is no UUID")?;
    if form.revision > REVISION_MAX {
        return Err(format!("its revision is above {REVISION_MAX}"));
    }
    let grant = form.login_grant.map(GrantForm::check).transpose()?;
    if grant.as_ref().is_some_and(|grant| grant.created_at > now) {
        return Err("its grant was made in the future; the clock may have been set back".to_owned());
    }
    let mut attempts = BTreeMap::new();
    for (key, attempt) in form.login_attempt.unwrap_or_default() {
        let attempt = attempt.check(&key)?;
        attempts.insert(attempt.scope.site.clone(), attempt);
    }
    let dropped = form.events.len().saturating_sub(EVENTS_MAX);
    let events: Result<Vec<Event>, String> = form.events.into_iter().map(Event::read).collect();
    let mut events = events?;
    events.drain(..dropped);
    let updated = updated(form.updated_at, &form.updated_by);
    Ok(Policy { generation, revision: form.revision, mode: form.mode, grant, attempts, events, updated })
}

/// Whatever others wrote there breaks no rule.
fn updated(at: Value, by: &Value) -> Option<(Timestamp, ClientId, u32)> {
    let at = serde_json::from_value(at).ok()?;
    let pid = by.get("pid")?.as_u64().and_then(|pid| u32::try_from(pid).ok())?;
    Some((at, ClientId(by.get("client_id")?.as_str()?.to_owned()), pid))
}

/// Writes a policy as its file has it: indented, keys sorted, one line end at the end.
///
/// # Errors
/// None that can happen: every member is a text, a number, a boolean, a list or an object.
pub fn encode(policy: &Policy) -> Result<Vec<u8>, serde_json::Error> {
    let attempts: BTreeMap<&str, AttemptForm> =
        policy.attempts.iter().map(|(site, attempt)| (site.as_str(), AttemptForm::of(attempt))).collect();
    // serde_json's objects are sorted by their keys.
    let mut value = json!({
        "schema_version": SCHEMA_VERSION,
        "generation": policy.generation,
        "revision": policy.revision,
        "mode": policy.mode,
        "login_grant": policy.grant.as_ref().map(GrantForm::of),
        "login_attempt": if attempts.is_empty() { Value::Null } else { serde_json::to_value(attempts)? },
        "events": policy.events.iter().map(Event::write).collect::<Vec<_>>(),
    });
    if let (Some((at, client, pid)), Some(map)) = (&policy.updated, value.as_object_mut()) {
        map.insert("updated_at".to_owned(), serde_json::to_value(at)?);
        map.insert("updated_by".to_owned(), json!({ "client_id": client.as_str(), "pid": pid }));
    }
    let mut bytes = serde_json::to_vec_pretty(&value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
