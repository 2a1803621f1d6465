//! Restoring files that the folder has lost. The caller holds the supervision lock, so that no process runs the array.

use crate::file::{self, Durability};
use crate::host_leases::Generations;
use crate::paths::{DESCRIPTION, GENERATIONS, HOSTS, LOCK, LOGS, MONITOR_STATE, RUN, SCRUBS, SOCKETS};
use crate::private_files::create_private_folder;
use crate::{ArrayDescription, ControlError, LocalFolder, Supervision, monitor_file};
use std::io::Write;

impl LocalFolder {
    /// The last generation that was taken; none if the counter's file is missing.
    pub fn known_generation(&self) -> Result<Option<u32>, ControlError> {
        Ok(file::read::<Generations>(&self.path(GENERATIONS))?.map(|generations| generations.last))
    }

    /// The bytes of the monitor's state; none if there is no such file.
    pub fn monitor_state(&self) -> Result<Option<Vec<u8>>, ControlError> {
        file::read_bytes(&self.path(MONITOR_STATE))
    }

    /// Fails if the counter of generations is missing, or can't be read.
    pub fn require_generations(&self) -> Result<(), ControlError> {
        self.leases().last_generation().map(drop)
    }
}

/// Fails if something of another kind, such as a pipe, has the name of a file or folder that an array needs. They may be missing.
pub fn require_kinds(folder: &LocalFolder) -> Result<(), ControlError> {
    let folders = [SOCKETS, HOSTS, SCRUBS, LOGS].map(|name| (name, true));
    let files = [DESCRIPTION, RUN, LOCK, GENERATIONS, MONITOR_STATE].map(|name| (name, false));
    for (name, is_folder) in folders.into_iter().chain(files) {
        file::require_kind(&folder.path(name), is_folder)?;
    }
    Ok(())
}

impl Supervision {
    /// Restores the description of an array whose folder has none.
    pub fn restore_description(&self, description: &ArrayDescription) -> Result<(), ControlError> {
        let (folder, hosts) = (&self.folder, self.folder.path(HOSTS));
        create_private_folder(&hosts).map_err(ControlError::file("create", &hosts))?;
        let _lock = folder.lock()?;
        if folder.path(DESCRIPTION).exists() {
            return Err(ControlError::ArrayExists { dir: folder.dir().to_path_buf() });
        }
        let inconsistent = |reason| ControlError::Inconsistent { file: folder.path(DESCRIPTION), reason };
        description.check().map_err(inconsistent)?;
        folder.replace(&folder.path(DESCRIPTION), description, Durability::Durable)
    }

    /// Raises the counter of generations to at least `last`. The counter never decreases.
    pub fn restore_generations(&self, last: u32) -> Result<(), ControlError> {
        let folder = &self.folder;
        let _lock = folder.lock()?;
        let last = folder.known_generation()?.map_or(last, |known| known.max(last));
        folder.replace(&folder.path(GENERATIONS), &Generations { schema: file::SCHEMA, last }, Durability::Durable)
    }

    /// Replaces the monitor's state. The previous state is kept as `monitor.state.old`.
    pub fn restore_monitor_state(&self, bytes: &[u8]) -> Result<(), ControlError> {
        let path = self.folder.dir().join(monitor_file());
        let (temporary, mut new) = file::create_temporary(&path)?;
        new.write_all(bytes).map_err(ControlError::file("write", &temporary))?;
        new.sync_all().map_err(ControlError::file("sync", &temporary))?;
        if path.exists() {
            std::fs::rename(&path, path.with_extension("state.old")).map_err(ControlError::file("move", &path))?;
        }
        std::fs::rename(&temporary, &path).map_err(ControlError::file("replace", &path))?;
        file::sync_folder(self.folder.dir())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use braid_host_leases::LeaseTime;

    #[test]
    fn a_pipe_or_file_in_the_place_of_another_is_named_and_not_waited_for() {
        let (_scratch, folder) = Scratch::with_array("kinds");
        let now = LeaseTime { boot: "this".into(), elapsed: std::time::Duration::from_secs(1) }.into();
        for name in ["array.json", "generations", "run.json", "events.jsonl", "lock", "hosts"] {
            let (path, aside) = (folder.path(name), folder.path("aside"));
            let is_there = std::fs::rename(&path, &aside).is_ok();
            match name {
                "hosts" => std::fs::write(&path, "").unwrap(),
                _ => assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success()),
            }
            let refusals = [
                folder.describe().err(),
                folder.leases().take_generation("test", &now).err(),
                folder.running().err(),
                folder.events().err(),
            ];
            let named = refusals.into_iter().flatten().find(
                |error| matches!(error, ControlError::Inconsistent { file, reason } if *file == path && reason.contains("must be a")),
            );
            assert!(named.is_some(), "{name}");
            std::fs::remove_file(&path).unwrap();
            assert!(!is_there || std::fs::rename(aside, path).is_ok());
        }
    }

    #[test]
    fn lost_files_are_restored_and_generations_never_go_back() {
        let (_scratch, folder) = Scratch::with_array("restore");
        let description = folder.describe().unwrap();
        let now = LeaseTime { boot: "this".into(), elapsed: std::time::Duration::from_secs(1) }.into();
        folder.leases().take_generation("test", &now).unwrap();
        let supervision = folder.supervise().unwrap();
        assert!(matches!(supervision.restore_description(&description), Err(ControlError::ArrayExists { .. })));
        for name in ["array.json", "generations"] {
            std::fs::remove_file(folder.path(name)).unwrap();
        }
        supervision.restore_description(&description).unwrap();
        supervision.restore_generations(70).unwrap();
        supervision.restore_generations(20).unwrap();
        assert_eq!((folder.describe().unwrap(), folder.known_generation().unwrap()), (description, Some(70)));
        assert_eq!(folder.leases().take_generation("test", &now).unwrap().0, 71);
        for state in [[1u8; 4], [2; 4]] {
            supervision.restore_monitor_state(&state).unwrap();
            assert_eq!(folder.monitor_state().unwrap(), Some(state.to_vec()));
        }
        assert_eq!(std::fs::read(folder.path("monitor.state.old")).unwrap(), [1; 4]);
    }
}
