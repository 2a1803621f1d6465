//! Free blocks of other shards: the part of a metadata server that gets some when its own are used up, and gives some of its own to others
//! ([`braid_namespace::transfers`] has the records).
//!
//! ```text
//!   Reserve ─► evaluated ─┬─► blocks, or no space in the metadata volume: answered
//!                         └─► no block is free here: it waits, while the other shards are asked one after the other
//!                                ├─► one gives some: they are logged here, and all that wait are evaluated again
//!                                └─► all have none: evaluated once more, and answered as it is
//! ```
//!
//! A shard that does not answer is passed by, and asked again. So a host hears that a file system is full only if every shard has said that it
//! has no free block. What is here is lost with the process. Hosts send their commands again; and a server that begins asks all others for
//! the transfers that its shard has not received.

use crate::operation::{as_answer, content};
use braid_base::{Backoff, BlockRange, Generation, Now, ShardId, Time, TransactionId, limits};
use braid_machine::Ignored;
use braid_namespace::transfers::{self, Transfer};
use braid_objects::{Evaluation, NotHere, Procedure, View};
use braid_wire::{ObjectAnswer, ShardBody};
use bytes::{Buf, BufMut, Bytes};
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
    /// The numbers of the last transfers that were received, by shard.
    received: Vec<u64>,
    reservations: BTreeMap<TransactionId, Reservation>,
    /// In a round, each other shard is asked until it gives something or says that it has nothing.
    round: u64,
    /// The shards that have not answered in this round. The first one is asked.
    left: VecDeque<ShardId>,
    /// When the next one is asked.
    again: Option<Time>,
    /// The waits of a round.
    waits: Backoff,
    /// The shard that gave something last is asked first.
    last_giver: Option<ShardId>,
    /// Shards whose transfers are being logged.
    receiving: BTreeSet<ShardId>,
    /// Shards whose requests are being logged.
    giving: BTreeSet<ShardId>,
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
    Evaluate {
        name: TransactionId,
        settled: u64,
        blocks: u64,
        is_last: bool,
    },
    /// Answer a host that there are too many reservations.
    Refuse(TransactionId),
    Send {
        to: ShardId,
        body: ShardBody,
    },
    Log(SpaceStep),
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
}

impl SpaceRequests {
    /// `waits`: how long each shard is waited for.
    pub fn new(own: ShardId, count: usize, start: Generation, waits: Backoff) -> SpaceRequests {
        SpaceRequests {
            own,
            start,
            received: vec![0; count],
            reservations: BTreeMap::new(),
            round: 0,
            left: VecDeque::new(),
            again: None,
            waits,
            last_giver: None,
            receiving: BTreeSet::new(),
            giving: BTreeSet::new(),
        }
    }

    /// The server begins to serve, and has read what was received. What was not received is asked for.
    pub fn begin(&mut self, now: Now, received: &[u64]) {
        for (known, found) in self.received.iter_mut().zip(received) {
            *known = *found;
        }
        self.begin_round();
        self.again = Some(now.time);
    }

    /// True if no reservation is under way.
    pub fn is_idle(&self) -> bool {
        self.reservations.is_empty()
    }

    pub fn deadline(&self) -> Option<Time> {
        self.again
    }

    pub fn invariants(&self) {
        let waits = self.reservations.values().any(|reservation| reservation.waits.is_some());
        assert!(!waits || !self.left.is_empty(), "what waits for other shards waits for a round");
        assert!(self.left.is_empty() == self.again.is_none(), "a shard that is left is asked again");
        assert!(self.reservations.len() <= RESERVATIONS_MAX, "reservations are bounded");
    }

