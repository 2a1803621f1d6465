//! What the store of the control plane does for a command about the description: it reads a record, or replaces it if nothing has changed since
//! the version that the command names.

use crate::array::{ArrayDescription, DeviceEntry, DeviceState, DiskEntry};
use crate::file_systems::{FileSystemEntry, FileSystemState};
use crate::records::{DescriptionError, record, set_record};
use crate::volumes::VolumeEntry;
use braid_base::{DeviceId, Generation, VolumeId, limits};
use braid_control_protocol::{
    self as protocol, Answer, Command, DeviceRecord, FileSystemRecord, Version, VolumeRecord,
};

/// What an operation is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A volume, and its entry if it is to be created.
    Volume(VolumeId, Option<Box<VolumeEntry>>),
    /// A device, and the disk that is to fill its slot, if there is one.
    Device(DeviceId, Option<DiskEntry>),
    /// A device that is to be added, as its entry will be.
    NewDevice(Box<DeviceEntry>),
    /// The file system of this number.
    FileSystem(u16),
    /// A file system that is to be created, as its entry will be, with any numbers.
    NewFileSystem(Box<FileSystemEntry>),
}

/// What a command leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The answer, once the next description is stored, if there is one.
    pub answer: Answer,
    pub next: Option<Box<ArrayDescription>>,
}

/// Why a command can't be carried out, whatever version it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is already a volume '{name}'")]
    VolumeExists { name: String },
    #[error("the name '{name}' belongs to file system '{file_system}'")]
    NameOfFileSystem { name: String, file_system: String },
    #[error(
        "an array has at most {} file systems, and a file system counts once for each metadata server",
        limits::FILE_SYSTEMS_MAX
    )]
    TooManyFileSystems,
    #[error("all numbers of file systems have been used")]
    NumbersUsed,
    #[error("file system '{name}' needs volumes of its own, but there is already a volume '{volume}'")]
    VolumeInTheWay { name: String, volume: String },
    #[error(transparent)]
    Description(#[from] DescriptionError),
}

/// Why a description was not changed.
enum Unchanged {
    Superseded,
    Refused(Refusal),
}

impl Subject {
    /// The volume; none if the operation is about something else.
    pub fn volume(&self) -> Option<VolumeId> {
        match self {
            Subject::Volume(volume, _) => Some(*volume),
            _ => None,
        }
    }

    pub fn device(&self) -> Option<u16> {
        match self {
            Subject::Device(device, _) => Some(device.0),
            Subject::NewDevice(entry) => Some(entry.id),
            _ => None,
        }
    }

    /// The file system in a description: one that is to be created is found by its name.
    pub fn file_system<'a>(&self, array: &'a ArrayDescription) -> Option<&'a FileSystemEntry> {
        match self {
            Subject::FileSystem(id) => array.file_systems.iter().find(|entry| entry.id == *id),
            Subject::NewFileSystem(new) => array.file_system(&new.name),
            _ => None,
        }
    }
}

impl ArrayDescription {
    /// Carries out a command of an operation that is about `subject`. Panics for commands about leases.
    pub fn apply(&self, subject: &Subject, command: Command) -> Result<Applied, Refusal> {
        let version = Version(self.revision);
        let answered = |answer| Ok(Applied { answer, next: None });
        let after = match &command {
            Command::Read => return answered(self.read_volume(subject)?),
            Command::ReadDevice => return answered(self.read_device(subject)),
            Command::ReadFileSystem => {
                let record = subject.file_system(self).map(|entry| self.file_system_record(entry));
                return answered(Answer::FileSystem { version, record });
            }
            Command::Confirm { version: named } if *named == version => return answered(Answer::Yes),
            Command::Confirm { .. } => return answered(Answer::Superseded),
            Command::Replace { after, .. }
            | Command::Remove { after }
            | Command::ReplaceDevice { after, .. }
            | Command::RemoveDevice { after }
            | Command::EnterFileSystem { after, .. }
            | Command::ReplaceFileSystem { after, .. }
            | Command::RemoveFileSystem { after } => *after,
            Command::ListServers
            | Command::ListHosts
            | Command::EndLease { .. }
            | Command::ForgetLease { .. }
            | Command::Watch => panic!("the description has no leases: {command:?}"),
        };
        if after != version {
            return answered(Answer::Superseded);
        }
        match self.changed(|array| array.execute(subject, command)) {
            Ok(((), next)) => {
                let answer = Answer::Replaced { version: Version(next.revision) };
                Ok(Applied { answer, next: Some(Box::new(next)) })
            }
            Err(Unchanged::Superseded) => answered(Answer::Superseded),
            Err(Unchanged::Refused(refusal)) => Err(refusal),
        }
    }

