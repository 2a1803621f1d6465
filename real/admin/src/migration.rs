//! Migration of a volume to other devices or another layout, while hosts use it (`docs/healing.md`).
//!
//! ```text
//!   Ready ─► on hold: devices reserve space ─► moving: hosts write on both sides, one copies the rest
//!         ─► on hold: devices free space ─► Ready
//! ```
//!
//! If the migrating process dies while the volume is on hold, [`crate::volume_hold`] completes or reverts the change. A volume that is
//! moving is fully usable; the same command again continues the migration from about where the previous one stopped.

use crate::array::Array;
use crate::creation;
use crate::failure::Failure;
use crate::volume_hold;
use crate::volumes;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId};
use braid_control::{ArrayDescription, Change as EntryChange, PlacementEntry, VolumeEntry};
use braid_control_protocol::Change;
use braid_layout::{Atomicity, RaidLevel};
use braid_machine::{HostSuccess, JobRequest, MigrationReport};
use braid_ordering::Ordering;
use braid_session::{Session, require_up};
use std::time::{Duration, Instant};

/// The interval at which progress is reported, and recorded in the description.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const NOTE_EVERY: Duration = Duration::from_secs(3);
/// How long to wait for devices that must be in at the end.
const IN_WAIT: Duration = Duration::from_secs(60);

/// The target of a migration, as far as specified.
#[derive(Clone, Debug, Default)]
pub struct MigrationTarget {
    /// The layout; none for the current one.
    pub scheme: Option<RaidLevel>,
    /// The stripe unit in bytes; none for the current one.
    pub unit: Option<u64>,
    /// The devices; none for all devices of the array.
    pub devices: Option<Vec<u16>>,
}

impl MigrationTarget {
    /// True if nothing is specified.
    pub fn is_none(&self) -> bool {
        self.scheme.is_none() && self.unit.is_none() && self.devices.is_none()
    }
}

/// Receives the progress of a migration.
pub trait Watcher {
    /// A step has begun.
    fn stage(&self, what: &str);
    /// So many of the volume's `bytes` were examined, and so many copied.
    fn progress(&self, bytes: u64, looked: u64, copied: u64);
}

/// The result of a migration.
#[derive(Clone, Debug)]
pub struct Migrated {
    /// The volume after it.
    pub volume: VolumeEntry,
    /// Bytes copied by this operation; none if it was aborted.
    pub copied: Option<u64>,
}

impl Array {
    /// Migrates a volume to other devices or another layout while it is in use, or continues an interrupted migration (then `wish` must
    /// be empty). Copies at most `bytes_per_second`; zero means as fast as a rebuild. Returns when the volume lies at the target alone.
    /// Errors: `no-target`, `cannot-move`, `same-place`, `already-moving`, `volume-degraded`, `device-full`, `block-lost` (some blocks
    /// can't be read), `not-up`.
    pub async fn migrate_volume(
        &self,
        name: &str,
        wish: &MigrationTarget,
        bytes_per_second: u64,
        watcher: &impl Watcher,
    ) -> Result<Migrated, Failure> {
        let description = self.folder().describe()?;
        let entry = volumes::find(&description, name)?.clone();
        let to = match &entry.moving {
            Some(target) if !wish.is_none() => {
                let message = format!("volume '{name}' is already being migrated, to {}", target.layout);
                let hint = format!(
                    "continue with `braid volume migrate {name}`, or go back with `braid volume migrate {name} --abort`"
                );
                return Err(Failure::failed("already-moving", message).hint(hint));
            }
            Some(_) => None,
            None if wish.is_none() => {
                return Err(Failure::usage("no-target", "no target was given: use --layout, --unit or --devices"));
            }
            None => Some(target(&description, &entry, wish)?),
        };
        let session = self.migrating().await?;
        let outcome = migrate(&session, &entry, to, bytes_per_second, watcher).await;
        session.end().await;
        let copied = Some(outcome?.copied * BLOCK_BYTES as u64);
        Ok(Migrated { volume: volumes::find(&self.folder().describe()?, name)?.clone(), copied })
    }

    /// Aborts a migration: the volume stays where it was, and what was copied is discarded. Errors: `not-moving`, `not-up`.
    pub async fn abort_migration(&self, name: &str, watcher: &impl Watcher) -> Result<Migrated, Failure> {
        if volumes::find(&self.folder().describe()?, name)?.moving.is_none() {
            return Err(Failure::usage("not-moving", format!("volume '{name}' is not being migrated")));
        }
        let session = self.migrating().await?;
        let outcome = give_up(&session, name, watcher).await;
        session.end().await;
        outcome?;
        Ok(Migrated { volume: volumes::find(&self.folder().describe()?, name)?.clone(), copied: None })
    }

