//! Locks of lock servers (shared array, sections 4.2 and 4.3): how a transaction gets them, keeps them, and gives them back.
//!
//! ```text
//!   server-lock     ask ─► granted ─► … the transaction … ─► unlock ─► unlocked
//!   callback-lock   wait for own transactions ─► kept already?  yes ─────────► … the transaction …
//!                                                no ─► ask ─► granted ─► kept ─► … the transaction …
//!                                                             kept ─► recalled, or its lease ran out ─► idle ─► given back
//! ```
//!
//! Under callback locking a server knows hosts, not transactions; so transactions of one host are kept apart by a table of
//! its own, from which each takes all its locks at once. One uses claims of a server only when they cover all that it needs
//! there, and takes servers in the order of their numbers. So whoever is waited for never waits for somebody behind, and there
//! are no deadlocks.
//!
//! Kept locks cover whole stripe units. A recalled claim is used by no further transaction, so that the one who called it
//! back is not starved.

use crate::ctx::Timer;
use crate::host::{Acquisition, Host};
use crate::transaction::{Phase, Transaction};
use braid_base::limits;
use braid_base::{BlockRange, Generation, LockServerId, NodeId, Now, ObjectId, RangeTable, Time};
use braid_layout::VolumeDescription;
use braid_locks::{Asked, LockTable};
use braid_machine::{Effects, HostError, Ignored};
use braid_wire::Ordering;
use braid_wire::locking::{
    LockAnswer, LockCommand, LockExtent, LockMode, LockRefusal, LockReply, LockRequest, LockTerm,
};
use braid_wire::message::{Message, Rejection};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// All that a host holds of lock servers, or asks of them.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    by_number: BTreeMap<u64, Claim>,
    /// Where the kept ones lie that a transaction may use, by object and position.
    kept: BTreeMap<(ObjectId, u16), RangeTable<(u64, u16), LockMode>>,
    servers: BTreeMap<LockServerId, LockLink>,
    /// Callback locking: this host's transactions among themselves, by sequence.
    own: LockTable<u64>,
    /// Transactions that have come to their turn in `own`.
    turns: Vec<u64>,
}

/// One lock server, as a host sees it.
#[derive(Clone, Debug, Default)]
struct LockLink {
    /// Its start, as it last answered.
    heard: Generation,
    /// Its start that knows every claim held of it.
    start: Generation,
    /// Claims of which that start has yet to hear again.
    reasserting: usize,
    last_heard: Option<Time>,
    /// It had no room for this host when it last answered.
    crowded: bool,
    /// Claims let go that it has not been told of.
    dropped: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Claim {
    server: LockServerId,
    object: ObjectId,
    extents: Vec<LockExtent>,
    kept: bool,
    state: ClaimState,
    /// Transactions that use it or wait for it.
    users: BTreeSet<u64>,
    /// No further transaction may use it: it was recalled, or its lease ran out.
    retired: bool,
    resend_after: Duration,
    /// Others of the same server that are given back together with it.
    beside: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimState {
    Asked {
        impatient: bool,
    },
    Held,
    /// Held of a server that has restarted since, and has yet to hear of it.
    Reasserting,
    /// Given back, which the server has not confirmed.
    Leaving,
}

/// What a transaction still needs of lock servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acquiring {
    /// Whether it waits for other transactions of this host.
    local: bool,
    /// Claims that are not granted yet.
    asked: BTreeSet<u64>,
    /// What is to be asked after that.
    next: VecDeque<(LockServerId, Vec<LockExtent>)>,
}

impl Acquiring {
    pub fn invariants(&self, sequence: u64) {
        assert!(self.local || !self.asked.is_empty(), "the last grant ends the locking: {sequence}");
    }
}

impl Host {
    /// Gets a transaction the locks that it needs, and lets it begin then.
    pub(crate) fn acquire(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("it has just been made");
        let volume = transaction.volume.clone();
        let kept = volume.ordering == Ordering::CallbackLock;
        let extents = extents(transaction, &volume, kept);
        let next =
            by_server(&self.config.lock_servers, self.config.settings.stripes_per_lock_server, &volume, &extents);
        let waits = kept && self.claims.own.lock(sequence, volume.id.object(), &extents) != Asked::Granted;
        transaction.phase = Phase::Locking(Acquiring { local: waits, asked: BTreeSet::new(), next });
        match transaction.op {
            Some(op) if waits => self.delay(op),
            _ => self.acquire_next(now, sequence, out),
        }
    }

