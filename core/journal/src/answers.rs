//! Answers to requests for objects, kept so that a request that is sent again is not done again, whatever happened in between.
//!
//! An answer is kept, durably and with its effect in one record, until its host says that it knows it: by a mark below which all its
//! requests are over, or for a single request above that. What is over is never done any more, whether it was done before or not. A host
//! that is fenced asks nothing again.

use braid_base::{FenceTable, Generation, TransactionId, limits};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Hosts of which nothing is kept but what is over, at most: those that were last heard of. A copy of a request would have to be late by
/// as many hosts to be taken for new.
const IDLE_HOSTS_MAX: usize = 4096;

/// A host may take this part of what can be kept,
const SHARE: usize = 8;
/// and more only while less than this part is taken, by all: so those that don't settle leave room for those that do.
const SHARED: usize = 2;
/// One that has no answer here may have one of any length. Neither that nor shares reach into the last of so many parts of what can be kept:
const LAST: usize = 4;
/// of that a host has no more than this part of all, so that long answers of some stop no others.
const LAST_SHARE: usize = 64;

/// The most bytes of answers, where the journal is so long: they are carried on in it.
pub fn bytes_max(journal_length: u64) -> usize {
    (journal_length / JOURNAL_SHARE).clamp(BYTES_MIN, limits::OBJECT_ANSWER_BYTES_MAX as u64) as usize
}

const JOURNAL_SHARE: u64 = 4;
/// The longest answer fits into what is not the last part of this.
const BYTES_MIN: u64 = 1 << 20;
const _: () = assert!(limits::OBJECT_REQUEST_BYTES_MAX * 4 / 3 < BYTES_MIN as usize);

/// The most stretches of requests that are over above a host's mark. Beyond that the lowest become one: what lies between is over, too,
/// though its host may not know yet.
const STRETCHES_OF_HOST_MAX: usize = 256;
/// The same for all hosts together; each may have one all the same.
const STRETCHES_MAX: usize = 4096;

/// Bytes that an answer takes in a record, besides its own; a little more than the truth.
const ANSWER_BYTES: usize = 16;
/// Bytes that a stretch takes.
const STRETCH_BYTES: usize = 16;
/// Bytes that a host takes, besides; twice if there are answers.
const HOST_BYTES: usize = 24;

/// See the module.
#[derive(Debug, Default)]
pub struct Answers {
    hosts: BTreeMap<Generation, HostAnswers>,
    kept: usize,
    bytes: usize,
    stretches: usize,
    /// Counts up whenever a host is heard of.
    touches: u64,
}

#[derive(Debug, Default)]
struct HostAnswers {
    /// All below is over.
    settled: u64,
    /// By sequence.
    kept: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// What is over above the mark: where a stretch begins, and what is behind it. They don't touch.
    over: BTreeMap<u64, u64>,
    /// Of what is over, some that is on record: all below this mark,
    recorded_below: u64,
    /// and these stretches, the last ones. The rest may be, too.
    recorded: BTreeMap<u64, u64>,
    touched: u64,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was not done yet.
    No,
    /// It was done, with this answer.
    Answer(Bytes),
    /// It is over: its host does not wait for it any more.
    Over,
}

/// What a snapshot says of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswersRecord {
    /// Its requests that are over: all below its mark, and stretches above, by where each begins and what is behind it.
    Over {
        /// Whose.
        host: Generation,
        /// Its mark.
        settled: u64,
        /// Above that.
        stretches: Vec<(u64, u64)>,
    },
    /// Answers that it may ask for, by sequence.
    Kept {
        /// Whose.
        host: Generation,
        /// Its mark.
        settled: u64,
        /// The answers.
        kept: Vec<(u64, Bytes)>,
    },
}

/// Whether one more answer can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerRoom {
    /// It can.
    Enough,
    /// Not for this host: the others need the rest.
    NotForHost,
    /// Not for anybody.
    None,
}

impl Answers {
    /// What is known of a request.
    pub fn get(&self, name: TransactionId) -> Known {
        let Some(host) = self.hosts.get(&name.host) else { return Known::No };
        match host.kept.get(&name.sequence) {
            Some(answer) => Known::Answer(answer.clone()),
            None if host.is_over(name.sequence) => Known::Over,
            None => Known::No,
        }
    }

