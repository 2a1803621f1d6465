//! A long-running process of `braid`: starting it, reading its log, ending it, killing it.

use crate::program::{Outcome, braid_bin};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long a process may take until it is ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long a process may take to end after it was asked to.
const END_LIMIT: Duration = Duration::from_secs(40);

/// A running process, killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    line: String,
    /// Only one thread reads them; others look at the rest.
    lines: Mutex<Receiver<String>>,
    log: PathBuf,
    /// Its announcement that it is ready.
    pub ready: Value,
}

impl Daemon {
    /// Starts `braid` with these arguments; its standard error goes to the file `log`. If it ends before it announces that it is ready, its
    /// outcome is returned.
    pub fn start(arguments: &[&str], log: &Path) -> Result<Daemon, Outcome> {
        Daemon::start_by(&[], arguments, log)
    }

    /// Like [`Daemon::start`], by another program, the launcher, which does something first and then executes `braid`: its arguments are
    /// these words, followed by the command line to execute.
    pub fn start_by(launcher: &[&str], arguments: &[&str], log: &Path) -> Result<Daemon, Outcome> {
        let errors = File::options().create(true).append(true).open(log).expect("a log can be written");
        let mut command = match launcher {
            [] => Command::new(braid_bin()),
            [first, words @ ..] => {
                let mut command = Command::new(first);
                command.args(words).arg(braid_bin());
                command
            }
        };
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).env_remove("BRAID_ARRAY");
        let mut child = command.spawn().expect("braid can be started");
        let output = child.stdout.take().expect("standard output is a pipe");
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let line = format!("braid {}", arguments.join(" "));
        let mut daemon = Daemon { child, line, lines: Mutex::new(lines), log: log.to_path_buf(), ready: Value::Null };
        let first = match daemon.lines().recv_timeout(READY_LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => panic!("not ready after {READY_LIMIT:?}: {}", daemon.line),
        };
        let said: Value = serde_json::from_str(&first).unwrap_or_default();
        if said["ready"] == true {
            daemon.ready = said;
            return Ok(daemon);
        }
        let status = daemon.end_within(END_LIMIT);
        let rest: Vec<String> = daemon.lines().iter().collect();
        Err(Outcome {
            line: daemon.line.clone(),
            status,
            stdout: [&[first], &rest[..]].concat().join("\n"),
            stderr: daemon.log(),
        })
    }

    fn lines(&mut self) -> &mut Receiver<String> {
        self.lines.get_mut().expect("no reader panics")
    }

    /// The PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output on standard error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal and waits until it ends. Returns its exit status.
    pub fn end(mut self, how: Signal) -> Option<i32> {
        signal(self.pid(), how);
        self.end_within(END_LIMIT)
    }

    /// Waits until it ends by itself. Returns its exit status.
    pub fn ended(mut self) -> Option<i32> {
        self.end_within(END_LIMIT)
    }

    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    fn end_within(&mut self, limit: Duration) -> Option<i32> {
        let ended = has_ended_within(self.pid(), limit);
        assert!(ended, "still running after {limit:?}: {}\n{}", self.line, self.log());
        self.child.wait().expect("it can be waited for").code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of {}\n{}", self.line, self.log());
        }
    }
}

/// Sends a signal to a process that the test or its array has started.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("a PID is not zero"), signal).expect("the process exists");
}

/// A suspended process, resumed when dropped.
#[derive(Debug)]
pub struct Stopped(u32);

impl Stopped {
    /// Suspends a process.
    pub fn new(pid: u32) -> Stopped {
        signal(pid, Signal::STOP);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

/// Waits until a suspended process runs no more, or has ended: the signal arrives after the call that sends it.
pub fn await_stopped(pid: u32) {
    crate::wait_until("the process is suspended or has ended", Duration::from_secs(10), || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("no one has waited for its end");
        matches!(stat.rsplit(") ").next().and_then(|fields| fields.chars().next()), Some('T' | 'Z'))
    });
}

/// Waits until a process, a child of this one or not, has ended. Returns false if it takes longer than `limit`.
pub fn has_ended_within(pid: u32, limit: Duration) -> bool {
    let Ok(process) = pidfd_open(Pid::from_raw(pid as i32).expect("a PID is not zero"), PidfdFlags::empty()) else {
        return true;
    };
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).expect("a process can be waited for") > 0
}