    /// A host reserves blocks.
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
        actions.push(match self.giving.insert(request.from) {
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
        if !transfer.runs.is_empty() && transfer.number > self.received[usize::from(from.0)] {
            actions.push(match self.receiving.insert(from) {
                true => SpaceAction::Log(SpaceStep::Receive { from, transfer }),
                false => SpaceAction::Ignore(Ignored::InProgress),
            });
        } else if transfer.runs.is_empty() && is_of_this_round {
            self.has_nothing(now, from, actions);
        } else {
            actions.push(SpaceAction::Ignore(Ignored::NotAwaited));
        }
    }

    /// A step is durable, or could not be done for lack of room in the metadata volume: then the request is sent again.
    pub fn on_step(&mut self, now: Now, step: SpaceStep, answer: &ObjectAnswer, actions: &mut Vec<SpaceAction>) {
        let content = content(answer);
        match step {
            SpaceStep::Give(SpaceRequest { from, start, round, .. }) => {
                self.giving.remove(&from);
                if let Some(content) = content {
                    let Transfer { number, runs } = decode_transfer(content);
                    let body = ShardBody::SpaceTransfer { start, round, number, runs };
                    actions.push(SpaceAction::Send { to: from, body });
                }
            }
            SpaceStep::Receive { from, transfer } => {
                self.receiving.remove(&from);
                match content {
                    None => {}
                    // It is not valid: this shard gives nothing.
                    Some(content) if content.is_empty() => self.has_nothing(now, from, actions),
                    Some(_) => self.on_received(now, from, transfer.number, actions),
                }
            }
        }
    }

    fn on_received(&mut self, now: Now, from: ShardId, number: u64, actions: &mut Vec<SpaceAction>) {
        let received = &mut self.received[usize::from(from.0)];
        *received = number.max(*received);
        self.last_giver = Some(from);
        if self.round > FIRST_ROUND {
            self.left.clear();
        } else {
            self.left.retain(|shard| *shard != from);
        }
        self.evaluate(self.waiting(u64::MAX), false, actions);
        self.ask(now, actions);
    }

    /// A shard has nothing to give in this round.
    fn has_nothing(&mut self, now: Now, from: ShardId, actions: &mut Vec<SpaceAction>) {
        let was_asked = self.left.front() == Some(&from);
        self.left.retain(|shard| *shard != from);
        if self.left.is_empty() {
            self.evaluate(self.waiting(self.round), true, actions);
            if !self.waiting(u64::MAX).is_empty() {
                self.begin_round();
            }
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

    /// Begins a round: all other shards are left, and the first one is asked next.
    fn begin_round(&mut self) {
        self.round += 1;
        self.waits = self.waits.after(0);
        let (own, count) = (usize::from(self.own.0), self.received.len());
        self.left = (1..count).map(|step| ShardId(((own + step) % count) as u8)).collect();
        if let Some(place) = self.left.iter().position(|shard| Some(*shard) == self.last_giver) {
            self.left.rotate_left(place);
        }
    }

    /// Asks the first shard that is left.
    fn ask(&mut self, now: Now, actions: &mut Vec<SpaceAction>) {
        let Some(to) = self.left.front().copied() else {
            self.again = None;
            return;
        };
        self.again = Some(now.time.after(self.waits.next_wait()));
        let waiting = self.reservations.values().filter(|reservation| reservation.waits.is_some());
        let wanted = waiting.fold(0, |sum: u64, reservation| sum.saturating_add(reservation.blocks));
        let body = ShardBody::SpaceRequest {
            start: self.start,
            round: self.round,
            received: self.received[usize::from(to.0)],
            blocks: wanted.min(limits::RESERVED_BLOCKS_MAX),
        };
        actions.push(SpaceAction::Send { to, body });
    }
}

impl Procedure for SpaceStep {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let (content, changes) = match self {
            SpaceStep::Give(SpaceRequest { from, received, blocks, .. }) => {
                let given = transfers::give(*from, *received, *blocks, map)?;
                // Where metadata is damaged, nothing is given.
                (encode_transfer(&given.transfer.unwrap_or_default()), given.changes)
            }
            SpaceStep::Receive { from, transfer } => {
                let step = transfers::receive(*from, transfer, map)?;
                (step.is_done.map_or(Bytes::new(), |_| Bytes::from_static(&[1])), step.changes)
            }
        };
        Ok(Evaluation { answer: as_answer(content), only_asks: changes.is_empty(), changes })
    }

    fn memory_bytes(&self) -> usize {
        let runs = match self {
            SpaceStep::Give(_) => transfers::TRANSFER_RUNS_MAX,
            SpaceStep::Receive { transfer, .. } => transfer.runs.len(),
        };
        size_of::<SpaceStep>() + runs * size_of::<BlockRange>()
    }
}

fn encode_transfer(transfer: &Transfer) -> Bytes {
    let mut to = Vec::new();
    to.put_u64_le(transfer.number);
    for run in &transfer.runs {
        to.put_u64_le(run.start);
        to.put_u64_le(run.count);
    }
    to.into()
}

/// Decodes what was encoded in this process.
fn decode_transfer(mut from: Bytes) -> Transfer {
    let number = from.get_u64_le();
    let mut runs = Vec::new();
    while from.has_remaining() {
        runs.push(BlockRange::new(from.get_u64_le(), from.get_u64_le()));
    }
    Transfer { number, runs }
}
