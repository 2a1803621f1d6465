//! Operations on volumes of a running array: creating, changing, growing and deleting them.
//!
//! Nothing is put on hold for a change of the *parity site*, where the parity of a volume's writes is computed: writes whose parity is computed
//! at different sites mix freely (`docs/parallel-raid.md`). Hosts follow the description of the array, and adopt the new site with their next
//! renewal of the lease.
//!
//! Growth:
//!
//! ```text
//!   Ready ─► on hold: hosts end their operations ─► devices reserve space ─► Ready with the new size, which hosts adopt
//! ```
//!
//! The order of the steps is the core's (`braid_control_protocol::Change::Grow`). If the process dies, the change is completed or reverted
//! like any other. A file system grows with the volume that holds the bytes of its files: its metadata servers take it over anew, with the
//! blocks that were added.

use crate::array::{Array, await_until};
use crate::failure::Failure;
use crate::file_system_operations::FileSystemContent;
use crate::status::nbd_uri;
use crate::volumes::{self, NewVolume};
use crate::{array_creation, file_systems, operation_driver};
use braid_base::units::format_size;
use braid_base::{BLOCK_BYTES, DeviceId};
use braid_control::{ArrayDescription, ControlPlane, FileSystemEntry, HostEntry, Moment, VolumeEntry, WhenUnavailable};
use braid_control_protocol::{Change, Timing, VolumeChange};
use braid_layout::{Atomicity, SitePolicy, VolumeDescription};
use braid_ordering::Ordering;
use braid_session::{Session, require_up};
use std::time::{Duration, Instant};

/// The smallest attribute volume: one bucket (docs/attribute-volumes.md).
const ATTRIBUTE_VOLUME_BYTES_MIN: u64 = braid_objects::bucket::BUCKET_BYTES as u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderingChange {
    pub before: String,
    /// False if the volume had the requested ordering already.
    pub changed: bool,
}

impl Array {
    /// Creates a volume on all devices of the array, or on those chosen. Its space is reserved and reads as zeros; running NBD servers serve it at once. If the
    /// creation fails, nothing of it remains. Errors: `volume-exists`, `device-full`, `volume-degraded` (a device is not in), `not-up`, and
    /// `bad-name`, `bad-size`, `bad-layout` for invalid parameters.
    pub async fn create_volume(&self, new: &NewVolume) -> Result<VolumeEntry, Failure> {
        let description = self.control().describe().await?;
        array_creation::check_name(&new.name)?;
        let is_reserved =
            |entry: &&FileSystemEntry| entry.volumes().contains(&new.name) && description.volume(&new.name).is_none();
        if let Some(entry) = description.file_systems.iter().find(is_reserved) {
            let message = format!("the name {} is reserved for file system {}", new.name, entry.name);
            return Err(Failure::failed("volume-exists", message).hint("choose another name"));
        }
        array_creation::check_multiple("--size", new.bytes)?;
        if new.attribute_volume && (new.ordering == Ordering::None || new.atomicity != Atomicity::Implied) {
            let message = "requests on an attribute volume are atomic and executed once: this requires an ordering other than none, and atomicity implied";
            return Err(Failure::usage("not-an-attribute-volume", message));
        }
        if new.attribute_volume && new.bytes < ATTRIBUTE_VOLUME_BYTES_MIN {
            return Err(too_small(new.bytes));
        }
        let devices = volumes::chosen_domains(&description, new.devices.as_deref())?;
        let devices: Vec<DeviceId> = devices.into_iter().map(|(device, _)| device).collect();
        let (scheme, unit) = new.layout_in(&description)?;
        array_creation::layout(scheme, devices.len(), unit)?;
        require_up(self.control()).await?;
        volumes::require_in(self.control(), &devices, "a volume can't be created").await?;
        self.with_host("volume create", async |session| {
            let mut outcome = volumes::create(session, new).await;
            if let Err(failure) = &mut outcome
                && failure.code == "device-full"
                && let Ok(free) = volumes::free(session, new).await
            {
                let (name, asked, free) = (&new.name, format_size(new.bytes), format_size(free));
                failure.message =
                    format!("volume {name}: {asked} asked for, but only {free} free beside the existing volumes");
                let hint = "`braid status` shows the free space of each device: choose devices with --devices, a smaller size, delete a volume, or add devices with `braid device add`";
                failure.hint = Some(hint.to_string());
            }
            outcome
        })
        .await
    }

