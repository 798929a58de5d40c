//! Random configurations: plain lines, odd spellings of them, wrong values, and included files.

use std::fmt::Write as _;
use std::path::Path;

/// A generator that gives the same configuration for the same seed.
pub struct Generator {
    state: u64,
    files: usize,
}

/// Hosts that the random blocks are about.
pub const HOSTS: &[&str] = &["web", "db", "web1.example.net", "10.1", "x"];

const PATTERNS: &[&str] = &[
    "web",
    "db",
    "*",
    "w*",
    "*.example.net",
    "web?",
    "!db",
    "!web",
    "!!x",
    "web*",
    "*e*",
    "?*",
    "WEB",
    "a,b",
    "d?",
    "*1*",
    "!*.net",
    "x",
];

/// Keywords with values, right ones mostly; `@` stands for a random small number.
const SETTINGS: &[(&str, &[&str])] = &[
    ("User", &["alice", "bob", "al#ice", "ad\\bob", "@"]),
    ("Port", &["22", "2@", "022", "+23", "https", "65535"]),
    ("HostName", &["%h.example.net", "192.0.2.1", "127.1", "Web.Example", "2001:DB8::A", "0x7f.1", "h%%x"]),
    ("IdentityFile", &["~/.ssh/k@", "/keys/%r@%h", "none", "'/k/a b'", "/keys/${NOPE}/@"]),
    ("CertificateFile", &["~/c@", "/c/%n"]),
    ("IdentitiesOnly", &["yes", "no", "TRUE", "False"]),
    ("SendEnv", &["LANG LC_*", "A@", "-LC_*", "-*", "B C"]),
    ("SetEnv", &["A=@", "A=1 B=2 A=3", "X=a=b"]),
    ("UserKnownHostsFile", &["/kh/@ /kh/%h", "none", "~/kh", "/k/%p-%n-%C", "NONE"]),
    ("GlobalKnownHostsFile", &["/g/@", "none", "/g/a /g/b"]),
    (
        "ProxyJump",
        &["none", "j@", "a@j1,b@j2:22@", "ssh://u@j:2@,last", "[2001:db8::1]:22", "10.0.0.@", "j@ # c"],
    ),
    ("ProxyCommand", &["none"]),
    ("Compression", &["yes", "no"]),
    ("ConnectTimeout", &["@", "1m30s", "none", "1h"]),
    ("ServerAliveInterval", &["@", "none", "2m"]),
    ("ServerAliveCountMax", &["@", "0"]),
    ("ConnectionAttempts", &["@", "1"]),
    (
        "Ciphers",
        &["aes128-ctr", "-*cbc,aes*", "+3des-cbc", "^aes256-ctr", "aes256-ctr,aes128-ctr,aes256-ctr"],
    ),
    ("MACs", &["hmac-sha2-256", "-umac*", "^hmac-sha1"]),
    ("KexAlgorithms", &["curve25519-sha256", "-ecdh*", "+diffie-hellman-group14-sha1"]),
    ("HostKeyAlgorithms", &["ssh-ed25519*", "+ssh-rsa", "-*cert*", "^rsa-sha2-*"]),
    ("PubkeyAcceptedKeyTypes", &["ssh-ed25519", "-sk-*", "+ssh-rsa", "ecdsa-*"]),
    ("CASignatureAlgorithms", &["ssh-ed25519", "^rsa-sha2-256", "-ecdsa*"]),
    ("StrictHostKeyChecking", &["yes", "no", "off", "ask", "accept-new", "true"]),
    ("HashKnownHosts", &["yes", "no"]),
    ("HostKeyAlias", &["Alias@", "other"]),
    ("LogLevel", &["quiet", "DEBUG1", "verbose", "debug3", "silent"]),
    ("RekeyLimit", &["1G", "default none", "500M 1h", "0", "16 @", "1.5k"]),
    ("AddKeysToAgent", &["yes", "no", "ask", "confirm", "confirm 5m", "1@", "0"]),
    ("ForwardAgent", &["yes", "no"]),
    ("ForwardX11", &["yes", "no"]),
    ("ControlMaster", &["auto", "no", "autoask", "yes"]),
    ("ControlPath", &["~/.ssh/%C", "none", "/s/%r@%h:%p", "%d/%i-%u-%L"]),
    ("ControlPersist", &["yes", "no", "@", "5m", "0"]),
    ("IdentityAgent", &["none", "SSH_AUTH_SOCK", "~/a@.sock", "$AGENT", "/a/%r", "${AGENT}/x"]),
    ("PreferredAuthentications", &["publickey,password", "publickey"]),
    ("PubkeyAuthentication", &["yes", "unbound", "host-bound", "no"]),
    ("ChallengeResponseAuthentication", &["yes", "no"]),
    ("NumberOfPasswordPrompts", &["@"]),
    ("AddressFamily", &["inet", "any", "INET6"]),
    ("BindAddress", &["192.0.2.@"]),
    ("EscapeChar", &["none", "^A", "~", "%", "'\t'"]),
    ("RequestTTY", &["force", "no", "auto"]),
    ("SessionType", &["none", "default"]),
    ("IPQoS", &["af21 cs1", "ef", "0x10", "none", "3 le"]),
    ("LocalForward", &["80@ a:90", "[::1]:81 /x/%h", "/l/s r:1"]),
    ("RemoteForward", &["90@ b:91", "99", "0 c:1"]),
    ("DynamicForward", &["1080", "*:108@"]),
    ("PermitRemoteOpen", &["any", "none", "a:1 b:*"]),
    ("StreamLocalBindMask", &["077", "0177"]),
    ("SyslogFacility", &["LOCAL1", "user", "auth"]),
    ("TunnelDevice", &["@:any", "any", "any:@"]),
    ("Tunnel", &["yes", "ethernet", "no"]),
    ("LogVerbose", &["a b", "none", "x@"]),
    ("RemoteCommand", &["none", "echo %h '%r'"]),
    ("LocalCommand", &["none", "echo %h"]),
    ("CanonicalizeHostname", &["yes", "always", "no"]),
    ("CanonicalizeMaxDots", &["@"]),
    ("CanonicalizeFallbackLocal", &["yes"]),
    ("UpdateHostKeys", &["yes", "ask", "no"]),
    ("VerifyHostKeyDNS", &["ask", "no"]),
    ("FingerprintHash", &["md5", "SHA256"]),
    ("RequiredRSASize", &["2048", "@"]),
    ("IgnoreUnknown", &["Fancy*,!FancyBad", "UseKeychain", "*"]),
    ("KbdInteractiveDevices", &["pam"]),
    ("XAuthLocation", &["/x"]),
    ("GatewayPorts", &["yes"]),
    ("Protocol", &["2,1 x y"]),
    ("RSAAuthentication", &["yes"]),
    ("ClearAllForwardings", &["yes", "no"]),
    ("GSSAPIAuthentication", &["yes", "no"]),
    ("TCPKeepAlive", &["no", "yes"]),
];

