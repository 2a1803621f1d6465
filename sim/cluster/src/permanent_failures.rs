//! Devices that die for good: the array must continue without them and heal; then their disks are replaced.

use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::at_rest;
use crate::cluster::{Cluster, Failed, HostSlot, failed, state_of};
use crate::damage_places::LOSSES;
use crate::hosts;
use crate::leaks;
use crate::prelude::*;
use braid_world::Verdict;

/// The longest duration of an operation, in addition to a lease, when nothing delays it any more.
const MARGIN: Duration = Duration::from_secs(1);
/// The longest time for the rebuild of the dead devices' disks.
const REBUILD_MAX: Duration = Duration::from_secs(300);

/// How often the run checks whether a device can die.
const DEATHS_EVERY: Duration = Duration::from_millis(70);

#[derive(Clone, Debug)]
pub(crate) struct Deaths {
    /// Devices that die for good, one after the other: no stripe has more of them than redundancy units.
    dying: Vec<DeviceId>,
}

impl Feature for Deaths {
    const NAME: &'static str = "dead";
    const ONE_IN: u64 = 10;
    // The objects of a device are lost with it, and together with other damage the loss would exceed the redundancy.
    const NOT_WITH: &'static [&'static str] = &["migrate", "calm", "objects"];

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Deaths> {
        let rng = &mut draw.rng;
        options.activities.remove(&["reconnect"]);
        options.without_faults(&LOSSES);
        // Three copies can lose two devices, and so can groups, where each group may lose some.
        let layout = match rng.below(4) {
            0 => Some(("raid1:3", [3, 4, 6][rng.below(3) as usize])),
            1 => Some(("raid5:2+1", 6)),
            _ => None,
        };
        if let Some((scheme, devices)) = layout.filter(|_| !options.activities.has("attribute-volumes")) {
            let (scheme, unit): (RaidLevel, _) =
                (scheme.parse().expect("a scheme that there is"), options.layout.unit_blocks());
            options.layout = Layout::new(scheme, devices, unit).expect("a ring that is wide enough");
        }
        options.other_devices = rng.below(2) as u16;
        let ring = options.layout.devices() as u64;
        let mut dying = Vec::new();
        for _ in 0..rng.between(1, 3) {
            let dies = DeviceId(rng.below(ring) as u16);
            let with_it = |place: &usize| *place == usize::from(dies.0) || dying.contains(&DeviceId(*place as u16));
            let too_many = |dead: usize| dead > options.layout.redundancy_units();
            if !options.layout.stripes_of_the_ring().any(|stripe| too_many(stripe.filter(with_it).count())) {
                dying.push(dies);
            }
        }
        // This device is not used by the volume.
        if options.other_devices > 0 && rng.below(2) == 0 {
            dying.insert(0, DeviceId(ring as u16));
        }
        dying.dedup();
        // One more host is used to check the array without the dead devices, and others come and go.
        if options.activities.has("disconnect") {
            options.settings.hosts_max += 2;
        }
        (!dying.is_empty()).then_some(Deaths { dying })
    }
}

impl Activity for Deaths {
    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        run.plan(run.cluster.options.swarm / 4, |run| run.with(Deaths::act));
    }

    /// Makes the next device die, once all living devices are in and healthy: then they have taken over its content. Until the monitor has
    /// marked it out, no renewal of another device is late: the monitor might take that one out first, and redundancy covers one alone.
    fn act(&mut self, run: &mut Run, _rng: &mut Rng) {
        run.plan(DEATHS_EVERY, |run| run.with(Deaths::act));
        let awaited = is_a_dead_device_in(&run.cluster).then_some(NodeId::Monitor);
        run.cluster.world.network.be_prompt(awaited);
        let dead = &run.cluster.device_notes.dead;
        let Some(device) = self.dying.iter().copied().find(|device| !dead.contains(device)) else { return };
        if are_all_in_who_live(&run.cluster) {
            run.count_fault("device dead");
            run.cluster.device_notes.dead.insert(device);
            let node = NodeId::Device(device);
            run.crash_plans.remove(&node);
            run.cluster.world.disk_mut(node).expect("devices have disks").spare();
            if run.cluster.world.is_up(node) {
                run.crash_alone(node);
            }
            run.cluster.world.network.be_prompt(Some(NodeId::Monitor));
        }
    }

    fn at_rest(&mut self, run: &mut Run, rng: &mut Rng, _is_last: bool) -> Result<(), Failed> {
        go_on_without_the_dead(run, rng)
    }
}

