//! Every step that the policy can take.

use std::time::Duration;

use super::super::error::{Error, GrantFault};
use super::super::id::{ClientId, GrantHash, GrantName, SiteId};
use super::super::text;
use super::attempt::{Attempt, Ending, Outcome};
use super::draft::Draft;
use super::event::{Event, EventKind, word};
use super::file::{FileState, Generation, Mode, Policy, REVISION_MAX};
use super::grant::{Grant, Method, Scope, TTL_MAX};
use super::time::Timestamp;
use crate::config::Role;

/// Who acts, and when.
#[derive(Clone, Debug)]
pub struct Now {
    /// The present time.
    pub at: Timestamp,
    /// The acting process.
    pub client: ClientId,
    /// Its pid.
    pub pid: u32,
    /// Random digits, for a generation or a repair's id.
    pub fresh: uuid::Uuid,
}

/// What the caller saw of the policy; both must still hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cas {
    /// The generation.
    pub generation: String,
    /// The revision.
    pub revision: u64,
}

/// What a new grant is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorize {
    /// What the caller saw.
    pub cas: Cas,
    /// What for.
    pub scope: Scope,
    /// How long it may wait, at most 300 s.
    pub ttl: Duration,
    /// Who allows it: a human, or a proven VPN route.
    pub method: Method,
    /// Why.
    pub reference: String,
    /// The hash of its id.
    pub id: GrantHash,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Forbid everything; makes a missing file and repairs a malformed one.
    Disable {
        /// Why; cut and collapsed rather than refused.
        reason: String,
    },
    /// Permit the use of open lines.
    EnableReuse {
        /// What the human saw.
        cas: Cas,
        /// The human's approval.
        reference: String,
    },
    /// Give a grant.
    Authorize(Box<Authorize>),
    /// Begin an attempt on a site that permits itself; no other grant is touched.
    OpenSite {
        /// What for.
        scope: Scope,
        /// The hash of the id under which the attempt goes.
        id: GrantHash,
        /// The process that starts the connection.
        launcher_pid: u32,
        /// Why.
        reference: String,
    },
    /// Take any unconsumed grant back.
    Revoke {
        /// Its name.
        grant: GrantName,
        /// Why.
        reason: String,
    },
    /// Take our own unused standing grant back.
    RevokeStanding {
        /// The hash of its id.
        id: GrantHash,
        /// Why.
        reason: String,
    },
    /// Spend a grant: it is gone, and an attempt is active.
    Consume {
        /// The hash of the id that the caller presents.
        id: GrantHash,
        /// On which site.
        site: SiteId,
        /// On which role.
        role: Role,
        /// The process that starts the connection.
        launcher_pid: u32,
    },
    /// Write down how an attempt ended.
    Finish {
        /// Name of the grant that was spent.
        grant: GrantName,
        /// How.
        ending: Ending,
    },
}

/// What an operation made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The policy to write.
    pub policy: Policy,
    /// What happened, for the audit log.
    pub events: Vec<Event>,
}

/// The attempt whose connection is about to be started, as the launch payload says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Name of the grant that was spent.
    pub grant: GrantName,
    /// On which site.
    pub site: SiteId,
    /// On which role.
    pub role: Role,
    /// The client in the receipt.
    pub client: ClientId,
    /// The launcher.
    pub launcher_pid: u32,
}

/// Takes a step from what is found in the file's place.
///
/// # Errors
/// [`Error::Invalid`], [`Error::Text`], [`Error::Input`], [`Error::Conflict`], [`Error::Denied`], [`Error::Grant`] and
/// [`Error::Cooldown`]: the first rule that forbids it, in the order of the contract. Nothing is to be written then.
pub fn apply(state: &FileState, operation: &Operation, now: &Now) -> Result<Applied, Error> {
    match operation {
        Operation::Disable { reason } => disable(state, reason, now),
        Operation::EnableReuse { cas, reference } => enable_reuse(state, cas, reference, now),
        Operation::Authorize(authorize) => give(state, authorize, now),
        Operation::OpenSite { scope, id, launcher_pid, reference } => {
            open_site(state, (scope, id), *launcher_pid, reference, now)
        }
        Operation::Revoke { grant, reason } => revoke(state, grant, reason, now),
        Operation::RevokeStanding { id, reason } => revoke_standing(state, id, reason, now),
        Operation::Consume { id, site, role, launcher_pid } => {
            consume(state, id, (site, *role), *launcher_pid, now)
        }
        Operation::Finish { grant, ending } => finish(state, grant, *ending, now),
    }
}

/// Whether open lines may be used.
///
/// # Errors
/// [`Error::Invalid`] and [`Error::Denied`].
pub fn permits_dispatch(state: &FileState) -> Result<&Policy, Error> {
    let policy = valid(state)?;
    match policy.mode {
        Mode::ReuseOnly => Ok(policy),
        Mode::Disabled => Err(Error::Denied {
            reason: "the policy is disabled, so no line may be opened or used".to_owned(),
        }),
    }
}

