//! A grant: the permission to open one line, once, soon.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::error::{Error, GrantFault};
use super::super::id::{ClientId, GrantHash, GrantName, SiteId};
use super::super::text;
use super::time::Timestamp;
use crate::config::Role;

/// Longest life of a grant.
pub(super) const TTL_MAX: Duration = Duration::from_secs(300);

/// What a grant was given for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The site.
    pub site: SiteId,
    /// The role of it.
    pub role: Role,
    /// Whether the line may be opened without a proven VPN route.
    pub allow_offvpn: bool,
}

/// Who allowed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// A human, there and then.
    #[default]
    ExplicitUserApproval,
    /// The site's `approval = "vpn"`, over a proven route.
    StandingOnVpn,
    /// The site's `approval = "open"`.
    OpenSite,
}

impl Method {
    /// The word in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::ExplicitUserApproval => "explicit_user_approval",
            Method::StandingOnVpn => "standing_on_vpn",
            Method::OpenSite => "open_site",
        }
    }

    /// Whether towline mints it for the very process that uses it; a human's grant belongs to whoever has its id.
    fn binds_client(self) -> bool {
        match self {
            Method::ExplicitUserApproval => false,
            Method::StandingOnVpn | Method::OpenSite => true,
        }
    }
}

/// An unconsumed grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What is stored of its id.
    pub id: GrantHash,
    /// The process that issued it.
    pub client: ClientId,
    /// What for.
    pub scope: Scope,
    /// Who allowed it.
    pub method: Method,
    /// Why, in the words of whoever allowed it.
    pub reference: String,
    /// When.
    pub created_at: Timestamp,
    /// Until when, this moment excluded.
    pub expires_at: Timestamp,
    /// How many attempts are left: 0 or 1.
    pub remaining_attempts: u8,
}

impl Grant {
    /// Its name.
    pub fn name(&self) -> GrantName {
        self.id.name()
    }

    /// Whether its time is over.
    pub fn expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }

    /// Checks, in this order: id, client, site, role, attempts, time.
    ///
    /// # Errors
    /// [`Error::Grant`] with the first that differs.
    pub fn usable(
        &self,
        id: &GrantHash,
        client: &ClientId,
        (site, role): (&SiteId, Role),
        now: Timestamp,
    ) -> Result<(), Error> {
        let fault = if self.id != *id {
            GrantFault::OtherId
        } else if self.method.binds_client() && self.client != *client {
            GrantFault::OtherClient
        } else if self.scope.site != *site {
            GrantFault::OtherSite
        } else if self.scope.role != role {
            GrantFault::OtherRole
        } else if self.remaining_attempts == 0 {
            GrantFault::Used
        } else if self.expired(now) {
            GrantFault::Expired
        } else {
            return Ok(());
        };
        Err(fault.into())
    }
}

/// A grant as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GrantForm {
    id_sha256: String,
    client_id: String,
    site: String,
    role: String,
    allow_offvpn: bool,
    #[serde(default)]
    authorization_method: Method,
    approval_reference: String,
    created_at: Timestamp,
    expires_at: Timestamp,
    remaining_attempts: u8,
}

impl GrantForm {
    /// Checks every rule of a grant that does not depend on the present time.
    pub(super) fn check(self) -> Result<Grant, String> {
        let id = GrantHash::parse(&self.id_sha256).ok_or("its grant's id_sha256 is no SHA-256")?;
        if self.client_id.is_empty() {
            return Err("its grant's client_id is empty".to_owned());
        }
        let site = SiteId::parse(&self.site).map_err(|error| format!("its grant: {error}"))?;
        let role = role(&self.role).ok_or("its grant's role is no role")?;
        if !text::is_reference(&self.approval_reference) {
            return Err("its grant's approval_reference is not as it must be".to_owned());
        }
        // Both are bounded by 2^50, so the difference cannot overflow.
        let life_ms = self.expires_at.ms() - self.created_at.ms();
        if life_ms <= 0 || u128::try_from(life_ms).is_ok_and(|ms| ms > TTL_MAX.as_millis()) {
            return Err(format!("its grant lives for {life_ms} ms"));
        }
        if self.remaining_attempts > 1 {
            return Err("its grant has more than one attempt".to_owned());
        }
        if self.authorization_method == Method::StandingOnVpn && self.allow_offvpn {
            return Err("its standing grant allows what no VPN proves".to_owned());
        }
        Ok(Grant {
            id,
            client: ClientId(self.client_id),
            scope: Scope { site, role, allow_offvpn: self.allow_offvpn },
            method: self.authorization_method,
            reference: self.approval_reference,
            created_at: self.created_at,
            expires_at: self.expires_at,
            remaining_attempts: self.remaining_attempts,
        })
    }

    pub(super) fn of(grant: &Grant) -> serde_json::Value {
        serde_json::json!({
            "id_sha256": grant.id,
            "client_id": grant.client.as_str(),
            "site": grant.scope.site,
            "role": grant.scope.role,
            "allow_offvpn": grant.scope.allow_offvpn,
            "authorization_method": grant.method,
            "approval_reference": grant.reference,
            "created_at": grant.created_at,
            "expires_at": grant.expires_at,
            "remaining_attempts": grant.remaining_attempts,
        })
    }
}

/// Reads a role's word.
pub(super) fn role(text: &str) -> Option<Role> {
    Role::ALL.into_iter().find(|role| role.as_str() == text)
}
