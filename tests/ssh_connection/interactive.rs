//! Second factors and passwords: the order of methods, and at most one answered round.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::{Algorithm, PrivateKey};
use russh::server::{Auth, Config, Handler, Response, Session};
use russh::{MethodKind, MethodSet};
use towline::ssh::{AuthFailure, Error, Prompt};

use crate::bench::{Bench, Human, block_on};
use crate::support::server::Auth as Way;
use crate::support::server::{PASSCODE, PASSWORD, Sshd, ThrowawayOptions};

fn auth_failure(error: Error) -> AuthFailure {
    match error {
        Error::AuthFailed(failure) => *failure,
        other => panic!("not a failed login: {other}"),
    }
}

#[test]
fn a_key_and_then_a_second_factor_log_in_with_one_prompt() {
    let sshd = Sshd::second_factor();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let human = Human::answering(["1"]);
    let transport = block_on(bench.connect(human.clone())).unwrap();
    assert_eq!(transport.facts().prompts, 1);
    assert_eq!(transport.facts().connections, 1);
    assert_eq!(sshd.prompts(), 1);
    assert!(matches!(human.asked()[..], [Prompt::KeyboardInteractive { echo: true, .. }]));
}

#[test]
fn a_second_factor_that_is_refused_is_not_asked_for_again() {
    let sshd = Sshd::throwaway(ThrowawayOptions {
        auth: Way::Code,
        factor: "tries=3".to_owned(),
        ..ThrowawayOptions::default()
    });
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let human = Human::answering(["000000", PASSCODE]);
    let failure = auth_failure(block_on(bench.connect(human.clone())).unwrap_err());
    assert_eq!(human.asked().len(), 1, "{failure}");
    assert!(failure.reason.contains("second push"), "{failure}");
    assert_eq!(failure.accepted, ["publickey"]);
    sshd.wait_until_idle();
    assert_eq!(sshd.logins(), 0);
}

#[test]
fn a_second_factor_that_nobody_can_be_asked_for_is_unanswered() {
    let sshd = Sshd::second_factor();
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let failure = auth_failure(block_on(bench.connect(Human::answering([]))).unwrap_err());
    assert!(failure.unanswered, "{failure}");
}

#[test]
fn a_password_and_then_a_second_factor_log_in() {
    let sshd = Sshd::throwaway(ThrowawayOptions { auth: Way::Password, ..ThrowawayOptions::default() });
    let bench = Bench::for_site(sshd.address(), "ed25519");
    let human = Human::answering([PASSWORD, PASSCODE]);
    let transport = block_on(bench.connect(human.clone())).unwrap();
    assert_eq!(transport.facts().prompts, 2);
    assert!(matches!(human.asked()[0], Prompt::Password { .. }));

    let human = Human::answering(["wrong", PASSWORD]);
    let failure = auth_failure(block_on(bench.connect(human.clone())).unwrap_err());
    assert_eq!(human.asked().len(), 1);
    assert!(failure.reason.contains("password was refused"), "{failure}");
}

/// What a scripted server does with each step of keyboard-interactive.
#[derive(Clone)]
enum Step {
    Ask(&'static [&'static str]),
    Accept,
    /// Refuse, and offer these methods.
    Refuse(&'static [MethodKind]),
    /// Accept this step, and want these methods too.
    Partly(&'static [MethodKind]),
    Hang,
}

/// A server in this process that plays a script and notes what it was sent.
#[derive(Clone)]
struct Scripted {
    offers: &'static [MethodKind],
    steps: Arc<Mutex<Vec<Step>>>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn step(&self) -> Auth {
        let mut steps = self.steps.lock().unwrap();
        match if steps.is_empty() { Step::Refuse(&[]) } else { steps.remove(0) } {
            Step::Ask(prompts) => Auth::Partial {
                name: Cow::Borrowed(""),
                instructions: Cow::Borrowed("Hello\x1b[2J"),
                prompts: prompts.iter().map(|prompt| (Cow::Borrowed(*prompt), false)).collect(),
            },
            Step::Accept => Auth::Accept,
            Step::Refuse(left) => {
                Auth::Reject { proceed_with_methods: Some(MethodSet::from(left)), partial_success: false }
            }
            Step::Partly(left) => {
                Auth::Reject { proceed_with_methods: Some(MethodSet::from(left)), partial_success: true }
            }
            Step::Hang => Auth::UnsupportedMethod,
        }
    }

    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(what);
    }
}

