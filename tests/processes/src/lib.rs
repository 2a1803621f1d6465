//! Tests with real processes, disks and clients: what they share.
//!
//! | module | what |
//! | --- | --- |
//! | `program` | running `braid` and the clients that people use, with a time limit and all they said |
//! | `daemon` | a process of `braid` that goes on running: started, watched, ended, killed |
//! | `array` | a whole array in a folder of its own |
//! | `nbd` | an NBD client of few words: blocking, and free to misbehave |
//! | `load` | writers that know what must be on a volume, whatever happens to hosts and devices |
//! | `data` | bytes that a seed decides |
//! | `network` | networks of a test's own, whose links can be cut |
//! | `console` | the commands in the pages of the repository, parsed and run |
//! | `scenario` | commands and programs that use structures on one device, and are killed, as it is |
//! | `scratch` | folders and mounts that go away by themselves |
//!
//! The tests need the program built (`cargo xtask test` does that), the clients installed, and root for mounts.

pub mod array;
pub mod console;
pub mod daemon;
pub mod data;
pub mod load;
pub mod nbd;
pub mod network;
pub mod program;
pub mod scenario;
pub mod scratch;

pub use array::Array;
pub use daemon::Daemon;
pub use load::Load;
pub use nbd::{Client, Refusal};
pub use program::{Outcome, run, tool};
pub use scratch::Scratch;

use std::time::{Duration, Instant};

/// True if tests are to run their long forms, as `cargo xtask soak` has it; otherwise a test takes some twenty seconds at most.
pub fn soak() -> bool {
    std::env::var_os("BRAID_SOAK").is_some()
}

/// Looks again and again until `condition` holds. For what nobody announces; fails when it takes too long.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < limit, "after {limit:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
