//! Parity resync makes the redundancy of an interrupted write match its data again. It is needed where devwrites take effect on arrival
//! (atomicity `consistent`; shared-array paper, section 5).
//!
//! Devices name suspect transactions in their heartbeat answers. A transaction of this host becomes suspect, too, when a device refuses a
//! part of it. Any host may resync a transaction, and several hosts may do so at the same time, because all steps are ordinary storage
//! transactions.
//!
//! ```text
//!   for the rows of each stripe:  Checking ── the linkage records agree ──────────────┐
//!                                     └────── otherwise ──► Recomputing, from data ───┴─► next ─► devices may forget it
//! ```
//!
//! If a unit of the stripe can't be read, the resync is abandoned; the devices will name the transaction again.
//!
//! Redundancy is recomputed unless the linkage records prove that the transaction is whole. So the result is right even if another write
//! has meanwhile updated these rows from the old parity.

use crate::ctx::{Ctx, Event};
use crate::job::{Interrupted, Job};
use crate::steps::Shared;
use braid_base::{BlockRange, DeviceId, TransactionId};
use braid_blocks::Linkage;
use braid_layout::{StripeRows, VolumeDescription};
use braid_machine::{HostError, HostOutcome, HostSuccess, JobRequest};
use braid_wire::{Failure, Suspect, SuspectBlocks};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The most resyncs at a time that one host begins for devices.
const RESYNCS_MAX: usize = 16;

/// All parity resyncs of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resyncs {
    under_way: BTreeMap<Interrupted, Resync>,
}

#[derive(Clone, Debug)]
struct Resync {
    volume: Rc<VolumeDescription>,
    /// Blocks whose rows were not checked yet.
    left: Left,
    /// The rows that come next; a step for the first of them is under way.
    rows: VecDeque<StripeRows>,
    recomputing: bool,
}

/// Blocks whose rows are to be checked: of a volume, or of the component at a position.
#[derive(Clone, Copy, Debug)]
enum Left {
    Volume(BlockRange),
    Component(usize, BlockRange),
}

impl Resyncs {
    /// True if a parity resync of the whole transaction is under way.
    pub fn is_under_way(&self, transaction: TransactionId) -> bool {
        self.under_way.contains_key(&(transaction, None))
    }

    pub fn has(&self, name: Interrupted) -> bool {
        self.under_way.contains_key(&name)
    }

    /// Asserts that each has one step under way.
    pub fn invariants(&self, shared: &Shared) {
        for name in self.under_way.keys() {
            let steps = shared.steps.jobs().filter(|job| matches!(job, Job::Resync(of) if of == name));
            assert_eq!(steps.count(), 1, "a parity resync has one step at a time: {name:?}");
        }
    }

    /// A device has named suspect transactions.
    pub fn on_suspects(&mut self, ctx: &mut Ctx, shared: &mut Shared, device: DeviceId, suspects: Vec<Suspect>) {
        for Suspect { transaction, object, blocks } in suspects {
            if self.under_way.len() >= RESYNCS_MAX || ctx.fenced || ctx.leaving {
                return;
            }
            let Some(volume) = ctx.volumes.values().find(|volume| volume.id.object() == object).cloned() else {
                continue;
            };
            let Some(position) = volume.devices.iter().position(|held| *held == device) else { continue };
            let (name, left) = match blocks {
                SuspectBlocks::Written(linkage) => ((transaction, None), Left::of_volume(linkage)),
                SuspectBlocks::Announced(range) => ((transaction, Some(device)), Left::Component(position, range)),
            };
            self.start(ctx, shared, name, volume, left);
        }
    }

    /// A transaction of this host was interrupted, and all participants know it.
    pub fn on_interrupted(
        &mut self,
        ctx: &mut Ctx,
        shared: &mut Shared,
        transaction: TransactionId,
        volume: Rc<VolumeDescription>,
        linkage: Linkage,
    ) {
        self.start(ctx, shared, (transaction, None), volume, Left::of_volume(linkage));
    }

