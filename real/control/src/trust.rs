//! Trust in the array's folder: who may read and change its files.
//!
//! The folder decides which files and disks the array's processes open, overwrite and remove. Therefore a folder, or a description in it,
//! that other users can write is refused before anything in it is used. The files contain users' data: only their owner may read them.
//! Files are made with mode 0600, and folders with 0700. The files of an earlier release, which others could read, get these modes when
//! the array is brought up; an event says so.

use crate::error::ControlError;
use crate::file;
use crate::folder::LocalFolder;
use crate::paths::{DESCRIPTION, EVENTS, EVENTS_BEFORE, FOLDER_FILES, HOSTS, LOGS, SCRUBS, SOCKETS};
use crate::private_files::{Distrust, distrust};
use braid_description::{ArrayDescription, lies_in_folder};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What group and others may do.
const OF_OTHERS: u32 = 0o077;

/// A file or folder of an array that users other than its owner can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LooseMode {
    pub path: PathBuf,
    pub mode: u32,
    pub distrust: Option<Distrust>,
}

impl LocalFolder {
    /// The array's files and folders that users other than the owner of the array can read or change. The files of devices in other folders
    /// are included, and raw disks are not.
    pub fn loose_modes(&self) -> Result<Vec<LooseMode>, ControlError> {
        let description = file::read::<ArrayDescription>(&self.path(DESCRIPTION)).ok().flatten();
        let description = description.as_ref();
        let mut loose = Vec::new();
        let mut look = |path: PathBuf| {
            // A link leads elsewhere. What is removed meanwhile does not matter.
            let Ok(found) = path.symlink_metadata() else { return };
            let mode = found.mode() & 0o7777;
            let distrust = distrust(&found);
            if (found.is_file() || found.is_dir()) && (mode & OF_OTHERS != 0 || distrust.is_some()) {
                loose.push(LooseMode { path, mode, distrust });
            }
        };
        if self.holds_nothing_else(description)? {
            look(self.dir().to_path_buf());
        }
        for path in self.entries(self.dir())?.into_iter().filter(|path| self.is_own(path, description)) {
            let inner = if path.is_dir() { self.entries(&path)? } else { Vec::new() };
            look(path);
            inner.into_iter().for_each(&mut look);
        }
        let elsewhere =
            description.iter().flat_map(|description| description.files()).filter(|file| !lies_in_folder(file));
        elsewhere.for_each(|file| look(self.dir().join(file)));
        Ok(loose)
    }

    /// Makes the array's files and folders private to their owner. Fails, and changes nothing, if another user could have changed one of
    /// them. Returns those that were changed. The caller holds the supervision lock.
    pub(crate) fn make_private(&self) -> Result<Vec<LooseMode>, ControlError> {
        let loose = self.loose_modes()?;
        if let Some((path, distrust)) = loose.iter().find_map(|loose| Some((loose.path.clone(), loose.distrust?))) {
            return Err(ControlError::Untrusted { path, distrust });
        }
        let user = rustix::process::geteuid().as_raw();
        // The mode of a file of the superuser can't be changed by another user, and need not be.
        let ours = |loose: &LooseMode| loose.path.symlink_metadata().is_ok_and(|found| found.uid() == user);
        let loose: Vec<_> = loose.into_iter().filter(ours).collect();
        for LooseMode { path, mode, .. } in &loose {
            let private = Permissions::from_mode(mode & !OF_OTHERS);
            std::fs::set_permissions(path, private).map_err(ControlError::file("change the mode of", path))?;
        }
        Ok(loose)
    }

    /// True if the folder contains nothing but the array. Otherwise its mode is left to the user: it may be a home directory.
    fn holds_nothing_else(&self, description: Option<&ArrayDescription>) -> Result<bool, ControlError> {
        Ok(self.entries(self.dir())?.iter().all(|path| self.is_own(path, description)))
    }

    /// True if this entry of the folder is a file or folder of the array.
    fn is_own(&self, path: &Path, description: Option<&ArrayDescription>) -> bool {
        let name = path.file_name().unwrap_or_default();
        let text = name.to_string_lossy();
        let plain = text.strip_prefix('.').and_then(|text| text.strip_suffix(".new")).unwrap_or(&text);
        let state = plain.strip_suffix(".old").unwrap_or(plain);
        let is_lock_server = state.starts_with("lockd") && state.ends_with(".state");
        let is_device = || description.iter().flat_map(|description| description.files()).any(|file| *file == *name);
        [HOSTS, SCRUBS, LOGS, SOCKETS, EVENTS, EVENTS_BEFORE].contains(&plain)
            || FOLDER_FILES.contains(&state)
            || is_lock_server
            || is_device()
    }