/// All other devices are in, so every operation must be fast. Then the dead devices get new disks, which are rebuilt.
fn go_on_without_the_dead(run: &mut Run, rng: &mut Rng) -> Result<(), Failed> {
    if run.cluster.device_notes.dead.is_empty() {
        return Ok(());
    }
    let host = run.cluster.add_host();
    // The new host must learn the membership, and the locks of dead hosts must expire.
    run.cluster.run_for(2 * run.cluster.options.settings.host_lease);
    let volume = run.cluster.volume().clone();
    let stripe_bytes = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    let most = run.cluster.options.settings.device_lease + MARGIN;
    for stripe in 0..volume.stripes() {
        let offset = stripe * stripe_bytes;
        let length = stripe_bytes.min(volume.bytes - offset);
        let writes = !run.cluster.options.activities.has("attribute-volumes");
        for is_write in [false, true].into_iter().filter(|is_write| writes || !is_write) {
            let begun = run.cluster.world.now();
            let op = match is_write {
                false => {
                    let length = length as usize;
                    run.cluster
                        .ask(host, VolumeRequest::Read { volume: volume.id, offset, length, patience: Patience::Host })
                }
                true => run.cluster.write(host, offset, length),
            };
            run.cluster.answer(op, "an operation fails although redundancy covers the dead devices")?;
            let took = run.cluster.world.now().since(begun);
            if took > most {
                let details = format!("stripe {stripe} took {took:?} without {:?}", run.cluster.device_notes.dead);
                return failed("slow-without-the-dead", details);
            }
        }
    }
    let_one_return(run, rng, host)?;
    for device in std::mem::take(&mut run.cluster.device_notes.dead) {
        if volume.devices.contains(&device) {
            let (disk, blocks) = (run.cluster.device_notes.new_disk(), run.cluster.options.disk_blocks());
            let request = Administration::Replace { device, disk, blocks, lose: false };
            let op = run.cluster.ask(host, ArrayRequest::Administer { request });
            match run.cluster.answer(op, "the disk of a dead device can't be replaced")? {
                HostSuccess::Done => run.cluster.swap_disk(device, disk),
                other => return failed("unexpected-answer", format!("{other:?}")),
            }
        }
        run.cluster.world.disk_mut(NodeId::Device(device)).expect("devices have disks").heal();
        run.cluster.restart_device(device);
    }
    let until = run.cluster.world.now().after(REBUILD_MAX);
    // Now no device may miss any block.
    let check = |cluster: &Cluster| at_rest::check_nothing_is_left(cluster).and_then(|()| leaks::check_leaks(cluster));
    while check(&run.cluster).is_err() && run.cluster.world.now() < until {
        run.cluster.run_for(Duration::from_millis(200));
    }
    check(&run.cluster)
}

/// The array is at rest, without its dead devices. Now another device goes out, and comes back: it must be in within a bound: the dead
/// devices of its ring are all out, so that nobody waits for them, and others hold nothing. Meanwhile hosts come and go, like commands that ask for the state. And no host reaches a
/// device that holds nothing and is alive.
fn let_one_return(run: &mut Run, rng: &mut Rng, host: HostSlot) -> Result<(), Failed> {
    let (volume, settings) = (run.cluster.volume().clone(), run.cluster.options.settings.clone());
    let is_dead = |cluster: &Cluster, place: usize| cluster.device_notes.dead.contains(&volume.devices[place]);
    let may_go = |device: &DeviceId| {
        let is_missing = |place: &usize| volume.devices[*place] == *device || is_dead(&run.cluster, *place);
        let breaks = |missing: usize| missing > volume.layout.redundancy_units();
        let mut stripes = volume.layout.stripes_of_the_ring();
        !run.cluster.device_notes.dead.contains(device)
            && !stripes.any(|stripe| breaks(stripe.filter(is_missing).count()))
    };
    let mut may_go: Vec<_> = volume.devices.iter().copied().filter(may_go).collect();
    if may_go.is_empty() {
        return Ok(());
    }
    let device = may_go.swap_remove(rng.below(may_go.len() as u64) as usize);
    run.count_fault("device returns without the dead");
    run.crash_alone(NodeId::Device(device));
    let lease = settings.host_lease.max(settings.device_lease);
    let is_out = |run: &Run| state_of(&run.cluster, device) == Some(MemberState::Out);
    receive_visitors_until(run, "not-out-without-the-dead", 4 * lease, is_out)?;
    if !run.cluster.options.activities.has("attribute-volumes") {
        let op = run.cluster.write(host, 0, volume.layout.stripe_blocks() * BLOCK_BYTES as u64);
        run.cluster.answer(op, "a write fails although redundancy covers the missing devices")?;
    }
    let is_empty =
        |device: &DeviceId| !volume.devices.contains(device) && !run.cluster.device_notes.dead.contains(device);
    let empty: Vec<_> = run.cluster.devices().into_iter().filter(is_empty).map(NodeId::Device).collect();
    run.cluster.world.network.drop_if(move |from, to, _| {
        let is_cut = |a: NodeId, b: NodeId| empty.contains(&a) && matches!(b, NodeId::Host(_));
        is_cut(from, to) || is_cut(to, from)
    });
    run.restart(NodeId::Device(device));
    let most = 6 * lease + 4 * settings.resend_max + 4 * settings.readmission_max + 2 * settings.request_timeout;
    let is_in = |run: &Run| state_of(&run.cluster, device) == Some(MemberState::In);
    receive_visitors_until(run, "device-not-back", most, is_in)?;
    run.cluster.world.network.set_rule(|_, _, _| Verdict::Pass);
    let until = run.cluster.world.now().after(REBUILD_MAX);
    while !run.is_swept() && run.cluster.world.now() < until {
        run.pass(Duration::from_millis(100))?;
    }
    Ok(())
}

