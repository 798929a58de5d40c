//! Where the helper is kept at the far side, and what happens where it can't be.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use sha2::{Digest, Sha256};
use towline::line::bootstrap::BootstrapError;
use towline::line::{Line, OpenError};

use crate::acceptance::shell;
use crate::far::{Far, Folder, helper, helper_name, run};
use crate::support::{Direction, run_json, server, towline};

const USER: &str = "tl-places";

/// Where a home holds the helper.
fn in_cache() -> String {
    format!(".cache/towline/{}", helper_name())
}

/// Where the fallback in TMPDIR holds it.
fn in_temporary(folder: &Folder) -> String {
    format!("tmp/.towline-{}/{}", folder.uid(), helper_name())
}

/// What a home's cache holds besides the page for people who wonder what it is.
fn cached_names(folder: &Folder) -> Vec<String> {
    let names = std::fs::read_dir(folder.here(".cache/towline")).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README")
        .collect()
}

async fn answers(line: &Line) -> bool {
    shell(line, "echo yes").await.stdout == b"yes\n"
}

/// Makes a folder of programs in which some are missing.
fn programs_without(folder: &Folder, missing: &[&str]) -> String {
    folder.mkdir("bin");
    let all = ["/usr/bin", "/bin"].into_iter().flat_map(|path| std::fs::read_dir(path).unwrap());
    for entry in all.map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let link = folder.here("bin").join(&name);
        if !missing.iter().any(|missing| name.starts_with(missing)) && link.symlink_metadata().is_err() {
            symlink(Path::new("/usr/bin").join(&name), link).unwrap();
        }
    }
    folder.there("bin")
}

#[tokio::test]
async fn a_damaged_cached_helper_is_replaced_with_and_without_sha256sum() {
    let folder = Folder::of(USER);
    let path = programs_without(&folder, &["sha256sum"]);
    let plain = Far::new(USER);
    let without_digests = Far::with(folder, &[("PATH", &path)], &[]);
    for (case, far) in [("sha256sum", &plain), ("no sha256sum", &without_digests)] {
        let (line, cold) = far.opening().await;
        assert!(cold.sent(1), "{case}: {cold:?}");
        let found = shell(&line, "command -v sha256sum").await.outcome.rc == 0;
        assert_eq!(found, case == "sha256sum", "{case}: the case is what it says");
        let (_line, cached) = far.opening().await;
        assert!(cached.sent(0), "{case}: {cached:?}");

        let mut damages = vec![("truncated", helper()[..helper().len() / 2].to_vec()), ("empty", Vec::new())];
        if case == "sha256sum" {
            // One wrong byte in the middle shows only in the digest.
            let mut other = helper();
            let middle = other.len() / 2;
            other[middle] ^= 1;
            damages.push(("corrupted", other));
        }
        for (damage, bytes) in damages {
            // Under another name and moved, since nobody may write into a running program.
            far.folder.write("damaged", bytes);
            far.folder.give(&far.folder.here("damaged"), 0o700);
            std::fs::rename(far.folder.here("damaged"), far.folder.here(&in_cache())).unwrap();
            let (line, opened) = far.opening().await;
            assert!(opened.sent(1), "{case}, {damage}: {opened:?}");
            assert!(answers(&line).await, "{case}, {damage}");
            assert!(
                far.folder.files()[&in_cache()] == helper(),
                "{case}, {damage}: the cache is whole again"
            );
        }
        let cache = far.folder.here(".cache/towline");
        assert_eq!(cache.metadata().unwrap().permissions().mode() & 0o7777, 0o700, "{case}");
        assert_eq!(cached_names(&far.folder), [helper_name()], "{case}: nothing else is left there");
    }
}

