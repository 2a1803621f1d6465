//! The room in the metadata volume, and what is refused when it is nearly used up: first names and inodes, then bytes of files that exist.
//! What removes something always finds room.

use braid_wire::FileCommand;

/// This share of the volume is kept for operations that remove something,
const KEPT_SHARE: u64 = 16;
/// and at least this many blocks. With less room the store can merge only a few changes at a time, or not even one removal.
const KEPT_BLOCKS_MIN: u64 = 1024;
/// A further part of that is kept for the bytes of files that exist.
const KEPT_FOR_BYTES: u64 = 4;

/// The room, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// What names and inodes use.
    pub used: u64,
    /// With so many, names are refused.
    pub blocks: u64,
    is_full: bool,
}

impl Room {
    /// That of a volume with so many blocks, and so many free ones.
    pub(crate) fn of(blocks: u64, free: u64) -> Room {
        let for_removals = KEPT_BLOCKS_MIN.max(blocks / KEPT_SHARE);
        let for_names = blocks.saturating_sub(for_removals + for_removals / KEPT_FOR_BYTES);
        Room { used: blocks.saturating_sub(free).min(for_names), blocks: for_names, is_full: free < for_removals }
    }

    /// True if names and inodes find no room any more.
    pub fn refuses_names(&self) -> bool {
        self.used >= self.blocks
    }

    /// True if a command that needs room finds none. Bytes of files that exist still find room when names do not.
    pub(crate) fn refuses(&self, command: &FileCommand) -> bool {
        match command {
            FileCommand::Attach { .. } | FileCommand::Truncate { .. } => self.is_full(),
            _ => self.refuses_names(),
        }
    }

    /// True if only operations that remove something may use what is left.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}
