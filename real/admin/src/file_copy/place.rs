//! A place of files: a path on this machine, or in a file system of an array. What a copy asks of both is here.

use super::identity::{FileSystem, FileSystems, Identity};
use super::streams::{Source, Target};
use crate::failure::Failure;
use braid_base::{ArrayId, quoting};
use braid_client::{FileType, Files, FilesError, Metadata, OpenOptions};
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The bits of a mode that are copied. A copy belongs to whoever makes it, so programs in it must not run as their owner or group.
const COPIED: u16 = 0o1777;
/// The mode of a directory that is being filled.
const OWNER_ONLY: u16 = 0o700;
/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug)]
pub enum Place {
    Local(PathBuf),
    Mounted(MountedPlace),
}

/// A place in a file system of an array.
#[derive(Clone, Debug)]
pub struct MountedPlace {
    files: Files,
    /// The name of its mounts.
    mounts: String,
    path: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Found {
    pub identity: Identity,
    pub kind: FileType,
    pub is_special: bool,
    pub mode: u16,
    pub length: u64,
    /// Bytes that are not in holes.
    pub allocated: u64,
    pub modified: SystemTime,
}

impl Place {
    pub fn mounted(files: Files, file_system: &str, array: ArrayId, path: PathBuf) -> Place {
        Place::Mounted(MountedPlace { files, mounts: braid_fuse::mount_name(file_system, array), path })
    }

    pub fn path(&self) -> &Path {
        match self {
            Place::Local(path) | Place::Mounted(MountedPlace { path, .. }) => path,
        }
    }

    /// As it is written in commands.
    fn name(&self) -> Vec<u8> {
        let file_system = match self {
            Place::Local(_) => String::new(),
            Place::Mounted(MountedPlace { mounts, .. }) => format!("{}:", mounts.split('@').next().unwrap_or_default()),
        };
        [file_system.as_bytes(), self.path().as_os_str().as_encoded_bytes()].concat()
    }

    pub fn join(&self, name: &OsString) -> Place {
        self.at(self.path().join(name))
    }

    /// Another path in the same file system, or on this machine.
    pub fn at(&self, path: PathBuf) -> Place {
        match self {
            Place::Local(_) => Place::Local(path),
            Place::Mounted(place) => Place::Mounted(MountedPlace { path, ..place.clone() }),
        }
    }

    /// True if the place is in the directory `identity`, or would be if it were created. Paths do not tell: they may contain links and `..`,
    /// and lead through mounts.
    pub async fn lies_in(&self, identity: &Identity, seen: &FileSystems) -> bool {
        let mut above = None;
        for path in self.path().ancestors() {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            let found = self.at(path.to_path_buf());
            if found.look(true, seen).await.is_ok_and(|found| found.kind == FileType::Directory) {
                above = Some(found);
                break;
            }
        }
        let mut last: Option<Identity> = None;
        while let Some(directory) = above.take()
            && let Ok(found) = directory.look(true, seen).await
            && !last.is_some_and(|last| last.is_same(&found.identity))
        {
            if found.identity.is_same(identity) {
                return true;
            }
            last = Some(found.identity);
            above = Some(directory.join(&OsString::from("..")));
        }
        false
    }

    /// The failure if the directory does not exist in which the copy of a file or directory would be created.
    pub async fn require_parent(&self, kind: FileType, seen: &FileSystems) -> Result<(), Failure> {
        let names_directory = self.path().as_os_str().as_encoded_bytes().ends_with(b"/");
        let parent = match self.path().parent() {
            _ if kind != FileType::Directory && names_directory => self.clone(),
            Some(parent) if parent.as_os_str().is_empty() => self.at(".".into()),
            Some(parent) => self.at(parent.to_path_buf()),
            None => return Ok(()),
        };
        match parent.look(true, seen).await {
            Err(failure) if failure.code == "no-such-file" => {
                let program = if matches!(self, Place::Local(_)) { "mkdir" } else { "braid fs mkdir" };
                let make = format!("{program} -p {}", quoting::word(&parent.name()));
                let message = format!("there is no directory {parent}");
                Err(Failure::unreachable("no-such-file", message).hint(format!("create it with `{make}`")))
            }
            // A failure with a better reason follows.
            _ => Ok(()),
        }
    }

