//! The owners that have locked through each open file.
//!
//! A process loses its locks on a file when it closes the file, which FLUSH reports with its owner number. The locks of an *open file
//! description* have an owner of their own: neither FLUSH nor any other request reports its end, but no owner can have locks of a file
//! whose last descriptor is closed. So the locks of all owners that are listed for it are released then.

use crate::OpenFile;
use braid_machine::AdvisoryOwner;
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

/// The most owners that may have locks through one open file: usually it is one, or two after a fork.
const OWNERS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct LockOwners(Mutex<HashMap<OpenFile, BTreeSet<AdvisoryOwner>>>);

impl LockOwners {
    /// An owner is going to lock.
    pub fn add(&self, file: OpenFile, owner: AdvisoryOwner) -> Result<(), Errno> {
        let mut all = self.0.lock().expect("no holder panics");
        let owners = all.entry(file).or_default();
        if owners.len() >= OWNERS_MAX && !owners.contains(&owner) {
            return Err(Errno::NOLCK);
        }
        owners.insert(owner);
        Ok(())
    }

    /// All locks of an owner are released.
    pub fn remove(&self, file: OpenFile, owner: AdvisoryOwner) {
        let mut all = self.0.lock().expect("no holder panics");
        if let Some(owners) = all.get_mut(&file) {
            owners.remove(&owner);
            if owners.is_empty() {
                all.remove(&file);
            }
        }
    }

    /// Takes out the owners of a file that is being closed.
    pub fn take(&self, file: OpenFile) -> BTreeSet<AdvisoryOwner> {
        self.0.lock().expect("no holder panics").remove(&file).unwrap_or_default()
    }
}
