//! Getting the helper to run at the far end of one channel, under any login shell, among any noise.
//!
//! One exec request carries a script for `sh`, quoted so that sh, bash, zsh, ksh, csh, tcsh and fish all hand it over
//! unchanged: no single quote, newline, exclamation mark or backslash stands in it, and with its arguments it is shorter
//! than the shortest word limit of these shells (4 KB). The client sends nothing before it has seen a marker: two
//! halves of a random number that the command line holds apart, so that an echoed command never matches. Before the
//! marker up to 64 KiB of noise are skipped; after it every byte is strict.
//!
//! | line after the marker | meaning |
//! |---|---|
//! | empty | the helper runs; its hello follows |
//! | ` N uname` | send the line of [`Marker::go`] and exactly the helper's bytes, then wait for the next marker |
//! | ` M uname` | the same, for a run from memory that nothing caches (only with `exec_from_memory`) |
//! | ` X uname` | there is no helper for this platform |
//! | ` E uname` and `\|place: reason` … | no place lets it run |
//!
//! After a silence the client types the command as well, for a start-up file that runs another shell or asks. Where the
//! login was only slow, that line still lies in front of what the client sends: the script reads up to the line of
//! [`Marker::go`], and the helper skips it.

use super::embedded::{EmbeddedHelper, Platform};

/// Bytes of noise that may come before the first marker.
pub const NOISE_BYTES_MAX: usize = 64 << 10;
/// Bytes that may follow a marker on its line.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Characters of noise that an error shows.
const SHOWN_CHARS: usize = 400;

/// A helper for each platform that there is one for.
#[derive(Clone, Debug, Default)]
pub struct Helpers {
    /// For x86-64 Linux.
    pub x86_64: Option<EmbeddedHelper>,
    /// For 64-bit ARM Linux.
    pub aarch64: Option<EmbeddedHelper>,
}

impl Helpers {
    /// The helpers that this program carries.
    pub fn embedded() -> Self {
        Helpers {
            x86_64: super::embedded::for_platform(Platform::LinuxX86_64),
            aarch64: super::embedded::for_platform(Platform::LinuxAarch64),
        }
    }

    fn of(&self, platform: Platform) -> Option<&EmbeddedHelper> {
        match platform {
            Platform::LinuxX86_64 => self.x86_64.as_ref(),
            Platform::LinuxAarch64 => self.aarch64.as_ref(),
        }
    }
}

/// Two halves of a random number that only the far end joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    first: String,
    second: String,
}

impl Marker {
    /// Makes a marker from 128 random bits.
    pub fn new(random: u128) -> Self {
        let text = format!("{random:032x}");
        let (first, second) = text.split_at(16);
        Marker { first: first.to_owned(), second: second.to_owned() }
    }

    /// The two halves joined.
    pub fn joined(&self) -> String {
        format!("{}{}", self.first, self.second)
    }

    /// The line, newline included, after which the helper's bytes begin: the halves the other way round.
    pub fn go(&self) -> String {
        format!("{}{}\n", self.second, self.first)
    }
}

