//! Answers for one host: reads the files, settles the name, expands the values.

use crate::algorithms::Class;
use crate::canonical::{self, NameLookup};
use crate::effective::{Effective, Origin};
use crate::expand::{Tokens, expand, expand_host_name, shown};
use crate::expanded::Expanded;
use crate::include::{Names, world_tokens};
use crate::jump::{self, Hop, Uri};
use crate::keywords::Keyword;
use crate::policy;
use crate::print;
use crate::rejection::{Reason, Rejection};
use crate::resolved::Resolved;
use crate::snapshot::Snapshot;
use crate::typed;
use crate::values::Value;
use crate::walk::Walk;

/// What the caller typed: a host and, optionally, a user and a port that win over every file.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) host: Vec<u8>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) port: Option<u16>,
}

impl Asked {
    /// Reads what [`Asked::parse`] reads, and `[user@][v6]:port`, which OpenSSH takes for a hop but not from a caller.
    pub(crate) fn parse_destination(text: &str, snapshot: &Snapshot) -> Result<Asked, Rejection> {
        let after_user = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        if !after_user.starts_with('[') {
            return Asked::parse(text, snapshot);
        }
        let services = snapshot.store().context(&snapshot.world().env).services;
        let bad = |why: &str| Rejection::new(Reason::Syntax, format!("host {text:?} {why}"));
        let Some(Hop { user, host, port }) = Hop::parse(text.as_bytes(), services.get()) else {
            return Err(bad("is not [address]:port"));
        };
        let asked = Asked { host, user, port };
        asked.check().map_err(bad)?;
        Ok(asked)
    }

    /// Reads `name`, `user@name` or `ssh://user@name:port` and checks its characters.
    pub(crate) fn parse(text: &str, snapshot: &Snapshot) -> Result<Asked, Rejection> {
        let bytes = text.as_bytes();
        let services = snapshot.store().context(&snapshot.world().env).services;
        let bad = |why: &str| Err(Rejection::new(Reason::Syntax, format!("host {text:?} {why}")));
        let asked = match jump::uri(bytes, services.get()) {
            Uri::Bad => return bad("is not an ssh:// URI"),
            Uri::Hop(Hop { user, host, port }) => Asked { host, user, port },
            Uri::No => match text.rsplit_once('@') {
                Some(("", _)) => return bad("has an empty user"),
                Some((user, host)) => Asked { host: host.into(), user: Some(user.into()), port: None },
                None => Asked { host: bytes.to_vec(), user: None, port: None },
            },
        };
        match asked.check() {
            Ok(()) => Ok(asked),
            Err(why) => bad(why),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.host.is_empty() {
            return Err("is empty");
        }
        if !is_legal_host(&self.host) {
            return Err("holds characters that no host name may hold");
        }
        if self.user.as_deref().is_some_and(|user| !is_legal_user(user)) {
            return Err("has a user with characters that no user may hold");
        }
        Ok(())
    }
}

/// Tells whether a typed host name is free of what a shell might misread.
fn is_legal_host(host: &[u8]) -> bool {
    !host.starts_with(b"-")
        && !host
            .iter()
            .any(|byte| b"'`\"$\\;&<>|(){},".contains(byte) || *byte == b' ' || byte.is_ascii_control())
}

/// Tells the same of a user; a blank is allowed unless `-` follows it.
fn is_legal_user(user: &[u8]) -> bool {
    !user.starts_with(b"-")
        && !user.ends_with(b"\\")
        && !user.windows(2).any(|pair| pair == b" -")
        && !user.iter().any(|byte| b"'`\";&<>|(){}".contains(byte) || byte.is_ascii_control())
}

/// Answers for one host.
pub(crate) fn resolve(
    snapshot: &Snapshot,
    asked: &Asked,
    lookup: NameLookup<'_>,
) -> Result<Resolved, Rejection> {
    let mut effective = Effective::given(asked.user.clone(), asked.port);
    let names = Names { host: &asked.host, typed: &asked.host };
    Walk::new(snapshot, names, &mut effective).run()?;
    let host = configured_host(&effective, &asked.host)?;
    if canonical::is_on(&effective) {
        policy::check_cname_rules(&effective)?;
    }
    let host = canonical::final_name(&host, &effective, lookup)?;
    if canonical::is_on(&effective) {
        effective.settled = Some(host.clone());
        let names = Names { host: &host, typed: &asked.host };
        Walk::new(snapshot, names, &mut effective).run()?;
    }
    finish(snapshot, asked, &effective, host)
}

/// Applies `HostName` to the typed name.
fn configured_host(effective: &Effective, typed: &[u8]) -> Result<Vec<u8>, Rejection> {
    let Some(placed) = effective.placed(Keyword::HostName) else {
        return Ok(typed.to_vec());
    };
    expand_host_name(&placed.value.printed(), typed).map_err(|why| {
        Rejection::new(Reason::Expansion, format!("hostname: {why}"))
            .at(&placed.origin.file, Some(placed.origin.line))
    })
}

/// Problems that show only when all files are read; the one whose directive comes first is reported.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<(u64, Rejection)>);

impl Problems {
    /// Adds a problem of a directive.
    pub(crate) fn add(&mut self, reason: Reason, message: String, origin: &Origin) {
        let rejection = Rejection::new(reason, message).at(&origin.file, Some(origin.line));
        self.0.push((origin.order, rejection));
    }