impl Handler for Scripted {
    type Error = russh::Error;

    async fn auth_none(&mut self, _user: &str) -> Result<Auth, russh::Error> {
        Ok(Auth::Reject { proceed_with_methods: Some(MethodSet::from(self.offers)), partial_success: false })
    }

    async fn auth_password(&mut self, _user: &str, password: &str) -> Result<Auth, russh::Error> {
        self.note(format!("password {password}"));
        Ok(self.step())
    }

    async fn auth_keyboard_interactive<'a>(
        &'a mut self,
        _user: &str,
        _submethods: &str,
        response: Option<Response<'a>>,
    ) -> Result<Auth, russh::Error> {
        match response {
            None => self.note("start".to_owned()),
            Some(answers) => {
                let answers: Vec<String> =
                    answers.map(|answer| String::from_utf8_lossy(&answer).into_owned()).collect();
                self.note(format!("answers {answers:?}"));
            }
        }
        if matches!(self.steps.lock().unwrap().first(), Some(Step::Hang)) {
            std::future::pending::<()>().await;
        }
        Ok(self.step())
    }

    async fn channel_open_session(
        &mut self,
        _channel: russh::Channel<russh::server::Msg>,
        reply: russh::server::ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        let (handle, seen) = (session.handle(), Arc::clone(&self.seen));
        tokio::spawn(async move {
            let opened = [
                handle.channel_open_session().await.is_ok(),
                handle.channel_open_forwarded_tcpip("a", 1, "b", 2).await.is_ok(),
                handle.channel_open_x11("c", 3).await.is_ok(),
                handle.channel_open_agent().await.is_ok(),
            ];
            seen.lock().unwrap().push(format!("opened {opened:?}"));
        });
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: russh::ChannelId,
        _command: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)
    }
}

struct Played {
    result: Result<u32, Error>,
    seen: Vec<String>,
    human: Arc<Human>,
}

/// Logs in on a scripted server; `lines` go to the ssh config.
fn play(offers: &'static [MethodKind], steps: Vec<Step>, human: Arc<Human>, lines: &str) -> Played {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let server = Scripted { offers, steps: Arc::new(Mutex::new(steps)), seen: Arc::clone(&seen) };
    let result = block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let key = PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap();
        let known = format!("[127.0.0.1]:{} {}\n", address.port(), key.public_key().to_openssh().unwrap());
        let config = Arc::new(Config {
            keys: vec![key],
            auth_rejection_time: Duration::ZERO,
            auth_rejection_time_initial: Some(Duration::ZERO),
            methods: MethodSet::from(offers),
            ..Config::default()
        });
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that gives up ends the session with an error; the test looks at the client.
            if let Ok(session) = russh::server::run_stream(config, stream, server).await {
                drop(session.await);
            }
        });
        let mut bench = Bench::new();
        bench.host("site", address, "none", lines);
        bench.know(&known);
        bench.deadlines.start = Duration::from_secs(2);
        let result = bench.connect(human.clone()).await;
        let prompts = match result {
            Ok(transport) => {
                let prompts = transport.facts().prompts;
                let channel = transport.into_channel("x").await.unwrap();
                while !seen.lock().unwrap().iter().any(|line| line.starts_with("opened")) {
                    channel.control.probe().await.unwrap();
                }
                Ok(prompts)
            }
            Err(error) => Err(error),
        };
        serving.abort();
        prompts
    });
    let mut seen = seen.lock().unwrap().clone();
    if result.is_ok() {
        // Whatever a server opens towards us is refused.
        assert_eq!(seen.pop().unwrap(), "opened [false, false, false, false]");
    }
    Played { result, seen, human }
}

const INTERACTIVE: &[MethodKind] = &[MethodKind::KeyboardInteractive];
const BOTH: &[MethodKind] = &[MethodKind::Password, MethodKind::KeyboardInteractive];

