//! What is refused and what is only noted.

use crate::effective::{Effective, Origin};
use crate::expand::shown;
use crate::expanded::Expanded;
use crate::jump::JumpSpec;
use crate::keywords::{Entry, Keyword, Policy, TABLE};
use crate::rejection::{Note, Reason, Rejection};
use crate::resolve::Problems;
use crate::values::Value;

/// Says why a value of this keyword is refused, if it is.
pub(crate) fn refusal(entry: &Entry, value: &Value) -> Option<String> {
    let Policy::Refuse(harmless, why) = entry.policy else {
        return None;
    };
    is_told(harmless, value).then(|| format!("{} is refused: {why}", entry.name()))
}

/// Says why a value of this keyword has no effect, if it has none.
pub(crate) fn remark(entry: &Entry, value: &Value) -> Option<String> {
    match (entry.policy, value) {
        (Policy::Note(harmless, why), value) if is_told(harmless, value) => {
            Some(format!("{} has no effect: {why}", entry.name()))
        }
        (_, Value::Choice("false")) if entry.keyword == Keyword::StrictHostKeyChecking => Some(
            "unknown host keys are accepted without asking; changed and revoked ones are still refused"
                .to_owned(),
        ),
        (_, Value::Jump(JumpSpec::None { commented: true })) => Some(
            "proxyjump none with a comment is none here; OpenSSH looks for a host of that name".to_owned(),
        ),
        _ => None,
    }
}

fn is_told(harmless: &[&str], value: &Value) -> bool {
    let printed = value.printed();
    !matches!(value, Value::Unset)
        && !harmless.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(&printed))
}

/// Tells whether `CanonicalizePermittedCNAMEs` asks for anything.
pub(crate) fn has_cname_rules(value: &Value) -> bool {
    !value.is_none_word()
}

/// Rejects rules for names behind names while canonicalisation is on: none is ever followed.
pub(crate) fn check_cname_rules(effective: &Effective) -> Result<(), Rejection> {
    match effective.placed(Keyword::CanonicalizePermittedCnames) {
        Some(placed) if has_cname_rules(&placed.value) => {
            let message = "canonicalizepermittedcnames is refused: names behind names are not followed";
            Err(Rejection::new(Reason::Refused, message).at(&placed.origin.file, Some(placed.origin.line)))
        }
        _ => Ok(()),
    }
}

/// Adds every effective value that is refused.
pub(crate) fn refuse(effective: &Effective, problems: &mut Problems) {
    for entry in TABLE {
        if let Some(placed) = effective.placed(entry.keyword)
            && let Some(why) = refusal(entry, &placed.value)
        {
            problems.add(Reason::Refused, why, &placed.origin);
        }
    }
    let permitted = effective.choice(Keyword::PermitLocalCommand) == Some("yes");
    if permitted
        && let Some(placed) = effective.placed(Keyword::LocalCommand)
        && !placed.value.is_none_word()
    {
        let why = "localcommand with permitlocalcommand is refused: it would start a program";
        problems.add(Reason::Refused, why.to_owned(), &placed.origin);
    }
    // Rules for names count also where only the second pass switches them on.
    if crate::canonical::is_on(effective)
        && let Err(rejection) = check_cname_rules(effective)
        && let Some(placed) = effective.placed(Keyword::CanonicalizePermittedCnames)
    {
        problems.add(Reason::Refused, rejection.message, &placed.origin);
    }
}

/// Lists what the effective values ask for without effect, in reading order.
pub(crate) fn notes(effective: &Effective, expanded: &Expanded) -> Vec<Note> {
    let mut told: Vec<(u64, Note)> = Vec::new();
    let mut tell = |message: String, origin: &Origin| {
        let note = Note { file: origin.file.to_path_buf(), line: origin.line, message };
        told.push((origin.order, note));
    };
    for entry in TABLE {
        let Some(placed) = effective.placed(entry.keyword) else {
            continue;
        };
        if let Some(message) = remark(entry, &placed.value) {
            tell(message, &placed.origin);
        }
        if let Some(message) = replaced(entry.name(), &placed.value.printed()) {
            tell(message, &placed.origin);
        }
    }
    let lists = [
        ("identityfile", &effective.identity_files),
        ("certificatefile", &effective.certificate_files),
        ("sendenv", &effective.send_env),
    ];
    for (name, list) in lists {
        for placed in list {
            if let Some(message) = replaced(name, &placed.value) {
                tell(message, &placed.origin);
            }
        }
    }
    let forwards = effective.local_forwards.iter().chain(&effective.remote_forwards);
    for placed in forwards {
        tell(NO_FORWARD.to_owned(), &placed.origin);
    }
    if let Some(placed) = effective.send_env.first() {
        tell("sendenv has no effect: no environment variables are sent".to_owned(), &placed.origin);
    }
    told.sort_by_key(|(order, _)| *order);
    let mut notes: Vec<Note> = told.into_iter().map(|(_, note)| note).collect();
    notes.extend(expanded.notes.iter().cloned());
    notes
}

/// Says that a value is shown otherwise than it is.
fn replaced(name: &str, value: &[u8]) -> Option<String> {
    let why = "that are not UTF-8 are replaced where the value is shown";
    std::str::from_utf8(value).is_err().then(|| format!("{name}: bytes of {} {why}", shown(value)))
}

const NO_FORWARD: &str = "a forwarding has no effect: none is opened with the connection";
