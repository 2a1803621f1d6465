//! Checks of an array at rest: hosts of the swarm run, redundancy, and the history of all clients.

use crate::cluster::{Cluster, Failed, HostSlot, failed, first_byte};
use crate::prelude::*;
use crate::role::{Role, lock_server_of};
use crate::surveyor::Surveyor;
use crate::{hosts, object_requests};
use braid_check::{Cells, Promise, Verdict, check_stripe, reconstruct};
use braid_layout::UnitAddress;
use braid_locks::{LockService, LockState};
use braid_wire::Failure;

/// After this many heartbeats without another message, a device with a full table forgets a host for which it keeps nothing.
const HEARTBEATS_MISSED: u32 = 3;
/// The time between two attempts at a read.
const PAUSE: Duration = Duration::from_millis(10);

impl Cluster {
    /// Checks an array at rest, after everything has healed. Returns the steps of the search for an order of the history, or `None`
    /// if that search or the search for object requests was abandoned.
    pub fn check_all(&mut self) -> Result<Option<u64>, Failed> {
        check_nothing_is_left(self)?;
        self.control.iter_mut().for_each(|control| control.end_fencers());
        let old_hosts: Vec<HostSlot> = self.slots().collect();
        let reader = self.add_host();
        check_volume(self, reader, &old_hosts)?;
        for number in 0..self.others.len() {
            match self.others[number].clone() {
                volume if self.files.uses(volume.id) => check_stripes_by(self, reader, &volume)?,
                _ => self.on_volume(number, |cluster| check_volume(cluster, reader, &old_hosts))?,
            }
        }
        let of_objects = object_requests::check_all_objects(self, reader)?;
        Ok(of_objects.and(check_history(self)?))
    }
}

/// Reads the whole volume, also by hosts of the swarm run, and compares the content with the blocks on the devices.
pub(crate) fn check_volume(cluster: &mut Cluster, reader: HostSlot, old_hosts: &[HostSlot]) -> Result<(), Failed> {
    let stripe_bytes = cluster.volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    let mut content = Vec::new();
    for stripe in 0..cluster.volume.stripes() {
        // The volume may end inside its last stripe.
        let offset = stripe * stripe_bytes;
        content.extend(read_at_rest(cluster, reader, offset, stripe_bytes.min(cluster.volume.bytes - offset))?);
    }
    check_old_hosts(cluster, old_hosts, &content)?;
    let volume = cluster.volume.clone();
    if let Some(target) = volume.target() {
        // The content of a copied volume is not known here, but its redundancy must match.
        check_components(cluster, &target, None)?;
    }
    check_components(cluster, &volume, Some(&content))?;
    check_parity(cluster, reader, &content)
}

/// Checks that hosts of the swarm run read the same content as a new host, each in one of the stripes.
pub(super) fn check_old_hosts(cluster: &mut Cluster, old_hosts: &[HostSlot], content: &[u8]) -> Result<(), Failed> {
    let stripe_bytes = cluster.volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
    for (stripe, slot) in (0..cluster.volume.stripes()).cycle().zip(old_hosts) {
        if !cluster.world.is_up(cluster.node(*slot)) {
            continue;
        }
        let offset = stripe * stripe_bytes;
        let length = stripe_bytes.min(cluster.volume.bytes - offset);
        let begun = cluster.world.now();
        let found = read_at_rest(cluster, *slot, offset, length)?;
        let took = cluster.world.now().since(begun);
        if found != content[offset as usize..(offset + length) as usize] {
            let details = format!("{} reads other content in stripe {stripe} than a new host", cluster.node(*slot));
            return failed("old-host", details);
        }
        // Locks of a dead host are released after its lease.
        if took > 3 * cluster.options.settings.host_lease + Duration::from_secs(1) + cluster.options.settings.resend_max
        {
            let details = format!("{} took {took:?} to read stripe {stripe} of an array at rest", cluster.node(*slot));
            return failed("old-host-slow", details);
        }
    }
    Ok(())
}

