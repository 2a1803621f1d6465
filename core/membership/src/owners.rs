//! The owners of file systems: a table in the monitor's record.
//!
//! ```text
//!                 TakeOver                        TakeOver: the previous owner is fenced
//!   no owner ─────────────────────► owned by h5 ─────────────────────────────────────────► owned by h7 …
//!      ▲                                │                                                      │
//!      └──────────── Release ───────────┴──────────────────────────────────────────────────────┘
//! ```
//!
//! Each change begins an epoch, and the ownership that it makes names that epoch. So no ownership of a file system ever recurs, and a late
//! copy of a request for a change finds another ownership than it names. Only file systems with an owner have an entry. For the others,
//! one number is kept: the last epoch in which any of them lost its owner.

use braid_base::{Epoch, FileSystemId, Generation, Ownership, limits};
use braid_wire::OwnershipRefused;
use bytes::{Buf, BufMut};
use std::collections::BTreeMap;

/// A count, and the epoch of the last release.
const FIXED_BYTES: usize = 8;
/// A file system, two epochs and two generations.
const OWNER_BYTES: usize = 20;
/// Flag of an entry, in the word that holds its file system: the previous ownership had an owner.
const HAD_OWNER: u32 = 1 << 16;

/// The owners of file systems.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Owners {
    owned: BTreeMap<FileSystemId, Owner>,
    /// The last epoch in which a file system lost its owner without a successor.
    released: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Owner {
    owner: Generation,
    since: Epoch,
    /// The ownership from which it took over: by this, a repeated request is recognised.
    from: Ownership,
}

impl Owners {
    /// The most bytes of a table in the record.
    pub const BYTES_MAX: usize = FIXED_BYTES + limits::FILE_SYSTEMS_MAX * OWNER_BYTES;

    /// A table without owners, of which no request that was made before this epoch can change anything.
    pub fn none_as_of(released: Epoch) -> Owners {
        Owners { owned: BTreeMap::new(), released }
    }

