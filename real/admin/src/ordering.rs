//! Changing how a volume's requests are ordered, or where it lies, while hosts use it.
//!
//! ```text
//!   volume is    who        does
//!   Draining     hosts      begin nothing on it, end what they have begun, and say so with their leases
//!   Reordering   devices    are told to order it in the new way, or which blocks it has there: nothing is under way, so that nothing
//!                           mixes
//!   Ready        hosts      take it in as it is now, and go on
//! ```
//!
//! A host that is silent is shut out rather than waited for: what it sends when it goes on would be in the old ordering.
//!
//! Whoever dies in between leaves either a volume that is draining, which goes on as it was; or one that is being reordered,
//! and hosts wait until that is brought to its end. [`keep_settled`] sees to both.
//!
//! While a device is out, nothing is begun: it could not be told, and hosts would wait until it is back.

use crate::failure::Failure;
use crate::fence::shut_out;
use crate::volumes;
use braid_base::{BlockRange, DeviceId, Generation, LockServerId};
use braid_control::{
    ArrayDescription, ArrayFolder, Change, Ending, HostEntry, LeaseJudge, Moment, VolumeEntry, VolumeState,
};
use braid_layout::VolumeDescription;
use braid_session::{HEARTBEAT, Session};
use braid_shell::HostClient;
use braid_wire::{Ordering, Task};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The code of the failure of a device that has no room for more.
const NO_ROOM: &str = "device-full";

/// The code of the failure when another host changes the volume.
const CHANGING: &str = "volume-reordering";

/// How long hosts may take to end what they have begun.
const DRAIN_WAIT: Duration = Duration::from_secs(30);
/// How long lock servers may take to start.
const LOCK_SERVER_WAIT: Duration = Duration::from_secs(10);
/// The wait before another look at what others do.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Orders a volume as `to` from now on. `progress` is told what is being done. False if it was so already.
pub async fn change(session: &Session, name: &str, to: Ordering, progress: impl Fn(&str)) -> Result<bool, Failure> {
    settle(session.folder(), session.client(), session.generation(), &mut LeaseJudge::new(HEARTBEAT)).await?;
    let entry = volumes::find(&session.folder().describe()?, name)?.clone();
    if entry.state == VolumeState::Ready && entry.ordering == to.name() {
        return Ok(false);
    }
    if entry.moving.is_some() {
        let message = format!("volume '{name}' moves, and its ordering can't be changed before that is over");
        return Err(Failure::failed("volume-moving", message).hint(format!("`braid volume migrate {name}` goes on")));
    }
    apply(session, name, Change::Ordering(to.name().to_string()), progress).await.map(|()| true)
}

/// Puts a volume on hold, changes it, and lets hosts go on.
pub async fn apply(session: &Session, name: &str, to: Change, progress: impl Fn(&str)) -> Result<(), Failure> {
    let (folder, by) = (session.folder(), session.generation());
    settle(folder, session.client(), by, &mut LeaseJudge::new(HEARTBEAT)).await?;
    all_in(folder, name, &to)?;
    let revision = begin(folder, name, &to, by)?;
    let ready = async {
        if let Change::Move(_) = to {
            // From now on it counts on the devices where the volume is to lie.
            volumes::await_monitor(folder, revision).await?;
        }
        progress("waiting for hosts to end what they have begun");
        await_drained(folder, session.client(), by, revision).await?;
        if let Change::Ordering(to) = &to
            && to.parse().is_ok_and(Ordering::needs_lock_server)
        {
            progress("waiting for the lock server");
            await_lock_servers(folder).await?;
        }
        // One may have gone meanwhile.
        all_in(folder, name, &to)
    };
    if let Err(failure) = ready.await {
        // Nothing has changed yet: hosts go on as before.
        give_up(folder, name, by)?;
        return Err(failure);
    }
    progress("telling the devices");
    let entry = go_on(folder, name, by)?;
    finish(folder, session.client(), &entry).await.map_err(|failure| {
        let hint = "hosts wait until it is done: `braid up` ends what was begun, once all devices of the volume serve";
        let hint = if failure.code == NO_ROOM { failure.hint.clone() } else { Some(hint.to_string()) };
        Failure { hint, ..failure }.of(format!("volume {name}"))
    })
}

