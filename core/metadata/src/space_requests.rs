//! Free blocks when those of the shard are used up: the part of a metadata server that gets some of hosts that do not use theirs, and of other
//! shards, and gives some of its own to others ([`braid_namespace::transfers`] has the records).
//!
//! ```text
//!   Reserve ─► evaluated ─┬─► blocks, or no space in the metadata volume: answered
//!                         └─► no block is free here: it waits, while the hosts of this shard ([`Revocation`]) and the other shards are asked
//!                                ├─► one gives some: all that wait are evaluated again
//!                                └─► all have none: the first is evaluated once more, and answered as it is; the others go on
//! ```
//!
//! A shard that does not answer is passed by, and asked again. So a host hears that a file system is full only if every shard has said that
//! neither it nor one of its hosts has a block to spare. Of those that wait one at a time is refused, because what it had gathered is unused
//! then. What is here is lost with the process. Hosts send their commands again; and a server that begins asks all others for the transfers
//! that its shard has not received.

use crate::operation::own;
use crate::revocation::Revocation;
use braid_base::limits::{self, Settings};
use braid_base::{Backoff, BlockRange, Generation, Now, ShardId, Time, TransactionId};
use braid_machine::Ignored;
use braid_namespace::transfers::{self, Transfer};
use braid_objects::{Evaluation, Found, NotHere, Procedure, View};
use braid_wire::ShardBody;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The round in which a server that begins asks for what was not received.
const FIRST_ROUND: u64 = 1;
/// The most reservations of hosts under way.
const RESERVATIONS_MAX: usize = 8192;

/// The state. What follows from an input is a list of actions, which the server carries out in order.
#[derive(Clone, Debug)]
pub(crate) struct SpaceRequests {
    own: ShardId,
    /// The start of this server.
    start: Generation,
    transfers: Transfers,
    reservations: BTreeMap<TransactionId, Reservation>,
    /// In a round, each shard is asked until it gives something or says that it has nothing. This one asks its hosts.
    round: u64,
    /// The shards that have not answered in this round. The first one is asked.
    left: VecDeque<ShardId>,
    /// The reservation that is evaluated for the last time.
    last: Option<TransactionId>,
    revocation: Revocation,
    /// When the next one is asked.
    again: Option<Time>,
    /// The waits of a round.
    waits: Backoff,
    /// The shard that gave something last is asked first.
    last_giver: Option<ShardId>,
}

/// Transfers between this shard and others.
#[derive(Clone, Debug, Default)]
struct Transfers {
    /// The numbers of the last ones that were received, by shard.
    received: Vec<u64>,
    /// Shards whose transfers are being logged.
    receiving: BTreeSet<ShardId>,
    /// Shards whose requests are being logged, or held.
    giving: BTreeSet<ShardId>,
    /// Requests of other shards for which no block is free here, until the hosts have answered.
    held: BTreeMap<ShardId, SpaceRequest>,
}

/// A reservation of a host.
#[derive(Clone, Debug)]
struct Reservation {
    settled: u64,
    blocks: u64,
    /// The round after which it is answered in any case; none while it is evaluated.
    waits: Option<u64>,
}

/// What the server is to do.
#[derive(Clone, Debug)]
pub(crate) enum SpaceAction {
    /// Evaluate a reservation. If it is not the last time, and no block is free here, it has no effect.
    Evaluate { name: TransactionId, settled: u64, blocks: u64, is_last: bool },
    /// Answer a host that there are too many reservations.
    Refuse(TransactionId),
    /// Send this to another server.
    Send { to: ShardId, body: ShardBody },
    /// Write this.
    Log(SpaceStep),
    /// Call back what the hosts of this shard do not use.
    Revoke,
    /// Note that a message was ignored.
    Ignore(Ignored),
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SpaceStep {
    /// A request of another shard is answered.
    Give(SpaceRequest),
    /// A transfer of another shard is received.
    Receive { from: ShardId, transfer: Transfer },
}

/// A request of another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceRequest {
    pub from: ShardId,
    /// Identify the round in which it asks.
    pub start: Generation,
    pub round: u64,
    /// The last transfer that it has received.
    pub received: u64,
    /// How many blocks it wants.
    pub blocks: u64,
    /// The hosts of this shard have nothing to spare: it is answered as it is.
    pub is_last: bool,
}

