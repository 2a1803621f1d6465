//! The contents of an object index: changes in memory over leaves on the disk, which the index finds. Lookups and rounds of merging work
//! on this.

use crate::index::Index;
use crate::leaves::Leaves;
use crate::table::Tables;
use crate::types::Settings;
use braid_objects::{Key, Obstacle};
use bytes::Bytes;

#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub settings: Settings,
    pub tables: Tables,
    pub index: Index,
    pub leaves: Leaves,
}

impl Contents {
    /// The value of a key, if it has one.
    pub fn get(&mut self, key: Key) -> Result<Option<Bytes>, Obstacle> {
        if let Some(value) = self.tables.get(key) {
            return Ok(value.clone());
        }
        let entry = self.index.at(self.index.find(key));
        let found = self.leaves.get(entry)?.and_then(|leaf| leaf.get(key));
        match found {
            Some(value) => Ok(value),
            None if entry.lost => Err(Obstacle::Lost),
            None => Ok(None),
        }
    }
}