    /// Asks the next server, or all of them, or none if no lock is missing any more.
    fn acquire_next(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let several = self.config.lock_servers.len() > 1;
        let at_once = several && self.config.acquisition == Acquisition::Timeout;
        loop {
            let transaction = self.transactions.get_mut(&sequence).expect("it needs locks");
            let (object, ordering) = (transaction.volume.id.object(), transaction.volume.ordering);
            let kept = ordering == Ordering::CallbackLock;
            let Phase::Locking(acquiring) = &mut transaction.phase else {
                unreachable!("only then locks are acquired")
            };
            let Some((server, extents)) = acquiring.next.pop_front() else { break };
            if kept && self.use_kept(sequence, object, &extents) {
                self.counters.lock_hits += 1;
                continue;
            }
            let impatient = at_once && !kept;
            let claim = Claim {
                server,
                object,
                extents,
                kept,
                state: ClaimState::Asked { impatient },
                users: [sequence].into(),
                retired: false,
                resend_after: self.config.settings.resend_min,
                beside: Vec::new(),
            };
            self.ask_claim(now, sequence, claim, out);
            if !impatient {
                return;
            }
        }
        let Phase::Locking(acquiring) = &self.transactions[&sequence].phase else { unreachable!("just seen") };
        if acquiring.asked.is_empty() {
            self.begin(now, sequence, out);
        }
    }

    fn ask_claim(&mut self, now: Now, sequence: u64, claim: Claim, out: &mut Effects) {
        if claim.kept {
            self.drop_conflicting(claim.server, claim.object, &claim.extents);
        }
        let number = self.links.take_sequence();
        self.claims.by_number.insert(number, claim);
        let transaction = self.transactions.get_mut(&sequence).expect("it needs locks");
        transaction.claims.push(number);
        let Phase::Locking(acquiring) = &mut transaction.phase else { unreachable!("only then locks are acquired") };
        acquiring.asked.insert(number);
        self.say_claim(now, number, out);
    }

    /// Says again what a claim's state asks for.
    pub(crate) fn resend_claim(&mut self, now: Now, number: u64, out: &mut Effects) {
        self.counters.resent += 1;
        self.say_claim(now, number, out);
    }

    fn say_claim(&mut self, now: Now, number: u64, out: &mut Effects) {
        let claim = self.claims.by_number.get_mut(&number).expect("a claim with something to say is known");
        let (server, object, extents, kept) = (claim.server, claim.object, claim.extents.clone(), claim.kept);
        let heard = self.claims.servers.get(&server).map_or(Generation::default(), |link| link.heard);
        let lock = |term| LockCommand::Lock { claim: number, object, extents, term };
        let command = match claim.state {
            ClaimState::Asked { .. } if kept => lock(LockTerm::Kept),
            ClaimState::Asked { impatient } => lock(LockTerm::Transaction { impatient }),
            ClaimState::Reasserting => lock(LockTerm::Held { start: heard, kept }),
            ClaimState::Leaving => LockCommand::Unlock { claim: number },
            ClaimState::Held => return,
        };
        self.timers.set(Timer::Claim(number), now.time.after(claim.resend_after));
        claim.resend_after = (claim.resend_after * 2).min(self.config.settings.resend_max);
        if !claim.beside.is_empty() {
            let link = self.claims.servers.entry(server).or_default();
            link.dropped.extend(&claim.beside);
        }
        self.tell_server(now, server, command, out);
    }

