//! The directories of a server. Each has an exclusive lock, and a queue of operations that wait for it.

use crate::prelude::*;

/// An operation of a client, at the server of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub operation: u64,
    /// The server of the file.
    pub worker: u8,
}

/// The directories of one server.
#[derive(Clone, Debug, Default)]
pub struct Directories {
    by_number: BTreeMap<u64, Directory>,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    is_locked: bool,
    waiting: VecDeque<Waiting>,
}

impl Directories {
    pub fn add(&mut self, directory: u64, waiting: Waiting) {
        self.by_number.entry(directory).or_default().waiting.push_back(waiting);
    }

    /// Locks a directory for the operations that are first in its queue: at most `most`, all with the same worker.
    pub fn lock(&mut self, directory: u64, most: usize) -> Vec<Waiting> {
        let Some(found) = self.by_number.get_mut(&directory) else { return Vec::new() };
        if found.is_locked {
            return Vec::new();
        }
        let Some(first) = found.waiting.front().copied() else { return Vec::new() };
        found.is_locked = true;
        // Operations in one directory may be done in any order.
        let (chosen, others): (Vec<_>, Vec<_>) =
            found.waiting.drain(..).partition(|waiting| waiting.worker == first.worker);
        let (chosen, later) = chosen.split_at(chosen.len().min(most));
        found.waiting = later.iter().copied().chain(others).collect();
        chosen.to_vec()
    }

    pub fn unlock(&mut self, directory: u64) {
        let found = self.by_number.get_mut(&directory).expect("it was locked");
        assert!(found.is_locked, "a lock is released once");
        found.is_locked = false;
    }
}
