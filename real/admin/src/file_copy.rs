//! Copies files and trees: from a file system of the array to another place in one, or from or to this machine. Directories, regular files and
//! symbolic links are copied, with their permission bits. Holes stay holes.
//!
//! A file system of the array may also be mounted on this machine, so both sides may be the same under different names. Files are compared
//! by their identity when both are open, before anything is changed; and a directory that the copy itself has filled is not copied. A file that
//! becomes shorter meanwhile is copied as far as it goes. Everything else is copied before the copy fails because of that.

mod identity;
mod place;
mod streams;
#[cfg(test)]
mod tests;

pub use place::Place;

use crate::failure::Failure;
use braid_client::FileType;
use identity::{FileSystems, Targets};
use place::Found;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use streams::joined;
use tokio::task::JoinSet;

/// How many files of a tree are copied at a time.
const FILES_MAX: usize = 16;
/// How many files are named that were not copied, or not as a whole.
const NAMED_MAX: usize = 16;
/// The codes of failures after which the rest of a tree is copied.
const OF_ONE_FILE: [&str; 3] = ["into-itself", "same-file", SHORTER];
/// The code if a file became shorter while it was copied.
const SHORTER: &str = "became-shorter";

#[derive(Debug, Default)]
pub struct CopyProgress {
    /// Bytes of the files that were found so far.
    pub found: AtomicU64,
    pub bytes: AtomicU64,
    pub files: AtomicU64,
    pub directories: AtomicU64,
    pub links: AtomicU64,
    /// Named pipes, sockets and device files in trees, which are not copied: to read them is to use them.
    pub skipped: AtomicU64,
}

/// Copies a file, or with `recursive` a tree. If `to` is a directory, the copy gets the name of `from` in it. After an error, a part may be
/// copied.
pub async fn copy(from: Place, to: Place, recursive: bool, progress: Arc<CopyProgress>) -> Result<(), Failure> {
    let seen = Arc::new(FileSystems::default());
    let found = from.look(!recursive, &seen).await?;
    let is_directory = to.look(true, &seen).await.is_ok_and(|target| target.kind == FileType::Directory);
    let to = match from.path().file_name() {
        Some(name) if is_directory => to.join(&name.to_os_string()),
        _ => to,
    };
    if found.kind == FileType::Directory && !recursive {
        return Err(Failure::usage("is-a-directory", "it is a directory").of(&from).hint("copy it with -r"));
    }
    if !is_directory {
        to.require_parent(found.kind, &seen).await?;
    }
    match found.kind {
        FileType::Directory if to.lies_in(&found.identity, &seen).await => Err(into_itself(&to)),
        FileType::Directory => copy_tree(from, to, found, progress, &seen).await,
        _ => copy_one(from, to, found, progress, seen).await,
    }
}

/// True if what is open there is the file at this place.
pub async fn is_open_at(fd: BorrowedFd<'_>, place: &Place) -> bool {
    let Ok(file) = fd.try_clone_to_owned().map(std::fs::File::from) else { return false };
    let (Ok(metadata), seen) = (file.metadata(), FileSystems::default()) else { return false };
    let open = Found::local(&metadata, Path::new("/dev/stdout"), &seen);
    place.look(true, &seen).await.is_ok_and(|found| !open.is_special && found.identity.is_same(&open.identity))
}

fn into_itself(to: &Place) -> Failure {
    Failure::usage("into-itself", "a directory can't be copied into itself").of(to)
}

