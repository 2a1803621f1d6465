//! Supervised commands, which run while something is held: how they end, and that all their processes end with them.

use crate::prelude::*;
use std::os::unix::process::ExitStatusExt;

const SOON: Duration = Duration::from_secs(20);
/// A script that works in the background, in a session of its own, and ignores SIGTERM.
const TICKS: &str = r#"setsid sh -c 'trap "" TERM; while :; do echo tick >> $LOG; sleep 0.02; done' & wait"#;
/// A script that has ended when the processes that it has started are still running.
const TICKS_ABANDONED: &str = r#"sh -c 'setsid sh -c "while :; do echo tick >> $LOG; sleep 0.02; done" &'; sleep 60"#;

#[test]
fn a_command_and_all_that_it_has_started_end_however_it_or_its_supervisor_ends() {
    let array = Array::small();
    array.braid(&["object", "create", "1:1"]).done();
    for (script, terminal) in [(TICKS, false), (TICKS_ABANDONED, false), (TICKS, true)] {
        for (how, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::KILL, 128 + 9)] {
            let what = format!("{script}, on a terminal: {terminal}, after {how:?}");
            let running = Running::start(&array, script, terminal);
            running.goes_on();
            signal(running.braid(), how);
            let (log, status) = running.ended();
            assert_eq!(status, code, "{what}");
            if how == Signal::KILL {
                // The supervisor ends them; the system notifies it of the death of its parent.
                wait_until("its supervisor ends all", SOON, || left_of(&log).is_empty());
            }
            assert_eq!(left_of(&log), [0; 0], "{what}");
        }
    }

    // An interrupt from the terminal. Background processes of a shell ignore interrupts.
    let mut running = Running::start(&array, "while :; do echo tick >> $LOG; sleep 0.02; done & wait", true);
    running.goes_on();
    running.child.stdin.as_mut().expect("standard input is a pipe").write_all(b"\x03").expect("the terminal is open");
    let (log, status) = running.ended();
    assert_eq!((status, left_of(&log)), (130, Vec::new()), "after an interrupt from the terminal");

    // The supervisor is killed.
    let running = Running::start(&array, "while :; do echo tick >> $LOG; sleep 0.02; done", false);
    running.goes_on();
    assert!(left_of(&running.log).len() >= 2, "it is seen where it is");
    signal(running.supervisor(), Signal::KILL);
    let (log, status) = running.ended();
    assert_eq!(status, 1, "what is left of it is not known");
    wait_until("the system ends the command", SOON, || left_of(&log).is_empty());
    let shown = array.braid(&["recipe", "lock", "show", "1:1", "9.1"]).done().json();
    assert_eq!(shown["mode"], "exclusive", "therefore the lock is not released: {shown}");
}

/// A script that runs under a lock with a short lease.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(array: &Array, script: &str, terminal: bool) -> Running {
        let log = array.scratch().path("ticks");
        let script = format!("echo $PPID > $LOG.supervisor; {script}");
        let braid = braid_bin();
        let words = ["recipe", "lock", "run", "1:1", "9.1", "--lease", "2s", "--", "sh", "-c"];
        let mut command = if terminal {
            let line = format!("{} {} \"$SCRIPT\"", braid.display(), words.join(" "));
            let mut command = Command::new("script");
            command.args(["-qec", &line, "/dev/null"]);
            command
        } else {
            let mut command = Command::new(braid);
            command.args(words).arg(&script);
            command
        };
        command.env("BRAID_ARRAY", array.dir()).env("LOG", &log).env("SCRIPT", &script);
        command.stdin(if terminal { Stdio::piped() } else { Stdio::null() });
        let child = command.spawn().expect("it can be started");
        Running { child, log }
    }

    fn goes_on(&self) {
        let before = length(&self.log);
        wait_until("it ticks", SOON, || length(&self.log) > before + 50);
    }

    fn supervisor(&self) -> u32 {
        let said = std::fs::read_to_string(self.log.with_extension("supervisor")).expect("it runs");
        said.trim().parse().expect("a pid")
    }

    /// The parent of the supervisor.
    fn braid(&self) -> u32 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.supervisor())).expect("it runs");
        stat.split(' ').nth(3).expect("it has a parent").parse().expect("a pid")
    }

    /// Its log, and its exit status as a shell reports it.
    fn ended(mut self) -> (PathBuf, i32) {
        let status = self.child.wait().expect("it can be waited for");
        let status = status.code().or(status.signal().map(|signal| 128 + signal));
        (self.log, status.expect("one of both"))
    }
}

/// Processes with this log in their environment: the command, and all that it has started.
fn left_of(log: &Path) -> Vec<u32> {
    let variable = format!("LOG={}", log.display()).into_bytes();
    let processes = std::fs::read_dir("/proc").expect("the system shows its processes");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        // A process that has ended has no environment.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == variable)
    };
    pids.filter(has_it).collect()
}

fn length(log: &Path) -> u64 {
    std::fs::metadata(log).map_or(0, |file| file.len())
}