/// Lets time pass until something is so. Meanwhile one host after another comes, and goes before it notices that a device is silent.
fn receive_visitors_until(
    run: &mut Run,
    check: &'static str,
    most: Duration,
    is_so: impl Fn(&Run) -> bool,
) -> Result<(), Failed> {
    let until = run.cluster.world.now().after(most);
    while !is_so(run) {
        if run.cluster.world.now() > until {
            let members = run.cluster.membership().map(|membership| &membership.members);
            return Err(Failed { check, details: format!("{members:?} without {:?}", run.cluster.device_notes.dead) });
        }
        let visitor = hosts::add_visitor(&mut run.cluster);
        run.pass(2 * run.cluster.options.settings.heartbeat)?;
        run.cluster.crash(visitor);
    }
    Ok(())
}

/// True if all devices that have not died for good are in, and none is about to be taken out: each lease is longer than the time
/// for which other nodes rely on the lease of a device that has just died.
pub(crate) fn are_all_in_who_live(cluster: &Cluster) -> bool {
    let Some(monitor) = cluster.monitor() else { return false };
    let now = cluster.world.local(NodeId::Monitor).expect("the node is in the world").time;
    let long_enough = now.after(cluster.options.settings.device_lease * 9 / 10);
    let mut living = cluster.devices().into_iter().filter(|device| !cluster.device_notes.dead.contains(device));
    // A monitor that has just started knows no leases yet.
    living.all(|device| {
        let is_in = state_of(cluster, device) == Some(MemberState::In);
        let lease = monitor.leases().find(|held| held.device == device).and_then(|held| held.runs_until);
        let is_late = cluster.world.network.is_one_late(cluster.world.now(), NodeId::Device(device), NodeId::Monitor);
        is_in && lease.is_some_and(|until| until > long_enough) && !is_late
    })
}

/// True if the monitor has not marked out all devices that died.
fn is_a_dead_device_in(cluster: &Cluster) -> bool {
    let is_in = |device: &DeviceId| state_of(cluster, *device) == Some(MemberState::In);
    cluster.device_notes.dead.iter().any(|device| cluster.monitor().is_none() || is_in(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_is_reported_in_while_the_monitor_reads_its_record() {
        let mut cluster = Cluster::new(Options::calm("raid5:2+1", 3, 1, 2), Trace::keeping(0));
        let until = cluster.world.now().after(Duration::from_secs(60));
        while !are_all_in_who_live(&cluster) && cluster.world.now() < until {
            cluster.run_for(Duration::from_millis(1));
        }
        assert!(are_all_in_who_live(&cluster), "all devices renew their leases");
        cluster.crash(NodeId::Monitor);
        assert!(!are_all_in_who_live(&cluster), "the monitor is down");
        cluster.restart_monitor();
        assert!(!are_all_in_who_live(&cluster), "the monitor has not read its record yet");
    }
}
