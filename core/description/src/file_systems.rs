//! The file systems of an array, as the description lists them. Each has volumes of its own, which no other program may write.

use crate::array::ArrayDescription;
use crate::unavailable::WhenUnavailable;
use crate::volumes::VolumeEntry;
use braid_base::FileSystemId;
use braid_base::limits::{self, Settings};
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
    /// The host that creates it. None for other states, and in folders of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<u32>,
    /// After how many seconds a host is fenced that keeps locks which others wait for; 0: never. None for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evict_after_seconds: Option<u64>,
    /// What requests for bytes do on mounts while devices are missing that they need. None for the default. Earlier builds refuse an array in
    /// which a file system has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<WhenUnavailable>,
    /// None if one metadata server serves the whole file system. Earlier builds know no others, and refuse an array that has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardsEntry>,
}

/// The shards of a file system that has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardsEntry {
    /// The numbers by which the monitor knows the owners of the shards, in order. The first one is the number of the file system.
    pub ids: Vec<u16>,
    /// Where new inodes are: `parent` or `spread`.
    pub placement: String,
    /// How operations on several shards are committed: `prn`, `prc`, `ep` or `1pc`.
    pub commit_protocol: String,
    /// What operations that are committed at the same time share: `none`, `log` or `operations`.
    pub grouping: String,
    /// The key of the hash of names, which all shards have: 32 hexadecimal digits.
    pub names_key: String,
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

braid_base::names!(FileSystemState { Creating => "creating", Ready => "ready", Deleting => "deleting" });

impl FileSystemEntry {
    /// A file system that is to be created. It gets its numbers when it is entered.
    pub fn new(name: String, shards: Option<ShardsEntry>) -> FileSystemEntry {
        let state = FileSystemState::Creating;
        FileSystemEntry { name, id: 0, state, by: None, evict_after_seconds: None, unavailable: None, shards }
    }

    pub fn id(&self) -> FileSystemId {
        FileSystemId(self.id)
    }

    /// The names of its metadata servers at the monitor, by shard.
    pub fn servers(&self) -> Vec<FileSystemId> {
        match &self.shards {
            None => vec![self.id()],
            Some(shards) => shards.ids.iter().copied().map(FileSystemId).collect(),
        }
    }

    /// What a metadata server is called: by its file system, and by its shard if there are several.
    pub fn server_name(&self, shard: usize) -> String {
        match &self.shards {
            None => self.name.clone(),
            Some(_) => format!("{} shard {shard}", self.name),
        }
    }

    /// The names of the metadata servers at the monitor, and what they are called.
    pub fn named_servers(&self) -> impl Iterator<Item = (FileSystemId, String)> + '_ {
        self.servers().into_iter().enumerate().map(|(shard, id)| (id, self.server_name(shard)))
    }

    /// How long a host may keep locks that others wait for; none: for ever.
    pub fn evict_after(&self) -> Option<Duration> {
        match self.evict_after_seconds {
            None => Settings::default().lock_eviction,
            Some(0) => None,
            Some(seconds) => Some(Duration::from_secs(seconds)),
        }
    }

    /// What requests for bytes do on mounts while devices are missing. A program that waits can be killed, and most programs don't survive an
    /// error of a file: so they wait.
    pub fn unavailable(&self) -> WhenUnavailable {
        self.unavailable.unwrap_or(WhenUnavailable::Wait)
    }

    /// The name of the volume with the metadata of a shard.
    pub fn metadata_volume(&self, shard: usize) -> String {
        match shard {
            0 => format!("{}.meta", self.name),
            shard => format!("{}.meta{shard}", self.name),
        }
    }

    /// The names of all its volumes.
    pub fn volumes(&self) -> Vec<String> {
        let metadata = (0..self.servers().len()).map(|shard| self.metadata_volume(shard));
        metadata.chain([self.data_volume()]).collect()
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
        let belongs = |entry: &&FileSystemEntry| entry.volumes().contains(&volume.name);
        self.file_systems.iter().find(belongs)
    }
}

/// Checks the file systems for contradictions. Returns what is wrong.
pub(crate) fn check(description: &ArrayDescription) -> Result<(), String> {
    for (index, entry) in description.file_systems.iter().enumerate() {
        let before = &description.file_systems[..index];
        let ids = entry.servers();
        if before.iter().any(|other| other.name == entry.name || other.servers().iter().any(|id| ids.contains(id))) {
            return Err(format!("file system '{}' appears twice", entry.name));
        }
        if !(1..=limits::SHARDS_MAX).contains(&ids.len()) || ids[0] != entry.id() || !ids.is_sorted_by(|a, b| a < b) {
            return Err(format!("file system '{}' has no such metadata servers: {ids:?}", entry.name));
        }
        if let Some(id) = ids.iter().find(|id| id.0 > description.last_file_system) {
            let last = description.last_file_system;
            return Err(format!("file system '{}' has number {}, but last_file_system is {last}", entry.name, id.0));
        }
        let missing = entry.volumes().into_iter().find(|name| description.volume(name).is_none());
        if let (FileSystemState::Ready, Some(missing)) = (entry.state, missing) {
            return Err(format!("file system '{}' has no volume '{missing}'", entry.name));
        }
    }
    Ok(())
}
