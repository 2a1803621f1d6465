//! Random requests to a store, and a naive model of what reads may return: for each block the list of its contents, in order.

use crate::missing::{DEVICES, Missing, OWN, Written};
use crate::protocol::*;
use crate::requests::Requests;
use braid_store::JournalView;

type Block = (ObjectId, u64);

/// The progress of a transaction, as the device knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// A prepare or an apply was requested.
    Asked,
    Prepared,
    /// A commit or an abort was requested, and is not durable yet.
    Committing,
    Aborting,
    /// Dropped by a membership that is not durable yet.
    Dropping,
    /// Refused because of a membership that may not have been durable when the refusal was.
    Refused,
    /// In force, durably.
    Committed,
    /// Gone, durably.
    Gone,
}

#[derive(Clone, Debug)]
struct Transaction {
    progress: Progress,
    applied: bool,
    forgotten: bool,
    /// Remembered only for its host.
    for_host: bool,
    writes: BTreeMap<Block, Option<u64>>,
}

#[derive(Clone, Debug)]
struct Reading {
    object: ObjectId,
    ranges: Vec<BlockRange>,
    /// The values that may be read from each block.
    allowed: Vec<BTreeSet<Option<u64>>>,
}

/// A store, its disk and its model.
pub struct Run {
    pub bench: Bench,
    rng: Rng,
    /// The number of blocks, and whether the object is redundant.
    objects: BTreeMap<ObjectId, (u64, bool)>,
    /// The membership, and what the other devices have missed.
    missing: Missing,
    /// The objects that are being created, and the expected results.
    creating: BTreeMap<u64, (ObjectDescription, Result<(), Failure>)>,
    /// The values that were written to each block, in the order in which they take effect; none: a hole.
    history: BTreeMap<Block, Vec<(TransactionId, Option<u64>)>>,
    transactions: BTreeMap<TransactionId, Transaction>,
    reading: BTreeMap<u64, Reading>,
    /// Requests for objects that hold attributes, if there are any.
    pub requests: Option<Requests>,
    /// The stamps that are certainly reserved.
    stamps: Clock,
    next: u64,
    /// The disk may refuse space.
    pub may_be_full: bool,
    /// Only whole chunks are written.
    pub only_whole_chunks: bool,
    pub refused: u64,
    pub reads: u64,
    pub recoveries: u64,
}

impl Run {
    pub fn new(seed: u64, journal: u64) -> Run {
        Run {
            bench: Bench::with_journal(journal, seed),
            rng: Rng::new(seed ^ 0x5eed),
            objects: BTreeMap::new(),
            missing: Missing::default(),
            creating: BTreeMap::new(),
            history: BTreeMap::new(),
            transactions: BTreeMap::new(),
            reading: BTreeMap::new(),
            requests: None,
            stamps: Clock(0),
            next: 1,
            may_be_full: false,
            only_whole_chunks: false,
            refused: 0,
            reads: 0,
            recoveries: 0,
        }
    }

    /// Does one random thing.
    pub fn step(&mut self) {
        if let Some(requests) = &mut self.requests
            && self.rng.chance(1, 4)
        {
            requests.step(&mut self.bench, &mut self.rng);
        }
        match self.rng.below(20) {
            0..=9 => {
                self.bench.end_one();
            }
            10..=13 => self.write(),
            14..=16 => self.decide(),
            17 => self.read(),
            18 if self.rng.chance(1, 2) => self.let_go(),
            18 if self.rng.chance(1, 2) => self.create(),
            18 if self.rng.chance(1, 3) => self.adopt(),
            18 => self.compare_missed(),
            _ if self.bench.disk.is_idle() => {
                self.bench.wake();
            }
            _ => {}
        }
        self.hear();
    }

    fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn create(&mut self) {
        if self.objects.len() + self.creating.len() >= 3 {
            return;
        }
        let ticket = self.id();
        let (blocks, redundant) = [(100, true), (500, true), (33, false)][self.objects.len() % 3];
        let object = ObjectId(ticket);
        let description = ObjectDescription { redundant, ..ObjectDescription::new(object, blocks) };
        let fits = blocks.next_multiple_of(16) <= self.bench.store.free_blocks();
        self.creating.insert(ticket, (description, if fits { Ok(()) } else { Err(Failure::NoSpace) }));
        self.bench.store.log(ticket, Logged::Created { description, absent: 0 }, &mut self.bench.out);
    }

    fn some_object(&mut self) -> Option<(ObjectId, u64)> {
        let count = self.objects.len() as u64;
        let nth = self.rng.below(count.max(1)) as usize;
        self.objects.iter().nth(nth).map(|(object, (blocks, _))| (*object, *blocks))
    }

    /// Some blocks: few of them, or whole chunks, or chunks and a little more.
    fn some_range(&mut self, blocks: u64) -> BlockRange {
        if self.only_whole_chunks {
            let start = self.rng.below(blocks / 16) * 16;
            return BlockRange::new(start, (16 * self.rng.between(1, 3)).min((blocks - start) / 16 * 16));
        }
        let (start, count) = match self.rng.below(8) {
            0..=4 => (self.rng.below(blocks), self.rng.between(1, 3)),
            5 | 6 => (self.rng.below(blocks) / 16 * 16, 16 * self.rng.between(1, 3)),
            _ => (self.rng.below(blocks) / 16 * 16 + 14, 2 + 16 * self.rng.between(0, 2) + self.rng.below(3)),
        };
        let start = start.min(blocks - 1);
        BlockRange::new(start, count.min(blocks - start))
    }

    fn is_free(&self, block: Block) -> bool {
        let undecided = |transaction: &Transaction| {
            matches!(transaction.progress, Progress::Asked | Progress::Prepared)
                && transaction.writes.contains_key(&block)
        };
        !self.transactions.values().any(undecided)
    }

    fn write(&mut self) {
        let Some((object, blocks)) = self.some_object() else { return };
        let mut pieces: Vec<Piece> = Vec::new();
        let mut writes = BTreeMap::new();
        for _ in 0..self.rng.between(1, 2) {
            let range = self.some_range(blocks);
            let taken = range.blocks().any(|block| writes.contains_key(&(object, block)));
            if taken || !range.blocks().all(|block| self.is_free((object, block))) {
                continue;
            }
            if self.rng.chance(1, 5) {
                writes.extend(range.blocks().map(|block| ((object, block), None)));
                pieces.push(Piece { range, content: Content::Hole });
            } else {
                let value = self.id() << 12;
                let bytes: Vec<u8> = (0..range.count).flat_map(|at| pattern(value + at)).collect();
                writes.extend(range.blocks().map(|block| ((object, block), Some(value + block - range.start))));
                pieces.push(Piece { range, content: Content::Data(bytes.into()) });
            }
        }
        if pieces.is_empty() {
            return;
        }
        let transaction = TransactionId { host: Generation(1 + self.rng.below(2) as u32), sequence: self.id() };
        let applied = self.rng.chance(1, 4);
        let participants = DEVICES.into_iter().filter(|device| *device == OWN || self.rng.chance(1, 2)).collect();
        let first = self.rng.below(400);
        let written = Written {
            object,
            redundant: self.objects[&object].1,
            epoch: self.missing.epoch(),
            participants,
            linkage: Linkage { first, last: first + self.rng.below(10) },
        };
        self.missing.asked(transaction, written.clone());
        let intent = Intent {
            transaction,
            stamp: Stamp { clock: Clock(transaction.sequence), host: transaction.host },
            epoch: written.epoch,
            participants: written.participants,
            linkage: written.linkage,
            object,
            pieces,
        };
        if applied {
            self.put_in_force(transaction, &writes);
        }
        let progress = Progress::Asked;
        self.transactions
            .insert(transaction, Transaction { progress, applied, forgotten: false, for_host: false, writes });
        let bench = &mut self.bench;
        if applied {
            bench.store.apply(bench.now, intent, &mut bench.out);
        } else {
            bench.store.prepare(bench.now, intent, &mut bench.out);
        }
    }

