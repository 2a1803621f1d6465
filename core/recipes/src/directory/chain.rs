//! Reading the chain of a slot as of one moment, without a lock.
//!
//! ```text
//!   get names[slot]                                  the first entry, at version v
//!   get names[slot], list[next]                      still at v? the second …
//! ```

use super::entry::Entry;
use super::{Directory, linked_at, names_at};
use crate::procedure::RequestFailure;
use crate::request_builder::{DAMAGED, RequestBuilder, Results};
use bytes::Bytes;
use std::num::NonZeroU32;

/// The chain of a slot, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// The entries, each with its slot in the linked list; the first entry is in the hash table.
    pub(super) entries: Vec<(Option<NonZeroU32>, Entry)>,
}

impl Chain {
    /// A chain of which at most the first entry is known.
    pub(super) fn begin(first: Option<Entry>) -> Chain {
        Chain { entries: first.into_iter().map(|first| (None, first)).collect() }
    }

    pub(super) fn first(&self) -> Option<&Entry> {
        self.entries.first().map(|(_, entry)| entry)
    }

    /// The slot of the next entry that is not known yet.
    pub(super) fn next(&self) -> Option<NonZeroU32> {
        self.entries.last().and_then(|(_, entry)| entry.next)
    }

    /// The index of a name in the chain.
    pub(super) fn find(&self, name: &Bytes) -> Option<usize> {
        self.entries.iter().position(|(_, entry)| entry.name == *name)
    }

    /// Appends the next entry.
    pub(super) fn push(&mut self, value: &Bytes) -> Result<(), RequestFailure> {
        let at = self.next().ok_or(DAMAGED)?;
        let goes_round = self.entries.iter().any(|(lies, _)| *lies == Some(at));
        match Entry::decode(value)? {
            Some(entry) if !goes_round => self.entries.push((Some(at), entry)),
            _ => return Err(DAMAGED),
        }
        Ok(())
    }

    /// Reads the first entry, and the next unknown one.
    pub(super) fn ask(&self, directory: Directory, slot: u32) -> RequestBuilder {
        let mut gets = vec![names_at(slot)];
        gets.extend(self.next().map(linked_at));
        RequestBuilder::of(directory.object).get(gets)
    }

    /// Takes in the answer. If the chain has changed meanwhile, it restarts with the present first entry.
    pub(super) fn hear(&mut self, results: &Results) -> Result<(), RequestFailure> {
        let values = results.values(0, 1 + usize::from(self.next().is_some()))?;
        let now = Entry::decode(&values[0])?;
        match (self.first(), now) {
            (Some(first), Some(now)) if first.same_chain(&now) && values.len() == 2 => self.push(&values[1]),
            (_, now) => {
                *self = Chain::begin(now);
                Ok(())
            }
        }
    }
}
