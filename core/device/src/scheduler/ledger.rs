//! The ledger holds the transactions that a device takes part in. It also handles the consequences of a change of
//! state: it answers the hosts that asked, and forgets the transaction, or makes it an orphan or a suspect.
//!
//! An *orphan* is a prepared or committed transaction whose host is gone or silent. Devices name it to hosts, so that a
//! host resolves it. A *suspect* was interrupted where writes take effect on arrival: see [`super::interrupted`].

use super::ctx::{Ctx, Objects};
use super::decision::Decision;
use super::round_robin::RoundRobin;
use super::suspects::Suspects;
use super::transactions::{Awaited, State, Transaction, TransactionView, Transactions};
use braid_base::{BlockRange, DeviceId, FenceTable, Generation, Membership, ObjectId, Stamp, TransactionId, limits};
use braid_machine::Ignored;
use braid_wire::{Orphan, Outcome, Reply, Suspect, SuspectBlocks, Vote};
use std::collections::BTreeMap;

/// The transactions of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    transactions: Transactions,
    /// Those that no host looks after.
    pub orphans: RoundRobin,
    suspects: Suspects,
    /// Transactions that are decided, and whose device locks and columns are not released yet.
    ended: Vec<Ended>,
    /// The transactions that were undecided at the last patrol, and for how many patrols each was.
    undecided_for: BTreeMap<TransactionId, u32>,
}

/// A transaction that was decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub id: TransactionId,
    pub takes_locks: bool,
}

impl Ledger {
    /// An empty ledger for at most `most` transactions; recovered ones may exceed that.
    pub fn new(most: usize) -> Ledger {
        Ledger { transactions: Transactions::new(most), ..Ledger::default() }
    }