    fn put_in_force(&mut self, transaction: TransactionId, writes: &BTreeMap<Block, Option<u64>>) {
        for (block, value) in writes {
            self.history.entry(*block).or_default().push((transaction, *value));
        }
    }

    fn decide(&mut self) {
        let prepared = |(_, transaction): &(&TransactionId, &Transaction)| transaction.progress == Progress::Prepared;
        let prepared: Vec<_> = self.transactions.iter().filter(prepared).map(|(id, _)| *id).collect();
        if prepared.is_empty() {
            return;
        }
        let id = prepared[self.rng.below(prepared.len() as u64) as usize];
        let commit = self.rng.chance(3, 4);
        self.decide_as(id, commit);
    }

    fn decide_as(&mut self, id: TransactionId, commit: bool) {
        let bench = &mut self.bench;
        let transaction = self.transactions.get_mut(&id).expect("it was prepared");
        self.missing.decided(id, commit);
        if commit {
            bench.store.commit(bench.now, id, &mut bench.out);
            transaction.progress = Progress::Committing;
            let writes = transaction.writes.clone();
            self.put_in_force(id, &writes);
        } else {
            bench.store.abort(bench.now, id, &mut bench.out);
            transaction.progress = Progress::Aborting;
        }
    }

    /// Adopts another membership, and reserves stamps. Undecided intents may be dropped with it.
    fn adopt(&mut self) {
        let ticket = self.id();
        self.bench.store.log(ticket, Logged::StampsReserved(Clock(ticket)), &mut self.bench.out);
        let device = DEVICES[self.rng.below(DEVICES.len() as u64) as usize];
        let membership = self.missing.next(device, self.rng.between(1, 2) as u32);
        let ticket = self.id();
        self.missing.adopted(membership.clone());
        self.missing.adopting.insert(ticket);
        for (id, transaction) in &mut self.transactions {
            if self.missing.is_stale(*id) {
                transaction.forgotten = true;
                if transaction.progress == Progress::Prepared {
                    transaction.progress = Progress::Dropping;
                }
            }
        }
        self.bench.store.adopt(ticket, membership, &mut self.bench.out);
    }

    fn on_adopted(&mut self, ticket: u64, dropped: Vec<TransactionId>) {
        assert!(self.missing.adopting.remove(&ticket));
        for id in dropped {
            self.move_on(id, Progress::Dropping, Progress::Gone);
        }
        let left = self.transactions.values().any(|transaction| transaction.progress == Progress::Dropping);
        assert!(!left || !self.missing.adopting.is_empty(), "every dropped intent is named");
    }

    /// Checks what the store says other devices have missed, against what must be recorded and what may be.
    fn compare_missed(&self) {
        let (must, may) = self.missing.bounds();
        for device in DEVICES.into_iter().filter(|device| *device != OWN) {
            for object in self.objects.keys() {
                let (extents, next) = self.bench.store.missed(device, *object, 0);
                assert_eq!(next, None);
                let found: BTreeSet<u64> = extents.iter().flat_map(|extent| extent.blocks()).collect();
                let none = BTreeSet::new();
                let must = must.get(&(device, *object)).unwrap_or(&none);
                let may = may.get(&(device, *object)).unwrap_or(&none);
                assert!(found.is_superset(must), "{device} {object}: {extents:?} are less than {must:?}");
                assert!(found.is_subset(may), "{device} {object}: {extents:?} are more than {may:?}");
            }
        }
    }

