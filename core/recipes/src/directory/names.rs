//! Listing all names, a page at a time: two round trips for a page, and one for each entry that is chained behind another.
//!
//! The slots of the hash table are visited in order, and each chain is read as of one moment. A name always hashes to the same slot: so no
//! name is returned twice, and one that is there throughout is returned.

use super::chain::Chain;
use super::entry::Entry;
use super::{Directory, NAMES_PAGE, names_at};
use crate::procedure::{Next, Operation, RequestFailure};
use crate::request_builder::{RequestBuilder, Results, Step, Steps, operation};
use braid_base::{ObjectId, Rng, Time};
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

impl Directory {
    /// Returns the names, a page at a time.
    pub fn names(self, after: Option<Cursor>, most: u32) -> Operation<Result<NamesPage, RequestFailure>> {
        operation(move |_, _| {
            let (most, page) = (most.clamp(1, SLOTS_MAX), NamesPage { names: Vec::new(), more: None });
            Ok(Names { directory: self, after, most, page, chains: Vec::new(), phase: Phase::Listing })
        })
    }
}

/// Returns a page of names.
#[derive(Clone, Debug)]
pub(super) struct Names {
    directory: Directory,
    after: Option<Cursor>,
    most: u32,
    page: NamesPage,
    /// Slots with a chain behind the first entry, and the part of the chain that is known.
    chains: Vec<(u32, Chain)>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Listing the slots in use.
    Listing,
    /// Reading the first entries of these slots.
    Reading(Vec<u32>),
    /// Reading the chains, slot by slot.
    Walking,
}

/// The most slots of a page: their values fit into an answer.
const SLOTS_MAX: u32 = 512;
/// The most attributes that one command gets.
const GETS_MAX: usize = braid_base::limits::ATTRIBUTES_PER_COMMAND_MAX;

const _: () = assert!(SLOTS_MAX as usize * (16 + super::NAME_BYTES_MAX) < braid_base::limits::OBJECT_REQUEST_BYTES_MAX);
const _: () = assert!(SLOTS_MAX as usize <= GETS_MAX * braid_base::limits::OBJECT_COMMANDS_MAX);

impl Steps for Names {
    type Output = NamesPage;

    fn step(&mut self, _: Time, _: &mut Rng, results: Option<Results>) -> Step<NamesPage> {
        let Some(results) = results else { return Ok(self.ask()) };
        match &self.phase {
            Phase::Listing => {
                let (found, more) = results.listed(0)?;
                let slots: Vec<u32> = found.into_iter().map(|(slot, _)| slot).collect();
                self.page.more = slots.last().filter(|_| more).map(|last| Cursor(*last));
                self.phase = if slots.is_empty() { Phase::Walking } else { Phase::Reading(slots) };
            }
            Phase::Reading(slots) => {
                let slots = slots.clone();
                self.read(&slots, &results)?;
                self.phase = Phase::Walking;
            }
            Phase::Walking => {
                if let Some((_, chain)) = self.chains.last_mut() {
                    chain.hear(&results)?;
                }
            }
        }
        while let Some((_, chain)) = self.chains.pop_if(|(_, chain)| chain.next().is_none()) {
            self.page.names.extend(chain.entries.into_iter().map(|(_, entry)| (entry.name, entry.object)));
        }
        if matches!(self.phase, Phase::Walking) && self.chains.is_empty() {
            let names = std::mem::take(&mut self.page.names);
            return Ok(Next::Done(NamesPage { names, more: self.page.more }));
        }
        Ok(self.ask())
    }
}

impl Names {
    fn read(&mut self, slots: &[u32], results: &Results) -> Result<(), RequestFailure> {
        for (command, slots) in slots.chunks(GETS_MAX).enumerate() {
            for (slot, value) in slots.iter().zip(results.values(command, slots.len())?) {
                match Entry::decode(value)? {
                    Some(first) if first.next.is_some() => self.chains.push((*slot, Chain::begin(Some(first)))),
                    Some(first) => self.page.names.push((first.name, first.object)),
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn ask(&self) -> Next<NamesPage> {
        let builder = RequestBuilder::of(self.directory.object);
        match (&self.phase, self.chains.last()) {
            (Phase::Reading(slots), _) => {
                let names = |slots: &[u32]| slots.iter().map(|slot| names_at(*slot)).collect();
                slots.chunks(GETS_MAX).fold(builder, |builder, slots| builder.get(names(slots))).done()
            }
            (Phase::Walking, Some((slot, chain))) => chain.ask(self.directory, *slot).done(),
            _ => builder.list(NAMES_PAGE, self.after.map(|after| after.0), self.most).done(),
        }
    }
}
