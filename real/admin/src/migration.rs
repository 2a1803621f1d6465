//! Migration of a volume to other devices or another layout, while hosts use it (`docs/healing.md`).
//!
//! ```text
//!   Ready ─► on hold: devices reserve space ─► moving: hosts write on both sides, one copies the rest
//!         ─► on hold: devices free space ─► Ready
//! ```
//!
//! The order of the steps is the core's (`braid_control_protocol::Migration`). If the migrating process dies while the volume is on hold,
//! [`crate::operation_driver`] completes or reverts the change. A volume that is moving is fully usable; the same command again continues the
//! migration from about where the previous one stopped.

use crate::array::Array;
use crate::array_creation;
use crate::failure::Failure;
use crate::operation_driver::{self, Answered, Work, Worker};
use crate::volumes;
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, BlockRange, Extents, VolumeId};
use braid_control::{ArrayDescription, Change as EntryChange, PlacementEntry, VolumeEntry, VolumeState};
use braid_control_protocol::{Answer, Change, Migration, Question, Timing, VolumeChange};
use braid_layout::{Atomicity, RaidLevel};
use braid_machine::{HostError, HostSuccess, JobRequest, MigrationReport};
use braid_ordering::Ordering;
use braid_session::Session;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

/// The interval at which progress is reported.
const LOOK_EVERY: Duration = Duration::from_millis(200);

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

    /// True if it specifies the target of a migration that is under way.
    fn is(&self, current: &PlacementEntry, description: &ArrayDescription, entry: &VolumeEntry) -> bool {
        target(description, entry, self).is_ok_and(|to| {
            to.layout == current.layout && to.unit == current.unit && set(&to.devices) == set(&current.devices)
        })
    }
}

/// Receives the progress of a migration.
pub trait Watcher {
    /// A step has begun.
    fn stage(&self, what: &str);
    /// So many of the volume's `bytes` were examined, and so many copied.
    fn progress(&self, bytes: u64, looked: u64, copied: u64);
}

#[derive(Clone, Debug)]
pub struct Migrated {
    /// The volume after it.
    pub volume: VolumeEntry,
    /// Bytes copied by this operation; none if it was aborted.
    pub copied: Option<u64>,
}

/// The role of the hosts that migrate.
const WHAT: &str = "volume migrate";

impl Array {
    /// Migrates a volume to other devices or another layout while it is in use, or continues an interrupted migration (then `wish` must
    /// be empty, or the target of that migration). Copies at most `bytes_per_second`; zero means as fast as a rebuild. Returns when the
    /// volume lies at the target alone. Errors: `no-target`, `cannot-move`, `same-place`, `already-moving`, `volume-degraded`,
    /// `device-full`, `block-lost` (some blocks can't be read), `volume-reordering`, `not-up`.
    pub async fn migrate_volume(
        &self,
        name: &str,
        wish: &MigrationTarget,
        bytes_per_second: u64,
        watcher: &impl Watcher,
    ) -> Result<Migrated, Failure> {
        let (entry, completed) = self.settled(name).await?;
        let description = self.control().describe().await?;
        let to = match &entry.moving {
            Some(current) if !wish.is_none() && !wish.is(current, &description, &entry) => {
                let message = format!("volume '{name}' is already being migrated, to {}", current.layout);
                let hint = format!(
                    "continue with `braid volume migrate {name}`, or go back with `braid volume migrate {name} --abort`"
                );
                return Err(Failure::failed("already-moving", message).hint(hint));
            }
            Some(_) => None,
            None if wish.is_none() && completed == Some(EntryChange::EndMove) => {
                return Ok(Migrated { volume: entry, copied: Some(0) });
            }
            None if wish.is_none() => {
                return Err(Failure::usage("no-target", "no target was given: use --layout, --unit or --devices"));
            }
            None => Some(target(&description, &entry, wish)?),
        };
        let work = async |session: &Session| migrate(session, &entry, to, bytes_per_second, watcher).await;
        let copied = Some(self.with_host(WHAT, work).await? * BLOCK_BYTES as u64);
        Ok(Migrated { volume: volumes::find(&self.control().describe().await?, name)?.clone(), copied })
    }