    /// Forgets some commits. Not while a membership is being adopted, because the device waits for that first.
    fn let_go(&mut self) {
        if !self.missing.adopting.is_empty() {
            return;
        }
        let over = |transaction: &Transaction| transaction.progress == Progress::Committed && !transaction.applied;
        let kept = |(_, transaction): &(&TransactionId, &Transaction)| over(transaction) && !transaction.forgotten;
        if self.rng.chance(1, 2) {
            let first = self.transactions.iter().find(kept).map(|(id, _)| *id);
            if let Some(id) = first {
                let transaction = self.transactions.get_mut(&id).expect("just found");
                self.missing.forgotten(id);
                if transaction.for_host || self.rng.chance(1, 2) {
                    self.bench.store.forget(id);
                    transaction.forgotten = true;
                } else {
                    self.bench.store.nobody_misses(id);
                    transaction.for_host = true;
                }
            }
            return;
        }
        let host = Generation(1 + self.rng.below(2) as u32);
        let open = |(id, transaction): &(&TransactionId, &Transaction)| {
            id.host == host
                && matches!(transaction.progress, Progress::Asked | Progress::Prepared | Progress::Committing)
        };
        let first_open = self.transactions.iter().find(open).map_or(self.next, |(id, _)| id.sequence);
        self.bench.store.settle(host, first_open);
        for (id, transaction) in &mut self.transactions {
            if id.host == host && id.sequence < first_open {
                transaction.forgotten = true;
                self.missing.forgotten(*id);
            }
        }
    }

    /// The values that may be read from a block now: the last one that is certain to be in force, and the later ones that may be.
    fn allowed(&self, block: Block) -> BTreeSet<Option<u64>> {
        let mut allowed = BTreeSet::new();
        for (id, value) in self.history.get(&block).into_iter().flatten().rev() {
            allowed.insert(*value);
            if self.transactions.get(id).is_none_or(|transaction| transaction.progress != Progress::Asked) {
                return allowed;
            }
        }
        allowed.insert(None);
        allowed
    }

    fn read(&mut self) {
        let Some((object, blocks)) = self.some_object() else { return };
        let ranges: Vec<BlockRange> = (0..self.rng.between(1, 2)).map(|_| self.some_range(blocks)).collect();
        self.read_ranges(object, ranges);
    }

    fn read_ranges(&mut self, object: ObjectId, ranges: Vec<BlockRange>) {
        let ticket = self.id();
        let blocks = ranges.iter().flat_map(|range| range.blocks());
        let allowed = blocks.map(|block| self.allowed((object, block))).collect();
        self.bench.store.read(ticket, object, &ranges, &mut self.bench.out);
        self.reading.insert(ticket, Reading { object, ranges, allowed });
    }

    /// Processes the events of the store.
    pub fn hear(&mut self) {
        self.bench.perform();
        while let Some(event) = self.bench.events.pop_front() {
            match event {
                StoreEvent::Read { ticket, result } => self.on_read(ticket, result),
                StoreEvent::Prepared { transaction, result } => {
                    self.on_written(transaction, result, Progress::Prepared)
                }
                StoreEvent::Applied { transaction, result } => {
                    self.on_written(transaction, result, Progress::Committed)
                }
                StoreEvent::Committed { transaction } => {
                    self.move_on(transaction, Progress::Committing, Progress::Committed)
                }
                StoreEvent::Aborted { transaction } => self.move_on(transaction, Progress::Aborting, Progress::Gone),
                StoreEvent::Done { ticket, result } => {
                    let (created, expected) = self
                        .creating
                        .remove(&ticket)
                        .map_or((None, Ok(())), |(created, expected)| (Some(created), expected));
                    assert_eq!(result, expected);
                    if created.is_none() {
                        self.stamps = self.stamps.max(Clock(ticket));
                    }
                    if let Some(created) = created.filter(|_| result.is_ok()) {
                        self.objects.insert(created.object, (created.blocks, created.redundant));
                    }
                }
                StoreEvent::Adopted { ticket, dropped } => self.on_adopted(ticket, dropped),
                StoreEvent::Executed { name, answer, .. } => match &mut self.requests {
                    Some(requests) => requests.on_executed(name, answer),
                    None => panic!("no request for objects was sent"),
                },
                StoreEvent::ObjectsRead { .. } => panic!("no read of objects was requested"),
                StoreEvent::Ready(_) | StoreEvent::Unusable(_) => panic!("a store in service sent {event:?}"),
            }
        }
    }

