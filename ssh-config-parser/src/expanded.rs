//! Values with their tokens, variables and tildes replaced.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::algorithms::Class;
use crate::effective::{Effective, Origin, Placed};
use crate::expand::{Tokens, expand, tilde};
use crate::forward::{End, Forward};
use crate::keywords::Keyword;
use crate::rejection::{Note, Reason};
use crate::resolve::{Problems, algorithm_list};
use crate::resolved::{IdentityAgent, IdentityFile};
use crate::snapshot::Snapshot;
use crate::values::Value;

/// Identity files that are tried when none is configured, as 9.2 lists them, below `~/.ssh`.
pub(crate) const DEFAULT_IDENTITIES: &[&str] =
    &["id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss", "id_dsa"];
const DEFAULT_KNOWN_HOSTS: &[&[u8]] = &[b"~/.ssh/known_hosts", b"~/.ssh/known_hosts2"];
const DEFAULT_GLOBAL_KNOWN_HOSTS: &[&[u8]] = &[b"/etc/ssh/ssh_known_hosts", b"/etc/ssh/ssh_known_hosts2"];

/// The algorithm lists, expanded.
#[derive(Debug)]
pub(crate) struct Algorithms {
    pub(crate) ciphers: Vec<String>,
    pub(crate) macs: Vec<String>,
    pub(crate) kex: Vec<String>,
    pub(crate) host_key: Vec<String>,
    pub(crate) pubkey: Vec<String>,
    pub(crate) hostbased: Vec<String>,
    pub(crate) ca_signature: Vec<String>,
}

/// All values that the files only describe.
#[derive(Debug)]
pub(crate) struct Expanded {
    pub(crate) algorithms: Algorithms,
    pub(crate) identity_files: Vec<IdentityFile>,
    pub(crate) certificate_files: Vec<PathBuf>,
    pub(crate) identity_agent: IdentityAgent,
    /// The agent as it prints.
    pub(crate) identity_agent_text: Option<Vec<u8>>,
    pub(crate) user_known_hosts_files: Vec<PathBuf>,
    pub(crate) global_known_hosts_files: Vec<PathBuf>,
    pub(crate) revoked_host_keys: Vec<PathBuf>,
    pub(crate) control_path: Option<Vec<u8>>,
    pub(crate) remote_command: Option<Vec<u8>>,
    pub(crate) forward_agent_path: Option<Vec<u8>>,
    pub(crate) set_env: Vec<Vec<u8>>,
    pub(crate) local_forwards: Vec<Forward>,
    pub(crate) remote_forwards: Vec<Forward>,
    /// Key files that cannot be used because a token or variable has no value.
    pub(crate) notes: Vec<Note>,
}

/// Replaces tokens in the values of one host.
struct Expander<'a> {
    snapshot: &'a Snapshot,
    effective: &'a Effective,
    tokens: &'a Tokens,
}

impl Expanded {
    /// Expands everything; what has no value is added to `problems`.
    pub(crate) fn new(
        snapshot: &Snapshot,
        effective: &Effective,
        tokens: &Tokens,
        problems: &mut Problems,
    ) -> Expanded {
        let expander = Expander { snapshot, effective, tokens };
        let mut notes = Vec::new();
        let agent_text = expander.path(Keyword::IdentityAgent, problems);
        Expanded {
            algorithms: expander.algorithms(problems),
            identity_files: expander.identity_files(&mut notes),
            certificate_files: expander.key_files(&effective.certificate_files, &mut notes),
            identity_agent: expander.agent(agent_text.as_deref()),
            identity_agent_text: agent_text,
            user_known_hosts_files: expander.user_known_hosts(problems),
            global_known_hosts_files: expander.global_known_hosts(),
            revoked_host_keys: expander.list(Keyword::RevokedHostKeys, problems),
            control_path: expander.path(Keyword::ControlPath, problems),
            remote_command: expander.remote_command(problems),
            forward_agent_path: expander.path(Keyword::ForwardAgentPath, problems),
            set_env: expander.set_env(problems),
            local_forwards: expander.forwards(&effective.local_forwards, problems),
            remote_forwards: expander.forwards(&effective.remote_forwards, problems),
            notes,
        }
    }
}

