//! A volume is on hold while its ordering or its placement changes: hosts queue its requests.
//!
//! ```text
//!   state        who        does
//!   Draining     hosts      begin no operation on it, end those under way, and report that with their leases
//!   Reordering   devices    are told the new ordering, or the blocks of the new placement: nothing is under way, so that old and new
//!                           do not mix
//!   Ready        hosts      adopt the new description, and continue
//! ```
//!
//! A silent host is fenced, because its later requests would use the old ordering.
//!
//! If the changing process dies while the volume is draining, the change is reverted. If it dies later, the change is completed, and hosts
//! wait until then. [`keep_settled`] does both.
//!
//! While a device is out, no change begins: the device would not get the new ordering, and hosts would wait until it is back.

use crate::failure::Failure;
use crate::silent_host_fencing::shut_out;
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

/// The failure code if a device has no space.
const NO_ROOM: &str = "device-full";

/// The failure code if another host is changing the volume.
const CHANGING: &str = "volume-reordering";

/// How long hosts may take to end their operations.
const DRAIN_WAIT: Duration = Duration::from_secs(30);
/// How long lock servers may take to start.
const LOCK_SERVER_WAIT: Duration = Duration::from_secs(10);
/// The interval of checks while waiting for other processes.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Changes a volume's ordering to `to`. `progress` is called with each step. Returns false if the volume has that ordering already.
pub async fn change(session: &Session, name: &str, to: Ordering, progress: impl Fn(&str)) -> Result<bool, Failure> {
    settle(session.folder(), session.client(), session.generation(), &mut LeaseJudge::new(HEARTBEAT)).await?;
    let entry = volumes::find(&session.folder().describe()?, name)?.clone();
    if entry.state == VolumeState::Ready && entry.ordering == to.name() {
        return Ok(false);
    }
    if entry.moving.is_some() {
        let message = format!("volume '{name}' is being migrated, and its ordering can't be changed meanwhile");
        return Err(Failure::failed("volume-moving", message)
            .hint(format!("complete the migration with `braid volume migrate {name}`")));
    }
    apply(session, name, Change::Ordering(to.name().to_string()), progress).await.map(|()| true)
}

/// Puts a volume on hold, applies a change, and ends the hold.
pub async fn apply(session: &Session, name: &str, to: Change, progress: impl Fn(&str)) -> Result<(), Failure> {
    let (folder, by) = (session.folder(), session.generation());
    settle(folder, session.client(), by, &mut LeaseJudge::new(HEARTBEAT)).await?;
    all_in(folder, name, &to)?;
    let revision = begin(folder, name, &to, by)?;
    let ready = async {
        if let Change::Move(_) = to {
            // From now on the monitor takes the devices of the target into account.
            volumes::await_monitor(folder, revision).await?;
        }
        progress("waiting for hosts to end their operations");
        await_drained(folder, session.client(), by, revision).await?;
        if let Change::Ordering(to) = &to
            && to.parse().is_ok_and(Ordering::needs_lock_server)
        {
            progress("waiting for the lock server");
            await_lock_servers(folder).await?;
        }
        // A device may have gone out meanwhile.
        all_in(folder, name, &to)
    };
    if let Err(failure) = ready.await {
        // Nothing has changed yet: hosts continue as before.
        give_up(folder, name, by)?;
        return Err(failure);
    }
    progress("telling the devices");
    let entry = go_on(folder, name, by)?;
    finish(folder, session.client(), &entry).await.map_err(|failure| {
        let hint =
            "hosts wait until the change is complete: `braid up` completes it once all devices of the volume serve";
        let hint = if failure.code == NO_ROOM { failure.hint.clone() } else { Some(hint.to_string()) };
        Failure { hint, ..failure }.of(format!("volume {name}"))
    })
}

/// True if hosts need a lock server for this volume, now or after the change.
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
            let message = format!("the ordering needs lock server {unavailable}, which is not running");
            let hint = format!("start it with `braid up`, or with `braid lockd --id {}`", unavailable.0);
            return Err(Failure::unreachable("no-lock-server", message).hint(hint));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Runs until dropped, with the host `own`: completes or reverts changes begun by hosts that have died.
pub async fn keep_settled(folder: ArrayFolder, client: HostClient, own: Generation) {
    let mut judge = LeaseJudge::new(HEARTBEAT);
    loop {
        if let Err(failure) = settle(&folder, &client, own, &mut judge).await {
            tracing::warn!("can't complete a change of a volume; trying again: {failure}");
        }
        tokio::time::sleep(HEARTBEAT).await;
    }
}

/// Completes or reverts the changes begun by hosts that have died, and those that this host has taken over and could not complete. A host
/// that may have told devices something is fenced first: it may only be suspended, and its later requests would belong to a change that
/// is over.
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
            // No device has been told anything.
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
            // Another host took it over first.
            Err(failure) if failure.code == CHANGING => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Fails if a device that holds the volume now or after the change is not in.