/// Lines that are wrong, or wrong unless something makes them right.
const WRONG: &[&str] = &[
    "UseKeychain yes",
    "FancyGood 1",
    "FancyBad 1",
    "Port 0",
    "Port 65536",
    "Port",
    "User \"\"",
    "Ciphers made-up",
    "Compression true",
    "ServerAliveInterval 5x",
    "IdentityFile \"a b",
    "ServerAliveCountMax -1",
    "User a b",
    "ProxyJump a:99999",
    "ConnectTimeout NONE",
    "SetEnv A",
    "SendEnv A=1",
    "Host \"\"",
    "UserKnownHostsFile a none",
    "HostName %p",
    "IdentityAgent ${NOPE}",
    "LocalForward 80",
    "HostKeyAlgorithms nothing*",
    "KexAlgorithms !a",
    "ConnectionAttempts 0",
    "UserKnownHostsFile /k/%z",
];

/// Lines that are right though they look odd.
const ODD: &[&str] = &[
    "",
    " ",
    "\t",
    "# comment",
    "  # don't",
    "\"Port 22",
    "Host # none",
    "User alice # x",
    "UserKnownHostsFile # x",
    "=User eve",
    "User==x",
    "\"User\"=y",
    "User=\"a\"'b'c",
    "IdentityFile /k/c#",
    "HostKeyAlias a\\ b",
    "User al\rice",
    "Include",
    "User \u{e9}t\u{e9}",
    "User a\0b",
    "PORT\t2222\x0c",
];

impl Generator {
    /// Starts with a seed.
    pub fn new(seed: u64) -> Generator {
        Generator { state: seed ^ 0x9e37_79b9_7f4a_7c15, files: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64: every seed gives a different and well mixed row.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Writes a main file called `config` and whatever it includes into `folder`.
    pub fn write(&mut self, folder: &Path) {
        let text = self.text(folder, 0);
        std::fs::write(folder.join("config"), text).unwrap();
    }

    fn text(&mut self, folder: &Path, depth: usize) -> String {
        let lines = 1 + self.below(if depth == 0 { 14 } else { 6 });
        let mut text = String::new();
        for _ in 0..lines {
            let line = self.line(folder, depth);
            let indent = self.pick(&["", "", "  ", "\t"]);
            let end = self.pick(&["\n", "\n", "\n", "\r\n", " \n"]);
            text.push_str(indent);
            text.push_str(&line);
            text.push_str(end);
        }
        if self.below(6) == 0 {
            text.pop();
        }
        text
    }

    fn line(&mut self, folder: &Path, depth: usize) -> String {
        match self.below(100) {
            0..22 => self.host(),
            22..34 if depth < 3 => self.include(folder, depth),
            34..42 => self.pick(ODD).to_owned(),
            42 => self.pick(WRONG).to_owned(),
            _ => self.setting(),
        }
    }

    fn host(&mut self) -> String {
        let mut line = self.spelled("Host");
        for _ in 0..=self.below(3) {
            let pattern = self.pick(PATTERNS);
            match self.below(8) {
                0 => write!(line, " \"{pattern}\"").unwrap(),
                _ => write!(line, " {pattern}").unwrap(),
            }
        }
        line
    }

    fn include(&mut self, folder: &Path, depth: usize) -> String {
        let mut line = "Include".to_owned();
        for _ in 0..=self.below(2) {
            self.files += 1;
            let name = format!("f{}.conf", self.files);
            let text = self.text(folder, depth + 1);
            std::fs::write(folder.join(&name), text).unwrap();
            write!(line, " {}/{name}", folder.display()).unwrap();
        }
        if self.below(8) == 0 {
            write!(line, " {}/gone*.conf", folder.display()).unwrap();
        }
        line
    }

    fn setting(&mut self) -> String {
        let (keyword, values) = SETTINGS[self.below(SETTINGS.len())];
        let number = 1 + self.below(3);
        let value = self.pick(values).replace('@', &number.to_string());
        let value = if keyword == "ProxyJump" { self.pick(values).replace("22@", "221") } else { value };
        let keyword = self.spelled(keyword);
        let separator = self.pick(&[" ", " ", " ", "=", " = ", "\t", " =", "= "]);
        format!("{keyword}{separator}{value}")
    }

    fn spelled(&mut self, keyword: &str) -> String {
        match self.below(8) {
            0 => keyword.to_ascii_uppercase(),
            1 => keyword.to_ascii_lowercase(),
            _ => keyword.to_owned(),
        }
    }
}