impl SpaceRequests {
    pub fn new(own: ShardId, count: usize, start: Generation, settings: &Settings) -> SpaceRequests {
        SpaceRequests {
            own,
            start,
            transfers: Transfers { received: vec![0; count], ..Transfers::default() },
            reservations: BTreeMap::new(),
            round: 0,
            left: VecDeque::new(),
            last: None,
            revocation: Revocation::new(settings),
            again: None,
            waits: settings.resend(),
            last_giver: None,
        }
    }

    /// The server begins to serve, and has read what was received. What was not received is asked for.
    pub fn begin(&mut self, now: Now, received: &[u64]) {
        for (known, found) in self.transfers.received.iter_mut().zip(received) {
            *known = *found;
        }
        self.begin_round();
        self.left.retain(|shard| *shard != self.own);
        self.again = (!self.left.is_empty()).then_some(now.time);
    }

    /// True if no reservation is under way.
    pub fn is_idle(&self) -> bool {
        self.reservations.is_empty()
    }

    pub fn deadline(&self) -> Option<Time> {
        self.again.into_iter().chain(self.revocation.deadline()).min()
    }

    pub fn invariants(&self) {
        let waits = self.reservations.values().any(|reservation| reservation.waits.is_some());
        assert!(!waits || !self.left.is_empty(), "what waits for other shards waits for a round");
        assert!(self.left.is_empty() == self.again.is_none(), "a shard that is left is asked again");
        assert!(self.transfers.held.is_empty() || self.revocation.is_under_way(), "what is held waits for hosts");
        assert!(self.reservations.len() <= RESERVATIONS_MAX, "reservations are bounded");
    }

    pub fn reserve(&mut self, name: TransactionId, settled: u64, blocks: u64, actions: &mut Vec<SpaceAction>) {
        match self.reservations.get(&name) {
            Some(Reservation { waits: Some(_), .. }) => actions.push(SpaceAction::Ignore(Ignored::NotAwaited)),
            None if self.reservations.len() >= RESERVATIONS_MAX => actions.push(SpaceAction::Refuse(name)),
            _ => {
                self.reservations.insert(name, Reservation { settled, blocks, waits: None });
                self.evaluate(vec![name], false, actions);
            }
        }
    }

