//! Programs on a mount whose array is unavailable: they end when they are killed, in whichever call they wait, and what they had asked for leaves
//! nothing behind; or they wait, or get an error, as the mount says. Without `/dev/fuse` the tests say that they are skipped.

use crate::mounts::{Mounts, NAME, RECOVERY, errno};
use crate::prelude::*;
use rustix::fs::{fcntl_lock, statvfs};
use std::io::{BufRead, BufReader};

const CALLS: [&str; 11] =
    ["read", "mapped", "write", "truncate", "create", "open", "stat", "list", "flock", "lockf", "execute"];
/// How long a program that was killed may stay. A request that is only interrupted goes on for longer.
const END_MAX: Duration = Duration::from_secs(12);

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
    for (_, program) in &mut programs {
        program.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it reads");
        await_request(program.id());
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

/// Waits until a program waits for an answer of a mount, if the kernel tells where it waits.
pub fn await_request(pid: u32) {
    let place = || fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    wait_until("a program waits", RECOVERY, || ["request_wait_answer", "0"].contains(&place().as_str()));
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

#[test]
fn programs_wait_for_missing_devices_or_get_an_error_soon() {
    const BLOCKS: u64 = 64;
    let Some(mut mounts) = Mounts::new() else { return };
    mounts.array.braid(&["fs", "set-unavailable", NAME, "fail"]).done();
    mounts.array.braid(&["fs", "unmount", mounts.directory(1)]).done();
    mounts.mount(1);
    let names = ["waits", "fails"];
    let files = [0, 1].map(|mount| File::create_new(mounts.path(mount, names[mount])).expect("it is new"));
    let content = |number: u64| number.to_le_bytes().repeat(512);
    // Programs that overwrite the blocks of a file in turn. What they have written, and when they stop.
    let (done, ends) = ([const { AtomicU64::new(0) }; 2], [const { AtomicU64::new(u64::MAX) }; 2]);
    let write = |mount: usize| {
        let numbers = (0..).take_while(|number| *number < ends[mount].load(Ordering::SeqCst));
        let write = |number| files[mount].write_all_at(&content(number), number % BLOCKS * 4096);
        numbers
            .map(|number| write(number).map(|()| done[mount].store(number + 1, Ordering::SeqCst)))
            .find_map(Result::err)
    };
    let goes_on = |mount: usize| {
        let enough = done[mount].load(Ordering::SeqCst) + BLOCKS;
        wait_until("a program writes", RECOVERY, || done[mount].load(Ordering::SeqCst) > enough);
    };
    let suspended = &mounts.servers_and_devices()[..2];
    std::thread::scope(|scope| {
        let [waiting, failing] = [0, 1].map(|mount| scope.spawn(move || write(mount)));
        (0..2).for_each(goes_on);
        suspended.iter().for_each(|pid| signal(*pid, Signal::STOP));
        wait_until("a program gets an error", RECOVERY, || failing.is_finished());
        assert_eq!(failing.join().expect("it ends").as_ref().and_then(errno), Some(Errno::IO));
        let next = files[1].read_at(&mut [0; 4096], 0).expect_err("so does the next one");
        assert_eq!(errno(&next), Some(Errno::IO));
        assert!(!waiting.is_finished());
        suspended.iter().for_each(|pid| signal(*pid, Signal::CONT));
        goes_on(0);
        ends[0].store(0, Ordering::SeqCst);
        assert!(waiting.join().expect("it ends").is_none(), "it sees a pause, and no error");
    });
    wait_until("the other mount works again", RECOVERY, || fs::read(mounts.path(1, names[1])).is_ok());
    for mount in 0..2 {
        // All that was acknowledged is there; the write that failed may be, too.
        let (done, there) = (done[mount].load(Ordering::SeqCst), fs::read(mounts.path(1 - mount, names[mount])));
        for (block, there) in (0..).zip(there.expect("it is read").chunks(4096)) {
            let last = done - 1 - (done - 1 - block) % BLOCKS;
            let may_be = last + BLOCKS == done && mount == 1 && there == content(done);
            assert!(may_be || there == content(last), "block {block} of {}, after {done} writes", names[mount]);
        }
    }
    mounts.end();
}
