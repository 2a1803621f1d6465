//! The file of the array's description: it is created, read, and changed by compare-and-swap.

use crate::changes;
use crate::error::ControlError;
use crate::file::{self, Durability};
use crate::folder::LocalFolder;
use crate::paths::{DESCRIPTION, HOSTS, RESERVE};
use crate::private_files::create_private_folder;
use crate::reserve;
use braid_base::ArrayId;
use braid_description::ArrayDescription;
use std::io::ErrorKind;

/// The description as it was read, with its version.
#[derive(Clone, Debug)]
pub struct Stored {
    pub description: ArrayDescription,
    /// The content of the file: a revision may occur again, in a file that was put back.
    bytes: Vec<u8>,
}

impl Stored {
    /// That of the leading monitor, which never uses a revision twice.
    pub(crate) fn of_leader(description: ArrayDescription) -> Stored {
        Stored { description, bytes: Vec::new() }
    }
}

/// A name that no other array has.
pub fn new_array_id() -> ArrayId {
    ArrayId(uuid::Uuid::new_v4().into_bytes())
}

impl LocalFolder {
    /// Creates the folder if it is missing, and puts a new array into it.
    pub fn create(&self, description: &ArrayDescription) -> Result<(), ControlError> {
        self.require_trust()?;
        for folder in [self.dir().to_path_buf(), self.path(HOSTS)] {
            create_private_folder(&folder).map_err(ControlError::file("create", &folder))?;
        }
        let _lock = self.lock()?;
        if self.path(DESCRIPTION).exists() {
            return Err(ControlError::ArrayExists { dir: self.dir().to_path_buf() });
        }
        consistent(self, description)?;
        reserve::fill(&self.path(RESERVE))?;
        self.leases().begin_generations()?;
        // The description is written last, because the array exists from then on.
        self.replace(&self.path(DESCRIPTION), description, Durability::Durable)?;
        // A folder that the user has made for the array.
        self.make_private().map(drop)
    }

    pub(crate) fn describe(&self) -> Result<ArrayDescription, ControlError> {
        self.read().map(|stored| stored.description)
    }

    /// Reads the description. A folder that other users could change is refused.
    pub(crate) fn read(&self) -> Result<Stored, ControlError> {
        // What is no array needs no trust. A folder that this user may not look into may be one.
        let path = self.path(DESCRIPTION);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(ControlError::file("read", &path)(error));
            }
            Err(_) if self.dir().is_dir() => return Err(ControlError::NoArray { dir: self.dir().to_path_buf() }),
            _ => {}
        }
        self.require_trust()?;
        let bytes = file::read_bytes(&path)?.ok_or_else(|| ControlError::NoArray { dir: self.dir().to_path_buf() })?;
        let description = file::parse(&path, &bytes)?;
        consistent(self, &description)?;
        Ok(Stored { description, bytes })
    }

    /// Changes the description under the lock that excludes other writers.
    pub(crate) fn update<T, E: From<ControlError>>(
        &self,
        change: impl FnOnce(&mut ArrayDescription) -> Result<T, E>,
    ) -> Result<T, E> {
        self.decide(|before| before.description.changed(change).map(|(returned, next)| (returned, Some(next))))
    }

    pub(crate) fn replace_after(&self, read: &Stored, next: ArrayDescription) -> Result<bool, ControlError> {
        self.decide(|before| {
            let is_it = before.bytes == read.bytes;
            Ok((is_it, is_it.then_some(next)))
        })
    }

    /// Replaces the description by what `decide` makes of its current content, if that is another one, under the lock that excludes other
    /// writers. Returns what `decide` returns.
    fn decide<T, E: From<ControlError>>(
        &self,
        decide: impl FnOnce(&Stored) -> Result<(T, Option<ArrayDescription>), E>,
    ) -> Result<T, E> {
        let lock = self.lock()?;
        let before = self.read()?;
        let (returned, next) = decide(&before)?;
        let Some(next) = next else { return Ok(returned) };
        consistent(self, &next)?;
        self.require_lock(&lock)?;
        self.replace(&self.path(DESCRIPTION), &next, Durability::Durable)?;
        for event in changes::events(&before.description, &next) {
            if let Err(error) = self.append_event(&event) {
                tracing::warn!("can't record an event: {error}");
            }
        }
        Ok(returned)
    }
}