/// Finds a place for the helper, asks for its bytes where it is missing, and becomes it.
///
/// `f` notes why a place is no good, `g` asks for the helper and reads up to where it begins, `l` goes through the
/// places, `o` checks that a directory is ours alone, `c` that a file is the whole helper and runs here, `r` runs a
/// cached one, `w` brings one, `z` gives the user's umask and locale back. Redirecting a special built-in would end dash
/// on failure, hence the subshell in `w`.
const SCRIPT: &str = concat!(
    r#"a=$1;b=$2;v=${LC_ALL+x$LC_ALL};y=$(umask);LC_ALL=C;export LC_ALL;umask 077;k=$(uname -sm);"#,
    r#"case "$k" in "Linux x86_64")h=$3;n=$4;m=319;;"Linux aarch64")h=$5;n=$6;m=279;;*)h=x;;esac;"#,
    r#"if [ "$h" = x ];then echo "$a$b X $k";exit 0;fi;"#,
    r#"f(){ e="$e|$1: $2";};"#,
    r#"g(){ echo "$a$b $1 $k";while read -r x;do case "$x" in "$b$a")return;;esac;done;};"#,
    r#"z(){ umask "$y";case "$v" in x*)LC_ALL=${v#x};;*)unset LC_ALL;;esac;};"#,
    r#"l(){ u=.towline-$(id -u);for d in "${XDG_CACHE_HOME:+$XDG_CACHE_HOME/towline}" "#,
    r#""${HOME:+$HOME/.cache/towline}" "${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/towline}" "#,
    r#""${TMPDIR:-/tmp}/$u" "/var/tmp/$u"@SHM@;do case "$d" in /*)"$1" "$d";;esac;done;};"#,
    r#"o(){ [ -h "$1" ]&&return 1;[ -d "$1" ]&&[ -O "$1" ]&&[ -w "$1" ]&&chmod 700 "$1" 2>/dev/null;};"#,
    r#"c(){ [ -f "$1" ]&&[ -x "$1" ]&&case $(sha256sum <"$1" 2>/dev/null||wc -c <"$1") in "#,
    r#""$h"*|*"$n")"$1" -t 2>/dev/null;;*)false;;esac;};"#,
    r#"r(){ o "$1"&&c "$1/$h"&&z&&exec "$1/$h" "$a$b";};"#,
    r#"w(){ mkdir -p "$1" 2>/dev/null;o "$1"||{ f "$1" "not a writable directory of ours";return;};"#,
    r#"t=$1/.$a.$$;(>"$t")2>/dev/null||{ f "$1" "no file can be made there";return;};chmod 700 "$t";"#,
    r#"if [ -x "$t" ];then g N;"#,
    r#"{ head -c "$n"||dd bs=1 count="$n";} 2>/dev/null|{ cat >"$t"||cat >/dev/null;} 2>/dev/null;"#,
    r#"c "$t"&&mv -f "$t" "$1/$h"&&z&&exec "$1/$h" "$a$b";"#,
    r#"f "$1" "full, or the helper does not run there";else f "$1" "nothing may be executed there (noexec)";fi;"#,
    r#"rm -f "$t";};"#,
    r#"l r;l w;@MEMORY@echo "$a$b E $k$e""#,
);

/// Runs the helper from memory through an interpreter; only with an administrator's word.
const MEMORY: &str = concat!(
    r#"for p in python3 perl;do command -v $p >/dev/null 2>&1||continue;g M;z;case $p in "#,
    r#"python3)exec python3 -c "import os,sys;v=sys.argv;f=os.memfd_create(v[1],0);"#,
    r#"os.write(f,sys.stdin.buffer.read(int(v[2])));os.execve(f,[v[1],v[3]],os.environ)" towline "$n" "$a$b";;"#,
    r#"perl)exec perl -e "my(\$w,\$n,\$m,\$r)=@ARGV;my\$f=syscall(\$m+0,\$w,0);open(F,q(>&=).\$f);"#,
    r#"binmode F;binmode STDIN;read(STDIN,\$d,\$n);syswrite(F,\$d);exec{qq(/proc/self/fd/\$f)}\$w,\$r" "#,
    r#"towline "$n" "$m" "$a$b";;esac;done;"#,
);

