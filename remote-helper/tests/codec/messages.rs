use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use towline_helper::wire::ByteText;
use towline_helper::wire::message::*;

fn assert_survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) {
    let payload = encode("message", message).unwrap();
    assert!(payload.len() >= 2 && payload[0] == b'{', "control payloads are objects");
    assert_eq!(&parse::<T>("message", &payload).unwrap(), message);
}

/// A Latin-1 letter, a cut character, a surrogate, NUL, what JSON escapes, what looks like our own escape, nothing.
const ODD: &[&[u8]] =
    &[b"caf\xe9", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\0", b"\"\\\n\x7f", b"{\"b64\":\"\"}", b""];

/// Bytes of every kind: text, text with odd characters, bytes that are no text, bytes that are almost text.
fn bytes() -> impl Strategy<Value = ByteText> {
    prop_oneof![
        3 => ".{0,20}".prop_map(ByteText::from),
        3 => vec(any::<u8>(), 0..40).prop_map(ByteText::from),
        1 => proptest::sample::select(ODD).prop_map(ByteText::from),
    ]
}

fn text() -> impl Strategy<Value = String> {
    ".{0,20}"
}

fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(u64::MAX), Just(1 << 53), any::<u64>()]
}

fn program() -> impl Strategy<Value = Program> {
    prop_oneof![vec(bytes(), 0..4).prop_map(Program::Argv), bytes().prop_map(Program::Shell)]
}

prop_compose! {
    fn exec()(
        command in program(),
        cwd in option::of(bytes()),
        env in vec((bytes(), bytes()), 0..3),
        deadline_ms in option::of(numbers()),
        (stdin, detach, end_background) in any::<(bool, bool, bool)>(),
        keep in option::of((numbers(), numbers())),
    ) -> Exec {
        let keep = keep.map(|(head, tail)| Keep { head, tail });
        Exec { command, cwd, env, deadline_ms, stdin, detach, end_background, keep }
    }
}

fn from() -> impl Strategy<Value = TailFrom> {
    prop_oneof![numbers().prop_map(TailFrom::Offset), numbers().prop_map(TailFrom::Lines)]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        4 => exec().prop_map(Request::Exec),
        1 => (bytes(), any::<bool>()).prop_map(|(path, follow)| Request::Stat { path, follow }),
        1 => bytes().prop_map(|path| Request::List { path }),
        1 => (bytes(), numbers(), option::of(numbers()))
            .prop_map(|(path, offset, length)| Request::Read { path, offset, length }),
        1 => (bytes(), any::<(bool, bool)>(), option::of(any::<u32>()), option::of(numbers()), option::of(text()))
            .prop_map(|(path, (overwrite, parents), mode, size, sha256)| {
                Request::Write(Write { path, overwrite, mode, size, sha256, parents })
            }),
        1 => (bytes(), numbers(), option::of(numbers()))
            .prop_map(|(path, offset, length)| Request::Hash { path, offset, length }),
        1 => (bytes(), any::<bool>(), any::<u32>())
            .prop_map(|(path, parents, mode)| Request::Mkdir { path, parents, mode }),
        1 => (bytes(), bytes(), any::<bool>())
            .prop_map(|(from, to, overwrite)| Request::Rename { from, to, overwrite }),
        1 => (bytes(), any::<bool>()).prop_map(|(path, recursive)| Request::Remove { path, recursive }),
        1 => bytes().prop_map(|path| Request::DiskUsage { path }),
        1 => (bytes(), from(), any::<bool>()).prop_map(|(path, from, follow)| Request::Tail { path, from, follow }),
        1 => Just(Request::Probe {}),
        1 => Just(Request::Pty {}),
        1 => Just(Request::Dial {}),
    ]
}

fn file_kind() -> impl Strategy<Value = FileKind> {
    prop_oneof![
        Just(FileKind::File),
        Just(FileKind::Directory),
        Just(FileKind::Symlink),
        Just(FileKind::Other)
    ]
}

prop_compose! {
    fn metadata()(
        kind in file_kind(),
        (size, inode, device) in (numbers(), numbers(), numbers()),
        (mode, uid, gid, mtime_ns) in any::<(u32, u32, u32, u32)>(),
        mtime_s in any::<i64>(),
        target in option::of(bytes()),
    ) -> Metadata {
        Metadata { kind, size, mode, uid, gid, mtime_s, mtime_ns, inode, device, target }
    }
}