    /// The reservations under way.
    pub fn names(&self) -> impl Iterator<Item = TransactionId> + '_ {
        self.reservations.keys().copied()
    }

    /// Reservations need this part no more.
    pub fn end(&mut self, is_over: impl Fn(TransactionId) -> bool) {
        self.reservations.retain(|name, _| !is_over(*name));
    }

    /// The store has evaluated a command. `is_short`: it was a reservation for which no block is free here.
    pub fn on_evaluated(&mut self, now: Now, name: TransactionId, is_short: bool, actions: &mut Vec<SpaceAction>) {
        if self.last == Some(name) {
            self.last = None;
            // What was refused uses nothing any more: the next one may have it.
            self.again = self.again.map(|_| now.time);
        }
        if !is_short {
            self.reservations.remove(&name);
            return;
        }
        let is_under_way = !self.left.is_empty() && self.round > FIRST_ROUND;
        let Some(reservation) = self.reservations.get_mut(&name) else { return };
        // What others have said before it began does not count.
        reservation.waits = Some(self.round + 1);
        if !is_under_way {
            self.begin_round();
            self.ask(now, actions);
        }
    }

    /// The shard that was asked does not answer: the next one is asked.
    pub fn wake(&mut self, now: Now, actions: &mut Vec<SpaceAction>) {
        if self.revocation.deadline().is_some_and(|again| again <= now.time) {
            actions.push(SpaceAction::Revoke);
        }
        if self.again.is_none_or(|again| again > now.time) {
            return;
        }
        if self.reservations.values().any(|reservation| reservation.waits > Some(self.round)) {
            self.begin_round();
        } else {
            self.left.rotate_left(1);
        }
        self.ask(now, actions);
    }

    /// Another shard asks for blocks.
    pub fn on_request(&mut self, request: SpaceRequest, actions: &mut Vec<SpaceAction>) {
        actions.push(match self.transfers.giving.insert(request.from) {
            true => SpaceAction::Log(SpaceStep::Give(request)),
            false => SpaceAction::Ignore(Ignored::InProgress),
        });
    }

    /// Another shard gives blocks, or has none.
    pub fn on_transfer(
        &mut self,
        now: Now,
        from: ShardId,
        (start, round): (Generation, u64),
        transfer: Transfer,
        actions: &mut Vec<SpaceAction>,
    ) {
        let is_of_this_round = start == self.start && round == self.round && self.left.contains(&from);
        if !transfer.runs.is_empty() && transfer.number > self.transfers.received[usize::from(from.0)] {
            actions.push(match self.transfers.receiving.insert(from) {
                true => SpaceAction::Log(SpaceStep::Receive { from, transfer }),
                false => SpaceAction::Ignore(Ignored::InProgress),
            });
        } else if transfer.runs.is_empty() && is_of_this_round {
            self.has_nothing(now, from, actions);
        } else {
            actions.push(SpaceAction::Ignore(Ignored::NotAwaited));
        }
    }

    /// These hosts are called on ([`Revocation::on_called`]).
    pub fn on_revoked(&mut self, now: Now, hosts: Option<BTreeMap<Generation, Time>>, actions: &mut Vec<SpaceAction>) {
        if self.revocation.on_called(now.time, hosts) {
            self.end_revocation(now, false, actions);
        }
    }

    /// A host gives blocks back, or says that it has none.
    pub fn on_give_back(&mut self, name: TransactionId, is_empty: bool) {
        self.revocation.on_answer(name, is_empty);
    }

    /// What a host gives back is free now, or it was refused.
    pub fn on_given_back(&mut self, now: Now, name: TransactionId, is_done: bool, actions: &mut Vec<SpaceAction>) {
        if let Some(gave) = self.revocation.on_evaluated(name, is_done) {
            self.end_revocation(now, gave, actions);
        }
    }

    /// A host has given something, or none is left that may.
    fn end_revocation(&mut self, now: Now, gave: bool, actions: &mut Vec<SpaceAction>) {
        self.revocation.end();
        let held = std::mem::take(&mut self.transfers.held);
        actions.extend(held.into_values().map(|request| {
            let is_last = !gave;
            SpaceAction::Log(SpaceStep::Give(SpaceRequest { is_last, ..request }))
        }));
        if !self.left.contains(&self.own) {
            return;
        }
        if gave {
            self.has_more(now, actions);
        } else {
            self.has_nothing(now, self.own, actions);
        }
    }

    /// A step is durable, or could not be done for lack of room in the metadata volume: then the request is sent again.
    pub fn on_step(&mut self, now: Now, step: SpaceStep, found: Option<Found>, actions: &mut Vec<SpaceAction>) {
        match step {
            SpaceStep::Give(request) => {
                let SpaceRequest { from, start, round, is_last, .. } = request;
                let given = found.map(Found::take::<Transfer>);
                if !is_last && given.as_ref().is_some_and(|transfer| transfer.runs.is_empty()) {
                    self.transfers.held.insert(from, request);
                    return self.revoke(now, actions);
                }
                self.transfers.giving.remove(&from);
                if let Some(Transfer { number, runs }) = given {
                    let body = ShardBody::SpaceTransfer { start, round, number, runs };
                    actions.push(SpaceAction::Send { to: from, body });
                }
            }
            SpaceStep::Receive { from, transfer } => {
                self.transfers.receiving.remove(&from);
                match found.map(Found::take::<bool>) {
                    None => {}
                    // It is not valid: this shard gives nothing.
                    Some(false) => self.has_nothing(now, from, actions),
                    Some(true) => self.on_received(now, from, transfer.number, actions),
                }
            }
        }
    }

    fn on_received(&mut self, now: Now, from: ShardId, number: u64, actions: &mut Vec<SpaceAction>) {
        let received = &mut self.transfers.received[usize::from(from.0)];
        *received = number.max(*received);
        self.last_giver = Some(from);
        if self.round <= FIRST_ROUND {
            self.left.retain(|shard| *shard != from);
        }
        self.has_more(now, actions);
    }

    /// Blocks are free: a round is over.
    fn has_more(&mut self, now: Now, actions: &mut Vec<SpaceAction>) {
        if self.round > FIRST_ROUND {
            self.left.clear();
        }
        self.evaluate(self.waiting(u64::MAX), false, actions);
        self.ask(now, actions);
    }

    /// A shard has nothing to give in this round.
    fn has_nothing(&mut self, now: Now, from: ShardId, actions: &mut Vec<SpaceAction>) {
        let was_asked = self.left.front() == Some(&from);
        self.left.retain(|shard| *shard != from);
        if self.left.is_empty()
            && let waiting = self.waiting(self.round)
            && let Some(first) = waiting.first().copied()
        {
            self.evaluate(vec![first], true, actions);
            self.last = Some(first);
            self.again = None;
            if !self.waiting(u64::MAX).is_empty() {
                self.begin_round();
                self.again = Some(now.time.after(self.waits.next_wait()));
            }
            return;
        }
        if self.left.is_empty() && !self.waiting(u64::MAX).is_empty() {
            self.begin_round();
        }
        if was_asked || self.left.is_empty() {
            self.ask(now, actions);
        }
    }

    fn evaluate(&mut self, names: Vec<TransactionId>, is_last: bool, actions: &mut Vec<SpaceAction>) {
        for name in names {
            let reservation = self.reservations.get_mut(&name).expect("it is under way");
            reservation.waits = None;
            let (settled, blocks) = (reservation.settled, reservation.blocks);
            actions.push(SpaceAction::Evaluate { name, settled, blocks, is_last });
        }
    }

    /// The reservations that wait for a round up to this one.
    fn waiting(&self, round: u64) -> Vec<TransactionId> {
        let waits = |reservation: &Reservation| reservation.waits.is_some_and(|until| until <= round);
        self.reservations.iter().filter(|(_, it)| waits(it)).map(|(name, _)| *name).collect()
    }

    /// Begins a round: all shards are left, and the first one is asked next. This one is the first, unless another one has given something.
    fn begin_round(&mut self) {
        self.round += 1;
        self.waits = self.waits.after(0);
        let (own, count) = (usize::from(self.own.0), self.transfers.received.len());
        self.left = (0..count).map(|step| ShardId(((own + step) % count) as u8)).collect();
        if let Some(place) = self.left.iter().position(|shard| Some(*shard) == self.last_giver) {
            self.left.rotate_left(place);
        }
    }

    /// Calls back what the hosts of this shard do not use, unless that is under way.
    fn revoke(&mut self, now: Now, actions: &mut Vec<SpaceAction>) {
        if self.revocation.begin(now.time) {
            actions.push(SpaceAction::Revoke);
        }
    }

    /// Asks the first shard that is left.
    fn ask(&mut self, now: Now, actions: &mut Vec<SpaceAction>) {
        let Some(to) = self.left.front().copied() else {
            self.again = None;
            return;
        };
        self.again = Some(now.time.after(self.waits.next_wait()));
        if to == self.own {
            return self.revoke(now, actions);
        }
        let waiting = self.reservations.values().filter(|reservation| reservation.waits.is_some());
        let wanted = waiting.fold(0, |sum: u64, reservation| sum.saturating_add(reservation.blocks));
        let body = ShardBody::SpaceRequest {
            start: self.start,
            round: self.round,
            received: self.transfers.received[usize::from(to.0)],
            blocks: wanted.min(limits::RESERVED_BLOCKS_MAX),
        };
        actions.push(SpaceAction::Send { to, body });
    }
}

impl Procedure for SpaceStep {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        Ok(match self {
            SpaceStep::Give(SpaceRequest { from, received, blocks, .. }) => {
                let given = transfers::give(*from, *received, *blocks, map)?;
                // Where metadata is damaged, nothing is given.
                own(given.transfer.unwrap_or_default(), given.changes)
            }
            SpaceStep::Receive { from, transfer } => {
                let step = transfers::receive(*from, transfer, map)?;
                own(step.is_done.is_ok(), step.changes)
            }
        })
    }

    fn memory_bytes(&self) -> usize {
        let runs = match self {
            SpaceStep::Give(_) => transfers::TRANSFER_RUNS_MAX,
            SpaceStep::Receive { transfer, .. } => transfer.runs.len(),
        };
        size_of::<SpaceStep>() + runs * size_of::<BlockRange>()
    }
}
