//! Answers to the questions of operations on file systems: their entries in the description, and the leases of their metadata servers.

use super::store::{Answered, Questions, Refused, Subject, answer_to};
use crate::failure::Failure;
use crate::{file_system_check, file_systems};
use braid_base::{FileSystemId, Generation, VolumeId};
use braid_control::{ArrayDescription, FileSystemEntry, FileSystemState, HostEntry, Moment};
use braid_control_protocol::{self as protocol, Announcement, Answer, FileSystemRecord, ServerLease, Version};
use braid_machine::{ArrayRequest, HostError, HostSuccess};
use braid_shell::HostClient;
use braid_wire::{OwnershipRefused, OwnershipRequest};

impl Questions {
    pub(super) fn read_file_system(&self) -> Result<Answer, Failure> {
        let description = self.folder.describe()?;
        let entry = self.file_system(&description);
        let record = entry.map(|entry| file_system_record(&description, entry));
        Ok(Answer::FileSystem { version: Version(description.revision), record })
    }

    pub(super) fn replace_file_system(
        &self,
        after: Version,
        state: protocol::FileSystemState,
    ) -> Result<Answered, Failure> {
        let replaced = self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            let id = self.file_system(description).map(|entry| entry.id);
            let entry = description.file_systems.iter_mut().find(|entry| Some(entry.id) == id);
            let Some(entry) = entry.filter(|_| Version(revision) == after) else { return Err(Refused::Superseded) };
            (entry.state, entry.by) = match state {
                protocol::FileSystemState::Creating { by } => (FileSystemState::Creating, Some(by.0)),
                protocol::FileSystemState::Ready => (FileSystemState::Ready, None),
                protocol::FileSystemState::Deleting => (FileSystemState::Deleting, None),
            };
            Ok(Version(revision + 1))
        });
        answer_to(replaced)
    }

    pub(super) fn enter_file_system(&self, after: Version, by: Generation) -> Result<Answered, Failure> {
        let Subject::NewFileSystem(new) = &self.subject else { unreachable!("only new file systems are entered") };
        let entered = self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            if Version(revision) != after {
                return Err(Refused::Superseded);
            }
            file_systems::enter(description, new, by)?;
            Ok(Version(revision + 1))
        });
        answer_to(entered)
    }

    pub(super) fn remove_file_system(&self, after: Version) -> Result<Answered, Failure> {
        let removed = self.folder.update(|description: &mut ArrayDescription| {
            let revision = description.revision;
            if Version(revision) != after {
                return Err(Refused::Superseded);
            }
            let id = self.file_system(description).map(|entry| entry.id);
            description.file_systems.retain(|entry| Some(entry.id) != id);
            Ok(Version(revision + 1))
        });
        answer_to(removed)
    }

    pub(super) fn list_servers(&self) -> Result<Answer, Failure> {
        let description = self.folder.describe()?;
        let hosts = self.folder.hosts(&Moment::now(), description.leases().lease())?;
        let entry = self.file_system(&description);
        let is_announced = |announcement: &Announcement| {
            let role = entry.map(|entry| file_system_check::role_of(&entry.name, *announcement));
            role.is_some_and(|role| hosts.iter().any(|host| host.role == role && is_alive(host)))
        };
        let announced = [Announcement::Settle, Announcement::Check].into_iter().filter(is_announced).collect();
        Ok(Answer::Servers { leases: hosts.iter().filter_map(server_lease).collect(), announced })
    }

    /// The file system that the operation is about: one that is to be created is found by its name.
    fn file_system<'a>(&self, description: &'a ArrayDescription) -> Option<&'a FileSystemEntry> {
        match &self.subject {
            Subject::FileSystem(id) => description.file_systems.iter().find(|entry| entry.id == *id),
            Subject::NewFileSystem(new) => description.file_system(&new.name),
            other => unreachable!("no operation on a file system: {other:?}"),
        }
    }

    pub(super) async fn ownership(
        &self,
        file_system: FileSystemId,
        request: OwnershipRequest,
    ) -> Result<Answered, Failure> {
        Ok((ask_ownership(self.client()?, file_system, request).await?, None))
    }
}

/// Asks the monitor about the ownership of a shard.
pub(crate) async fn ask_ownership(
    client: &HostClient,
    file_system: FileSystemId,
    request: OwnershipRequest,
) -> Result<Answer, Failure> {
    match client.call(ArrayRequest::Ownership { file_system, request }).await {
        Ok(HostSuccess::Ownership(now)) | Err(HostError::Ownership(OwnershipRefused::Differs(now))) => {
            Ok(Answer::Ownership(now))
        }
        Ok(_) => Err(Failure::failed("internal", "the monitor gave an unexpected answer")),
        Err(error) => Err(error.into()),
    }
}

/// A file system as the protocol sees it.
fn file_system_record(description: &ArrayDescription, entry: &FileSystemEntry) -> FileSystemRecord {
    let there = |name: String| description.volume(&name).map(|volume| VolumeId(volume.id));
    FileSystemRecord {
        servers: entry.servers(),
        volumes: entry.volumes().into_iter().filter_map(there).collect(),
        state: match entry.state {
            // No host has generation 0: a creation of an earlier release is over.
            FileSystemState::Creating => protocol::FileSystemState::Creating { by: Generation(entry.by.unwrap_or(0)) },
            FileSystemState::Ready => protocol::FileSystemState::Ready,
            FileSystemState::Deleting => protocol::FileSystemState::Deleting,
        },
    }
}

/// A metadata server as the protocol sees it. One that was killed may still have a lease, so processes are looked for.
fn server_lease(host: &HostEntry) -> Option<ServerLease> {
    let server = host.report.metadata_server.as_ref()?;
    Some(ServerLease {
        host: host.generation,
        file_system: FileSystemId(server.file_system),
        is_live: is_alive(host),
        serves: server.serves,
        settled: server.settled,
    })
}

fn is_alive(host: &HostEntry) -> bool {
    host.is_alive()
}
