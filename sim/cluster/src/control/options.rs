//! Runs in which the ordering of the volume changes while clients use it, and administrators die or are suspended at every step.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::fault_events::FaultEvent;
use crate::graceful_disconnect::pick;
use crate::options::{Choices, Options};
use crate::swarm::Run;
use braid_base::Rng;
use braid_base::limits::Settings;
use braid_check::Promise;
use braid_control_protocol::Change;
use braid_ordering::{Atomicity, Ordering};
use braid_world::FaultKind;
use std::time::Duration;

/// Faults that take no device out for long.
const WITH_ALL_DEVICES: [FaultKind; 9] = [
    FaultKind::HostCrash,
    FaultKind::ServerCrash,
    FaultKind::ClockStep,
    FaultKind::ClockRate,
    FaultKind::SlowDisk,
    FaultKind::SlowNode,
    FaultKind::Chore,
    FaultKind::Corruption,
    FaultKind::Disconnect,
];

/// How often the ordering changes, and what happens to those who change it.
#[derive(Clone, Debug)]
pub struct ReorderOptions {
    /// The mean time between two changes.
    pub every: Duration,
    /// At so many of a thousand steps, an administrator dies.
    pub deaths: u64,
    /// At so many of a thousand steps, an administrator is suspended, up to a few leases.
    pub pauses: u64,
    /// So many of a thousand answers of the store are lost; as many commands are lost, and as many are late.
    pub store_faults: u64,
}

impl Options {
    /// In some seeds, the ordering of the volume changes during the run; if the choices name it, in all seeds in which it may.
    pub(crate) fn with_reorders(self, choices: &Choices) -> Options {
        let kind = FaultKind::Reorder;
        // Changes need all devices, and one volume; clients that reconnect would abandon requests that wait.
        let is_plain = self.atomicity == Atomicity::Implied
            && self.ordering != Ordering::None
            && !self.moves
            && self.attribute_volume.is_none()
            && self.more_volumes.is_empty()
            && self.dying.is_empty()
            && self.damage_degraded.is_none()
            && self.record_damage.is_none()
            && self.files.is_none()
            && !self.faults.has(FaultKind::Calm);
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        // A random source of its own, so that all other seeds are unchanged.
        let rng = &mut Rng::new(self.seed ^ 0x4e_04de4);
        if !choices.kinds().contains(&kind) || !is_plain || !(rng.below(10) == 0 || named) {
            return self;
        }
        let reorders = ReorderOptions {
            every: Duration::from_millis([50, 300, 1_000][rng.below(3) as usize]),
            deaths: [0, 3, 15][rng.below(3) as usize],
            pauses: [0, 3, 30][rng.below(3) as usize],
            store_faults: [0, 5, 30][rng.below(3) as usize],
        };
        let mut faults = self.faults;
        if rng.chance(2, 3) {
            // While a device is out, no change begins.
            faults.weights.retain(|kind, _| WITH_ALL_DEVICES.contains(kind));
        }
        let (hosts, swarm) = (self.hosts.max(2), self.swarm.max(Duration::from_secs(10)));
        let more_hosts = hosts - self.hosts;
        let options = Options {
            reorders: Some(reorders),
            reconnects: None,
            hosts,
            lock_servers: self.lock_servers.max(1),
            swarm,
            // The operations are spread over the whole run.
            chunks: None,
            think_max: 2 * swarm * (hosts * self.clients) as u32 / self.operations as u32,
            faults,
            ..self
        };
        let settings = Settings {
            request_timeout: options.settings.request_timeout.max(8 * options.settings.lock_timeout),
            hosts_max: options.settings.hosts_max + more_hosts,
            ..options.settings
        };
        Options { settings, ..options }
    }
}

impl Cluster {
    /// The order that the history of the volume must keep: the weakest that one of its orderings promises.
    pub(crate) fn promise_of(&self, ordering: Ordering) -> Promise {
        let promise = |ordering| self.options.promise(ordering, self.restarted, self.turned);
        let had = self.control.iter().flat_map(|control| &control.orderings).copied();
        let is_weak = |ordering| promise(ordering) == Promise::Related;
        if had.chain([ordering]).any(is_weak) { Promise::Related } else { promise(ordering) }
    }

    /// Checks that no hold is left: at rest, every change is complete or reverted, and all hosts know it.
    pub(crate) fn check_hold(&self) -> Result<(), Failed> {
        match &self.control {
            Some(control) if control.store.is_on_hold() => {
                let details = format!("the volume is still {:?}", control.store.state());
                Err(Failed { check: "left-hold", details })
            }
            _ => Ok(()),
        }
    }
}

impl Run {
    /// Schedules changes of the ordering, if the run has them.
    pub(crate) fn plan_reorder(&mut self) {
        if let Some(reorders) = &self.cluster.options.reorders {
            let mean = reorders.every.as_nanos() as u64;
            let pause = Duration::from_nanos(self.reorder_rng.below(2 * mean) + 1);
            self.plan_fault(pause, FaultEvent::Reorder);
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
                let span = Duration::from_millis(self.reorder_rng.below(1_000) + 1);
                self.plan_fault(span, FaultEvent::Return { node, reboot: false });
            } else {
                self.bring_back(node, false);
            }
        }
    }

    /// Has a host change the ordering, if none does.
    pub(crate) fn reorder_and_plan_next(&mut self) {
        let idle: Vec<HostSlot> =
            self.staying_slots().into_iter().filter(|slot| !self.cluster.administers(*slot)).collect();
        // In some cases, two hosts try at a time.
        let may = !self.cluster.is_on_hold() || self.reorder_rng.chance(1, 10);
        if let Some(by) = pick(&mut self.reorder_rng, &idle).filter(|_| may) {
            let orderings = [Ordering::Timestamp, Ordering::DeviceLock, Ordering::ServerLock, Ordering::CallbackLock];
            let to = orderings[self.reorder_rng.below(4) as usize];
            self.count_fault("change of the ordering");
            self.cluster.begin_change(by, Change::Ordering(to));
        }
        self.plan_reorder();
    }
}
