//! Devices that die for good: the array must continue without them and heal; then their disks are replaced.

use crate::cluster::{Cluster, Failed, HostSlot};
use crate::role::Role;
use crate::swarm::Run;
use braid_base::{BLOCK_BYTES, DeviceId, MemberState, NodeId};
use braid_machine::{ArrayRequest, HostSuccess, Patience, VolumeRequest};
use braid_wire::Administration;
use braid_world::Verdict;
use std::time::Duration;

/// The longest duration of an operation, in addition to a lease, when nothing delays it any more.
const MARGIN: Duration = Duration::from_secs(1);
/// The longest time for the rebuild of the dead devices' disks.
const REBUILD_MAX: Duration = Duration::from_secs(300);

impl Run {
    /// Makes the next device die, once all living devices are in and healthy: then they have taken over its content. Until the monitor has
    /// marked it out, no renewal of another device is late: the monitor might take that one out first, and redundancy covers one alone.
    pub(crate) fn let_die(&mut self) {
        let awaited = self.cluster.is_a_dead_device_in().then_some(NodeId::Monitor);
        self.cluster.world.network.be_prompt(awaited);
        let dead = &self.cluster.dead;
        let Some(device) = self.cluster.options.dying.iter().copied().find(|device| !dead.contains(device)) else {
            return;
        };
        if self.cluster.are_all_in_who_live() {
            self.count_fault("device dead");
            self.cluster.dead.insert(device);
            let node = NodeId::Device(device);
            self.crash_plans.remove(&node);
            self.cluster.world.disk_mut(node).expect("devices have disks").spare();
            if self.cluster.world.machine(node).is_some() {
                self.crash(node);
            }
            self.cluster.world.network.be_prompt(Some(NodeId::Monitor));
        }
    }

    /// All other devices are in, so every operation must be fast. Then the dead devices get new disks, which are rebuilt.
    pub(crate) fn go_on_without_the_dead(&mut self) -> Result<(), Failed> {
        if self.cluster.dead.is_empty() {
            return Ok(());
        }
        let host = self.cluster.add_host();
        // The new host must learn the membership, and the locks of dead hosts must expire.
        self.cluster.run_for(2 * self.cluster.options.settings.host_lease);
        let volume = self.cluster.volume().clone();
        let stripe_bytes = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
        let most = self.cluster.options.settings.device_lease + MARGIN;
        for stripe in 0..volume.stripes() {
            let offset = stripe * stripe_bytes;
            let length = stripe_bytes.min(volume.bytes - offset);
            let writes = self.cluster.options.attribute_volume.is_none();
            for is_write in [false, true].into_iter().filter(|is_write| writes || !is_write) {
                let begun = self.cluster.world.now();
                let op = match is_write {
                    false => {
                        let length = length as usize;
                        self.cluster.ask(
                            host,
                            VolumeRequest::Read { volume: volume.id, offset, length, patience: Patience::Host },
                        )
                    }
                    true => self.cluster.write(host, offset, length),
                };
                self.cluster.answer(op, "an operation fails although redundancy covers the dead devices")?;
                let took = self.cluster.world.now().since(begun);
                if took > most {
                    let details = format!("stripe {stripe} took {took:?} without {:?}", self.cluster.dead);
                    return Err(Failed { check: "slow-without-the-dead", details });
                }
            }
        }
        self.let_one_return(host)?;
        for device in std::mem::take(&mut self.cluster.dead) {
            if volume.devices.contains(&device) {
                let (disk, blocks) = (self.cluster.new_disk(), self.cluster.disk_blocks());
                let request = Administration::Replace { device, disk, blocks, lose: false };
                let op = self.cluster.ask(host, ArrayRequest::Administer { request });
                match self.cluster.answer(op, "the disk of a dead device can't be replaced")? {
                    HostSuccess::Done => self.cluster.swap_disk(device, disk),
                    other => return Err(Failed { check: "unexpected-answer", details: format!("{other:?}") }),
                }
            }
            self.cluster.world.disk_mut(NodeId::Device(device)).expect("devices have disks").heal();
            self.cluster.restart_device(device);
        }
        let until = self.cluster.world.now().after(REBUILD_MAX);
        // Now no device may miss any block.
        let check = |cluster: &Cluster| cluster.check_nothing_is_left().and_then(|()| cluster.check_leaks());
        while check(&self.cluster).is_err() && self.cluster.world.now() < until {
            self.cluster.run_for(Duration::from_millis(200));
        }
        check(&self.cluster)
    }