    /// All transactions, for inspection.
    pub fn views(&self) -> impl Iterator<Item = TransactionView<'_>> {
        self.transactions.views()
    }

    /// True if an undecided transaction is on this object.
    pub fn touch(&self, object: ObjectId) -> bool {
        self.transactions.touch(object)
    }

    /// The table of transactions, for the scheduler alone.
    pub(super) fn table(&self) -> &Transactions {
        &self.transactions
    }

    pub(super) fn get(&self, id: TransactionId) -> Option<&Transaction> {
        self.transactions.get(id)
    }

    pub fn get_mut(&mut self, id: TransactionId) -> Option<&mut Transaction> {
        self.transactions.get_mut(id)
    }

    pub fn insert(&mut self, id: TransactionId, transaction: Transaction) {
        self.transactions.insert(id, transaction);
    }

    /// Records that the store begins to write the pre-written blocks. No host can have asked for this state, so there
    /// is nothing to answer.
    pub fn begin(&mut self, id: TransactionId, state: State) -> &mut Transaction {
        self.transactions.advance(id, state);
        self.transactions.get_mut(id).expect("just moved on")
    }

    /// Moves a transaction to another state. It answers the hosts that asked for that state, and forgets the
    /// transaction if no host can ask for it any more. Requests that waited for it are resumed by
    /// [`super::Scheduler::resume_waiting`].
    pub fn advance(&mut self, cx: &mut Ctx, id: TransactionId, to: State) {
        let released = self.transactions.advance(id, to);
        let transaction = self.transactions.get_mut(id).expect("just moved on");
        if released {
            self.ended.push(Ended { id, takes_locks: transaction.takes_locks() });
        }
        for (host, asked) in std::mem::take(&mut transaction.askers) {
            let reply = match (asked, to) {
                (Awaited::Vote, State::Prepared) => Reply::Vote { transaction: id, vote: Vote::Prepared },
                (Awaited::Vote, State::Aborted) => Reply::Vote { transaction: id, vote: Vote::NeverPrepared },
                (Awaited::Decision, State::Committed) => Reply::Decided { transaction: id, outcome: Outcome::Commit },
                (Awaited::Decision, State::Aborted | State::Applied | State::Suspect { .. }) => {
                    Reply::Decided { transaction: id, outcome: Outcome::Abort }
                }
                _ => {
                    self.transactions.get_mut(id).expect("just moved on").askers.push((host, asked));
                    continue;
                }
            };
            if asked == Awaited::Vote && to == State::Prepared {
                self.note_vote(id);
            }
            cx.answer(host, reply);
        }
        self.keep_or_forget(cx, id);
    }

    /// Notes that a host hears that the transaction is prepared. The transaction's own host asks only after it has given
    /// up a retraction, and then counts on the vote: a late copy of the retraction must not undo the intent.
    pub fn note_vote(&mut self, id: TransactionId) {
        self.transactions.get_mut(id).expect("it is prepared").voted = true;
    }

    /// Notes that a host is to be answered once something is durable.
    pub fn ask(&mut self, id: TransactionId, host: Generation, asked: Awaited) {
        let transaction = self.transactions.get_mut(id).expect("it is known");
        if !transaction.askers.contains(&(host, asked)) {
            transaction.askers.push((host, asked));
        }
    }

    /// A host retracts a transaction: it ends it without a decision. A coordinator may do so as long as no resolver can
    /// have found the transaction prepared. False if that is not so, or if the device can't promise it.
    pub fn can_retract(&self, cx: &mut Ctx, host: Generation, id: TransactionId) -> bool {
        match self.transactions.get(id) {
            _ if host != id.host => cx.ignore(Ignored::NotForUs),
            Some(held) if held.state == State::Prepared && held.voted => {
                cx.answer(host, Reply::Vote { transaction: id, vote: Vote::Prepared });
            }
            // There is no room to remember it: a late copy of its write would become an intent.
            None if !self.can_remember(cx, id) => cx.ignore(Ignored::InProgress),
            _ => return true,
        }
        false
    }

    /// True if there is room to remember that an unknown transaction was aborted. There always is for the oldest one that its host has yet
    /// to end: the later ones can only be forgotten after it.
    pub fn can_remember(&self, cx: &Ctx, id: TransactionId) -> bool {
        cx.hosts.settled(id.host) == Some(id.sequence) || !self.transactions.is_full_for(id.host)
    }

    /// Tells the hosts of `blockers` that a request waits for them. If a host can't act on that yet, it is told when it
    /// can.
    pub fn want(&mut self, cx: &mut Ctx, blockers: impl IntoIterator<Item = TransactionId>) {
        for blocker in blockers {
            let transaction = self.transactions.get_mut(blocker).expect("a blocker is known");
            let reads = transaction.state == State::Prewritten && transaction.only_locks();
            let first = !std::mem::replace(&mut transaction.wanted, true);
            if first && (reads || transaction.state == State::Prepared) {
                cx.answer(blocker.host, Reply::Blocked { transaction: blocker });
            }
        }
    }

    /// Called when a transaction's host is gone or has declared it over. The transaction is forgotten if it left
    /// nothing; otherwise it becomes an orphan or a suspect.
    pub fn keep_or_forget(&mut self, cx: &mut Ctx, id: TransactionId) {
        let transaction = self.transactions.get(id).expect("it was just moved on");
        match transaction.state {
            State::Applied if !cx.hosts.has(id.host) && cx.can_be_suspect(transaction.object) => self.suspect(cx, id),
            State::Aborted if !cx.is_looked_after(id) => self.drop_decided(id),
            // Its object may have been removed since the store began to remember it.
            State::Applied if !cx.is_looked_after(id) => self.forget(cx, id),
            State::Prepared | State::Committed if !cx.is_looked_after(id) => {
                self.orphans.insert(id);
            }
            _ => {}
        }
    }

    /// Makes a transaction suspect that was announced or has been written.
    pub fn suspect(&mut self, cx: &mut Ctx, id: TransactionId) {
        let transaction = self.transactions.get(id).expect("it is known");
        let written = match transaction.state {
            State::Prewritten => false,
            State::Applied => true,
            other => panic!("only an announced or applied write becomes suspect: {id} is {other:?}"),
        };
        self.suspects.insert(id, transaction.object, &transaction.ranges);
        self.advance(cx, id, State::Suspect { written });
    }

    /// Forgets a transaction that is decided, and of which the store remembers nothing.
    pub fn drop_decided(&mut self, id: TransactionId) {
        self.orphans.remove(id);
        if let Some(transaction) = self.transactions.get(id) {
            self.suspects.remove(id, transaction.object, &transaction.ranges);
        }
        self.transactions.remove(id);
    }

    /// Forgets a transaction that is decided, and the store's record of it.
    pub fn forget(&mut self, cx: &mut Ctx, id: TransactionId) {
        cx.decide(Decision::Forget(id));
        self.drop_decided(id);
    }

    /// Forgets the suspect transactions of an object that is removed.
    pub fn drop_suspects_of(&mut self, cx: &mut Ctx, object: ObjectId) {
        let of_it = |id: &TransactionId| self.transactions.get(*id).is_some_and(|held| held.object == object);
        for id in self.suspects.iter().filter(of_it).collect::<Vec<_>>() {
            self.forget(cx, id);
        }
    }

    /// A patrol looks for transactions that stay undecided though their hosts live. An intent that was undecided for `patrols` patrols
    /// becomes an orphan: others wait for it, it takes room in the journal, and whoever resolves it asks all participants. Returns the
    /// pre-writes for which others have waited as long.
    pub fn look_for_undecided(&mut self, patrols: u32) -> Vec<TransactionId> {
        // What was read under locks counts, also if no write follows that could be refused: its host keeps them while it lives.
        let waited_for = |held: &Transaction| held.state == State::Prewritten && held.wanted && !held.takes_locks();
        let undecided = self.transactions.iter().filter(|(_, held)| held.state == State::Prepared || waited_for(held));
        let before = std::mem::take(&mut self.undecided_for);
        let counted = |id: &TransactionId| (*id, before.get(id).copied().unwrap_or_default() + 1);
        self.undecided_for = undecided.map(|(id, _)| counted(id)).collect();
        let for_long = self.undecided_for.iter().filter(|(_, count)| **count > patrols).map(|(id, _)| *id);
        let is_intent =
            |id: &TransactionId| self.transactions.get(*id).is_some_and(|held| held.state == State::Prepared);
        let (intents, prewrites): (Vec<_>, Vec<_>) = for_long.partition(is_intent);
        intents.into_iter().for_each(|id| self.orphans.insert(id));
        prewrites
    }

    /// Makes the commits of fenced hosts orphans, so that any host may have them forgotten.
    pub fn release_fenced(&mut self, fence: &FenceTable) {
        let kept = self.transactions.iter();
        let kept = kept.filter(|(id, held)| held.state == State::Committed && fence.refuses(id.host));
        kept.for_each(|(id, _)| self.orphans.insert(*id));
    }

    /// The number of transactions that wait to be resolved by a host.
    pub fn orphans(&self) -> usize {
        self.orphans.len()
    }

    pub fn suspects(&self) -> usize {
        self.suspects.len()
    }

    /// The lowest clock of the stamps of orphans and suspects.
    pub fn oldest_unresolved(&self) -> Option<Stamp> {
        let unresolved = self.orphans.iter().chain(self.suspects.iter());
        unresolved.filter_map(|id| self.transactions.get(id)).map(|held| held.stamp).min()
    }

    /// True if parity may not match these blocks.
    pub fn is_suspect(&self, object: ObjectId, ranges: &[BlockRange]) -> bool {
        self.suspects.touch(object, ranges)
    }

    /// Some orphans, different ones each time.
    pub fn name_orphans(&mut self, cx: &Ctx) -> Vec<Orphan> {
        let named = self.orphans.name(limits::ORPHANS_PER_ANSWER_MAX);
        let of = |id: TransactionId| {
            let transaction = self.transactions.get(id).expect("an orphan is a transaction");
            Orphan { transaction: id, stamp: transaction.stamp, participants: voters(cx, transaction) }
        };
        named.into_iter().map(of).collect()
    }

    /// Some suspects, different ones each time.
    pub fn name_suspects(&mut self) -> Vec<Suspect> {
        let named = self.suspects.name(limits::ORPHANS_PER_ANSWER_MAX);
        named.into_iter().map(|id| self.describe(id)).collect()
    }

    fn describe(&self, id: TransactionId) -> Suspect {
        let transaction = self.transactions.get(id).expect("every suspect is a transaction");
        let blocks = match (transaction.state, transaction.linkage) {
            (State::Suspect { written: true }, Some(linkage)) => SuspectBlocks::Written(linkage),
            _ => {
                let first = transaction.ranges.first().expect("an announced write has blocks").start;
                let end = transaction.ranges.iter().map(|range| range.end()).max().unwrap_or(first);
                SuspectBlocks::Announced(BlockRange::between(first, end))
            }
        };
        Suspect { transaction: id, object: transaction.object, blocks }
    }

    /// True if claims on blocks were released since [`Ledger::take_released`] was last called.
    pub fn have_released(&self) -> bool {
        self.transactions.have_released()
    }

    /// The same; resets the mark, because waiting requests are examined now.
    pub fn take_released(&mut self) -> bool {
        self.transactions.take_released()
    }

    /// The next transaction that is decided, and whose device locks and column are not released yet.
    pub(super) fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop()
    }

    /// True if the transaction is decided, and its device locks and column are not released yet.
    pub fn has_ended(&self, id: TransactionId) -> bool {
        self.ended.iter().any(|ended| ended.id == id)
    }

    /// Fenced hosts with undecided transactions here, in volumes with redundancy; undecided means not durably committed
    /// or aborted. Without redundancy no other device decides without this one, so that the outcome can't contradict
    /// what was read.
    pub fn undecided_of_fenced(&self, objects: &dyn Objects, membership: &Membership) -> Vec<Generation> {
        if membership.fence == FenceTable::default() {
            return Vec::new();
        }
        let redundant = |held: &Transaction| objects.object(held.object).is_some_and(|object| object.redundant);
        let undecided = self.transactions.iter().filter(|(id, held)| {
            held.state.is_written_and_undecided() && membership.fence.refuses(id.host) && redundant(held)
        });
        // Transactions are sorted by host.
        let mut hosts: Vec<Generation> = Vec::new();
        for (id, _) in undecided {
            if hosts.last() != Some(&id.host) {
                hosts.push(id.host);
            }
            if hosts.len() == limits::UNDECIDED_HOSTS_MAX {
                break;
            }
        }
        hosts
    }

    /// True if a transaction on this object is undecided here in which `device` has no vote, because it has been out
    /// since. The device may not be in before all these are decided; otherwise decisions could outlive the devices that
    /// know them.
    pub fn has_undecided_before_return_of(&self, membership: &Membership, device: DeviceId, object: ObjectId) -> bool {
        self.transactions.iter().any(|(_, held)| {
            // A decision that is not durable can be lost in a restart.
            let pending = held.state.is_written_and_undecided();
            pending && held.object == object && !membership.has_been_in_since(device, held.epoch)
        })
    }

    /// True if a transaction is older than an absence of this device, and was shared with other devices. Those need not
    /// hear of it any more.
    pub fn is_before_return(&self, cx: &Ctx, id: TransactionId) -> bool {
        let Some(held) = self.transactions.get(id) else { return false };
        let own = cx.view.member(cx.device);
        let redundant = cx.object(held.object).is_none_or(|object| object.redundant);
        redundant && held.participants.len() > 1 && own.is_some_and(|own| held.epoch < own.since)
    }

    /// The transactions in the given states, sorted.
    pub fn in_state(&self, is: impl Fn(State) -> bool) -> Vec<TransactionId> {
        self.transactions.iter().filter(|(_, held)| is(held.state)).map(|(id, _)| *id).collect()
    }

    /// Asserts that orphans and suspects are transactions, and that suspects are in the state `Suspect`.
    pub fn invariants(&self) {
        self.transactions.invariants();
        for id in self.suspects.iter() {
            let state = self.transactions.get(id).map(|held| held.state);
            assert!(
                matches!(state, Some(State::Suspect { .. })),
                "every suspect is a transaction in that state: {id} is {state:?}"
            );
        }
        for id in self.orphans.iter() {
            assert!(self.transactions.get(id).is_some(), "an orphan is a transaction: {id}");
        }
    }
}

/// The participants of a transaction that have a vote: they have been in since it wrote.
fn voters(cx: &Ctx, held: &Transaction) -> Vec<DeviceId> {
    let redundant = cx.object(held.object).is_some_and(|object| object.redundant);
    let counts = |device: &_| cx.view.has_a_say(*device, &held.participants, held.epoch, redundant);
    held.participants.iter().copied().filter(counts).collect()
}
