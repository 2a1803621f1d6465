//! Programs on a mount whose array is unavailable: they end when they are killed, in whichever call they wait, and what they had asked for leaves
//! nothing behind. Without `/dev/fuse` the test says that it is skipped.

use crate::mounts::{Mounts, RECOVERY};
use braid_processes::daemon::{has_ended_within, signal};
use braid_processes::scratch::path_text;
use braid_processes::wait_until;
use rustix::fs::{FlockOperation, fcntl_lock, statvfs};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CALLS: [&str; 11] =
    ["read", "mapped", "write", "truncate", "create", "open", "stat", "list", "flock", "lockf", "execute"];
/// How long a program that was killed may stay. A request that is only interrupted goes on for longer.
const END_MAX: Duration = Duration::from_secs(12);
/// Where a program waits for an answer, if the kernel tells it.
const WAITS: &str = "request_wait_answer";

#[test]
fn programs_that_are_killed_while_the_array_is_suspended_end_at_once() {
    let Some(mounts) = Mounts::new() else { return };
    let used = || statvfs(mounts.path(1, "")).map(|found| found.f_files - found.f_ffree).expect("it is served");
    let before = used();
    for call in CALLS.iter().filter(|call| **call != "create") {
        fs::write(mounts.path(0, call), vec![b'o'; 20_000]).expect("it is written");
    }
    let mut programs: Vec<(&str, Child)> = CALLS.iter().map(|call| (*call, start(&mounts, call))).collect();

    let suspended = mounts.servers_and_devices();
    suspended.iter().for_each(|pid| signal(*pid, Signal::STOP));
    for (call, program) in &mut programs {
        program.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it reads");
        let place = || fs::read_to_string(format!("/proc/{}/wchan", program.id())).unwrap_or_default();
        wait_until(&format!("{call} waits"), RECOVERY, || [WAITS, "0"].contains(&place().as_str()));
    }
    programs.iter_mut().for_each(|(_, program)| program.kill().expect("it runs"));
    let left: Vec<_> = programs.iter().filter(|(_, program)| !has_ended_within(program.id(), END_MAX)).collect();
    let left: Vec<_> = left.into_iter().map(|(call, _)| *call).collect();
    suspended.iter().for_each(|pid| signal(*pid, Signal::CONT));
    assert!(left.is_empty(), "killed, and still there: {left:?}");
    for (_, program) in &mut programs {
        program.wait().expect("it has ended");
    }

    // Both mounts work, and show the same.
    wait_until("it is written", RECOVERY, || fs::write(mounts.path(0, "after"), "x").is_ok());
    let [one, other] = [0, 1].map(|mount| fs::read(mounts.path(mount, "truncate")).expect("it is read"));
    assert_eq!(one, other);
    wait_until("no lock is left", RECOVERY, || {
        let free = |name: &str| {
            let file = File::options().read(true).write(true).open(mounts.path(1, name)).expect("it is there");
            let lock = FlockOperation::NonBlockingLockExclusive;
            rustix::fs::flock(&file, lock).is_ok() && fcntl_lock(&file, lock).is_ok()
        };
        ["flock", "lockf", "execute"].into_iter().all(free)
    });
    for name in fs::read_dir(mounts.path(1, "")).expect("it is listed").map(|entry| entry.expect("a name").file_name())
    {
        fs::remove_file(mounts.path(1, "").join(name)).expect("it is removed");
    }
    wait_until("no file is open", RECOVERY, || used() == before);
    mounts.end();
}

/// Starts a program that is ready to make a call on the first mount.
fn start(mounts: &Mounts, call: &str) -> Child {
    let mut program = Command::new("python3")
        .args(["-c", include_str!("killed_programs.py"), path_text(&mounts.path(0, "")), call])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let output = program.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("it writes");
    assert_eq!(line, "ready\n", "{call}");
    program
}
