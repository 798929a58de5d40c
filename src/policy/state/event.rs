//! What happened to the policy, for the record.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::id::{ClientId, GrantName};
use super::attempt::Outcome;
use super::grant::Method;
use super::time::Timestamp;
use crate::config::Role;

/// How many events the file keeps; the audit log keeps all.
pub(super) const EVENTS_MAX: usize = 64;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// The process that did it.
    pub client: ClientId,
    /// What.
    pub kind: EventKind,
}

/// A role's word in an event.
type RoleWord = String;

/// What happened, with its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
#[expect(missing_docs, reason = "the details are the members that the contract names")]
pub enum EventKind {
    /// The mode became `disabled`; an unconsumed grant is gone.
    PolicyDisabled {
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant_id: Option<GrantName>,
    },
    /// The mode became `reuse_only`.
    PolicyReuseEnabled { approval_reference: String },
    /// A residual grant was removed by that.
    LoginGrantRevokedOnReuseEnable { grant_id: GrantName },
    /// A grant was given.
    LoginAuthorized {
        grant_id: GrantName,
        site: String,
        role: RoleWord,
        allow_offvpn: bool,
        authorization_method: Method,
        approval_reference: String,
    },
    /// A grant's time was found to be over.
    LoginGrantExpired { grant_id: GrantName, site: String, role: RoleWord },
    /// A human took a grant back.
    LoginGrantRevoked { grant_id: GrantName, site: String, role: RoleWord, reason: String },
    /// A standing grant was not used after all.
    StandingLoginGrantRevoked { grant_id: GrantName, site: String, role: RoleWord, reason: String },
    /// A grant was spent, and an attempt began.
    LoginGrantConsumed { grant_id: GrantName, site: String, role: RoleWord, authorization_method: Method },
    /// An attempt ended, or was given up.
    LoginAttemptFinished {
        grant_id: GrantName,
        site: String,
        role: RoleWord,
        outcome: Outcome,
        returncode: Option<i64>,
    },
    /// A malformed file was replaced, and every site blocked as if it had just failed.
    PolicyRepairedWithConservativeCooldown { repair_id: String, source_modified_at: Timestamp },
}

impl EventKind {
    /// The members as the file has them, the event's word included.
    pub fn to_map(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => map,
            // Every member is a text, a number or a boolean, so there is always an object.
            Ok(_) | Err(_) => Map::new(),
        }
    }

    /// The event's word.
    pub fn word(&self) -> &'static str {
        match self {
            EventKind::PolicyDisabled { .. } => "policy_disabled",
            EventKind::PolicyReuseEnabled { .. } => "policy_reuse_enabled",
            EventKind::LoginGrantRevokedOnReuseEnable { .. } => "login_grant_revoked_on_reuse_enable",
            EventKind::LoginAuthorized { .. } => "login_authorized",
            EventKind::LoginGrantExpired { .. } => "login_grant_expired",
            EventKind::LoginGrantRevoked { .. } => "login_grant_revoked",
            EventKind::StandingLoginGrantRevoked { .. } => "standing_login_grant_revoked",
            EventKind::LoginGrantConsumed { .. } => "login_grant_consumed",
            EventKind::LoginAttemptFinished { .. } => "login_attempt_finished",
            EventKind::PolicyRepairedWithConservativeCooldown { .. } => {
                "policy_repaired_with_conservative_cooldown"
            }
        }
    }

    /// The site and role that it is about.
    pub fn about(&self) -> Option<(&str, &str)> {
        match self {
            EventKind::LoginAuthorized { site, role, .. }
            | EventKind::LoginGrantExpired { site, role, .. }
            | EventKind::LoginGrantRevoked { site, role, .. }
            | EventKind::StandingLoginGrantRevoked { site, role, .. }
            | EventKind::LoginGrantConsumed { site, role, .. }
            | EventKind::LoginAttemptFinished { site, role, .. } => Some((site, role)),
            EventKind::PolicyDisabled { .. }
            | EventKind::PolicyReuseEnabled { .. }
            | EventKind::LoginGrantRevokedOnReuseEnable { .. }
            | EventKind::PolicyRepairedWithConservativeCooldown { .. } => None,
        }
    }
}