/// A read that only the locks of a dead host may delay: they were not requested before, and may delay the read for a lease.
pub(super) fn read_at_rest(
    cluster: &mut Cluster,
    reader: HostSlot,
    offset: u64,
    length: u64,
) -> Result<Vec<u8>, Failed> {
    let patience = cluster.world.now().after(2 * cluster.options.settings.host_lease);
    loop {
        let op = match cluster.options.activities.has("attribute-volumes") {
            false => cluster.read(reader, offset, length),
            // The content of a copied volume belongs to no hostwrite.
            true => {
                let (volume, length) = (cluster.volume.id, length as usize);
                cluster.ask(reader, VolumeRequest::Read { volume, offset, length, patience: Patience::Host })
            }
        };
        match cluster.answer(op, "a stripe can't be read after healing") {
            Ok(HostSuccess::Data(parts)) => return Ok(parts.concat()),
            Err(_) if cluster.volume.ordering.needs_lock_server() && cluster.world.now() < patience => {
                cluster.run_for(PAUSE)
            }
            Ok(other) => return failed("unexpected-answer", format!("{other:?}")),
            Err(failed) => return Err(failed),
        }
    }
}

/// The outcome of a request at rest, which only the locks of a dead host may delay.
pub(crate) fn outcome_at_rest(
    cluster: &mut Cluster,
    ask: impl Fn(&mut Cluster) -> OpId,
) -> Result<HostOutcome, Failed> {
    let patience = cluster.world.now().after(2 * cluster.options.settings.host_lease);
    loop {
        let op = ask(cluster);
        let outcome = cluster.outcome(op, "a host of an array at rest")?;
        let is_lost = matches!(outcome, Err(HostError::Device { failure: Failure::Lost { .. }, .. }));
        let may_wait = cluster.options.ordering.needs_lock_server() && cluster.world.now() < patience;
        if outcome.is_ok() || is_lost || !may_wait {
            return Ok(outcome);
        }
    }
}

/// Checks that no transaction is undecided, no lock is held, no request waits, and no host has an operation in progress.
pub(crate) fn check_nothing_is_left(cluster: &Cluster) -> Result<(), Failed> {
    check_rest(cluster, None)
}

/// The same, while one device is unavailable.
pub(crate) fn check_rest(cluster: &Cluster, without: Option<DeviceId>) -> Result<(), Failed> {
    let member_state = cluster.membership().map(|membership| membership.members.clone()).unwrap_or_default();
    let expected = |device| without == Some(device) || cluster.device_notes.dead.contains(&device);
    // The array serves without its dead devices, if the volume uses them.
    let kept = cluster.device_notes.dead.iter().filter(|device| cluster.volume.devices.contains(device));
    if let Some(kept) = kept.copied().find(|device| {
        member_state.iter().any(|member| member.device == *device && member.member_state != MemberState::Out)
    }) {
        return failed("dead-not-out", format!("{kept}: {member_state:?}"));
    }
    if member_state.is_empty()
        || member_state.iter().any(|member| member.member_state != MemberState::In && !expected(member.device))
    {
        let monitor = cluster.monitor().map_or("down".into(), |monitor| format!("{:?}", monitor.service()));
        return failed("device-not-in", format!("{member_state:?}, monitor: {monitor}"));
    }
    for device in cluster.devices().into_iter().filter(|device| !expected(*device)) {
        let Some(machine) = cluster.device(device) else {
            return failed("device-down", format!("{device} is not up"));
        };
        if *machine.service() != Service::Serving {
            return failed("device-unusable", format!("{device} does not serve: {:?}", machine.service()));
        }
        let now = cluster.world.local(NodeId::Device(device)).expect("the node is in the world").time;
        // A device that reports that it is unable to serve keeps its lease to the end, and then goes out.
        if !machine.has_lease(now.after(cluster.options.settings.device_lease / 2)) {
            return failed("device-without-lease", format!("{device} may not serve, or its lease is not extended"));
        }
        let undecided = machine.transactions().find(|transaction| transaction.state.undecided());
        if let Some(transaction) = undecided {
            return failed("left-undecided", format!("{device} still holds {transaction:?}"));
        }
        let left = [
            ("left-suspect", machine.suspects() as u64, "transactions are still suspect in"),
            ("left-locked", machine.locks() as u64, "transactions still hold locks in"),
            // A device that is in and has absent blocks would be rebuilt, but no host that keeps to the protocol brings that about.
            ("left-absent", machine.store().absent_blocks(), "blocks are absent, though it is in, of"),
            ("left-waiting", machine.waiting() as u64, "requests still wait in"),
        ];
        if let Some((check, count, what)) = left.into_iter().find(|(_, count, _)| *count > 0) {
            return failed(check, format!("{count} {what} {device}"));
        }
    }
    for server in cluster.lock_servers() {
        check_lock_server(cluster, server)?;
    }
    for node in &cluster.hosts {
        let Some(host) = cluster.world.machine(*node).and_then(Role::host) else { continue };
        if !host.is_idle() {
            let details = format!("{node} still has an operation in progress though nothing blocks it");
            return failed("host-not-idle", details);
        }
        // A host hears of a returned device with its next report.
        if let Some(device) = host.unavailable().find(|device| !expected(*device)).filter(|_| !host.is_fenced()) {
            return failed("host-waits-for-device", format!("{node} still takes {device} for unavailable"));
        }
    }
    Ok(())
}