/// Whether the connection of an attempt may be started.
///
/// # Errors
/// As [`permits_dispatch`], and [`Error::Grant`] unless an active attempt has all these values.
pub fn permits_launch(state: &FileState, launch: &Launch) -> Result<(), Error> {
    let policy = permits_dispatch(state)?;
    let equal = policy.attempts.get(&launch.site).is_some_and(|attempt| {
        attempt.outcome == Outcome::Active
            && attempt.grant == launch.grant
            && attempt.scope.role == launch.role
            && attempt.client == launch.client
            && attempt.launcher_pid == Some(launch.launcher_pid)
    });
    if equal { Ok(()) } else { Err(GrantFault::OtherAttempt.into()) }
}

fn valid(state: &FileState) -> Result<&Policy, Error> {
    let reason = match state {
        FileState::Valid(policy) => return Ok(policy),
        FileState::Missing => "does not exist; `towline policy disable` makes one",
        FileState::Unsafe { reason } | FileState::Malformed { reason, .. } => reason,
    };
    Err(Error::Invalid { reason: reason.to_owned(), file: None })
}

fn disable(state: &FileState, reason: &str, now: &Now) -> Result<Applied, Error> {
    let reason = text::lenient(reason);
    let policy = match state {
        FileState::Unsafe { .. } => return Err(valid(state).err().unwrap_or(GrantFault::None.into())),
        FileState::Malformed { modified_at, .. } => return Ok(repair(*modified_at, reason, now)),
        FileState::Valid(policy) if policy.revision >= REVISION_MAX => {
            return Ok(repair(now.at, reason, now));
        }
        FileState::Missing => fresh(now),
        FileState::Valid(policy) => policy.as_ref().clone(),
    };
    let mut draft = Draft::of(policy, now);
    let grant_id = draft.policy.grant.take().map(|grant| grant.name());
    draft.policy.mode = Mode::Disabled;
    draft.event(EventKind::PolicyDisabled { reason, grant_id });
    draft.done()
}

fn fresh(now: &Now) -> Policy {
    Policy {
        generation: Generation::new(now.fresh),
        revision: 0,
        mode: Mode::Disabled,
        grant: None,
        attempts: std::collections::BTreeMap::new(),
        events: Vec::new(),
        updated: None,
    }
}

/// Replaces a file whose content is of no use. Its generation is new, so nothing that was approved before can match.
fn repair(modified_at: Timestamp, reason: String, now: &Now) -> Applied {
    let repair_id = now.fresh.to_string();
    let attempt = Attempt::of_repair(&repair_id, &now.client, modified_at, now.at);
    let event = |kind| Event { at: now.at, client: now.client.clone(), kind };
    let repaired = event(EventKind::PolicyRepairedWithConservativeCooldown {
        repair_id,
        source_modified_at: modified_at,
    });
    let policy = Policy {
        revision: 1,
        attempts: [(attempt.scope.site.clone(), attempt)].into(),
        events: vec![repaired.clone()],
        updated: Some((now.at, now.client.clone(), now.pid)),
        ..fresh(now)
    };
    // The file begins anew with the repair alone; the audit log also learns why somebody disabled.
    let disabled = event(EventKind::PolicyDisabled { reason, grant_id: None });
    Applied { policy, events: vec![repaired, disabled] }
}

fn enable_reuse(state: &FileState, cas: &Cas, reference: &str, now: &Now) -> Result<Applied, Error> {
    let approval_reference = text::reference("approval reference", reference)?;
    let policy = valid(state)?;
    same(policy, cas)?;
    let mut draft = Draft::of(policy.clone(), now);
    if let Some(grant) = draft.policy.grant.take() {
        draft.event(EventKind::LoginGrantRevokedOnReuseEnable { grant_id: grant.name() });
    }
    draft.policy.mode = Mode::ReuseOnly;
    draft.event(EventKind::PolicyReuseEnabled { approval_reference });
    draft.done()
}

fn give(state: &FileState, authorize: &Authorize, now: &Now) -> Result<Applied, Error> {
    let Authorize { cas, scope, ttl, method, reference, id } = authorize;
    // Points of time have milliseconds, so a shorter life would be none.
    if *ttl < Duration::from_millis(1) || *ttl > TTL_MAX {
        let reason =
            format!("is {} ms, it must be above 0 and at most {} s", ttl.as_millis(), TTL_MAX.as_secs());
        return Err(Error::Input { what: "ttl", reason });
    }
    match method {
        Method::StandingOnVpn if scope.allow_offvpn => {
            let reason = "cannot go with a grant that a proven VPN route gives".to_owned();
            return Err(Error::Input { what: "allow_offvpn", reason });
        }
        Method::OpenSite => {
            let reason = "is open_site, which gives no grant that could wait".to_owned();
            return Err(Error::Input { what: "method", reason });
        }
        Method::StandingOnVpn | Method::ExplicitUserApproval => {}
    }
    let reference = text::reference("approval reference", reference)?;
    let policy = valid(state)?;
    same(policy, cas)?;
    permits_dispatch(state)?;
    let mut draft = Draft::of(policy.clone(), now);
    draft.clear_expired()?;
    draft.end_cooldown(&scope.site)?;
    let grant = Grant {
        id: id.clone(),
        client: now.client.clone(),
        scope: scope.clone(),
        method: *method,
        reference,
        created_at: now.at,
        expires_at: now.at.plus(*ttl),
        remaining_attempts: 1,
    };
    draft.authorized(&grant);
    draft.policy.grant = Some(grant);
    draft.done()
}