    /// Whether one more answer of this host, of so many bytes, can be kept, where `most` bytes can be in all.
    pub fn room(&self, host: Generation, bytes: usize, most: usize) -> AnswerRoom {
        let (kept, held) = self.hosts.get(&host).map_or((0, 0), |held| (held.kept.len(), held.bytes));
        let fits = |kept: usize, held: usize, part: usize| {
            kept < limits::OBJECT_ANSWERS_MAX / part && held + bytes <= most / part
        };
        let reaches_last = !fits(self.kept + limits::OBJECT_ANSWERS_MAX / LAST, self.bytes + most / LAST, 1);
        let is_within_share = match reaches_last {
            true => fits(kept, held, LAST_SHARE),
            false => kept == 0 || fits(kept, held, SHARE) || fits(self.kept, self.bytes, SHARED),
        };
        match is_within_share {
            false => AnswerRoom::NotForHost,
            true if fits(self.kept, self.bytes, 1) => AnswerRoom::Enough,
            true => AnswerRoom::None,
        }
    }

    /// A request was done. `settled` is its host's mark by then. What is over already needs no answer: a replay hears so before.
    pub fn keep(&mut self, name: TransactionId, settled: u64, answer: Bytes) {
        self.touch(name.host);
        self.record(name.host, settled, &[]);
        self.settle(name.host, settled);
        if self.get(name) != Known::Over {
            self.insert(name, answer);
        }
        self.drop_idle();
    }

    fn insert(&mut self, name: TransactionId, answer: Bytes) {
        let host = self.hosts.entry(name.host).or_default();
        self.bytes += answer.len();
        host.bytes += answer.len();
        match host.kept.insert(name.sequence, answer) {
            None => self.kept += 1,
            Some(before) => {
                self.bytes -= before.len();
                host.bytes -= before.len();
            }
        }
    }

    /// A host with answers that a snapshot says it may ask for.
    pub fn carry_on(&mut self, host: Generation, settled: u64, kept: Vec<(u64, Bytes)>) {
        self.touch(host);
        self.settle(host, settled);
        let settled = self.settled(host);
        for (sequence, answer) in kept.into_iter().filter(|(sequence, _)| *sequence >= settled) {
            self.insert(TransactionId { host, sequence }, answer);
        }
        self.drop_idle();
    }

    /// The host knows all answers below the mark. True if one is gone. Of hosts that never wanted anything done nothing is kept.
    pub fn settle(&mut self, host: Generation, mark: u64) -> bool {
        let Some(held) = self.hosts.get_mut(&host) else { return false };
        if mark > held.settled {
            self.touches += 1;
            (held.settled, held.touched) = (mark, self.touches);
        }
        // What is over from the mark on is part of what it says.
        while let Some(first) = held.over.first_entry().filter(|first| *first.key() <= held.settled) {
            self.stretches -= 1;
            held.settled = held.settled.max(first.remove());
        }
        let mut any = false;
        while let Some(first) = held.kept.first_entry().filter(|first| *first.key() < held.settled) {
            let bytes = first.remove().len();
            (self.kept, self.bytes) = (self.kept - 1, self.bytes - bytes);
            held.bytes -= bytes;
            any = true;
        }
        any
    }

    /// The host knows this answer. True if there was one.
    pub fn forget(&mut self, name: TransactionId) -> bool {
        let any = matches!(self.get(name), Known::Answer(_));
        if any {
            self.end(name.host, name.sequence, name.sequence + 1);
        }
        any
    }

    /// Of these stretches of what a host has given up, those of which the journal may not say so, as far as it must be said besides the mark; none
    /// if it says all.
    pub fn not_on_record(&self, host: Generation, settled: u64, abandoned: &[(u64, u64)]) -> Option<Vec<(u64, u64)>> {
        let held = self.hosts.get(&host);
        let is_news = |stretch: &&(u64, u64)| held.is_none_or(|held| !held.is_on_record(**stretch));
        let news: Vec<_> = abandoned.iter().filter(is_news).copied().collect();
        (!news.is_empty()).then(|| news.into_iter().filter(|(_, behind)| *behind > settled).collect())
    }

    /// The journal says so.
    fn record(&mut self, host: Generation, settled: u64, stretches: &[(u64, u64)]) {
        let held = self.hosts.entry(host).or_default();
        held.recorded_below = held.recorded_below.max(settled);
        stretches.iter().for_each(|stretch| insert_stretch(&mut held.recorded, *stretch));
        let below = held.recorded_below;
        let is_needless = |(_, behind): (&u64, &u64)| *behind <= below;
        while held.recorded.len() > STRETCHES_OF_HOST_MAX || held.recorded.first_key_value().is_some_and(is_needless) {
            held.recorded.pop_first();
        }
    }