/// True if hosts need a lock server for this volume, now or soon.
pub fn needs_lock_server(entry: &VolumeEntry) -> bool {
    let next = match &entry.state {
        VolumeState::Draining { to: Change::Ordering(to), .. }
        | VolumeState::Reordering { to: Change::Ordering(to), .. } => Some(to),
        _ => None,
    };
    let orderings = [Some(&entry.ordering), next];
    orderings.into_iter().flatten().any(|name| name.parse().is_ok_and(Ordering::needs_lock_server))
}

/// Waits until every lock server of the array serves.
pub async fn await_lock_servers(folder: &ArrayFolder) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let serving: Vec<LockServerId> = live(folder)?.iter().filter_map(served_by).collect();
        let Some(unavailable) = folder.describe()?.lock_servers().find(|server| !serving.contains(server)) else {
            return Ok(());
        };
        if begun.elapsed() > LOCK_SERVER_WAIT {
            let message = format!("the ordering needs lock server {unavailable}, which does not serve");
            let hint = format!("`braid up` starts it; or do it yourself: `braid lockd --id {}`", unavailable.0);
            return Err(Failure::unreachable("no-lock-server", message).hint(hint));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Runs until dropped, through the host `own`: ends what somebody has begun who lives no more.
pub async fn keep_settled(folder: ArrayFolder, client: HostClient, own: Generation) {
    let mut judge = LeaseJudge::new(HEARTBEAT);
    loop {
        if let Err(failure) = settle(&folder, &client, own, &mut judge).await {
            tracing::warn!("can't end the change of a volume, and will try again: {failure}");
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// Ends what hosts have begun that live no more; and what this one has taken over and could not end. A host that may have told devices
/// something is fenced first: it may only stand still, and what it says when it goes on would be of a change that is long over.
async fn settle(
    folder: &ArrayFolder,
    client: &HostClient,
    own: Generation,
    judge: &mut LeaseJudge,
) -> Result<(), Failure> {
    let description = folder.describe()?;
    let now = Moment::now();
    let allowed = judge.allowed(&now, description.leases().lease());
    let on_hold = description.volumes.into_iter().filter(|entry| entry.state.is_on_hold());
    for entry in on_hold.collect::<Vec<_>>() {
        let Some(by) = changed_by(&entry) else { continue };
        if by == own {
            finish(folder, client, &entry).await?;
            continue;
        }
        if folder.hosts(&now, allowed)?.iter().any(|host| host.live && host.generation == by) {
            continue;
        }
        if let VolumeState::Draining { .. } = entry.state {
            // Nobody has been told anything.
            give_up(folder, &entry.name, by)?;
            continue;
        }
        match folder.expire_one(by, &Moment::now(), allowed)? {
            Ending::Lives => continue,
            Ending::Ended => {}
            Ending::Expired(expired) => shut_out(folder, client, expired).await?,
        }
        match take_over(folder, &entry.name, by, own) {
            Ok(entry) => finish(folder, client, &entry).await?,
            // Another was faster.
            Err(failure) if failure.code == CHANGING => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Refuses if a device that the volume has to do with, or comes to have, is not in.
fn all_in(folder: &ArrayFolder, name: &str, to: &Change) -> Result<(), Failure> {
    let description = folder.describe()?;
    let entry = volumes::find(&description, name)?;
    let mut devices = volumes::describe(entry)?.holders();
    devices.extend(volumes::describe(&entry.changed(to))?.holders());
    let what = match to {
        Change::Ordering(_) => format!("the ordering of volume '{name}' can't be changed"),
        Change::Move(_) => format!("volume '{name}' can't begin to move"),
        Change::EndMove => format!("volume '{name}' can't give up the place that it has moved from"),
        Change::GiveUpMove => format!("volume '{name}' can't give up the place that it moves to"),
    };
    volumes::require_in(folder, &devices, &what)
}

/// Puts the volume on hold. The revision that says so.
fn begin(folder: &ArrayFolder, name: &str, to: &Change, by: Generation) -> Result<u64, Failure> {
    folder.update(|description| {
        let revision = description.revision + 1;
        volumes::find(description, name)?;
        let entry = description.volume_mut(name).expect("just found");
        if let Some(other) = changed_by(entry) {
            let message = format!("host {other} is changing volume '{name}' just now");
            return Err(Failure::failed(CHANGING, message).hint("try again when it is done"));
        }
        if let Change::Move(target) = to
            && let Some(gone) =
                target.devices.iter().find(|id| description.ready_devices().all(|device| device.id != **id))
        {
            let message = format!("device {gone} has just been removed, or is going to be");
            return Err(Failure::unreachable("no-such-device", message));
        }
        let entry = description.volume_mut(name).expect("just found");
        let fits = match to {
            Change::Ordering(_) | Change::Move(_) => entry.moving.is_none(),
            Change::EndMove | Change::GiveUpMove => entry.moving.is_some(),
        };
        if !fits {
            let message = format!("volume '{name}' has begun to move, or ended that, just now");
            return Err(Failure::failed("volume-moving", message).hint("`braid volume info` shows how it is"));
        }
        entry.state = VolumeState::Draining { to: to.clone(), by: by.0 };
        Ok(revision)
    })
}

/// Waits until no host but `own` has anything under way that began before `revision`.
async fn await_drained(
    folder: &ArrayFolder,
    client: &HostClient,
    own: Generation,
    revision: u64,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let lease = folder.describe()?.leases().lease();
    let mut judge = LeaseJudge::new(HEARTBEAT);
    loop {
        let now = Moment::now();
        let allowed = judge.allowed(&now, lease);
        let hosts = folder.hosts(&now, allowed)?;
        let late = |host: &&HostEntry| {
            host.generation != own && host.report.lock_server.is_none() && host.report.revision < revision
        };
        let late: Vec<&HostEntry> = hosts.iter().filter(late).collect();
        if late.is_empty() {
            return Ok(());
        }
        if late.iter().all(|host| !host.live) {
            // All of them have been silent for long enough: nobody waits any longer. Others that are silent are in nobody's way.
            for host in late {
                if let Ending::Expired(expired) = folder.expire_one(host.generation, &now, allowed)? {
                    shut_out(folder, client, expired).await?;
                }
            }
            continue;
        }
        let late: Vec<String> = late.into_iter().map(name_of).collect();
        if begun.elapsed() > DRAIN_WAIT {
            let message = format!("{} did not end what they have begun within {DRAIN_WAIT:?}", late.join(", "));
            return Err(
                Failure::unreachable("not-drained", message).hint("end them, or try again: nothing has changed")
            );
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// All have drained: from here on there is no way back.
fn go_on(folder: &ArrayFolder, name: &str, by: Generation) -> Result<VolumeEntry, Failure> {
    folder.update(|description| {
        let entry = mine(description, name, by)?;
        if let VolumeState::Draining { to, by } = entry.state.clone() {
            entry.state = VolumeState::Reordering { to, by };
        }
        Ok(entry.clone())
    })
}

/// Another host changes the volume from now on: one, if several try, and it is fenced in its turn if it does not end it.
fn take_over(folder: &ArrayFolder, name: &str, by: Generation, own: Generation) -> Result<VolumeEntry, Failure> {
    folder.update(|description| {
        let entry = mine(description, name, by)?;
        if let VolumeState::Reordering { by, .. } = &mut entry.state {
            *by = own.0;
        }
        Ok(entry.clone())
    })
}

/// Nothing has changed: the volume goes on as it was.
fn give_up(folder: &ArrayFolder, name: &str, by: Generation) -> Result<(), Failure> {
    folder.update(|description| {
        let entry = mine(description, name, by)?;
        if let VolumeState::Draining { .. } = entry.state {
            entry.state = VolumeState::Ready;
        }
        Ok(())
    })
}

/// Tells the devices, and then that it is done.
async fn finish(folder: &ArrayFolder, client: &HostClient, entry: &VolumeEntry) -> Result<(), Failure> {
    let (VolumeState::Reordering { to, .. }, Some(by)) = (&entry.state, changed_by(entry)) else { return Ok(()) };
    let (before, after) = (volumes::describe(entry)?, volumes::describe(&entry.changed(to))?);
    if let Change::Ordering(_) = to {
        let (object, ordering) = (after.id.object(), after.ordering);
        volumes::on_devices(client, &after.holders(), |_| Some(Task::SetOrdering { object, ordering })).await?;
    } else if let Err(failure) = rearrange(client, &before, &after).await {
        if failure.code != NO_ROOM {
            return Err(failure);
        }
        // There is less room than there was: what was made is removed again.
        rearrange(client, &after, &before).await?;
        settle_as(folder, entry, by, entry.clone())?;
        return Err(failure);
    }
    settle_as(folder, entry, by, entry.changed(to))
}

/// The volume is so, and ready.
fn settle_as(folder: &ArrayFolder, entry: &VolumeEntry, by: Generation, to: VolumeEntry) -> Result<(), Failure> {
    folder.update(|description| {
        *mine(description, &entry.name, by)? = VolumeEntry { state: VolumeState::Ready, ..to };
        Ok(())
    })
}

/// Has every device hold what a volume has there after a change.
async fn rearrange(client: &HostClient, before: &VolumeDescription, after: &VolumeDescription) -> Result<(), Failure> {
    let object = after.id.object();
    let task = |device| match (before.object_on(device), after.object_on(device)) {
        (None, Some(BlockRange { start: first, count: blocks })) => {
            let (ordering, atomicity) = (after.ordering, after.atomicity);
            let redundant = after.layout.redundancy_units() > 0;
            Some(Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent: 0 })
        }
        (Some(_), None) => Some(Task::RemoveObject { object }),
        (Some(_), Some(range)) => Some(Task::ResizeObject { object, range, absent: BlockRange::new(0, 0) }),
        (None, None) => None,
    };
    let devices: BTreeSet<DeviceId> = before.holders().into_iter().chain(after.holders()).collect();
    volumes::on_devices(client, &devices.into_iter().collect::<Vec<_>>(), task).await
}

/// The volume, if it is still this host that changes it.
fn mine<'a>(description: &'a mut ArrayDescription, name: &str, by: Generation) -> Result<&'a mut VolumeEntry, Failure> {
    description.volume_mut(name).filter(|entry| changed_by(entry) == Some(by)).ok_or_else(|| {
        let message = format!("volume '{name}' was taken over or deleted while it was being changed");
        Failure::failed(CHANGING, message).hint("`braid volume info` shows how it is")
    })
}

fn changed_by(entry: &VolumeEntry) -> Option<Generation> {
    match entry.state {
        VolumeState::Draining { by, .. } | VolumeState::Reordering { by, .. } => Some(Generation(by)),
        _ => None,
    }
}

fn live(folder: &ArrayFolder) -> Result<Vec<HostEntry>, Failure> {
    let lease = folder.describe()?.leases().lease();
    Ok(folder.hosts(&Moment::now(), lease)?.into_iter().filter(|host| host.live).collect())
}

fn served_by(host: &HostEntry) -> Option<LockServerId> {
    host.report.lock_server.as_ref().map(|service| LockServerId(service.id))
}

fn name_of(host: &HostEntry) -> String {
    format!("host {} ({}, process {})", host.generation, host.what, host.pid)
}
