//! The memory of a process that lasts: what it takes is noted in its budget, and what is free is returned to the system when it takes much.
//!
//! A device frees the blocks of a part of its journal at once and soon needs that memory again; page faults are expensive in a virtual
//! machine (`docs/performance.md`). So a device keeps what it has freed while the process takes little. But what peers once made it hold must not stay: freed memory lies in pieces that do not fit the next
//! request, and would add to it. So the process looks at what it takes, and returns what is free when that is much, and when it comes to rest.

use braid_shell::Budget;
use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t};
use rustix::thread::disable_transparent_huge_pages;
use rustix::time::{ClockId, clock_gettime};
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
/// How often the process looks at what it takes, and how often at rest: each look wakes a processor.
const EVERY: Duration = Duration::from_millis(100);
const AT_REST: Duration = Duration::from_secs(2);
/// After so many looks, memory is returned although the process has not grown.
const LOOKS: u32 = 100;
/// A process that takes less than one part in so many of a processor's time is at rest.
const REST_SHARE: u32 = 50;
/// How much a process that comes to rest may have grown and keep, in bytes.
const KEPT_AT_REST: u64 = 4 << 20;

/// What a device takes under load, in bytes, without peers that make it hold more.
const USUAL_BYTES: u64 = 128 << 20;

/// Decides when freed memory is returned.
#[derive(Clone, Debug, Default)]
struct Keeper {
    /// What the process took when it had returned memory last.
    left: u64,
    looks: u32,
    /// How often it looks.
    every: Duration,
}

impl Keeper {
    /// True if the process, which takes so many bytes now, and has used the processor for `busy` since the last look, should return what is
    /// free.
    fn is_due(&mut self, resident: u64, budget: u64, busy: Duration) -> bool {
        self.looks = self.looks.saturating_add(1);
        let rests = busy < self.every / REST_SHARE;
        // It looks less often after each look at rest. So it does not look at rest for a while when it looks most seldom.
        let has_rested = rests && self.every == AT_REST;
        self.every = if rests { (self.every * 2).clamp(EVERY, AT_REST) } else { EVERY };
        let is_much = resident > budget / 2 && (resident > self.left + budget / 8 || self.looks >= LOOKS);
        is_much || (has_rested && resident > self.left + KEPT_AT_REST)
    }

    fn returned(&mut self, resident: u64) {
        *self = Keeper { left: resident, looks: 0, ..*self };
    }
}

/// Lets freed memory stay with the process while it takes less than half of its budget, unless that is less than what a device takes under
/// load.
pub fn keep() {
    if !is_small(Budget::process().limit()) {
        purge_after(ON_REQUEST);
        let _ = disable_transparent_huge_pages(false);
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
    // With large pages a process takes megabytes more. Only those that keep much memory gain by them.
    let _ = disable_transparent_huge_pages(true);
    if is_small(Budget::process().limit()) {
        purge_after(SOON);
    }
    let watch = || {
        let (mut keeper, mut before) = (Keeper { every: EVERY, ..Keeper::default() }, busy());
        let Ok(statm) = File::open("/proc/self/statm") else { return };
        while let Some(mut resident) = resident(&statm) {
            let now = busy();
            if keeper.is_due(resident, Budget::process().limit(), now.saturating_sub(before)) {
                // SAFETY: the allocator may be told so at any time, by any thread.
                #[allow(unsafe_code)]
                unsafe {
                    mi_collect(true);
                }
                resident = self::resident(&statm).unwrap_or(resident);
                keeper.returned(resident);
            }
            Budget::process().note_resident(resident);
            before = now;
            std::thread::sleep(keeper.every);
        }
    };
    // Without the thread, more memory stays with the process, which goes on.
    let _ = std::thread::Builder::new().name("memory".to_string()).spawn(watch);
}

fn busy() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
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
        let (mut keeper, budget, busy) = (Keeper::default(), 512 * MIB, EVERY);
        assert!((0..1000).all(|_| !keeper.is_due(256 * MIB, budget, busy)), "little is kept");
        keeper.returned(100 * MIB);
        assert!(keeper.is_due(257 * MIB, budget, busy));
        keeper.returned(250 * MIB);
        assert!(!keeper.is_due(314 * MIB, budget, busy));
        assert!(keeper.is_due(315 * MIB, budget, busy), "it has grown");
        keeper.returned(400 * MIB);
        let looks = (0..1000).take_while(|_| !keeper.is_due(400 * MIB, budget, busy)).count();
        assert_eq!(looks as u32 + 1, LOOKS);
        assert!(Keeper::default().is_due(100 * MIB, 64 * MIB, busy));

        // At rest it looks seldom, and returns what is free once.
        let rest = |keeper: &mut Keeper| (0..20).filter(|_| keeper.is_due(90 * MIB, budget, Duration::ZERO)).count();
        keeper.returned(80 * MIB);
        let mut moments = keeper.clone();
        assert!((0..4).all(|_| !moments.is_due(90 * MIB, budget, Duration::ZERO)), "it has rested for a moment only");
        assert!(rest(&mut keeper) > 0);
        keeper.returned(88 * MIB);
        assert_eq!((rest(&mut keeper), keeper.every), (0, AT_REST));
        assert!(!keeper.is_due(90 * MIB, budget, busy) && keeper.every == EVERY);
        let statm = File::open("/proc/self/statm").unwrap();
        assert!(resident(&statm).is_some_and(|bytes| bytes > MIB));
    }
}
