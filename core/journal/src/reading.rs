//! Recovery reads the records of a journal. Damage to a batch that had been durable is an error, and is never mistaken for a write that
//! did not happen.

use crate::batch_format::{BatchHeader, HEADER, SECTOR};
use crate::codec::{DecodeError, Payload, Record};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What recovery found in a journal.
#[derive(Clone, Debug)]
pub struct Found<R> {
    /// The records from the tail on, in order.
    pub records: Vec<R>,
    /// The offset for the next batch.
    pub head: u64,
    /// The sequence of the last valid batch.
    pub last: u64,
    /// The highest sequence found. The next sequence must exceed it by two, because one more batch may have been written and be
    /// unrecognizable.
    pub highest: u64,
    /// How many of the records belong to the snapshot at the tail.
    pub snapshot_records: usize,
    /// The offset and sequence of a complete snapshot elsewhere than at the tail: only the end of its checkpoint is missing.
    pub snapshot: Option<(u64, u64)>,
}

/// A batch or record that had been durable is damaged. It begins at this offset of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(pub u64);

/// Reads the journal from its tail.
pub fn read<R: Record>(journal: &Bytes, seal: u32, tail_offset: u64, tail_sequence: u64) -> Result<Found<R>, Damaged> {
    let found: BTreeMap<u64, BatchHeader> = (0..journal.len())
        .step_by(SECTOR)
        .filter_map(|offset| BatchHeader::decode(journal, offset, seal))
        .filter(|header| header.sequence >= tail_sequence)
        .map(|header| (header.sequence, header))
        .collect();
    let (highest, mut last) = found.last_key_value().map(|(at, header)| (*at, *header)).ok_or(Damaged(tail_offset))?;
    // The last batch may be incomplete, if it was never answered; then it is ignored. Its predecessor was durable.
    let torn = match open::<R>(journal, &last) {
        Ok((_, whole)) => !whole,
        Err(DecodeError) => return Err(Damaged(last.offset)),
    };
    if torn && last.sequence > tail_sequence {
        last = *found.get(&last.previous).ok_or(Damaged(last.offset))?;
    }
    let mut chain = vec![last];
    while let Some(first) = chain.last().filter(|first| first.sequence > tail_sequence) {
        let before = found.get(&first.previous).ok_or(Damaged(first.offset))?;
        chain.push(*before);
    }
    let tail = chain.last().expect("the chain contains the last batch");
    if tail.offset != tail_offset {
        return Err(Damaged(tail_offset));
    }
    chain.reverse();
    if !goes_round_once(&chain, journal.len()) {
        return Err(Damaged(tail_offset));
    }
    drop_idle_end(&mut chain);
    let last = *chain.last().expect("the first batch is never removed");
    let ended = chain.iter().rposition(|header| header.ends_snapshot).unwrap_or(0);
    let begun = chain[..=ended].iter().rposition(|header| header.begins_snapshot).unwrap_or(0);
    let snapshot = (begun > 0).then(|| (chain[begun].offset, chain[begun].sequence));
    let tails_snapshot = chain.iter().position(|header| header.ends_snapshot).map_or(0, |ended| ended + 1);
    let (mut records, mut snapshot_records) = (Vec::new(), 0);
    for (index, header) in chain.iter().enumerate() {
        records.extend(open(journal, header).map_err(|DecodeError| Damaged(header.offset))?.0);
        if index < tails_snapshot {
            snapshot_records = records.len();
        }
    }
    let head = last.offset + last.len() as u64;
    let head = head % journal.len() as u64;
    Ok(Found { records, snapshot_records, head, last: last.sequence, highest, snapshot })
}

/// True if the batches lie one behind the other, and the last one ends before the first one begins. Otherwise some of them are remains, as
/// when the disk has lost both copies of a later tail.
fn goes_round_once(chain: &[BatchHeader], capacity: usize) -> bool {
    let (capacity, tail) = (capacity as u64, chain[0].offset);
    let behind_tail = |header: &BatchHeader| (header.offset + capacity - tail) % capacity;
    let mut end = 0;
    chain.iter().all(|header| {
        let start = behind_tail(header);
        let follows = start >= end;
        end = start + header.len() as u64;
        follows && end < capacity
    })
}

/// Removes batches without effect from the end: an incomplete snapshot, and empty batches. Their space is reused, so that repeated
/// failures during the start, or early in a checkpoint, can't fill the journal.
fn drop_idle_end(chain: &mut Vec<BatchHeader>) {
    let begun = chain.iter().rposition(|header| header.begins_snapshot).filter(|begun| *begun > 0);
    if let Some(begun) = begun
        && !chain[begun..].iter().any(|header| header.ends_snapshot)
    {
        chain.truncate(begun);
    }
    while chain.len() > 1 && chain.last().is_some_and(|header| header.records == 0) {
        chain.pop();
    }
}

/// The records of a batch, and whether its payload is undamaged.
fn open<R: Record>(journal: &Bytes, header: &BatchHeader) -> Result<(Vec<R>, bool), DecodeError> {
    let start = header.offset as usize;
    let mut from = &journal[start + HEADER..][..header.records as usize];
    let mut payload = Payload::new(journal.slice(start + header.description_len()..start + header.len()));
    let mut records = Vec::new();
    while !from.is_empty() {
        records.push(R::decode(&mut from, &mut payload)?);
    }
    Ok((records, payload.is_whole()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_overlap_or_fill_the_journal_are_remains() {
        let header = |offset: &u64| BatchHeader {
            sequence: 2,
            previous: 1,
            offset: *offset,
            records: 10,
            payload: 0,
            begins_snapshot: false,
            ends_snapshot: false,
        };
        let once = |offsets: &[u64]| goes_round_once(&offsets.iter().map(header).collect::<Vec<_>>(), 4096);
        assert!(once(&[0]) && once(&[1024, 1536, 3584, 0]));
        assert!(!once(&[1024, 1536, 512]), "no journal is filled to its tail");
        assert!(!once(&[1024, 2048, 1536]) && !once(&[1024, 1024]));
    }
}