prop_compose! {
    fn disk_usage()(
        (allocated, apparent, entries, unreadable) in (numbers(), numbers(), numbers(), numbers()),
        (total, available, inodes, inodes_free) in (numbers(), numbers(), numbers(), numbers()),
    ) -> DiskUsage {
        DiskUsage { allocated, apparent, entries, unreadable, total, available, inodes, inodes_free }
    }
}

prop_compose! {
    fn exec_outcome()(
        rc in any::<i32>(),
        signal in option::of(any::<i32>()),
        (timed_out, pipes_held) in any::<(bool, bool)>(),
        (duration_ms, stdout_dropped, stderr_dropped) in (numbers(), numbers(), numbers()),
        start_error in option::of(text()),
    ) -> ExecOutcome {
        ExecOutcome {
            rc, signal, timed_out, pipes_held, duration_ms, stdout_dropped, stderr_dropped, start_error,
        }
    }
}

prop_compose! {
    fn probe()(
        (system, host, environment) in (text(), text(), text()),
        (distribution, user, environment_note) in (option::of(text()), option::of(text()), option::of(text())),
        shell in option::of(bytes()),
        cpus in any::<u32>(),
        mem_bytes in option::of(numbers()),
        (shells, commands) in (vec((text(), bytes()), 0..3), vec((text(), bytes()), 0..3)),
        gpus in vec(text(), 0..3),
        limits in vec((text(), text()), 0..3),
    ) -> Probe {
        Probe {
            system, distribution, host, user, shell, cpus, mem_bytes, shells, commands, gpus, limits,
            environment, environment_note,
        }
    }
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let hashed = || (numbers(), text());
    prop_oneof![
        exec_outcome().prop_map(Outcome::Exec),
        metadata().prop_map(Outcome::Stat),
        numbers().prop_map(|entries| Outcome::List { entries }),
        (numbers(), numbers()).prop_map(|(end, size)| Outcome::Read { end, size }),
        hashed().prop_map(|(size, sha256)| Outcome::Written { size, sha256 }),
        hashed().prop_map(|(size, sha256)| Outcome::Hash { size, sha256 }),
        Just(Outcome::Done {}),
        disk_usage().prop_map(Outcome::DiskUsage),
        probe().prop_map(|probe| Outcome::Probe(Box::new(probe))),
    ]
}

const CODES: [(Code, &str); 13] = [
    (Code::InvalidRequest, "invalid_request"),
    (Code::TooLarge, "too_large"),
    (Code::NotFound, "not_found"),
    (Code::Exists, "exists"),
    (Code::Permission, "permission"),
    (Code::NoSpace, "no_space"),
    (Code::IsDirectory, "is_directory"),
    (Code::NotDirectory, "not_directory"),
    (Code::Io, "io"),
    (Code::Unsupported, "unsupported"),
    (Code::Cancelled, "cancelled"),
    (Code::Busy, "busy"),
    (Code::ChecksumMismatch, "checksum_mismatch"),
];

prop_compose! {
    fn refusal()(
        code in 0..CODES.len(),
        message in text(),
        path in option::of(bytes()),
        errno in option::of(any::<i32>()),
        which in option::of(text()),
    ) -> Refusal {
        Refusal { code: CODES[code].0, message, path, errno, which }
    }
}

prop_compose! {
    fn hello()(
        (protocol, pid, uid) in any::<(u32, u32, u32)>(),
        (version, sha256, boot_id, host) in (text(), text(), text(), text()),
        (home, cwd) in (bytes(), bytes()),
        capabilities in vec(text(), 0..3),
    ) -> Hello {
        Hello { protocol, version, sha256, pid, boot_id, host, uid, home, cwd, capabilities }
    }
}

fn environment() -> impl Strategy<Value = Environment> {
    prop_oneof![
        Just(Environment::None),
        Just(Environment::LoginIfPossible),
        Just(Environment::Login),
        bytes().prop_map(Environment::Script),
    ]
}