    /// All devices that are ready, and each volume at rest with whether it could be migrated to all of them now.
    pub async fn try_targets(&self) -> Result<(Vec<u16>, Vec<(String, Result<(), Failure>)>), Failure> {
        let description = self.control().describe().await?;
        let devices: Vec<u16> = description.ready_devices().map(|device| device.id).collect();
        let wish = MigrationTarget { devices: Some(devices.clone()), ..MigrationTarget::default() };
        let at_rest = |entry: &&VolumeEntry| entry.state == VolumeState::Ready && entry.moving.is_none();
        let tried = self.with_host(WHAT, async |session| {
            let mut tried = Vec::new();
            for entry in description.volumes.iter().filter(at_rest) {
                let checked = match target(&description, entry, &wish) {
                    Ok(to) => check_target(session, entry, &to).await,
                    Err(failure) => Err(failure),
                };
                tried.push((entry.name.clone(), checked));
            }
            Ok(tried)
        });
        Ok((devices, tried.await?))
    }

    /// Aborts a migration: the volume stays where it was, and what was copied is discarded. Errors: `not-moving`, `volume-reordering`,
    /// `not-up`.
    pub async fn abort_migration(&self, name: &str, watcher: &impl Watcher) -> Result<Migrated, Failure> {
        let (entry, completed) = self.settled(name).await?;
        if entry.moving.is_none() && completed == Some(EntryChange::GiveUpMove) {
            return Ok(Migrated { volume: entry, copied: None });
        }
        if entry.moving.is_none() {
            return Err(Failure::usage("not-moving", format!("volume '{name}' is not being migrated")));
        }
        let give_up = async |session: &Session| {
            let what = format!("migration of volume '{name}' can't be abandoned");
            let change = VolumeChange::new(session.generation(), Change::GiveUpMove, Timing::default());
            operation_driver::perform(session, name, what, change, None, |what| watcher.stage(what)).await
        };
        self.with_host(WHAT, give_up).await?;
        Ok(Migrated { volume: volumes::find(&self.control().describe().await?, name)?.clone(), copied: None })
    }

    /// The volume, after a change of it that was interrupted has been completed or reverted; and the change that was completed. Without
    /// this, a command that follows one that was killed would judge by a state that is about to change.
    async fn settled(&self, name: &str) -> Result<(VolumeEntry, Option<EntryChange>), Failure> {
        let entry = volumes::find(&self.control().describe().await?, name)?.clone();
        let completed = match &entry.state {
            VolumeState::Draining { .. } => None,
            VolumeState::Reordering { to, .. } => Some(to.clone()),
            _ => return Ok((entry, None)),
        };
        let settled = self.with_host(WHAT, async |session| operation_driver::settled(session, name).await).await?;
        Ok((settled, completed))
    }
}

async fn migrate(
    session: &Session,
    entry: &VolumeEntry,
    to: Option<PlacementEntry>,
    bytes_per_second: u64,
    watcher: &impl Watcher,
) -> Result<u64, Failure> {
    let (name, own, timing) = (&entry.name, session.generation(), Timing::default());
    let migration = match to {
        Some(to) => {
            check_target(session, entry, &to).await?;
            let Change::Move(target) = braid_description::change(&EntryChange::Move(to))? else {
                unreachable!("a target is a move")
            };
            Migration::to(own, target, timing)
        }
        None => Migration::continuing(own, timing),
    };
    let what = format!("volume '{name}' can't be migrated");
    let (volume, copied, is_done) = (Cell::default(), Cell::new(0), Cell::new(false));
    let copier = Copier { session, name, bytes_per_second, watcher, volume, copied, is_done };
    let stage = |what: &str| watcher.stage(what);
    match operation_driver::perform(session, name, what, migration, Some(&copier), stage).await {
        Err(failure) if failure.code == volumes::DEGRADED && copier.is_done.get() => {
            let hint = format!(
                "everything is copied, and the volume is usable: `braid volume migrate {name}` ends the migration when every device is in"
            );
            Err(failure.hint(hint))
        }
        outcome => outcome.map(|()| copier.copied.get()),
    }
}

/// Copies with the session's own host.
pub struct Copier<'a> {
    session: &'a Session,
    name: &'a str,
    bytes_per_second: u64,
    watcher: &'a dyn Watcher,
    /// The volume, once it is being copied.
    volume: Cell<Option<VolumeId>>,
    /// The number of blocks copied.
    copied: Cell<u64>,
    /// Everything was copied.
    is_done: Cell<bool>,
}

impl Worker for Copier<'_> {
    fn begin(&self, question: &Question) -> Option<Work<'_>> {
        match *question {
            Question::Copy { from } => Some(Work::UnderWay(Box::pin(self.copy(from)))),
            Question::CopyProgress => Some(Work::Answered(self.progress())),
            _ => None,
        }
    }
}