    /// Sends to a lock server, with what was dropped meanwhile.
    fn tell_server(&mut self, now: Now, server: LockServerId, command: LockCommand, out: &mut Effects) {
        let link = self.claims.servers.entry(server).or_default();
        let rest = link.dropped.len().saturating_sub(limits::COMMITS_PER_REQUEST_MAX);
        let dropped = link.dropped.split_off(rest);
        let (host, start) = (self.config.generation, link.start);
        if self.timers.deadline_of(Timer::LockHeartbeat(server)).is_none() {
            self.timers.set(Timer::LockHeartbeat(server), now.time.after(self.config.settings.heartbeat));
        }
        self.counters.lock_requests += 1;
        let request = LockRequest { host, start, dropped, command };
        out.send(NodeId::LockServer(server), Message::LockRequest(request));
    }

    /// Keeps the host's lease at a lock server alive, also while nothing is held there: after a restart the server has all hosts
    /// fenced that are silent, since it does not know what they hold.
    pub(crate) fn on_lock_heartbeat(&mut self, now: Now, server: LockServerId, out: &mut Effects) {
        self.tell_server(now, server, LockCommand::Heartbeat, out);
    }

    pub(crate) fn on_lock_answer(&mut self, now: Now, server: LockServerId, answer: LockAnswer, out: &mut Effects) {
        self.counters.lock_answers += 1;
        let Some(link) = self.claims.servers.get_mut(&server) else { return out.ignore(Ignored::NotAwaited) };
        match answer.reply {
            // The monitor and the devices say so, too, and theirs is the word that ends a host.
            LockReply::Rejected { rejection: Rejection::Fenced } => return out.ignore(Ignored::NotAwaited),
            // There is room again when others have ended: what was asked is asked again.
            LockReply::Rejected { .. } => return link.crowded = true,
            _ => {}
        }
        link.crowded = false;
        if answer.start < link.heard {
            // A late answer of an earlier start.
            return out.ignore(Ignored::NotAwaited);
        }
        link.last_heard = Some(now.time);
        if answer.start > link.heard {
            let known = std::mem::replace(&mut link.heard, answer.start);
            if known == Generation::default() {
                link.heard_again(0, 0);
            } else {
                self.reassert(now, server, out);
            }
        }
        match answer.reply {
            LockReply::Heartbeat => {}
            LockReply::Granted { claim, waited } => self.on_granted(now, server, claim, waited, out),
            LockReply::Unlocked { claim } => {
                if self.claims.by_number.get(&claim).is_some_and(|held| held.state == ClaimState::Leaving) {
                    self.forget_claim(claim);
                }
            }
            LockReply::Recall { claims } => self.on_recall(now, server, claims, out),
            LockReply::Refused { claim, refusal } => self.on_claim_refused(now, claim, refusal, out),
            LockReply::Rejected { .. } => unreachable!("dealt with above"),
        }
    }

    /// The server has restarted, and knows nothing of what is held, nor of what was asked for or given back meanwhile.
    fn reassert(&mut self, now: Now, server: LockServerId, out: &mut Effects) {
        let of_it = |(_, claim): &(&u64, &mut Claim)| claim.server == server;
        let mut held = 0;
        let mut numbers = Vec::new();
        for (number, claim) in self.claims.by_number.iter_mut().filter(of_it) {
            if matches!(claim.state, ClaimState::Held | ClaimState::Reasserting) {
                claim.state = ClaimState::Reasserting;
                held += 1;
            }
            claim.resend_after = self.config.settings.resend_min;
            numbers.push(*number);
        }
        self.claims.servers.get_mut(&server).expect("it has answered").heard_again(held, 0);
        for number in numbers {
            self.say_claim(now, number, out);
        }
    }

