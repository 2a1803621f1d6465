//! Devices that are added and removed during a run, beside those that hold volumes, while clients use the array.

use super::{ControlPlane, Subject};
use crate::cluster::{Cluster, Failed, HostSlot};
use crate::fault_events::FaultEvent;
use crate::graceful_disconnect::pick;
use crate::swarm::Run;
use braid_base::DeviceId;
use braid_control_protocol::{DeviceChange, Operation, Timing};
use std::time::Duration;

/// There are at most so many devices beside the first ones.
const DEVICES_MAX: usize = 2;

impl Cluster {
    /// Checks that the monitor has exactly the devices that the store has.
    pub(super) fn check_devices(&self, control: &ControlPlane) -> Result<(), Failed> {
        let Some(membership) = self.membership() else { return Ok(()) };
        let has: Vec<DeviceId> = membership.members.iter().map(|member| member.device).collect();
        let should: Vec<DeviceId> = control.store.devices().map(|(device, _)| device).collect();
        if has == should {
            return Ok(());
        }
        let details = format!("the monitor has {has:?}, the store {:?}", control.store.devices().collect::<Vec<_>>());
        Err(Failed { check: "device-without-record", details })
    }
}

impl Run {
    /// Schedules the next addition or removal, if the run has them.
    pub(crate) fn plan_coming(&mut self) {
        let changes = self.cluster.options.changes.as_ref();
        if let Some(every) = changes.and_then(|changes| changes.comings) {
            let pause = Duration::from_nanos(self.coming_rng.below(2 * every.as_nanos() as u64) + 1);
            self.plan_fault(pause, FaultEvent::Coming);
        }
    }

    /// Has a host add or remove a device.
    pub(crate) fn add_or_remove_and_plan_next(&mut self) {
        let staying = self.staying_slots().into_iter();
        // A host performs one operation at a time, and may be settling what another one has begun.
        let idle: Vec<HostSlot> = staying.filter(|slot| !self.cluster.has_administrators(*slot)).collect();
        if let Some(by) = pick(&mut self.coming_rng, &idle) {
            let (device, operation) = self.draw_coming(by);
            self.cluster.begin_operation_on(by, Subject::Device(device), operation);
        }
        self.plan_coming();
    }

    fn draw_coming(&mut self, by: HostSlot) -> (DeviceId, Operation) {
        let own = self.cluster.generation(by);
        // What a device waits for may take long: nothing depends on that.
        let timing = Timing { device: Duration::from_secs(5), ..Timing::default() };
        let first = self.cluster.devices();
        let store = &self.cluster.control.as_ref().expect("the run has a control plane").store;
        let there: Vec<DeviceId> =
            store.devices().map(|(device, _)| device).filter(|device| !first.contains(device)).collect();
        let unused = store.next_device();
        let rng = &mut self.coming_rng;
        if there.len() == DEVICES_MAX || (!there.is_empty() && rng.chance(2, 5)) {
            // Also a device that is being added or removed.
            let device = there[rng.below(there.len() as u64) as usize];
            self.count_fault("removal of a device");
            return (device, DeviceChange::removing(own, device, timing).into());
        }
        self.count_fault("addition of a device");
        // Sometimes with a number that was used.
        if self.coming_rng.chance(1, 20) {
            let (device, disk) = (DeviceId(unused.0 - 1), self.cluster.new_disk());
            return (device, DeviceChange::adding(own, device, disk, timing).into());
        }
        // Its process was started for an addition that was never entered, and may be down; or it is started now.
        if !self.cluster.has_device(unused) {
            self.cluster.add_device(unused);
        }
        let disk = self.cluster.disk_of(unused);
        (unused, DeviceChange::adding(own, unused, disk, timing).into())
    }
}
