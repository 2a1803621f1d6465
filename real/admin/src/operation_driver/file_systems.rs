//! Answers to the questions of operations on file systems: the leases of their metadata servers, and their ownership.

use super::store::{Answered, Questions};
use crate::failure::Failure;
use braid_base::FileSystemId;
use braid_control::{HostEntry, Moment};
use braid_control_protocol::{Announcement, Answer, ServerLease};
use braid_machine::{ArrayRequest, HostError, HostSuccess};
use braid_shell::HostClient;
use braid_wire::{OwnershipRefused, OwnershipRequest};

impl Questions {
    pub(super) async fn list_servers(&self) -> Result<Answer, Failure> {
        let description = self.control.describe().await?;
        let hosts = self.control.leases().hosts(Moment::now(), description.leases().lease()).await?;
        let entry = self.subject.file_system(&description);
        let is_announced = |announcement: &Announcement| {
            let role = entry.map(|entry| role_of(&entry.name, *announcement));
            role.is_some_and(|role| hosts.iter().any(|host| host.role == role && host.is_alive()))
        };
        let announced = [Announcement::Quiesce, Announcement::Check].into_iter().filter(is_announced).collect();
        Ok(Answer::Servers { leases: hosts.iter().filter_map(server_lease).collect(), announced })
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

/// A metadata server as the protocol sees it. One that was killed may still have a lease, so processes are looked for.
fn server_lease(host: &HostEntry) -> Option<ServerLease> {
    let server = host.report.metadata_server.as_ref()?;
    Some(ServerLease {
        host: host.generation,
        file_system: FileSystemId(server.file_system),
        is_live: host.is_alive(),
        serves: server.serves,
        quiescent: server.settled,
    })
}

/// The role of the hosts of a check, as their leases state it.
pub fn role(name: &str) -> String {
    format!("fs check {name}")
}

/// The role of the host that announces something, as its lease states it.
pub fn role_of(name: &str, announcement: Announcement) -> String {
    match announcement {
        Announcement::Quiesce => format!("fs check {name}: settles"),
        Announcement::Check => role(name),
    }
}
