//! Common code of the tests with real processes, disks and clients.
//!
//! | module | what |
//! | --- | --- |
//! | `program` | runs `braid` and other programs, with a time limit, and captures their output |
//! | `daemon` | a long-running process of `braid` |
//! | `array` | a whole array in a temporary folder |
//! | `attacker` | hostile peers at every socket of an array |
//! | `nbd` | a minimal NBD client: blocking, and able to violate the protocol |
//! | `kept` | small arrays of earlier builds: their content, and how they are packed |
//! | `load` | writers that know the expected content of a volume when hosts and devices fail |
//! | `data` | pseudo-random data |
//! | `network` | network namespaces whose links can be cut |
//! | `console` | parses and runs the commands in the pages of the repository |
//! | `scenario` | commands and programs that use structures on one device and are killed, as is the device |
//! | `scratch` | temporary folders and mounts |
//! | `transcript` | runs commands, and compares what they say with a transcript |
//!
//! The tests need the program built (`cargo xtask test` does that), the clients installed, and root for mounts.

pub mod array;
pub mod attacker;
pub mod console;
pub mod daemon;
pub mod data;
pub mod kept;
pub mod load;
pub mod nbd;
pub mod network;
pub mod program;
pub mod scenario;
pub mod scratch;
pub mod transcript;

pub use array::Array;
pub use daemon::Daemon;
pub use load::Load;
pub use nbd::{Client, Refusal};
pub use program::{Outcome, run, tool};
pub use scratch::Scratch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// True for the long forms of tests, as in `cargo xtask soak`; in the short form a test takes about twenty seconds at most.
pub fn soak() -> bool {
    std::env::var_os("BRAID_SOAK").is_some()
}

/// Rests as long as something has taken, but never long: then tests that run at the same time have the processors, too. Not in the long forms.
pub fn rest(took: Duration) {
    const REST_MAX: Duration = Duration::from_millis(20);
    if !soak() {
        std::thread::sleep(took.min(REST_MAX));
    }
}

/// Does something repeatedly for a while, and rests in between.
pub fn keep_doing(span: Duration, mut work: impl FnMut()) {
    let begun = Instant::now();
    while begun.elapsed() < span {
        let round = Instant::now();
        work();
        rest(round.elapsed());
    }
}

/// Does something for each item, for so many of them at once.
pub fn each<T: Sync>(items: &[T], at_once: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let some = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item)
        }
    };
    std::thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(some))));
}

/// Polls until `condition` holds. For conditions that are not announced; fails after `limit`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    poll_until(limit, || condition().then_some(()).ok_or_else(|| what.to_string()));
}

/// Polls until something is found; fails after `limit`, and says what was not. A look may be a command, which takes processor time that other
/// tests need: the next one comes when as much time has passed.
pub fn poll_until<T>(limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    loop {
        let looked = Instant::now();
        match look() {
            Ok(found) => return found,
            Err(missing) => assert!(begun.elapsed() < limit, "timed out after {limit:?}: {missing}"),
        }
        std::thread::sleep(looked.elapsed().max(Duration::from_millis(10)));
    }
}
