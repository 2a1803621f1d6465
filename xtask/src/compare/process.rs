//! Child processes with a log and a time limit.

use super::interrupt::{GLANCE, Interrupt};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
        let line = line_of(command);
        let file = File::create(log).with_context(|| format!("can't write {}", log.display()))?;
        // In a process group of its own: Ctrl-C reaches this process alone, which then stops the others in order.
        command.process_group(0).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("can't start: {line}"))?;
        Ok(Process { child, line, log: log.to_path_buf() })
    }

    /// The PID.
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

    /// Waits until the process has succeeded.
    pub fn ended(mut self, deadline: Duration, interrupt: &Interrupt) -> Result<()> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("ended with {status}: {}\n{}", self.line, self.said()),
                None if begun.elapsed() > deadline => {
                    bail!("has not ended after {deadline:?}: {}\n{}", self.line, self.said())
                }
                None => interrupt.pause(GLANCE)?,
            }
        }
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
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // Its PID is not reused until it is waited for.
            let _ = kill_process(pid, Signal::TERM);
        }
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

/// A command as it would be typed.
pub fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