    /// The URI of a volume on the NBD server of `braid up`; none if the array is not up.
    pub async fn nbd_uri(&self, name: &str) -> Result<Option<String>, Failure> {
        Ok(self.control().running().await?.and_then(|running| nbd_uri(&running, name)))
    }

    /// Fails if a volume can't be deleted now: it must exist, the array must be up, and all of the volume's devices must be in.
    pub async fn check_deletable(&self, name: &str) -> Result<(), Failure> {
        let description = self.control().describe().await?;
        let volume = match description.volume(name) {
            Some(entry) if description.file_system_of(entry).is_none() => volumes::describe(entry)?,
            _ => volumes::describe(braid_description::find_for_programs(&description, name)?)?,
        };
        require_up(self.control()).await?;
        volumes::require_in(self.control(), &volume.devices, &format!("volume '{name}' can't be deleted")).await
    }

    /// Deletes a volume with its content. Clients that have it open get errors from then on.
    pub async fn delete_volume(&self, name: &str) -> Result<(), Failure> {
        self.check_deletable(name).await?;
        self.with_host("volume delete", async |session| volumes::delete(session, name).await).await
    }

    /// Sets what requests for a volume do while devices are missing that they need, for connections that are opened afterwards. Returns the
    /// setting before. The array need not be up. Errors: `no-such-volume`, `is-an-attribute-volume`, `volume-reordering`.
    pub async fn set_unavailable(&self, name: &str, to: WhenUnavailable) -> Result<WhenUnavailable, Failure> {
        if braid_description::find_for_programs(&self.control().describe().await?, name)?.attribute_volume {
            let message = format!("{name} is an attribute volume: each request has a time-out of its own");
            return Err(Failure::usage("is-an-attribute-volume", message));
        }
        let set = |description: &mut ArrayDescription| {
            let entry = volumes::changeable(description, name)?;
            let before = entry.unavailable();
            entry.unavailable = Some(to).filter(|to| *to != WhenUnavailable::DEFAULT);
            Ok(before)
        };
        self.control().update(set).await
    }

    /// Changes a volume's ordering while hosts use it; they pause for about a second. `progress` is called with each step, in words. If
    /// it is interrupted, the process that runs the array completes or reverts the change.
    pub async fn set_ordering(
        &self,
        name: &str,
        to: Ordering,
        progress: impl Fn(&str),
    ) -> Result<OrderingChange, Failure> {
        // A file system relies on the ordering of its volumes.
        let before = braid_description::find_for_programs(&self.control().describe().await?, name)?.ordering.clone();
        let change = async |session: &Session| operation_driver::change(session, name, to, progress).await;
        let changed = self.with_host("volume set-ordering", change).await?;
        Ok(OrderingChange { before, changed })
    }
}

fn too_small(bytes: u64) -> Failure {
    let (size, least) = (format_size(bytes), format_size(ATTRIBUTE_VOLUME_BYTES_MIN));
    let message = format!("--size: {size} is too small for an attribute volume, which has at least {least}");
    Failure::usage("bad-size", message).hint("use --size 64MiB, for example: an attribute volume can't grow later")
}

/// How long to wait until hosts have adopted a change. A suspended host adopts it when it runs again.
const ADOPTION_WAIT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParitySiteChange {
    pub before: String,
    /// False if the volume had the requested site already.
    pub changed: bool,
    /// Why the site has no effect on this volume; none if it has.
    pub without_effect: Option<&'static str>,
    /// The hosts with leases that have not adopted the site yet: they are suspended, or the machine is busy.
    pub pending_hosts: Vec<HostEntry>,
}

impl Array {
    /// Sets where the parity of a volume is computed. Hosts that use the volume adopt it, without a pause; this waits for them for up to
    /// five seconds. The array need not be up. Errors: `no-such-volume`, `volume-reordering`.
    pub async fn set_parity_site(&self, name: &str, to: SitePolicy) -> Result<ParitySiteChange, Failure> {
        let control = self.control();
        let description = control.describe().await?;
        let entry = volumes::find(&description, name)?;
        let (before, without_effect) = (entry.parity_site.clone(), volumes::without_effect(entry)?);
        let changed = before != to.name();
        let revision = if changed { record(control, name, to).await? } else { description.revision };
        let pending_hosts = await_adoption(control, revision).await?;
        Ok(ParitySiteChange { before, changed, without_effect, pending_hosts })
    }
}

