//! Finds out whether a program that waits for an answer is ending, by what `/proc` says of the thread that asks. Nobody needs that answer
//! any more, and a program that is killed does not end before it has it.
//!
//! | what the kernel tells | how it is seen here |
//! | --- | --- |
//! | a fatal signal comes while a thread waits | the request is interrupted, and the signal is pending |
//! | a fatal signal comes after another one | the signal is pending; the request is not interrupted again |
//! | the process ends, and closes its files | its last thread has no memory. Signals do not reach it any more |
//!
//! The number of a thread comes with its request. It belongs to the PID namespace of the process that mounted, which is this one. It is
//! zero for threads that are not visible there.

use rustix::process::Signal;
use std::fs;

/// Signals that do not end a process by default.
const HARMLESS: [Signal; 8] =
    [Signal::CHILD, Signal::CONT, Signal::URG, Signal::WINCH, Signal::STOP, Signal::TSTP, Signal::TTIN, Signal::TTOU];

/// The threads of this machine.
#[derive(Debug)]
pub struct Callers {
    /// `/proc` shows the namespace of this process.
    is_visible: bool,
}

impl Callers {
    pub fn new() -> Callers {
        let own = fs::read_link("/proc/self").unwrap_or_default();
        Callers { is_visible: own.as_os_str() == std::process::id().to_string().as_str() }
    }

    /// True if the program of this thread surely ends without another step of its own.
    pub fn is_ending(&self, thread: u32) -> bool {
        if thread == 0 || !self.is_visible {
            return false;
        }
        // No other file: most, such as `stat`, wait for a thread that executes a program, and that may wait for this mount.
        let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        is_exiting(&status) || has_fatal_signal(&status)
    }
}

/// True if the thread is ending with its process, and has no memory any more. The last thread of a process closes the files.
fn is_exiting(status: &str) -> bool {
    status.lines().any(|line| line == "Threads:\t1") && !status.lines().any(|line| line.starts_with("VmSize:"))
}

/// True if a signal waits that ends the process.
fn has_fatal_signal(status: &str) -> bool {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
    };
    let sets = [set("SigPnd"), set("ShdPnd"), set("SigBlk"), set("SigIgn"), set("SigCgt")];
    let [Some(own), Some(shared), Some(blocked), Some(ignored), Some(caught)] = sets else { return false };
    let harmless = HARMLESS.iter().fold(0, |set, signal| set | 1 << (signal.as_raw() - 1));
    (own | shared) & !(blocked | ignored | caught | harmless) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_ending_when_its_process_is() {
        for (memory, threads, ends) in [("VmSize:\t8 kB\n", 1, false), ("", 1, true), ("", 12, false)] {
            assert_eq!(is_exiting(&format!("Name:\ta\n{memory}Threads:\t{threads}\n")), ends, "{memory} {threads}");
        }
        assert!(!is_exiting(""));
    }

    #[test]
    fn only_a_signal_that_ends_the_process_is_fatal() {
        let bit = |signal: Signal| 1u64 << (signal.as_raw() - 1);
        let status = |pending: [u64; 2], blocked: u64, ignored: u64, caught: u64| {
            let [own, shared] = pending;
            format!(
                "Name:\tSigPnd\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
            )
        };
        let [kill, quit, child] = [Signal::KILL, Signal::QUIT, Signal::CHILD].map(bit);
        for (pending, blocked, ignored, caught, ends) in [
            ([0, 0], 0, 0, 0, false),
            ([kill, 0], 0, 0, 0, true),
            ([0, kill | quit], quit, quit, quit, true),
            ([0, quit], 0, 0, 0, true),
            ([0, quit], quit, 0, 0, false),
            ([quit, 0], 0, quit, 0, false),
            ([quit, 0], 0, 0, quit, false),
            ([child, child], 0, 0, 0, false),
        ] {
            assert_eq!(has_fatal_signal(&status(pending, blocked, ignored, caught)), ends, "{pending:x?}");
        }
        assert!(!has_fatal_signal("") && !has_fatal_signal("SigPnd:\tx\n"));
    }

    #[test]
    fn this_thread_is_not_ending() {
        let callers = Callers::new();
        assert!(callers.is_visible, "the tests have their own /proc");
        assert!(!callers.is_ending(std::process::id()) && !callers.is_ending(0) && !callers.is_ending(u32::MAX));
    }
}