/// The one command of the one channel.
pub fn command(marker: &Marker, helpers: &Helpers, exec_from_memory: bool) -> String {
    let (shm, memory) = if exec_from_memory { (r#" "/dev/shm/$u""#, MEMORY) } else { ("", "") };
    let script = SCRIPT.replace("@SHM@", shm).replace("@MEMORY@", memory);
    let mut command = format!("sh -c '{script}' towline {} {}", marker.first, marker.second);
    for platform in [Platform::LinuxX86_64, Platform::LinuxAarch64] {
        match helpers.of(platform) {
            Some(helper) => {
                command.push_str(&format!(" {} {}", helper.sha256_hex, helper.bytes.len()));
            }
            None => command.push_str(" x x"),
        }
    }
    command
}

/// What the client does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read on.
    Wait,
    /// Send the whole helper for this platform, then read on.
    Send(Platform),
    /// The helper runs; these bytes of its hello have arrived already.
    Ready(Vec<u8>),
}

/// Why the helper could not be brought to run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Too much came before the marker.
    #[error(
        "the login printed {bytes} bytes before the helper answered, the limit is {NOISE_BYTES_MAX}; it begins: {shown}"
    )]
    Noise {
        /// Bytes skipped.
        bytes: usize,
        /// The first printable lines.
        shown: String,
    },
    /// The channel ended without a marker.
    #[error("the login ended before the helper answered ({reason}){}", after(.shown))]
    Ended {
        /// Why it ended.
        reason: String,
        /// The first printable lines of what it printed.
        shown: String,
    },
    /// No marker in time.
    #[error("the helper did not answer within {seconds} s{}", after(.shown))]
    TimedOut {
        /// Seconds waited.
        seconds: u64,
        /// The first printable lines of what was printed.
        shown: String,
    },
    /// There is no helper for this platform.
    #[error("there is no helper for {platform}")]
    Platform {
        /// What `uname -sm` says.
        platform: String,
    },
    /// No directory lets the helper run.
    #[error("the helper can't run anywhere on the host ({platform}): {}", .places.join("; "))]
    NoPlace {
        /// What `uname -sm` says.
        platform: String,
        /// Each place with its reason.
        places: Vec<String>,
    },
    /// A line after the marker that the script never prints.
    #[error("the login shell garbled the helper's answer: {line}")]
    Garbled {
        /// The line, escaped.
        line: String,
    },
}

fn after(shown: &str) -> String {
    if shown.is_empty() { String::new() } else { format!("; it printed: {shown}") }
}

/// Watches the far end's output until the helper runs. Pure: bytes in, steps out.
#[derive(Debug)]
pub struct Machine {
    marker: Vec<u8>,
    helpers: Helpers,
    /// Bytes since the last marker's line, and how many of them were skipped already.
    buffer: Vec<u8>,
    skipped: usize,
    first: Vec<u8>,
    /// Bytes before the first marker, once it has come.
    noise: Option<usize>,
    sent: bool,
}

impl Machine {
    /// Begins to watch for a marker.
    pub fn new(marker: &Marker, helpers: Helpers) -> Self {
        Machine {
            marker: marker.joined().into_bytes(),
            helpers,
            buffer: Vec::new(),
            skipped: 0,
            first: Vec::new(),
            noise: None,
            sent: false,
        }
    }