/// Records the site in the description of the array. Returns the revision with it.
async fn record(control: &ControlPlane, name: &str, to: SitePolicy) -> Result<u64, Failure> {
    let set = |description: &mut ArrayDescription| {
        let revision = description.revision + 1;
        volumes::changeable(description, name)?.parity_site = to.name().to_string();
        Ok(revision)
    };
    control.update(set).await
}

/// Waits until all hosts with leases have applied a revision of the description. Returns those that have not.
async fn await_adoption(control: &ControlPlane, revision: u64) -> Result<Vec<HostEntry>, Failure> {
    let lease = control.describe().await?.leases().lease();
    let behind = async || {
        let mut hosts = control.leases().hosts(Moment::now(), lease).await?;
        hosts.retain(|host| host.goes_on() && host.report.lock_server.is_none() && host.report.revision < revision);
        Ok(hosts)
    };
    await_until(control, ADOPTION_WAIT, async || Ok(behind().await?.is_empty())).await?;
    behind().await
}

/// How long metadata servers may take to serve the new size.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The failure code if a volume would shrink.
const SHRINKS: &str = "cannot-shrink";

/// The result of growing something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    pub before: u64,
    pub bytes: u64,
}

impl Array {
    /// Grows a volume to this size while hosts use it; they pause for about a second. What is added reads as zeros. NBD clients see the new
    /// size when they connect again. Errors: `cannot-shrink`, `cannot-grow`, `bad-size`, `too-large`, `device-full`, `volume-degraded`,
    /// `volume-moving`, `volume-reordering`, `not-up`.
    pub async fn grow_volume(&self, name: &str, bytes: u64, progress: impl Fn(&str)) -> Result<Grown, Failure> {
        // A file system relies on the size of its volumes.
        braid_description::find_for_programs(&self.control().describe().await?, name)?;
        require_up(self.control()).await?;
        let grow = async |session: &Session| grow(session, name, bytes, progress).await;
        self.with_host("volume resize", grow).await
    }

