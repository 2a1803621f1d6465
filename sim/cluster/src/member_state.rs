//! Checks of the membership at every step of the monitor: the rules of `docs/membership.md` that are visible at a single moment.

use crate::cluster::{Cluster, Failed, Seen};
use crate::prelude::*;
use crate::role::can_serve;
use braid_base::Member;

pub(crate) fn note_absence(cluster: &mut Cluster) {
    let (now, whole) = (cluster.world.now(), is_whole(cluster));
    let absences = &mut cluster.observed.absences;
    match absences.spans.last_mut() {
        // Until a check finds that it is over.
        Some((_, end)) if absences.now => *end = now,
        _ if !whole => absences.spans.push((now, now)),
        _ => {}
    }
    absences.now = !whole;
}

/// Observes whether the array waits for a device that it needs.
pub(crate) fn note_unavailable(cluster: &mut Cluster) {
    if cluster.monitor().is_some_and(|monitor| !monitor.unavailable().is_empty()) {
        cluster.observed.last_unavailable = Some(cluster.world.now());
    }
}

/// True if all devices are in and available, and no effect of an earlier absence remains: no write that began then, and no
/// suspect transaction.
pub(crate) fn is_calm(cluster: &Cluster) -> bool {
    let last = cluster.observed.absences.spans.last().map_or(Time(0), |(_, end)| *end);
    let suspects = |device: DeviceId| cluster.device(device).map_or(0, |machine| machine.suspects());
    is_whole(cluster)
        && cluster.requests.asked().all(|asked| asked.since > last)
        && cluster.devices().into_iter().all(|device| suspects(device) == 0)
}

fn is_whole(cluster: &Cluster) -> bool {
    let Some(decided) = cluster.membership() else { return false };
    decided.members.iter().all(|member| {
        let serving = cluster.device(member.device).filter(|_| can_serve(&cluster.world, member.device));
        let lives_by = serving.and_then(|machine| machine.membership());
        member.member_state == MemberState::In && lives_by.is_some_and(|membership| membership.epoch == decided.epoch)
    })
}

/// Checks that no epoch has two memberships, that each membership follows from the one before, that no node uses a membership
/// that the monitor has not made durable, that no stripe lacks more devices than its redundancy covers, and that a device that is
/// out has no lease.
pub(crate) fn check_membership(cluster: &mut Cluster) -> Result<(), Failed> {
    let mut seen = std::mem::take(&mut cluster.observed.memberships);
    let outcome = check_membership_against(cluster, &mut seen);
    cluster.observed.memberships = seen;
    outcome.map_err(|details| Failed { check: "membership", details })
}

fn check_membership_against(cluster: &Cluster, seen: &mut Seen) -> Result<(), String> {
    // While the monitor starts, its record is being read.
    let decided = cluster.membership().filter(|membership| membership.epoch > Epoch(0));
    let mut lives_by = Vec::new();
    for device in cluster.devices() {
        let membership = cluster.device(device).and_then(|machine| machine.membership());
        lives_by.extend(membership.map(|membership| (device, membership)));
    }
    for membership in decided.into_iter().chain(lives_by.iter().map(|(_, membership)| *membership)) {
        seen.learn(membership)?;
        if let Some(forgotten) = cluster.devices().iter().find(|device| membership.member(**device).is_none()) {
            return Err(format!("{forgotten} was removed although the volume uses it: {membership:?}"));
        }
    }
    let Some(decided) = decided else { return Ok(()) };
    if let Some((device, ahead)) = lives_by.iter().find(|(_, membership)| membership.epoch > decided.epoch) {
        return Err(format!("{device} uses {:?}, the monitor has decided up to {:?}", ahead.epoch, decided.epoch));
    }
    check_stripes(cluster, decided)?;
    for Member { device, .. } in decided.members.iter().filter(|member| member.member_state == MemberState::Out) {
        let now = cluster.world.local(NodeId::Device(*device)).expect("the node is in the world").time;
        if let Some(machine) = cluster.device(*device)
            && can_serve(&cluster.world, *device)
            && machine.has_lease(now)
        {
            return Err(format!("{device} is out in {:?} and serves by {:?}", decided.epoch, machine.membership()));
        }
    }
    Ok(())
}

/// Checks that no stripe lacks more devices than its redundancy covers.
fn check_stripes(cluster: &Cluster, decided: &Membership) -> Result<(), String> {
    if cluster.gives_up {
        return Ok(());
    }
    let volumes = cluster.volumes();
    let is_in = |device| decided.member(device).is_some_and(|member| member.member_state == MemberState::In);
    // A device is taken out as soon as one volume can serve without it, even if another volume has no redundancy for it.
    let alone = volumes.len() == 1;
    let placements = volumes.iter().flat_map(VolumeDescription::placements);
    for (layout, devices) in placements.filter(|(layout, _)| alone || layout.redundancy_units() > 0) {
        for stripe in layout.stripes_of_the_ring() {
            let missing: Vec<usize> = stripe.filter(|position| !is_in(devices[*position])).collect();
            if missing.len() > layout.redundancy_units() {
                return Err(format!("positions {missing:?} of a stripe are not in: {decided:?}"));
            }
        }
    }
    Ok(())
}
