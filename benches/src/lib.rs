//! The parts of Braid that every request uses, each as a [`Workload`] that can be timed (`cargo bench`) or whose instructions can be
//! counted (`cargo xtask instructions`). `benches/README.md` explains how to read both.

mod checksum;
mod device;
mod host;
mod lock_table;
mod plan;
mod range_table;
mod stamps;
mod store;
mod wire;
mod workload;

pub use workload::{ROUNDS_MAX, Rounds, Workload};

use braid_base::DiskId;
use braid_store::{Store, StoreConfig};
use braid_world::MemoryDisk;

/// All workloads, from the smallest part to the largest. Their names are unique.
pub fn workloads() -> Vec<Workload> {
    let subjects: [fn() -> Vec<Workload>; 9] = [
        checksum::workloads,
        range_table::workloads,
        lock_table::workloads,
        stamps::workloads,
        plan::workloads,
        wire::workloads,
        store::workloads,
        device::workloads,
        host::workloads,
    ];
    subjects.iter().flat_map(|subject| subject()).collect()
}

/// A disk with an empty store whose journal has this many bytes. The disk's copying is part of the measured work: the driver of a real
/// disk copies less, but waits.
fn formatted_disk(config: &StoreConfig, journal: u64) -> MemoryDisk {
    let parts = Store::format_with(config, DiskId(1), 77, Some(journal)).expect("the size will do");
    MemoryDisk::with(config.size, parts)
}

/// Bytes that are not all equal, so that no code can take a shortcut.
fn pattern(length: usize) -> bytes::Bytes {
    let mut rng = braid_base::Rng::new(length as u64);
    (0..length).map(|_| rng.below(256) as u8).collect::<Vec<u8>>().into()
}
