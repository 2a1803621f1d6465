//! Finds out whether a program that waits for an answer is ending, by what `/proc` says of the thread that asks. Nobody needs that answer
//! any more, and a program that is killed does not end before it has it.
//!
//! | what the kernel tells | how it is seen here |
//! | --- | --- |
//! | a fatal signal comes while a thread waits | the request is interrupted, and the signal is pending |
//! | a fatal signal comes after another one | the signal is pending; the request is not interrupted again |
//! | the process ends, and closes its files | flags of the thread. Signals do not reach it any more |
//!
//! The number of a thread comes with its request. It belongs to the PID namespace of the process that mounted, which is this one. It is
//! zero for threads that are not visible there.

use rustix::process::Signal;
use std::fs;

/// Flags of a thread (`linux/sched.h`): it is ending, and a signal is the reason.
const EXITING: u64 = 0x4;
const SIGNALED: u64 = 0x400;
/// The places of fields in `/proc/TID/stat`, counted from the one after the name.
const FLAGS: usize = 6;
const THREADS: usize = 17;
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
        let read = |name: &str| fs::read_to_string(format!("/proc/{thread}/{name}")).unwrap_or_default();
        is_exiting(&read("stat")) || has_fatal_signal(&read("status"))
    }
}

/// True if the thread is ending with its process. The last thread of a process closes the files.
fn is_exiting(stat: &str) -> bool {
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().collect();
    let field = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let (Some(flags), Some(threads)) = (field(FLAGS), field(THREADS)) else { return false };
    flags & EXITING != 0 && (flags & SIGNALED != 0 || threads <= 1)
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
        let stat = |flags: u64, threads: u64| {
            format!("7 (a) (b) S 1 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 {threads} 0 99 1000 10 0 0\n")
        };
        for (flags, threads, ends) in [
            (0x40_0000, 1, false),
            (0x40_0000 | EXITING, 1, true),
            (EXITING | SIGNALED, 5, true),
            // A thread among others that go on.
            (EXITING, 5, false),
            (SIGNALED, 1, false),
        ] {
            assert_eq!(is_exiting(&stat(flags, threads)), ends, "{flags:x} {threads}");
        }
        assert!(!is_exiting("") && !is_exiting("7 (a) S 1"));
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