    pub async fn look(&self, follows: bool, seen: &FileSystems) -> Result<Found, Failure> {
        let found = match self {
            Place::Local(path) => {
                let metadata = if follows { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
                metadata.map(|metadata| Found::local(&metadata, path, seen)).map_err(Failure::from)
            }
            Place::Mounted(place @ MountedPlace { files, path, .. }) => {
                let metadata = if follows { files.metadata(path).await } else { files.symlink_metadata(path).await };
                metadata.map(|metadata| place.found(&metadata)).map_err(Failure::from)
            }
        };
        found.map_err(|failure| failure.of(self))
    }

    pub async fn list(&self) -> Result<Vec<OsString>, Failure> {
        let mut names = Vec::new();
        match self {
            Place::Local(path) => {
                for entry in std::fs::read_dir(path)? {
                    names.push(entry?.file_name());
                }
            }
            Place::Mounted(MountedPlace { files, path, .. }) => {
                let mut entries = files.read_dir(path).await?;
                while let Some(entry) = entries.next().await? {
                    names.push(entry.file_name().to_os_string());
                }
            }
        }
        Ok(names)
    }

    /// Creates a directory, which only its owner may enter until it has its permissions. False if it is there already.
    pub async fn create_directory(&self) -> Result<bool, Failure> {
        match self {
            Place::Local(path) => match std::fs::DirBuilder::new().mode(OWNER_ONLY.into()).create(path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(false),
                outcome => outcome?,
            },
            Place::Mounted(MountedPlace { files, path, .. }) => match files.create_dir(path).await {
                Err(FilesError::Exists) if files.metadata(path).await?.is_dir() => return Ok(false),
                outcome => {
                    outcome?;
                    self.set_permissions(OWNER_ONLY).await?;
                }
            },
        }
        Ok(true)
    }

    pub async fn set_permissions(&self, mode: u16) -> Result<(), Failure> {
        match self {
            Place::Local(path) => Ok(std::fs::set_permissions(path, Permissions::from_mode(mode.into()))?),
            Place::Mounted(MountedPlace { files, path, .. }) => Ok(files.set_permissions(path, mode).await?),
        }
    }

    pub async fn read_link(&self) -> Result<PathBuf, Failure> {
        match self {
            Place::Local(path) => Ok(std::fs::read_link(path)?),
            Place::Mounted(MountedPlace { files, path, .. }) => Ok(files.read_link(path).await?),
        }
    }

    pub async fn create_link(&self, target: &Path) -> Result<(), Failure> {
        match self {
            Place::Local(path) => {
                if path.is_symlink() {
                    std::fs::remove_file(path)?;
                }
                Ok(std::os::unix::fs::symlink(target, path)?)
            }
            Place::Mounted(MountedPlace { files, path, .. }) => {
                if files.symlink_metadata(path).await.is_ok_and(|found| found.file_type() == FileType::SymbolicLink) {
                    files.remove_file(path).await?;
                }
                Ok(files.symlink(target, path).await?)
            }
        }
    }

    /// Opens the file to be read. Returns what was opened, too.
    pub async fn open(&self, seen: &FileSystems) -> Result<(Source, Found), Failure> {
        match self {
            Place::Local(path) => {
                let file = tokio::fs::File::open(path).await?.into_std().await;
                let found = Found::local(&file.metadata()?, path, seen);
                Ok((Source::local(file, &found), found))
            }
            Place::Mounted(place) => {
                let file = place.files.open(&place.path, OpenOptions::new().read(true)).await?;
                let found = place.found(&file.metadata().await?);
                Ok((Source::mounted(file, &found), found))
            }
        }
    }

    /// Opens the file to be written, or creates it. Its content stays as it is. Returns what was opened, too.
    pub async fn create(&self, mode: u16, seen: &FileSystems) -> Result<(Target, Found), Failure> {
        match self {
            Place::Local(path) => {
                let mut options = tokio::fs::OpenOptions::new();
                options.write(true).create(true).truncate(false).mode(u32::from(mode));
                let file = options.open(path).await?.into_std().await;
                let found = Found::local(&file.metadata()?, path, seen);
                Ok((Target::local(file, &found), found))
            }
            Place::Mounted(place) => {
                let options = OpenOptions::new().write(true).create(true).mode(mode);
                let file = place.files.open(&place.path, options).await?;
                let found = place.found(&file.metadata().await?);
                Ok((Target::mounted(file, &found), found))
            }
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quoting::shown(&self.name()))
    }
}

impl MountedPlace {
    fn found(&self, metadata: &Metadata) -> Found {
        Found {
            identity: Identity { file_system: FileSystem::OfArray(self.mounts.clone()), inode: metadata.inode() },
            kind: metadata.file_type(),
            is_special: matches!(metadata.file_type(), FileType::Special(_)),
            mode: metadata.mode() & COPIED,
            length: metadata.len(),
            allocated: metadata.allocated(),
            modified: metadata.modified(),
        }
    }
}

impl Found {
    pub fn local(metadata: &std::fs::Metadata, path: &Path, seen: &FileSystems) -> Found {
        let file_type = metadata.file_type();
        let kind = match () {
            () if file_type.is_dir() => FileType::Directory,
            () if file_type.is_symlink() => FileType::SymbolicLink,
            () => FileType::Regular,
        };
        Found {
            identity: seen.identity(metadata, path),
            kind,
            is_special: !(file_type.is_dir() || file_type.is_symlink() || file_type.is_file()),
            mode: metadata.mode() as u16 & COPIED,
            length: metadata.len(),
            allocated: metadata.blocks() * SECTOR_BYTES,
            modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        }
    }

    /// True if some of its bytes may be in holes.
    pub fn is_sparse(&self) -> bool {
        self.length > 0 && self.allocated < self.length
    }
}
