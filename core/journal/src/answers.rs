//! The answers to object requests, stored so that a repeated request is answered as before and not executed again, even after a restart.
//!
//! An answer is durable in the same journal record as the effect of its request. It is kept until its host acknowledges it: by a settled
//! mark below which all its requests are over, or individually for a request above the mark. A request that is over is never executed any
//! more, whether it was executed before or not. A fenced host makes no more requests, so its answers are dropped.

use braid_base::{FenceTable, Generation, TransactionId, limits};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The most hosts that have no stored answers and are remembered only for the requests that are over. The hosts last heard from are kept.
/// A late copy of a request would be executed again only if that many other hosts had been heard from in the meantime.
const IDLE_HOSTS_MAX: usize = 4096;

/// A host may use up to 1/8 of the capacity for answers,
const SHARE: usize = 8;
/// and more only while less than 1/2 of it is used by all hosts. This leaves room for hosts that settle when others do not.
const SHARED: usize = 2;
/// A host without stored answers may store one of any length. Neither that nor the shares may extend into the last 1/4 of the capacity:
const LAST: usize = 4;
/// of that a host may use at most 1/64 of the whole capacity, so that long answers of some hosts do not block others.
const LAST_SHARE: usize = 64;

/// The capacity for answers, in bytes, in a journal of this length. Snapshots repeat all answers in the journal.
pub fn bytes_max(journal_length: u64) -> usize {
    (journal_length / JOURNAL_SHARE).clamp(BYTES_MIN, limits::OBJECT_ANSWER_BYTES_MAX as u64) as usize
}

const JOURNAL_SHARE: u64 = 4;
/// The longest answer fits into 3/4 of this.
const BYTES_MIN: u64 = 1 << 20;
const _: () = assert!(limits::OBJECT_REQUEST_BYTES_MAX * 4 / 3 < BYTES_MIN as usize);

/// The most intervals of requests that are over above a host's mark. Beyond that the lowest intervals are merged. The requests in between
/// are then over, too, although the host may not have abandoned them yet. An owner whose hosts may wait for these asks
/// [`Answers::can_end_apart`] first.
const INTERVALS_OF_HOST_MAX: usize = 256;
/// Between the requests of files that a host may have under way there are fewer intervals.
const _: () = assert!(limits::FILE_REQUESTS_MAX <= INTERVALS_OF_HOST_MAX as u64);
/// The same bound for all hosts together; but each host may have one interval in any case. It holds when replay has ended: the marks in the
/// journal may be late, and an answer that comes later in the journal must not be taken for that of a request that is over.
const INTERVALS_MAX: usize = 4096;

/// An upper bound of the bytes that an answer takes in a record, besides its content.
const ANSWER_BYTES: usize = 16;
/// Bytes that an interval takes in a record.
const INTERVAL_BYTES: usize = 16;
/// Bytes that a host takes in a record besides; twice that if it has answers.
const HOST_BYTES: usize = 24;

/// The stored answers of all hosts, and the requests that are over.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    hosts: BTreeMap<Generation, HostAnswers>,
    kept: usize,
    bytes: usize,
    intervals: usize,
    /// Incremented whenever a host is heard from.
    touches: u64,
}

#[derive(Clone, Debug, Default)]
struct HostAnswers {
    /// The mark: all requests below are over.
    settled: u64,
    /// The answers, by sequence.
    kept: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// The requests that are over above the mark: disjoint intervals that do not touch, from the first sequence to the one after the
    /// last.
    over: BTreeMap<u64, u64>,
    /// What the journal is known to record as over: all requests below this mark,
    recorded_below: u64,
    /// and these intervals, the highest ones. The journal may record others, too.
    recorded: BTreeMap<u64, u64>,
    touched: u64,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was not executed yet.
    No,
    /// It was executed, with this answer.
    Answer(Bytes),
    /// It is over: its host does not wait for it any more.
    Over,
}

/// The part of a snapshot about one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswersRecord {
    /// The host's requests that are over: those below its mark, and those in intervals above it, from the first sequence to the one after
    /// the last.
    Over {
        host: Generation,
        /// The settled mark of the host.
        settled: u64,
        /// The intervals above the mark.
        intervals: Vec<(u64, u64)>,
    },
    /// Answers that the host may ask for, by sequence.
    Kept {
        host: Generation,
        /// The settled mark of the host.
        settled: u64,
        kept: Vec<(u64, Bytes)>,
    },
}

