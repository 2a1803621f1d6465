//! The first start of an array, which creates its initial volumes, and its initial file system.

use crate::array_creation::{self, DEFAULT_VOLUME};
use crate::failure::Failure;
use crate::file_systems::{self, NewFileSystem};
use crate::shards::ShardChoice;
use crate::volumes::{self, CHUNK_BLOCKS, DEGRADED, NO_ROOM, NewVolume};
use braid_base::BLOCK_BYTES;
use braid_base::units::format_size;
use braid_control::{ArrayDescription, FileSystemState, VolumeEntry};
use braid_session::Session;
use std::time::{Duration, Instant};

/// The first start of an array waits so long for devices that are not in yet, and looks for them in this interval.
const MEMBERS_WAIT: Duration = Duration::from_secs(30);
const MEMBERS_PAUSE: Duration = Duration::from_millis(100);

/// This fraction of the space on a new array is left to other volumes, file systems and objects if no size was given for its volume, which
/// can grow later.
const LEFT_FREE: u64 = 2;

/// Creates the initial volumes of the array, and its initial file system, at its first start.
pub async fn create_initial(session: &Session) -> Result<(), Failure> {
    let description = session.control().describe().await?;
    if description.populated {
        return Ok(());
    }
    let creation = &description.creation;
    let mut plans: Vec<_> = creation.volumes.iter().map(|(name, bytes)| NewVolume::new(name, *bytes)).collect();
    let layout = array_creation::layout(creation.layout.parse()?, creation.devices.into(), creation.unit)?;
    let room = volumes::room(session).await?;
    let usable = layout.usable_blocks(room) * BLOCK_BYTES as u64;
    if plans.is_empty() {
        let most = layout.usable_blocks(room - room / LEFT_FREE) * BLOCK_BYTES as u64;
        plans.push(NewVolume::new(DEFAULT_VOLUME, most));
    } else if description.volumes.is_empty() {
        // All or none: an array with some of its volumes is not what was requested.
        let component = |plan: &NewVolume| layout.component_blocks(plan.bytes / BLOCK_BYTES as u64);
        let needed = plans.iter().map(|plan| component(plan).next_multiple_of(CHUNK_BLOCKS));
        if needed.fold(0, u64::saturating_add) > room {
            let asked = plans.iter().map(|plan| plan.bytes).fold(0, u64::saturating_add);
            let (asked, free) = (format_size(asked), format_size(usable));
            return Err(Failure::usage(NO_ROOM, format!("volumes of {asked} asked for, {free} free"))
                .hint("request smaller volumes, or more or larger devices with --devices and --size"));
        }
    }
    for plan in plans {
        // A volume may have been created before the first start was interrupted.
        if description.volume(&plan.name).is_none() {
            create_when_in(session, &plan).await?;
        }
    }
    if let Some(name) = &creation.file_system
        && description.file_system(name).is_none_or(|entry| entry.state != FileSystemState::Ready)
    {
        let new = NewFileSystem { name: name.clone(), bytes: None, scheme: None, shards: ShardChoice::default() };
        file_systems::create(session, &new).await?;
    }
    let populate = |description: &mut ArrayDescription| {
        description.populated = true;
        Ok(())
    };
    session.control().update(populate).await
}

/// Creates a volume. While the array starts, a busy machine may delay the first leases of devices: they are waited for.
async fn create_when_in(session: &Session, plan: &NewVolume) -> Result<VolumeEntry, Failure> {
    let begun = Instant::now();
    loop {
        match volumes::create(session, plan).await {
            Err(failure) if failure.code == DEGRADED && begun.elapsed() < MEMBERS_WAIT => {
                tokio::time::sleep(MEMBERS_PAUSE).await;
            }
            created => return created,
        }
    }
}
