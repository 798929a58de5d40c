//! The errors of `policy`, `audit` and `disk` as the contract's kinds.

use std::io::ErrorKind;

use super::{Failure, shown};
use crate::audit;
use crate::disk::Fault;
use crate::kind::Kind;
use crate::policy::{Error, GrantFault};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = error.to_string();
        match error {
            Error::Invalid { file, .. } => {
                let failure = Failure::new(Kind::PolicyInvalid, message).hint(
                    "see `towline policy show`; `towline policy disable` makes a missing file and repairs a malformed one",
                );
                match file {
                    Some(file) => failure.field("file", shown(&file)),
                    None => failure,
                }
            }
            Error::Text { what, .. } => Failure::new(Kind::PolicyInvalid, message)
                .hint("write one line of at most 240 characters")
                .field("which", what),
            Error::Input { what, .. } => Failure::new(Kind::InvalidInput, message).field("which", what),
            Error::Conflict { .. } => {
                Failure::new(Kind::PolicyConflict, message).hint("see `towline policy show`, and decide anew")
            }
            Error::Denied { .. } => Failure::new(Kind::PolicyDenied, message)
                .hint("a human can permit it on a terminal with `towline policy enable-reuse`"),
            Error::Grant { fault } => Failure::new(Kind::GrantInvalid, message)
                .hint(grant_hint(fault))
                .field("reason", fault.as_str()),
            Error::Cooldown { site, seconds_left } => Failure::new(Kind::Cooldown, message)
                .hint(format!("wait {seconds_left} s; an open line can be used meanwhile"))
                .field("site", site)
                .field("seconds_left", seconds_left),
            Error::Busy { file, .. } => Failure::new(Kind::Busy, message)
                .hint("a process that holds it may be stopped; `towline policy disable` works all the same")
                .field("file", shown(&file)),
            Error::NoRequest { id } => Failure::new(Kind::NotFound, message)
                .hint("see `towline approve` for the requests that wait")
                .field("id", id),
            Error::TooManyRequests { limit } => Failure::new(Kind::PolicyDenied, message)
                .hint("a human has to answer some first: `towline approve`, `towline deny REQUEST`")
                .field("limit", limit),
            Error::Disk(fault) => disk(fault, message),
            Error::Audit(error) => Failure { message, ..Failure::from(error) },
            Error::Encode(_) => Failure::new(Kind::Internal, message),
        }
    }
}

fn grant_hint(fault: GrantFault) -> &'static str {
    match fault {
        GrantFault::None | GrantFault::Used | GrantFault::Expired => {
            "ask for a new grant: `towline policy grant SITE`, or `towline connect SITE` on a terminal"
        }
        GrantFault::Exists => {
            "use the grant that waits, wait until it expires, or `towline policy revoke` it; see `towline policy show`"
        }
        GrantFault::OtherId => {
            "present the id as it was printed; `towline policy show` tells the grant's name"
        }
        GrantFault::OtherClient => "only the process that it was made for can use it",
        GrantFault::OtherSite | GrantFault::OtherRole => {
            "a grant opens the one role of the one site that it was given for; see `towline policy show`"
        }
        GrantFault::OtherAttempt => "begin anew with `towline connect SITE`",
    }
}

impl From<audit::Error> for Failure {
    fn from(error: audit::Error) -> Failure {
        let message = error.to_string();
        let failure = match error {
            audit::Error::Disk(fault) => disk(fault, message),
            audit::Error::NotDurable { file, .. } => {
                Failure::new(Kind::PolicyInvalid, message).field("file", shown(&file))
            }
            audit::Error::Encode(_) => Failure::new(Kind::Internal, message),
        };
        failure.field("reason", "audit")
    }
}

/// Files of ours in the state directory: what cannot be used permits nothing.
fn disk(fault: Fault, message: String) -> Failure {
    let path = shown(fault.path());
    let failure = match fault {
        Fault::Missing { .. } | Fault::Unsafe { .. } | Fault::TooLarge { .. } => {
            Failure::new(Kind::PolicyInvalid, message)
        }
        Fault::Busy { .. } => Failure::new(Kind::Busy, message),
        Fault::Io { source, .. } => match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Failure::new(Kind::NoSpace, message),
            _ => Failure::new(Kind::PolicyInvalid, message)
                .hint("see the system's message: towline must be able to read and write its own directory"),
        },
    };
    failure.field("file", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_the_contracts_kind_code_and_facts() {
        let text = || "x".to_owned();
        for (error, kind, code) in [
            (Error::Invalid { reason: text(), file: None }, "policy_invalid", 3),
            (Error::Text { what: "reason", reason: text() }, "policy_invalid", 3),
            (Error::Input { what: "ttl", reason: text() }, "invalid_input", 2),
            (Error::Conflict { reason: text() }, "policy_conflict", 3),
            (Error::Denied { reason: text() }, "policy_denied", 3),
            (Error::Grant { fault: GrantFault::Exists }, "grant_invalid", 3),
            (Error::Cooldown { site: text(), seconds_left: 7 }, "cooldown", 3),
            (Error::NoRequest { id: text() }, "not_found", 7),
            (Error::TooManyRequests { limit: 16 }, "policy_denied", 3),
        ] {
            let failure = Failure::from(error);
            assert_eq!((failure.kind.as_str(), failure.kind.exit_code()), (kind, code), "{failure:?}");
            assert!(!failure.retry_safe);
        }
        let cooldown = Failure::from(Error::Cooldown { site: "hpc".to_owned(), seconds_left: 7 });
        assert_eq!((&cooldown.fields["site"], &cooldown.fields["seconds_left"]), (&"hpc".into(), &7.into()));
    }

    #[test]
    fn a_held_lock_may_be_asked_for_again_and_a_full_disk_is_named() {
        let busy = Fault::Busy { path: "/f".into(), waited: std::time::Duration::ZERO };
        assert!(Failure::from(Error::from(busy)).retry_safe);
        let full = Fault::Io {
            doing: "write",
            path: "/f".into(),
            source: std::io::Error::from(ErrorKind::StorageFull),
        };
        let failure = Failure::from(Error::Audit(audit::Error::Disk(full)));
        assert_eq!((failure.kind, &failure.fields["reason"]), (Kind::NoSpace, &"audit".into()));
    }
}
