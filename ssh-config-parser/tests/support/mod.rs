//! The real client as the judge, and random configurations to judge by.

pub mod generator;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Keywords that print one line a value.
const LISTS: &[&str] = &["identityfile", "certificatefile", "sendenv", "setenv"];

/// What `ssh -G -F file host` prints, keyword by keyword; none when it fails.
///
/// The environment is empty but for `env`.
pub fn ssh_g(file: &Path, host: &str, env: &[(&str, &str)]) -> Option<BTreeMap<String, Value>> {
    let output = Command::new("ssh")
        .arg("-G")
        .arg("-F")
        .arg(file)
        .arg("--")
        .arg(host)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the real client is the judge: apt-get install openssh-client");
    output.status.success().then(|| read(&output.stdout))
}

/// Tells whether the real client is the release that the answers are measured by.
pub fn is_9_2() -> bool {
    let output = Command::new("ssh")
        .arg("-V")
        .output()
        .expect("the real client is the judge: apt-get install openssh-client");
    String::from_utf8_lossy(&output.stderr).starts_with("OpenSSH_9.2")
}

fn read(text: &[u8]) -> BTreeMap<String, Value> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = String::from_utf8_lossy(line);
        let (keyword, value) = line.split_once(' ').unwrap_or((&line, ""));
        let keyword = keyword.to_ascii_lowercase();
        values.entry(keyword).or_default().push(value.to_owned());
    }
    values
        .into_iter()
        .map(|(keyword, lines)| {
            let value = match lines.as_slice() {
                [line] if !LISTS.contains(&keyword.as_str()) => Value::from(line.clone()),
                _ => Value::from(lines),
            };
            (keyword, value)
        })
        .collect()
}