    /// The description after a change, with the next revision, and what the change returns.
    pub fn changed<T, E>(
        &self,
        change: impl FnOnce(&mut ArrayDescription) -> Result<T, E>,
    ) -> Result<(T, ArrayDescription), E> {
        let mut next = self.clone();
        let returned = change(&mut next)?;
        next.revision += 1;
        next.schema = next.needed_schema();
        Ok((returned, next))
    }

    fn execute(&mut self, subject: &Subject, command: Command) -> Result<(), Unchanged> {
        match command {
            Command::Replace { record, .. } => return self.replace_volume(subject, &record),
            Command::Remove { .. } => self.volumes.retain(|entry| Some(VolumeId(entry.id)) != subject.volume()),
            Command::ReplaceDevice { record, .. } => return self.replace_device(subject, &record),
            Command::RemoveDevice { .. } => {
                self.next_device = self.unused_device();
                self.devices.retain(|device| Some(device.id) != subject.device());
            }
            Command::EnterFileSystem { by, .. } => {
                let Subject::NewFileSystem(new) = subject else { return Err(Unchanged::Superseded) };
                return Ok(self.enter_file_system(new, by)?);
            }
            Command::ReplaceFileSystem { state, .. } => {
                let id = subject.file_system(self).map(|entry| entry.id).ok_or(Unchanged::Superseded)?;
                let mut all = self.file_systems.iter_mut();
                let entry = all.find(|entry| entry.id == id).expect("just found");
                (entry.state, entry.by) = match state {
                    protocol::FileSystemState::Creating { by } => (FileSystemState::Creating, Some(by.0)),
                    protocol::FileSystemState::Ready => (FileSystemState::Ready, None),
                    protocol::FileSystemState::Deleting => (FileSystemState::Deleting, None),
                };
            }
            Command::RemoveFileSystem { .. } => {
                let id = subject.file_system(self).map(|entry| entry.id);
                self.file_systems.retain(|entry| Some(entry.id) != id);
            }
            other => unreachable!("it changes nothing: {other:?}"),
        }
        Ok(())
    }

    fn read_volume(&self, subject: &Subject) -> Result<Answer, Refusal> {
        // Two volumes that are created at once may differ in their names alone: one that has taken the number is not the one that is meant.
        let is_meant = |entry: &VolumeEntry| match subject {
            Subject::Volume(_, Some(created)) => created.name == entry.name,
            _ => true,
        };
        let entry = self.volumes.iter().find(|entry| Some(VolumeId(entry.id)) == subject.volume());
        let entry = entry.filter(|entry| is_meant(entry));
        Ok(Answer::Record {
            version: Version(self.revision),
            record: entry.map(record).transpose()?.map(Box::new),
            ready_devices: self.ready_devices().map(|device| DeviceId(device.id)).collect(),
            next_volume: VolumeId(self.next_volume),
        })
    }

    fn read_device(&self, subject: &Subject) -> Answer {
        let id = subject.device().expect("the operation is about a device");
        Answer::Device {
            version: Version(self.revision),
            record: self.device(id).map(device_record),
            is_used: id < self.unused_device(),
            volumes: self.volumes_on(id).map(|volume| VolumeId(volume.id)).collect(),
        }
    }

    fn replace_volume(&mut self, subject: &Subject, record: &VolumeRecord) -> Result<(), Unchanged> {
        let Subject::Volume(VolumeId(id), entry) = subject else { return Err(Unchanged::Superseded) };
        if !self.volumes.iter().any(|entry| entry.id == *id) {
            self.enter_volume(*entry.clone().ok_or(Unchanged::Superseded)?, record.administrator())?;
        }
        let mut all = self.volumes.iter_mut();
        let entry = all.find(|entry| entry.id == *id).ok_or(Unchanged::Superseded)?;
        Ok(set_record(entry, record).map_err(Refusal::from)?)
    }