impl Expander<'_> {
    fn algorithms(&self, problems: &mut Problems) -> Algorithms {
        let mut list = |keyword, class| algorithm_list(self.effective, keyword, class, problems);
        Algorithms {
            ciphers: list(Keyword::Ciphers, Class::Cipher),
            macs: list(Keyword::Macs, Class::Mac),
            kex: list(Keyword::KexAlgorithms, Class::Kex),
            host_key: list(Keyword::HostKeyAlgorithms, Class::HostKey),
            pubkey: list(Keyword::PubkeyAcceptedAlgorithms, Class::HostKey),
            hostbased: list(Keyword::HostbasedAcceptedAlgorithms, Class::HostKey),
            ca_signature: list(Keyword::CaSignatureAlgorithms, Class::CaSignature),
        }
    }

    /// Replaces the tilde, then tokens and variables.
    fn path_text(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let world = self.snapshot.world();
        let users = |user: &[u8]| self.snapshot.user_home(user);
        let text = tilde(text, &world.home, &users)?;
        expand(&text, Some(self.tokens), Some(&world.env))
    }

    /// Expands a keyword that holds one path; the word `none` stays.
    fn path(&self, keyword: Keyword, problems: &mut Problems) -> Option<Vec<u8>> {
        let placed = self.effective.placed(keyword)?;
        if placed.value.is_none_word() {
            return Some(placed.value.printed());
        }
        let text = self.path_text(&placed.value.printed());
        keep(text, keyword, &placed.origin, problems)
    }

    fn list(&self, keyword: Keyword, problems: &mut Problems) -> Vec<PathBuf> {
        let Some(placed) = self.effective.placed(keyword) else {
            return Vec::new();
        };
        let Value::List(words) = &placed.value else {
            return Vec::new();
        };
        if placed.value.is_none_word() {
            return Vec::new();
        }
        words
            .iter()
            .filter_map(|word| keep(self.path_text(word), keyword, &placed.origin, problems))
            .map(to_path)
            .collect()
    }

    fn user_known_hosts(&self, problems: &mut Problems) -> Vec<PathBuf> {
        if self.effective.value(Keyword::UserKnownHostsFile).is_some() {
            return self.list(Keyword::UserKnownHostsFile, problems);
        }
        DEFAULT_KNOWN_HOSTS
            .iter()
            // The tilde of the default names no user, so it always has a value.
            .filter_map(|file| self.path_text(file).ok())
            .map(to_path)
            .collect()
    }

    /// Takes the system's files as written: nothing in their names is replaced.
    fn global_known_hosts(&self) -> Vec<PathBuf> {
        match self.effective.value(Keyword::GlobalKnownHostsFile) {
            Some(value) if value.is_none_word() => Vec::new(),
            Some(Value::List(words)) => words.iter().cloned().map(to_path).collect(),
            _ => DEFAULT_GLOBAL_KNOWN_HOSTS.iter().map(|file| to_path(file.to_vec())).collect(),
        }
    }

    fn identity_files(&self, notes: &mut Vec<Note>) -> Vec<IdentityFile> {
        let configured = &self.effective.identity_files;
        if configured.is_empty() {
            let folder = self.snapshot.world().home.join(".ssh");
            return DEFAULT_IDENTITIES
                .iter()
                .map(|name| IdentityFile { path: folder.join(name), configured: false })
                .collect();
        }
        self.key_files(configured, notes)
            .into_iter()
            .map(|path| IdentityFile { path, configured: true })
            .collect()
    }

    /// Expands key files; one whose name has no value is left out with a note, as it is only read when tried.
    fn key_files(&self, files: &[Placed<Vec<u8>>], notes: &mut Vec<Note>) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for file in files {
            if file.value.eq_ignore_ascii_case(b"none") {
                continue;
            }
            match self.path_text(&file.value) {
                Ok(path) => paths.push(to_path(path)),
                Err(why) => notes.push(Note {
                    file: file.origin.file.to_path_buf(),
                    line: file.origin.line,
                    message: format!("key file is not used: {why}"),
                }),
            }
        }
        paths
    }

    fn agent(&self, text: Option<&[u8]>) -> IdentityAgent {
        let text = match text {
            None => return IdentityAgent::Default,
            Some(b"SSH_AUTH_SOCK") => return IdentityAgent::Default,
            Some(text) if text.eq_ignore_ascii_case(b"none") => return IdentityAgent::None,
            Some(text) => text,
        };
        match text.strip_prefix(b"$") {
            // A variable that is not set means that there is no agent.
            Some(name) => self
                .snapshot
                .world()
                .env
                .get(OsStr::from_bytes(name))
                .map_or(IdentityAgent::None, |path| IdentityAgent::Path(path.into())),
            None => IdentityAgent::Path(to_path(text.to_vec())),
        }
    }

    /// Replaces tokens only: a shell on the other side would see to the rest, if it were run.
    fn remote_command(&self, problems: &mut Problems) -> Option<Vec<u8>> {
        let placed = self.effective.placed(Keyword::RemoteCommand)?;
        if placed.value.is_none_word() {
            return None;
        }
        let text = expand(&placed.value.printed(), Some(self.tokens), None);
        keep(text, Keyword::RemoteCommand, &placed.origin, problems)
    }

    /// Replaces tokens and variables behind the first `=` of each.
    fn set_env(&self, problems: &mut Problems) -> Vec<Vec<u8>> {
        let Some(placed) = self.effective.placed(Keyword::SetEnv) else {
            return Vec::new();
        };
        let Value::List(words) = &placed.value else {
            return Vec::new();
        };
        let env = &self.snapshot.world().env;
        let expanded = |word: &Vec<u8>| {
            let equals = word.iter().position(|byte| *byte == b'=').unwrap_or(0);
            let (name, value) = word.split_at(equals);
            let value = expand(value, Some(self.tokens), Some(env))?;
            Ok([name, value.as_slice()].concat())
        };
        words
            .iter()
            .filter_map(|word| keep(expanded(word), Keyword::SetEnv, &placed.origin, problems))
            .collect()
    }

    fn forwards(&self, forwards: &[Placed<Forward>], problems: &mut Problems) -> Vec<Forward> {
        forwards
            .iter()
            .filter_map(|placed| {
                let mut end = |end: &End| match end {
                    End::Path(path) => {
                        let path = expand(path, Some(self.tokens), None);
                        keep(path, Keyword::LocalForward, &placed.origin, problems).map(End::Path)
                    }
                    port => Some(port.clone()),
                };
                Some(Forward { listen: end(&placed.value.listen)?, connect: end(&placed.value.connect)? })
            })
            .collect()
    }
}

fn keep(
    text: Result<Vec<u8>, String>,
    keyword: Keyword,
    origin: &Origin,
    problems: &mut Problems,
) -> Option<Vec<u8>> {
    match text {
        Ok(text) => Some(text),
        Err(why) => {
            let name = format!("{keyword:?}").to_ascii_lowercase();
            problems.add(Reason::Expansion, format!("{name}: {why}"), origin);
            None
        }
    }
}

fn to_path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}