    /// All of a host's requests below the mark are over, and those in these stretches: what was not done never will be. The journal says so.
    pub fn over(&mut self, host: Generation, settled: u64, stretches: &[(u64, u64)]) {
        self.touch(host);
        self.record(host, settled, stretches);
        self.settle(host, settled);
        for (first, behind) in stretches {
            self.end(host, *first, *behind);
        }
        self.drop_idle();
    }

    fn end(&mut self, host: Generation, first: u64, behind: u64) {
        let held = self.hosts.entry(host).or_default();
        while let Some((sequence, _)) = held.kept.range(first..behind.max(first)).next() {
            let sequence = *sequence;
            let bytes = held.kept.remove(&sequence).map_or(0, |answer| answer.len());
            (self.kept, self.bytes) = (self.kept - 1, self.bytes - bytes);
            held.bytes -= bytes;
        }
        self.stretches -= held.over.len();
        insert_stretch(&mut held.over, (first, behind));
        let others = self.stretches;
        let too_many = |count: usize| count > STRETCHES_OF_HOST_MAX || others + count > STRETCHES_MAX;
        while held.over.len() > 1 && too_many(held.over.len()) {
            held.join_lowest();
        }
        self.stretches += held.over.len();
        let settled = held.settled;
        self.settle(host, settled);
    }

    /// Those that are fenced ask nothing again.
    pub fn drop_fenced(&mut self, fence: &FenceTable) {
        let fenced: Vec<_> = self.hosts.keys().copied().filter(|host| fence.refuses(*host)).collect();
        fenced.into_iter().for_each(|host| self.drop_host(host));
    }

    fn touch(&mut self, host: Generation) {
        self.touches += 1;
        self.hosts.entry(host).or_default().touched = self.touches;
    }

    fn drop_host(&mut self, host: Generation) {
        if let Some(held) = self.hosts.remove(&host) {
            self.kept -= held.kept.len();
            self.bytes -= held.bytes;
            self.stretches -= held.over.len();
        }
    }

    fn drop_idle(&mut self) {
        if self.hosts.len() > IDLE_HOSTS_MAX {
            let idle = self.hosts.iter().filter(|(_, held)| held.kept.is_empty());
            let idle = idle.min_by_key(|(_, held)| held.touched).map(|(host, _)| *host);
            idle.into_iter().for_each(|host| self.drop_host(host));
        }
    }

    /// What a snapshot says: of each host what is over, and its answers, in records of about so many bytes. One that is much longer might
    /// not fit into the journal's end and its start. Those last heard of come last, so that they are known as such by who reads it.
    pub fn records(&self, bytes: usize) -> impl Iterator<Item = AnswersRecord> {
        let of_host = move |(host, held): (&Generation, &HostAnswers)| {
            let mut parts = Vec::new();
            let mut filled = bytes;
            for (sequence, answer) in &held.kept {
                if filled >= bytes {
                    parts.push(Vec::new());
                    filled = 0;
                }
                filled += ANSWER_BYTES + answer.len();
                parts.last_mut().expect("there is one").push((*sequence, answer.clone()));
            }
            let (host, settled) = (*host, held.settled);
            let stretches = held.over.iter().map(|(first, behind)| (*first, *behind)).collect();
            // Stretches that have become one don't take with them what is kept in between: it comes behind.
            let over = AnswersRecord::Over { host, settled, stretches };
            std::iter::once(over).chain(parts.into_iter().map(move |kept| AnswersRecord::Kept { host, settled, kept }))
        };
        let mut hosts: Vec<_> = self.hosts.iter().collect();
        hosts.sort_by_key(|(_, held)| held.touched);
        hosts.into_iter().flat_map(of_host)
    }

    /// The mark of a host of which something is kept.
    pub fn settled(&self, host: Generation) -> u64 {
        self.hosts.get(&host).map_or(0, |held| held.settled)
    }

    /// How many answers are kept.
    pub fn count(&self) -> usize {
        self.kept
    }

    /// Bytes that all this takes in a snapshot.
    pub fn journal_len(&self) -> u64 {
        let hosts = self.hosts.len() * 2 * HOST_BYTES + self.stretches * STRETCH_BYTES;
        // A host's record may be followed by others.
        (hosts + self.kept * ANSWER_BYTES + self.bytes) as u64 + self.bytes as u64 / 512
    }
}

impl HostAnswers {
    fn is_over(&self, sequence: u64) -> bool {
        let before = self.over.range(..=sequence).next_back();
        sequence < self.settled || before.is_some_and(|(_, behind)| sequence < *behind)
    }

    /// What reaches over the mark, and no stretch takes in as a whole, counts as not on record.
    fn is_on_record(&self, (first, behind): (u64, u64)) -> bool {
        let before = self.recorded.range(..=first).next_back();
        behind <= self.recorded_below || before.is_some_and(|(_, end)| behind <= *end)
    }

