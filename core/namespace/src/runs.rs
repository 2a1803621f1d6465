//! Sets of disjoint runs of blocks: the free blocks, and the allotment of each host. Runs that touch are one.

use crate::keys;
use crate::records::{decode_run, encode_run};
use crate::work::{Stop, Work, sum};
use braid_base::{BlockRange, Generation};
use braid_objects::{Key, Kind};
use braid_wire::FileError;

#[derive(Clone, Copy, Debug)]
pub enum Runs {
    Free,
    AllottedTo(Generation),
}

impl Runs {
    fn key(self, last: u64) -> Key {
        match self {
            Runs::Free => Key { kind: Kind::FreeRun, of: 0, index: last },
            Runs::AllottedTo(host) => Key { index: last, ..keys::allotment(host) },
        }
    }

    /// The run that contains a block, or the next one.
    pub fn first(self, work: &mut Work, from: u64) -> Result<Option<BlockRange>, Stop> {
        let found = work.map.first(keys::same_from(self.key(from)))?;
        Ok(found.map(|(key, value)| decode_run(key, &value)).transpose()?)
    }

    /// Adds blocks, none of which is in the set.
    pub fn add(self, work: &mut Work, run: BlockRange) -> Result<(), Stop> {
        let mut united = run;
        if let Some(last) = run.start.checked_sub(1)
            && let Some(value) = work.map.get(self.key(last))?
        {
            let before = decode_run(self.key(last), &value)?;
            united = BlockRange::between(before.start, run.end());
            work.map.put(self.key(last), None);
        }
        if let Some(after) = self.first(work, run.start)? {
            if after.start < run.end() {
                return Err(FileError::Lost.into());
            }
            if after.start == run.end() {
                united.count = sum(united.count, after.count)?;
            }
        }
        self.put(work, united);
        Ok(())
    }

    /// Removes blocks. False, and without effect, if not all of them are in the set.
    pub fn remove(self, work: &mut Work, run: BlockRange) -> Result<bool, Stop> {
        let found = self.first(work, run.start)?;
        let Some(all) = found.filter(|all| all.contains(run)) else { return Ok(false) };
        work.map.put(self.key(all.end() - 1), None);
        for rest in [BlockRange::between(all.start, run.start), BlockRange::between(run.end(), all.end())] {
            if !rest.is_empty() {
                self.put(work, rest);
            }
        }
        Ok(true)
    }

    fn put(self, work: &mut Work, run: BlockRange) {
        work.map.put(self.key(run.end() - 1), Some(encode_run(run)));
    }
}