async fn copy_tree(
    from: Place,
    to: Place,
    found: Found,
    progress: Arc<CopyProgress>,
    seen: &Arc<FileSystems>,
) -> Result<(), Failure> {
    let (mut directories, mut copies) = (vec![(from, to, found)], JoinSet::new());
    let (mut targets, mut created) = (Targets::default(), Vec::new());
    let (mut named, mut others) = (Vec::new(), 0);
    let mut spare = |copied: Result<(), Failure>| match copied {
        Err(failure) if OF_ONE_FILE.contains(&failure.code.as_str()) => {
            if named.len() < NAMED_MAX {
                named.push(failure)
            } else {
                others += 1
            }
            Ok(())
        }
        copied => copied,
    };
    while let Some((from, to, found)) = directories.pop() {
        if targets.contains(&found.identity) {
            spare(Err(into_itself(&from)))?;
            continue;
        }
        // It is listed first, so that what is created in it meanwhile is not copied.
        let names = from.list().await.map_err(|failure| failure.of(&from))?;
        if to.create_directory().await.map_err(|failure| failure.of(&to))? {
            created.push((to.clone(), found.mode));
        }
        let made = to.look(true, seen).await?.identity;
        if made.is_same(&found.identity) {
            spare(Err(into_itself(&from)))?;
            continue;
        }
        targets.insert(made);
        progress.directories.fetch_add(1, Ordering::Relaxed);
        for name in names {
            let (from, to) = (from.join(&name), to.join(&name));
            let found = from.look(false, seen).await?;
            if found.kind == FileType::Directory {
                directories.push((from, to, found));
                continue;
            }
            if found.is_special {
                progress.skipped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if copies.len() == FILES_MAX {
                spare(joined(copies.join_next().await))?;
            }
            copies.spawn(copy_one(from, to, found, progress.clone(), seen.clone()));
        }
    }
    while let Some(copied) = copies.join_next().await {
        spare(joined(Some(copied)))?;
    }
    // When all is in it: its owner may not be allowed to change it.
    for (to, mode) in created.into_iter().rev() {
        to.set_permissions(mode).await.map_err(|failure| failure.of(&to))?;
    }
    let more = if others > 0 { format!("; and {others} more like that") } else { String::new() };
    let messages: Vec<_> = named.iter().map(|failure| failure.message.as_str()).collect();
    let message = format!("{}{more}; everything else was copied", messages.join("; "));
    named.into_iter().next().map_or(Ok(()), |first| Err(Failure { message, ..first }))
}

/// Copies a file or a symbolic link.
async fn copy_one(
    from: Place,
    to: Place,
    found: Found,
    progress: Arc<CopyProgress>,
    seen: Arc<FileSystems>,
) -> Result<(), Failure> {
    if found.kind == FileType::SymbolicLink {
        let target = from.read_link().await.map_err(|failure| failure.of(&from))?;
        to.create_link(&target).await.map_err(|failure| failure.of(&to))?;
        progress.links.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let (mut source, read) = from.open(&seen).await.map_err(|failure| failure.of(&from))?;
    let (mut target, written) = to.create(found.mode, &seen).await.map_err(|failure| failure.of(&to))?;
    if read.identity.is_same(&written.identity) {
        return Err(Failure::failed("same-file", format!("{from} and {to} are the same file")));
    }
    progress.found.fetch_add(read.length, Ordering::Relaxed);
    target.begin(&read, &written).await.map_err(|failure| failure.of(&to))?;
    let mut copied = 0;
    while let Some(part) = source.next().await.map_err(|failure| failure.of(&from))? {
        let end = part.offset + part.data.len() as u64;
        target.write(part).await.map_err(|failure| failure.of(&to))?;
        progress.bytes.fetch_add(end - copied, Ordering::Relaxed);
        copied = end;
    }
    let length = source.length();
    progress.bytes.fetch_add(length - copied, Ordering::Relaxed);
    target.close(length).await.map_err(|failure| failure.of(&to))?;
    // Files of the system may have fewer bytes than they say.
    let is_cut = length < read.length && !read.is_special && source.has_changed(&read).await?;
    source.close().await.map_err(|failure| failure.of(&from))?;
    if is_cut {
        let message =
            format!("{from} became shorter while it was copied: {to} has its first {length} of {} bytes", read.length);
        return Err(Failure::failed(SHORTER, message).hint("copy it again when nobody shortens it"));
    }
    progress.files.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
