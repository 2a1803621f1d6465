//! Hosts and devices that keep to no protocol: whatever they send, in whatever order, the scheduler's invariants hold, and nothing waits
//! once all transactions are decided.

use super::*;
use braid_base::{BLOCK_BYTES, Epoch};
use braid_blocks::{Base, Column, ParityRows, Sending, Sent};
use braid_wire::{Failure, Partial};

/// Rows of parity: the first block, whether old parity is added, the senders, and what the host sends.
type Rows = (u64, bool, Vec<u16>, Option<(u64, u64)>);

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// A host makes a request.
    Command { kind: u8, object: u8, transaction: u64, first: u64, count: u64 },
    /// A host has devices execute a write together.
    Execute { transaction: u64, first: u64, sends: Vec<(u8, u64)>, parity: Vec<Rows> },
    /// Another device sends its part of the parity.
    Partial { transaction: u64, from: u16, first: u64, count: u64 },
    /// A request of the host commits the transaction besides.
    CommitRides { transaction: u64 },
    /// A host is done with a transaction.
    Over { transaction: u64 },
    /// A host is done with all transactions below.
    Settled { below: u64 },
    /// The store ends one of its operations. In the same step, a transaction may be resolved before.
    Done { which: prop::sample::Index, fails: bool, resolved: Option<u64> },
    /// Nothing happens for a while.
    Silence,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let transaction = || 0u64..5;
    let blocks = || (0u64..4, 1u64..3);
    let rows = (0u64..4, any::<bool>(), prop::collection::vec(1u16..2, 0..2), prop::option::of((0u64..4, 0u64..2)));
    let event = prop_oneof![
        4 => (0u8..7, 0u8..3, transaction(), blocks()).prop_map(|(kind, object, transaction, (first, count))| {
            Event::Command { kind, object, transaction, first, count }
        }),
        6 => (transaction(), 0u64..6, prop::collection::vec((0u8..3, 0u64..6), 0..3), prop::collection::vec(rows, 0..3))
            .prop_map(|(transaction, first, sends, parity)| Event::Execute { transaction, first, sends, parity }),
        4 => (transaction(), 1u16..3, blocks()).prop_map(|(transaction, from, (first, count))| {
            Event::Partial { transaction, from, first, count }
        }),
        1 => transaction().prop_map(|transaction| Event::CommitRides { transaction }),
        1 => transaction().prop_map(|transaction| Event::Over { transaction }),
        1 => transaction().prop_map(|below| Event::Settled { below }),
        8 => (any::<prop::sample::Index>(), prop::bool::weighted(0.1), prop::option::weighted(0.2, transaction()))
            .prop_map(|(which, fails, resolved)| Event::Done { which, fails, resolved }),
        1 => Just(Event::Silence),
    ];
    prop::collection::vec(event, 1..60)
}

/// An operation of the store.
#[derive(Clone, Debug)]
enum Pending {
    Read(TransactionId, Step, Vec<BlockRange>),
    Prepare(TransactionId),
    Apply(TransactionId),
    Commit(TransactionId),
    Abort(TransactionId),
}

#[derive(Clone, Debug)]
struct AnyHost {
    bench: Bench,
    pending: Vec<Pending>,
}

impl AnyHost {
    fn stamp(&self, transaction: u64) -> Stamp {
        // Two hosts; the stamps are in another order than the transactions.
        let host = if transaction.is_multiple_of(2) { FIRST } else { SECOND_HOST };
        self.bench.stamp(host, 2 + transaction * 3 % 5)
    }

    fn id(&self, transaction: u64) -> TransactionId {
        id(transaction + 2, self.stamp(transaction))
    }

    fn happens(&mut self, event: Event) {
        let decided = match event {
            Event::Command { kind, object, transaction, first, count } => {
                let (range, stamp) = (BlockRange::new(first, count), self.stamp(transaction));
                let object = [STAMPED, LOCKED, ARRIVING][usize::from(object)];
                let id = id(transaction + 2, stamp);
                let command = match kind {
                    0 => read_of(object, id.sequence, stamp),
                    1 => prewrite(object, id.sequence, stamp, range),
                    2 => write(object, id.sequence, stamp, range),
                    3 => Command::Decide { transaction: id, stamp, outcome: Outcome::Abort },
                    4 => Command::Retract { transaction: id, stamp },
                    5 => Command::Forget { transaction: id },
                    _ => Command::Resolve { transaction: id, stamp },
                };
                self.bench.say(command)
            }
            Event::Execute { transaction, first, sends, parity } => {
                let command = self.execute(transaction, first, &sends, parity);
                let host = self.id(transaction).host;
                self.bench.decide(|scheduler, cx| _ = scheduler.on_command(cx, host, command))
            }
            Event::Partial { transaction, from, first, count } => {
                let pieces = vec![Piece { range: BlockRange::new(first, count), content: Content::Hole }];
                let partial = Partial { epoch: Epoch(1), transaction: self.id(transaction), object: STAMPED, pieces };
                self.bench.decide(|scheduler, cx| scheduler.on_partial(cx, DeviceId(from), partial))
            }
            Event::CommitRides { transaction } => {
                let id = self.id(transaction);
                self.bench.committed(id)
            }
            Event::Over { transaction } => {
                let id = self.id(transaction);
                self.bench.decide(|scheduler, cx| scheduler.on_over(cx, id))
            }
            Event::Settled { below } => {
                let id = self.id(below);
                self.bench.hosts.settle(id.host, id.sequence);
                self.bench.decide(|scheduler, cx| scheduler.on_settled(cx, id.host, id.sequence))
            }
            Event::Done { which, fails, resolved } if !self.pending.is_empty() => {
                let done = self.pending.swap_remove(which.index(self.pending.len()));
                self.done(done, fails, resolved)
            }
            Event::Done { .. } => Vec::new(),
            Event::Silence => {
                self.bench.now.time = self.bench.now.time.after(Duration::from_secs(2));
                self.bench.decide(|scheduler, cx| scheduler.time_out(cx))
            }
        };
        self.carry_out(decided);
    }

