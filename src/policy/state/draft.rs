//! A policy while a step changes it: counts the write, gathers the events.

use super::super::error::{Error, GrantFault};
use super::super::id::SiteId;
use super::attempt::{Attempt, Outcome};
use super::event::{EVENTS_MAX, Event, EventKind, word};
use super::file::{Policy, REVISION_MAX};
use super::grant::Grant;
use super::operation::{Applied, Now};

/// How many sites' newest attempts are kept; beyond it those go that block nothing, oldest first.
const ATTEMPTS_MAX: usize = 256;

/// A policy that is being changed.
pub(super) struct Draft<'a> {
    pub(super) policy: Policy,
    events: Vec<Event>,
    now: &'a Now,
}

impl<'a> Draft<'a> {
    pub(super) fn of(policy: Policy, now: &'a Now) -> Draft<'a> {
        Draft { policy, events: Vec::new(), now }
    }

    pub(super) fn event(&mut self, kind: EventKind) {
        self.events.push(Event { at: self.now.at, client: self.now.client.clone(), kind });
    }

    pub(super) fn authorized(&mut self, grant: &Grant) {
        self.event(EventKind::LoginAuthorized {
            grant_id: grant.name(),
            site: grant.scope.site.to_string(),
            role: word(grant.scope.role),
            allow_offvpn: grant.scope.allow_offvpn,
            authorization_method: grant.method,
            approval_reference: grant.reference.clone(),
        });
    }

    pub(super) fn finished(&mut self, attempt: &Attempt) {
        self.event(EventKind::LoginAttemptFinished {
            grant_id: attempt.grant.clone(),
            site: attempt.scope.site.to_string(),
            role: word(attempt.scope.role),
            outcome: attempt.outcome,
            returncode: attempt.returncode,
        });
    }

    /// Removes a grant whose time is over; any other one is in the way.
    pub(super) fn clear_expired(&mut self) -> Result<(), Error> {
        let Some(grant) = self.policy.grant.take() else { return Ok(()) };
        if !grant.expired(self.now.at) {
            return Err(GrantFault::Exists.into());
        }
        let (grant_id, site, role) = (grant.name(), grant.scope.site.to_string(), word(grant.scope.role));
        self.event(EventKind::LoginGrantExpired { grant_id, site, role });
        Ok(())
    }

    /// Refuses while an attempt blocks the site, and gives up one that nobody finished.
    pub(super) fn end_cooldown(&mut self, site: &SiteId) -> Result<(), Error> {
        let now = self.now.at;
        let of = |policy: &Policy, key: &SiteId| {
            policy.attempts.get(key).map_or(0, |attempt| attempt.seconds_left(now))
        };
        let seconds_left = of(&self.policy, site).max(of(&self.policy, &SiteId::every()));
        if seconds_left > 0 {
            return Err(Error::Cooldown { site: site.to_string(), seconds_left });
        }
        if let Some(attempt) = self.policy.attempts.get_mut(site)
            && attempt.outcome == Outcome::Active
        {
            attempt.go_stale(now);
            let attempt = attempt.clone();
            self.finished(&attempt);
        }
        Ok(())
    }

    /// Begins the attempt of a grant that is no longer there.
    pub(super) fn spend(&mut self, grant: &Grant, launcher_pid: u32) {
        let attempt = Attempt::begun(grant, launcher_pid, self.now.at);
        self.policy.attempts.insert(grant.scope.site.clone(), attempt);
        while self.policy.attempts.len() > ATTEMPTS_MAX && self.drop_oldest_settled() {}
        self.event(EventKind::LoginGrantConsumed {
            grant_id: grant.name(),
            site: grant.scope.site.to_string(),
            role: word(grant.scope.role),
            authorization_method: grant.method,
        });
    }

    fn drop_oldest_settled(&mut self) -> bool {
        let settled = |attempt: &&Attempt| attempt.outcome != Outcome::Active && !attempt.blocks(self.now.at);
        let oldest = self.policy.attempts.values().filter(settled).min_by_key(|attempt| attempt.started_at);
        let site = oldest.map(|attempt| attempt.scope.site.clone());
        site.is_some_and(|site| self.policy.attempts.remove(&site).is_some())
    }

    /// Counts the write, and keeps the newest events.
    pub(super) fn done(mut self) -> Result<Applied, Error> {
        if self.policy.revision >= REVISION_MAX {
            let reason = "has no revision left; `towline policy disable` begins a new generation".to_owned();
            return Err(Error::Invalid { reason, file: None });
        }
        self.policy.revision += 1;
        self.policy.updated = Some((self.now.at, self.now.client.clone(), self.now.pid));
        self.policy.events.extend(self.events.iter().cloned());
        let dropped = self.policy.events.len().saturating_sub(EVENTS_MAX);
        self.policy.events.drain(..dropped);
        Ok(Applied { policy: self.policy, events: self.events })
    }
}