    /// Grows a file system while it is used: programs pause for some seconds. The room for names stays as it is. Errors: those of
    /// [`Array::grow_volume`], `no-such-file-system`, `file-system-growing`, if a shard does not serve the present size yet, and
    /// `metadata-server-silent`, if one does not answer before, or does not serve the new size soon.
    pub async fn grow_file_system(&self, name: &str, bytes: u64, progress: impl Fn(&str)) -> Result<Grown, Failure> {
        let volume = file_systems::find(&self.control().describe().await?, name)?.data_volume();
        require_up(self.control()).await?;
        let growing = &progress;
        let grow = async |session: &Session| {
            let now = operation_driver::settled(session, &volume).await?.bytes;
            if bytes > now {
                let content = self.content_of_file_system(name).await?;
                require_size(name, now, &content)?;
            }
            grow(session, &volume, bytes, growing).await
        };
        let grown = self.with_host("fs resize", grow).await?;
        progress("waiting for the metadata servers");
        let begun = Instant::now();
        loop {
            let content = self.content_of_file_system(name).await;
            if content.is_ok_and(|content| content.shards.iter().all(|shard| shard.bytes >= grown.bytes)) {
                return Ok(grown);
            }
            if begun.elapsed() > SERVED_WITHIN {
                let message = format!("not every metadata server of file system {name} serves the new size yet");
                let hint = format!("the volume has grown; `braid fs status {name}` shows whether it is served");
                return Err(Failure::unreachable("metadata-server-silent", message).hint(hint));
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

/// Fails unless all shards of a file system have taken over the blocks of its last growth.
fn require_size(name: &str, bytes: u64, content: &FileSystemContent) -> Result<(), Failure> {
    let Some((shard, other)) = content.shards.iter().enumerate().find(|(_, shard)| shard.bytes != bytes) else {
        return Ok(());
    };
    let (known, present) = (format_size(other.bytes), format_size(bytes));
    let message = format!("file system '{name}' has {present}, and its shard {shard} still serves {known}");
    let hint =
        format!("`braid fs resize {name} {bytes}` waits until the last growth is complete; then repeat this command");
    Err(Failure::failed("file-system-growing", message).hint(hint))
}

async fn grow(session: &Session, name: &str, bytes: u64, progress: impl Fn(&str)) -> Result<Grown, Failure> {
    array_creation::check_multiple("SIZE", bytes)?;
    let entry = operation_driver::settled(session, name).await?;
    let grown = Grown { before: entry.bytes, bytes };
    if !check(&entry, bytes)? {
        return Ok(grown);
    }
    let before = volumes::describe(&entry)?;
    let after = Change::Grow(bytes).applied_to(&before);
    volumes::check_size(&after)?;
    let what = format!("volume '{name}' can't grow");
    volumes::require_in(session.control(), &after.holders(), &what).await?;
    if let Some((device, needed, room)) = volumes::lacking(session, &before, &after).await? {
        let most = most(session, &before).await?;
        let [needed, room, most] =
            [needed, room, most / BLOCK_BYTES as u64].map(|it| format_size(it * BLOCK_BYTES as u64));
        let message = format!("device {device} has {room} free, and volume '{name}' needs {needed} more there");
        let hint = format!(
            "it can have {most}; for more, delete a volume, or move it to larger or more devices: `braid volume migrate {name} --devices LIST`"
        );
        return Err(Failure::failed("device-full", message).hint(hint));
    }
    let change = VolumeChange::new(session.generation(), Change::Grow(bytes), Timing::default());
    operation_driver::perform(session, name, what, change, None, progress).await?;
    Ok(grown)
}

/// Whether there is something to do; fails if the volume can't have this size.
fn check(entry: &VolumeEntry, bytes: u64) -> Result<bool, Failure> {
    let (name, size) = (&entry.name, format_size(entry.bytes));
    if bytes < entry.bytes {
        let message = format!("volume '{name}' has {size}, and can't shrink to {}", format_size(bytes));
        return Err(Failure::usage(SHRINKS, message).hint("create a smaller one, and copy the content"));
    }
    if entry.attribute_volume {
        let message = format!("'{name}' is an attribute volume, whose places follow from its size");
        return Err(Failure::failed("cannot-grow", message).hint("create a larger one, and copy the attributes"));
    }
    if entry.moving.is_some() {
        return Err(volumes::moving(name, ", and its size can't be changed meanwhile"));
    }
    Ok(bytes > entry.bytes)
}

/// The most bytes that the volume can have with the free space of its devices.
async fn most(session: &Session, volume: &VolumeDescription) -> Result<u64, Failure> {
    let own = volume.component_blocks().next_multiple_of(volumes::CHUNK_BLOCKS);
    let more = volumes::least_room(session, volume.holders()).await? / volumes::CHUNK_BLOCKS * volumes::CHUNK_BLOCKS;
    Ok(volume.layout.usable_blocks(own + more) * BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system_operations::ShardContent;
    use braid_control::VolumeEntry;

    fn entry(layout: &str, ordering: &str, atomicity: &str) -> VolumeEntry {
        let volume = crate::health::tests::volume(layout.parse().unwrap(), 3);
        VolumeEntry {
            ordering: ordering.into(),
            atomicity: atomicity.into(),
            parity_site: "at-parity".into(),
            ..VolumeEntry::new("vol0".into(), &volume)
        }
    }

    #[test]
    fn only_volumes_with_parity_and_stamps_have_a_parity_site() {
        let has_effect = |entry: &VolumeEntry| volumes::without_effect(entry).unwrap().is_none();
        assert!(has_effect(&entry("raid5:2+1", "timestamp", "implied")));
        for (layout, ordering, atomicity) in [
            ("raid1:2", "timestamp", "implied"),
            ("raid0:3", "timestamp", "implied"),
            ("raid5:2+1", "device-lock", "implied"),
            ("raid5:2+1", "callback-lock", "implied"),
            ("raid5:2+1", "none", "consistent"),
            ("raid5:2+1", "timestamp", "consistent"),
        ] {
            assert!(!has_effect(&entry(layout, ordering, atomicity)), "{layout}, {ordering}, {atomicity}");
        }
        let attributes = VolumeEntry { attribute_volume: true, ..entry("raid5:2+1", "timestamp", "implied") };
        assert!(!has_effect(&attributes));
    }

    #[test]
    fn a_file_system_grows_only_if_each_shard_serves_its_size() {
        let content = |sizes: [u64; 2]| FileSystemContent {
            inodes: 0,
            bytes: 0,
            used_bytes: 0,
            reserved_bytes: 0,
            free_bytes: 0,
            shards: sizes.map(|bytes| ShardContent { inodes: 0, bytes, reserved_bytes: 0, free_bytes: 0 }).into(),
        };
        assert!(require_size("home", 8192, &content([8192, 8192])).is_ok());
        let refused = require_size("home", 8192, &content([8192, 4096])).expect_err("the second one lags");
        let shown = format!("{refused:?}");
        assert!(shown.contains("file-system-growing") && shown.contains("shard 1"), "{shown}");
    }
}
