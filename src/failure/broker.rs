//! The errors of `broker` as the contract's kinds.

use serde_json::Value;

use super::{Failure, shown};
use crate::broker::Error;
use crate::config::{Role, SiteName};
use crate::kind::Kind;
use crate::line;
use crate::policy;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = error.to_string();
        match error {
            Error::Config(error) => error.into(),
            Error::Opening(error) => error.into(),
            Error::Open(error) => error.into(),
            Error::Policy(error) => error.into(),
            Error::Disk(fault) => policy::Error::from(fault).into(),
            Error::NotConnected { site, role, .. } => about(Kind::NotConnected, message, &site, role)
                .hint(format!("open a line with `towline connect {site}{}`", option(role))),
            Error::DestinationChanged { site, role, .. } => {
                about(Kind::DestinationChanged, message, &site, role).hint(format!(
                    "`towline disconnect {site}{}`, then connect anew; or set the ssh config back",
                    option(role)
                ))
            }
            Error::AlreadyConnected { site, role } => about(Kind::AlreadyConnected, message, &site, role)
                .hint(format!(
                    "wait for it, see `towline status`, or end it with `towline disconnect {site}{}`",
                    option(role)
                )),
            Error::SocketTaken { path } => Failure::new(Kind::PolicyInvalid, message)
                .hint("look what it is, then move it away")
                .field("file", shown(&path)),
            Error::Launch { .. } => Failure::new(Kind::BootstrapFailed, message)
                .field("phase", "broker")
                .hint("see `towline status` and the line's log; a human has to approve another opening"),
            Error::Io { path, .. } => Failure::new(Kind::PolicyInvalid, message)
                .hint("see the system's message: towline must be able to use its own directory")
                .field("file", shown(&path)),
            Error::Told { error } => told(error, message),
            Error::Ended(reason) => line::Error::Lost(reason).into(),
        }
    }
}

fn about(kind: Kind, message: String, site: &SiteName, role: Role) -> Failure {
    Failure::new(kind, message).field("site", site.as_str()).field("role", role.as_str())
}

fn option(role: Role) -> String {
    match role {
        Role::Login => String::new(),
        Role::Transfer => format!(" --role {role}"),
    }
}

/// What another process of ours has said as the contract's error object.
fn told(error: Value, message: String) -> Failure {
    let Value::Object(mut fields) = error else { return Failure::new(Kind::Internal, message) };
    fields.remove("message");
    let kind = fields.remove("kind").and_then(|kind| serde_json::from_value(kind).ok());
    let failure = Failure::new(kind.unwrap_or(Kind::Internal), message);
    let hint = fields.remove("hint").and_then(|hint| hint.as_str().map(str::to_owned));
    let retry_safe = fields.remove("retry_safe").and_then(|safe| safe.as_bool());
    Failure {
        hint: hint.unwrap_or_else(|| failure.hint.clone()),
        retry_safe: retry_safe.unwrap_or(failure.retry_safe),
        fields,
        ..failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_broker_says_is_shown_as_if_it_had_happened_here() {
        let here = Failure::new(Kind::AuthFailed, "no").hint("h").field("phase", "authentication");
        let error = here.to_json().get("error").cloned().unwrap();
        assert_eq!(Failure::from(Error::Told { error }), here);
        assert_eq!(Failure::from(Error::Told { error: Value::Null }).kind, Kind::Internal);
    }
}