fn open_site(
    state: &FileState,
    (scope, id): (&Scope, &GrantHash),
    launcher_pid: u32,
    reference: &str,
    now: &Now,
) -> Result<Applied, Error> {
    let launcher_pid = positive(launcher_pid)?;
    let reference = text::reference("approval reference", reference)?;
    let policy = permits_dispatch(state)?;
    let mut draft = Draft::of(policy.clone(), now);
    draft.end_cooldown(&scope.site)?;
    // It is minted and spent in one write, so it never waits.
    let grant = Grant {
        id: id.clone(),
        client: now.client.clone(),
        scope: scope.clone(),
        method: Method::OpenSite,
        reference,
        created_at: now.at,
        expires_at: now.at.plus(TTL_MAX),
        remaining_attempts: 1,
    };
    draft.authorized(&grant);
    draft.spend(&grant, launcher_pid);
    draft.done()
}

fn revoke(state: &FileState, name: &GrantName, reason: &str, now: &Now) -> Result<Applied, Error> {
    let reason = text::reference("reason", reason)?;
    let mut draft = Draft::of(valid(state)?.clone(), now);
    let grant = draft.policy.grant.take().ok_or(GrantFault::None)?;
    if grant.name() != *name {
        return Err(GrantFault::OtherId.into());
    }
    let (grant_id, site, role) = (grant.name(), grant.scope.site.to_string(), word(grant.scope.role));
    draft.event(EventKind::LoginGrantRevoked { grant_id, site, role, reason });
    draft.done()
}

fn revoke_standing(state: &FileState, id: &GrantHash, reason: &str, now: &Now) -> Result<Applied, Error> {
    let reason = text::reference("reason", reason)?;
    let mut draft = Draft::of(valid(state)?.clone(), now);
    let grant = draft.policy.grant.take().ok_or(GrantFault::None)?;
    if grant.id != *id {
        return Err(GrantFault::OtherId.into());
    }
    if grant.method != Method::StandingOnVpn || grant.client != now.client {
        return Err(GrantFault::OtherClient.into());
    }
    let (grant_id, site, role) = (grant.name(), grant.scope.site.to_string(), word(grant.scope.role));
    draft.event(EventKind::StandingLoginGrantRevoked { grant_id, site, role, reason });
    draft.done()
}

fn consume(
    state: &FileState,
    id: &GrantHash,
    target: (&SiteId, Role),
    launcher_pid: u32,
    now: &Now,
) -> Result<Applied, Error> {
    let launcher_pid = positive(launcher_pid)?;
    let policy = permits_dispatch(state)?;
    let mut draft = Draft::of(policy.clone(), now);
    let grant = draft.policy.grant.take().ok_or(GrantFault::None)?;
    grant.usable(id, &now.client, target, now.at)?;
    draft.spend(&grant, launcher_pid);
    draft.done()
}

fn finish(state: &FileState, grant: &GrantName, ending: Ending, now: &Now) -> Result<Applied, Error> {
    let mut draft = Draft::of(valid(state)?.clone(), now);
    let attempt = draft.policy.attempts.values_mut().find(|attempt| attempt.grant == *grant);
    let attempt = attempt
        .ok_or_else(|| Error::Conflict { reason: format!("there is no attempt of the grant {grant}") })?;
    if attempt.outcome != Outcome::Active {
        let reason = format!("the attempt of the grant {grant} has ended: {}", attempt.outcome.as_str());
        return Err(Error::Conflict { reason });
    }
    attempt.finish(ending, now.at);
    let attempt = attempt.clone();
    draft.finished(&attempt);
    draft.done()
}

fn same(policy: &Policy, cas: &Cas) -> Result<(), Error> {
    if policy.generation.as_str() == cas.generation && policy.revision == cas.revision {
        return Ok(());
    }
    let (generation, revision) = (policy.generation.as_str(), policy.revision);
    let reason = if generation == cas.generation {
        format!("the policy is at revision {revision}, not {}", cas.revision)
    } else {
        format!("the policy's generation is {generation}, not `{}`", cas.generation)
    };
    Err(Error::Conflict { reason })
}

fn positive(pid: u32) -> Result<u32, Error> {
    match pid {
        0 => Err(Error::Input { what: "launcher pid", reason: "is 0".to_owned() }),
        pid => Ok(pid),
    }
}