/// Whether there is space for one more answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerRoom {
    /// There is.
    Enough,
    /// Not for this host: the rest is reserved for others.
    NotForHost,
    /// Not for any host.
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

    /// Whether so many more answers, of `bytes` bytes together, can be stored for this host, if the capacity is `most` bytes.
    pub fn room(&self, host: Generation, (answers, bytes): (usize, usize), most: usize) -> AnswerRoom {
        let (kept, held) = self.hosts.get(&host).map_or((0, 0), |held| (held.kept.len(), held.bytes));
        let fits = |kept: usize, held: usize, part: usize| {
            kept + answers <= limits::OBJECT_ANSWERS_MAX / part && held + bytes <= most / part
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

    /// Stores the answer of a request that was executed. `settled` is its host's mark in the same record. An answer is not stored if the
    /// request is over already, as happens when the journal is replayed.
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

    /// Restores the answers of a host from a snapshot.
    pub fn carry_on(&mut self, host: Generation, settled: u64, kept: Vec<(u64, Bytes)>) {
        self.touch(host);
        self.settle(host, settled);
        let settled = self.settled(host);
        for (sequence, answer) in kept.into_iter().filter(|(sequence, _)| *sequence >= settled) {
            self.insert(TransactionId { host, sequence }, answer);
        }
        self.drop_idle();
    }

    /// The host has acknowledged all answers below the mark. True if an answer was removed. Hosts that never made a request are not
    /// recorded.
    pub fn settle(&mut self, host: Generation, mark: u64) -> bool {
        let Some(held) = self.hosts.get_mut(&host) else { return false };
        if mark > held.settled {
            self.touches += 1;
            (held.settled, held.touched) = (mark, self.touches);
        }
        // An interval that begins at or below the mark extends the mark.
        while let Some(first) = held.over.first_entry().filter(|first| *first.key() <= held.settled) {
            self.intervals -= 1;
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

    /// The host has acknowledged this answer. True if there was one.
    pub fn forget(&mut self, name: TransactionId) -> bool {
        // A host that names the last number of all has begun there: none follows it, and its answer stays.
        let any = name.sequence < u64::MAX && matches!(self.get(name), Known::Answer(_));
        if any {
            self.end(name.host, name.sequence, name.sequence + 1);
            self.merge(name.host);
        }
        any
    }

    /// True if the host may acknowledge one more answer above its mark without a merge of intervals.
    pub fn can_end_apart(&self, host: Generation) -> bool {
        let own = self.hosts.get(&host).map_or(0, |held| held.over.len());
        own == 0 || (own < INTERVALS_OF_HOST_MAX && self.intervals < INTERVALS_MAX)
    }

    /// The abandoned intervals that still have to be logged, besides the mark, because the journal may not record them yet; `None` if it
    /// records them all.
    pub fn not_on_record(&self, host: Generation, settled: u64, abandoned: &[(u64, u64)]) -> Option<Vec<(u64, u64)>> {
        let held = self.hosts.get(&host);
        let is_news = |interval: &&(u64, u64)| held.is_none_or(|held| !held.is_on_record(**interval));
        let news: Vec<_> = abandoned.iter().filter(is_news).copied().collect();
        (!news.is_empty()).then(|| news.into_iter().filter(|(_, behind)| *behind > settled).collect())
    }

    /// Notes what the journal records as over.
    fn record(&mut self, host: Generation, settled: u64, intervals: &[(u64, u64)]) {
        let held = self.hosts.entry(host).or_default();
        held.recorded_below = held.recorded_below.max(settled);
        intervals.iter().for_each(|interval| insert_interval(&mut held.recorded, *interval));
        let below = held.recorded_below;
        let is_needless = |(_, behind): (&u64, &u64)| *behind <= below;
        while held.recorded.len() > INTERVALS_OF_HOST_MAX || held.recorded.first_key_value().is_some_and(is_needless) {
            held.recorded.pop_first();
        }
    }

    /// A host has abandoned requests: see [`Answers::over`].
    pub fn abandon(&mut self, host: Generation, settled: u64, intervals: &[(u64, u64)]) {
        self.over(host, settled, intervals);
        self.merge(host);
    }

    /// Replay has ended: no answer will be found any more.
    pub fn end_replay(&mut self) {
        while self.intervals > INTERVALS_MAX
            && let Some(held) = self.hosts.values_mut().max_by_key(|held| held.over.len())
            && held.over.len() > 1
        {
            held.join_lowest();
            self.intervals -= 1;
        }
    }

    /// All requests of a host below the mark and in these intervals are over: those that were not executed never will be. The journal
    /// records it.
    pub fn over(&mut self, host: Generation, settled: u64, intervals: &[(u64, u64)]) {
        self.touch(host);
        self.record(host, settled, intervals);
        self.settle(host, settled);
        for (first, behind) in intervals {
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
        self.intervals -= held.over.len();
        insert_interval(&mut held.over, (first, behind));
        while held.over.len() > INTERVALS_OF_HOST_MAX {
            held.join_lowest();
        }
        self.intervals += held.over.len();
        let settled = held.settled;
        self.settle(host, settled);
    }

    /// Merges intervals of a host while all hosts have too many.
    fn merge(&mut self, host: Generation) {
        let Some(held) = self.hosts.get_mut(&host) else { return };
        while held.over.len() > 1 && self.intervals > INTERVALS_MAX {
            held.join_lowest();
            self.intervals -= 1;
        }
    }

    /// Removes the answers of fenced hosts, which make no more requests.
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
            self.intervals -= held.over.len();
        }
    }

    fn drop_idle(&mut self) {
        if self.hosts.len() > IDLE_HOSTS_MAX {
            let idle = self.hosts.iter().filter(|(_, held)| held.kept.is_empty());
            let idle = idle.min_by_key(|(_, held)| held.touched).map(|(host, _)| *host);
            idle.into_iter().for_each(|host| self.drop_host(host));
        }
    }

    /// The content of a snapshot: for each host the requests that are over, and its answers, in records of about `bytes` bytes. A much
    /// longer record might fit neither at the end of the journal nor at its start. The hosts last heard from come last, so that replay
    /// restores their order.
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
                parts.last_mut().expect("a part was just added").push((*sequence, answer.clone()));
            }
            let (host, settled) = (*host, held.settled);
            let intervals = held.over.iter().map(|(first, behind)| (*first, *behind)).collect();
            // The answers follow, because a merged interval may include the sequence of a stored answer, which replay must not remove.
            let over = AnswersRecord::Over { host, settled, intervals };
            std::iter::once(over).chain(parts.into_iter().map(move |kept| AnswersRecord::Kept { host, settled, kept }))
        };
        let mut hosts: Vec<_> = self.hosts.iter().collect();
        hosts.sort_by_key(|(_, held)| held.touched);
        hosts.into_iter().flat_map(of_host)
    }

    /// The mark of a host; 0 if nothing is recorded about it.
    pub fn settled(&self, host: Generation) -> u64 {
        self.hosts.get(&host).map_or(0, |held| held.settled)
    }

    /// The hosts that have stored answers.
    pub fn hosts_with_answers(&self) -> impl Iterator<Item = Generation> + '_ {
        self.hosts.iter().filter(|(_, held)| !held.kept.is_empty()).map(|(host, _)| *host)
    }

    /// The number of stored answers.
    pub fn count(&self) -> usize {
        self.kept
    }

    /// Bytes that a snapshot of all this takes in the journal.
    pub fn journal_len(&self) -> u64 {
        let hosts = self.hosts.len() * 2 * HOST_BYTES + self.intervals * INTERVAL_BYTES;
        // A record of a host may be split into several.
        (hosts + self.kept * ANSWER_BYTES + self.bytes) as u64 + self.bytes as u64 / 512
    }
}

