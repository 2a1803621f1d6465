//! Moving a volume to other devices or another layout, while hosts use it (`docs/healing.md`).
//!
//! ```text
//!   Ready ─► on hold: devices make room ─► moving: hosts write on both sides, one copies the rest ─► on hold: devices give back ─► Ready
//! ```
//!
//! What is on hold is seen to by [`crate::ordering`], whoever dies. A volume that moves is as good as any other; whoever asks for the same
//! again goes on with it, from about where the one before was.

use crate::array::Array;
use crate::creation;
use crate::failure::Failure;
use crate::ordering;
use crate::volumes;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, BlockRange, DeviceId};
use braid_control::{ArrayDescription, Change, PlacementEntry, VolumeEntry};
use braid_layout::{Atomicity, Scheme};
use braid_machine::{HostRequest, HostSuccess, MigrationReport};
use braid_session::{Session, require_up};
use braid_wire::Ordering;
use std::time::{Duration, Instant};

/// How often it is looked how far it is, and how often that is written down.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const NOTE_EVERY: Duration = Duration::from_secs(3);
/// How long to wait for devices that must be in at the end.
const IN_WAIT: Duration = Duration::from_secs(60);

/// Where to, as far as it is said.
#[derive(Clone, Debug, Default)]
pub struct MigrationTarget {
    /// To which layout; as it is, unless said otherwise.
    pub scheme: Option<Scheme>,
    /// To units of so many bytes; as they are, unless said otherwise.
    pub unit: Option<u64>,
    /// To which devices; all of the array, unless said otherwise.
    pub devices: Option<Vec<u16>>,
}

impl MigrationTarget {
    /// True if nothing is said.
    pub fn is_none(&self) -> bool {
        self.scheme.is_none() && self.unit.is_none() && self.devices.is_none()
    }
}

/// What there is to say while a volume moves.
pub trait Watcher {
    /// This is being done.
    fn stage(&self, what: &str);
    /// So many bytes of the volume's `bytes` were looked through, and so many copied.
    fn progress(&self, bytes: u64, looked: u64, copied: u64);
}

/// What became of a migration.
#[derive(Clone, Debug)]
pub struct Migrated {
    /// The volume as it is now.
    pub volume: VolumeEntry,
    /// Bytes that this operation has copied; none if it went back.
    pub copied: Option<u64>,
}

impl Array {
    /// Moves a volume to other devices or another layout while it is used, or goes on with a migration that was cut short (then nothing may be
    /// wished). At most `bytes_per_second` are copied a second; zero: as a rebuild. Ends when the volume lies there alone. Errors: `no-target`,
    /// `cannot-move`, `same-place`, `already-moving`, `volume-degraded`, `device-full`, `block-lost` (some of it can't be read), `not-up`.
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
                let message = format!("volume '{name}' moves already, to {}", target.layout);
                let hint =
                    format!("`braid volume migrate {name}` goes on, `braid volume migrate {name} --abort` goes back");
                return Err(Failure::failed("already-moving", message).hint(hint));
            }
            Some(_) => None,
            None if wish.is_none() => {
                return Err(Failure::usage("no-target", "say where to with --layout, --unit or --devices"));
            }
            None => Some(target(&description, &entry, wish)?),
        };
        let session = self.migrating().await?;
        let outcome = migrate(&session, &entry, to, bytes_per_second, watcher).await;
        session.end().await;
        let copied = Some(outcome?.copied * BLOCK_BYTES as u64);
        Ok(Migrated { volume: volumes::find(&self.folder().describe()?, name)?.clone(), copied })
    }

    /// Has a volume that moves stay where it lies, and gives up what was copied. Errors: `not-moving`, `not-up`.
    pub async fn abort_migration(&self, name: &str, watcher: &impl Watcher) -> Result<Migrated, Failure> {
        if volumes::find(&self.folder().describe()?, name)?.moving.is_none() {
            return Err(Failure::usage("not-moving", format!("volume '{name}' does not move")));
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
            "overwrite them, or bring their devices back, and go on with `braid volume migrate {0}`; --abort goes back",
            entry.name
        );
        return Err(Failure::data_lost("block-lost", message).hint(hint));
    }
    end(session, &entry.name, watcher).await.map(|()| report)
}

/// Neighbouring blocks together.
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

