//! Growing volumes and file systems while they are used.
//!
//! ```text
//!   Ready ─► on hold: hosts end their operations ─► devices reserve space ─► Ready with the new size, which hosts adopt
//! ```
//!
//! The order of the steps is the core's (`braid_control_protocol::Change::Grow`). If the process dies, the change is completed or reverted
//! like any other. A file system grows with the volume that holds the bytes of its files: its metadata servers take it over anew, with the
//! blocks that were added.

use crate::array::Array;
use crate::creation;
use crate::failure::Failure;
use crate::file_system_operations::FileSystemContent;
use crate::{file_systems, volume_hold, volumes};
use braid_base::BLOCK_BYTES;
use braid_base::units::format_size;
use braid_control::VolumeEntry;
use braid_control_protocol::{Administrator, Change, Timing};
use braid_layout::VolumeDescription;
use braid_session::{Session, require_up};
use std::time::{Duration, Instant};

/// How long metadata servers may take to serve the new size.
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The failure code if a volume would shrink.
const SHRINKS: &str = "cannot-shrink";

/// The result of growing something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// The size before.
    pub before: u64,
    /// The size now.
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
            let now = volume_hold::settled(session, &volume).await?.bytes;
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
    creation::check_multiple("SIZE", bytes)?;
    let entry = volume_hold::settled(session, name).await?;
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
    let administrator = Administrator::changing(session.generation(), Change::Grow(bytes), Timing::default());
    volume_hold::perform(session, name, what, administrator, None, progress).await?;
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
        let message = format!("volume '{name}' is being migrated, and its size can't be changed meanwhile");
        return Err(Failure::failed("volume-moving", message)
            .hint(format!("complete the migration with `braid volume migrate {name}`")));
    }
    Ok(bytes > entry.bytes)
}

/// The most bytes that the volume can have with the free space of its devices.
async fn most(session: &Session, volume: &VolumeDescription) -> Result<u64, Failure> {
    let own = volume.component_blocks().next_multiple_of(volumes::CHUNK_BLOCKS);
    let mut least = u64::MAX;
    for device in volume.holders() {
        least =
            least.min(own + volumes::room_on(session, device).await? / volumes::CHUNK_BLOCKS * volumes::CHUNK_BLOCKS);
    }
    Ok(volume.layout.usable_blocks(least) * BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system_operations::ShardContent;

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
