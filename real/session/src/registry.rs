//! The volume registry keeps a host's volumes in step with the array's description: it adopts them, puts them on hold and drops them.
//!
//! A volume whose ordering or placement changes is on hold: the host starts no operation on it, and reports with its lease when all its
//! operations have ended. Once the volume is ready again, the host adopts the new description, and the requests that have waited
//! start. Users see a pause, and no error.

use crate::error::SessionError;
use crate::held_volumes::Holds;
use crate::volumes;
use braid_base::VolumeId;
use braid_control::{ArrayDescription, ArrayFolder, VolumeEntry, VolumeState};
use braid_layout::VolumeDescription;
use braid_machine::HostRequest;
use braid_shell::HostClient;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The volumes of one host. Clones share the same registry.
#[derive(Clone, Debug)]
pub struct VolumeRegistry {
    client: HostClient,
    holds: Holds,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// The revision that was applied last. Lower revisions are ignored.
    revision: u64,
    /// The volumes as the host knows them.
    taken: Vec<VolumeDescription>,
}

/// The usable volumes. A host must know all of them before it sends its first message, whether or not it serves them: the monitor may
/// choose any host to resynchronise a device, and a volume unknown to that host would not be resynchronised.
pub fn usable(description: &ArrayDescription) -> Result<Vec<VolumeDescription>, SessionError> {
    description.volumes.iter().filter(|entry| is_usable(entry)).map(volumes::describe).collect()
}

impl VolumeRegistry {
    /// The registry of a host that was started with the [`usable`] volumes of `description`.
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

    /// The current description of the volume of this name, which the host knows from then on.
    pub async fn take_in(&self, folder: &ArrayFolder, name: &str) -> Result<VolumeDescription, SessionError> {
        // Read now: a process that changes the volume's ordering after this waits for our lease.
        let description = folder.describe()?;
        let volume = volumes::describe(volumes::find(&description, name)?)?;
        self.follow(&description).await?;
        Ok(volume)
    }

    /// Applies the changes since the last call. A description older than the last one is ignored.
    pub async fn follow(&self, description: &ArrayDescription) -> Result<(), SessionError> {
        // Held until the end, so that the host is told of changes in their order.
        let mut state = self.state.lock().await;
        if description.revision < state.revision {
            return Ok(());
        }
        state.revision = description.revision;
        for entry in description.volumes.iter().filter(|entry| entry.state.is_on_hold()) {
            let volume = VolumeId(entry.id);
            self.holds.begin(volume);
            // A hold only holds back users' operations; the migration is the host's own.
            self.client.call(HostRequest::StopMigrating { volume }).await?;
        }
        for entry in description.volumes.iter().filter(|entry| entry.state == VolumeState::Ready) {
            let volume = volumes::describe(entry)?;
            if self.holds.contains(volume.id) || !state.taken.contains(&volume) {
                // Adopting the volume also ends its hold.
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
            // The volume was deleted while it was on hold: no request waits for it.
            self.holds.end(other);
        }
        Ok(())
    }
}

/// True if a volume is usable, though it may be on hold.
pub fn is_usable(entry: &VolumeEntry) -> bool {
    entry.state == VolumeState::Ready || entry.state.is_on_hold()
}