    fn on_granted(&mut self, now: Now, server: LockServerId, number: u64, waited: bool, out: &mut Effects) {
        let Some(claim) = self.claims.by_number.get_mut(&number) else {
            // A late copy of what was asked was granted once more.
            return self.tell_server(now, server, LockCommand::Unlock { claim: number }, out);
        };
        match claim.state {
            ClaimState::Asked { .. } => {}
            ClaimState::Reasserting => {
                claim.state = ClaimState::Held;
                self.timers.cancel(Timer::Claim(number));
                let link = self.claims.servers.get_mut(&server).expect("it has answered");
                return link.heard_again(link.reasserting, 1);
            }
            ClaimState::Held | ClaimState::Leaving => return out.ignore(Ignored::NotAwaited),
        }
        claim.state = ClaimState::Held;
        let users: Vec<_> = claim.users.iter().copied().collect();
        self.timers.cancel(Timer::Claim(number));
        self.counters.lock_waits += u64::from(waited);
        if self.claims.by_number[&number].kept {
            self.keep(now, number);
        }
        for sequence in users {
            let transaction = self.transactions.get_mut(&sequence).expect("a claim's users are under way");
            let op = transaction.op;
            let Phase::Locking(acquiring) = &mut transaction.phase else { continue };
            acquiring.asked.remove(&number);
            let ready = acquiring.asked.is_empty();
            if let Some(op) = op.filter(|_| waited) {
                self.delay(op);
            }
            if ready {
                self.acquire_next(now, sequence, out);
            }
        }
    }

    /// A kept claim is there for all transactions of this host.
    fn keep(&mut self, now: Now, number: u64) {
        let claim = &self.claims.by_number[&number];
        if !claim.retired {
            for (index, extent) in claim.extents.iter().enumerate() {
                let place = (claim.object, extent.position);
                self.claims.kept.entry(place).or_default().insert(extent.range, (number, index as u16), extent.mode);
            }
        }
        if !self.config.settings.lock_lease.is_zero() {
            self.timers.set(Timer::ClaimLease(number), now.time.after(self.config.settings.lock_lease));
        }
    }

    /// Lets no further transaction use a kept claim.
    fn retire(&mut self, number: u64) {
        let claim = self.claims.by_number.get_mut(&number).expect("only a known claim is retired");
        let is_kept = claim.kept && !matches!(claim.state, ClaimState::Asked { .. });
        if std::mem::replace(&mut claim.retired, true) || !is_kept {
            return;
        }
        for (index, extent) in claim.extents.iter().enumerate() {
            let place = (claim.object, extent.position);
            let table = self.claims.kept.get_mut(&place).expect("it was kept there");
            table.remove(extent.range.start, (number, index as u16)).expect("it was kept there");
            if table.is_empty() {
                self.claims.kept.remove(&place);
            }
        }
    }

    /// If kept claims cover all of these extents, lets the transaction use them.
    fn use_kept(&mut self, sequence: u64, object: ObjectId, extents: &[LockExtent]) -> bool {
        let mut used = BTreeSet::new();
        for extent in extents {
            let Some(table) = self.claims.kept.get(&(object, extent.position)) else { return false };
            let mut reached = extent.range.start;
            for (range, (number, _), mode) in table.overlapping(extent.range) {
                if *mode == LockMode::Exclusive || extent.mode == LockMode::Shared {
                    if range.start > reached {
                        return false;
                    }
                    reached = reached.max(range.end());
                    used.insert(number);
                }
            }
            if reached < extent.range.end() {
                return false;
            }
        }
        for number in &used {
            self.claims.by_number.get_mut(number).expect("what is kept is known").users.insert(sequence);
        }
        self.transactions.get_mut(&sequence).expect("it needs locks").claims.extend(used);
        true
    }

