//! `braid fs ls`, `stat` and `space`: what is in a file system.

use super::data::Mounts;
use super::target::{Target, Trying, put_name, target};
use crate::report;
use braid_admin::Failure;
use braid_admin::metadata_room::MetadataRoom;
use braid_base::quoting;
use braid_base::units::format_size;
use braid_client::{FileSystemSpace, FileType, FilesError, Metadata, SpecialType};
use braid_terminal::output::table;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(clap::Args)]
pub struct Ls {
    /// The directories or files: NAME:PATH
    #[arg(value_name = "DIRECTORY", required = true, value_parser = target())]
    directories: Vec<Target>,
    /// Show type, permission bits, names, owner, length and time of the last change
    #[arg(short, long)]
    long: bool,
    #[command(flatten)]
    pub trying: Trying,
}

#[derive(clap::Args)]
pub struct Stat {
    /// The files: NAME:PATH. Symbolic links are not followed
    #[arg(value_name = "FILE", required = true, value_parser = target())]
    files: Vec<Target>,
    #[command(flatten)]
    pub trying: Trying,
}

#[derive(clap::Args)]
pub struct Space {
    /// The file system
    name: String,
    #[command(flatten)]
    pub trying: Trying,
}

struct Shown {
    name: OsString,
    kind: FileType,
    /// Known for long lists.
    metadata: Option<Metadata>,
    /// The target of a symbolic link.
    leads_to: Option<PathBuf>,
}

pub async fn ls(Ls { directories, long, .. }: &Ls, mounts: &mut Mounts<'_>, as_json: bool) -> Result<(), Failure> {
    let (mut lists, mut text) = (Vec::new(), String::new());
    for target in directories {
        let shown = list(target, *long, mounts).await.map_err(|error| error.of(target))?;
        if as_json {
            let mut list = json!({"entries": shown.iter().map(Shown::json).collect::<Vec<_>>()});
            put_name(&mut list, "directory", &target.bytes());
            lists.push(list);
            continue;
        }
        if directories.len() > 1 {
            text += &format!("{}{target}:\n", if text.is_empty() { "" } else { "\n" });
        }
        text += &match long {
            true => table(&shown.iter().map(Shown::row).collect::<Vec<_>>()),
            false => shown.iter().map(|shown| format!("{}\n", quoting::shown(shown.name.as_bytes()))).collect(),
        };
    }
    report::print(as_json, json!({"lists": lists}), || text);
    Ok(())
}

async fn list(target: &Target, long: bool, mounts: &mut Mounts<'_>) -> Result<Vec<Shown>, Failure> {
    let files = mounts.of(target).await?;
    let mut shown = Vec::new();
    let mut entries = match files.read_dir(&target.path).await {
        Err(FilesError::NotADirectory) => {
            let metadata = files.symlink_metadata(&target.path).await?;
            let leads_to = None;
            let name = target.path.clone().into_os_string();
            return Ok(vec![Shown { name, kind: metadata.file_type(), metadata: Some(metadata), leads_to }]);
        }
        entries => entries?,
    };
    while let Some(entry) = entries.next().await? {
        let (mut metadata, mut leads_to) = (None, None);
        if long {
            let path = target.path.join(entry.file_name());
            match files.symlink_metadata(&path).await {
                Ok(found) => metadata = Some(found),
                // It was removed meanwhile.
                Err(FilesError::NotFound) => continue,
                Err(error) => return Err(error.into()),
            }
            if entry.file_type() == FileType::SymbolicLink {
                leads_to = files.read_link(&path).await.ok();
            }
        }
        shown.push(Shown { name: entry.file_name().to_os_string(), kind: entry.file_type(), metadata, leads_to });
    }
    shown.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(shown)
}

pub async fn stat(Stat { files: targets, .. }: &Stat, mounts: &mut Mounts<'_>, as_json: bool) -> Result<(), Failure> {
    let mut found = Vec::new();
    for target in targets {
        let files = mounts.of(target).await?;
        let metadata = files.symlink_metadata(&target.path).await.map_err(|error| Failure::from(error).of(target))?;
        found.push((target, metadata));
    }
    let one = |(target, metadata): &(&Target, Metadata)| {
        let mut json = attributes(metadata);
        put_name(&mut json, "file", &target.bytes());
        json
    };
    report::print(as_json, json!({"files": found.iter().map(one).collect::<Vec<_>>()}), || {
        found.iter().map(|(target, metadata)| describe(target, metadata)).collect()
    });
    Ok(())
}