    /// The array is at rest, without its dead devices. Now another device goes out, and comes back: it must be in within a bound, whoever is
    /// missing that knows nothing of its stripes. Meanwhile hosts come and go, like commands that ask for the state. And no host reaches a
    /// device that holds nothing and is alive.
    fn let_one_return(&mut self, host: HostSlot) -> Result<(), Failed> {
        let rng = &mut self.cluster.options.source("dead").named("events");
        let (volume, settings) = (self.cluster.volume().clone(), self.cluster.options.settings.clone());
        let is_dead = |cluster: &Cluster, place: usize| cluster.dead.contains(&volume.devices[place]);
        let may_go = |device: &DeviceId| {
            let is_missing = |place: &usize| volume.devices[*place] == *device || is_dead(&self.cluster, *place);
            let breaks = |missing: usize| missing > volume.layout.redundancy_units();
            let mut stripes = volume.layout.stripes_of_the_ring();
            !self.cluster.dead.contains(device) && !stripes.any(|stripe| breaks(stripe.filter(is_missing).count()))
        };
        let mut may_go: Vec<_> = volume.devices.iter().copied().filter(may_go).collect();
        if may_go.is_empty() {
            return Ok(());
        }
        let device = may_go.swap_remove(rng.below(may_go.len() as u64) as usize);
        self.count_fault("device returns without the dead");
        self.crash(NodeId::Device(device));
        let lease = settings.host_lease.max(settings.device_lease);
        let member_state =
            |run: &Run| run.cluster.membership().and_then(|all| all.member(device)).map(|it| it.member_state);
        let is_out = |run: &Run| member_state(run) == Some(MemberState::Out);
        self.receive_visitors_until("not-out-without-the-dead", 4 * lease, is_out)?;
        if self.cluster.options.attribute_volume.is_none() {
            let op = self.cluster.write(host, 0, volume.layout.stripe_blocks() * BLOCK_BYTES as u64);
            self.cluster.answer(op, "a write fails although redundancy covers the missing devices")?;
        }
        let is_empty = |device: &DeviceId| !volume.devices.contains(device) && !self.cluster.dead.contains(device);
        let empty: Vec<_> = self.cluster.devices().into_iter().filter(is_empty).map(NodeId::Device).collect();
        self.cluster.world.network.set_rule(move |from, to, _| {
            let is_cut = |a: NodeId, b: NodeId| empty.contains(&a) && matches!(b, NodeId::Host(_));
            if is_cut(from, to) || is_cut(to, from) { Verdict::Drop } else { Verdict::Pass }
        });
        self.restart(NodeId::Device(device));
        let most = 6 * lease + 4 * settings.resend_max + 4 * settings.readmission_max + 2 * settings.request_timeout;
        self.receive_visitors_until("device-not-back", most, |run| member_state(run) == Some(MemberState::In))?;
        self.cluster.world.network.set_rule(|_, _, _| Verdict::Pass);
        let until = self.cluster.world.now().after(REBUILD_MAX);
        while !self.is_swept() && self.cluster.world.now() < until {
            self.pass(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Lets time pass until something is so. Meanwhile one host after another comes, and goes before it notices that a device is silent.
    fn receive_visitors_until(
        &mut self,
        check: &'static str,
        most: Duration,
        is_so: impl Fn(&Run) -> bool,
    ) -> Result<(), Failed> {
        let until = self.cluster.world.now().after(most);
        while !is_so(self) {
            if self.cluster.world.now() > until {
                let members = self.cluster.membership().map(|membership| &membership.members);
                return Err(Failed { check, details: format!("{members:?} without {:?}", self.cluster.dead) });
            }
            let visitor = self.cluster.add_visitor();
            self.pass(2 * self.cluster.options.settings.heartbeat)?;
            self.cluster.crash(visitor);
        }
        Ok(())
    }
}

impl Cluster {
    /// True if all devices that have not died for good are in, and none is about to be taken out: each lease is longer than the time
    /// for which other nodes rely on the lease of a device that has just died.
    pub(crate) fn are_all_in_who_live(&self) -> bool {
        let Some(Role::Monitor(monitor)) = self.world.machine(NodeId::Monitor) else { return false };
        let now = self.world.local(NodeId::Monitor).expect("the node is in the world").time;
        let long_enough = now.after(self.options.settings.device_lease * 9 / 10);
        let mut living = self.devices().into_iter().filter(|device| !self.dead.contains(device));
        // A monitor that has just started knows no leases yet.
        living.all(|device| {
            let is_in =
                monitor.membership().member(device).is_some_and(|member| member.member_state == MemberState::In);
            let lease = monitor.leases().find(|held| held.device == device).and_then(|held| held.runs_until);
            let is_late = self.world.network.is_one_late(self.world.now(), NodeId::Device(device), NodeId::Monitor);
            is_in && lease.is_some_and(|until| until > long_enough) && !is_late
        })
    }

    /// True if the monitor has not marked out all devices that died.
    fn is_a_dead_device_in(&self) -> bool {
        let Some(Role::Monitor(monitor)) = self.world.machine(NodeId::Monitor) else { return !self.dead.is_empty() };
        let member_state = |device| monitor.membership().member(device).map(|member| member.member_state);
        self.dead.iter().any(|device| member_state(*device) == Some(MemberState::In))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_is_reported_in_while_the_monitor_reads_its_record() {
        let mut cluster = Cluster::calm("raid5:2+1", 3, 1, 2);
        let until = cluster.world.now().after(Duration::from_secs(60));
        while !cluster.are_all_in_who_live() && cluster.world.now() < until {
            cluster.run_for(Duration::from_millis(1));
        }
        assert!(cluster.are_all_in_who_live(), "all devices renew their leases");
        cluster.crash(NodeId::Monitor);
        assert!(!cluster.are_all_in_who_live(), "the monitor is down");
        cluster.restart_monitor();
        assert!(!cluster.are_all_in_who_live(), "the monitor has not read its record yet");
    }
}
