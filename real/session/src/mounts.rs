//! Mounts: converts the name of a file system to what its client needs.

use crate::error::SessionError;
use braid_base::{BLOCK_BYTES, FileSystemId, Generation};
use braid_control::{ArrayDescription, FileSystemState};
use braid_files::FileClientConfig;

/// The configuration of a client of the file system of this name. The generation of its host is not known yet.
pub fn describe(description: &ArrayDescription, name: &str) -> Result<(FileSystemId, FileClientConfig), SessionError> {
    let entry = description.file_system(name).ok_or_else(|| SessionError::NoSuchFileSystem {
        name: name.to_string(),
        others: description.file_systems.iter().map(|entry| entry.name.clone()).collect(),
    })?;
    if entry.state != FileSystemState::Ready {
        return Err(SessionError::FileSystemNotReady { name: name.to_string(), state: entry.state });
    }
    let data = braid_description::describe(braid_description::find(description, &entry.data_volume())?)?;
    let config = FileClientConfig {
        file_system: entry.id(),
        shards: entry.servers(),
        host: Generation::default(),
        volume: data.id,
        stripe_bytes: data.layout.stripe_blocks() as usize * BLOCK_BYTES,
        settings: description.leases().settings(),
    };
    Ok((entry.id(), config))
}