    fn execute(&self, transaction: u64, first: u64, sends: &[(u8, u64)], parity: Vec<Rows>) -> Command {
        let what = [Sent::Old, Sent::New, Sent::Change];
        let sending = |(kind, start): &(u8, u64)| Sending {
            blocks: BlockRange::new(*start, 1),
            to: DeviceId(1),
            at: 0,
            what: what[usize::from(*kind)],
        };
        let data = |(start, count): (u64, u64)| Piece {
            range: BlockRange::new(start, count),
            content: Content::Data(vec![0; count as usize * BLOCK_BYTES].into()),
        };
        let rows = |(start, old, from, own): Rows| ParityRows {
            blocks: BlockRange::new(start, 1),
            base: if old { Base::Old } else { Base::Zeros },
            from: from.into_iter().map(DeviceId).collect(),
            own: own.map(data).into_iter().collect(),
        };
        // Some columns write no data, and some only read.
        let piece = Piece { range: BlockRange::new(first, 1), content: Content::Hole };
        let pieces: Vec<Piece> = (first < 4).then_some(piece).into_iter().collect();
        let writes = !pieces.is_empty() || !parity.is_empty();
        let stamp = self.stamp(transaction);
        Command::Execute {
            transaction: id(transaction + 2, stamp),
            stamp,
            object: STAMPED,
            ordering: Ordering::Timestamp,
            participants: if writes { vec![DeviceId(0), DeviceId(1)] } else { vec![DeviceId(1)] },
            linkage: Linkage { first, last: first },
            column: Box::new(Column {
                pieces,
                sends: sends.iter().map(sending).collect(),
                parity: parity.into_iter().map(rows).collect(),
            }),
        }
    }

    fn done(&mut self, done: Pending, fails: bool, resolved: Option<u64>) -> Vec<Decision> {
        let resolved = resolved.map(|transaction| (self.id(transaction), self.stamp(transaction)));
        let result = if fails { Err(Failure::Busy) } else { Ok(()) };
        let hole = |range: BlockRange| Piece { range, content: Content::Hole };
        self.bench.decide(|scheduler, cx| {
            if let Some((transaction, stamp)) = resolved {
                scheduler.on_command(cx, SECOND_HOST, Command::Resolve { transaction, stamp });
            }
            match done {
                Pending::Read(id, step, extents) => {
                    let read = result.map(|()| extents.into_iter().map(hole).collect());
                    scheduler.on_content(cx, id, step, false, read);
                }
                Pending::Prepare(id) => scheduler.on_prepared(cx, id, result),
                Pending::Apply(id) => scheduler.on_applied(cx, id, result),
                Pending::Commit(id) => scheduler.on_committed(cx, id),
                Pending::Abort(id) => scheduler.on_aborted(cx, id),
            }
        })
    }

    fn carry_out(&mut self, decided: Vec<Decision>) {
        for decision in decided {
            match decision {
                Decision::Serve { transaction, step, read } => {
                    self.pending.push(Pending::Read(transaction, step, read.extents));
                }
                Decision::Prepare(intent) => self.pending.push(Pending::Prepare(intent.transaction)),
                Decision::Apply(intent) => self.pending.push(Pending::Apply(intent.transaction)),
                Decision::Commit(id) => self.pending.push(Pending::Commit(id)),
                Decision::Abort(id) => self.pending.push(Pending::Abort(id)),
                _ => {}
            }
        }
        let read = |pending: &Pending| if let Pending::Read(id, ..) = pending { Some(*id) } else { None };
        self.bench.scheduler.invariants(self.pending.iter().filter_map(read));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn no_sequence_of_requests_breaks_an_invariant(events in events()) {
        let mut any = AnyHost { bench: Bench::new(), pending: Vec::new() };
        for event in events {
            any.happens(event);
        }
        for transaction in 0..5 {
            let (id, stamp) = (any.id(transaction), any.stamp(transaction));
            any.happens(Event::Command { kind: 3, object: 0, transaction, first: 0, count: 1 });
            let retracted = any.bench.say(Command::Decide { transaction: id, stamp, outcome: Outcome::Abort });
            any.carry_out(retracted);
        }
        while let Some(done) = any.pending.pop() {
            let decided = any.done(done, false, None);
            any.carry_out(decided);
        }
        any.happens(Event::Silence);
        for host in [FIRST, SECOND_HOST] {
            any.bench.hosts.settle(host, 100);
            let decided = any.bench.decide(|scheduler, cx| scheduler.on_settled(cx, host, 100));
            any.carry_out(decided);
        }
        prop_assert_eq!((any.bench.scheduler.waiting(), any.bench.scheduler.columns.len()), (0, 0));
    }
}
