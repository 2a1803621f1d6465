//! Linearizability of the bytes of one file: there is an order of all operations in which each takes effect at one moment between its
//! request and its answer, and each read returns what the operations before it have made of the file.
//!
//! The search goes through the operations that may come next: those that began before any other that is left has ended. States that were
//! seen are not searched again.

use crate::bench::*;
use std::hash::{DefaultHasher, Hash, Hasher};

#[derive(Clone, Debug)]
pub struct Entry {
    pub start: Time,
    /// None if the outcome is unknown: it may have taken effect, may do so later, or never.
    pub end: Option<Time>,
    pub action: Action,
}

#[derive(Clone, Debug)]
pub enum Action {
    Write {
        offset: usize,
        data: Vec<u8>,
    },
    /// The offset is none if the outcome is unknown.
    Append {
        offset: Option<usize>,
        data: Vec<u8>,
    },
    Truncate(usize),
    Read {
        offset: usize,
        length: usize,
        data: Vec<u8>,
    },
}

/// Asserts that the entries are those of one file that was empty.
pub fn check(seed: u64, entries: &[Entry]) {
    let mut search = Search { entries, seen: BTreeSet::new(), furthest: 0 };
    let is_sound = search.from(&mut vec![false; entries.len()], Vec::new(), 0);
    let brief: Vec<_> = entries.iter().map(brief).collect();
    assert!(
        is_sound,
        "seed {seed}: no order after {} of {} operations:\n{}",
        search.furthest,
        entries.len(),
        brief.join("\n")
    );
}

fn brief(entry: &Entry) -> String {
    let what = match &entry.action {
        Action::Write { offset, data } => format!("write {offset}+{} {:02x?}", data.len(), &data[..data.len().min(4)]),
        Action::Append { offset, data } => {
            format!("append {offset:?}+{} {:02x?}", data.len(), &data[..data.len().min(4)])
        }
        Action::Truncate(size) => format!("truncate {size}"),
        Action::Read { offset, length, data } => format!("read {offset}+{length}: {}", data.len()),
    };
    format!("{:?} {:?} {what}", entry.start, entry.end)
}

struct Search<'a> {
    entries: &'a [Entry],
    seen: BTreeSet<(Vec<bool>, u64)>,
    furthest: usize,
}

impl Search<'_> {
    fn from(&mut self, done: &mut Vec<bool>, mut content: Vec<u8>, count: usize) -> bool {
        let mut count = count;
        // A read that fits may as well come now.
        let mut taken = Vec::new();
        while let Some(index) = self.next(done).into_iter().find(|index| {
            matches!(self.entries[*index].action, Action::Read { .. }) && self.apply(*index, &mut content)
        }) {
            done[index] = true;
            taken.push(index);
            count += 1;
        }
        self.furthest = self.furthest.max(count);
        let is_sound = self.is_over(done) || self.branch(done, &content, count);
        if !is_sound {
            taken.into_iter().for_each(|index| done[index] = false);
        }
        is_sound
    }

    fn branch(&mut self, done: &mut Vec<bool>, content: &[u8], count: usize) -> bool {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        if !self.seen.insert((done.clone(), hasher.finish())) {
            return false;
        }
        for index in self.next(done) {
            if matches!(self.entries[index].action, Action::Read { .. }) {
                continue;
            }
            let mut after = content.to_vec();
            if self.apply(index, &mut after) {
                done[index] = true;
                if self.from(done, after, count + 1) {
                    return true;
                }
                done[index] = false;
            }
        }
        false
    }

    fn is_over(&self, done: &[bool]) -> bool {
        done.iter().zip(self.entries).all(|(done, entry)| *done || entry.end.is_none())
    }

    fn next(&self, done: &[bool]) -> Vec<usize> {
        let left = || (0..done.len()).filter(|index| !done[*index]);
        let first_end = left().filter_map(|index| self.entries[index].end).min().unwrap_or(Time(u64::MAX));
        left().filter(|index| self.entries[*index].start <= first_end).collect()
    }

    /// Applies an operation. False if its result does not fit.
    fn apply(&self, index: usize, content: &mut Vec<u8>) -> bool {
        match &self.entries[index].action {
            Action::Write { offset, data } => write(content, *offset, data),
            Action::Append { offset, data } => {
                if offset.is_some_and(|offset| offset != content.len()) {
                    return false;
                }
                write(content, content.len(), data);
            }
            Action::Truncate(size) => content.resize(*size, 0),
            Action::Read { offset, length, data } => {
                let end = content.len().min(offset + length);
                return content[(*offset).min(end)..end] == data[..];
            }
        }
        true
    }
}

fn write(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if content.len() < offset + data.len() {
        content.resize(offset + data.len(), 0);
    }
    content[offset..offset + data.len()].copy_from_slice(data);
}

#[test]
fn false_histories_are_found() {
    let entry = |start, end, action| Entry { start: Time(start), end: Some(Time(end)), action };
    let write = |start, end, data: &[u8]| entry(start, end, Action::Write { offset: 0, data: data.to_vec() });
    let read = |start, end, data: &[u8]| entry(start, end, Action::Read { offset: 0, length: 9, data: data.to_vec() });
    let is_sound = |entries: &[Entry]| std::panic::catch_unwind(|| check(0, entries)).is_ok();
    assert!(is_sound(&[write(0, 5, b"aa"), write(1, 6, b"bb"), read(7, 8, b"aa")]));
    assert!(!is_sound(&[write(0, 1, b"aa"), write(2, 3, b"bb"), read(7, 8, b"aa")]), "it was overwritten");
    assert!(!is_sound(&[write(0, 5, b"aa"), write(1, 6, b"bb"), read(7, 8, b"ab")]), "it is torn");
    assert!(!is_sound(&[write(0, 5, b"aa"), read(1, 2, b"aa"), read(3, 4, b"")]), "it was there already");
}
