//! Creating, deleting and checking file systems of a running array, and what they contain.

use crate::array::Array;
use crate::failure::Failure;
use crate::file_system_check::{self, FileSystemFindings};
use crate::file_system_status::{ASKS, mounted_on, servers};
use crate::file_systems::{self, NewFileSystem};
use crate::volumes;
use braid_base::{BLOCK_BYTES, DeviceId};
use braid_control::{ArrayDescription, FileSystemEntry, Moment};
use braid_machine::{FilesRequest, FilesSuccess, HostSuccess, MountRequest};
use braid_session::{Session, require_up};
use braid_wire::FileSystemStatus as Content;
use std::time::Duration;

/// How long a new file system may take until it is served.
const SERVED_WAIT: Duration = Duration::from_secs(30);
/// How long a metadata server may take to say what its file system contains.
const CONTENT_WAIT: Duration = Duration::from_secs(3);
impl Array {
    /// Creates a file system, and waits until it is served. If the creation fails, nothing of it remains. Errors: `file-system-exists`,
    /// `file-system-creating` and `file-system-gone` (another command creates or deletes it), `no-room`, `volume-degraded` (a device is not
    /// in), `not-up`, `bad-name`, `bad-size`, `bad-layout`; `file-system-not-served` if it was created, but no metadata server serves it.
    pub async fn create_file_system(&self, new: &NewFileSystem) -> Result<FileSystemEntry, Failure> {
        require_up(self.control()).await?;
        let devices = ready_devices(&self.control().describe().await?);
        volumes::require_in(self.control(), &devices, "a file system can't be created").await?;
        let created = self.with_host("fs create", async |session| file_systems::create(session, new).await).await?;
        if file_systems::await_served(self.control(), &created, SERVED_WAIT).await? {
            return Ok(created);
        }
        let name = &created.name;
        let message = format!("file system {name} is created, but no metadata server serves it");
        Err(Failure::unreachable("file-system-not-served", message)
            .hint(format!("`braid up` starts one, or `braid mds {name}`; `braid fs status` shows what it does")))
    }

    /// Fails if a file system can't be deleted now: it must exist, the array must be up, and all devices must be in. Unless `forced`, no host
    /// may have it mounted.
    pub async fn check_file_system_deletable(&self, name: &str, forced: bool) -> Result<(), Failure> {
        let description = self.control().describe().await?;
        let entry = file_systems::any(&description, name)?;
        require_up(self.control()).await?;
        let hosts = self.control().leases().hosts(Moment::now(), description.leases().lease()).await?;
        let mounted = mounted_on(&hosts, entry);
        let is_cut = servers(&hosts, entry).any(|server| server.hosts_cut);
        if (is_cut || !mounted.is_empty()) && !forced {
            let named = mounted.iter().map(|host| format!("{} ({})", host.generation, host.role));
            let named: Vec<String> = named.chain(is_cut.then(|| "more than can be listed".to_string())).collect();
            let message = format!("file system '{name}' is in use by hosts: {}", named.join(", "));
            return Err(Failure::failed("file-system-in-use", message)
                .hint("end these programs, or use --force: then they get errors"));
        }
        let what = format!("file system '{name}' can't be deleted");
        volumes::require_in(self.control(), &ready_devices(&description), &what).await
    }

    pub async fn delete_file_system(&self, name: &str, forced: bool) -> Result<(), Failure> {
        self.check_file_system_deletable(name, forced).await?;
        self.with_host("fs delete", async |session| file_systems::delete(session, name).await).await
    }

    /// Checks a file system. Its users wait meanwhile.
    pub async fn check_file_system(&self, name: &str) -> Result<FileSystemFindings, Failure> {
        require_up(self.control()).await?;
        file_system_check::check(self.control(), name).await
    }

    /// What a file system contains, as its metadata server says. Errors: `metadata-server-silent` if it does not answer soon.
    pub async fn content_of_file_system(&self, name: &str) -> Result<FileSystemContent, Failure> {
        require_up(self.control()).await?;
        file_systems::find(&self.control().describe().await?, name)?;
        let (session, file_system) = Session::mount(self.control(), ASKS, name, None, None).await?;
        let asked = session.client().call(MountRequest::Files { file_system, request: FilesRequest::StatShards });
        let outcome = tokio::time::timeout(CONTENT_WAIT, asked).await;
        session.end_within(CONTENT_WAIT).await;
        match outcome {
            Ok(Ok(HostSuccess::Files(FilesSuccess::Shards(shards)))) => Ok(FileSystemContent::of(&shards)),
            Ok(Ok(_)) => Err(Failure::failed("internal", "the metadata server gave an unexpected answer")),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                let message = format!("the metadata server of {name} has not answered within {CONTENT_WAIT:?}");
                Err(Failure::unreachable("metadata-server-silent", message))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileSystemContent {
    /// Files, directories and symbolic links.
    pub inodes: u64,
    pub bytes: u64,
    /// Bytes of files.
    pub used_bytes: u64,
    /// Bytes that are reserved by hosts.
    pub reserved_bytes: u64,
    pub free_bytes: u64,
    pub shards: Vec<ShardContent>,
}

/// What a shard contains. Shards give free bytes to each other as they need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ShardContent {
    pub inodes: u64,
    /// The size of the file system, as the shard's server knows it: while it grows, that of some may be the former one.
    pub bytes: u64,
    /// Bytes that are reserved by hosts.
    pub reserved_bytes: u64,
    pub free_bytes: u64,
}

impl FileSystemContent {
    fn of(shards: &[Content]) -> FileSystemContent {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let shard = |content: &Content| ShardContent {
            inodes: content.inodes,
            bytes: bytes(content.blocks),
            reserved_bytes: bytes(content.allotted),
            free_bytes: bytes(content.free),
        };
        let of_shards: Vec<ShardContent> = shards.iter().map(shard).collect();
        let size = bytes(shards.iter().map(|content| content.blocks).max().unwrap_or_default());
        let reserved_bytes = of_shards.iter().map(|shard| shard.reserved_bytes).sum();
        let free_bytes = of_shards.iter().map(|shard| shard.free_bytes).sum();
        FileSystemContent {
            inodes: of_shards.iter().map(|shard| shard.inodes).sum(),
            bytes: size,
            used_bytes: size.saturating_sub(free_bytes).saturating_sub(reserved_bytes),
            reserved_bytes,
            free_bytes,
            shards: of_shards,
        }
    }
}

fn ready_devices(description: &ArrayDescription) -> Vec<DeviceId> {
    description.ready_devices().map(|device| DeviceId(device.id)).collect()
}