    fn join_lowest(&mut self) {
        let (first, _) = self.over.pop_first().expect("there are two");
        let (_, behind) = self.over.pop_first().expect("there are two");
        self.over.insert(first, behind);
    }
}

fn insert_stretch(stretches: &mut BTreeMap<u64, u64>, (mut first, mut behind): (u64, u64)) {
    if let Some((start, end)) = stretches.range(..=first).next_back().filter(|(_, end)| **end >= first) {
        (first, behind) = (*start, behind.max(*end));
    }
    while let Some((start, end)) = stretches.range(first..=behind).next().map(|(start, end)| (*start, *end)) {
        stretches.remove(&start);
        behind = behind.max(end);
    }
    if first < behind {
        stretches.insert(first, behind);
    }
}

/// The room of a record that says so many stretches are over.
pub fn over_len(stretches: usize) -> u64 {
    (HOST_BYTES + stretches * STRETCH_BYTES) as u64
}

/// Sequences as stretches: where each begins, and what is behind it.
pub fn stretches_of(mut sequences: Vec<u64>) -> Vec<(u64, u64)> {
    sequences.sort_unstable();
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for sequence in sequences {
        match stretches.last_mut() {
            Some((_, behind)) if *behind >= sequence => *behind = sequence + 1,
            _ => stretches.push((sequence, sequence + 1)),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: u32, sequence: u64) -> TransactionId {
        TransactionId { host: Generation(host), sequence }
    }

    #[test]
    fn the_hosts_that_are_kept_in_mind_are_those_last_heard_of() {
        let mut answers = Answers::default();
        for host in 1..=4096 {
            answers.keep(name(host, 1), 1, Bytes::from_static(b"x"));
            answers.settle(Generation(host), 2);
        }
        // The one that has been there longest is at work still.
        answers.settle(Generation(1), 3);
        answers.keep(name(5000, 1), 1, Bytes::new());
        assert_eq!((answers.get(name(1, 1)), answers.get(name(2, 1))), (Known::Over, Known::No));
        // So it is for whoever reads the snapshot.
        let mut read = Answers::default();
        for record in answers.records(1000) {
            match record {
                AnswersRecord::Over { host, settled, stretches } => read.over(host, settled, &stretches),
                AnswersRecord::Kept { host, settled, kept } => read.carry_on(host, settled, kept),
            }
        }
        read.keep(name(5001, 1), 1, Bytes::new());
        assert_eq!((read.get(name(1, 1)), read.get(name(3, 1))), (Known::Over, Known::No));
    }

    #[test]
    fn what_is_over_stays_so_and_takes_little() {
        let mut answers = Answers::default();
        // Every second sequence is of another device.
        for sequence in (10..10_000).step_by(2) {
            answers.keep(name(1, sequence), 5, Bytes::from_static(b"answer"));
            assert!(answers.forget(name(1, sequence)));
        }
        assert_eq!((answers.kept, answers.bytes), (0, 0));
        assert!(answers.stretches <= STRETCHES_OF_HOST_MAX && answers.journal_len() < 5000);
        assert!((10..10_000).step_by(2).all(|sequence| answers.get(name(1, sequence)) == Known::Over));
        assert_eq!((answers.get(name(1, 5)), answers.get(name(1, 9))), (Known::No, Known::No), "they may come yet");
        answers.settle(Generation(1), 9_999);
        assert_eq!((answers.stretches, answers.settled(Generation(1))), (0, 9_999));
    }

    #[test]
    fn an_answer_between_stretches_that_became_one_outlives_the_snapshot() {
        let mut answers = Answers::default();
        answers.keep(name(1, 11), 5, Bytes::from_static(b"kept"));
        answers.over(Generation(1), 5, &[(10, 11)]);
        for sequence in (12..2_000).step_by(2) {
            answers.over(Generation(1), 5, &[(sequence, sequence + 1)]);
        }
        let known = Known::Answer(Bytes::from_static(b"kept"));
        assert_eq!((answers.get(name(1, 11)), answers.get(name(1, 13))), (known.clone(), Known::Over));
        let mut read = Answers::default();
        for record in answers.records(1000) {
            match record {
                AnswersRecord::Over { host, settled, stretches } => read.over(host, settled, &stretches),
                AnswersRecord::Kept { host, settled, kept } => read.carry_on(host, settled, kept),
            }
        }
        assert_eq!((read.get(name(1, 11)), read.get(name(1, 13))), (known, Known::Over));
    }
}
