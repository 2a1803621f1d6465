//! Devices that are suspended in the middle of their work: while reads of their disks are under way, for longer than the lease of a host.
//!
//! A process that is stopped and continued finds everything at once: what its disk has done, messages, and leases that are over. A stall at
//! any time (`stall`) seldom meets a read that is under way. This one begins when a read ends, so that its content is what the device finds
//! first.

use crate::availability::Cause;
use crate::fault_events::FaultEvent;
use crate::options::{Choices, Options};
use crate::swarm::Run;
use braid_base::NodeId;
use braid_layout::Layout;
use braid_ordering::Atomicity;
use braid_store::CHUNK_BLOCKS;
use braid_world::{FaultKind, Suspension};
use std::time::Duration;

/// The most reads until the one after which a device is suspended.
const READS_MAX: u64 = 8;
/// How long this read takes at least, in microseconds: meanwhile what other devices send may arrive.
const READ_TAKES: [u64; 3] = [0, 2_000, 20_000];

impl Options {
    /// In some seeds, devices are suspended while they read; if the choices name this, in all seeds in which they may. These have units of
    /// whole chunks where they can: such a unit is written to its place at once, and is read from the disk and not from memory.
    pub(crate) fn with_suspensions(mut self, choices: &Choices) -> Options {
        let kind = FaultKind::Suspend;
        // Where writes take effect on arrival, no device is out and no host is fenced in the same run. Other kinds need all devices.
        let may = choices.kinds().contains(&kind)
            && self.atomicity == Atomicity::Implied
            && self.changes.is_none()
            && !self.faults.has(FaultKind::Calm);
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("suspend");
        if !may || !(rng.below(10) == 0 || named) {
            return self;
        }
        let every = Duration::from_millis([100, 500, 2_000][rng.below(3) as usize]);
        let is_plain = self.attribute_volume.is_none()
            && self.files.is_none()
            && self.dying.is_empty()
            && self.more_volumes.is_empty()
            && !self.moves
            && self.layout.redundancy_units() == 1;
        if named && is_plain {
            let (scheme, devices) = (self.layout.scheme(), self.layout.devices());
            self.layout = Layout::new(scheme, devices, CHUNK_BLOCKS).expect("a ring that is wide enough");
            self.stripes = self.stripes.min(2);
        }
        Options { suspensions: Some(every), ..self }
    }
}

impl Run {
    /// Schedules the next suspension, if the run has them.
    pub(crate) fn plan_suspension(&mut self) {
        if let Some(every) = self.cluster.options.suspensions {
            let pause = self.suspension_rng.below(2 * every.as_nanos() as u64) + 1;
            self.plan_fault(Duration::from_nanos(pause), FaultEvent::Suspend);
        }
    }

    /// Has a device suspended after one of its next reads.
    pub(crate) fn suspend_and_plan_next(&mut self) {
        let lease = self.cluster.options.settings.host_lease.as_nanos() as u64;
        let rng = &mut self.suspension_rng;
        let devices = self.cluster.devices();
        let node = NodeId::Device(devices[rng.below(devices.len() as u64) as usize]);
        let read = rng.between(1, READS_MAX);
        let takes = Duration::from_micros(READ_TAKES[rng.below(3) as usize]);
        let span = Duration::from_nanos(lease + rng.below(lease));
        if self.cluster.world.machine(node).is_some() {
            self.cluster.world.suspend_after_read(node, Suspension { read, takes, span });
        }
        self.plan_suspension();
    }

    /// A device is suspended now.
    pub(crate) fn on_suspended(&mut self, node: NodeId, span: Duration) {
        self.count_fault("suspended after a read");
        // It ends by itself, also when everything else heals.
        self.availability.begin(self.cluster.world.now(), "stall", Cause::of(node), span);
    }
}
