//! Child processes with a log and a time limit.

use super::interrupt::{GLANCE, Interrupt};
use crate::prelude::*;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus};

/// How long a process may take to end after it was asked to.
const END_WAIT: Duration = Duration::from_secs(30);
/// How many lines of its log an error message quotes.
const QUOTED: usize = 12;

/// A child process, ended when dropped.
pub struct Process {
    child: Child,
    line: String,
    log: PathBuf,
}

impl Process {
    /// Starts a command, with its output in the file `log`.
    pub fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let file = File::create(log).with_context(|| format!("can't write {}", log.display()))?;
        Process::start_with(command.stdout(file.try_clone()?).stderr(file), log)
    }

    /// Starts a command whose output is redirected already; `log` is where its errors are.
    pub fn start_with(command: &mut Command, log: &Path) -> Result<Process> {
        let line = line_of(command);
        // In a process group of its own: Ctrl-C reaches this process alone, which then stops the others in order.
        command.process_group(0).stdin(Stdio::null());
        let child = command.spawn().with_context(|| format!("can't start: {line}"))?;
        Ok(Process { child, line, log: log.to_path_buf() })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("ended with {status}: {}\n{}", self.line, self.said()),
        }
    }

    /// Looks until it finds something, while the process runs. `what` says in the error message what has not happened.
    pub fn until<T>(
        &mut self,
        limit: Duration,
        interrupt: &Interrupt,
        what: &str,
        mut look: impl FnMut(&Process) -> Result<Option<T>>,
    ) -> Result<T> {
        let found = interrupt.until(limit, what, || {
            self.check()?;
            look(self)
        });
        found.with_context(|| format!("{}\n{}", self.line, self.said()))
    }

    /// Waits until the process has ended.
    pub fn status(&mut self, limit: Duration, interrupt: &Interrupt) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(status),
                None if begun.elapsed() > limit => {
                    bail!("has not ended after {limit:?}: {}\n{}", self.line, self.said())
                }
                None => interrupt.pause(GLANCE)?,
            }
        }
    }

    /// Waits until the process has succeeded.
    pub fn ended(mut self, limit: Duration, interrupt: &Interrupt) -> Result<()> {
        match self.status(limit, interrupt)? {
            status if status.success() => Ok(()),
            status => bail!("ended with {status}: {}\n{}", self.line, self.said()),
        }
    }

    pub fn kill_group(&self) -> Result<()> {
        let group = Pid::from_child(&self.child);
        kill_process_group(group, Signal::KILL).with_context(|| format!("can't be killed: {}", self.line))
    }

    /// The last lines of its output.
    pub fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(QUOTED)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Its PID is not reused until it is waited for.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < END_WAIT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(GLANCE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The JSON object that a command prints, which must succeed. Its output is a file in `folder` meanwhile.
pub fn printed_json(command: &mut Command, folder: &Path, limit: Duration, interrupt: &Interrupt) -> Result<Value> {
    let said = folder.join("said.json");
    Process::start(command, &said)?.ended(limit, interrupt)?;
    let text = std::fs::read_to_string(&said).with_context(|| format!("can't read {}", said.display()))?;
    let object = text.lines().find(|line| line.starts_with('{')).and_then(|line| serde_json::from_str(line).ok());
    object.with_context(|| format!("prints no JSON object: {}", line_of(command)))
}

/// What a command prints, which must succeed.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("can't start: {}", line_of(command)))?;
    if !output.status.success() {
        bail!("ended with {}: {}\n{}", output.status, line_of(command), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A port of this machine that was free a moment ago; no other process is expected to take it.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until a process listens at a port of this machine.
pub fn await_listener(process: &mut Process, port: u16, limit: Duration, interrupt: &Interrupt) -> Result<()> {
    let connects = |_: &Process| Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());
    process.until(limit, interrupt, "it did not listen", connects).map(|_| ())
}

/// A command as it would be typed.
pub fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
