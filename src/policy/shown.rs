//! What the policy says, for people and programs.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::state::{Attempt, Cas, Event, FileState, Grant, Mode, Outcome, Timestamp};
use crate::audit::rfc3339;

/// How many of the newest events `policy show` tells.
pub const EVENTS_SHOWN: usize = 10;

/// A look at the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The file.
    pub path: PathBuf,
    /// The mode that holds: disabled whenever the file cannot be trusted, or a stop marker is there.
    pub mode: Mode,
    /// Whether the file is there and every rule holds.
    pub valid: bool,
    /// What is wrong with the file.
    pub error: Option<String>,
    /// Its generation; none when it is not valid.
    pub generation: Option<String>,
    /// Its revision; 0 when it is not valid.
    pub revision: u64,
    /// Whether a stop marker is there, which the next change writes into the file.
    pub stop_marker: bool,
    /// The grant that waits and can still be used.
    pub grant: Option<Grant>,
    /// The newest attempt of each site.
    pub attempts: Vec<Attempt>,
    /// What happened, newest last.
    pub events: Vec<Event>,
    /// When this was looked at.
    pub at: Timestamp,
}

impl Shown {
    pub(super) fn of(state: FileState, stop_marker: bool, path: PathBuf, at: Timestamp) -> Shown {
        let nothing = |error: String| Shown {
            path: path.clone(),
            mode: Mode::Disabled,
            valid: false,
            error: Some(error),
            generation: None,
            revision: 0,
            stop_marker,
            grant: None,
            attempts: Vec::new(),
            events: Vec::new(),
            at,
        };
        match state {
            FileState::Missing => nothing("the policy file does not exist".to_owned()),
            FileState::Unsafe { reason } | FileState::Malformed { reason, .. } => {
                nothing(format!("the policy file {reason}"))
            }
            FileState::Valid(policy) => Shown {
                mode: if stop_marker { Mode::Disabled } else { policy.mode },
                valid: true,
                error: None,
                generation: Some(policy.generation.as_str().to_owned()),
                revision: policy.revision,
                grant: policy.grant.filter(|grant| !grant.expired(at) && grant.remaining_attempts > 0),
                attempts: policy.attempts.into_values().collect(),
                events: policy.events,
                ..nothing(String::new())
            },
        }
    }

    /// What a change must name to be made on this very policy; none when it is not valid.
    pub fn cas(&self) -> Option<Cas> {
        let generation = self.generation.clone()?;
        Some(Cas { generation, revision: self.revision })
    }

    /// The contract's object, with the newest 10 events.
    pub fn to_json(&self) -> Value {
        self.with_events(EVENTS_SHOWN)
    }

    /// The same with every event that the file has.
    pub fn to_json_with_history(&self) -> Value {
        self.with_events(usize::MAX)
    }

    fn with_events(&self, count: usize) -> Value {
        let skipped = self.events.len().saturating_sub(count);
        json!({
            "mode": self.mode,
            "generation": self.generation,
            "revision": self.revision,
            "valid": self.valid,
            "error": self.error,
            "path": self.path.to_string_lossy(),
            "stop_marker": self.stop_marker,
            "grant": self.grant.as_ref().map(grant),
            "attempts": self.attempts.iter().map(|attempt| self.attempt(attempt)).collect::<Vec<_>>(),
            "events": self.events.iter().skip(skipped).map(event).collect::<Vec<_>>(),
        })
    }

    fn attempt(&self, attempt: &Attempt) -> Value {
        json!({
            "grant_id": attempt.grant,
            "site": attempt.scope.site,
            "role": attempt.scope.role,
            "outcome": attempt.outcome.as_str(),
            "started_at": rfc3339(attempt.started_at.ms()),
            "finished_at": attempt.finished_at.map(|at| rfc3339(at.ms())),
            "seconds_left": attempt.seconds_left(self.at),
            "launcher_pid": if attempt.outcome == Outcome::Active { attempt.launcher_pid } else { None },
        })
    }
}

fn grant(grant: &Grant) -> Value {
    json!({
        "name": grant.name(),
        "site": grant.scope.site,
        "role": grant.scope.role,
        "allow_offvpn": grant.scope.allow_offvpn,
        "authorization_method": grant.method.as_str(),
        "expires_at": rfc3339(grant.expires_at.ms()),
    })
}

/// An event as answers show it: its time as every other time.
fn event(event: &Event) -> Value {
    let mut map = event.kind.to_map();
    if let Some(at) = map.get_mut("source_modified_at")
        && let Ok(time) = serde_json::from_value::<Timestamp>(at.clone())
    {
        *at = rfc3339(time.ms()).into();
    }
    map.insert("at".to_owned(), rfc3339(event.at.ms()).into());
    map.insert("client_id".to_owned(), event.client.as_str().into());
    Value::Object(map)
}