#[tokio::test]
async fn a_home_that_cannot_hold_the_helper_is_passed_over_and_the_next_place_caches_it() {
    for (case, options, times) in [
        ("read-only", "ro", 1),
        ("noexec", "noexec", 1),
        // That it is full shows only when the bytes are there, so they are sent again.
        ("full", "size=256k", 2),
    ] {
        let folder = Folder::of(USER);
        folder.mount("full", options);
        folder.mkdir("tmp");
        let (home, temporary) = (folder.there("full"), folder.there("tmp"));
        let far = Far::with(folder, &[("HOME", &home), ("TMPDIR", &temporary)], &[]);
        let (line, cold) = far.opening().await;
        assert!(cold.sent(times), "{case}: {cold:?}");
        assert!(answers(&line).await, "{case}");
        let files = far.folder.files();
        assert_eq!(files.keys().collect::<Vec<_>>(), [&in_temporary(&far.folder)], "{case}");
        let (line, cached) = far.opening().await;
        assert!(cached.sent(0), "{case}: {cached:?}");
        let left = shell(&line, "cd \"$HOME\"; find . -type f").await.stdout;
        assert_eq!(
            String::from_utf8_lossy(&left),
            "",
            "{case}: nothing is left in the place that was no good"
        );
    }
}

#[tokio::test]
async fn a_link_or_a_strangers_folder_in_place_of_the_cache_is_not_used() {
    let folder = Folder::of(USER);
    folder.mkdir("elsewhere");
    folder.mkdir(".cache");
    folder.mkdir("tmp");
    symlink(folder.there("elsewhere"), folder.here(".cache/towline")).unwrap();
    // In a shared temporary folder somebody else was quicker, and lets everybody in.
    folder.mkdir("shared");
    let strangers = folder.here("shared").join("towline");
    std::fs::create_dir(&strangers).unwrap();
    std::fs::set_permissions(&strangers, std::fs::Permissions::from_mode(0o777)).unwrap();
    let (cache, temporary) = (folder.there("shared"), folder.there("tmp"));
    let far = Far::with(folder, &[("XDG_CACHE_HOME", &cache), ("TMPDIR", &temporary)], &[]);
    let (line, cold) = far.opening().await;
    assert!(cold.sent(1), "{cold:?}");
    assert!(answers(&line).await);
    assert_eq!(far.folder.files().keys().collect::<Vec<_>>(), [&in_temporary(&far.folder)]);
    assert!(far.folder.here(".cache/towline").is_symlink());
}

/// A far side where no place can hold the helper, each for another reason.
fn nowhere(path: Option<&str>, folder: Folder) -> Far {
    folder.mount("full", "size=256k");
    folder.mount("noexec", "noexec");
    folder.mount("read-only", "ro");
    let places = ["full", "noexec", "read-only", "absent"].map(|place| folder.there(place));
    let mut variables = vec![
        ("XDG_CACHE_HOME", places[0].as_str()),
        ("HOME", places[1].as_str()),
        ("XDG_RUNTIME_DIR", places[2].as_str()),
        // A path that is no folder; `mkdir -p` must not make it either.
        ("TMPDIR", "/proc/towline"),
    ];
    variables.extend(path.map(|path| ("PATH", path)));
    Far::with(folder, &variables, &[])
}

/// The shared places taken by root, so that this user has none there; freed when dropped.
struct SharedPlacesTaken(Vec<String>);

impl SharedPlacesTaken {
    fn of(uid: u32) -> Self {
        server::require("base");
        let places: Vec<_> = ["/var/tmp", "/dev/shm"].map(|place| format!("{place}/.towline-{uid}")).into();
        for place in &places {
            run(server::inside("rm").args(["-rf", place]));
            run(server::inside("mkdir").args(["-m", "755", place]));
        }
        SharedPlacesTaken(places)
    }
}

impl Drop for SharedPlacesTaken {
    fn drop(&mut self) {
        for place in &self.0 {
            run(server::inside("rmdir").arg(place));
        }
    }
}