    fn entries(&self, dir: &Path) -> Result<Vec<PathBuf>, ControlError> {
        let list = || std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect();
        match list() {
            Err(error) if std::io::Error::kind(&error) == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed.map_err(ControlError::file("list", dir)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use crate::{EventKind, RunningSet};
    use braid_host_leases::LeaseTime;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    /// All files and folders of the folder, with itself.
    fn all(folder: &LocalFolder) -> Vec<PathBuf> {
        let mut found = vec![folder.dir().to_path_buf()];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            next += 1;
            if path.is_dir() {
                found.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found
    }

    /// An array that has been used.
    fn used(name: &str) -> (Scratch, LocalFolder) {
        let (scratch, folder) = Scratch::with_array(name);
        let now = LeaseTime { boot: "this".into(), elapsed: std::time::Duration::from_secs(1) }.into();
        let host = folder.leases().take_generation("test", &now).unwrap();
        folder.leases().renew(host, &now, crate::LeaseReport::default()).unwrap();
        folder.note_scrub(1, &crate::ScrubRecord::default()).unwrap();
        folder.record_event(&crate::event_texts::device_out(0, 0, None)).unwrap();
        let supervision = folder.supervise().unwrap();
        supervision.publish(&RunningSet::begun(1)).unwrap();
        supervision.restore_monitor_state(&[1; 8]).unwrap();
        (scratch, folder)
    }

    #[test]
    fn created_files_are_private_to_their_owner() {
        let (_scratch, folder) = used("private");
        let all = all(&folder);
        assert!(all.len() > 10, "{all:?}");
        for path in all {
            assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        }
        assert_eq!(folder.loose_modes().unwrap(), []);
    }

    #[test]
    fn the_files_of_an_earlier_release_get_private_when_the_array_is_brought_up() {
        let (_scratch, folder) = used("older");
        let device = folder.dir().join("device-0.braid");
        std::fs::write(&device, "").unwrap();
        for path in all(&folder) {
            set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
        }
        folder.describe().expect("only its owner can change it");
        let loose = folder.loose_modes().unwrap().len();
        assert_eq!(loose, all(&folder).len());
        drop(folder.supervise().unwrap());
        let private = |path: &PathBuf| mode(path) & 0o077 == 0;
        assert!(all(&folder).iter().all(private), "{:?}", folder.loose_modes());
        let told = folder.events().unwrap().0.into_iter().filter(|event| event.kind == EventKind::ModesCorrected);
        let told: Vec<_> = told.map(|event| event.figures["files"]).collect();
        assert_eq!(told, [loose as u64], "it is told once");
        drop(folder.supervise().unwrap());
        assert_eq!(folder.events().unwrap().0.len(), 2, "nothing is left to be told");
    }

    #[test]
    fn a_folder_that_others_can_change_is_refused_and_left_alone() {
        let (_scratch, folder) = used("untrusted");
        for (path, open) in [(folder.dir().to_path_buf(), 0o777), (folder.path(DESCRIPTION), 0o620)] {
            let before = mode(&path);
            set_mode(&path, open);
            let files = all(&folder);
            let refused =
                |error: ControlError| matches!(error, ControlError::Untrusted { path: named, .. } if named == path);
            assert!(refused(folder.describe().unwrap_err()));
            assert!(refused(folder.supervise().unwrap_err()));
            assert!(refused(folder.update(|_| Ok::<_, ControlError>(())).unwrap_err()));
            let now = LeaseTime { boot: "this".into(), elapsed: std::time::Duration::from_secs(2) }.into();
            assert!(refused(folder.leases().take_generation("test", &now).unwrap_err()));
            assert_eq!((all(&folder), mode(&path)), (files, open), "nothing was written, and no mode changed");
            set_mode(&path, before);
        }
        let state = folder.path("monitor.state");
        set_mode(&state, 0o606);
        assert!(folder.describe().is_ok(), "its own opening refuses it");
        assert!(matches!(folder.supervise(), Err(ControlError::Untrusted { path, .. }) if path == state));
        assert_eq!(mode(&state), 0o606);
    }

    #[test]
    fn a_folder_with_other_things_in_it_keeps_its_mode() {
        let (_scratch, folder) = used("home");
        let letter = folder.dir().join("letter");
        std::fs::write(&letter, "").unwrap();
        set_mode(&letter, 0o644);
        set_mode(folder.dir(), 0o755);
        drop(folder.supervise().unwrap());
        assert_eq!((mode(folder.dir()), mode(&letter)), (0o755, 0o644));
    }

    #[test]
    fn only_the_user_and_the_superuser_are_trusted() {
        let refused = |mode, owner, user| Distrust::of(mode, owner, user).is_some();
        assert!(!refused(0o755, 1000, 1000) && !refused(0o755, 0, 1000) && !refused(0o700, 0, 0));
        assert!(refused(0o700, 1000, 0) && refused(0o700, 1001, 1000));
        assert!(refused(0o775, 1000, 1000) && refused(0o757, 1000, 1000) && refused(0o1777, 0, 1000));
    }

    #[test]
    fn a_temporary_file_that_is_a_link_is_not_followed() {
        let (scratch, folder) = used("link");
        let other = scratch.path("other");
        std::fs::write(&other, "untouched").unwrap();
        std::os::unix::fs::symlink(&other, folder.path(".monitor.state.new")).unwrap();
        folder.supervise().unwrap().restore_monitor_state(&[2; 8]).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "untouched");
        assert_eq!(folder.monitor_state().unwrap(), Some(vec![2; 8]));
    }

    #[test]
    fn a_file_lies_in_the_folder_if_it_is_a_plain_name() {
        let plain = |name: &str| lies_in_folder(Path::new(name));
        assert!(plain("device-0.braid"));
        assert!(!plain("/etc/passwd") && !plain("../x") && !plain("a/b") && !plain("..") && !plain(""));
    }
}
