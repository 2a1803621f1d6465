//! The volume registry keeps a host's volumes in step with the array's description: it adopts them, puts them on hold and drops them.
//!
//! A volume whose ordering or placement changes is on hold: the host starts no operation on it, and reports with its lease when all its
//! operations have ended. Once the volume is ready again, the host adopts the new description, and the requests that have waited
//! start. Users see a pause, and no error.

use crate::error::SessionError;
use crate::host_view::HostView;
use braid_base::VolumeId;
use braid_control::{ArrayDescription, ArrayFolder, VolumeEntry, VolumeState};
use braid_control_protocol::{Follower, Version, VolumeRecord};
use braid_description::{DescriptionError, describe, find, record};
use braid_layout::VolumeDescription;
use braid_shell::HostClient;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The volumes of one host. Clones share the same registry.
#[derive(Clone, Debug)]
pub struct VolumeRegistry {
    client: HostClient,
    follower: Arc<Mutex<Follower>>,
}

/// The usable volumes. A host must know all of them before it sends its first message, whether or not it serves them: the monitor may
/// choose any host to resynchronise a device, and a volume unknown to that host would not be resynchronised.
pub fn usable(description: &ArrayDescription) -> Result<Vec<VolumeDescription>, SessionError> {
    let usable = description.volumes.iter().filter(|entry| is_usable(entry)).map(describe);
    Ok(usable.collect::<Result<_, DescriptionError>>()?)
}

/// The volumes on hold.
pub fn held(description: &ArrayDescription) -> BTreeSet<VolumeId> {
    let on_hold = description.volumes.iter().filter(|entry| entry.state.is_on_hold());
    on_hold.map(|entry| VolumeId(entry.id)).collect()
}

impl VolumeRegistry {
    /// The registry of a host that was started with the [`usable`] volumes of `description`.
    pub fn new(client: HostClient, description: &ArrayDescription) -> Result<VolumeRegistry, SessionError> {
        let follower = Follower::new(Version(description.revision), &records(description)?);
        Ok(VolumeRegistry { client, follower: Arc::new(Mutex::new(follower)) })
    }

    /// The current description of the volume of this name, which the host knows from then on.
    pub async fn take_in(&self, folder: &ArrayFolder, name: &str) -> Result<VolumeDescription, SessionError> {
        // Read now: a process that changes the volume's ordering after this waits for our lease.
        let description = folder.describe()?;
        let volume = describe(find(&description, name)?)?;
        self.follow(&description).await?;
        Ok(volume)
    }

    /// Applies the changes since the last call. A description older than the last one is ignored.
    pub async fn follow(&self, description: &ArrayDescription) -> Result<(), SessionError> {
        // Held until the end, so that the host is told of changes in their order.
        let mut follower = self.follower.lock().await;
        for step in follower.follow(Version(description.revision), &records(description)?) {
            self.client.call(step.request()).await?;
            follower.did(&step);
        }
        Ok(())
    }

    /// The revision to report with the lease, after it was followed; none while the host has operations under way on volumes that are on
    /// hold, or gone.
    pub async fn confirmable(&self, revision: u64, view: &HostView) -> Option<u64> {
        let mut follower = self.follower.lock().await;
        follower.confirmable(Version(revision), |volume| view.is_idle_for(volume)).map(|Version(revision)| revision)
    }
}

/// The records of the usable volumes.
fn records(description: &ArrayDescription) -> Result<Vec<VolumeRecord>, DescriptionError> {
    description.volumes.iter().filter(|entry| is_usable(entry)).map(record).collect()
}

/// True if a volume is usable, though it may be on hold.
pub fn is_usable(entry: &VolumeEntry) -> bool {
    entry.state == VolumeState::Ready || entry.state.is_on_hold()
}
