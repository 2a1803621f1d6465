//! Listing all names, a page at a time: two round trips for a page, and one for each entry that is chained behind another.
//!
//! The slots of the hash table are visited in order, and each chain is read as of one moment. A name always hashes to the same slot: so no
//! name is returned twice, and one that is there throughout is returned.

use super::chain::Chain;
use super::entry::Entry;
use super::{Directory, NAMES_PAGE, names_at};
use crate::procedure::{Operation, RequestFailure};
use crate::request_builder::RequestBuilder;
use crate::requester::operation;
use braid_base::ObjectId;
use bytes::Bytes;

/// Where the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesPage {
    /// The names, and the objects that they stand for, in no particular order.
    pub names: Vec<(Bytes, ObjectId)>,
    /// Where to continue; none at the end of the directory.
    pub more: Option<Cursor>,
}

/// The most slots of a page: their values fit into an answer.
const SLOTS_MAX: u32 = 512;
/// The most attributes that one command gets.
const GETS_MAX: usize = braid_base::limits::ATTRIBUTES_PER_COMMAND_MAX;

const _: () = assert!(SLOTS_MAX as usize * (16 + super::NAME_BYTES_MAX) < braid_base::limits::OBJECT_REQUEST_BYTES_MAX);
const _: () = assert!(SLOTS_MAX as usize <= GETS_MAX * braid_base::limits::OBJECT_COMMANDS_MAX);

impl Directory {
    /// Returns the names, a page at a time.
    pub fn names(self, after: Option<Cursor>, most: u32) -> Operation<Result<NamesPage, RequestFailure>> {
        operation(move |mut requester| async move {
            let builder = || RequestBuilder::of(self.object);
            let list = builder().list(NAMES_PAGE, after.map(|after| after.0), most.clamp(1, SLOTS_MAX));
            let (found, more) = requester.read(list).await?.listed(0)?;
            let slots: Vec<u32> = found.into_iter().map(|(slot, _)| slot).collect();
            let mut page =
                NamesPage { names: Vec::new(), more: slots.last().filter(|_| more).map(|last| Cursor(*last)) };
            if slots.is_empty() {
                return Ok(page);
            }
            let names = |slots: &[u32]| slots.iter().map(|slot| names_at(*slot)).collect();
            let firsts = slots.chunks(GETS_MAX).fold(builder(), |builder, slots| builder.get(names(slots)));
            let results = requester.read(firsts).await?;
            // Slots with a chain behind the first entry.
            let mut chains = Vec::new();
            for (command, slots) in slots.chunks(GETS_MAX).enumerate() {
                for (slot, value) in slots.iter().zip(results.values(command, slots.len())?) {
                    match Entry::decode(value)? {
                        Some(first) if first.next.is_some() => chains.push((*slot, Chain::begin(Some(first)))),
                        Some(first) => page.names.push((first.name, first.object)),
                        None => {}
                    }
                }
            }
            while let Some((slot, mut chain)) = chains.pop() {
                while chain.next().is_some() {
                    chain.hear(&requester.read(chain.ask(self, slot)).await?)?;
                }
                page.names.extend(chain.entries.into_iter().map(|(_, entry)| (entry.name, entry.object)));
            }
            Ok(page)
        })
    }
}