/// Checks that the lock server serves, and that no request waits for locks. Locks that no other host wants may remain: cached
/// locks, locks granted to a late copy of a request, and locks of dead hosts.
pub(super) fn check_lock_server(cluster: &Cluster, id: LockServerId) -> Result<(), Failed> {
    let Some(server) = lock_server_of(&cluster.world, id) else {
        return failed("lock-server-down", format!("{id} is not up"));
    };
    if server.service() != LockService::Serving {
        return failed("lock-server-unusable", format!("{id} does not serve: {:?}", server.service()));
    }
    match server.engine().lock_ids().find(|(_, state)| *state == LockState::Waiting) {
        Some((lock_id, _)) => failed("left-waiting", format!("{lock_id:?} still waits in {id}")),
        None => Ok(()),
    }
}

/// Checks redundancy and content, computed from the blocks on the devices.
pub(super) fn check_components(
    cluster: &mut Cluster,
    volume: &VolumeDescription,
    content: Option<&[u8]>,
) -> Result<(), Failed> {
    let layout = volume.layout;
    let found = survey(cluster, volume)?;
    let block = |place: UnitAddress| found[&(volume.device_at(place.position), place.block)].clone();
    for stripe in 0..volume.stripes() {
        check_stripe(&layout, stripe, block).map_err(|error| Failed { check: "parity", details: error.to_string() })?;
    }
    for (number, expected) in (0..).zip(content.into_iter().flat_map(|content| content.chunks(BLOCK_BYTES))) {
        let stored = block(layout.locate(number));
        let rebuilt = reconstruct(&layout, number, block);
        if stored != expected || rebuilt.is_some_and(|rebuilt| rebuilt != expected) {
            let details = format!("block {number} differs from the content read, as stored or as reconstructed");
            return failed("reconstruction", details);
        }
    }
    Ok(())
}

/// Checks the redundancy of a larger volume through a host under test.
pub(super) fn check_stripes_by(
    cluster: &mut Cluster,
    reader: HostSlot,
    volume: &VolumeDescription,
) -> Result<(), Failed> {
    for stripe in 0..volume.stripes() {
        let op = cluster.ask(reader, JobRequest::Check { volume: volume.id, stripe });
        let outcome = cluster.answer(op, "a stripe can't be checked")?;
        if outcome != (HostSuccess::Checked { matches: true }) {
            return failed("parity-by-host", format!("stripe {stripe} of {:?}: {outcome:?}", volume.id));
        }
    }
    Ok(())
}

/// Checks redundancy through a host under test.
pub(super) fn check_parity(cluster: &mut Cluster, reader: HostSlot, content: &[u8]) -> Result<(), Failed> {
    let layout = cluster.volume.layout;
    let volume = cluster.volume.clone();
    check_stripes_by(cluster, reader, &volume)?;
    for (number, expected) in (0..).zip(content.chunks(BLOCK_BYTES)) {
        if layout.redundancy_units() > 0 {
            let offset = number * BLOCK_BYTES as u64;
            let request = JobRequest::Reconstruct { volume: cluster.volume.id, offset, length: BLOCK_BYTES };
            let op = cluster.ask(reader, request);
            match cluster.answer(op, "a block can't be reconstructed")? {
                HostSuccess::Data(parts) if parts.concat() == expected => {}
                other => {
                    return failed("reconstruction-by-host", format!("block {number}: {other:?}"));
                }
            }
        }
    }
    Ok(())
}

/// Reads every block of every component, device by device.
pub(super) fn survey(
    cluster: &mut Cluster,
    volume: &VolumeDescription,
) -> Result<BTreeMap<(DeviceId, u64), Vec<u8>>, Failed> {
    let node = add_surveyor(cluster, volume, &volume.devices);
    // A device may still be stalled, or have a full session table until it forgets a dead host.
    for _ in 0..20 {
        cluster.run_for(Duration::from_secs(1));
        let Some(Role::Surveyor(surveyor)) = cluster.world.machine(node) else {
            unreachable!("the surveyor was just added")
        };
        if let Some(found) = surveyor.blocks().cloned() {
            cluster.world.crash(node);
            if cluster.options.activities.has("disconnect") {
                // Where tables are small, the surveyor must not displace hosts: devices forget it after some heartbeats.
                cluster.run_for(HEARTBEATS_MISSED * cluster.options.settings.heartbeat);
            }
            return Ok(found);
        }
    }
    cluster.world.crash(node);
    failed("survey", "a device does not answer plain reads".into())
}

