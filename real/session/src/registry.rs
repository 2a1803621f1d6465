//! The volumes of the array, as a host knows them: taken in, put on hold and dropped as the array's description has them.
//!
//! A volume whose ordering changes, or where it lies, is on hold: the host begins nothing on it, and tells with its lease when all that it had
//! begun is over. Once the volume is ready again, the host takes it in as it then is, and what has waited begins. So users
//! see a pause, and no error.

use crate::error::SessionError;
use crate::observed::Holds;
use crate::volumes;
use braid_base::VolumeId;
use braid_control::{ArrayDescription, ArrayFolder, VolumeEntry, VolumeState};
use braid_layout::VolumeDescription;
use braid_machine::HostRequest;
use braid_shell::HostClient;
use std::sync::Arc;
use tokio::sync::Mutex;

/// What a host knows of volumes. Clones are of the same.
#[derive(Clone, Debug)]
pub struct VolumeRegistry {
    client: HostClient,
    holds: Holds,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Descriptions of lower revisions are past.
    revision: u64,
    /// As the host knows them.
    taken: Vec<VolumeDescription>,
}

/// The volumes that can be used. A host must know all of them before it says its first word, whether or not it serves them: the
/// monitor may name any host to resynchronises a device, and what the host does not know would not be brought.
pub fn usable(description: &ArrayDescription) -> Result<Vec<VolumeDescription>, SessionError> {
    description.volumes.iter().filter(|entry| is_usable(entry)).map(volumes::describe).collect()
}

impl VolumeRegistry {
    /// Of a host that was started with the [`usable`] volumes of `description`.
    pub fn new(
        client: HostClient,
        holds: Holds,
        description: &ArrayDescription,
    ) -> Result<VolumeRegistry, SessionError> {
        for entry in description.volumes.iter().filter(|entry| entry.state.is_on_hold()) {
            holds.begin(VolumeId(entry.id));
        }
        let state = State { revision: description.revision, taken: usable(description)? };
        Ok(VolumeRegistry { client, holds, state: Arc::new(Mutex::new(state)) })
    }

    /// The volume of this name, as it is now; the host knows it from then on.
    pub async fn take_in(&self, folder: &ArrayFolder, name: &str) -> Result<VolumeDescription, SessionError> {
        // Read now: whoever changes its ordering after this waits for our lease.
        let description = folder.describe()?;
        let volume = volumes::describe(volumes::find(&description, name)?)?;
        self.follow(&description).await?;
        Ok(volume)
    }

    /// Does what has changed since the last time. One that was read before the last one was is ignored.
    pub async fn follow(&self, description: &ArrayDescription) -> Result<(), SessionError> {
        // Held to the end, so that the host is told of changes in their order.
        let mut state = self.state.lock().await;
        if description.revision < state.revision {
            return Ok(());
        }
        state.revision = description.revision;
        for entry in description.volumes.iter().filter(|entry| entry.state.is_on_hold()) {
            let volume = VolumeId(entry.id);
            self.holds.begin(volume);
            // A hold keeps users away; this is the host's own.
            self.client.call(HostRequest::StopMigrating { volume }).await?;
        }
        for entry in description.volumes.iter().filter(|entry| entry.state == VolumeState::Ready) {
            let volume = volumes::describe(entry)?;
            if self.holds.contains(volume.id) || !state.taken.contains(&volume) {
                // This ends the hold, too.
                self.client.call(HostRequest::AdoptVolume { volume: volume.clone() }).await?;
                state.taken.retain(|other| other.id != volume.id);
                state.taken.push(volume);
            }
        }
        let stays = |id: VolumeId| description.volumes.iter().any(|entry| entry.id == id.0 && is_usable(entry));
        for gone in state.taken.extract_if(.., |volume| !stays(volume.id)).collect::<Vec<_>>() {
            self.client.call(HostRequest::DropVolume { volume: gone.id }).await?;
        }
        let on_hold =
            |id: VolumeId| description.volumes.iter().any(|entry| entry.id == id.0 && entry.state.is_on_hold());
        for other in self.holds.all().into_iter().filter(|id| !on_hold(*id)) {
            // Gone while it was on hold: nothing waits for it.
            self.holds.end(other);
        }
        Ok(())
    }
}

/// True if a volume can be used, though perhaps not at this moment.
pub fn is_usable(entry: &VolumeEntry) -> bool {
    entry.state == VolumeState::Ready || entry.state.is_on_hold()
}