    /// Enters a new volume, if its name is free. The names of the volumes of a file system are free for the host that creates it.
    fn enter_volume(&mut self, entry: VolumeEntry, by: Option<Generation>) -> Result<(), Refusal> {
        if self.volume(&entry.name).is_some() {
            return Err(Refusal::VolumeExists { name: entry.name });
        }
        let creates = |file_system: &FileSystemEntry| {
            file_system.state == FileSystemState::Creating && file_system.by == by.map(|by| by.0)
        };
        if let Some(file_system) = self.file_system_of(&entry).filter(|file_system| !creates(file_system)) {
            return Err(Refusal::NameOfFileSystem { name: entry.name, file_system: file_system.name.clone() });
        }
        self.next_volume = self.next_volume.max(entry.id + 1);
        self.volumes.push(entry);
        Ok(())
    }

    fn replace_device(&mut self, subject: &Subject, record: &DeviceRecord) -> Result<(), Unchanged> {
        let id = subject.device().ok_or(Unchanged::Superseded)?;
        if let Subject::NewDevice(entry) = subject
            && self.device(id).is_none()
        {
            self.next_device = id + 1;
            self.spares.retain(|spare| Some(spare.disk) != entry.disk);
            self.devices.push(DeviceEntry::clone(entry));
        }
        let device = self.device_mut(id).ok_or(Unchanged::Superseded)?;
        device.state = match record.state {
            protocol::DeviceState::Adding { .. } => DeviceState::Adding,
            protocol::DeviceState::Ready => DeviceState::Ready,
            protocol::DeviceState::Removing { .. } => DeviceState::Removing,
        };
        device.by = record.state.administrator().map(|by| by.0);
        device.others.retain(|other| record.others.contains(&other.disk));
        if let Subject::Device(_, Some(disk)) = subject
            && record.others.contains(&disk.disk)
        {
            device.remember(disk.clone());
        }
        Ok(())
    }

    /// Enters a file system that the host `by` creates, with numbers that none had before.
    fn enter_file_system(&mut self, new: &FileSystemEntry, by: Generation) -> Result<(), Refusal> {
        let servers = new.servers().len();
        let there: usize = self.file_systems.iter().map(|entry| entry.servers().len()).sum();
        if there + servers > limits::FILE_SYSTEMS_MAX {
            return Err(Refusal::TooManyFileSystems);
        }
        let last = self.last_file_system.checked_add(servers as u16).ok_or(Refusal::NumbersUsed)?;
        let id = self.last_file_system + 1;
        let mut entry = FileSystemEntry { id, state: FileSystemState::Creating, by: Some(by.0), ..new.clone() };
        if let Some(shards) = &mut entry.shards {
            shards.ids = (id..=last).collect();
        }
        if let Some(volume) = entry.volumes().into_iter().find(|name| self.volume(name).is_some()) {
            return Err(Refusal::VolumeInTheWay { name: entry.name, volume });
        }
        self.last_file_system = last;
        self.file_systems.push(entry);
        Ok(())
    }

    /// A file system as the protocol sees it.
    fn file_system_record(&self, entry: &FileSystemEntry) -> FileSystemRecord {
        let there = |name: String| self.volume(&name).map(|volume| VolumeId(volume.id));
        FileSystemRecord {
            servers: entry.servers(),
            volumes: entry.volumes().into_iter().filter_map(there).collect(),
            state: match entry.state {
                // No host has generation 0: a creation of an earlier release is over.
                FileSystemState::Creating => {
                    protocol::FileSystemState::Creating { by: Generation(entry.by.unwrap_or(0)) }
                }
                FileSystemState::Ready => protocol::FileSystemState::Ready,
                FileSystemState::Deleting => protocol::FileSystemState::Deleting,
            },
        }
    }
}

/// A device as the protocol sees it.
pub fn device_record(device: &DeviceEntry) -> DeviceRecord {
    // No host has generation 0: whoever began in an older release is dead.
    let by = Generation(device.by.unwrap_or_default());
    DeviceRecord {
        disk: device.disk,
        others: device.others.iter().map(|other| other.disk).collect(),
        state: match device.state {
            DeviceState::Adding => protocol::DeviceState::Adding { by },
            DeviceState::Ready => protocol::DeviceState::Ready,
            DeviceState::Removing => protocol::DeviceState::Removing { by },
        },
    }
}

impl From<Refusal> for Unchanged {
    fn from(refusal: Refusal) -> Unchanged {
        Unchanged::Refused(refusal)
    }
}
