//! The output of commands, for people or for programs.

pub use braid_base::text_table::{named, table, titled};

use braid_base::quoting::harmless;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::json;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

/// Prints one or the other. A reader that has gone away is no failure.
pub fn print(as_json: bool, json: impl FnOnce() -> serde_json::Value, text: impl FnOnce() -> String) {
    let text = if as_json { format!("{}\n", json()) } else { harmless(&text()) };
    write(text.as_bytes());
}

/// Prints bytes. False if nothing more can be printed: the reader has gone away, or there was an error, which [`finish`] reports.
pub fn write(bytes: &[u8]) -> bool {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                let _ = FAILED.set(error.to_string());
            }
            false
        }
    }
}

/// Ends when nobody can read any more what this process prints, as after `| head`: the reader of a pipe has gone, or a terminal.
pub async fn unread() {
    while !is_unread(std::io::stdout().as_fd()) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_unread(output: BorrowedFd<'_>) -> bool {
    let mut looked = [PollFd::from_borrowed_fd(output, PollFlags::empty())];
    // These are told without being asked for.
    rustix::event::poll(&mut looked, Some(&Timespec::default())).is_ok()
        && looked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// The interval at which the output is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Tells people something on standard error. If nobody hears it, the command goes on.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", harmless(text));
}

/// Asks people something on standard error, in one line.
pub fn ask(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "{text}").and_then(|()| err.flush());
}

/// The exit status of a program that would end with `status`: if its output was not printed, that is an error.
pub fn finish(status: ExitCode) -> ExitCode {
    match FAILED.get() {
        None => status,
        Some(error) => {
            tell(&format!("error: standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Why the output could not be printed.
static FAILED: OnceLock<String> = OnceLock::new();

/// Why a command failed, as it is reported.
#[derive(Clone, Copy, Debug)]
pub struct ErrorReport<'a> {
    /// For programs; never changes its meaning.
    pub code: &'a str,
    /// What is wrong, in a sentence.
    pub message: &'a str,
    /// What to do about it.
    pub hint: Option<&'a str>,
    /// With which status the program ends.
    pub status: u8,
}

impl ErrorReport<'_> {
    /// Reports it: to people on standard error, to programs on standard output. The exit status of the program.
    pub fn print(&self, as_json: bool) -> ExitCode {
        let ErrorReport { code, message, hint, status } = self;
        if as_json {
            print(
                true,
                || json!({"schema": 2, "error": {"code": code, "message": message, "hint": hint}}),
                String::new,
            );
        } else {
            tell(&format!("error: {message}"));
            if let Some(hint) = hint {
                tell(&format!("hint: {hint}"));
            }
        }
        ExitCode::from(*status)
    }
}

/// A bar that is gone when it is dropped.
fn new_bar(length: u64, template: &str) -> indicatif::ProgressBar {
    let style = indicatif::ProgressStyle::with_template(template).expect("it is a template");
    indicatif::ProgressBar::new(length).with_finish(indicatif::ProgressFinish::AndClear).with_style(style)
}

/// A bar on standard error that shows how far a long command is; nothing where that is no terminal.
pub fn progress(length: u64, what: &'static str) -> indicatif::ProgressBar {
    new_bar(length, &format!("{{bar:40}} {{pos}}/{{len}} {what}, {{eta}} left"))
}

/// The same, of bytes.
pub fn bytes(length: u64, what: &'static str) -> indicatif::ProgressBar {
    new_bar(length, &format!("{{bar:40}} {what}: {{bytes}} of {{total_bytes}}, {{bytes_per_sec}}, {{eta}} left"))
}

/// The same, of something that is followed; its message says how it is.
pub fn healing() -> indicatif::ProgressBar {
    new_bar(0, "{bar:30} {bytes}/{total_bytes} {msg}")
}

/// A line on standard error that says what is being done, of which nobody knows how long it takes.
pub fn waiting() -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::new_spinner().with_finish(indicatif::ProgressFinish::AndClear);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    bar
}

/// The same, of so many steps that each take a while; its message says what is being done.
pub fn steps(length: u64) -> indicatif::ProgressBar {
    let bar = new_bar(length, "{spinner} {wide_bar} {pos}/{len}, {eta} left: {msg}");
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(500));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_unread_once_its_reader_has_gone() {
        let (reader, writer) = std::io::pipe().expect("there is a pipe");
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("there are sockets");
        let file = std::fs::File::options().write(true).open("/dev/null").expect("it is there");
        let unread = || [writer.as_fd(), one.as_fd(), file.as_fd()].map(is_unread);
        assert_eq!(unread(), [false; 3]);
        drop((reader, other));
        assert_eq!(unread(), [true, true, false]);
    }
}