    /// Takes output of the far end.
    ///
    /// # Errors
    /// [`BootstrapError`] when the helper will not run.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Step, BootstrapError> {
        let room = (SHOWN_CHARS * 4).saturating_sub(self.first.len());
        self.first.extend(bytes.iter().take(room));
        self.buffer.extend_from_slice(bytes);
        let Some(start) = find(&self.buffer, &self.marker) else {
            // Only a tail that could begin the marker needs keeping.
            let keep = self.buffer.len().min(self.marker.len().saturating_sub(1));
            self.skipped += self.buffer.len() - keep;
            self.buffer.drain(..self.buffer.len() - keep);
            return if self.skipped > NOISE_BYTES_MAX { Err(self.noise()) } else { Ok(Step::Wait) };
        };
        if self.skipped + start > NOISE_BYTES_MAX {
            self.skipped += start;
            return Err(self.noise());
        }
        self.noise.get_or_insert(self.skipped + start);
        self.buffer.drain(..start);
        let line_start = self.marker.len();
        let Some(length) = self.buffer.iter().skip(line_start).position(|byte| *byte == b'\n') else {
            return match self.buffer.len() > line_start + LINE_BYTES_MAX {
                true => Err(BootstrapError::Garbled { line: escape(&self.buffer) }),
                false => Ok(Step::Wait),
            };
        };
        let rest = self.buffer.split_off(line_start + length + 1);
        let line = std::mem::replace(&mut self.buffer, rest);
        let line = line.get(line_start..line_start + length).unwrap_or_default();
        self.skipped = 0;
        self.handle_line(&String::from_utf8_lossy(line))
    }

    /// Whether the helper's bytes had to be sent.
    pub fn sent(&self) -> bool {
        self.sent
    }

    /// The first printable lines of all that came, for an error.
    pub fn shown(&self) -> String {
        escape(&self.first)
    }

    /// How many bytes the login printed before the first marker, and its first printable lines; none in silence.
    pub fn noise_skipped(&self) -> Option<(usize, String)> {
        let bytes = self.noise.filter(|bytes| *bytes > 0)?;
        Some((bytes, escape(self.first.get(..bytes).unwrap_or(&self.first))))
    }

    fn handle_line(&mut self, line: &str) -> Result<Step, BootstrapError> {
        let garbled = || BootstrapError::Garbled { line: escape(line.as_bytes()) };
        // A pseudo-terminal of a login shell may have added a carriage return.
        let line = line.trim_end_matches('\r');
        if line.is_empty() {
            return Ok(Step::Ready(std::mem::take(&mut self.buffer)));
        }
        let (word, rest) =
            line.strip_prefix(' ').and_then(|line| line.split_once(' ')).ok_or_else(garbled)?;
        let (platform, places) = rest.split_once('|').unwrap_or((rest, ""));
        match word {
            "N" | "M" => {
                let platform = Platform::from_uname(platform)
                    .filter(|platform| self.helpers.of(*platform).is_some())
                    .ok_or_else(garbled)?;
                self.sent = true;
                Ok(Step::Send(platform))
            }
            "X" => Err(BootstrapError::Platform { platform: platform.to_owned() }),
            "E" => Err(BootstrapError::NoPlace {
                platform: platform.to_owned(),
                places: places.split('|').filter(|place| !place.is_empty()).map(str::to_owned).collect(),
            }),
            _ => Err(garbled()),
        }
    }

    fn noise(&self) -> BootstrapError {
        BootstrapError::Noise { bytes: self.skipped, shown: self.shown() }
    }
}

