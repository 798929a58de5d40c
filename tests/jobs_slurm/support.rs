//! Recorded answers, the fence around them, and a far end that answers as it is told.

use std::sync::Mutex;

use base64::Engine as _;
use towline::jobs::{
    Answer, Call, Fault, Fence, FileFacts, FilePart, Jobs, Limits, Remote, RemoteError, Slurm,
};

/// A recorded command: `tests/fixtures/slurm/NAME.json`.
pub struct Recorded {
    pub argv: Vec<String>,
    pub answer: Answer,
}

pub fn recorded(name: &str) -> Recorded {
    let path = format!("{}/tests/fixtures/slurm/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let stdout = match value["stdout_b64"].as_str() {
        Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).unwrap(),
        None => value["stdout"].as_str().unwrap().into(),
    };
    Recorded {
        argv: serde_json::from_value(value["argv"].clone()).unwrap(),
        answer: Answer {
            rc: value["rc"].as_i64().map(|rc| rc as i32),
            stdout,
            stderr: value["stderr"].as_str().unwrap().into(),
            ..Answer::default()
        },
    }
}

/// Names of all fixtures of one tool.
pub fn names_of(tool: &str) -> Vec<String> {
    let folder = format!("{}/tests/fixtures/slurm", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()))
        .filter(|name| name.split("--").last() == Some(tool))
        .collect();
    names.sort();
    names
}