    async fn migrating(&self) -> Result<Session, Failure> {
        require_up(self.folder())?;
        Ok(Session::start(self.folder(), "volume migrate").await?)
    }
}

async fn migrate(
    session: &Session,
    entry: &VolumeEntry,
    to: Option<PlacementEntry>,
    bytes_per_second: u64,
    watcher: &impl Watcher,
) -> Result<MigrationReport, Failure> {
    if let Some(to) = to {
        begin(session, entry, to, watcher).await?;
    }
    let report = copy(session, &entry.name, bytes_per_second, watcher).await?;
    if report.lost > 0 {
        let bytes = BLOCK_BYTES as u64;
        let places: Vec<String> = runs(&report.lost_blocks)
            .iter()
            .take(8)
            .map(|run| format!("bytes {} to {}", run.start * bytes, run.end() * bytes))
            .collect();
        let message = format!(
            "{} of volume '{}' can't be read: {}",
            format_size(report.lost * bytes),
            entry.name,
            places.join(", ")
        );
        let hint = format!(
            "overwrite them, or bring their devices back, and continue with `braid volume migrate {0}`; or go back with --abort",
            entry.name
        );
        return Err(Failure::data_lost("block-lost", message).hint(hint));
    }
    end(session, &entry.name, watcher).await.map(|()| report)
}

/// Adjacent blocks combined into ranges.
fn runs(blocks: &[u64]) -> Vec<BlockRange> {
    let mut sorted = blocks.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<BlockRange> = Vec::new();
    for block in sorted {
        match runs.last_mut() {
            Some(run) if run.end() == block => run.count += 1,
            _ => runs.push(BlockRange::new(block, 1)),
        }
    }
    runs
}

/// The placement of a volume at the target. Fails if the volume can't be migrated there.
pub fn target(
    description: &ArrayDescription,
    entry: &VolumeEntry,
    wish: &MigrationTarget,
) -> Result<PlacementEntry, Failure> {
    let volume = volumes::describe(entry)?;
    let name = &entry.name;
    if volume.atomicity != Atomicity::Implied {
        let message = format!(
            "volume '{name}' has atomicity {}, and only volumes with atomicity {} can be migrated",
            volume.atomicity,
            Atomicity::Implied
        );
        return Err(Failure::failed("cannot-move", message).hint("create another volume, and copy the content"));
    }
    if volume.ordering == Ordering::None {
        let message = format!("volume '{name}' has ordering none, which can't protect the copy from concurrent writes");
        let hint = format!("change it first: `braid volume set-ordering {name} timestamp`; change it back afterwards");
        return Err(Failure::failed("cannot-move", message).hint(hint));
    }
    if volume.ordering.needs_lock_server() && description.lock_servers().count() > 1 {
        // Locks are distributed over the lock servers by the placement of stripes.
        let message =
            format!("volume '{name}' uses several lock servers, and its locks are distributed by its placement");
        let hint = format!(
            "change its ordering first: `braid volume set-ordering {name} timestamp`; change it back afterwards"
        );
        return Err(Failure::failed("cannot-move", message).hint(hint));
    }
    let scheme = wish.scheme.unwrap_or(volume.layout.scheme());
    let unit = wish.unit.unwrap_or(entry.unit);
    let chosen = |id: u16| wish.devices.as_ref().is_none_or(|devices| devices.contains(&id));
    if let Some(stranger) =
        wish.devices.iter().flatten().find(|id| description.ready_devices().all(|device| device.id != **id))
    {
        return Err(Failure::usage("no-such-device", format!("the array has no device {stranger}")));
    }
    let domains: Vec<(u16, String)> = description
        .ready_devices()
        .filter(|device| chosen(device.id))
        .map(|device| (device.id, device.domain.clone()))
        .collect();
    // This fails if there are too few devices, or failure domains.
    let mut devices = volumes::ring(&domains, scheme)?;
    let layout = creation::layout(scheme, devices.len(), unit)?;
    if !volume.can_move_to(&layout) {
        let message = format!(
            "volume '{name}' can't be migrated from {} to {scheme}: only one of them is redundant",
            volume.layout.scheme()
        );
        return Err(Failure::failed("cannot-move", message).hint("create another volume, and copy the content"));
    }
    let mut same = entry.devices.clone();
    same.sort_unstable();
    devices.sort_unstable();
    if scheme == volume.layout.scheme() && unit == entry.unit && devices == same {
        return Err(Failure::usage("same-place", format!("volume '{name}' already lies there"))
            .hint("choose another place with --layout, --unit or --devices"));
    }
    let devices = volumes::ring(&domains, scheme)?;
    let first_block = volume.place_for(&layout);
    Ok(PlacementEntry { layout: scheme.to_string(), unit, devices, first_block, copied_to: 0 })
}