/// Adds a surveyor for the volume's components on these devices.
fn add_surveyor(cluster: &mut Cluster, volume: &VolumeDescription, devices: &[DeviceId]) -> NodeId {
    let generation = hosts::fresh_generation(cluster);
    let node = NodeId::Host(generation);
    let object = (volume.id.object(), volume.ordering);
    let epoch = cluster.membership().expect("the monitor is up").epoch;
    let surveyor = Surveyor::new(generation, epoch, object, volume.component(), devices);
    cluster.world.add(node, Role::Surveyor(Box::new(surveyor)), None, LocalClock::exact(Time(0)));
    node
}

pub(super) fn check_history(cluster: &Cluster) -> Result<Option<u64>, Failed> {
    let (in_parts, with_fences);
    let history = match cluster.options.atomicity {
        Atomicity::Implied => {
            with_fences = cluster.history.with_fences();
            &with_fences
        }
        Atomicity::Consistent => {
            // A hostwrite may be interrupted and retried when a device has been unavailable, or when a device has not heard of
            // the host for a lease. The latter does not apply to locks of lock servers, under which hosts continue until all
            // blocks are written.
            let long = cluster.options.settings.host_lease * 3 / 4;
            let holds_on = cluster.options.ordering.needs_lock_server();
            let request_timeout = cluster.options.settings.request_timeout;
            let interrupted = |begun: Time, done: Option<Time>| {
                let done = done.unwrap_or(begun.after(request_timeout));
                let by_silence = if holds_on { 0 } else { done.since(begun).as_nanos() / long.as_nanos() };
                (by_silence as usize).max(usize::from(cluster.observed.absences.overlap(begun, done)))
            };
            let layout = cluster.volume.layout;
            in_parts = cluster.history.in_parts(interrupted, |block| layout.locate(block).position);
            &in_parts
        }
    };
    let mut steps = Some(0);
    // For other volumes without an ordering, only the content is checked.
    let is_judged = |volume: &&VolumeDescription| volume.id == cluster.volume.id || volume.ordering != Ordering::None;
    for volume in cluster.volumes().iter().chain(&cluster.removed).filter(is_judged) {
        let promise = promise_of(cluster, volume.ordering);
        let (first, end) = (first_byte(volume.id), first_byte(VolumeId(volume.id.0 + 1)));
        match braid_check::check(&history.within(Cells::of_bytes(first, end - first)), promise) {
            Verdict::Serializable { steps: taken } => steps = steps.map(|steps| steps + taken),
            Verdict::Not(violation) => {
                return failed("serializable", format!("{:?}: {violation}", volume.id));
            }
            Verdict::Undecided => steps = None,
        }
    }
    Ok(steps)
}

/// The order that the history of a volume with this ordering must keep: the weakest that one of its orderings promises.
fn promise_of(cluster: &Cluster, ordering: Ordering) -> Promise {
    let promise = |ordering| cluster.options.promise(ordering, cluster.device_notes.restarted, cluster.turned);
    let had = cluster.control.iter().flat_map(|control| &control.orderings).copied();
    let is_weak = |ordering| promise(ordering) == Promise::Related;
    if had.chain([ordering]).any(is_weak) { Promise::Related } else { promise(ordering) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use braid_base::limits::Settings;
    use braid_world::Trace;

    /// The session table of each device is full with hosts that are dead, and has room again at a different time.
    #[test]
    fn a_volume_is_surveyed_where_its_devices_have_room_at_different_times() {
        let options = Options::calm("raid5:2+1", 3, 1, 2);
        let settings = Settings { hosts_max: 2, ..options.settings.clone() };
        let mut cluster = Cluster::new(Options { settings, ..options }, Trace::keeping(0));
        cluster.run_for(Duration::from_secs(1));
        let volume = cluster.volume.clone();
        for device in volume.devices.clone() {
            let node = add_surveyor(&mut cluster, &volume, &[device]);
            cluster.run_for(Duration::from_millis(500));
            cluster.crash(node);
        }
        survey(&mut cluster, &volume).expect("devices soon have room");
    }
}