#[test]
fn several_rounds_and_rounds_without_questions_are_answered() {
    let steps = vec![
        Step::Ask(&["Password: "]),
        Step::Ask(&[]),
        Step::Ask(&["Code: ", "Again: "]),
        Step::Ask(&[]),
        Step::Accept,
    ];
    let played = play(INTERACTIVE, steps, Human::answering(["pw", "1", "2"]), "");
    assert_eq!(played.result.unwrap(), 3);
    let expected = ["start", "answers [\"pw\"]", "answers []", "answers [\"1\", \"2\"]", "answers []"];
    assert_eq!(played.seen, expected);
    let Prompt::KeyboardInteractive { instructions, .. } = &played.human.asked()[0] else {
        panic!("not the server's question")
    };
    assert_eq!(instructions, "Hello\\u{1b}[2J", "control characters are escaped");
}

#[test]
fn case_037_a_password_is_never_sent_after_keyboard_interactive_was_offered() {
    let steps = vec![Step::Ask(&["Code: "]), Step::Refuse(BOTH)];
    let played = play(BOTH, steps, Human::answering(["1", "2", "3"]), "");
    let failure = auth_failure(played.result.unwrap_err());
    assert!(failure.reason.contains("second push"), "{failure}");
    assert_eq!(played.seen, ["start", "answers [\"1\"]"]);
    assert_eq!(failure.methods_left, ["password", "keyboard-interactive"]);
    assert_eq!(failure.prompts, 1);

    let played = play(BOTH, vec![Step::Refuse(BOTH)], Human::answering(["pw"]), "");
    let failure = auth_failure(played.result.unwrap_err());
    assert_eq!(played.seen, ["start"]);
    assert!(failure.notes.join(" ").contains("PreferredAuthentications"), "{failure}");
}

#[test]
fn a_password_is_sent_where_the_config_chooses_it_or_nothing_else_is_offered() {
    for (offers, lines) in [
        (BOTH, "PreferredAuthentications password,keyboard-interactive"),
        (BOTH, "KbdInteractiveAuthentication no"),
        (&[MethodKind::Password] as &[MethodKind], ""),
    ] {
        let played = play(offers, vec![Step::Accept], Human::answering(["pw"]), lines);
        assert_eq!(played.result.unwrap(), 1, "{lines}");
        assert_eq!(played.seen, ["password pw"]);
    }
}

#[test]
fn case_037_a_second_round_of_the_second_factor_stops_and_says_why() {
    // The whole method again, after a first step that was accepted.
    let steps = vec![Step::Ask(&["Code: "]), Step::Partly(INTERACTIVE), Step::Ask(&["Code: "]), Step::Accept];
    let played = play(INTERACTIVE, steps, Human::answering(["1", "2"]), "");
    let failure = auth_failure(played.result.unwrap_err());
    assert_eq!(played.seen, ["start", "answers [\"1\"]"]);
    assert!(failure.reason.contains("second round"), "{failure}");
    assert_eq!(failure.accepted, ["keyboard-interactive"]);

    // The same question again inside the method.
    let steps = vec![Step::Ask(&["Code: "]), Step::Ask(&["Code: "]), Step::Accept];
    let played = play(INTERACTIVE, steps, Human::answering(["1", "2"]), "");
    let failure = auth_failure(played.result.unwrap_err());
    assert_eq!(played.seen, ["start", "answers [\"1\"]"]);
    assert!(failure.reason.contains("same again"), "{failure}");
}

#[test]
fn case_089_authentication_that_stalls_ends_at_its_own_deadline() {
    let played = play(INTERACTIVE, vec![Step::Hang], Human::answering([]), "");
    let failure = auth_failure(played.result.unwrap_err());
    assert!(failure.reason.contains("authentication took more than 2 s"), "{failure}");
}

#[test]
fn an_endless_questioner_is_left() {
    let steps = (0..100).map(|_| Step::Ask(&[])).collect();
    let played = play(INTERACTIVE, steps, Human::answering([]), "");
    let failure = auth_failure(played.result.unwrap_err());
    assert!(failure.reason.contains("16 rounds"), "{failure}");
}