fn all_in(folder: &ArrayFolder, name: &str, to: &Change) -> Result<(), Failure> {
    let description = folder.describe()?;
    let entry = volumes::find(&description, name)?;
    let mut devices = volumes::describe(entry)?.holders();
    devices.extend(volumes::describe(&entry.changed(to))?.holders());
    let what = match to {
        Change::Ordering(_) => format!("the ordering of volume '{name}' can't be changed"),
        Change::Move(_) => format!("migration of volume '{name}' can't begin"),
        Change::EndMove => format!("migration of volume '{name}' can't end"),
        Change::GiveUpMove => format!("migration of volume '{name}' can't be abandoned"),
    };
    volumes::require_in(folder, &devices, &what)
}

/// Puts the volume on hold. Returns the revision of the description with the hold.
fn begin(folder: &ArrayFolder, name: &str, to: &Change, by: Generation) -> Result<u64, Failure> {
    folder.update(|description| {
        let revision = description.revision + 1;
        volumes::find(description, name)?;
        let entry = description.volume_mut(name).expect("the volume exists");
        if let Some(other) = changed_by(entry) {
            let message = format!("host {other} is changing volume '{name}'");
            return Err(Failure::failed(CHANGING, message).hint("try again when it is done"));
        }
        if let Change::Move(target) = to
            && let Some(gone) =
                target.devices.iter().find(|id| description.ready_devices().all(|device| device.id != **id))
        {
            let message = format!("device {gone} has just been removed, or is being removed");
            return Err(Failure::unreachable("no-such-device", message));
        }
        let entry = description.volume_mut(name).expect("the volume exists");
        let fits = match to {
            Change::Ordering(_) | Change::Move(_) => entry.moving.is_none(),
            Change::EndMove | Change::GiveUpMove => entry.moving.is_some(),
        };
        if !fits {
            let message = format!("a migration of volume '{name}' has begun or ended meanwhile");
            return Err(Failure::failed("volume-moving", message).hint("`braid volume info` shows its state"));
        }
        entry.state = VolumeState::Draining { to: to.clone(), by: by.0 };
        Ok(revision)
    })
}

/// Waits until no host except `own` has an operation under way that began before `revision`.
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
            // All of them have been silent for longer than their leases, so they are fenced. Other silent hosts do not delay the change.
            for host in late {
                if let Ending::Expired(expired) = folder.expire_one(host.generation, &now, allowed)? {
                    shut_out(folder, client, expired).await?;
                }
            }
            continue;
        }
        let late: Vec<String> = late.into_iter().map(name_of).collect();
        if begun.elapsed() > DRAIN_WAIT {
            let message = format!("{} did not end their operations within {DRAIN_WAIT:?}", late.join(", "));
            return Err(
                Failure::unreachable("not-drained", message).hint("nothing was changed: end these hosts, or try again")
            );
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// All hosts have drained: from here on the change must be completed.
fn go_on(folder: &ArrayFolder, name: &str, by: Generation) -> Result<VolumeEntry, Failure> {
    folder.update(|description| {
        let entry = mine(description, name, by)?;
        if let VolumeState::Draining { to, by } = entry.state.clone() {
            entry.state = VolumeState::Reordering { to, by };
        }
        Ok(entry.clone())
    })
}

/// Makes this host the one that changes the volume. If several try, one succeeds; it is fenced in turn if it does not complete the change.
fn take_over(folder: &ArrayFolder, name: &str, by: Generation, own: Generation) -> Result<VolumeEntry, Failure> {
    folder.update(|description| {
        let entry = mine(description, name, by)?;
        if let VolumeState::Reordering { by, .. } = &mut entry.state {
            *by = own.0;
        }
        Ok(entry.clone())
    })
}

/// Reverts the change: the volume is ready, as it was before.
fn give_up(folder: &ArrayFolder, name: &str, by: Generation) -> Result<(), Failure> {
    folder.update(|description| {
        let entry = mine(description, name, by)?;
        if let VolumeState::Draining { .. } = entry.state {
            entry.state = VolumeState::Ready;
        }
        Ok(())
    })
}

/// Applies the change on the devices, and then marks the volume ready.
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
        // The devices have less space than expected: what was reserved is freed again.
        rearrange(client, &after, &before).await?;
        settle_as(folder, entry, by, entry.clone())?;
        return Err(failure);
    }
    settle_as(folder, entry, by, entry.changed(to))
}

/// Records the changed volume, in state ready.
fn settle_as(folder: &ArrayFolder, entry: &VolumeEntry, by: Generation, to: VolumeEntry) -> Result<(), Failure> {
    folder.update(|description| {
        *mine(description, &entry.name, by)? = VolumeEntry { state: VolumeState::Ready, ..to };
        Ok(())
    })
}

/// Has every device hold the blocks of the volume's placement after a change.
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

/// The volume, if this host is still the one that changes it.
fn mine<'a>(description: &'a mut ArrayDescription, name: &str, by: Generation) -> Result<&'a mut VolumeEntry, Failure> {
    description.volume_mut(name).filter(|entry| changed_by(entry) == Some(by)).ok_or_else(|| {
        let message = format!("volume '{name}' was taken over or deleted while it was being changed");
        Failure::failed(CHANGING, message).hint("`braid volume info` shows its state")
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
    format!("host {} ({}, process {})", host.generation, host.role, host.pid)
}
