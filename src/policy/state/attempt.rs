//! The receipt of an attempt to open a line: what was tried, how it ended, until when the site is blocked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::id::{ClientId, GrantName, SiteId};
use super::grant::{Grant, Method, Scope, role};
use super::time::Timestamp;
use crate::config::Role;

/// How long an attempt that did not succeed blocks its site, from its start.
pub(super) const COOLDOWN: Duration = Duration::from_secs(300);
/// The same for an open site whose host was not reached: nobody was asked anything, so nobody can be annoyed.
pub(super) const COOLDOWN_UNREACHED: Duration = Duration::from_secs(10);

/// How an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is under way, or whoever made it is gone.
    Active,
    /// The line was opened.
    Success,
    /// It was refused.
    Failed,
    /// It took too long.
    TimedOut,
    /// Something broke on our side.
    Error,
    /// Nobody finished it, and its cooldown has passed.
    Stale,
}

impl Outcome {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Active => "active",
            Outcome::Success => "success",
            Outcome::Failed => "failed",
            Outcome::TimedOut => "timed_out",
            Outcome::Error => "error",
            Outcome::Stale => "stale",
        }
    }
}

/// How whoever made an attempt ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The line is ready: socket and receipt are published.
    Success,
    /// The host was not reached (`connect_failed`), so nothing was asked and nothing answered.
    Unreached,
    /// It was refused, with the exit code of whoever tells it.
    Failed(Option<i64>),
    /// It took too long.
    TimedOut,
    /// Something broke on our side.
    Error,
}

/// A receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the grant that was spent; of a repair, its id.
    pub grant: GrantName,
    /// The process that issued the grant.
    pub client: ClientId,
    /// What the grant was for; the site is `*` after a repair, which counts for every site.
    pub scope: Scope,
    /// The process that starts the connection; one without can never authorise a launch.
    pub launcher_pid: Option<u32>,
    /// Who allowed it.
    pub method: Method,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended; none exactly while it is active.
    pub finished_at: Option<Timestamp>,
    /// How it stands.
    pub outcome: Outcome,
    /// Exit code; 0 for success.
    pub returncode: Option<i64>,
    /// Until when its site gets no new grant, unless it succeeded.
    pub blocked_until: Timestamp,
}

impl Attempt {
    /// The receipt of a grant that is being spent.
    pub(super) fn begun(grant: &Grant, launcher_pid: u32, now: Timestamp) -> Attempt {
        Attempt {
            grant: grant.name(),
            client: grant.client.clone(),
            scope: grant.scope.clone(),
            launcher_pid: Some(launcher_pid),
            method: grant.method,
            started_at: now,
            finished_at: None,
            outcome: Outcome::Active,
            returncode: None,
            blocked_until: now.plus(COOLDOWN),
        }
    }

    /// What stands in for whatever a damaged file said: an attempt of every site, as old as the file.
    pub(super) fn of_repair(repair: &str, client: &ClientId, modified: Timestamp, now: Timestamp) -> Attempt {
        let started_at = modified.min(now).max(Timestamp::default());
        Attempt {
            grant: GrantName(repair.to_owned()),
            client: client.clone(),
            scope: Scope { site: SiteId::every(), role: Role::Login, allow_offvpn: false },
            launcher_pid: None,
            method: Method::ExplicitUserApproval,
            started_at,
            finished_at: Some(started_at),
            outcome: Outcome::Error,
            returncode: None,
            blocked_until: started_at.plus(COOLDOWN),
        }
    }

    /// Whether it forbids a new grant for its site.
    pub fn blocks(&self, now: Timestamp) -> bool {
        self.seconds_left(now) > 0
    }

    /// Whole seconds for which it still forbids a new grant, rounded up.
    pub fn seconds_left(&self, now: Timestamp) -> u64 {
        if self.outcome == Outcome::Success { 0 } else { self.blocked_until.seconds_after(now) }
    }