impl HostAnswers {
    fn is_over(&self, sequence: u64) -> bool {
        let before = self.over.range(..=sequence).next_back();
        sequence < self.settled || before.is_some_and(|(_, behind)| sequence < *behind)
    }

    /// An interval that extends beyond the mark, and that no recorded interval contains, counts as not recorded.
    fn is_on_record(&self, (first, behind): (u64, u64)) -> bool {
        let before = self.recorded.range(..=first).next_back();
        behind <= self.recorded_below || before.is_some_and(|(_, end)| behind <= *end)
    }

    fn join_lowest(&mut self) {
        let (first, _) = self.over.pop_first().expect("there are at least two intervals");
        let (_, behind) = self.over.pop_first().expect("there are at least two intervals");
        self.over.insert(first, behind);
    }
}

fn insert_interval(intervals: &mut BTreeMap<u64, u64>, (mut first, mut behind): (u64, u64)) {
    if let Some((start, end)) = intervals.range(..=first).next_back().filter(|(_, end)| **end >= first) {
        (first, behind) = (*start, behind.max(*end));
    }
    while let Some((start, end)) = intervals.range(first..=behind).next().map(|(start, end)| (*start, *end)) {
        intervals.remove(&start);
        behind = behind.max(end);
    }
    if first < behind {
        intervals.insert(first, behind);
    }
}