/// The place of a volume that is to lie as wished; refused where it can't move there.
pub fn target(
    description: &ArrayDescription,
    entry: &VolumeEntry,
    wish: &MigrationTarget,
) -> Result<PlacementEntry, Failure> {
    let volume = volumes::describe(entry)?;
    let name = &entry.name;
    if volume.atomicity != Atomicity::Implied {
        let message = format!(
            "volume '{name}' has the atomicity {}, and only those with {} can move",
            volume.atomicity,
            Atomicity::Implied
        );
        return Err(Failure::failed("cannot-move", message).hint("make another volume, and copy what is in it"));
    }
    if volume.ordering == Ordering::None {
        let message = format!("volume '{name}' has the ordering none: nothing would keep the copy and its users apart");
        let hint = format!("`braid volume set-ordering {name} timestamp`, and none again afterwards");
        return Err(Failure::failed("cannot-move", message).hint(hint));
    }
    if volume.ordering.needs_lock_server() && description.lock_servers().count() > 1 {
        // Which server has which locks follows from where stripes lie.
        let message =
            format!("the locks of volume '{name}' are shared out over several lock servers, by where it lies");
        let hint = format!("`braid volume set-ordering {name} timestamp`, and back afterwards");
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
    // Too few devices, or domains, is found out here.
    let mut devices = volumes::ring(&domains, scheme)?;
    let layout = creation::layout(scheme, devices.len(), unit)?;
    if !volume.can_move_to(&layout) {
        let message = format!(
            "volume '{name}' can't move from {} to {scheme}: one can do without a device, and the other can't",
            volume.layout.scheme()
        );
        return Err(Failure::failed("cannot-move", message).hint("make another volume, and copy what is in it"));
    }
    let mut same = entry.devices.clone();
    same.sort_unstable();
    devices.sort_unstable();
    if scheme == volume.layout.scheme() && unit == entry.unit && devices == same {
        return Err(Failure::usage("same-place", format!("volume '{name}' lies so already"))
            .hint("say where to with --layout, --unit or --devices"));
    }
    let devices = volumes::ring(&domains, scheme)?;
    let first_block = volume.place_for(&layout);
    Ok(PlacementEntry { layout: scheme.to_string(), unit, devices, first_block, copied_to: 0 })
}

/// Begins to move a volume; afterwards it is written on both sides.
pub async fn begin(
    session: &Session,
    entry: &VolumeEntry,
    to: PlacementEntry,
    watcher: &impl Watcher,
) -> Result<(), Failure> {
    let to = Change::Move(to);
    let (before, after) = (volumes::describe(entry)?, volumes::describe(&entry.changed(&to))?);
    volumes::require_in(session.folder(), &after.holders(), &format!("volume '{}' can't begin to move", entry.name))?;
    for device in after.holders() {
        let blocks = |volume: &braid_layout::VolumeDescription| {
            volume.object_on(device).map_or(0, |range| range.count.next_multiple_of(volumes::CHUNK_BLOCKS))
        };
        let (needed, room) = (blocks(&after) - blocks(&before), volumes::room_on(session, device).await?);
        if needed > room {
            return Err(no_room(device, needed, room));
        }
    }
    ordering::apply(session, &entry.name, to, |what| watcher.stage(what)).await
}

/// Copies all that is not copied yet. What could not be read is in the report.
pub async fn copy(
    session: &Session,
    name: &str,
    bytes_per_second: u64,
    watcher: &impl Watcher,
) -> Result<MigrationReport, Failure> {
    let volume = session.take_in(name).await?;
    let folder = session.folder();
    let from = volumes::find(&folder.describe()?, name)?.moving.as_ref().map_or(0, |target| target.copied_to);
    let request = HostRequest::Migrate { volume: volume.id, from, bytes_per_second };
    let asked = session.client().call(request);
    tokio::pin!(asked);
    let (mut noted, mut note) = (Instant::now(), from);
    loop {
        tokio::select! {
            outcome = &mut asked => {
                let HostSuccess::Migrated(report) = outcome? else {
                    return Err(Failure::failed("internal", "a host answered something else than what was asked"));
                };
                if report.copied_to < volume.blocks() {
                    let message = format!("the move of volume '{name}' was given up, or ended, by somebody else");
                    return Err(Failure::failed("volume-moving", message).hint("`braid volume info` shows how it is"));
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

/// Gives up the place that a volume has moved from.
pub async fn end(session: &Session, name: &str, watcher: &impl Watcher) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        match ordering::apply(session, name, Change::EndMove, |what| watcher.stage(what)).await {
            Err(failure) if failure.code == volumes::DEGRADED && begun.elapsed() < IN_WAIT => {
                watcher.stage("all is copied: waiting until every device is in");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Err(failure) if failure.code == volumes::DEGRADED => {
                let hint = format!(
                    "all is copied, and users go on: `braid volume migrate {name}` ends it when every device is in"
                );
                return Err(failure.hint(hint));
            }
            outcome => return outcome,
        }
    }
}

/// Gives up the place that a volume moves to.
pub async fn give_up(session: &Session, name: &str, watcher: &impl Watcher) -> Result<(), Failure> {
    ordering::apply(session, name, Change::GiveUpMove, |what| watcher.stage(what)).await
}

/// Writes down how far it is, for whoever has to go on.
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
        format!("device {device} has room for {}, and the move needs {} more there", size(room), size(needed));
    Failure::failed("device-full", message).hint("delete a volume, or choose other devices with --devices")
}