    /// Lets go own idle claims that a new one would conflict with, so that the server need not call them back.
    fn drop_conflicting(&mut self, server: LockServerId, object: ObjectId, extents: &[LockExtent]) {
        let mut conflicting = BTreeSet::new();
        for extent in extents {
            let Some(table) = self.claims.kept.get(&(object, extent.position)) else { continue };
            let of = table.overlapping(extent.range).filter(|(_, _, mode)| mode.conflicts(extent.mode));
            conflicting.extend(of.map(|(_, (number, _), _)| number));
        }
        for number in conflicting {
            let claim = &self.claims.by_number[&number];
            if claim.server == server && claim.users.is_empty() && claim.state == ClaimState::Held {
                self.drop_claim(number);
            }
        }
    }

    /// The lease of a kept claim has run out.
    pub(crate) fn on_claim_lease(&mut self, number: u64) {
        if self.claims.by_number[&number].users.is_empty() {
            self.drop_claim(number);
        } else {
            self.retire(number);
        }
    }

    /// Lets go an idle claim; the server hears of it by the way.
    fn drop_claim(&mut self, number: u64) {
        self.retire(number);
        let claim = self.forget_claim(number);
        self.claims.servers.get_mut(&claim.server).expect("it was asked").dropped.push(number);
    }

    /// Gives back all cached locks, of each server as many in one message as it may name, until it has confirmed that.
    pub(crate) fn give_back_all_claims(&mut self, now: Now, out: &mut Effects) {
        let held = |claim: &Claim| matches!(claim.state, ClaimState::Held | ClaimState::Reasserting);
        let is_idle = |(_, claim): &(&u64, &Claim)| held(claim) && claim.users.is_empty();
        let idle = self.claims.by_number.iter().filter(is_idle).map(|(number, _)| *number);
        for number in idle.collect::<Vec<_>>() {
            self.drop_claim(number);
        }
        for server in self.claims.servers.keys().copied().collect::<Vec<_>>() {
            let link = self.claims.servers.get_mut(&server).expect("just listed");
            for numbers in std::mem::take(&mut link.dropped).chunks(limits::COMMITS_PER_REQUEST_MAX) {
                let (number, beside) = numbers.split_first().expect("a chunk is not empty");
                let claim = Claim {
                    server,
                    object: ObjectId(0),
                    extents: Vec::new(),
                    kept: false,
                    state: ClaimState::Leaving,
                    users: BTreeSet::new(),
                    retired: true,
                    resend_after: self.config.settings.resend_min,
                    beside: beside.to_vec(),
                };
                self.claims.by_number.insert(*number, claim);
                self.say_claim(now, *number, out);
            }
        }
    }

    fn on_recall(&mut self, now: Now, server: LockServerId, numbers: Vec<u64>, out: &mut Effects) {
        let mut idle = Vec::new();
        for number in numbers {
            self.counters.recalls += 1;
            let Some(claim) = self.claims.by_number.get(&number) else {
                // Let go already, or never heard of.
                idle.push(number);
                continue;
            };
            let (in_use, state) = (!claim.users.is_empty(), claim.state);
            if state == ClaimState::Leaving || claim.server != server || !claim.kept {
                continue;
            }
            self.retire(number);
            if !in_use {
                self.forget_claim(number);
                idle.push(number);
            }
        }
        if !idle.is_empty() {
            self.tell_server(now, server, LockCommand::Yield { claims: idle }, out);
        }
    }

