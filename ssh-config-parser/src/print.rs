//! What `ssh -G` would print, as JSON.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::effective::{Effective, Placed};
use crate::expand::Tokens;
use crate::expanded::{DEFAULT_IDENTITIES, Expanded};
use crate::forward::Forward;
use crate::keywords::{Keyword, Shown, TABLE};
use crate::values::Value;

/// Gives lower-case keyword to string, or list of strings for the keywords that print one line a value.
pub(crate) fn printed(effective: &Effective, tokens: &Tokens, expanded: &Expanded) -> BTreeMap<String, Json> {
    let mut out = Printed::default();
    for entry in TABLE {
        let value = effective.value(entry.keyword);
        match (entry.shown, value) {
            (Shown::Apart, _) | (Shown::WhenSet, None) => {}
            (Shown::UnlessNone(_), Some(value)) if value.is_none_word() => {}
            (Shown::Default(_) | Shown::WhenSet | Shown::UnlessNone(_), Some(value)) => {
                out.text(entry.name(), &value.printed());
            }
            (Shown::Default(text) | Shown::UnlessNone(Some(text)), None) => {
                out.text(entry.name(), text.as_bytes());
            }
            (Shown::UnlessNone(None), None) => {}
        }
    }
    out.who(effective, tokens, expanded);
    out.keys(effective, expanded);
    out.algorithms(expanded);
    out.session(effective, expanded);
    out.sharing(effective, expanded);
    out.0
}

#[derive(Default)]
struct Printed(BTreeMap<String, Json>);

impl Printed {
    fn text(&mut self, name: &str, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.0.insert(name.to_owned(), Json::String(text));
    }

    fn maybe(&mut self, name: &str, text: Option<&[u8]>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn list<'a>(&mut self, name: &str, words: impl Iterator<Item = &'a [u8]>) {
        let words: Vec<Json> =
            words.map(|word| Json::String(String::from_utf8_lossy(word).into_owned())).collect();
        if !words.is_empty() {
            self.0.insert(name.to_owned(), Json::Array(words));
        }
    }

    fn who(&mut self, effective: &Effective, tokens: &Tokens, expanded: &Expanded) {
        self.text("host", &tokens.typed);
        self.text("hostname", &tokens.host);
        self.text("user", tokens.user.as_deref().unwrap_or_default());
        self.text("port", &tokens.port);
        if let Some(value @ Value::Jump(spec)) = effective.value(Keyword::ProxyJump)
            && !spec.hops().is_empty()
        {
            self.text("proxyjump", &value.printed());
            // A jump never passes a descriptor.
            self.text("proxyusefdpass", b"no");
        }
        let alias = effective.text(Keyword::HostKeyAlias);
        self.maybe("hostkeyalias", alias.map(<[u8]>::to_ascii_lowercase).as_deref());
        self.files("userknownhostsfile", &expanded.user_known_hosts_files);
        if effective.value(Keyword::GlobalKnownHostsFile).is_some_and(Value::is_none_word) {
            self.text("globalknownhostsfile", b"none");
        }
        if !expanded.revoked_host_keys.is_empty() {
            self.files("revokedhostkeys", &expanded.revoked_host_keys);
        }
        self.text("updatehostkeys", update_host_keys(effective).as_bytes());
    }

    /// Writes files on one line, `none` when there are none.
    fn files(&mut self, name: &str, files: &[PathBuf]) {
        let words: Vec<&[u8]> = files.iter().map(|file| file.as_os_str().as_bytes()).collect();
        if words.is_empty() {
            self.text(name, b"none");
        } else {
            self.text(name, &words.join(&b' '));
        }
    }