    pub fn of(&self, file_system: FileSystemId) -> Ownership {
        match self.owned.get(&file_system) {
            Some(owner) => owner.ownership(),
            None => Ownership { since: self.released, owner: None },
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (FileSystemId, Ownership)> + '_ {
        self.owned.iter().map(|(file_system, owner)| (*file_system, owner.ownership()))
    }

    /// True if this host is the owner, and took over from this ownership.
    pub fn has_taken_over(&self, file_system: FileSystemId, by: Generation, from: Ownership) -> bool {
        self.owned.get(&file_system).is_some_and(|owner| owner.owner == by && owner.from == from)
    }

    /// Makes a host the owner from `epoch` on, if the ownership is still `from`.
    pub fn take_over(
        &mut self,
        file_system: FileSystemId,
        by: Generation,
        from: Ownership,
        epoch: Epoch,
    ) -> Result<(), OwnershipRefused> {
        let present = self.of(file_system);
        if present != from || from.owner == Some(by) {
            return Err(OwnershipRefused::Differs(present));
        }
        if from.owner.is_none() && self.owned.len() >= limits::FILE_SYSTEMS_MAX {
            return Err(OwnershipRefused::TooManyFileSystems);
        }
        self.owned.insert(file_system, Owner { owner: by, since: epoch, from });
        Ok(())
    }

    /// Removes the owner in `epoch`. False if nothing changes, because the ownership is a later one already.
    pub fn release(
        &mut self,
        file_system: FileSystemId,
        by: Generation,
        since: Epoch,
        epoch: Epoch,
    ) -> Result<bool, OwnershipRefused> {
        let present = self.of(file_system);
        if present == (Ownership { since, owner: Some(by) }) {
            self.owned.remove(&file_system);
            self.released = epoch;
            return Ok(true);
        }
        if present.since > since { Ok(false) } else { Err(OwnershipRefused::Differs(present)) }
    }

    pub fn put(&self, to: &mut Vec<u8>) {
        to.put_u32_le(self.released.0);
        to.put_u32_le(self.owned.len() as u32);
        for (file_system, Owner { owner, since, from }) in &self.owned {
            let flags = from.owner.map_or(0, |_| HAD_OWNER);
            to.put_u32_le(u32::from(file_system.0) | flags);
            to.put_u32_le(owner.0);
            to.put_u32_le(since.0);
            to.put_u32_le(from.owner.unwrap_or_default().0);
            to.put_u32_le(from.since.0);
        }
    }

    /// Decodes a table of a record of this epoch; none if it is invalid.
    pub fn take(epoch: Epoch, from: &mut &[u8]) -> Option<Owners> {
        let mut owners = Owners::none_as_of(Epoch(from.try_get_u32_le().ok()?));
        let count = from.try_get_u32_le().ok()? as usize;
        if count > limits::FILE_SYSTEMS_MAX || owners.released > epoch {
            return None;
        }
        for _ in 0..count {
            let name = from.try_get_u32_le().ok()?;
            let file_system = FileSystemId((name & !HAD_OWNER).try_into().ok()?);
            let (owner, since) = (Generation(from.try_get_u32_le().ok()?), Epoch(from.try_get_u32_le().ok()?));
            let (before, began) = (Generation(from.try_get_u32_le().ok()?), Epoch(from.try_get_u32_le().ok()?));
            let before = Ownership { since: began, owner: (name & HAD_OWNER != 0).then_some(before) };
            let is_ascending = owners.owned.last_key_value().is_none_or(|(last, _)| *last < file_system);
            if !is_ascending || since > epoch || began >= since {
                return None;
            }
            owners.owned.insert(file_system, Owner { owner, since, from: before });
        }
        Some(owners)
    }

    /// Asserts that these owners may follow `before` in `epoch`: each ownership is as before, or is one of this epoch.
    pub fn follow(&self, before: &Owners, epoch: Epoch) {
        assert!(self.owned.len() <= limits::FILE_SYSTEMS_MAX);
        let changed = |(file_system, ownership): (FileSystemId, Ownership)| before.of(file_system) != ownership;
        for (file_system, ownership) in self.all().filter(|held| changed(*held)) {
            assert_eq!(ownership.since, epoch, "{file_system} has another owner");
            let from = self.owned[&file_system].from;
            assert_eq!(from, before.of(file_system), "{file_system} was taken over from its owner");
        }
        let has_lost = |file_system: &FileSystemId| !self.owned.contains_key(file_system);
        let released = if before.owned.keys().any(has_lost) { epoch } else { before.released };
        assert_eq!(self.released, released, "an owner is removed in an epoch of its own");
    }
}

impl Owner {
    fn ownership(&self) -> Ownership {
        Ownership { since: self.since, owner: Some(self.owner) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FS: FileSystemId = FileSystemId(3);
    const A: Generation = Generation(5);
    const B: Generation = Generation(4);

    fn owned(owner: Generation, since: u32) -> Ownership {
        Ownership { since: Epoch(since), owner: Some(owner) }
    }

    #[test]
    fn an_ownership_never_recurs_so_a_late_copy_changes_nothing() {
        let mut owners = Owners::default();
        let none = owners.of(FS);
        assert_eq!(none, Ownership::default());
        owners.take_over(FS, A, none, Epoch(2)).expect("it has no owner");
        assert_eq!(owners.take_over(FS, A, none, Epoch(3)), Err(OwnershipRefused::Differs(owned(A, 2))));
        assert!(owners.has_taken_over(FS, A, none) && !owners.has_taken_over(FS, B, none));
        assert_eq!(owners.release(FS, A, Epoch(2), Epoch(3)), Ok(true));
        let released = Ownership { since: Epoch(3), owner: None };
        assert_eq!(owners.take_over(FS, A, none, Epoch(4)), Err(OwnershipRefused::Differs(released)));
        // The release of one file system also outdates what was known of the others without an owner.
        assert_eq!(owners.of(FileSystemId(9)), released);
        owners.take_over(FS, B, released, Epoch(5)).expect("it has no owner");
        assert_eq!(owners.release(FS, A, Epoch(2), Epoch(6)), Ok(false), "that was done before");
        assert_eq!(owners.of(FS), owned(B, 5));
    }

    #[test]
    fn an_inconsistent_record_is_refused() {
        let mut owners = Owners::none_as_of(Epoch(1));
        let none = owners.of(FS);
        owners.take_over(FS, A, none, Epoch(2)).expect("it has no owner");
        owners.take_over(FileSystemId(9), B, none, Epoch(3)).expect("it has no owner");
        let mut bytes = Vec::new();
        owners.put(&mut bytes);
        assert_eq!(Owners::take(Epoch(3), &mut &bytes[..]), Some(owners));
        assert_eq!(Owners::take(Epoch(2), &mut &bytes[..]), None, "an owner since a later epoch");
        // The last release and the count; the first entry: not ascending, too large, since a later epoch, from itself.
        for (at, value) in [(0, 4), (4, 3), (4, 65), (8, 9), (8, 2 << 16), (16, 4), (24, 2)] {
            let mut other = bytes.clone();
            other[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
            assert_eq!(Owners::take(Epoch(3), &mut &other[..]), None, "{value} at {at}");
        }
        for length in 0..bytes.len() {
            assert_eq!(Owners::take(Epoch(3), &mut &bytes[..length]), None, "cut at {length}");
        }
    }
}
