//! Paths: resolves a path component by component, from the root of the file system. Symbolic links are followed, and `..` is the parent of
//! the directory that was reached, whatever names led there.

use super::error::FilesError;
use super::mount::Mount;
use braid_base::InodeId;
use braid_wire::{FileAttributes, FileType};
use bytes::Bytes;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most symbolic links that are followed for one path.
pub(crate) const SYMBOLIC_LINKS_MAX: usize = 40;

/// A path that is being resolved.
#[derive(Debug)]
pub(crate) struct Walk {
    mount: Mount,
    /// The directory that was reached.
    pub at: InodeId,
    /// Its attributes, if they are known.
    known: Option<FileAttributes>,
    /// The components that are left.
    rest: VecDeque<Bytes>,
    /// The path ends in a slash: it names a directory.
    pub ends_in_slash: bool,
    /// Symbolic links that were followed.
    links: usize,
}

impl Walk {
    /// Begins at the root, whether or not the path begins with a slash.
    pub fn new(mount: &Mount, path: &Path) -> Walk {
        let path = path.as_os_str().as_bytes();
        let (rest, ends_in_slash) = (components(path).collect(), path.ends_with(b"/"));
        Walk { mount: mount.clone(), at: InodeId::ROOT, known: None, rest, ends_in_slash, links: 0 }
    }

    /// Goes to the directory that contains the last component, and returns that component. None if the path ends in `.` or `..`, or is that
    /// of the root: then the walk is at what the path names.
    pub async fn last_component(&mut self) -> Result<Option<Bytes>, FilesError> {
        while let Some(component) = self.rest.pop_front() {
            match &component[..] {
                b"." => {}
                b".." => self.go_up().await?,
                _ if self.rest.is_empty() => return Ok(Some(component)),
                _ => self.enter(component).await?,
            }
        }
        Ok(None)
    }

    /// The attributes of what the path names. `follows`: if that is a symbolic link, those of its target.
    pub async fn resolve(mut self, follows: bool) -> Result<FileAttributes, FilesError> {
        loop {
            let Some(name) = self.last_component().await? else { return self.here().await };
            let found = self.mount.lookup(self.at, name).await?;
            match found.file_type {
                FileType::SymbolicLink if follows || self.ends_in_slash => self.follow(found.inode).await?,
                FileType::Directory => return Ok(found),
                _ if self.ends_in_slash => return Err(FilesError::NotADirectory),
                _ => return Ok(found),
            }
        }
    }

    /// Goes on with the target of a symbolic link in the present directory.
    pub async fn follow(&mut self, link: InodeId) -> Result<(), FilesError> {
        self.links += 1;
        if self.links > SYMBOLIC_LINKS_MAX {
            return Err(FilesError::TooManySymbolicLinks);
        }
        let target = self.mount.read_link(link).await?;
        if target.starts_with(b"/") {
            (self.at, self.known) = (InodeId::ROOT, None);
        }
        if self.rest.is_empty() {
            self.ends_in_slash |= target.ends_with(b"/");
        }
        for component in components(&target).rev() {
            self.rest.push_front(component);
        }
        Ok(())
    }

    async fn enter(&mut self, name: Bytes) -> Result<(), FilesError> {
        let found = self.mount.lookup(self.at, name).await?;
        match found.file_type {
            FileType::Directory => (self.at, self.known) = (found.inode, Some(found)),
            FileType::SymbolicLink => self.follow(found.inode).await?,
            FileType::Regular | FileType::Special(_) => return Err(FilesError::NotADirectory),
        }
        Ok(())
    }

    async fn go_up(&mut self) -> Result<(), FilesError> {
        if self.at != InodeId::ROOT {
            self.at = self.here().await?.parent.ok_or(FilesError::NotFound)?;
            self.known = None;
        }
        Ok(())
    }

    async fn here(&self) -> Result<FileAttributes, FilesError> {
        match self.known {
            Some(known) => Ok(known),
            None => self.mount.stat(self.at).await,
        }
    }
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = Bytes> {
    path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()).map(Bytes::copy_from_slice)
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn slashes_separate_components() {
        let split = |path: &str| components(path.as_bytes()).collect::<Vec<_>>();
        assert_eq!(split("//a/./b//../c/"), ["a", ".", "b", "..", "c"]);
        assert!(split("").is_empty() && split("/").is_empty());
    }
}