    /// A claim is not granted, or, said again after a restart, was taken by another meanwhile.
    fn on_claim_refused(&mut self, now: Now, number: u64, refusal: LockRefusal, out: &mut Effects) {
        let Some(claim) = self.claims.by_number.get(&number) else { return out.ignore(Ignored::NotAwaited) };
        match claim.state {
            ClaimState::Held => return out.ignore(Ignored::NotAwaited),
            ClaimState::Leaving => {
                self.forget_claim(number);
                return;
            }
            ClaimState::Asked { .. } | ClaimState::Reasserting => {}
        }
        let users: Vec<_> = claim.users.iter().copied().collect();
        self.retire(number);
        self.forget_claim(number);
        for sequence in users {
            let transaction = self.transactions.get_mut(&sequence).expect("a claim's users are under way");
            transaction.claims.retain(|held| *held != number);
            // What is written already is decided by its devices, which refuse what comes too late.
            if !matches!(transaction.phase, Phase::Locking(_) | Phase::Reading { .. }) {
                transaction.lost_locks = true;
                continue;
            }
            if refusal == LockRefusal::Malformed
                && let Some(op) = transaction.op
            {
                self.give_up(now, op, HostError::OutOfRange, out);
            } else {
                if refusal == LockRefusal::Timeout {
                    self.count_restart(sequence);
                }
                self.lose(now, sequence, None, out);
            }
        }
    }

    /// Gives back the locks of a transaction that needs them no longer.
    pub(crate) fn release_claims(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = self.transactions.get_mut(&sequence).expect("it is being ended");
        let callback = transaction.volume.ordering == Ordering::CallbackLock;
        let numbers = std::mem::take(&mut transaction.claims);
        for number in numbers {
            let claim = self.claims.by_number.get_mut(&number).expect("a transaction's claims are known");
            claim.users.remove(&sequence);
            let (server, in_use) = (claim.server, !claim.users.is_empty());
            let asked = matches!(claim.state, ClaimState::Asked { .. });
            if in_use {
                continue;
            }
            if !claim.kept || asked {
                let was = std::mem::replace(&mut claim.state, ClaimState::Leaving);
                claim.resend_after = self.config.settings.resend_min;
                if was == ClaimState::Reasserting {
                    let link = self.claims.servers.get_mut(&server).expect("it has answered");
                    link.heard_again(link.reasserting, 1);
                }
                self.say_claim(now, number, out);
            } else if claim.retired {
                self.forget_claim(number);
                self.tell_server(now, server, LockCommand::Yield { claims: vec![number] }, out);
            }
        }
        if callback {
            self.claims.own.release(sequence, &mut self.claims.turns);
        }
    }

    /// On with transactions whose turn has come among this host's own.
    pub(crate) fn take_turns(&mut self, now: Now, out: &mut Effects) {
        while !self.claims.turns.is_empty() {
            for sequence in std::mem::take(&mut self.claims.turns) {
                if let Some(transaction) = self.transactions.get_mut(&sequence)
                    && let Phase::Locking(acquiring) = &mut transaction.phase
                    && std::mem::take(&mut acquiring.local)
                {
                    self.acquire_next(now, sequence, out);
                }
            }
        }
    }

    /// Why an operation's time ran out before it had its locks.
    pub(crate) fn why_no_locks(&self, now: Now, sequence: u64, waited: Duration) -> HostError {
        let Phase::Locking(acquiring) = &self.transactions[&sequence].phase else {
            unreachable!("it waited for locks");
        };
        let silent = |server: &LockServerId| {
            let heard = self.claims.servers.get(server).and_then(|link| link.last_heard);
            heard.is_none_or(|heard| now.time.since(heard) > self.config.settings.host_lease)
        };
        let servers = || acquiring.asked.iter().map(|number| self.claims.by_number[number].server);
        let crowded = |server: &LockServerId| self.claims.servers.get(server).is_some_and(|link| link.crowded);
        if let Some(server) = servers().find(crowded) {
            return HostError::LockServerRejected { server, rejection: Rejection::TooManyHosts };
        }
        match servers().filter(silent).min() {
            Some(server) => HostError::LockServerSilent { server, waited },
            None => HostError::Contended { waited },
        }
    }

    /// What it holds of lock servers, as far as it knows, to look at. Nobody else may hold that, unless devices keep this host out.
    pub fn held_locks(&self) -> impl Iterator<Item = (ObjectId, LockExtent)> + '_ {
        let held = |claim: &&Claim| matches!(claim.state, ClaimState::Held | ClaimState::Reasserting);
        let extents = |claim: &'_ Claim| claim.extents.iter().map(|extent| (claim.object, *extent)).collect::<Vec<_>>();
        self.claims.by_number.values().filter(held).flat_map(extents)
    }