/// Begins a migration; afterwards the volume is written on both sides.
pub async fn begin(
    session: &Session,
    entry: &VolumeEntry,
    to: PlacementEntry,
    watcher: &impl Watcher,
) -> Result<(), Failure> {
    let to = braid_session::change(&EntryChange::Move(to))?;
    let before = volumes::describe(entry)?;
    let after = to.applied_to(&before);
    after.check()?;
    volumes::require_in(
        session.folder(),
        &after.holders(),
        &format!("migration of volume '{}' can't begin", entry.name),
    )?;
    for device in after.holders() {
        let blocks = |volume: &braid_layout::VolumeDescription| {
            volume.object_on(device).map_or(0, |range| range.count.next_multiple_of(volumes::CHUNK_BLOCKS))
        };
        let (needed, room) = (blocks(&after) - blocks(&before), volumes::room_on(session, device).await?);
        if needed > room {
            return Err(no_room(device, needed, room));
        }
    }
    volume_hold::apply(session, &entry.name, to, |what| watcher.stage(what)).await
}

/// Copies all that is not copied yet. The report lists what could not be read.
pub async fn copy(
    session: &Session,
    name: &str,
    bytes_per_second: u64,
    watcher: &impl Watcher,
) -> Result<MigrationReport, Failure> {
    let volume = session.take_in(name).await?;
    let folder = session.folder();
    let from = volumes::find(&folder.describe()?, name)?.moving.as_ref().map_or(0, |target| target.copied_to);
    let request = JobRequest::Migrate { volume: volume.id, from, bytes_per_second };
    let asked = session.client().call(request);
    tokio::pin!(asked);
    let (mut noted, mut note) = (Instant::now(), from);
    loop {
        tokio::select! {
            outcome = &mut asked => {
                let HostSuccess::Migrated(report) = outcome? else {
                    return Err(Failure::failed("internal", "a host gave an unexpected answer"));
                };
                if report.copied_to < volume.blocks() {
                    let message = format!("the migration of volume '{name}' was ended or abandoned by another command");
                    return Err(Failure::failed("volume-moving", message).hint("`braid volume info` shows its state"));
                }
                return Ok(report);
            }
            loss = session.lost() => return Err(loss.into()),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let Some(progress) = session.view().migrating(volume.id) else { continue };
        let bytes = BLOCK_BYTES as u64;
        watcher.progress(volume.bytes, progress.cursor * bytes, progress.copied * bytes);
        if noted.elapsed() >= NOTE_EVERY && progress.cursor > note && !progress.lost {
            (noted, note) = (Instant::now(), progress.cursor);
            note_progress(session, name, &volume, progress.cursor)?;
        }
    }
}

/// Ends a migration: frees the source.
pub async fn end(session: &Session, name: &str, watcher: &impl Watcher) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        match volume_hold::apply(session, name, Change::EndMove, |what| watcher.stage(what)).await {
            Err(failure) if failure.code == volumes::DEGRADED && begun.elapsed() < IN_WAIT => {
                watcher.stage("everything is copied: waiting until every device is in");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(failure) if failure.code == volumes::DEGRADED => {
                let hint = format!(
                    "everything is copied, and the volume is usable: `braid volume migrate {name}` ends the migration when every device is in"
                );
                return Err(failure.hint(hint));
            }
            outcome => return outcome,
        }
    }
}

/// Abandons a migration: frees the target.
pub async fn give_up(session: &Session, name: &str, watcher: &impl Watcher) -> Result<(), Failure> {
    volume_hold::apply(session, name, Change::GiveUpMove, |what| watcher.stage(what)).await
}

/// Records the progress in the description, for a later process that continues the migration.
fn note_progress(
    session: &Session,
    name: &str,
    volume: &braid_layout::VolumeDescription,
    cursor: u64,
) -> Result<(), Failure> {
    session.folder().update(|description| {
        let entry = description.volume_mut(name).filter(|entry| entry.id == volume.id.0);
        if let Some(target) = entry.and_then(|entry| entry.moving.as_mut()) {
            target.copied_to = target.copied_to.max(cursor);
        }
        Ok(())
    })
}

fn no_room(device: DeviceId, needed: u64, room: u64) -> Failure {
    let size = |blocks: u64| braid_base::units::format_size(blocks * BLOCK_BYTES as u64);
    let message =
        format!("device {device} has {} free, but the migration needs {} more there", size(room), size(needed));
    Failure::failed("device-full", message).hint("delete a volume, or choose other devices with --devices")
}
