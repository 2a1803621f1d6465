//! Creating, changing and deleting volumes of a running array.

use crate::array::Array;
use crate::creation;
use crate::failure::Failure;
use crate::status::nbd_uri;
use crate::volume_hold;
use crate::volumes::{self, NewVolume};
use braid_base::DeviceId;
use braid_base::units::format_size;
use braid_control::{FileSystemEntry, VolumeEntry, WhenUnavailable};
use braid_layout::Atomicity;
use braid_ordering::Ordering;
use braid_session::require_up;

/// The smallest attribute volume: one bucket (docs/attribute-volumes.md).
const ATTRIBUTE_VOLUME_BYTES_MIN: u64 = braid_objects::bucket::BUCKET_BYTES as u64;

/// The result of changing a volume's ordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderingChange {
    /// The previous ordering.
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
        creation::check_name(&new.name)?;
        let is_reserved =
            |entry: &&FileSystemEntry| entry.volumes().contains(&new.name) && description.volume(&new.name).is_none();
        if let Some(entry) = description.file_systems.iter().find(is_reserved) {
            let message = format!("the name {} is reserved for file system {}", new.name, entry.name);
            return Err(Failure::failed("volume-exists", message).hint("choose another name"));
        }
        creation::check_multiple("--size", new.bytes)?;
        if new.attribute_volume && (new.ordering == Ordering::None || new.atomicity != Atomicity::Implied) {
            let message = "requests on an attribute volume are atomic and executed once: this requires an ordering other than none, and atomicity implied";
            return Err(Failure::usage("not-an-attribute-volume", message));
        }
        if new.attribute_volume && new.bytes < ATTRIBUTE_VOLUME_BYTES_MIN {
            return Err(too_small(new.bytes));
        }
        let devices = volumes::chosen_domains(&description, new.devices.as_deref())?;
        let devices: Vec<DeviceId> = devices.into_iter().map(|(device, _)| DeviceId(device)).collect();
        let (scheme, unit) = new.layout_in(&description)?;
        creation::layout(scheme, devices.len(), unit)?;
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
        self.control()
            .update(|description| {
                let entry = volumes::changeable(description, name)?;
                let before = entry.unavailable();
                entry.unavailable = Some(to).filter(|to| *to != WhenUnavailable::DEFAULT);
                Ok(before)
            })
            .await
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
        let change = async |session: &braid_session::Session| volume_hold::change(session, name, to, progress).await;
        let changed = self.with_host("volume set-ordering", change).await?;
        Ok(OrderingChange { before, changed })
    }
}

fn too_small(bytes: u64) -> Failure {
    let (size, least) = (format_size(bytes), format_size(ATTRIBUTE_VOLUME_BYTES_MIN));
    let message = format!("--size: {size} is too small for an attribute volume, which has at least {least}");
    Failure::usage("bad-size", message).hint("use --size 64MiB, for example: an attribute volume can't grow later")
}