pub fn slurm() -> Slurm {
    Slurm::from_version(b"slurm-wlm 22.05.8\n").unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Finds the fence in a question: the sixteen digits behind the first separator.
pub fn fence_of(argv: &[impl AsRef<[u8]>]) -> Fence {
    let digits = argv
        .iter()
        .map(|word| text(word.as_ref()))
        .find_map(|word| {
            let at = word.find(['\x1e', '\x1f'])?;
            word.get(at + 1..at + 17).map(str::to_owned)
        })
        .unwrap();
    Fence::from_random(u64::from_str_radix(&digits, 16).unwrap())
}

/// Columns of the recorded squeue questions.
const SQUEUE: [&str; 23] = [
    "i", "F", "K", "T", "t", "r", "R", "j", "u", "a", "P", "q", "D", "C", "M", "l", "L", "V", "S", "e", "Q",
    "N", "k",
];

/// One row of squeue as towline asks for it, with the columns that matter to a test.
#[derive(Clone)]
pub struct Row {
    pub id: String,
    pub raw: String,
    pub array: String,
    pub state: String,
    pub reason: String,
    pub submitted: String,
    pub started: String,
    pub ended: String,
    pub nodes: String,
    pub name: Vec<u8>,
    pub work_dir: Vec<u8>,
    pub comment: Vec<u8>,
}

impl Row {
    pub fn new(id: &str, state: &str) -> Self {
        let number = id.split(['_', '+']).next().unwrap();
        Row {
            id: id.into(),
            raw: number.into(),
            array: number.into(),
            state: state.into(),
            reason: "None".into(),
            submitted: "1796048844".into(),
            started: "1796048845".into(),
            ended: "N/A".into(),
            nodes: "node1".into(),
            name: b"job".to_vec(),
            work_dir: b"/home/alice".to_vec(),
            comment: b"(null)".to_vec(),
        }
    }

    fn bytes(&self, fence: &Fence) -> Vec<u8> {
        let fence = fence.as_str();
        let columns = [
            &self.id,
            &self.raw,
            &self.array,
            &self.state,
            &self.reason,
            "alice",
            "proj1",
            "debug",
            "normal",
            "1",
            "2",
            &self.submitted,
            &self.started,
            &self.ended,
            "0:08",
            "5:00",
            &self.nodes,
            "N/A",
        ];
        let mut row = format!("\x1e{fence}\x1f").into_bytes();
        for column in columns {
            row.extend_from_slice(column.as_bytes());
            row.push(0x1f);
        }
        for text in [&self.name, &self.work_dir, &self.comment] {
            row.extend_from_slice(format!("{fence}\x1f").as_bytes());
            row.extend_from_slice(text);
            row.push(0x1f);
        }
        row.extend_from_slice(format!("{fence}\x1e\n").as_bytes());
        row
    }
}

/// An answer of squeue with these rows.
pub fn squeue(fence: &Fence, rows: &[Row]) -> Answer {
    ok(rows.iter().flat_map(|row| row.bytes(fence)).collect())
}

/// Takes a recorded squeue answer, whose columns are parted by bars, as if it had been asked with a fence.
pub fn refenced_squeue(recorded: &Recorded, fence: &Fence) -> (usize, Answer) {
    let mut rows = Vec::new();
    for line in text(&recorded.answer.stdout).lines() {
        let columns: Vec<&str> = line.split('|').collect();
        let column = |name| columns[SQUEUE.iter().position(|known| *known == name).unwrap()];
        assert_eq!(columns.len(), SQUEUE.len(), "{line}");
        rows.push(Row {
            array: column("F").into(),
            reason: column("r").into(),
            submitted: column("V").into(),
            started: column("S").into(),
            ended: column("e").into(),
            nodes: column("N").into(),
            name: column("j").into(),
            comment: column("k").into(),
            ..Row::new(column("i"), column("T"))
        });
    }
    (rows.len(), squeue(fence, &rows))
}

/// One row of sacct: columns by name, empty where they are not named.
pub type Accounted = Vec<(&'static str, String)>;

pub fn accounted(id: &str, state: &str, exit: &str) -> Accounted {
    let raw = id.split(['_', '+']).next().unwrap();
    [
        ("JobID", id),
        ("JobIDRaw", raw),
        ("Cluster", "towline"),
        ("State", state),
        ("ExitCode", exit),
        ("Submit", "1796048844"),
        ("Start", "1796048845"),
        ("End", "1796048850"),
        ("User", "alice"),
        ("Partition", "debug"),
        ("JobName", "job"),
        ("NodeList", "node1"),
        ("ElapsedRaw", "5"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

/// An answer of sacct to this question with these rows.
pub fn sacct(argv: &[impl AsRef<[u8]>], rows: &[Accounted]) -> Answer {
    let fence = fence_of(argv);
    let words: Vec<String> = argv.iter().map(|word| text(word.as_ref())).collect();
    let columns = words.iter().find_map(|word| word.strip_prefix("--format=")).unwrap();
    let delimiter = format!("\x1f{}\x1f", fence.as_str());
    let mut stdout = String::new();
    for row in rows {
        let values: Vec<&str> = columns
            .split(',')
            .map(|column| {
                let value = row.iter().find(|(name, _)| *name == column);
                value.map_or("", |(_, value)| value.as_str())
            })
            .collect();
        stdout.push_str(&values.join(&delimiter));
        stdout.push('\n');
    }
    ok(stdout.into_bytes())
}

/// Takes a recorded sacct answer as if it had been asked as towline asks.
pub fn refenced_sacct(recorded: &Recorded, argv: &[Vec<u8>]) -> (usize, Answer) {
    let asked = recorded.argv.iter().skip_while(|word| *word != "-o").nth(1).unwrap();
    let names: Vec<&'static str> = asked.split(',').map(|name| &*name.to_owned().leak()).collect();
    let mut rows = Vec::new();
    for line in text(&recorded.answer.stdout).lines() {
        let values: Vec<String> = line.split('|').map(str::to_owned).collect();
        assert_eq!(values.len(), names.len(), "{line}");
        rows.push(names.iter().copied().zip(values).collect());
    }
    (rows.len(), sacct(argv, &rows))
}

pub fn ok(stdout: Vec<u8>) -> Answer {
    Answer { rc: Some(0), stdout, ..Answer::default() }
}

pub fn failed(rc: i32, stderr: &str) -> Answer {
    Answer { rc: Some(rc), stderr: stderr.into(), ..Answer::default() }
}

pub const TIMED_OUT: &str = "slurm_load_jobs error: Socket timed out on send/recv operation\n";
pub const INVALID_ID: &str = "slurm_load_jobs error: Invalid job id specified\n";

type Reply = Box<dyn FnMut(&str, &Call) -> Result<Answer, RemoteError> + Send>;

/// A far end that answers as it is told, and keeps what it was asked.
pub struct Fake {
    reply: Mutex<Reply>,
    pub calls: Mutex<Vec<Call>>,
    pub file: Mutex<Option<Vec<u8>>>,
}

impl Fake {
    /// The closure gets the program's name and the call.
    pub fn new(reply: impl FnMut(&str, &Call) -> Result<Answer, RemoteError> + Send + 'static) -> Fake {
        Fake { reply: Mutex::new(Box::new(reply)), calls: Mutex::default(), file: Mutex::default() }
    }

    /// The jobs of a Slurm behind it.
    pub fn jobs(
        reply: impl FnMut(&str, &Call) -> Result<Answer, RemoteError> + Send + 'static,
    ) -> Jobs<Fake> {
        // The paused clock of the test is the only one.
        let (start, base) =
            (tokio::time::Instant::now(), jiff::Timestamp::from_second(1_796_048_900).unwrap());
        Jobs::with_scheduler(Fake::new(reply), Box::new(slurm()), Limits::default())
            .with_clock(move || base + jiff::SignedDuration::try_from(start.elapsed()).unwrap())
    }

    /// Which programs were run, in order.
    pub fn programs(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(program).collect()
    }

    pub fn count(&self, name: &str) -> usize {
        self.programs().iter().filter(|program| *program == name).count()
    }
}

/// The program behind `env -u NAME …`.
fn program(call: &Call) -> String {
    let mut words = call.argv.iter().map(|word| text(word)).peekable();
    let first = words.next().unwrap();
    if first != "env" || words.peek().is_some_and(|word| word == "-0") {
        return first;
    }
    while words.next_if(|word| word == "-u").is_some() {
        words.next();
    }
    words.next().unwrap()
}

pub fn line_lost(dispatched: bool) -> RemoteError {
    RemoteError { fault: Fault::Line, dispatched, message: "the line was lost".into(), source: None }
}

impl Remote for Fake {
    fn home(&self) -> Vec<u8> {
        b"/home/alice".to_vec()
    }

    async fn run(&self, call: Call) -> Result<Answer, RemoteError> {
        self.calls.lock().unwrap().push(call.clone());
        (self.reply.lock().unwrap())(&program(&call), &call)
    }

    async fn stat(&self, path: &[u8]) -> Result<Option<FileFacts>, RemoteError> {
        let directory = path == b"/home/alice";
        Ok(directory.then_some(FileFacts { size: 0, directory }))
    }

    async fn read(&self, _: &[u8], offset: u64, length: u64) -> Result<FilePart, RemoteError> {
        let Some(file) = self.file.lock().unwrap().clone() else {
            return Err(RemoteError {
                fault: Fault::NotFound,
                dispatched: false,
                message: "no such file".into(),
                source: None,
            });
        };
        let start = (offset as usize).min(file.len());
        let end = (start + length as usize).min(file.len());
        Ok(FilePart { bytes: file[start..end].to_vec(), size: file.len() as u64 })
    }
}
