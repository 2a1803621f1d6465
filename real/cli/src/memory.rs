//! The memory of a process that lasts: what it takes is noted in its budget, and what is free is returned to the system when it takes much.
//!
//! A device frees the blocks of a part of its journal at once and soon needs that memory again; page faults are expensive in a virtual
//! machine (`docs/performance.md`). So a device keeps what it has freed while the process takes little. But what peers once made it hold must not stay: freed memory lies in pieces that do not fit the next
//! request, and would add to it. So the process looks at what it takes, and returns what is free when that is much.

use braid_shell::Budget;
use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The number of the allocator's option `purge_delay`, in `mimalloc.h` of version 3: after how many milliseconds it returns freed memory to
/// the system; if negative, never, not even on request.
const PURGE_DELAY: mi_option_t = 15;
/// A delay that does not end: memory is returned on request. In milliseconds.
const ON_REQUEST: i64 = 365 * 24 * 3_600_000;
/// The delay of a process with a small budget, in milliseconds. Otherwise it is a second.
const SOON: i64 = 5;
/// How often the process looks at what it takes.
const EVERY: Duration = Duration::from_millis(100);
/// After so many looks, memory is returned although the process has not grown.
const LOOKS: u32 = 100;

/// What a device takes under load, in bytes, without peers that make it hold more.
const USUAL_BYTES: u64 = 128 << 20;

/// Decides when freed memory is returned.
#[derive(Debug, Default)]
struct Keeper {
    /// What the process took when it had returned memory last.
    left: u64,
    looks: u32,
}

impl Keeper {
    /// True if the process, which takes so many bytes now, should return what is free.
    fn is_due(&mut self, resident: u64, budget: u64) -> bool {
        self.looks = self.looks.saturating_add(1);
        resident > budget / 2 && (resident > self.left + budget / 8 || self.looks >= LOOKS)
    }

    fn returned(&mut self, resident: u64) {
        *self = Keeper { left: resident, looks: 0 };
    }
}

/// Lets freed memory stay with the process while it takes less than half of its budget, unless that is less than what a device takes under
/// load.
pub fn keep() {
    if !is_small(Budget::process().limit()) {
        purge_after(ON_REQUEST);
    }
}

fn is_small(budget: u64) -> bool {
    budget / 2 < USUAL_BYTES
}

fn purge_after(millis: i64) {
    // SAFETY: the call only stores a number in the allocator.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set(PURGE_DELAY, millis);
    }
}

/// Watches what the process takes, from now on.
pub fn watch() {
    if is_small(Budget::process().limit()) {
        purge_after(SOON);
    }
    let watch = || {
        let mut keeper = Keeper::default();
        let Ok(statm) = File::open("/proc/self/statm") else { return };
        while let Some(mut resident) = resident(&statm) {
            if keeper.is_due(resident, Budget::process().limit()) {
                // SAFETY: the allocator may be told so at any time, by any thread.
                #[allow(unsafe_code)]
                unsafe {
                    mi_collect(true);
                }
                resident = self::resident(&statm).unwrap_or(resident);
                keeper.returned(resident);
            }
            Budget::process().note_resident(resident);
            std::thread::sleep(EVERY);
        }
    };
    // Without the thread, more memory stays with the process, which goes on.
    let _ = std::thread::Builder::new().name("memory".to_string()).spawn(watch);
}

/// What the process takes, in bytes, by its open `/proc/self/statm`.
fn resident(statm: &File) -> Option<u64> {
    let mut text = [0; 128];
    let length = statm.read_at(&mut text, 0).ok()?;
    let pages: u64 = std::str::from_utf8(&text[..length]).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn freed_memory_is_returned_when_the_process_has_grown_and_once_in_a_while() {
        let (mut keeper, budget) = (Keeper::default(), 512 * MIB);
        assert!((0..1000).all(|_| !keeper.is_due(256 * MIB, budget)), "little is kept");
        keeper.returned(100 * MIB);
        assert!(keeper.is_due(257 * MIB, budget));
        keeper.returned(250 * MIB);
        assert!(!keeper.is_due(314 * MIB, budget));
        assert!(keeper.is_due(315 * MIB, budget), "it has grown");
        keeper.returned(400 * MIB);
        let looks = (0..1000).take_while(|_| !keeper.is_due(400 * MIB, budget)).count();
        assert_eq!(looks as u32 + 1, LOOKS);
        assert!(Keeper::default().is_due(100 * MIB, 64 * MIB));
        let statm = File::open("/proc/self/statm").unwrap();
        assert!(resident(&statm).is_some_and(|bytes| bytes > MIB));
    }
}
