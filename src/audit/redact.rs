//! What of an operation may go into the audit log: nothing secret, nothing long, nothing that steers a terminal.

/// Longest description of an operation, in bytes.
pub const DETAIL_BYTES_MAX: usize = 256;
/// What stands in the place of a secret.
const MASK: &str = "***";

/// Options whose value is secret: in the next word, or after `=`.
const SECRET_OPTIONS: &[&str] = &[
    "--env",
    "-e",
    "--password",
    "--passwd",
    "--pass",
    "--passphrase",
    "--token",
    "--secret",
    "--api-key",
    "--apikey",
    "--key",
    "--auth",
    "--user",
    "-u",
];
/// Parts of a variable's or key's name that make its value secret.
const SECRET_NAMES: &[&str] = &["pass", "secret", "token", "key", "credential", "auth", "cookie", "private"];

/// Shows the words of a command with their secrets masked, bounded by [`DETAIL_BYTES_MAX`].
///
/// Values of `--env` and of password-like options, `NAME=VALUE` with a secret-like name, `user:password@` in addresses
/// and what follows `Bearer` or `Basic` are masked. A guess by form cannot find every secret: whoever knows that a word
/// is one leaves it out.
///
/// ```
/// use towline::audit::redact::words;
/// assert_eq!(words(["tool", "--password", "hunter2", "A_TOKEN=x", "n=3"]), "tool --password *** A_TOKEN=*** n=3");
/// ```
pub fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut length = 0;
    let mut after: Option<&str> = None;
    for word in words {
        let lower = word.to_ascii_lowercase();
        let text = match after.take() {
            Some("--env" | "-e") => masked_value(word).unwrap_or_else(|| MASK.to_owned()),
            Some(_) => MASK.to_owned(),
            None => masked(word),
        };
        let bare = lower.trim_matches(['"', '\'']);
        after = SECRET_OPTIONS
            .iter()
            .copied()
            .find(|option| *option == bare)
            .or_else(|| matches!(bare, "bearer" | "basic" | "authorization:").then_some("bearer"));
        // The scheme's name may come between the header and its value.
        if matches!(bare, "bearer" | "basic") {
            shown.push(word.to_owned());
        } else {
            shown.push(text);
        }
        length += shown.last().map_or(0, String::len) + 1;
        if length > DETAIL_BYTES_MAX {
            break;
        }
    }
    bounded(&shown.join(" "), DETAIL_BYTES_MAX)
}

/// Shows shell text as [`words`] does; blanks become single ones.
pub fn shell(text: &str) -> String {
    words(text.split_whitespace())
}

/// Cuts a text to at most `bytes_max` bytes, at a character, and escapes what is no printable character.
pub fn bounded(text: &str, bytes_max: usize) -> String {
    const CUT: &str = "…";
    let mut shown = String::new();
    for character in text.chars() {
        let before = shown.len();
        let steers = character.is_control()
            || matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}');
        if steers {
            shown.extend(character.escape_default())
        } else {
            shown.push(character)
        }
        if shown.len() > bytes_max {
            shown.truncate(before);
            while shown.len() + CUT.len() > bytes_max && shown.pop().is_some() {}
            if bytes_max >= CUT.len() {
                shown.push_str(CUT);
            }
            break;
        }
    }
    shown
}

fn masked(word: &str) -> String {
    if let Some((name, _)) = word.split_once('=') {
        let bare = name.trim_start_matches(['-', '"', '\'']).to_ascii_lowercase();
        let option = SECRET_OPTIONS.contains(&name);
        if matches!(name, "--env" | "-e") {
            let value = word.get(name.len() + 1..).unwrap_or_default();
            return format!("{name}={}", masked_value(value).unwrap_or_else(|| MASK.to_owned()));
        }
        if option || SECRET_NAMES.iter().any(|part| bare.contains(part)) {
            return format!("{name}={MASK}");
        }
    }
    masked_address(word).unwrap_or_else(|| word.to_owned())
}

/// `NAME=VALUE` without its value.
fn masked_value(word: &str) -> Option<String> {
    word.split_once('=').map(|(name, _)| format!("{name}={MASK}"))
}

/// `scheme://user:password@host` without its password.
fn masked_address(word: &str) -> Option<String> {
    let (scheme, rest) = word.split_once("://")?;
    let (login, host) = rest.split_once('@')?;
    let (user, _) = login.split_once(':')?;
    if user.contains('/') { None } else { Some(format!("{scheme}://{user}:{MASK}@{host}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_by_their_form_are_masked() {
        for (text, shown) in [
            ("run --env A=hunter2 x", "run --env A=*** x"),
            ("run -e A=hunter2 x", "run -e A=*** x"),
            ("run --env=A=hunter2", "run --env=A=***"),
            ("run --env hunter2 x", "run --env *** x"),
            ("run --password hunter2 x", "run --password *** x"),
            ("run --password=hunter2 x", "run --password=*** x"),
            ("AWS_SECRET_ACCESS_KEY=hunter2 aws s3 ls", "AWS_SECRET_ACCESS_KEY=*** aws s3 ls"),
            ("export 'DB_PASSWORD=hunter2'", "export 'DB_PASSWORD=***"),
            ("git clone https://u:hunter2@h/x", "git clone https://u:***@h/x"),
            ("curl -u me:hunter2 h", "curl -u *** h"),
            ("curl -H \"Authorization: Bearer hunter2\"", "curl -H \"Authorization: Bearer ***"),
            ("OMP_NUM_THREADS=4 ./a.out --n=3", "OMP_NUM_THREADS=4 ./a.out --n=3"),
            ("curl https://h/a@b", "curl https://h/a@b"),
        ] {
            assert_eq!(shell(text), shown, "{text}");
        }
    }

    #[test]
    fn a_description_stays_short_and_cannot_steer_a_terminal() {
        assert_eq!(bounded("a\x1b[31m\n", 99), "a\\u{1b}[31m\\n");
        assert_eq!(bounded("abcdef", 5), "ab…");
        assert_eq!(bounded("abcde", 5), "abcde");
        let long = shell(&"é ".repeat(4000));
        assert!(long.len() <= DETAIL_BYTES_MAX && long.ends_with('…'));
    }

    proptest! {
        #[test]
        fn no_text_exceeds_its_bound(text in "\\PC{0,400}|[\\x00-\\x1f]{0,200}", max in 0_usize..300) {
            prop_assert!(bounded(&text, max).len() <= max);
            prop_assert!(shell(&text).len() <= DETAIL_BYTES_MAX);
        }

        #[test]
        fn a_value_of_env_is_never_shown(name in "[A-Z]{1,8}", value in "v[a-z0-9]{8,20}") {
            let pair = format!("{name}={value}");
            prop_assert!(!words(["exec", "--env", &pair, "--", "ls"]).contains(&value));
        }
    }
}
