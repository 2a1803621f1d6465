//! Mending what was cut short where devwrites take effect on arrival (atomicity `consistent`; shared array, section 5).
//!
//! Devices name suspect transactions in their heartbeat answers; and what a device refused to take of an own transaction leaves that one
//! suspect, too. Any host may mend one, several may at once: all that they do are ordinary storage transactions.
//!
//! ```text
//!   for the rows of each stripe:  Checking ── the linkage records agree ──────────────┐
//!                                     └────── otherwise ──► Recomputing, from data ───┴─► next ─► devices may forget it
//! ```
//!
//! What can't be mended now, since a unit of the stripe can't be read, is given up: devices name it again.
//!
//! Redundancy is computed anew unless the records prove that the transaction is whole. So it does no harm if somebody has written to
//! these rows in between, from old parity.

use crate::ctx::Timer;
use crate::host::Host;
use braid_base::{BlockRange, DeviceId, Now, TransactionId, limits};
use braid_layout::{StripeRows, VolumeDescription};
use braid_machine::{Effects, HostError, HostOutcome, HostRequest, HostSuccess, OpId};
use braid_wire::{Command, Failure, Linkage, Suspect, SuspectBlocks};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The most that one host mends at once for devices.
const MENDS_MAX: usize = 16;

/// What is being mended: all of a transaction that is known to have written, or what one device has heard announced of it.
type Name = (TransactionId, Option<DeviceId>);

/// All that a host is mending.
#[derive(Debug, Default)]
pub(crate) struct Mends {
    under_way: BTreeMap<Name, Mend>,
    asked: BTreeMap<OpId, Name>,
    /// Operations that try again when their own transaction is mended.
    waiting: BTreeMap<OpId, TransactionId>,
}

#[derive(Debug)]
struct Mend {
    volume: Rc<VolumeDescription>,
    /// What has not been looked at.
    left: Left,
    /// The next rows of that, the first of them under way.
    rows: VecDeque<StripeRows>,
    recomputing: bool,
}

/// Blocks whose rows are to be mended.
#[derive(Clone, Copy, Debug)]
enum Left {
    Volume(BlockRange),
    Component(usize, BlockRange),
}

impl Host {
    /// A device names transactions that were cut short.
    pub(crate) fn on_suspects(&mut self, now: Now, device: DeviceId, suspects: Vec<Suspect>, out: &mut Effects) {
        for Suspect { transaction, object, blocks } in suspects {
            // One of our own that is still under way may yet be whole; and so may it be that somebody mends it already.
            let own = transaction.host == self.config.generation;
            if (own && self.transactions.contains_key(&transaction.sequence))
                || self.mends.under_way.len() >= MENDS_MAX
                || self.is_fenced()
                || self.is_leaving()
            {
                continue;
            }
            let Some(volume) = self.volumes.values().find(|volume| volume.id.object() == object).cloned() else {
                continue;
            };
            let Some(position) = volume.devices.iter().position(|held| *held == device) else { continue };
            let (name, left) = match blocks {
                SuspectBlocks::Written(linkage) => ((transaction, None), Left::of_volume(linkage)),
                SuspectBlocks::Announced(range) => ((transaction, Some(device)), Left::Component(position, range)),
            };
            self.start_mend(now, name, volume, left, out);
        }
    }

    /// An own transaction was cut short, and all participants know. Its operation, if it is to be tried again, waits.
    pub(crate) fn mend_own(
        &mut self,
        now: Now,
        id: TransactionId,
        volume: Rc<VolumeDescription>,
        linkage: Linkage,
        out: &mut Effects,
    ) {
        self.start_mend(now, (id, None), volume, Left::of_volume(linkage), out);
    }

    /// A transaction that wrote on arrival is whole, but for devices that are back since it was planned: what others have for them may
    /// have been listed before it came. So its operation writes again, reading nothing of theirs, before it is answered.
    pub(crate) fn write_again_if_missed(&mut self, now: Now, sequence: u64, out: &mut Effects) {
        let transaction = &self.transactions[&sequence];
        let back = self.come_back_since(transaction);
        if back.is_empty() {
            return;
        }
        // One that is abandoned does not write again.
        let asked = transaction.op.filter(|op| !self.is_abandoned(*op)).and_then(|op| self.operations.get_mut(&op));
        match asked {
            Some(operation) if matches!(operation.request, HostRequest::Write { .. } | HostRequest::Zero { .. }) => {
                // To be planned anew.
                operation.damaged.extend(back);
                operation.view = 0;
                let op = operation.op;
                self.transactions.get_mut(&sequence).expect("just seen").op = None;
                self.try_again(now, op);
            }
            Some(_) => {}
            // Nobody waits for it any more: it may as well be seen in part.
            None => {
                let (volume, linkage) = (transaction.volume.clone(), transaction.work.linkage());
                self.mend_own(now, self.id(sequence), volume, linkage, out);
            }
        }
    }