    fn on_written(&mut self, id: TransactionId, result: Result<(), Failure>, then: Progress) {
        match result {
            Ok(()) => {
                match then {
                    Progress::Prepared => self.missing.prepared(id),
                    _ => self.missing.applied(id),
                }
                self.move_on(id, Progress::Asked, then);
            }
            Err(Failure::Absent) => {
                assert!(self.missing.is_stale(id) && then == Progress::Prepared, "{id} is refused");
                self.missing.refused(id);
                self.move_on(id, Progress::Asked, Progress::Refused);
            }
            Err(failure) => {
                // Too many intents are undecided for too long: the host has to try again.
                let busy = failure == Failure::Busy;
                assert!(busy || self.may_be_full && failure == Failure::NoSpace, "{id}: {failure}");
                self.refused += u64::from(!busy);
                self.missing.refused(id);
                self.move_on(id, Progress::Asked, Progress::Gone);
                self.strike(id);
            }
        }
    }

    fn move_on(&mut self, id: TransactionId, from: Progress, to: Progress) {
        let transaction = self.transactions.get_mut(&id).expect("it was asked for");
        assert_eq!(transaction.progress, from, "{id} was to become {to:?}");
        transaction.progress = to;
    }

    /// Removes a write from the history: it has never taken effect.
    fn strike(&mut self, id: TransactionId) {
        for block in self.transactions[&id].writes.keys() {
            if let Some(history) = self.history.get_mut(block) {
                history.retain(|(by, _)| *by != id);
            }
        }
    }

    fn on_read(&mut self, ticket: u64, result: Result<Vec<Piece>, Failure>) {
        self.reads += 1;
        let reading = self.reading.remove(&ticket).expect("it was asked for");
        let pieces = result.unwrap_or_else(|failure| panic!("{:?} {:?}: {failure}", reading.object, reading.ranges));
        let found: Vec<u64> = pieces.iter().flat_map(|piece| piece.range.blocks()).collect();
        let asked: Vec<u64> = reading.ranges.iter().flat_map(|range| range.blocks()).collect();
        assert_eq!(found, asked, "blocks come in the order asked");
        let values = pieces.iter().flat_map(values_of);
        for ((block, value), allowed) in asked.iter().zip(values).zip(&reading.allowed) {
            assert!(allowed.contains(&value), "{} {block} reads as {value:?}, not {allowed:?}", reading.object);
        }
    }

    /// The power fails and comes back. Everything that was answered must be there.
    pub fn crash(&mut self) {
        self.recoveries += 1;
        self.bench.disk.crash(&mut self.rng);
        // Sometimes it fails again while the store recovers.
        while self.rng.chance(1, 3) {
            let mut bench = Bench::power_on(self.bench.disk.clone(), self.rng.next_u64());
            for _ in 0..self.rng.below(12) {
                bench.end_one();
            }
            bench.disk.crash(&mut self.rng);
            self.bench.disk = bench.disk;
        }
        let superblock = Superblock::read(&self.bench.disk.get(0, 8192)).expect("one copy is always whole");
        let (offset, length) = (superblock.geometry.journal_offset, superblock.geometry.journal_length);
        let journal = self.bench.disk.get(offset, length as usize).into();
        let view = JournalView::read(&superblock, &journal).expect("it can be recovered from");
        let now = self.bench.now;
        let (bench, recovered) = match Bench::start(self.bench.disk.clone(), self.rng.next_u64()) {
            Ok(started) => started,
            Err(error) => panic!("after a crash: {error}"),
        };
        assert_eq!(view.membership, recovered.membership, "the journal view has the recovered membership");
        let named = recovered.intents.iter().map(|intent| intent.transaction.host);
        assert!(
            named.chain(recovered.commits.iter().map(|commit| commit.transaction.host)).max() <= Some(view.generation)
        );
        assert!(recovered.stamps_reserved >= self.stamps, "{} stamps are reserved", recovered.stamps_reserved.0);
        self.bench = bench;
        self.bench.now = now;
        self.bench.store.audit();
        self.reading.clear();
        for (created, _) in std::mem::take(&mut self.creating).into_values() {
            if self.bench.store.object(created.object).is_some() {
                self.objects.insert(created.object, (created.blocks, created.redundant));
            }
        }
        let found = self.bench.store.objects();
        assert!(view.objects.into_values().eq(found.clone()), "the journal view has the recovered objects");
        let objects = found.iter().map(|found| (found.object, (found.blocks, found.redundant))).collect();
        assert_eq!(self.objects, objects);
        self.compare(&recovered);
        self.find_out();
        self.compare_missed();
        self.read_everything();
        for intent in recovered.intents {
            let commit = match self.transactions[&intent.transaction].progress {
                Progress::Committing => true,
                Progress::Aborting => false,
                _ => self.rng.chance(1, 2),
            };
            self.decide_as(intent.transaction, commit);
            self.hear();
        }
        if let Some(requests) = &mut self.requests {
            requests.ask_all_again(&mut self.bench);
            self.hear();
        }
        self.read_everything();
    }