proptest! {
    #[test]
    fn bytes_survive_and_text_stays_readable(bytes in bytes()) {
        let json = serde_json::to_string(&bytes).unwrap();
        prop_assert_eq!(&serde_json::from_str::<ByteText>(&json).unwrap(), &bytes);
        match String::from_utf8(bytes.0.clone()) {
            Ok(text) => prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text),
            Err(_) => prop_assert_eq!(json.get(..8), Some("{\"b64\":\"")),
        }
    }

    #[test]
    fn greetings_survive(hello in hello(), protocol: u32, version in text(), environment in environment()) {
        assert_survives(&hello);
        assert_survives(&Start { protocol, version, environment });
    }

    #[test]
    fn requests_survive(request in request()) {
        assert_survives(&Open { request });
    }

    #[test]
    fn answers_survive(outcome in outcome(), refusal in refusal(), pid: Option<u32>, note in option::of(text())) {
        assert_survives(&outcome);
        assert_survives(&refusal);
        assert_survives(&Dispatched { pid, note });
    }

    #[test]
    fn small_messages_survive(discard: bool, rows: u16, columns: u16, reason in text()) {
        assert_survives(&Cancel { discard });
        assert_survives(&Resize { rows, columns });
        assert_survives(&Bye { reason });
    }

    #[test]
    fn entries_of_a_listing_are_one_line_each(name in bytes(), metadata in option::of(metadata())) {
        let entry = Entry { name, metadata };
        assert_survives(&entry);
        prop_assert!(!encode("entry", &entry).unwrap().contains(&b'\n'));
    }

    #[test]
    fn no_payload_panics(payload in vec(any::<u8>(), 0..200), place in any::<prop::sample::Index>(), open in request()) {
        let mut changed = encode("open", &Open { request: open }).unwrap();
        let place = place.index(changed.len());
        changed[place] = payload.first().copied().unwrap_or(b' ');
        for payload in [payload, changed] {
            // What is accepted survives; the rest is refused without a panic.
            parse::<Hello>("hello", &payload).iter().for_each(assert_survives);
            parse::<Start>("start", &payload).iter().for_each(assert_survives);
            parse::<Open>("open", &payload).iter().for_each(assert_survives);
            parse::<Outcome>("outcome", &payload).iter().for_each(assert_survives);
            parse::<Refusal>("refusal", &payload).iter().for_each(assert_survives);
        }
    }
}

#[test]
fn codes_have_the_names_of_the_contract() {
    for (code, name) in CODES {
        assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{name}\""));
    }
}

#[test]
fn a_request_looks_as_documented() {
    let request = Request::Read { path: "~/a".into(), offset: 3, length: None };
    let payload = encode("open", &Open { request }).unwrap();
    assert_eq!(
        String::from_utf8(payload).unwrap(),
        r#"{"request":{"type":"read","path":"~/a","offset":3,"length":null}}"#
    );
    let path = ByteText::from(&b"caf\xe9"[..]);
    let payload = encode("open", &Open { request: Request::List { path } }).unwrap();
    let expected = r#"{"request":{"type":"list","path":{"b64":"Y2Fm6Q=="}}}"#;
    assert_eq!(String::from_utf8(payload).unwrap(), expected);
}

#[test]
fn what_is_not_understood_is_refused_and_not_left_out() {
    let deep = format!(r#"{{"request":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
    let refused = [
        r#"{"request":{"type":"probe","more":1}}"#,
        r#"{"request":{"type":"probe"},"more":1}"#,
        r#"{"request":{"type":"format"}}"#,
        r#"{"request":{"path":"a"}}"#,
        r#"{"request":{"type":"list","path":"a","path":"b"}}"#,
        r#"{"request":{"type":"list","type":"probe","path":"a"}}"#,
        r#"{"request":{"type":"probe"},"request":{"type":"probe"}}"#,
        r#"{"request":{"type":"list","path":{"b64":"Y2Fm6Q"}}}"#,
        r#"{"request":{"type":"list","path":{"b64":"Y2Fm6Q==","more":1}}}"#,
        r#"{"request":{"type":"list","path":null}}"#,
        r#"{"request":{"type":"list","path":["a"]}}"#,
        r#"{"request":{"type":"read","path":"a","offset":-1}}"#,
        r#"{"request":{"type":"read","path":"a","offset":1.5}}"#,
        r#"{"request":{"type":"read","path":"a","offset":18446744073709551616}}"#,
        r#"{"request":{"type":"list","path":"\ud800"}}"#,
        r#"{"request":{"type":"probe"}} x"#,
        r#"{"request":{"type":"probe"}"#,
        "[]",
        "",
        &deep,
    ];
    for payload in refused {
        let parsed = parse::<Open>("open", payload.as_bytes());
        assert_eq!(parsed.as_ref().map_err(|error| error.what), Err("open"), "{payload:.80}");
    }
    // And back: the shortest thing that is understood.
    assert!(parse::<Open>("open", br#"{"request":{"type":"probe"}}"#).is_ok());
}
