//! Algorithm lists: checked where they stand, expanded when the host is known.

#[path = "algorithm_tables.rs"]
mod tables;

use crate::patterns::{ListMatch, list_matches};

/// Which names a list may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Cipher,
    Mac,
    Kex,
    HostKey,
    CaSignature,
}

/// Names by which OpenSSH also knows key types when it checks a list; they expand to nothing.
const KEY_TYPE_SHORT_NAMES: &[&str] = &["ED25519", "ED25519-SK", "ECDSA", "ECDSA-SK", "RSA", "DSA"];

impl Class {
    /// Gives the default list in order of preference.
    pub(crate) fn default_names(self) -> &'static [&'static str] {
        match self {
            Class::Cipher => tables::CIPHER_DEFAULT,
            Class::Mac => tables::MAC_DEFAULT,
            Class::Kex => tables::KEX_DEFAULT,
            Class::HostKey => tables::HOST_KEY_DEFAULT,
            Class::CaSignature => tables::CA_SIGNATURE_DEFAULT,
        }
    }

    /// Gives all names that a pattern may expand to, in the order in which it does.
    fn all_names(self) -> &'static [&'static str] {
        match self {
            Class::Cipher => tables::CIPHER_ALL,
            Class::Mac => tables::MAC_ALL,
            Class::Kex => tables::KEX_ALL,
            Class::HostKey | Class::CaSignature => tables::HOST_KEY_ALL,
        }
    }

    /// Gives the names of later releases: a configuration written for those is not an error.
    fn newer_names(self) -> &'static [&'static str] {
        match self {
            Class::Cipher | Class::Mac => &[],
            Class::Kex => tables::KEX_NEWER,
            Class::HostKey | Class::CaSignature => tables::HOST_KEY_NEWER,
        }
    }

    fn known(self, element: &[u8]) -> bool {
        let mut names = self.all_names().iter().chain(self.newer_names());
        match self {
            Class::Cipher | Class::Mac | Class::Kex => names.any(|name| name.as_bytes() == element),
            // In the key lists a wildcard stands for whatever it matches, also negatively.
            Class::HostKey | Class::CaSignature => {
                KEY_TYPE_SHORT_NAMES.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(element))
                    || names.any(|name| list_matches(name.as_bytes(), element, false) != ListMatch::No)
            }
        }
    }

    /// Checks a list as OpenSSH does where it stands; gives the first unknown element.
    ///
    /// A list of names to remove is not checked, and an empty element ends the check.
    pub(crate) fn check(self, list: &[u8]) -> Result<(), Vec<u8>> {
        let names = match list.split_first() {
            Some((b'-', _)) => return Ok(()),
            Some((b'+' | b'^', rest)) => rest,
            _ => list,
        };
        if names.is_empty() {
            return Err(list.to_vec());
        }
        let unknown = names
            .split(|byte| *byte == b',')
            .take_while(|element| !element.is_empty())
            .find(|element| !self.known(element));
        unknown.map_or(Ok(()), |element| Err(element.to_vec()))
    }

    /// Expands a list, or the default where none is given; an error names the list that leaves nothing.
    pub(crate) fn expand(self, list: Option<&[u8]>) -> Result<Vec<String>, String> {
        let default = || self.default_names().iter().copied();
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let Some(list) = list else {
            return Ok(owned(default().collect()));
        };
        let rest = list.get(1..).unwrap_or_default();
        let mut names = Vec::new();
        match list.first() {
            Some(b'-') => {
                names.extend(
                    default().filter(|name| list_matches(name.as_bytes(), rest, false) != ListMatch::Yes),
                );
                return Ok(owned(names));
            }
            Some(b'+') => {
                names.extend(default());
                // OpenSSH takes the names one by one and stops at an empty one.
                let end = rest.windows(2).position(|pair| pair == b",,").unwrap_or(rest.len());
                let rest = if rest.starts_with(b",") { &[] } else { rest.get(..end).unwrap_or(rest) };
                self.add(rest, &mut names)?;
            }
            Some(b'^') => {
                self.add(rest, &mut names)?;
                for name in default() {
                    push_new(&mut names, name);
                }
            }
            _ => self.add(list, &mut names)?,
        }
        if names.is_empty() {
            return Err(format!("algorithm list {:?} leaves nothing", String::from_utf8_lossy(list)));
        }
        Ok(owned(names))
    }

    fn add(self, list: &[u8], names: &mut Vec<&'static str>) -> Result<(), String> {
        for element in list.split(|byte| *byte == b',') {
            if element.starts_with(b"!") {
                return Err(format!(
                    "algorithm list {:?} holds a negated name",
                    String::from_utf8_lossy(list)
                ));
            }
            for name in self.all_names() {
                // An authority signs with a plain key, so its list never holds a certificate algorithm.
                if self == Class::CaSignature && name.contains("-cert-v01@") {
                    continue;
                }
                if list_matches(name.as_bytes(), element, false) == ListMatch::Yes {
                    push_new(names, name);
                }
            }
        }
        Ok(())
    }
}

fn push_new(names: &mut Vec<&'static str>, name: &'static str) {
    if !names.contains(&name) {
        names.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_work_on_the_default_list() {
        let expand = |list: &str| Class::Cipher.expand(Some(list.as_bytes())).map(|l| l.join(","));
        assert_eq!(expand("aes128-ctr,aes256-ctr,aes128-ctr").unwrap(), "aes128-ctr,aes256-ctr");
        assert_eq!(
            expand("+3des-cbc").unwrap(),
            format!("{},3des-cbc", Class::Cipher.default_names().join(","))
        );
        assert!(expand("^aes256-ctr").unwrap().starts_with("aes256-ctr,chacha20"));
        assert_eq!(expand("-aes*,*cbc").unwrap(), "chacha20-poly1305@openssh.com");
        assert_eq!(expand("-*").unwrap(), "");
        assert!(expand("!aes128-ctr").is_err());
        assert!(expand("nothing").is_err());
    }

    #[test]
    fn an_authority_signs_with_plain_keys_only() {
        let names = Class::CaSignature.expand(Some(b"ssh-*,rsa*")).unwrap();
        assert_eq!(names.join(","), "ssh-ed25519,ssh-dss,ssh-rsa,rsa-sha2-256,rsa-sha2-512");
    }

    #[test]
    fn unknown_names_are_found_where_openssh_looks_for_them() {
        assert!(Class::Kex.check(b"curve25519-sha256,made-up").is_err());
        assert!(Class::Kex.check(b"curve25519-sha256,,made-up").is_ok());
        assert!(Class::Kex.check(b"curve25519*").is_err());
        assert!(Class::Kex.check(b"-made-up").is_ok());
        assert!(Class::Kex.check(b"+").is_err());
        assert!(Class::HostKey.check(b"ssh-ed25519*,ecdsa-*").is_ok());
        assert!(Class::HostKey.check(b"ssh-nothing*").is_err());
        assert!(Class::Kex.check(b"mlkem768x25519-sha256").is_ok());
    }
}
