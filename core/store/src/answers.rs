//! Answers to requests for objects, kept so that a request that is sent again is not done again, whatever happened in between.
//!
//! An answer is kept, durably and with its effect in one record, until its host says that it knows it: by a mark below which all its
//! requests are over, or for a single request. What is below the mark is never done any more. A host that is
//! fenced asks nothing again.

use crate::record::Record;
use braid_base::{FenceTable, Generation, TransactionId, limits};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Hosts of which nothing but the mark is kept, at most: the last ones that came. A copy of a request would have to be late by as many
/// hosts to be taken for new.
const IDLE_HOSTS_MAX: usize = 4096;

/// Bytes that an answer takes in a record, besides its own; a little more than the truth.
const ANSWER_BYTES: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    hosts: BTreeMap<Generation, HostAnswers>,
    kept: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct HostAnswers {
    settled: u64,
    /// By sequence; none: it was done, and the host knows the answer.
    kept: BTreeMap<u64, Option<Bytes>>,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was not done yet.
    No,
    /// It was done, with this answer.
    Answer(Bytes),
    /// It is over: its host does not wait for it any more.
    Over,
}

impl Answers {
    /// What is known of a request.
    pub fn get(&self, name: TransactionId) -> Known {
        let Some(host) = self.hosts.get(&name.host) else { return Known::No };
        match host.kept.get(&name.sequence) {
            Some(Some(answer)) => Known::Answer(answer.clone()),
            Some(None) => Known::Over,
            None if name.sequence < host.settled => Known::Over,
            None => Known::No,
        }
    }

    /// True if one more answer, of so many bytes, can be kept.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.kept < limits::OBJECT_ANSWERS_MAX && self.bytes + bytes <= limits::OBJECT_ANSWER_BYTES_MAX
    }

    /// A request was done. `settled` is its host's mark by then.
    pub fn keep(&mut self, name: TransactionId, settled: u64, answer: Option<Bytes>) {
        self.hosts.entry(name.host).or_default();
        self.settle(name.host, settled);
        let host = self.hosts.entry(name.host).or_default();
        self.bytes += answer.as_ref().map_or(0, Bytes::len);
        match host.kept.insert(name.sequence, answer) {
            None => self.kept += 1,
            Some(before) => self.bytes -= before.map_or(0, |before| before.len()),
        }
        self.drop_idle();
    }

    /// A host with what a snapshot says of it.
    pub fn carry_on(&mut self, host: Generation, settled: u64, kept: Vec<(u64, Option<Bytes>)>) {
        self.hosts.entry(host).or_default();
        self.settle(host, settled);
        for (sequence, answer) in kept {
            self.keep(TransactionId { host, sequence }, settled, answer);
        }
    }

    /// The host knows all answers below the mark.
    pub fn settle(&mut self, host: Generation, mark: u64) {
        let Some(held) = self.hosts.get_mut(&host) else { return };
        held.settled = held.settled.max(mark);
        while let Some(first) = held.kept.first_entry().filter(|first| *first.key() < mark) {
            self.kept -= 1;
            self.bytes -= first.remove().map_or(0, |answer| answer.len());
        }
    }

    /// The host knows this answer. That the request was done must be known yet.
    pub fn over(&mut self, name: TransactionId) {
        let kept = self.hosts.get_mut(&name.host).and_then(|host| host.kept.get_mut(&name.sequence));
        if let Some(answer) = kept.and_then(Option::take) {
            self.bytes -= answer.len();
        }
    }

    /// Those that are fenced ask nothing again.
    pub fn drop_fenced(&mut self, fence: &FenceTable) {
        let (mut kept, mut bytes) = (self.kept, self.bytes);
        self.hosts.retain(|host, held| {
            let fenced = fence.refuses(*host);
            if fenced {
                kept -= held.kept.len();
                bytes -= held.kept.values().flatten().map(Bytes::len).sum::<usize>();
            }
            !fenced
        });
        (self.kept, self.bytes) = (kept, bytes);
    }

    fn drop_idle(&mut self) {
        if self.hosts.len() > IDLE_HOSTS_MAX {
            let idle = self.hosts.iter().find(|(_, held)| held.kept.is_empty()).map(|(host, _)| *host);
            idle.map(|host| self.hosts.remove(&host));
        }
    }

    /// What a snapshot says: of each host its mark, and its answers, in records of about so many bytes. One that is much longer might not
    /// fit into the journal's end and its start.
    pub fn records(&self, bytes: usize) -> impl Iterator<Item = Record> {
        let of_host = move |(host, held): (&Generation, &HostAnswers)| {
            let mut parts = vec![Vec::new()];
            let mut filled = 0;
            for (sequence, answer) in &held.kept {
                if filled >= bytes {
                    parts.push(Vec::new());
                    filled = 0;
                }
                filled += ANSWER_BYTES + answer.as_ref().map_or(0, Bytes::len);
                parts.last_mut().expect("there is one").push((*sequence, answer.clone()));
            }
            let (host, settled) = (*host, held.settled);
            parts.into_iter().map(move |kept| Record::Answers { host, settled, kept })
        };
        self.hosts.iter().flat_map(of_host)
    }

    /// How many answers are kept.
    pub fn len(&self) -> usize {
        self.kept
    }

    /// Bytes that all this takes in a snapshot.
    pub fn journal_len(&self) -> u64 {
        // A host's record may be followed by others.
        (self.hosts.len() * 32 + self.kept * ANSWER_BYTES + self.bytes) as u64 + self.bytes as u64 / 512
    }
}