pub async fn space(Space { name, .. }: &Space, mounts: &mut Mounts<'_>, as_json: bool) -> Result<(), Failure> {
    let root = Target { file_system: name.clone(), path: "/".into() };
    let space = mounts.of(&root).await?.space().await?;
    let FileSystemSpace { size, free, reserved, inodes, .. } = space;
    let used = size.saturating_sub(free).saturating_sub(reserved);
    let room = MetadataRoom::look_up(&mounts.control(), name).await;
    let free_inodes = room.map(|room| room.free_inodes(inodes));
    let json = json!({
        "name": name, "bytes": size, "used": used, "free": free, "reserved": reserved,
        "inodes": inodes, "free_inodes": free_inodes,
    });
    report::print(as_json, json, || {
        let more = free_inodes.map(|more| format!(", room for about {more} more")).unwrap_or_default();
        let [used, size, free, reserved] = [used, size, free, reserved].map(format_size);
        format!("{name}: {used} of {size} used, {free} free, {reserved} reserved by mounts, {inodes} inodes{more}\n")
    });
    Ok(())
}

impl Shown {
    fn json(&self) -> Value {
        let mut json = self.metadata.as_ref().map_or_else(|| json!({"type": type_of(self.kind).0}), attributes);
        put_name(&mut json, "name", self.name.as_bytes());
        if let Some(target) = &self.leads_to {
            put_name(&mut json, "target", target.as_os_str().as_bytes());
        }
        json
    }

    fn row(&self) -> Vec<String> {
        let name = quoting::shown(self.name.as_bytes());
        let Some(metadata) = &self.metadata else { return vec![name] };
        let shown = |target: &PathBuf| format!(" -> {}", quoting::shown(target.as_os_str().as_bytes()));
        let target = self.leads_to.as_ref().map(shown).unwrap_or_default();
        vec![
            permissions(metadata),
            metadata.links().to_string(),
            format!("{}:{}", metadata.uid(), metadata.gid()),
            metadata.len().to_string(),
            time(metadata.modified()),
            format!("{name}{target}"),
        ]
    }
}

fn attributes(metadata: &Metadata) -> Value {
    json!({
        "type": type_of(metadata.file_type()).0,
        "inode": metadata.inode(),
        "mode": format!("{:04o}", metadata.mode()),
        "links": metadata.links(),
        "uid": metadata.uid(),
        "gid": metadata.gid(),
        "length": metadata.len(),
        "allocated": metadata.allocated(),
        "accessed": time(metadata.accessed()),
        "modified": time(metadata.modified()),
        "changed": time(metadata.changed()),
    })
}

fn describe(target: &Target, metadata: &Metadata) -> String {
    let rows = [
        ("type", type_of(metadata.file_type()).0.to_string()),
        ("inode", metadata.inode().to_string()),
        ("mode", format!("{:04o} {}", metadata.mode(), permissions(metadata))),
        ("owner", format!("{}:{}", metadata.uid(), metadata.gid())),
        ("names", metadata.links().to_string()),
        ("length", format!("{} bytes, {} allocated", metadata.len(), format_size(metadata.allocated()))),
        ("accessed", time(metadata.accessed())),
        ("modified", time(metadata.modified())),
        ("changed", time(metadata.changed())),
    ];
    let rows = rows.map(|(name, value)| [format!("  {name}"), value]);
    format!("{target}\n{}", table(&rows))
}

/// The name of a type for programs, and its letter as `ls` writes it.
fn type_of(kind: FileType) -> (&'static str, char) {
    match kind {
        FileType::Regular => ("file", '-'),
        FileType::Directory => ("directory", 'd'),
        FileType::SymbolicLink => ("link", 'l'),
        FileType::Special(SpecialType::Fifo) => ("fifo", 'p'),
        FileType::Special(SpecialType::Socket) => ("socket", 's'),
        FileType::Special(SpecialType::CharacterDevice) => ("character-device", 'c'),
        FileType::Special(SpecialType::BlockDevice) => ("block-device", 'b'),
    }
}

/// Type and permission bits, as `ls` writes them.
fn permissions(metadata: &Metadata) -> String {
    let bits = (0..9).map(|bit| if metadata.mode() >> (8 - bit) & 1 == 1 { ['r', 'w', 'x'][bit % 3] } else { '-' });
    std::iter::once(type_of(metadata.file_type()).1).chain(bits).collect()
}

fn time(time: SystemTime) -> String {
    let printable = time.clamp(UNIX_EPOCH, UNIX_EPOCH + std::time::Duration::from_secs(9_000_000_000));
    humantime::format_rfc3339_millis(printable).to_string()
}
