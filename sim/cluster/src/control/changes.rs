//! Changes of the volume during a run: its ordering changes, it moves, migrations are continued or given up.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::fault_events::FaultEvent;
use crate::graceful_disconnect::pick;
use crate::options::Options;
use crate::swarm::Run;
use braid_base::{BLOCK_BYTES, Rng};
use braid_check::Promise;
use braid_control_protocol::{Administrator, Change, Migration, Operation, Timing};
use braid_layout::{Layout, Placement, RaidLevel};
use braid_ordering::Ordering;
use std::time::Duration;

/// Where the volume grows, it does by at most so many stripes of its first layout.
const STRIPES_ADDED_MAX: u64 = 4;
/// The progress of a migration is recorded so often in runs.
const NOTE_EVERY: Duration = Duration::from_millis(100);

impl Cluster {
    /// The order that the history of the volume must keep: the weakest that one of its orderings promises.
    pub(crate) fn promise_of(&self, ordering: Ordering) -> Promise {
        let promise = |ordering| self.options.promise(ordering, self.restarted, self.turned);
        let had = self.control.iter().flat_map(|control| &control.orderings).copied();
        let is_weak = |ordering| promise(ordering) == Promise::Related;
        if had.chain([ordering]).any(is_weak) { Promise::Related } else { promise(ordering) }
    }

    /// Checks that no hold is left: at rest, every change is complete or reverted, all hosts know it, and no administrator is at work.
    pub(crate) fn check_hold(&self) -> Result<(), Failed> {
        match &self.control {
            Some(control) if control.store.unsettled().next().is_some() => {
                let details =
                    format!("a volume is still on hold, or half created or deleted: {:?}", control.store.records());
                Err(Failed { check: "left-hold", details })
            }
            Some(control) if control.store.unsettled_devices().next().is_some() => {
                let devices: Vec<_> = control.store.devices().collect();
                Err(Failed { check: "left-hold", details: format!("a device is half added or removed: {devices:?}") })
            }
            Some(control) => match control.administrators.keys().find(|own| self.slot_of(own.host).is_some()) {
                Some(own) => Err(Failed { check: "left-administrator", details: format!("{own:?} is still at work") }),
                None => self.check_devices(control).and_then(|()| self.check_parts()),
            },
            None => Ok(()),
        }
    }

    /// A random place for the volume: another layout, on random devices.
    fn draw_target(&self, rng: &mut Rng) -> Placement {
        let mut devices = self.devices();
        let redundant = self.volume.layout.redundancy_units() > 0;
        let schemes: Vec<RaidLevel> = match redundant {
            true => vec![RaidLevel::Raid1 { copies: 2 }, RaidLevel::Raid5 { data: 2 }, RaidLevel::Raid5 { data: 3 }],
            false => vec![RaidLevel::Raid0 { data: 1 }, RaidLevel::Raid0 { data: 2 }, RaidLevel::Raid0 { data: 3 }],
        };
        let fitting: Vec<RaidLevel> = schemes.into_iter().filter(|scheme| scheme.width() <= devices.len()).collect();
        let scheme = fitting[rng.below(fitting.len() as u64) as usize];
        while devices.len() as u64 > rng.between(scheme.width() as u64, devices.len() as u64) {
            devices.remove(rng.below(devices.len() as u64) as usize);
        }
        let by = rng.below(devices.len() as u64) as usize;
        devices.rotate_left(by);
        let unit = [1, 2, 4, 16][rng.below(4) as usize];
        let layout = Layout::new(scheme, devices.len(), unit).expect("a ring that is wide enough");
        Placement { layout: layout.beginning_at(self.volume.place_for(&layout)), devices }
    }
}

impl Run {
    /// Schedules changes of the volume, if the run has them.
    pub(crate) fn plan_change(&mut self) {
        if let Some(changes) =
            self.cluster.options.changes.as_ref().filter(|changes| changes.orderings || changes.moves)
        {
            let mean = changes.every.as_nanos() as u64;
            let pause = Duration::from_nanos(self.change_rng.below(2 * mean) + 1);
            self.plan_fault(pause, FaultEvent::Change);
        }
    }

    /// Adds what administrators have met to the report.
    pub(crate) fn count_changes(&mut self) {
        for (what, count) in self.cluster.control.iter().flat_map(|control| &control.counts) {
            *self.report.faults.entry(what).or_default() += count;
        }
    }

    /// Hosts that died as administrators, or lost their leases, return after a while.
    pub(crate) fn return_administrators(&mut self) {
        for node in self.cluster.take_killed() {
            if self.storming {
                let span = Duration::from_millis(self.return_rng.below(1_000) + 1);
                self.plan_fault(span, FaultEvent::Return { node, reboot: false });
            } else {
                self.bring_back(node, false);
            }
        }
    }

    /// Has a host change the volume, if none does.
    pub(crate) fn change_and_plan_next(&mut self) {
        let idle: Vec<HostSlot> =
            self.staying_slots().into_iter().filter(|slot| !self.cluster.administers(*slot)).collect();
        // In some cases, two hosts try at a time.
        let may = !self.cluster.is_on_hold() || self.change_rng.chance(1, 10);
        if let Some(by) = pick(&mut self.change_rng, &idle).filter(|_| may) {
            let operation = self.draw_operation(by);
            self.cluster.begin_operation(by, operation);
        }
        self.plan_change();
    }

    /// The size to which the volume is to grow, if this is the time.
    fn draw_growth(&mut self) -> Option<u64> {
        let Options { layout, stripes, changes, .. } = &self.cluster.options;
        let (volume, rng) = (self.cluster.volume(), &mut self.change_rng);
        let grows = changes.as_ref().is_some_and(|changes| changes.grows);
        let may = grows && volume.moving.is_none() && rng.chance(1, 3);
        let most = (stripes + STRIPES_ADDED_MAX) * layout.stripe_blocks();
        let blocks = volume.blocks() + rng.below(2 * layout.stripe_blocks()) + 1;
        (may && blocks <= most).then_some(blocks * BLOCK_BYTES as u64)
    }

    fn draw_operation(&mut self, by: HostSlot) -> Operation {
        let changes = self.cluster.options.changes.clone().expect("the run has changes");
        let own = self.cluster.generation(by);
        let timing = Timing { note: NOTE_EVERY, ..Timing::default() };
        if let Some(bytes) = self.draw_growth() {
            self.count_fault("growth");
            return Administrator::changing(own, Change::Grow(bytes), timing).into();
        }
        let moves = changes.moves && (!changes.orderings || self.change_rng.below(2) == 0);
        if !moves {
            let orderings = [Ordering::Timestamp, Ordering::DeviceLock, Ordering::ServerLock, Ordering::CallbackLock];
            let to = orderings[self.change_rng.below(4) as usize];
            self.count_fault("change of the ordering");
            return Administrator::changing(own, Change::Ordering(to), timing).into();
        }
        match (self.cluster.volume.moving.is_some(), self.change_rng.below(8)) {
            (true, 0 | 1) => {
                self.count_fault("migration given up");
                Administrator::changing(own, Change::GiveUpMove, timing).into()
            }
            (true, _) => {
                self.count_fault("migration continued");
                Migration::continuing(own, timing).into()
            }
            (false, _) => {
                self.count_fault("migration begun");
                Migration::to(own, self.cluster.draw_target(&mut self.change_rng), timing).into()
            }
        }
    }
}
