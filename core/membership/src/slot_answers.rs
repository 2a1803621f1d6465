//! The monitor's answers about slots, to devices that ask for a lease and to operators: which disk fills each slot. The record of one slot
//! is in `slot_record.rs`.

use crate::device_leases::Device;
use crate::monitor::Monitor;
use crate::monitor_record::Recorded;
use crate::operator_requests::{AdministrationName, Admitted};
use crate::slot_record::{Change, Slot, SlotShown};
use braid_base::{DeviceId, DiskId, Epoch, NodeId, Now};
use braid_machine::MonitorEffects;
use braid_wire::{Administration, Message, MonitorAnswer, MonitorReply, RecoveryThrottle};

impl Monitor {
    /// The record of a slot.
    pub(crate) fn slot(&self, device: DeviceId) -> Slot {
        self.record.durable().slot(device)
    }

    /// All slots, ascending.
    pub fn slots(&self) -> impl Iterator<Item = SlotShown> + '_ {
        self.devices.iter().map(|(device, known)| {
            let Slot { disk, kept_out, change, .. } = self.slot(*device);
            let awaited_disk = disk.filter(|_| matches!(change, Change::Awaited { .. }));
            let next_disk = if let Change::Leaving { to } = change { Some(to) } else { None };
            let (join_refused, progress) = (known.join_refused, known.progress);
            SlotShown { device: *device, disk, next_disk, awaited_disk, kept_out, join_refused, progress }
        })
    }

    /// The spares, and how many blocks objects may have on each.
    pub fn spares(&self) -> impl Iterator<Item = (DiskId, u64)> + '_ {
        self.record.durable().spares.iter().map(|(disk, blocks)| (*disk, *blocks))
    }

    /// How fast devices are resynchronised.
    pub fn throttle(&self) -> RecoveryThrottle {
        self.record.durable().throttle
    }

    /// A device asks for a lease with this disk. True if the disk may serve, so that the request is handled as usual; otherwise it is
    /// answered here.
    pub(crate) fn admits(
        &mut self,
        now: Now,
        device: DeviceId,
        disk: DiskId,
        epoch: Epoch,
        out: &mut MonitorEffects,
    ) -> bool {
        let slot = self.slot(device);
        let known = self.devices.get_mut(&device).expect("just seen");
        known.join_refused = slot.objects_to(disk, epoch);
        let reply = match (known.join_refused, slot) {
            // Whoever names a wrong disk does not hear the name of the right one: that name opens the slot.
            (Some(why), _) => MonitorReply::JoinRefused(why.without_names()),
            // It may serve when the disk is recorded.
            (None, Slot { disk: None, .. }) => {
                self.new_reports.learn(device, disk);
                MonitorReply::Changed
            }
            // It must not adopt an epoch in which it is out: a disk that has adopted an epoch is refused as used.
            (None, Slot { change: Change::Awaited { .. }, .. }) => {
                known.last_report.heard = Some(now.time);
                MonitorReply::Changed
            }
            _ => return true,
        };
        self.counters.messages_sent += 1;
        let answer = MonitorAnswer { membership: None, unavailable: Vec::new(), reply };
        out.send(NodeId::Device(device), Message::MonitorAnswer(answer));
        false
    }

    /// True if a device is to be told of new epochs without asking.
    pub(crate) fn is_to_hear(&self, device: DeviceId) -> bool {
        let awaited = matches!(self.slot(device).change, Change::Awaited { .. });
        !awaited && self.devices[&device].join_refused.is_none()
    }

    pub(crate) fn on_administer(
        &mut self,
        now: Now,
        name: AdministrationName,
        asker: Epoch,
        request: Administration,
        out: &mut MonitorEffects,
    ) {
        match self.requests.administrations.take(&self.record.durable().answered, name, asker, request) {
            Ok(Admitted::Waits) => self.new_reports.demand(),
            Ok(Admitted::Granted) => {
                let reply = MonitorReply::Administered { ticket: name.1, result: Ok(()) };
                self.answer(now, NodeId::Host(name.0), asker, reply, out);
            }
            Ok(Admitted::Dropped) => {}
            Err(why) => self.ignore(why, out),
        }
    }

    /// The record with the decided requests is durable: they are answered.
    pub(crate) fn on_administered(&mut self, now: Now, out: &mut MonitorEffects) {
        for ((host, ticket), asker, result) in self.requests.administrations.take_decided() {
            self.answer(now, NodeId::Host(host), asker, MonitorReply::Administered { ticket, result }, out);
        }
    }

    /// Follows the record: devices that it adds or removes.
    pub(crate) fn follow_members(&mut self, now: Now) {
        let membership = self.record.durable().membership.clone();
        self.devices.retain(|device, _| membership.member(*device).is_some());
        self.new_reports.retain(|device| membership.member(device).is_some());
        for member in membership.members {
            self.devices.entry(member.device).or_insert_with(|| Device::new(now.time, &self.config.settings));
        }
    }

    /// Other disks fill these slots than before: what was heard there from the previous disks does not count.
    pub(crate) fn on_handed_over(&mut self, before: &Recorded) {
        let changed = |device: &DeviceId| before.slot(*device).disk != self.slot(*device).disk;
        let changed: Vec<_> = self.devices.keys().copied().filter(changed).collect();
        for device in changed {
            self.devices.get_mut(&device).expect("just listed").forget_disk();
        }
    }
}