    fn start_mend(&mut self, now: Now, name: Name, volume: Rc<VolumeDescription>, left: Left, out: &mut Effects) {
        if self.mends.under_way.contains_key(&name) {
            return;
        }
        self.mends.under_way.insert(name, Mend { volume, left, rows: VecDeque::new(), recomputing: false });
        self.mend_on(now, name, out);
    }

    /// Looks at the next rows, if there are more.
    fn mend_on(&mut self, now: Now, name: Name, out: &mut Effects) {
        let mend = self.mends.under_way.get_mut(&name).expect("it is under way");
        if mend.rows.is_empty() {
            mend.refill();
        }
        let Some(rows) = mend.rows.front().copied() else { return self.end_mend(now, name, true, out) };
        let (volume, known) = (mend.volume.id, name.1.is_none());
        let request = match mend.recomputing {
            false => HostRequest::CrossCheck { volume, rows, transaction: name.0, known },
            true => HostRequest::Recompute { volume, rows },
        };
        let op = self.own_operation();
        self.mends.asked.insert(op, name);
        self.on_request(now, op, request, out);
    }

    /// A check or recomputation has ended; false if the operation was none.
    pub(crate) fn on_mend_answer(&mut self, now: Now, op: OpId, outcome: &HostOutcome, out: &mut Effects) -> bool {
        let Some(name) = self.mends.asked.remove(&op) else { return false };
        let Some(mend) = self.mends.under_way.get_mut(&name) else { return true };
        match outcome {
            Ok(HostSuccess::Checked { matches: true }) => {
                self.counters.rows_checked += 1;
                mend.rows.pop_front();
            }
            // It can do without redundancy that is away, or damaged.
            Ok(HostSuccess::Checked { matches: false })
            | Err(HostError::Unavailable { .. } | HostError::Device { failure: Failure::Lost { .. }, .. })
                if !mend.recomputing =>
            {
                mend.recomputing = true;
            }
            Ok(_) => {
                self.counters.rows_recomputed += 1;
                mend.recomputing = false;
                mend.rows.pop_front();
            }
            Err(_) => {
                self.end_mend(now, name, false, out);
                return true;
            }
        }
        self.mend_on(now, name, out);
        true
    }

    /// All rows are right, or it can't be done now.
    fn end_mend(&mut self, now: Now, name: Name, done: bool, out: &mut Effects) {
        let mend = self.mends.under_way.remove(&name).expect("it is under way");
        let (transaction, device) = name;
        if done {
            // Who has written it knows all of its rows, so whoever has only heard of it need not worry any longer.
            let told = device.map_or_else(|| mend.volume.devices.clone(), |device| vec![device]);
            for device in told {
                self.send(now, device, Command::Forget { transaction }, out);
            }
        }
        let waits = |(_, id): &(&OpId, &TransactionId)| **id == transaction && device.is_none();
        let ops: Vec<OpId> = self.mends.waiting.iter().filter(waits).map(|(op, _)| *op).collect();
        for op in ops {
            self.mends.waiting.remove(&op);
            if self.operations.get(&op).is_some_and(|operation| operation.attempt.is_none()) {
                self.timers.set(Timer::Retry(op), now.time);
            }
        }
    }

    /// Lets an operation try again only when this transaction of its own is mended, if it is under way.
    pub(crate) fn await_mend(&mut self, op: OpId, id: TransactionId) {
        if self.mends.under_way.contains_key(&(id, None)) && self.mends.waiting.len() < limits::OPERATIONS_MAX {
            self.mends.waiting.insert(op, id);
        }
    }

    /// True if the operation has to wait until its last attempt is mended.
    pub(crate) fn awaits_mend(&self, op: OpId) -> bool {
        self.mends.waiting.contains_key(&op)
    }
}

impl Left {
    fn of_volume(linkage: Linkage) -> Left {
        Left::Volume(BlockRange::between(linkage.first, linkage.last.saturating_add(1).max(linkage.first)))
    }
}

impl Mend {
    /// Takes the rows of the next stripe from what is left; none, if nothing is. A device's word is not trusted to lie within the volume.
    fn refill(&mut self) {
        let layout = &self.volume.layout;
        if layout.redundancy_units() == 0 {
            return;
        }
        let (all, run) = match self.left {
            Left::Volume(_) => {
                (BlockRange::new(0, self.volume.stripes() * layout.stripe_blocks()), layout.stripe_blocks())
            }
            Left::Component(..) => (self.volume.component(), layout.unit_blocks()),
        };
        let next = |left: &mut BlockRange| {
            *left = left.intersection(all);
            let end = left.end().min((left.start / run + 1) * run);
            let next = BlockRange::between(left.start, end);
            *left = BlockRange::between(end, left.end());
            next
        };
        match &mut self.left {
            Left::Volume(left) if !left.is_empty() => {
                let part = next(left);
                self.rows.extend(StripeRows::of_volume(layout, part));
            }
            Left::Component(position, left) if !left.is_empty() => {
                let part = next(left);
                let rows = StripeRows::of_component(layout, *position, part);
                // The last units of a component may be of no stripe.
                self.rows.extend(rows.into_iter().filter(|rows| rows.stripe < self.volume.stripes()));
            }
            _ => {}
        }
    }
}