#[tokio::test]
async fn where_no_place_will_do_each_is_told_with_its_reason_and_memory_is_used_only_with_permission() {
    let folder = Folder::of(USER);
    let _taken = SharedPlacesTaken::of(folder.uid());
    // An interpreter that tells on whoever runs it.
    let path = programs_without(&folder, &["python", "perl"]);
    let ran = folder.there("ran");
    for name in ["python3", "perl"] {
        folder.write(&format!("bin/{name}"), format!("#!/bin/sh\necho {name} >> {ran}\n"));
        folder.give(&folder.here("bin").join(name), 0o755);
    }
    let far = nowhere(Some(&path), folder);
    let answer = far.exec("true");
    assert_eq!(answer.failure(), (Some(5), "bootstrap_failed"), "{}", answer.text);
    let places: Vec<_> = answer.error["error"]["places"]
        .as_array()
        .unwrap()
        .iter()
        .map(|place| place.as_str().unwrap())
        .collect();
    let uid = far.folder.uid();
    let there = |place| far.folder.there(place);
    let expected = [
        format!("{}/towline: full, or the helper does not run there", there("full")),
        format!("{}/.cache/towline: nothing may be executed there (noexec)", there("noexec")),
        format!("{}/towline: not a writable directory of ours", there("read-only")),
        format!("/proc/towline/.towline-{uid}: not a writable directory of ours"),
        format!("/var/tmp/.towline-{uid}: not a writable directory of ours"),
    ];
    assert_eq!(places, expected);
    for place in &expected {
        assert!(answer.error["error"]["message"].as_str().unwrap().contains(place), "{}", answer.text);
    }
    assert!(!far.folder.here("ran").exists(), "no interpreter is run without permission");
    drop(far);

    for missing in ["perl", "python"] {
        let folder = Folder::of(USER);
        let path = programs_without(&folder, &[missing]);
        let far = nowhere(Some(&path), folder);
        for round in ["first", "second"] {
            let before = far.link.passed(Direction::Up);
            let line = far.try_open(|options| options.exec_from_memory = true).await;
            let line = line.unwrap_or_else(|error| panic!("without {missing}, {round}: {error}"));
            assert!(answers(&line).await, "without {missing}, {round}");
            let program = shell(&line, "readlink /proc/$PPID/exe").await.stdout;
            let program = String::from_utf8_lossy(&program).into_owned();
            assert!(program.starts_with("/memfd:"), "without {missing}, {round}: {program}");
            // Once for the full place, once for the memory: nothing is kept.
            let sent = far.link.passed(Direction::Up) - before;
            let opened = crate::far::Opened { cached: line.facts().helper.cached, bytes_up: sent };
            assert!(opened.sent(2), "without {missing}, {round}: {opened:?}");
        }
        // The same through the configuration.
        far.home.extend_config("exec_from_memory = true\n");
        assert_eq!(far.exec("echo from memory").ok()["stdout"], "from memory\n", "without {missing}");
    }
}

#[test]
fn a_helper_that_does_not_run_there_ends_the_opening_with_its_places() {
    let mut other_machine = helper();
    // e_machine of the ELF header: 64-bit ARM.
    other_machine[18..20].copy_from_slice(&[0xb7, 0]);
    let mut garbage: Vec<u8> = Sha256::digest(b"towline").to_vec();
    garbage.extend(b"\nexit 3\n");
    garbage.resize(300 << 10, 0xff);
    let cases: [(&str, &[u8]); 3] = [
        ("another machine's", &other_machine),
        ("garbage", &garbage),
        ("half", &helper()[..helper().len() / 2]),
    ];
    for (case, bytes) in cases {
        let folder = Folder::of(USER);
        folder.mkdir("tmp");
        let temporary = folder.there("tmp");
        let far = Far::with(folder, &[("TMPDIR", &temporary)], &[]);
        let file = far.home.user_home().join("helper");
        std::fs::write(&file, bytes).unwrap();
        let output = towline(&far.home)
            .env("TOWLINE_HELPER", &file)
            .args(["--json", "exec", "hpc", "--", "true"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{case}: {text}");
        let error: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(error["error"]["kind"], "bootstrap_failed", "{case}: {text}");
        let places = error["error"]["places"].as_array().unwrap_or_else(|| panic!("{case}: {text}"));
        assert_eq!(places.len(), 3, "{case}: {text}");
        assert_eq!(cached_names(&far.folder), [""; 0], "{case}: nothing is left there");
        let _shared = run_json(&far.home, &["exec", "hpc", "--", "true"]).ok();
    }
}

#[tokio::test]
async fn a_program_that_is_no_helper_ends_the_opening_and_never_hangs() {
    // It runs and says so, but it does not greet.
    let far = Far::new(USER);
    let result = far
        .try_open(|options| {
            let bytes = std::fs::read("/bin/true").unwrap();
            let name = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let helper = options.helpers.x86_64.as_mut().unwrap();
            (helper.bytes, helper.sha256_hex) = (bytes.into(), name.into());
        })
        .await;
    match result {
        Err(OpenError::Bootstrap(BootstrapError::Ended { .. })) => {}
        other => panic!("{other:?}"),
    }
}
