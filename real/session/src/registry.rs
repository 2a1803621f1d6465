//! The volumes of a host, as its control part (`braid_control_protocol::HostControl`) keeps them in step with the array's description. Other tasks
//! have it look at once, and wait until the host knows a version.

use crate::error::SessionError;
use braid_base::VolumeId;
use braid_control::{ArrayDescription, ControlPlane, VolumeEntry, VolumeState};
use braid_control_protocol::{Version, VolumeRecord};
use braid_description::{DescriptionError, describe, find, record};
use braid_layout::VolumeDescription;
use braid_machine::HostError;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The longest time until a host knows what was read: its control part reads and renews meanwhile.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(30);

/// The volumes of one host. Clones share the same host.
#[derive(Clone, Debug)]
pub struct VolumeRegistry {
    /// The last version that the host has applied.
    applied: watch::Receiver<Version>,
    look: Arc<Notify>,
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
    pub(crate) fn new(applied: watch::Receiver<Version>, look: Arc<Notify>) -> VolumeRegistry {
        VolumeRegistry { applied, look }
    }

    /// The current description of the volume of this name, which the host knows from then on.
    pub async fn take_in(&self, control: &ControlPlane, name: &str) -> Result<VolumeDescription, SessionError> {
        // Read now: a process that changes the volume's ordering after this waits for our lease.
        let description = control.describe().await?;
        let volume = describe(find(&description, name)?)?;
        self.follow(&description).await?;
        Ok(volume)
    }

    /// Returns when the host has applied this description, or a later one.
    pub async fn follow(&self, description: &ArrayDescription) -> Result<(), SessionError> {
        let version = Version(description.revision);
        let mut applied = self.applied.clone();
        if *applied.borrow() < version {
            self.look.notify_one();
            let is_applied = tokio::time::timeout(FOLLOWED_WITHIN, applied.wait_for(|applied| *applied >= version));
            let is_applied = is_applied.await.map_err(|_| SessionError::NotFollowed { waited: FOLLOWED_WITHIN })?;
            // The host has ended, or was lost.
            is_applied.map_err(|_| HostError::Stopped)?;
        }
        Ok(())
    }
}

/// The records of the usable volumes.
pub(crate) fn records(description: &ArrayDescription) -> Result<Vec<VolumeRecord>, DescriptionError> {
    description.volumes.iter().filter(|entry| is_usable(entry)).map(record).collect()
}

/// True if a volume is usable, though it may be on hold.
pub fn is_usable(entry: &VolumeEntry) -> bool {
    entry.state == VolumeState::Ready || entry.state.is_on_hold()
}