    /// Claims held or asked for, to look at.
    pub fn claims(&self) -> usize {
        self.claims.by_number.len()
    }

    /// True if nothing was asked of a lock server, or given back, that it has not answered.
    pub(crate) fn servers_know_all(&self) -> bool {
        self.claims.by_number.values().all(|claim| claim.state == ClaimState::Held && claim.kept)
    }

    fn forget_claim(&mut self, number: u64) -> Claim {
        self.timers.cancel(Timer::Claim(number));
        self.timers.cancel(Timer::ClaimLease(number));
        let claim = self.claims.by_number.remove(&number).expect("a claim is forgotten once");
        if claim.state == ClaimState::Reasserting {
            let link = self.claims.servers.get_mut(&claim.server).expect("it has answered");
            link.heard_again(link.reasserting, 1);
        }
        claim
    }
}

impl LockLink {
    /// Of so many claims the server has heard of some more again; of all, and its present start is the one that knows them.
    fn heard_again(&mut self, missing: usize, heard: usize) {
        self.reasserting = missing - heard;
        if self.reasserting == 0 {
            self.start = self.heard;
        }
    }
}

impl Claims {
    /// Asserts that claims and transactions know each other.
    pub fn invariants(&self, transactions: &BTreeMap<u64, Box<Transaction>>) {
        self.own.invariants();
        for (sequence, transaction) in transactions {
            for number in &transaction.claims {
                let claim = self.by_number.get(number).expect("a transaction's claims are known");
                assert!(claim.users.contains(sequence), "a claim knows its users: {number}, {sequence}");
                assert_ne!(claim.state, ClaimState::Leaving, "what is used is not given back: {number}");
            }
        }
    }
}

/// What a transaction locks: what it reads, shared; what it writes, exclusively; as whole stripe units if they are to be kept.
fn extents(transaction: &Transaction, volume: &VolumeDescription, kept: bool) -> Vec<LockExtent> {
    let unit = volume.layout.unit_blocks();
    let rounded = |range: BlockRange| match kept {
        true => BlockRange::between(range.start / unit * unit, range.end().div_ceil(unit) * unit),
        false => range,
    };
    let mut extents: Vec<LockExtent> = Vec::new();
    for share in transaction.work.shares() {
        let position = volume.device_at(share.position).0;
        let of_this = extents.len();
        for (ranges, mode) in [(&share.prewrites, LockMode::Exclusive), (&share.reads, LockMode::Shared)] {
            for range in ranges {
                let range = rounded(*range);
                let there = |held: &LockExtent| held.range.contains(range);
                if !extents[of_this..].iter().any(there) {
                    extents.push(LockExtent { position, range, mode });
                }
            }
        }
    }
    extents
}

/// Which server has to grant what, in the order of their numbers, if each gets so many stripes at a time.
fn by_server(
    servers: &[LockServerId],
    stripes: u64,
    volume: &VolumeDescription,
    extents: &[LockExtent],
) -> VecDeque<(LockServerId, Vec<LockExtent>)> {
    let [_, _, ..] = servers else {
        return servers.iter().map(|server| (*server, extents.to_vec())).collect();
    };
    let run = volume.layout.unit_blocks() * stripes;
    let mut parts: BTreeMap<LockServerId, Vec<LockExtent>> = BTreeMap::new();
    for extent in extents {
        let mut start = extent.range.start;
        while start < extent.range.end() {
            let end = extent.range.end().min((start / run + 1) * run);
            let server = servers[((start / run + volume.id.0) % servers.len() as u64) as usize];
            parts.entry(server).or_default().push(LockExtent { range: BlockRange::between(start, end), ..*extent });
            start = end;
        }
    }
    parts.into_iter().collect()
}