/// Bytes of a record with this many intervals.
pub fn over_len(intervals: usize) -> u64 {
    (HOST_BYTES + intervals * INTERVAL_BYTES) as u64
}

/// Merges sequences into intervals, from the first sequence to the one after the last.
pub fn intervals_of(mut sequences: Vec<u64>) -> Vec<(u64, u64)> {
    sequences.sort_unstable();
    let mut intervals: Vec<(u64, u64)> = Vec::new();
    for sequence in sequences {
        match intervals.last_mut() {
            Some((_, behind)) if *behind >= sequence => *behind = sequence + 1,
            _ => intervals.push((sequence, sequence + 1)),
        }
    }
    intervals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: u32, sequence: u64) -> TransactionId {
        TransactionId { host: Generation(host), sequence }
    }

    #[test]
    fn the_hosts_heard_from_last_are_remembered() {
        let mut answers = Answers::default();
        for host in 1..=4096 {
            answers.keep(name(host, 1), 1, Bytes::from_static(b"x"));
            answers.settle(Generation(host), 2);
        }
        // Host 1 has been known for longest, but is still active.
        answers.settle(Generation(1), 3);
        answers.keep(name(5000, 1), 1, Bytes::new());
        assert_eq!((answers.get(name(1, 1)), answers.get(name(2, 1))), (Known::Over, Known::No));
        // A replay of the snapshot keeps the same order.
        let mut read = Answers::default();
        for record in answers.records(1000) {
            match record {
                AnswersRecord::Over { host, settled, intervals } => read.over(host, settled, &intervals),
                AnswersRecord::Kept { host, settled, kept } => read.carry_on(host, settled, kept),
            }
        }
        read.keep(name(5001, 1), 1, Bytes::new());
        assert_eq!((read.get(name(1, 1)), read.get(name(3, 1))), (Known::Over, Known::No));
    }

    #[test]
    fn finished_requests_stay_finished_and_take_little_room() {
        let mut answers = Answers::default();
        // Every second sequence belongs to another device.
        for sequence in (10..10_000).step_by(2) {
            answers.keep(name(1, sequence), 5, Bytes::from_static(b"answer"));
            assert!(answers.forget(name(1, sequence)));
        }
        assert_eq!((answers.kept, answers.bytes), (0, 0));
        assert!(answers.intervals <= INTERVALS_OF_HOST_MAX && answers.journal_len() < 5000);
        assert!((10..10_000).step_by(2).all(|sequence| answers.get(name(1, sequence)) == Known::Over));
        assert_eq!((answers.get(name(1, 5)), answers.get(name(1, 9))), (Known::No, Known::No), "they may still arrive");
        answers.settle(Generation(1), 9_999);
        assert_eq!((answers.intervals, answers.settled(Generation(1))), (0, 9_999));
    }

    #[test]
    fn intervals_of_all_hosts_are_bounded_after_replay_and_not_before() {
        let mut answers = Answers::default();
        let gaps: Vec<_> = (0..100).map(|gap| (10 + 2 * gap, 11 + 2 * gap)).collect();
        (1..=50).for_each(|host| answers.over(Generation(host), 5, &gaps));
        answers.over(Generation(51), 5, &[(10, 11), (12, 13)]);
        assert_eq!(answers.intervals, 5002);
        answers.keep(name(1, 11), 5, Bytes::from_static(b"late in the journal"));
        assert!(matches!(answers.get(name(1, 11)), Known::Answer(_)));
        assert!(answers.can_end_apart(Generation(60)) && !answers.can_end_apart(Generation(1)));
        answers.end_replay();
        assert_eq!(answers.intervals, INTERVALS_MAX);
        assert_eq!(answers.get(name(51, 11)), Known::No, "who has few intervals loses none");
        assert!(matches!(answers.get(name(1, 11)), Known::Answer(_)));
        answers.abandon(Generation(51), 5, &[(14, 15)]);
        assert_eq!((answers.intervals, answers.get(name(51, 11))), (INTERVALS_MAX, Known::Over));
        answers.settle(Generation(1), 1000);
        assert!(answers.can_end_apart(Generation(51)));
    }

    #[test]
    fn an_answer_between_merged_intervals_outlives_the_snapshot() {
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
                AnswersRecord::Over { host, settled, intervals } => read.over(host, settled, &intervals),
                AnswersRecord::Kept { host, settled, kept } => read.carry_on(host, settled, kept),
            }
        }
        assert_eq!((read.get(name(1, 11)), read.get(name(1, 13))), (known, Known::Over));
    }
}
