//! GlobalProtect's own settings: the portal it is bound to, and the tunnel addresses that it got.

use std::net::IpAddr;

/// Deeper nesting than this is no settings file.
const DEPTH_MAX: usize = 32;

/// What GlobalProtect's client says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GlobalProtect {
    /// The portal that it is bound to.
    pub portal: String,
    /// The addresses that it was given for its tunnels.
    pub addresses: Vec<IpAddr>,
}

/// Reads the client's settings: macOS's property list as XML, or Linux's `pangps.xml`.
///
/// # Errors
/// What is wrong with the text, or that it names no portal.
pub fn parse_settings(text: &str) -> Result<GlobalProtect, &'static str> {
    let mut report = GlobalProtect::default();
    let mut portals = 0;
    for (path, value) in leaves(text)? {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            [.., "GlobalProtect", "PanSetup", "Portal"] => {
                portals += 1;
                report.portal = value;
            }
            [.., "GlobalProtect", "PanGPS", key]
                if key.starts_with("PreferredIP_") || key.starts_with("PreferredIPV6_") =>
            {
                // An address that cannot be read can only keep the evidence from holding.
                report.addresses.extend(value.trim().parse::<IpAddr>());
            }
            _ => {}
        }
    }
    match portals {
        1 if !report.portal.trim().is_empty() => Ok(report),
        0 | 1 => Err("it names no portal"),
        _ => Err("it names several portals"),
    }
}

/// An element that is open, and what was found inside it.
struct Open {
    tag: String,
    text: String,
    has_children: bool,
    /// In a dictionary: the key that the next element belongs to.
    key: Option<String>,
}

/// Every text with its path: elements' names, or, inside `<dict>`, the keys before them.
fn leaves(text: &str) -> Result<Vec<(Vec<String>, String)>, &'static str> {
    let (mut open, mut found): (Vec<Open>, Vec<_>) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        if let Some(top) = open.last_mut() {
            top.text.push_str(&unescaped(before)?);
        }
        if let Some(comment) = after.strip_prefix("!--") {
            rest = comment.split_once("-->").ok_or("a comment has no end")?.1;
            continue;
        }
        let (tag, behind) = after.split_once('>').ok_or("a tag has no end")?;
        rest = behind;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let closed = open.pop().filter(|top| top.tag == name.trim()).ok_or("its tags do not match")?;
            close(closed, &mut open, &mut found);
            continue;
        }
        let name = tag.trim_end_matches('/').split_whitespace().next().ok_or("a tag has no name")?;
        if open.len() == DEPTH_MAX {
            return Err("it is nested too deeply");
        }
        if let Some(top) = open.last_mut() {
            top.has_children = true;
        }
        let element = Open { tag: name.to_owned(), text: String::new(), has_children: false, key: None };
        if tag.ends_with('/') {
            close(element, &mut open, &mut found);
        } else {
            open.push(element);
        }
    }
    if open.is_empty() { Ok(found) } else { Err("it ends too early") }
}

fn close(closed: Open, open: &mut [Open], found: &mut Vec<(Vec<String>, String)>) {
    let in_dictionary = open.last().is_some_and(|top| top.tag == "dict");
    if in_dictionary && closed.tag == "key" {
        if let Some(top) = open.last_mut() {
            top.key = Some(closed.text);
        }
        return;
    }
    if !closed.has_children && closed.tag != "dict" {
        let named = |element: &Open| if element.tag == "dict" { element.key.clone() } else { None };
        let outside = open.iter().filter_map(|element| match element.tag.as_str() {
            "dict" => named(element),
            "plist" => None,
            tag => Some(tag.to_owned()),
        });
        let mut path: Vec<String> = outside.collect();
        if !in_dictionary {
            path.push(closed.tag);
        }
        found.push((path, closed.text));
    }
    if let Some(top) = open.last_mut() {
        top.key = None;
    }
}

fn unescaped(text: &str) -> Result<String, &'static str> {
    let mut parts = text.split('&');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(';').ok_or("an entity has no end")?;
        whole.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => return Err("an entity is unknown"),
        });
        whole.push_str(rest);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLIST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Palo Alto Networks</key>
	<dict>
		<key>GlobalProtect</key>
		<dict>
			<key>PanGPS</key>
			<dict>
				<key>LastUrl</key>
				<string>https://vpn.example.org/a?b=1&amp;c=2</string>
				<key>PreferredIPV6_11de985a54adccec223de2b24075693f</key>
				<string>2001:db8:110::5</string>
				<key>PreferredIP_11de985a54adccec223de2b24075693f</key>
				<string>10.10.1.35</string>
				<key>PreferredIP_234d2be7acce021cd9e49f5c5a7bc41</key>
				<string></string>
				<key>disable-globalprotect</key>
				<integer>0</integer>
			</dict>
			<key>PanSetup</key>
			<dict>
				<key>CurrentVersion</key>
				<string>6.0.1-6</string>
				<key>Portal</key>
				<string>vpn.example.org</string>
				<key>Prelogon</key>
				<true/>
			</dict>
		</dict>
	</dict>
</dict>
</plist>
"#;

    const LINUX: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<GlobalProtect>\n  <Settings>\n    \
        <default-browser>yes</default-browser>\n  </Settings>\n  <PanSetup>\n    <Portal>vpn.example.org</Portal>\n    \
        <PreviousVersion/>\n  </PanSetup>\n  <PanGPS>\n    <PreferredIP_1>10.10.1.35</PreferredIP_1>\n  \
        </PanGPS>\n</GlobalProtect>\n";

    #[test]
    fn portal_and_addresses_are_read_from_both_forms() {
        let addresses = vec!["2001:db8:110::5".parse().unwrap(), "10.10.1.35".parse().unwrap()];
        let mac = GlobalProtect { portal: "vpn.example.org".to_owned(), addresses };
        assert_eq!(parse_settings(PLIST).unwrap(), mac);
        let addresses = vec!["10.10.1.35".parse().unwrap()];
        let linux = GlobalProtect { portal: "vpn.example.org".to_owned(), addresses };
        assert_eq!(parse_settings(LINUX).unwrap(), linux);
    }

    #[test]
    fn a_portal_elsewhere_in_the_file_or_twice_is_none() {
        for text in [
            LINUX.replace("PanSetup", "Settings"),
            LINUX.replace("<PreviousVersion/>", "<Portal>other.example.org</Portal>"),
            LINUX.replace("vpn.example.org", " "),
            PLIST.replace("<key>Portal</key>", "<key>Portals</key>"),
            // A key's text must not pass for the name of an element around it.
            "<plist><dict><key>GlobalProtect</key><string>x</string></dict></plist>".to_owned(),
        ] {
            assert!(parse_settings(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cut_text_never_reads_as_whole() {
        for length in 0..LINUX.trim_end().len() {
            assert!(parse_settings(&LINUX[..length]).is_err(), "{length}");
        }
        assert!(parse_settings(&"<a>".repeat(100_000)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(<[/?!]?(dict|key|Portal|a)/?>|[a-z&;<>/é]){0,40}") {
            // Reading it is the test; most such texts are refused.
            drop(parse_settings(&text));
        }
    }
}