    /// Checks what recovery says of each transaction against what is possible.
    fn compare(&mut self, recovered: &Recovered) {
        let intents: BTreeSet<_> = recovered.intents.iter().map(|intent| intent.transaction).collect();
        let commits: BTreeSet<_> = recovered.commits.iter().map(|commit| commit.transaction).collect();
        for id in intents.iter().chain(&commits) {
            assert!(self.transactions.contains_key(id), "{id} was never requested");
        }
        for RecoveredWrite { transaction: TransactionId { host, sequence }, stamp, .. } in &recovered.commits {
            assert_eq!(*stamp, Stamp { clock: Clock(*sequence), host: *host });
        }
        for intent in &recovered.intents {
            let blocks: Vec<Block> = self.transactions[&intent.transaction].writes.keys().copied().collect();
            let found: Vec<_> = intent.ranges.iter().flat_map(|range| range.blocks()).collect();
            assert_eq!(blocks, found.into_iter().map(|block| (intent.object, block)).collect::<Vec<_>>());
        }
        let undecided = |id: &TransactionId| intents.contains(id);
        self.missing.recover(recovered.membership.clone(), |id| !undecided(&id));
        for intent in &recovered.intents {
            self.missing.prepared(intent.transaction);
        }
        let mut struck = Vec::new();
        for (id, transaction) in &mut self.transactions {
            let is_stale = self.missing.is_stale(*id);
            let may_stay = |known: &BTreeSet<_>, stays: bool| !is_stale || stays || !known.contains(id);
            assert!(may_stay(&intents, false) && may_stay(&commits, transaction.for_host), "{id} came back");
            let (undecided, committed) = (intents.contains(id), commits.contains(id));
            let known = if undecided {
                "undecided"
            } else if committed {
                "committed"
            } else {
                "unknown"
            };
            let may_be = match (transaction.progress, transaction.applied) {
                (_, true) | (Progress::Gone, _) => ["unknown", "unknown"],
                (Progress::Asked, _) => ["undecided", "unknown"],
                (Progress::Prepared, _) => ["undecided", "undecided"],
                // It was in force when it was forgotten.
                (Progress::Committing, _) if is_stale => ["unknown", "unknown"],
                (Progress::Committing, _) => ["undecided", "committed"],
                (Progress::Dropping | Progress::Refused, _) if is_stale => ["unknown", "unknown"],
                (Progress::Dropping, _) => ["undecided", "undecided"],
                // If that membership was lost, so was the refusal.
                (Progress::Refused, _) => ["undecided", "unknown"],
                (Progress::Aborting, _) => ["undecided", "unknown"],
                (Progress::Committed, _) if transaction.forgotten => ["committed", "unknown"],
                (Progress::Committed, _) => ["committed", "committed"],
            };
            assert!(may_be.contains(&known), "{id} is {known} after a crash while {:?}", transaction.progress);
            match known {
                "undecided" => {
                    if transaction.progress == Progress::Committing {
                        struck.push(*id);
                    }
                    if matches!(transaction.progress, Progress::Asked | Progress::Dropping | Progress::Refused) {
                        transaction.progress = Progress::Prepared;
                    }
                }
                "committed" => transaction.progress = Progress::Committed,
                _ if transaction.applied => {}
                _ if transaction.progress == Progress::Committing => transaction.progress = Progress::Committed,
                _ if transaction.progress != Progress::Committed => transaction.progress = Progress::Gone,
                _ => {}
            }
        }
        struck.into_iter().for_each(|id| self.strike(id));
    }

