//! The keyboard-interactive method: rounds of questions that the server makes up (RFC 4256).

use russh::MethodSet;
use russh::client::{Handle, KeyboardInteractiveAuthResponse};

use super::handler::{Events, Noted};
use super::prompt::{Human, Prompt, Secret, Unanswered, printable};
use super::target::Hop;

/// A login asks for a password, a code, perhaps a new password twice; more rounds than this are a loop.
const ROUNDS_MAX: u32 = 16;

/// How one exchange of the method ended.
pub(super) enum Exchange {
    Success,
    /// The server said no, or wants another method too.
    Over {
        methods_left: MethodSet,
        partial_success: bool,
        answered: bool,
    },
    /// We stopped it; the reason is a fragment.
    Stopped {
        reason: String,
        unanswered: bool,
    },
    Lost(russh::Error),
}

/// Runs one exchange.
///
/// A round whose questions were all asked before is a repetition: a second factor would be asked for twice,
/// and the site may take that for an attack, so it is not answered again.
pub(super) async fn exchange(
    handle: &mut Handle<Events>,
    hop: &Hop,
    human: &Human,
    noted: &Noted,
) -> Exchange {
    let mut asked: Vec<Vec<String>> = Vec::new();
    let mut reply = handle.authenticate_keyboard_interactive_start(hop.user.as_str(), None).await;
    for _ in 0..ROUNDS_MAX {
        let (name, instructions, prompts) = match reply {
            Err(error) => return Exchange::Lost(error),
            Ok(KeyboardInteractiveAuthResponse::Success) => return Exchange::Success,
            Ok(KeyboardInteractiveAuthResponse::Failure { remaining_methods, partial_success }) => {
                return Exchange::Over {
                    methods_left: remaining_methods,
                    partial_success,
                    answered: !asked.is_empty(),
                };
            }
            Ok(KeyboardInteractiveAuthResponse::InfoRequest { name, instructions, prompts }) => {
                (printable(&name), printable(&instructions), prompts)
            }
        };
        let questions: Vec<String> = prompts.iter().map(|prompt| last_line(&prompt.prompt)).collect();
        let mut answers = Vec::with_capacity(questions.len());
        if questions.is_empty() {
            // PAM's messages come this way, and the empty answer is what lets it go on.
            tell(human, &name, &instructions).await;
        } else if asked.contains(&questions) {
            let reason = "the server asked the same again; a second answer could cost a second push, \
                          so none was given"
                .to_owned();
            return Exchange::Stopped { reason, unanswered: false };
        } else {
            for (index, question) in prompts.iter().enumerate() {
                let first = index == 0;
                let prompt = Prompt::KeyboardInteractive {
                    name: if first { name.clone() } else { String::new() },
                    instructions: if first { instructions.clone() } else { String::new() },
                    prompt: printable(&question.prompt),
                    echo: question.echo,
                };
                match ask(human, noted, prompt).await {
                    Ok(answer) => answers.push(answer),
                    Err(stopped) => return stopped,
                }
            }
            asked.push(questions);
        }
        let answers = answers.iter().map(|answer| answer.reveal().to_owned()).collect();
        reply = handle.authenticate_keyboard_interactive_respond(answers).await;
    }
    let reason = format!("the server asked in more than {ROUNDS_MAX} rounds");
    Exchange::Stopped { reason, unanswered: false }
}

/// What a question comes down to: a server puts its messages ("wrong code, try again") before it.
fn last_line(question: &str) -> String {
    question.trim().rsplit('\n').next().unwrap_or_default().trim().to_owned()
}

async fn tell(human: &Human, name: &str, instructions: &str) {
    let lines: Vec<&str> = [name, instructions].into_iter().filter(|text| !text.trim().is_empty()).collect();
    if !lines.is_empty() {
        human.tell(lines.join("\n")).await;
    }
}

/// Asks, but stops waiting for the human when the server hangs up.
pub(super) async fn ask(human: &Human, noted: &Noted, prompt: Prompt) -> Result<Secret, Exchange> {
    // Dropping the question leaves its thread behind, whose late answer nobody takes.
    tokio::select! {
        answer = human.ask(prompt) => answer.map_err(|unanswered| Exchange::Stopped {
            reason: match unanswered {
                Unanswered::Nobody => "the server asked a question and there is nobody to ask".to_owned(),
                other => format!("the server's question was not answered: {other}"),
            },
            unanswered: true,
        }),
        reason = noted.until_ended() => Err(Exchange::Stopped {
            reason: format!("the server did not wait for the answer: {reason}"),
            unanswered: true,
        }),
    }
}
