//! Tokens, environment variables and the tilde.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use crate::context::Env;

/// What the percent tokens stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    /// %h, the final host name.
    pub(crate) host: Vec<u8>,
    /// %n, the name as typed.
    pub(crate) typed: Vec<u8>,
    /// %p, the port in decimal.
    pub(crate) port: Vec<u8>,
    /// %r, the remote user; none while `User` itself is expanded, when %r and %C are unknown.
    pub(crate) user: Option<Vec<u8>>,
    /// %u, the local user.
    pub(crate) local_user: Vec<u8>,
    /// %i, the local user's number.
    pub(crate) uid: Vec<u8>,
    /// %d, the local home folder.
    pub(crate) home: Vec<u8>,
    /// %l, the local host name.
    pub(crate) local_host: Vec<u8>,
    /// %k, the name in known_hosts.
    pub(crate) key_alias: Vec<u8>,
    /// %j, the last jump host, or empty.
    pub(crate) jump_host: Vec<u8>,
}

/// Tokens that depend on the host that is asked for.
pub(crate) const HOST_TOKENS: &[u8] = b"hnprkjC";

impl Tokens {
    fn value(&self, token: u8) -> Option<Vec<u8>> {
        let short = || {
            let name = self.local_host.split(|byte| *byte == b'.').next();
            name.unwrap_or_default().to_vec()
        };
        Some(match token {
            b'h' => self.host.clone(),
            b'n' => self.typed.clone(),
            b'p' => self.port.clone(),
            b'r' => self.user.clone()?,
            b'u' => self.local_user.clone(),
            b'i' => self.uid.clone(),
            b'd' => self.home.clone(),
            b'l' => self.local_host.clone(),
            b'L' => short(),
            b'k' => self.key_alias.clone(),
            b'j' => self.jump_host.clone(),
            b'C' => self.connection_hash()?,
            _ => return None,
        })
    }

    /// Hashes local host, host, port and user, as releases before 9.6 do; later ones add the jump host.
    fn connection_hash(&self) -> Option<Vec<u8>> {
        let mut hash = Sha1::new();
        hash.update(&self.local_host);
        hash.update(&self.host);
        hash.update(&self.port);
        hash.update(self.user.as_ref()?);
        Some(hex(&hash.finalize()))
    }
}

/// Writes bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> Vec<u8> {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.into_bytes()
}

/// Replaces `%` tokens and `${NAME}`, each only where it is given.
///
/// The error says what has no value; `%%` is `%`, and `$NAME` without braces is left alone.
pub(crate) fn expand(text: &[u8], tokens: Option<&Tokens>, env: Option<&Env>) -> Result<Vec<u8>, String> {
    let lookup = |token| tokens.and_then(|tokens| tokens.value(token));
    expand_with(text, tokens.is_some().then_some(&lookup), env)
}

/// Replaces `%h` and `%%`, the only tokens of `HostName`.
pub(crate) fn expand_host_name(text: &[u8], host: &[u8]) -> Result<Vec<u8>, String> {
    let lookup = |token| (token == b'h').then(|| host.to_vec());
    expand_with(text, Some(&lookup), None)
}

type Lookup<'a> = &'a dyn Fn(u8) -> Option<Vec<u8>>;

fn expand_with(text: &[u8], tokens: Option<Lookup<'_>>, env: Option<&Env>) -> Result<Vec<u8>, String> {
    let mut expanded = Vec::new();
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, tokens, env) {
            (b'$', _, Some(env)) if behind.starts_with(b"{") => {
                let name = behind.get(1..).unwrap_or_default();
                let close = name
                    .iter()
                    .position(|byte| *byte == b'}')
                    .ok_or_else(|| format!("no closing brace in {}", shown(text)))?;
                let (name, behind) = name.split_at(close);
                expanded.extend_from_slice(variable(name, env, text)?);
                rest = behind.get(1..).unwrap_or_default();
            }
            (b'%', Some(tokens), _) => {
                let (token, behind) =
                    behind.split_first().ok_or_else(|| format!("lone % at the end of {}", shown(text)))?;
                match token {
                    b'%' => expanded.push(b'%'),
                    _ => expanded.extend(tokens(*token).ok_or_else(|| {
                        format!("token %{} in {} is not known", char::from(*token), shown(text))
                    })?),
                }
                rest = behind;
            }
            _ => expanded.push(*byte),
        }
    }
    Ok(expanded)
}