    fn start(
        &mut self,
        ctx: &mut Ctx,
        shared: &mut Shared,
        name: Interrupted,
        volume: Rc<VolumeDescription>,
        left: Left,
    ) {
        if let Entry::Vacant(place) = self.under_way.entry(name) {
            place.insert(Resync { volume, left, rows: VecDeque::new(), recomputing: false });
            self.go_on(ctx, shared, name);
        }
    }

    /// Checks the next rows. If there are none, the resync ends.
    fn go_on(&mut self, ctx: &mut Ctx, shared: &mut Shared, name: Interrupted) {
        let resync = self.under_way.get_mut(&name).expect("it is under way");
        if resync.rows.is_empty() {
            resync.refill();
        }
        let Some(rows) = resync.rows.front().copied() else { return self.end(ctx, name, true) };
        let (volume, known) = (resync.volume.id, name.1.is_none());
        let request = match resync.recomputing {
            false => JobRequest::CrossCheck { volume, rows, transaction: name.0, known },
            true => JobRequest::Recompute { volume, rows },
        };
        shared.ask(ctx, Job::Resync(name), request);
    }

    /// A check or recomputation has ended.
    pub fn answered(&mut self, ctx: &mut Ctx, shared: &mut Shared, name: Interrupted, outcome: &HostOutcome) {
        let Some(resync) = self.under_way.get_mut(&name) else { return };
        match outcome {
            Ok(HostSuccess::Checked { matches: true }) => {
                shared.counters.rows_checked += 1;
                resync.rows.pop_front();
            }
            // Redundancy that is unavailable or damaged can be recomputed, too.
            Ok(HostSuccess::Checked { matches: false })
            | Err(HostError::Unavailable { .. } | HostError::Device { failure: Failure::Lost { .. }, .. })
                if !resync.recomputing =>
            {
                resync.recomputing = true;
            }
            Ok(_) => {
                shared.counters.rows_recomputed += 1;
                resync.recomputing = false;
                resync.rows.pop_front();
            }
            Err(_) => return self.end(ctx, name, false),
        }
        self.go_on(ctx, shared, name);
    }

    /// All rows are consistent, or the resync can't be done now.
    fn end(&mut self, ctx: &mut Ctx, name: Interrupted, done: bool) {
        let resync = self.under_way.remove(&name).expect("it is under way");
        let (transaction, device) = name;
        if done {
            // A device that has written a part of the transaction knows all of its rows. So a device that only received a pre-write may
            // forget it alone.
            let devices = device.map_or_else(|| resync.volume.devices.clone(), |device| vec![device]);
            ctx.events.push(Event::Forget { transaction, devices });
        }
        if device.is_none() {
            ctx.events.push(Event::Resynced { transaction });
        }
    }
}

impl Left {
    fn of_volume(linkage: Linkage) -> Left {
        Left::Volume(BlockRange::between(linkage.first, linkage.last.saturating_add(1).max(linkage.first)))
    }
}

impl Resync {
    /// Takes the rows of the next stripe from what is left, if anything is. The blocks come from a device, so they are limited to the
    /// volume.
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
            // Blocks far beyond the volume.
            if left.is_empty() {
                return None;
            }
            let end = left.end().min((left.start / run + 1) * run);
            let next = BlockRange::between(left.start, end);
            *left = BlockRange::between(end, left.end());
            Some(next)
        };
        match &mut self.left {
            Left::Volume(left) if !left.is_empty() => {
                let Some(part) = next(left) else { return };
                self.rows.extend(StripeRows::of_volume(layout, part));
            }
            Left::Component(position, left) if !left.is_empty() => {
                let Some(part) = next(left) else { return };
                let rows = StripeRows::of_component(layout, *position, part);
                // The last units of a component may belong to no stripe.
                self.rows.extend(rows.into_iter().filter(|rows| rows.stripe < self.volume.stripes()));
            }
            _ => {}
        }
    }
}