/// A role as events write it.
pub(super) fn word(role: Role) -> RoleWord {
    role.as_str().to_owned()
}

impl Event {
    /// Reads an event of the file.
    pub(super) fn read(value: Value) -> Result<Event, String> {
        let Value::Object(mut map) = value else { return Err("an event is no object".to_owned()) };
        let mut take = |key: &str| map.remove(key).ok_or_else(|| format!("an event has no `{key}`"));
        let (at, client) = (take("at")?, take("client_id")?);
        let wrong = |error: serde_json::Error| format!("an event is not as it must be: {error}");
        let client: String = serde_json::from_value(client).map_err(wrong)?;
        if client.is_empty() {
            return Err("an event's client_id is empty".to_owned());
        }
        Ok(Event {
            at: serde_json::from_value(at).map_err(wrong)?,
            client: ClientId(client),
            kind: serde_json::from_value(Value::Object(map)).map_err(wrong)?,
        })
    }

    /// Writes it as the file has it.
    pub(super) fn write(&self) -> Value {
        let mut map = self.kind.to_map();
        map.insert("at".to_owned(), serde_json::json!(self.at));
        map.insert("client_id".to_owned(), self.client.as_str().into());
        Value::Object(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_event_is_written_under_its_word_and_read_back() {
        let id = || GrantName("0123456789ab".to_owned());
        let (site, role, reason) = ("hpc".to_owned(), word(Role::Login), "r".to_owned());
        let method = Method::OpenSite;
        for kind in [
            EventKind::PolicyDisabled { reason: reason.clone(), grant_id: None },
            EventKind::PolicyDisabled { reason: reason.clone(), grant_id: Some(id()) },
            EventKind::PolicyReuseEnabled { approval_reference: reason.clone() },
            EventKind::LoginGrantRevokedOnReuseEnable { grant_id: id() },
            EventKind::LoginAuthorized {
                grant_id: id(),
                site: site.clone(),
                role: role.clone(),
                allow_offvpn: true,
                authorization_method: method,
                approval_reference: reason.clone(),
            },
            EventKind::LoginGrantExpired { grant_id: id(), site: site.clone(), role: role.clone() },
            EventKind::LoginGrantRevoked {
                grant_id: id(),
                site: site.clone(),
                role: role.clone(),
                reason: reason.clone(),
            },
            EventKind::StandingLoginGrantRevoked {
                grant_id: id(),
                site: site.clone(),
                role: role.clone(),
                reason,
            },
            EventKind::LoginGrantConsumed {
                grant_id: id(),
                site: site.clone(),
                role: role.clone(),
                authorization_method: method,
            },
            EventKind::LoginAttemptFinished {
                grant_id: id(),
                site,
                role,
                outcome: Outcome::TimedOut,
                returncode: None,
            },
            EventKind::PolicyRepairedWithConservativeCooldown {
                repair_id: "x".to_owned(),
                source_modified_at: Timestamp::from_ms(1500),
            },
        ] {
            let event = Event { at: Timestamp::from_ms(1), client: ClientId::named("c"), kind };
            let written = event.write();
            assert_eq!(written["event"], event.kind.word());
            assert_eq!(Event::read(written.clone()).unwrap(), event);
            let mut more = written;
            more["x"] = json!(1);
            assert!(Event::read(more).is_err());
        }
        for wrong in [
            json!(1),
            json!({}),
            json!({"at": 1, "client_id": "c"}),
            json!({"at": 1, "client_id": "c", "event": "x"}),
        ] {
            assert!(Event::read(wrong).is_err());
        }
    }
}