    /// Finds out which immediate writes without an answer happened. Each must have happened as a whole or not at all.
    fn find_out(&mut self) {
        let asked = |(_, transaction): &(&TransactionId, &Transaction)| {
            transaction.applied && transaction.progress == Progress::Asked
        };
        let asked: Vec<_> = self.transactions.iter().filter(asked).map(|(id, writes)| (*id, writes.clone())).collect();
        for (id, transaction) in asked {
            let mut seen = BTreeSet::new();
            for ((object, block), value) in &transaction.writes {
                self.bench.store.read(0, *object, &[BlockRange::new(*block, 1)], &mut self.bench.out);
                self.bench.run();
                let Some(StoreEvent::Read { result: Ok(pieces), .. }) = self.bench.events.pop_front() else {
                    panic!("{object} {block} can't be read");
                };
                let found = values_of(&pieces[0])[0];
                let before = self.history[&(*object, *block)].iter().rev().find(|(by, _)| *by != id);
                let before = before.and_then(|(_, value)| *value);
                assert!(found == *value || found == before, "{object} {block} is neither old nor new");
                if before != *value {
                    seen.insert(found == *value);
                }
            }
            assert!(seen.len() <= 1, "{id} happened in part");
            if seen.contains(&true) {
                self.move_on(id, Progress::Asked, Progress::Committed);
            } else {
                self.move_on(id, Progress::Asked, Progress::Gone);
                self.strike(id);
            }
        }
    }

    /// Reads every block, and checks the content.
    pub fn read_everything(&mut self) {
        for (object, (blocks, _)) in self.objects.clone() {
            self.read_ranges(object, vec![BlockRange::new(0, blocks)]);
            let pieces = self.bench.store.allocation(object, &[BlockRange::new(0, blocks)]);
            for piece in pieces {
                for block in piece.range.blocks() {
                    let there = |value: &Option<u64>| value.is_some() == (piece.content == Content::Present);
                    assert!(self.allowed((object, block)).iter().any(there), "{object} {block} is {:?}", piece.content);
                }
            }
        }
        self.bench.run();
        self.hear();
        assert!(self.reading.is_empty(), "every read is answered");
    }

    /// Decides everything undecided, and runs until the store is idle; then everything must be right.
    pub fn finish(&mut self) {
        if let Some(requests) = &mut self.requests {
            requests.ask_for_everything(&mut self.bench);
        }
        for _ in 0..10_000 {
            self.bench.run();
            self.hear();
            let open = self.transactions.values().any(|transaction| transaction.progress == Progress::Prepared);
            if open {
                self.decide();
            } else if !self.bench.wake() {
                break;
            }
        }
        self.bench.settle();
        self.hear();
        for (id, transaction) in &self.transactions {
            assert!(
                matches!(transaction.progress, Progress::Committed | Progress::Refused | Progress::Gone),
                "{id} is not over: {transaction:?}"
            );
        }
        if let Some(requests) = &self.requests {
            requests.assert_answered();
        }
        self.read_everything();
    }
}

/// The value of each block of a piece.
fn values_of(piece: &Piece) -> Vec<Option<u64>> {
    match &piece.content {
        Content::Hole => vec![None; piece.range.count as usize],
        Content::Data(data) => data.chunks(BLOCK_BYTES).map(|block| Some(value_of(block))).collect(),
        Content::Present | Content::Header { .. } | Content::Lost => panic!("a read brings bytes"),
    }
}

fn value_of(block: &[u8]) -> u64 {
    let value = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
    let whole = block.chunks_exact(8).enumerate().all(|(at, bytes)| bytes == (value ^ (at as u64) << 48).to_le_bytes());
    assert!(whole, "a block is torn");
    value
}
