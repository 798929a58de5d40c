//! A pseudo-terminal: what a human must answer is typed there.

use super::home::TempHome;
use portable_pty::{ChildKiller, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::io::{Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A program on a terminal of its own, with everything that it has printed. It is killed when dropped.
pub struct Pty {
    screen: Arc<Screen>,
    seen: usize,
    writer: Box<dyn Write + Send>,
    killer: Box<dyn ChildKiller + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    pid: u32,
}

/// What the reading and the waiting thread have found out; the condition tells of each change.
struct Screen {
    found: Mutex<Found>,
    changed: Condvar,
}

#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    hung_up: bool,
    exit: Option<i32>,
}

impl Pty {
    /// Starts the built `towline` in `home`.
    pub fn towline(home: &TempHome, args: &[&str]) -> Self {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_towline"));
        command.args(args);
        command.env_clear();
        for (key, value) in home.environment() {
            command.env(key, value);
        }
        command.cwd(home.user_home());
        Self::spawn(command)
    }

    /// Starts any program on a terminal of 24 rows and 80 columns.
    pub fn spawn(command: CommandBuilder) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut child = pair.slave.spawn_command(command).expect("the program starts");
        // Ours must be closed, or the end of the program would not be the end of the terminal.
        drop(pair.slave);
        let screen = Arc::new(Screen { found: Mutex::default(), changed: Condvar::new() });
        let reader = pair.master.try_clone_reader().expect("the terminal is read");
        let of_reader = Arc::clone(&screen);
        std::thread::spawn(move || of_reader.keep(reader));
        let killer = child.clone_killer();
        let pid = child.process_id().expect("a pid");
        let of_waiter = Arc::clone(&screen);
        std::thread::spawn(move || {
            let code = child.wait().map_or(-1, |status| i32::try_from(status.exit_code()).unwrap_or(-1));
            of_waiter.change(|found| found.exit = Some(code));
        });
        let writer = pair.master.take_writer().expect("the terminal is written");
        Self { screen, seen: 0, writer, killer, master: pair.master, pid }
    }

    /// Waits for `text` after what was waited for before, and gives all that stands up to its end.
    pub fn wait_for(&mut self, text: &str, within: Duration) -> String {
        let seen = self.seen;
        let end = self.screen.wait(within, &format!("{text:?}"), |found| {
            let from = found.bytes.get(seen..)?;
            let at = from.windows(text.len()).position(|window| window == text.as_bytes());
            if at.is_none() && found.hung_up {
                panic!("the program ended without {text:?}:\n{}", String::from_utf8_lossy(&found.bytes));
            }
            at.map(|at| seen + at + text.len())
        });
        let found = self.screen.found.lock().unwrap();
        self.seen = end;
        String::from_utf8_lossy(&found.bytes[seen..end]).into_owned()
    }

    /// Types `text` and the return key.
    pub fn type_line(&mut self, text: &str) {
        self.type_bytes(format!("{text}\r").as_bytes());
    }

    /// Types bytes as they are: 0x03 is Ctrl-C, 0x04 Ctrl-D.
    pub fn type_bytes(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).expect("the terminal takes the keys");
        self.writer.flush().expect("the terminal takes the keys");
    }

    /// Gives the terminal another size, as a user dragging its corner does.
    pub fn resize(&self, rows: u16, cols: u16) {
        self.master
            .resize(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 })
            .expect("the terminal is resized");
    }

    /// Waits for the end and gives the exit code.
    pub fn wait_exit(&mut self, within: Duration) -> i32 {
        let code = self.screen.wait(within, "the end of the program", |found| found.exit);
        // What it printed last is still on its way. A process left behind may hold the terminal
        // open, so this wait has a bound of its own and no verdict.
        self.screen.wait_quietly(Duration::from_secs(1), |found| found.hung_up);
        code
    }

    /// Everything printed so far, echoed keys included.
    pub fn transcript(&self) -> String {
        String::from_utf8_lossy(&self.screen.found.lock().unwrap().bytes).into_owned()
    }

    /// The program's process, which leads the terminal's session.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        if self.screen.found.lock().is_ok_and(|found| found.exit.is_none()) {
            // It may end by itself in this very moment; then there is nothing to kill.
            drop(self.killer.kill());
        }
    }
}

impl Screen {
    fn keep(&self, mut reader: Box<dyn Read + Send>) {
        let mut buffer = [0; 4096];
        // Linux reports the end of a terminal as an error (EIO), other systems as no bytes.
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            self.change(|found| found.bytes.extend_from_slice(&buffer[..length]));
        }
        self.change(|found| found.hung_up = true);
    }

    fn change(&self, edit: impl FnOnce(&mut Found)) {
        edit(&mut self.found.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait<T>(&self, within: Duration, what: &str, condition: impl Fn(&Found) -> Option<T>) -> T {
        let end = Instant::now() + within;
        let mut found = self.found.lock().unwrap();
        loop {
            if let Some(value) = condition(&found) {
                return value;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = String::from_utf8_lossy(&found.bytes).into_owned();
                drop(found);
                panic!("{what} did not come within {within:?}; the terminal shows:\n{text}");
            }
            found = self.changed.wait_timeout(found, left).unwrap().0;
        }
    }

    fn wait_quietly(&self, within: Duration, condition: impl Fn(&Found) -> bool) {
        let found = self.found.lock().unwrap();
        drop(self.changed.wait_timeout_while(found, within, |found| !condition(found)).unwrap());
    }
}
