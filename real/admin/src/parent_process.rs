//! Processes of this program that start each other: starting the program again, ending with the process that started
//! this one, and telling it of a panic.

use crate::failure::Failure;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Once;

/// The program that this process runs. The file at the program's path may be of another release by now, or be gone: packages replace
/// programs by renaming. What the system opens by this name is what this process runs, also then.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

pub fn this_program() -> Command {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(std::env::args_os().next().unwrap_or_else(|| "braid".into()));
    command
}

/// The code of the failure that a process reports which panicked.
pub const PANICKED: &str = "panicked";

/// Has the system kill this process when its parent dies, if it was started with the number of its parent. If this process panics, it tells its
/// parent why, like any other failure: on standard output.
pub fn die_with(parent: Option<u32>) -> Result<(), Failure> {
    let Some(parent) = parent else { return Ok(()) };
    report_panics();
    heed_death_of(parent, Signal::KILL)
}

/// Has the system send this process a signal when its parent dies, however that happens. If the parent has died already, the error is
/// `orphaned`.
pub fn heed_death_of(parent: u32, signal: Signal) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(signal)).map_err(std::io::Error::from)?;
    // It may have died before this was requested.
    match getppid().map(Pid::as_raw_pid) == Some(parent as i32) {
        true => Ok(()),
        false => Err(Failure::failed("orphaned", "the process that started this one has ended")),
    }
}

/// Has the first panic reported, before it goes its usual way.
fn report_panics() {
    let usual = std::panic::take_hook();
    let first = Once::new();
    std::panic::set_hook(Box::new(move |info| {
        first.call_once(|| {
            let place = info.location().map(|place| format!(" at {place}")).unwrap_or_default();
            let message = info.payload_as_str().and_then(|text| text.lines().next()).unwrap_or("no message");
            let failure = Failure::failed(PANICKED, format!("panicked{place}: {message}"));
            // Nobody may be listening any more.
            let _ = writeln!(std::io::stdout(), "{}", failure.to_json());
        });
        usual(info);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANIC: &str = "BRAID_TEST_PANIC";

    #[test]
    fn the_parent_of_a_process_that_panics_is_told_why() {
        if std::env::var_os(PANIC).is_some() {
            // In the process that this test starts.
            report_panics();
            panic!("it was\nnot expected");
        }
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let this = "parent_process::tests::the_parent_of_a_process_that_panics_is_told_why";
        let output = command.args(["--exact", this]).env(PANIC, "1").output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let reports = said.lines().filter_map(|line| serde_json::from_str(&line[line.find('{')?..]).ok());
        let failure = reports.filter_map(|said| Failure::from_json(&said, Some(101))).next().expect(&said);
        assert_eq!(failure.code, PANICKED);
        assert!(failure.message.starts_with("panicked at ") && failure.message.ends_with(": it was"), "{failure}");
    }
}