/// The first lines of bytes from outside, with control bytes escaped.
fn escape(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .flat_map(|c| {
            if c == '\n' {
                "\\n".chars().collect()
            } else if c.is_control() {
                c.escape_default().collect()
            } else {
                vec![c]
            }
        })
        .take(SHOWN_CHARS)
        .collect();
    text.trim_end_matches("\\n").to_owned()
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn helper() -> EmbeddedHelper {
        EmbeddedHelper { bytes: b"\x7fELF".as_slice().into(), sha256_hex: "ab".repeat(32).into() }
    }

    fn machine() -> (Marker, Machine) {
        let marker = Marker::new(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        let helpers = Helpers { x86_64: Some(helper()), aarch64: None };
        let machine = Machine::new(&marker, helpers);
        (marker, machine)
    }

    #[test]
    fn the_command_means_the_same_to_every_login_shell() {
        let (marker, machine) = machine();
        for from_memory in [false, true] {
            let command = command(&marker, &machine.helpers, from_memory);
            assert_eq!(command.matches('\'').count(), 2, "{command}");
            assert!(!command.contains(['!', '\n']), "{command}");
            let escapes: Vec<_> = command.match_indices('\\').map(|(at, _)| &command[at..at + 2]).collect();
            assert!(escapes.iter().all(|escape| *escape == "\\$"), "{escapes:?}");
            assert!(command.len() < 4096, "{}", command.len());
            assert!(!command.contains(&marker.joined()), "an echoed command must not match");
        }
    }

    #[test]
    fn noise_before_the_marker_is_skipped_and_the_hello_kept() {
        let (marker, mut machine) = machine();
        let output = [b"Welcome!\n\x1b[1m\xff".as_slice(), marker.joined().as_bytes(), b"\nTLN1"].concat();
        assert_eq!(machine.handle(&output), Ok(Step::Ready(b"TLN1".to_vec())));
        assert_eq!(machine.noise_skipped(), Some((14, "Welcome!\\n\\u{1b}[1m\u{fffd}".to_owned())));
    }

    #[test]
    fn more_than_64_kib_of_noise_is_an_error_that_shows_its_beginning() {
        let (_, mut machine) = machine();
        let mut output = b"\x1b[31mWelcome to the cluster!\n".to_vec();
        output.resize(NOISE_BYTES_MAX + 100, b'.');
        let Err(BootstrapError::Noise { bytes, shown }) = machine.handle(&output) else { panic!("no error") };
        assert!(bytes > NOISE_BYTES_MAX);
        assert!(shown.starts_with("\\u{1b}[31mWelcome to the cluster!\\n..."), "{shown}");
    }

    #[test]
    fn a_full_directory_makes_the_script_ask_again() {
        let (marker, mut machine) = machine();
        let need = format!("{} N Linux x86_64\n", marker.joined());
        assert_eq!(machine.handle(need.as_bytes()), Ok(Step::Send(Platform::LinuxX86_64)));
        assert_eq!(machine.handle(need.as_bytes()), Ok(Step::Send(Platform::LinuxX86_64)));
        assert_eq!(machine.handle(format!("{}\n", marker.joined()).as_bytes()), Ok(Step::Ready(Vec::new())));
        assert!(machine.sent());
    }

    #[test]
    fn a_failure_names_each_place_with_its_reason() {
        let (marker, mut machine) = machine();
        let line = format!(
            "{} E Linux x86_64|/home/u/.cache/towline: noexec|/tmp/.towline-1: full\n",
            marker.joined()
        );
        let Err(BootstrapError::NoPlace { places, .. }) = machine.handle(line.as_bytes()) else {
            panic!("no error")
        };
        assert_eq!(places, ["/home/u/.cache/towline: noexec", "/tmp/.towline-1: full"]);
    }

    #[test]
    fn a_platform_without_a_helper_is_named() {
        let (marker, mut machine) = machine();
        let line = format!("{} X Linux riscv64\n", marker.joined());
        let expected = BootstrapError::Platform { platform: "Linux riscv64".to_owned() };
        assert_eq!(machine.handle(line.as_bytes()), Err(expected));
    }

    proptest! {
        #[test]
        fn pieces_and_noise_change_nothing(
            noise in proptest::collection::vec(any::<u8>(), 0..2000),
            cuts in proptest::collection::vec(1_usize..40, 1..40),
        ) {
            let (marker, mut machine) = machine();
            let mut output = noise;
            output.extend_from_slice(marker.joined().as_bytes());
            output.extend_from_slice(b"\nhello");
            let mut rest = output.as_slice();
            let mut ready = None;
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                rest = after;
                match machine.handle(piece).unwrap() {
                    Step::Ready(mut hello) => {
                        hello.extend_from_slice(rest);
                        ready = Some(hello);
                        break;
                    }
                    Step::Wait => prop_assert!(!rest.is_empty()),
                    Step::Send(_) => prop_assert!(false),
                }
            }
            prop_assert_eq!(ready, Some(b"hello".to_vec()));
        }

        #[test]
        fn nothing_from_outside_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (marker, mut machine) = machine();
            let input = [marker.joined().into_bytes(), bytes].concat();
            let step = machine.handle(&input);
            prop_assert!(!matches!(step, Ok(Step::Send(Platform::LinuxAarch64))), "there is no helper to send");
        }
    }
}
