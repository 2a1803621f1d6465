//! The parts of a metadata server's volume, and which part of the server gave a disk command.
//!
//! ```text
//!   0            64 KiB         1 MiB
//!   ┌────────────┬──────────────┬──────────────────────────────────┐
//!   │ hosts that │ a block that │ store: superblock, journal, map, │
//!   │ may hold   │ is read to   │ leaves of the object index       │
//!   │ locks      │ prove the    │                                  │
//!   │            │ lease        │                                  │
//!   └────────────┴──────────────┴──────────────────────────────────┘
//! ```

use braid_base::{ArrayId, DeviceId, DiskId, FileSystemId};
use braid_locks::DISK_BYTES;
use braid_machine::{DiskCommand, DiskTag, Effect, Effects};
use braid_store::{SIZE_MIN, Store, StoreConfig, StoreError};
use bytes::Bytes;

/// The block that is read to prove the lease. Nothing is ever written there.
const PROOF_OFFSET: u64 = 64 << 10;
const PROOF_BYTES: usize = 4096;
/// Where the store begins.
pub const STORE_OFFSET: u64 = 1 << 20;
/// The smallest volume for metadata.
pub const VOLUME_BYTES_MIN: u64 = STORE_OFFSET + SIZE_MIN;
const _: () = assert!(DISK_BYTES <= PROOF_OFFSET && PROOF_OFFSET + PROOF_BYTES as u64 <= STORE_OFFSET);

/// A part of the server that gives disk commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskPart {
    Store,
    Locks,
    Lease,
}

/// The bits of a tag that say which part gave the command. The parts number their commands upwards from zero.
const PART_SHIFT: u32 = 62;

impl DiskPart {
    fn offset(self) -> u64 {
        match self {
            DiskPart::Store => STORE_OFFSET,
            DiskPart::Locks => 0,
            DiskPart::Lease => PROOF_OFFSET,
        }
    }

    fn tag(self, tag: DiskTag) -> DiskTag {
        assert!(tag.0 >> PART_SHIFT == 0, "a part numbers its commands upwards");
        DiskTag(tag.0 | (self as u64) << PART_SHIFT)
    }

    /// The part that gave a command, and the tag that it gave it.
    pub fn of(tag: DiskTag) -> (DiskPart, DiskTag) {
        let part = match tag.0 >> PART_SHIFT {
            0 => DiskPart::Store,
            1 => DiskPart::Locks,
            _ => DiskPart::Lease,
        };
        (part, DiskTag(tag.0 & ((1 << PART_SHIFT) - 1)))
    }

    /// A command of this part, as the server's disk gets it.
    pub fn place(self, tag: DiskTag, command: DiskCommand) -> (DiskTag, DiskCommand) {
        let shift = self.offset();
        let command = match command {
            DiskCommand::Read { offset, length } => DiskCommand::Read { offset: offset + shift, length },
            DiskCommand::Write { offset, data, durable } => {
                DiskCommand::Write { offset: offset + shift, data, durable }
            }
            DiskCommand::Sync => DiskCommand::Sync,
            DiskCommand::Reserve { offset, length } => DiskCommand::Reserve { offset: offset + shift, length },
        };
        (self.tag(tag), command)
    }
}

/// The read that proves the lease.
pub(crate) fn proof() -> DiskCommand {
    DiskCommand::Read { offset: 0, length: PROOF_BYTES }
}

/// The identity of the store on a volume of `volume_bytes`. The store's device number is that of the file system, so that the volume of
/// another file system is not taken for this one.
pub fn store_config(array: ArrayId, file_system: FileSystemId, volume_bytes: u64) -> StoreConfig {
    StoreConfig { array, device: DeviceId(file_system.0), size: volume_bytes.saturating_sub(STORE_OFFSET) }
}

/// The writes that make a new volume an empty metadata volume, in any order. `nonce` is drawn at random.
pub fn format(
    array: ArrayId,
    file_system: FileSystemId,
    volume_bytes: u64,
    nonce: u64,
) -> Result<Vec<(u64, Bytes)>, StoreError> {
    if volume_bytes < VOLUME_BYTES_MIN {
        return Err(StoreError::TooSmall { min: VOLUME_BYTES_MIN });
    }
    let config = store_config(array, file_system, volume_bytes);
    let writes = Store::format(&config, DiskId(nonce), nonce)?;
    Ok(writes.into_iter().map(|(offset, data)| (offset + STORE_OFFSET, data)).collect())
}

/// Moves the effects of a part to `out`: its disk commands, and its messages, which are passed to `on_send`. `on_disk` sees the commands
/// that reach devices: a `Sync` on a volume does not.
pub(crate) fn forward(
    part: DiskPart,
    from: &mut Effects,
    out: &mut Effects,
    mut on_disk: impl FnMut(DiskTag),
    mut on_send: impl FnMut(Effect, &mut Effects),
) {
    for effect in from.drain() {
        match effect {
            Effect::Disk { tag, command } => {
                let (tag, command) = part.place(tag, command);
                if matches!(command, DiskCommand::Read { .. } | DiskCommand::Write { .. }) {
                    on_disk(tag);
                }
                out.disk(tag, command);
            }
            effect => on_send(effect, out),
        }
    }
    for why in from.drain_ignored() {
        out.ignore(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_does_not_count_as_a_command_that_reaches_devices() {
        let commands = [
            DiskCommand::Read { offset: 0, length: 4096 },
            DiskCommand::Write { offset: 0, data: vec![Bytes::from_static(&[0; 4096])], durable: true },
            DiskCommand::Sync,
            DiskCommand::Reserve { offset: 0, length: 4096 },
        ];
        let mut from = Effects::new();
        (0..).zip(commands).for_each(|(tag, command)| from.disk(DiskTag(tag), command));
        let (mut out, mut reach) = (Effects::new(), Vec::new());
        let unexpected = |effect, _: &mut Effects| panic!("not sent: {effect:?}");
        forward(DiskPart::Store, &mut from, &mut out, |tag| reach.push(DiskPart::of(tag).1), unexpected);
        assert_eq!((out.drain().count(), reach), (4, vec![DiskTag(0), DiskTag(1)]));
    }
}