    /// Ends it.
    pub(super) fn finish(&mut self, ending: Ending, now: Timestamp) {
        // A clock that was set back must not make a receipt that ends before it began.
        let finished_at = now.max(self.started_at);
        let (outcome, returncode, cooldown) = match ending {
            Ending::Success => (Outcome::Success, Some(0), None),
            Ending::Unreached if self.method == Method::OpenSite => {
                (Outcome::Failed, None, Some(COOLDOWN_UNREACHED))
            }
            Ending::Unreached => (Outcome::Failed, None, Some(COOLDOWN)),
            Ending::Failed(returncode) => (Outcome::Failed, returncode, Some(COOLDOWN)),
            Ending::TimedOut => (Outcome::TimedOut, None, Some(COOLDOWN)),
            Ending::Error => (Outcome::Error, None, Some(COOLDOWN)),
        };
        self.outcome = outcome;
        self.returncode = returncode;
        self.finished_at = Some(finished_at);
        self.blocked_until = cooldown.map_or(finished_at, |cooldown| self.started_at.plus(cooldown));
    }

    /// Gives it up: nobody finished it.
    pub(super) fn go_stale(&mut self, now: Timestamp) {
        self.outcome = Outcome::Stale;
        self.finished_at = Some(now.max(self.started_at));
    }
}

/// A receipt as the file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttemptForm {
    grant_id: String,
    client_id: String,
    site: String,
    role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    launcher_pid: Option<u32>,
    allow_offvpn: bool,
    #[serde(default)]
    authorization_method: Method,
    started_at: Timestamp,
    #[serde(deserialize_with = "Option::deserialize")]
    finished_at: Option<Timestamp>,
    outcome: Outcome,
    #[serde(deserialize_with = "Option::deserialize")]
    returncode: Option<i64>,
    blocked_until: Timestamp,
}

impl AttemptForm {
    /// Checks every rule of a receipt: a damaged cooldown must never read as permission.
    pub(super) fn check(self, key: &str) -> Result<Attempt, String> {
        let wrong = |what: &str| Err(format!("the attempt on `{key}` {what}"));
        let Some(site) = SiteId::stored(&self.site).filter(|site| site.as_str() == key) else {
            return wrong("names another site");
        };
        let Some(role) = role(&self.role) else { return wrong("has no role") };
        if self.grant_id.is_empty() || self.client_id.is_empty() {
            return wrong("has an empty grant_id or client_id");
        }
        if self.launcher_pid == Some(0) {
            return wrong("has a launcher_pid that is not positive");
        }
        if self.authorization_method == Method::StandingOnVpn && self.allow_offvpn {
            return wrong("was standing and yet allowed what no VPN proves");
        }
        let active = self.outcome == Outcome::Active;
        if active != self.finished_at.is_none() || self.finished_at.is_some_and(|at| at < self.started_at) {
            return wrong("has a finished_at that does not go with its outcome and start");
        }
        match self.outcome {
            Outcome::Active if self.returncode.is_some() => return wrong("is active and has a returncode"),
            Outcome::Success if self.returncode != Some(0) => return wrong("succeeded without returncode 0"),
            _ => {}
        }
        let unreached_open = self.outcome == Outcome::Failed && self.authorization_method == Method::OpenSite;
        let cooldown = if unreached_open { COOLDOWN_UNREACHED } else { COOLDOWN };
        let long_enough = match self.outcome {
            Outcome::Success => Some(self.blocked_until) == self.finished_at,
            _ => self.blocked_until >= self.started_at.plus(cooldown),
        };
        if !long_enough {
            return wrong("has a blocked_until that does not go with its outcome and start");
        }
        Ok(Attempt {
            grant: GrantName(self.grant_id),
            client: ClientId(self.client_id),
            scope: Scope { site, role, allow_offvpn: self.allow_offvpn },
            launcher_pid: self.launcher_pid,
            method: self.authorization_method,
            started_at: self.started_at,
            finished_at: self.finished_at,
            outcome: self.outcome,
            returncode: self.returncode,
            blocked_until: self.blocked_until,
        })
    }

    pub(super) fn of(attempt: &Attempt) -> AttemptForm {
        AttemptForm {
            grant_id: attempt.grant.as_str().to_owned(),
            client_id: attempt.client.as_str().to_owned(),
            site: attempt.scope.site.to_string(),
            role: attempt.scope.role.to_string(),
            launcher_pid: attempt.launcher_pid,
            allow_offvpn: attempt.scope.allow_offvpn,
            authorization_method: attempt.method,
            started_at: attempt.started_at,
            finished_at: attempt.finished_at,
            outcome: attempt.outcome,
            returncode: attempt.returncode,
            blocked_until: attempt.blocked_until,
        }
    }
}