fn variable<'a>(name: &[u8], env: &'a Env, text: &[u8]) -> Result<&'a [u8], String> {
    if name.is_empty() {
        return Err(format!("empty variable name in {}", shown(text)));
    }
    env.get(OsStr::from_bytes(name))
        .map(|value| value.as_bytes())
        .ok_or_else(|| format!("variable {} in {} is not set", shown(name), shown(text)))
}

/// Shows bytes in a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

/// Replaces `~` or `~user` at the start by a home folder; the error says which user is not known.
///
/// `users` asks the user database; it is not asked for `~` alone.
pub(crate) fn tilde(text: &[u8], home: &Path, users: Users<'_>) -> Result<Vec<u8>, String> {
    let Some(rest) = text.strip_prefix(b"~") else {
        return Ok(text.to_vec());
    };
    let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (user, behind) = rest.split_at(end);
    let mut path = if user.is_empty() {
        home.as_os_str().as_bytes().to_vec()
    } else {
        users(user)
            .map(|home| home.into_os_string().into_vec())
            .ok_or_else(|| format!("no user {} in the user database", shown(user)))?
    };
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    let start = behind.iter().position(|byte| *byte != b'/').unwrap_or(behind.len());
    path.extend_from_slice(behind.get(start..).unwrap_or_default());
    Ok(path)
}

/// Finds a user's home folder by name.
pub(crate) type Users<'a> = &'a dyn Fn(&[u8]) -> Option<PathBuf>;

/// Asks the user database of this system for a home folder.
pub(crate) fn system_users(name: &[u8]) -> Option<PathBuf> {
    let name = std::str::from_utf8(name).ok()?;
    // A database that cannot be asked knows nobody; the caller reports the name.
    let user = nix::unistd::User::from_name(name).ok()??;
    Some(user.dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        Tokens {
            host: b"web.example.net".to_vec(),
            typed: b"web".to_vec(),
            port: b"2225".to_vec(),
            user: Some(b"alice".to_vec()),
            local_host: b"here.lan".to_vec(),
            ..Tokens::default()
        }
    }

    #[test]
    fn tokens_and_variables_are_replaced_where_they_are_given() {
        let env = Env::from([("K".into(), "v%h".into())]);
        let both = |text: &str| expand(text.as_bytes(), Some(&tokens()), Some(&env));
        assert_eq!(
            both("%h %n %p %r %L %% $K ${K}").unwrap(),
            b"web.example.net web 2225 alice here % $K v%h"
        );
        assert!(both("%z").is_err());
        assert!(both("a%").is_err());
        assert!(both("${NOPE}").is_err());
        assert!(both("${K").is_err());
        assert!(both("${}").is_err());
        assert_eq!(expand(b"%h ${K}", None, Some(&env)).unwrap(), b"%h v%h");
        assert_eq!(expand(b"%h ${K}", Some(&tokens()), None).unwrap(), b"web.example.net ${K}");
        assert_eq!(expand(b"%h ${K", None, None).unwrap(), b"%h ${K");
        assert!(expand_host_name(b"%h-%p", b"web").is_err());
        assert_eq!(expand_host_name(b"%h.x%%", b"web").unwrap(), b"web.x%");
    }

    #[test]
    fn a_tilde_counts_only_at_the_start() {
        let users = |name: &[u8]| (name == b"bob").then(|| PathBuf::from("/home/bob"));
        let tilde = |text: &str| tilde(text.as_bytes(), Path::new("/home/ann"), &users);
        assert_eq!(tilde("~").unwrap(), b"/home/ann/");
        assert_eq!(tilde("~//x").unwrap(), b"/home/ann/x");
        assert_eq!(tilde("~bob/x").unwrap(), b"/home/bob/x");
        assert_eq!(tilde("/x/~").unwrap(), b"/x/~");
        assert!(tilde("~nobody-here").is_err());
    }
}
