//! Disk commands performed one after the other, for tools that create, inspect and check a device without serving it.

use crate::clock;
use crate::disk::Disk;
use braid_base::Now;
use braid_machine::{DiskResult, DiskTag, Effect, Effects};

/// Performs the disk commands in `effects`, and those that `on_done` returns, until none are left. `on_done` is called with the result of
/// each command before the next command is performed.
pub fn perform_all(
    disk: &Disk,
    effects: &mut Effects,
    mut on_done: impl FnMut(Now, DiskTag, DiskResult, &mut Effects),
) {
    loop {
        let batch: Vec<Effect> = effects.drain().collect();
        if batch.is_empty() {
            return;
        }
        for effect in batch {
            let Effect::Disk { tag, command } = effect else { panic!("a tool has a disk, and no peers") };
            let result = disk.perform(command);
            on_done(clock::now(), tag, result, effects);
        }
    }
}
