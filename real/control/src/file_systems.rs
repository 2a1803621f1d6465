//! The file systems of an array, as the description lists them. Each has two volumes of its own, which no other program may write.

use crate::description::{ArrayDescription, VolumeEntry};
use braid_base::FileSystemId;
use braid_base::limits::Settings;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One file system of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSystemEntry {
    pub name: String,
    /// Its number, by which the monitor knows its owner.
    pub id: u16,
    pub state: FileSystemState,
    /// After how many seconds a host is fenced that keeps locks which others wait for; 0: never. None for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_after_seconds: Option<u64>,
}

/// The life cycle of a file system.
///
/// ```text
///   Creating ──► Ready ──► Deleting
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystemState {
    /// Its volumes may be missing, or not formatted yet.
    Creating,
    /// It can be used.
    Ready,
    /// Its volumes may be gone.
    Deleting,
}

impl FileSystemState {
    /// The name of the state, for programs.
    pub fn name(self) -> &'static str {
        match self {
            FileSystemState::Creating => "creating",
            FileSystemState::Ready => "ready",
            FileSystemState::Deleting => "deleting",
        }
    }
}

impl FileSystemEntry {
    pub fn id(&self) -> FileSystemId {
        FileSystemId(self.id)
    }

    /// How long a host may keep locks that others wait for; none: for ever.
    pub fn evict_after(&self) -> Option<Duration> {
        match self.evict_after_seconds {
            None => Settings::default().lock_eviction,
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
        }
    }

    /// The name of the volume with its metadata.
    pub fn metadata_volume(&self) -> String {
        format!("{}.meta", self.name)
    }

    /// The name of the volume with the bytes of its files.
    pub fn data_volume(&self) -> String {
        format!("{}.data", self.name)
    }
}

impl ArrayDescription {
    /// The file system of this name.
    pub fn file_system(&self, name: &str) -> Option<&FileSystemEntry> {
        self.file_systems.iter().find(|entry| entry.name == name)
    }

    pub fn file_system_mut(&mut self, name: &str) -> Option<&mut FileSystemEntry> {
        self.file_systems.iter_mut().find(|entry| entry.name == name)
    }

    /// The file system that a volume belongs to. Programs may not write such a volume: it would damage the file system.
    pub fn file_system_of(&self, volume: &VolumeEntry) -> Option<&FileSystemEntry> {
        let belongs = |entry: &&FileSystemEntry| [entry.metadata_volume(), entry.data_volume()].contains(&volume.name);
        self.file_systems.iter().find(belongs)
    }
}

/// Checks the file systems for contradictions. Returns what is wrong.
pub(crate) fn check(description: &ArrayDescription) -> Result<(), String> {
    for (index, entry) in description.file_systems.iter().enumerate() {
        let before = &description.file_systems[..index];
        if before.iter().any(|other| other.name == entry.name || other.id == entry.id) {
            return Err(format!("file system '{}' appears twice", entry.name));
        }
        if entry.id > description.last_file_system {
            let last = description.last_file_system;
            return Err(format!(
                "file system '{}' has number {}, but last_file_system is {last}",
                entry.name, entry.id
            ));
        }
        let missing =
            [entry.metadata_volume(), entry.data_volume()].into_iter().find(|name| description.volume(name).is_none());
        if let (FileSystemState::Ready, Some(missing)) = (entry.state, missing) {
            return Err(format!("file system '{}' has no volume '{missing}'", entry.name));
        }
    }
    Ok(())
}