impl Copier<'_> {
    /// Copies all content from this block on, until all is copied or the host has stopped.
    pub async fn copy(&self, from: u64) -> Answered {
        self.try_copy(from).await.unwrap_or_else(|failure| (Answer::Failed, Some(failure)))
    }

    async fn try_copy(&self, from: u64) -> Result<Answered, Failure> {
        let volume = self.session.take_in(self.name).await?;
        self.volume.set(Some(volume.id));
        let request = JobRequest::Migrate { volume: volume.id, from, bytes_per_second: self.bytes_per_second };
        let asked = self.session.client().call(request);
        tokio::pin!(asked);
        let report = loop {
            tokio::select! {
                outcome = &mut asked => match outcome {
                    Ok(HostSuccess::Migrated(report)) => break report,
                    Ok(_) => return Err(Failure::failed("internal", "a host gave an unexpected answer")),
                    Err(HostError::NotMoving) => return Ok((Answer::No, Some(HostError::NotMoving.into()))),
                    Err(error) => return Err(error.into()),
                },
                loss = self.session.lost() => return Err(loss.into()),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let Some(progress) = self.session.view().migrating(volume.id) else { continue };
            let bytes = BLOCK_BYTES as u64;
            self.watcher.progress(volume.bytes, progress.cursor * bytes, progress.copied * bytes);
        };
        self.copied.set(self.copied.get() + report.copied);
        self.is_done.set(report.copied_to >= volume.blocks() && report.lost == 0);
        let reason = (report.lost > 0).then(|| blocks_lost(self.name, &report));
        Ok((Answer::Copied { copied_to: report.copied_to, lost: report.lost }, reason))
    }

    /// What is copied so far.
    pub fn progress(&self) -> Answer {
        match self.volume.get().and_then(|id| self.session.view().migrating(id)) {
            Some(progress) => Answer::Copied { copied_to: progress.cursor, lost: progress.lost.into() },
            None => Answer::No,
        }
    }
}

fn blocks_lost(name: &str, report: &MigrationReport) -> Failure {
    let bytes = BLOCK_BYTES as u64;
    let mut lost = Extents::default();
    report.lost_blocks.iter().for_each(|block| lost.insert(BlockRange::new(*block, 1)));
    let place = |run: BlockRange| format!("bytes {} to {}", run.start * bytes, run.end() * bytes);
    let places: Vec<String> = lost.from(0).take(8).map(place).collect();
    let message =
        format!("{} of volume '{name}' can't be read: {}", format_size(report.lost * bytes), places.join(", "));
    let hint = format!(
        "overwrite them, or bring their devices back, and continue with `braid volume migrate {name}`; or go back with --abort"
    );
    Failure::data_lost("block-lost", message).hint(hint)
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
        let (own, movable) = (volume.atomicity, Atomicity::Implied);
        let message =
            format!("volume '{name}' has atomicity {own}, and only volumes with atomicity {movable} can be migrated");
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
    let domains = volumes::chosen_domains(description, wish.devices.as_deref())?;
    // This fails if there are too few devices, or failure domains.
    let devices = volumes::ring(&domains, scheme)?;
    let layout = array_creation::layout(scheme, devices.len(), unit)?;
    if !volume.can_move_to(&layout) {
        let message = format!(
            "volume '{name}' can't be migrated from {} to {scheme}: only one of them is redundant",
            volume.layout.scheme()
        );
        return Err(Failure::failed("cannot-move", message).hint("create another volume, and copy the content"));
    }
    if scheme == volume.layout.scheme() && unit == entry.unit && set(&devices) == set(&entry.devices) {
        return Err(Failure::usage("same-place", format!("volume '{name}' already lies there"))
            .hint("choose another place with --layout, --unit or --devices"));
    }
    let first_block = volume.place_for(&layout);
    Ok(PlacementEntry { layout: scheme.to_string(), unit, devices, first_block, copied_to: 0, begun: 0 })
}

fn set(devices: &[u16]) -> BTreeSet<u16> {
    devices.iter().copied().collect()
}

/// Fails if a device has too little space for its part of the target.
async fn check_target(session: &Session, entry: &VolumeEntry, to: &PlacementEntry) -> Result<(), Failure> {
    let before = volumes::describe(entry)?;
    let after = braid_description::change(&EntryChange::Move(to.clone()))?.applied_to(&before);
    after.check()?;
    let what = format!("migration of volume '{}' can't begin", entry.name);
    volumes::require_in(session.control(), &after.holders(), &what).await?;
    match volumes::lacking(session, &before, &after).await? {
        Some((device, needed, room)) => {
            let [needed, room] = [needed, room].map(|blocks| format_size(blocks * BLOCK_BYTES as u64));
            let message = format!("device {device} has {room} free, but the migration needs {needed} more there");
            Err(Failure::failed("device-full", message).hint("delete a volume, or choose other devices with --devices"))
        }
        None => Ok(()),
    }
}
