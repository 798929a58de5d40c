//! Finds or builds the static helpers that this build of towline embeds.
//!
//! In this order: the files that `TOWLINE_HELPER_X86_64` and `TOWLINE_HELPER_AARCH64` name; in a checkout on Linux a
//! build of `remote-helper/` for this machine's own architecture. Without a helper towline still compiles, and
//! `connect` says which one is missing.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use sha2::{Digest as _, Sha256};

/// Platforms that a helper can be embedded for: architecture and the variable that names its file.
const PLATFORMS: [(&str, &str); 2] =
    [("x86_64", "TOWLINE_HELPER_X86_64"), ("aarch64", "TOWLINE_HELPER_AARCH64")];

/// What the helper is built from. Its tests are left out: they change nothing in it.
const SOURCES: [&str; 5] =
    ["build.rs", "Cargo.toml", "Cargo.lock", "remote-helper/Cargo.toml", "remote-helper/src"];

/// Variables of the outer build that would change the inner one, or make it differ between `cargo test`, `clippy`
/// and `doc`, which must all share one build.
const VARIABLES_CLEANED: [&str; 14] = [
    "CARGO_",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "DEP_",
    "MAKEFLAGS",
    "MFLAGS",
    "TARGET",
    "HOST",
    "OUT_DIR",
    "PROFILE",
    "OPT_LEVEL",
    "DEBUG",
    "NUM_JOBS",
];
/// Variables below `CARGO_` that say where crates come from, and stay.
const VARIABLES_KEPT: [&str; 5] =
    ["CARGO_HOME", "CARGO_NET_", "CARGO_HTTP_", "CARGO_REGISTR", "CARGO_SOURCE_"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let mut table = String::from("// Written by build.rs: architecture, bytes, SHA-256.\n");
    table.push_str("static HELPERS: &[(&str, &[u8], &str)] = &[\n");
    for (architecture, name) in PLATFORMS {
        println!("cargo::rerun-if-env-changed={name}");
        let Some(bytes) = helper_for(architecture, name, &root, &out)? else { continue };
        let digest = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").unwrap_or_default();
            text
        });
        let file = format!("helper-{architecture}");
        fs::write(out.join(&file), bytes)?;
        writeln!(
            table,
            "    (\"{architecture}\", include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{file}\")), \"{digest}\"),"
        )
        .map_err(io::Error::other)?;
    }
    table.push_str("];\n");
    fs::write(out.join("embedded_helpers.rs"), table)
}

/// The helper of one architecture, if there is one to embed.
fn helper_for(architecture: &str, name: &str, root: &Path, out: &Path) -> io::Result<Option<Vec<u8>>> {
    if let Some(path) = env::var_os(name).filter(|path| !path.is_empty()) {
        println!("cargo::rerun-if-changed={}", Path::new(&path).display());
        let bytes = fs::read(&path)
            .map_err(|error| io::Error::other(format!("{name}={}: {error}", Path::new(&path).display())))?;
        return Ok(Some(bytes));
    }
    let host = variable("HOST")?;
    let can_build = host.starts_with(&format!("{architecture}-"))
        && host.contains("-linux-")
        && root.join("remote-helper/src/main.rs").is_file();
    if !can_build {
        return Ok(None);
    }
    match build(architecture, root, out) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => {
            println!("cargo::warning=no helper for {architecture} is embedded: {error}");
            Ok(None)
        }
    }
}

/// Builds the helper with the workspace's own cargo, in a target folder of its own below the outer one: so it takes
/// none of the outer build's locks, and every profile of the outer build shares it.
fn build(architecture: &str, root: &Path, out: &Path) -> io::Result<Vec<u8>> {
    let target = installed_target(architecture)?;
    let folder = outer_target_folder(out).join("towline-helper-build");
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    // The bytes, and so the hash that hosts cache the helper under, do not depend on where it was built.
    flags.push(format!("--remap-path-prefix={}=towline", root.display()));
    if let Some(home) = cargo_home() {
        flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
    }
    let mut command = Command::new(variable("CARGO")?);
    for (key, _value) in env::vars_os() {
        if is_cleaned(&key) {
            command.env_remove(&key);
        }
    }
    command
        .current_dir(root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args(["build", "--locked", "--quiet", "--profile", "helper", "-p", "towline-helper"])
        .args(["--bin", "towline-helper", "--target", &target, "--target-dir"])
        .arg(&folder);
    let output = command.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| line.starts_with("error")).unwrap_or("cargo build failed");
        return Err(io::Error::other(format!(
            "{first} (see `cargo build --profile helper -p towline-helper`)"
        )));
    }
    fs::read(folder.join(target).join("helper/towline-helper"))
}

/// The musl target where it is installed, since it needs no system libraries; else the GNU one.
fn installed_target(architecture: &str) -> io::Result<String> {
    let musl = format!("{architecture}-unknown-linux-musl");
    let output =
        Command::new(variable("RUSTC")?).args(["--print", "target-libdir", "--target", &musl]).output()?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let is_installed = output.status.success() && folder.is_dir();
    Ok(if is_installed { musl } else { format!("{architecture}-unknown-linux-gnu") })
}

/// The outer build's target folder: cargo marks it with a tag file.
fn outer_target_folder(out: &Path) -> &Path {
    out.ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file())
        .or_else(|| out.ancestors().nth(4))
        .unwrap_or(out)
}

fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))
}

fn is_cleaned(key: &OsStr) -> bool {
    let key = key.to_string_lossy();
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| key.starts_with(prefix));
    begins(&VARIABLES_CLEANED) && !begins(&VARIABLES_KEPT)
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}