    fn keys(&mut self, effective: &Effective, expanded: &Expanded) {
        let raw = |files: &[Placed<Vec<u8>>]| -> Vec<Vec<u8>> {
            files.iter().map(|file| file.value.clone()).collect()
        };
        let mut identities = raw(&effective.identity_files);
        if identities.is_empty() {
            let names = DEFAULT_IDENTITIES.iter();
            identities.extend(names.map(|name| format!("~/.ssh/{name}").into_bytes()));
        }
        self.list("identityfile", identities.iter().map(Vec::as_slice));
        let certificates = raw(&effective.certificate_files);
        self.list("certificatefile", certificates.iter().map(Vec::as_slice));
        self.maybe("identityagent", expanded.identity_agent_text.as_deref());
        let rekey = [Keyword::RekeyLimit, Keyword::RekeyInterval]
            .map(|keyword| effective.number(keyword).unwrap_or(0).to_string());
        self.text("rekeylimit", rekey.join(" ").as_bytes());
    }

    fn algorithms(&mut self, expanded: &Expanded) {
        let lists = &expanded.algorithms;
        for (name, list) in [
            ("ciphers", &lists.ciphers),
            ("macs", &lists.macs),
            ("kexalgorithms", &lists.kex),
            ("hostkeyalgorithms", &lists.host_key),
            ("pubkeyacceptedalgorithms", &lists.pubkey),
            ("hostbasedacceptedalgorithms", &lists.hostbased),
            ("casignaturealgorithms", &lists.ca_signature),
        ] {
            self.text(name, list.join(",").as_bytes());
        }
    }

    fn session(&mut self, effective: &Effective, expanded: &Expanded) {
        self.maybe("remotecommand", expanded.remote_command.as_deref());
        let sent = effective.send_env.iter();
        self.list("sendenv", sent.map(|name| name.value.as_slice()));
        self.list("setenv", expanded.set_env.iter().map(Vec::as_slice));
        let agent = match &expanded.forward_agent_path {
            Some(path) => path.as_slice(),
            None => effective.choice(Keyword::ForwardAgent).unwrap_or("no").as_bytes(),
        };
        self.text("forwardagent", agent);
        if effective.choice(Keyword::ClearAllForwardings) == Some("yes") {
            // It clears the tunnel, too.
            self.text("tunnel", b"false");
            return;
        }
        let local = &expanded.local_forwards;
        let dynamic = local.iter().filter(|forward| forward.prints_as_dynamic());
        self.lines("dynamicforward", dynamic.map(|forward| forward.listen.printed()));
        let plain = local.iter().filter(|forward| forward.prints_as_local());
        self.lines("localforward", plain.map(Forward::printed));
        self.lines("remoteforward", expanded.remote_forwards.iter().map(Forward::printed));
    }

    /// Writes a keyword that may print several lines: one as a string, more as a list.
    fn lines(&mut self, name: &str, lines: impl Iterator<Item = Vec<u8>>) {
        let lines: Vec<Vec<u8>> = lines.collect();
        match lines.as_slice() {
            [line] => self.text(name, line),
            lines => self.list(name, lines.iter().map(Vec::as_slice)),
        }
    }

    fn sharing(&mut self, effective: &Effective, expanded: &Expanded) {
        let path = effective.value(Keyword::ControlPath);
        if !path.is_some_and(Value::is_none_word) {
            self.maybe("controlpath", expanded.control_path.as_deref());
        }
    }
}

/// Gives the value that OpenSSH settles on; here it is only printed.
fn update_host_keys(effective: &Effective) -> &'static str {
    let Some(word) = effective.choice(Keyword::UpdateHostKeys) else {
        let dns = matches!(effective.choice(Keyword::VerifyHostKeyDns), Some("true" | "ask"));
        let files = match effective.value(Keyword::UserKnownHostsFile) {
            Some(Value::List(files)) => files.as_slice() == [b"~/.ssh/known_hosts"],
            _ => true,
        };
        return if files && !dns { "true" } else { "false" };
    };
    let persists = !matches!(effective.value(Keyword::ControlPersist), None | Some(Value::Choice("no")));
    let named = |keyword| effective.value(keyword).is_some_and(|value| !value.is_none_word());
    let quiet = matches!(effective.choice(Keyword::LogLevel), Some("SILENT" | "FATAL" | "ERROR"));
    let unanswerable = (persists && named(Keyword::ControlPath))
        || named(Keyword::RemoteCommand)
        || effective.choice(Keyword::RequestTty) == Some("false")
        || quiet;
    if word == "ask" && unanswerable { "false" } else { word }
}
