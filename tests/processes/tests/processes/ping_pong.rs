//! Programs that lock the bytes of a file in a circle (`ping_pong.py`). Alone, a mount keeps the bytes, and needs no message. On two mounts,
//! both proceed. Without `/dev/fuse` the test says that it is skipped.

use crate::mounts::Mounts;
use crate::prelude::*;

const BYTES: u64 = 3;

fn ping_pong(file: &Path, locks: u64, own: u64) -> u64 {
    let [bytes, locks, own] = [BYTES, locks, own].map(|number| number.to_string());
    let said = tool("python3", &["-c", include_str!("ping_pong.py"), path_text(file), &bytes, &locks, &own]);
    said.trim().parse().unwrap_or_else(|_| panic!("locks for each second: {said}"))
}

/// How many locks the metadata server was asked for, as of the last renewal of its lease.
fn asked(mounts: &Mounts) -> u64 {
    std::thread::sleep(Duration::from_secs(1));
    let status = mounts.array.status();
    let counts = items(&status["hosts"]).iter().filter_map(|host| host["counters"]["metadata_lock_requests"].as_u64());
    counts.sum()
}

#[test]
fn bytes_that_are_locked_in_a_circle_cost_no_message_on_one_mount_and_are_passed_between_two() {
    let Some(mounts) = Mounts::new() else { return };
    let [a, b] = [0, 1].map(|mount| mounts.path(mount, "circle"));
    fs::write(&a, [0; BYTES as usize]).expect("it is written");
    let alone = if soak() { 200_000 } else { 10_000 };
    let kept_open = fs::File::open(&a).expect("it is there");
    let before = asked(&mounts);
    let rate = ping_pong(&a, alone, 0);
    let messages = asked(&mounts) - before;
    assert!(messages >= BYTES, "the locks are counted: {messages}");
    assert!(messages < 100, "{alone} locks on one mount, and {messages} were asked for");
    let both = if soak() { 20_000 } else { 500 };
    let rates = std::thread::scope(|scope| {
        let running = [(&a, 1), (&b, 2)].map(|(file, own)| scope.spawn(move || ping_pong(file, both, own)));
        running.map(|thread| thread.join().expect("it ends"))
    });
    assert!(asked(&mounts) - before > both, "the bytes are passed from mount to mount");
    eprintln!("locks for each second: {rate} alone, {rates:?} on two mounts with writes");
    drop(kept_open);
    mounts.end();
}