fn consistent(folder: &LocalFolder, description: &ArrayDescription) -> Result<(), ControlError> {
    description.check().map_err(|reason| ControlError::Inconsistent { file: folder.path(DESCRIPTION), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::{Scratch, description, volume};
    use crate::paths::LOCK;
    use crate::{Change, VolumeEntry, VolumeState};

    #[test]
    fn an_array_is_found_by_its_folder_and_by_its_description() {
        let (scratch, folder) = Scratch::with_array("found");
        let written = folder.describe().unwrap();
        assert_eq!(LocalFolder::at(&scratch.path("array/array.json")).describe().unwrap(), written);
        assert!(matches!(folder.create(&description()), Err(ControlError::ArrayExists { .. })));
        let elsewhere = LocalFolder::at(&scratch.path("elsewhere"));
        assert!(matches!(elsewhere.describe(), Err(ControlError::NoArray { .. })));
        assert!(matches!(elsewhere.update(|_| Ok::<_, ControlError>(())), Err(ControlError::NoArray { .. })));
    }

    #[test]
    fn an_array_of_before_there_were_lock_servers_has_one() {
        let (_scratch, folder) = Scratch::with_array("before");
        let path = folder.path(DESCRIPTION);
        let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let creation = value["creation"].as_object_mut().unwrap();
        assert_eq!(creation.remove("lock_servers"), Some(2.into()));
        assert_eq!(creation.remove("lock_acquisition"), Some("timeout".into()));
        std::fs::write(&path, value.to_string()).unwrap();
        let creation = folder.describe().unwrap().creation;
        assert_eq!((creation.lock_servers, creation.lock_acquisition.name()), (1, "ordered"));
    }

    #[test]
    fn a_change_that_fails_or_makes_no_sense_changes_nothing() {
        let (_scratch, folder) = Scratch::with_array("fails");
        let before = folder.describe().unwrap();
        let failed: Result<(), ControlError> = folder.update(|description| {
            description.populated = true;
            Err(ControlError::GenerationsExhausted)
        });
        assert!(failed.is_err());
        let senseless = folder.update(|description| {
            let mut volume = volume(description, "v");
            volume.devices = vec![0, 7];
            description.volumes.push(volume);
            Ok::<_, ControlError>(())
        });
        assert!(matches!(senseless, Err(ControlError::Inconsistent { .. })));
        assert_eq!(folder.describe().unwrap(), before);
    }

    #[test]
    fn a_change_of_volumes_is_an_event_and_the_names_of_removed_ones_are_known() {
        let (_scratch, folder) = Scratch::with_array("changes");
        let with = |volumes: Vec<VolumeEntry>| {
            let change = |description: &mut ArrayDescription| {
                description.volumes = volumes;
                description.next_volume = 9;
                Ok::<_, ControlError>(())
            };
            folder.update(change).unwrap();
        };
        let entry = volume(&mut folder.describe().unwrap(), "v");
        let entry = VolumeEntry { id: 7, state: VolumeState::Ready, ..entry };
        with(vec![entry]);
        with(Vec::new());
        let kinds: Vec<_> = folder.events().unwrap().0.into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [crate::EventKind::VolumeCreated, crate::EventKind::VolumeDeleted]);
        let name = |id| folder.removed(crate::EventKind::VolumeDeleted, id);
        assert_eq!((name(7).as_deref(), name(8)), (Some("v"), None));
    }

    #[test]
    fn a_damaged_description_is_reported_and_kept() {
        let (_scratch, folder) = Scratch::with_array("damaged");
        for damage in ["{\"schema\": 1, \"arr", "", "{}", "[]", "{\"schema\": 1}"] {
            std::fs::write(folder.path(DESCRIPTION), damage).unwrap();
            assert!(matches!(folder.describe(), Err(ControlError::Damaged { .. })), "{damage}");
            assert!(folder.update(|_| Ok::<_, ControlError>(())).is_err());
            assert!(folder.create(&description()).is_err());
            assert_eq!(std::fs::read_to_string(folder.path(DESCRIPTION)).unwrap(), damage);
        }
    }

    #[test]
    fn a_description_read_under_a_removed_lock_is_not_written() {
        let (_scratch, folder) = Scratch::with_array("unlocked");
        let before = folder.describe().unwrap();
        let update = folder.update(|description| {
            std::fs::remove_file(folder.path(LOCK)).unwrap();
            // Another process changes the description meanwhile.
            let other = |description: &mut ArrayDescription| {
                description.populated = true;
                Ok::<_, ControlError>(())
            };
            folder.update(other).unwrap();
            description.populated = false;
            Ok::<_, ControlError>(())
        });
        assert!(matches!(update, Err(ControlError::File { .. })), "{update:?}");
        let after = folder.describe().unwrap();
        assert_eq!((after.revision, after.populated), (before.revision + 1, true));
    }

    #[test]
    fn a_release_that_can_not_grow_volumes_reads_no_description_in_which_one_grows() {
        let (_scratch, folder) = Scratch::with_array("growing");
        let mut schemas = Vec::new();
        for to in [Some(Change::Grow(1 << 30)), Some(Change::EndMove), None] {
            let enter = |description: &mut ArrayDescription| {
                let state = to.map_or(VolumeState::Ready, |to| VolumeState::Draining { to, by: 1 });
                description.volumes = vec![VolumeEntry { state, ..volume(description, "v") }];
                Ok::<_, ControlError>(())
            };
            folder.update(enter).unwrap();
            let text = std::fs::read(folder.path(DESCRIPTION)).unwrap();
            schemas.push(serde_json::from_slice::<serde_json::Value>(&text).unwrap()["schema"].as_u64().unwrap());
            assert_eq!(folder.describe().unwrap().schema, schemas[schemas.len() - 1]);
        }
        assert_eq!(schemas, [3, 2, 2]);
    }
}