    fn first(self) -> Result<(), Rejection> {
        match self.0.into_iter().min_by_key(|(order, _)| *order) {
            Some((_, rejection)) => Err(rejection),
            None => Ok(()),
        }
    }
}

fn finish(
    snapshot: &Snapshot,
    asked: &Asked,
    effective: &Effective,
    host: Vec<u8>,
) -> Result<Resolved, Rejection> {
    let mut problems = Problems::default();
    let port = asked.port.unwrap_or_else(|| {
        let port = effective.number(Keyword::Port).unwrap_or(22);
        // A port was checked to fit when its line was read.
        u16::try_from(port).unwrap_or(22)
    });
    let mut tokens = Tokens {
        key_alias: effective
            .text(Keyword::HostKeyAlias)
            .map_or_else(|| asked.host.clone(), <[u8]>::to_ascii_lowercase),
        host,
        typed: asked.host.clone(),
        port: port.to_string().into_bytes(),
        ..world_tokens(snapshot.world(), effective)
    };
    let user = user(snapshot, effective, &tokens, &mut problems);
    tokens.user = Some(user);
    let expanded = Expanded::new(snapshot, effective, &tokens, &mut problems);
    policy::refuse(effective, &mut problems);
    let attempts = effective.placed(Keyword::ConnectionAttempts);
    if let Some(placed) = attempts
        && placed.value == Value::Number(0)
    {
        let message = "connectionattempts: 0 is less than 1".to_owned();
        problems.add(Reason::Syntax, message, &placed.origin);
    }
    problems.first()?;
    refuse_own_jump(effective, &tokens, port)?;
    let notes = policy::notes(effective, &expanded);
    let printed = print::printed(effective, &tokens, &expanded);
    Ok(typed::answer(effective, &tokens, port, expanded, (notes, printed)))
}

/// Gives the user: the caller's, the configured one with its tokens replaced, or the local one.
fn user(snapshot: &Snapshot, effective: &Effective, tokens: &Tokens, problems: &mut Problems) -> Vec<u8> {
    if let Some(user) = &effective.given_user {
        return user.clone();
    }
    let Some(placed) = effective.placed(Keyword::User) else {
        return snapshot.world().user.clone().into_bytes();
    };
    let written = placed.value.printed();
    match expand(&written, Some(tokens), Some(&snapshot.world().env)) {
        Ok(user) => {
            // What a file says literally is trusted; what came in by a token is checked.
            if user != written && !is_legal_user(&user) {
                let message = format!("user: {} holds illegal characters", shown(&user));
                problems.add(Reason::Expansion, message, &placed.origin);
            }
            user
        }
        Err(why) => {
            problems.add(Reason::Expansion, format!("user: {why}"), &placed.origin);
            written
        }
    }
}

/// Rejects a host whose last hop is the host itself.
fn refuse_own_jump(effective: &Effective, tokens: &Tokens, port: u16) -> Result<(), Rejection> {
    let Some(placed) = effective.placed(Keyword::ProxyJump) else {
        return Ok(());
    };
    let Value::Jump(spec) = &placed.value else {
        return Ok(());
    };
    let Some(hop) = spec.hops().last() else {
        return Ok(());
    };
    let same_user = hop.user.is_none() || hop.user == tokens.user;
    if hop.host == tokens.host && hop.port.unwrap_or(22) == port && same_user {
        let message = format!("host {} is reached through itself", shown(&hop.host));
        return Err(
            Rejection::new(Reason::JumpLoop, message).at(&placed.origin.file, Some(placed.origin.line))
        );
    }
    Ok(())
}

/// Gives the effective list of a class, or an error naming the keyword.
pub(crate) fn algorithm_list(
    effective: &Effective,
    keyword: Keyword,
    class: Class,
    problems: &mut Problems,
) -> Vec<String> {
    let placed = effective.placed(keyword);
    match class.expand(effective.text(keyword)) {
        Ok(names) => names,
        Err(why) => {
            if let Some(placed) = placed {
                problems.add(Reason::Syntax, why, &placed.origin);
            }
            Vec::new()
        }
    }
}
