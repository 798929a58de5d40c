//! Where commands take their environment from: one snapshot a line, and what happens when a start-up file fails.

use std::time::Instant;

use crate::far::{Far, Folder};
use crate::support::{PATIENCE, census, home::SITE, run_json, towline};

const USER: &str = "tl-profile";

/// What sites put into a profile: a function, a path, noise, and a variable that only a login has.
const PROFILE: &str = r#"
echo "Welcome to the cluster!"; printf '\001\377\000'
module() { export LOADED="$LOADED $2"; echo "loaded $2"; }
export -f module
export PATH="$HOME/opt/bin:$PATH" SITE_VARIABLE='from
the profile' ENV=/nowhere BASH_ENV=/nowhere
"#;

/// A site whose profile is `profile`, with one tool in the PATH that [`PROFILE`] sets.
fn site(profile: &str) -> Far {
    let folder = Folder::of(USER);
    folder.write(".bash_profile", profile);
    folder.write("opt/bin/site-tool", "#!/bin/sh\necho the site\\'s tool\n");
    folder.give(&folder.here("opt/bin/site-tool"), 0o755);
    Far::with(folder, &[], &[])
}

/// A command that succeeds only where PROFILE has run, and prints the same each time.
const USES_PROFILE: &str = "module load R/4.4; echo \"[$LOADED]\"; site-tool; echo \"$SITE_VARIABLE\"";
const PROFILE_USED: &str = "loaded R/4.4\n[ R/4.4]\nthe site's tool\nfrom\nthe profile\n";

#[test]
fn case_059_functions_and_path_of_the_login_profile_are_there_in_exec() {
    let far = site(PROFILE);
    let answer = far.exec(USES_PROFILE);
    assert_eq!(answer.ok()["stdout"], PROFILE_USED, "{}", answer.text);
    assert_eq!(answer.ok()["stderr"], "", "no word of a start-up file is the command's");
    // An argv is run without a shell; its PATH is the profile's all the same.
    let argv = run_json(&far.home, &["exec", SITE, "--", "site-tool", "and its argument"]);
    assert_eq!(argv.ok()["stdout"], "the site's tool\n", "{}", argv.text);
    // What describes the snapshot's own shell is not passed on, nor what would run start-up files in each shell.
    let answer = far.exec("env | grep -cE '^(ENV|BASH_ENV|OLDPWD)='; echo $SHLVL");
    assert!(answer.ok()["stdout"].as_str().unwrap().starts_with("0\n"), "{}", answer.text);
}

#[test]
fn each_recipe_of_the_configuration_is_the_one_that_runs() {
    let far = site(PROFILE);
    far.folder.write(
        "env.sh",
        "echo noise; export FROM_SCRIPT=1; module() { echo \"script $2\"; }; export -f module\n",
    );
    let config = far.home.path().join("config.toml");
    let plain = std::fs::read_to_string(&config).unwrap();
    let script = far.folder.there("env.sh");
    let text = "echo \"[$FROM_SCRIPT]\"; module load R 2>&1 | sed 's/.*not found/absent/'; echo \"${SITE_VARIABLE%%\n*}\"";
    for (recipe, expected) in [
        ("none", "[]\nabsent\n\n".to_owned()),
        ("login", "[]\nloaded R\nfrom\n".to_owned()),
        (script.as_str(), "[1]\nscript R\n\n".to_owned()),
        ("~/env.sh", "[1]\nscript R\n\n".to_owned()),
    ] {
        far.home.set_config(&format!("{plain}environment = \"{recipe}\"\n"));
        let answer = far.exec(text);
        assert_eq!(answer.ok()["stdout"], expected, "{recipe}: {}", answer.text);
    }
    far.home.set_config(&format!("{plain}environment = \"~/absent.sh\"\n"));
    let output = towline(&far.home).args(["exec", SITE, "--", "echo on"]).output().unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"on\n", "{notes}");
    assert!(notes.contains("note: ") && notes.contains("absent.sh"), "{notes}");
}

#[test]
fn a_profile_that_fails_or_hangs_costs_a_note_and_no_failure() {
    // Side by side, since two of them take their 10 s.
    std::thread::scope(|scope| {
        for (case, profile, at_least_s, at_most_s) in [
            ("exits", "echo oops >&2; exit 3", 0, 9),
            ("is killed", "kill -9 $$", 0, 9),
            ("replaces the shell", "exec true", 0, 9),
            ("hangs", "sleep 300", 10, 20),
            ("hangs and ignores", "trap '' TERM HUP INT; while :; do sleep 300; done", 10, 20),
        ] {
            scope.spawn(move || {
                let far = site(profile);
                let took_s = exec_with_note(&far, case);
                assert!((at_least_s..at_most_s).contains(&took_s), "{case}: {took_s} s");
            });
        }
    });
}

/// Runs a command that must work beside a note on the login shell, and leave no process; gives the seconds.
fn exec_with_note(far: &Far, case: &str) -> u64 {
    let began = Instant::now();
    let output = towline(&far.home).args(["exec", SITE, "--", "echo on; exit 7"]).output().unwrap();
    let took_s = began.elapsed().as_secs();
    let notes = String::from_utf8_lossy(&output.stderr);
    let result = (output.status.code(), output.stdout.as_slice());
    assert_eq!(result, (Some(7), b"on\n".as_slice()), "{case}: {notes}");
    assert!(notes.contains("note: no environment of the login shell: "), "{case}: {notes}");
    far.server.wait_until_idle();
    let home = format!("HOME={}", far.folder.there(""));
    census::wait_until_none(PATIENCE, || census::with_environment(&home));
    took_s
}

#[test]
fn start_files_that_the_session_brings_along_reach_no_command() {
    let folder = Folder::of(USER);
    folder.write("each-shell", "echo EACH SHELL PRINTS THIS\n");
    let file = folder.there("each-shell");
    let far = Far::with(folder, &[("BASH_ENV", &file), ("ENV", &file)], &[]);
    for recipe in ["none", "login"] {
        far.home.set_config(&format!(
            "[site.{SITE}]\nhost = \"login\"\nssh_config = \"{}\"\nenvironment = \"{recipe}\"\n",
            far.home.ssh_config().display()
        ));
        let answer = far.exec(
            "bash -c 'echo bash'; sh -c 'echo sh'; sh -ic 'echo interactive' 2>/dev/null; env | grep ENV=",
        );
        assert_eq!(answer.json["stdout"], "bash\nsh\ninteractive\n", "{recipe}: {}", answer.text);
    }
}
