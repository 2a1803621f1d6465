//! The array's volumes as exports of an NBD server.

use crate::front_end::is_for_nbd;
use braid_admin::failure::Failure;
use braid_control::{ControlPlane, WhenUnavailable};
use braid_description::describe;
use braid_machine::Patience;
use braid_nbd::{Backend, Export, HostBackend, HostVolume, ServedVolume};
use braid_session::{Session, VolumeRegistry, is_usable};
use std::time::Duration;
use tokio::sync::watch;

/// How long a client waits for the description: on several machines, no monitor may lead.
const REFRESH_WAIT: Duration = Duration::from_secs(2);

/// The array's volumes as exports of an NBD server. The description is read again for each request of a client, so that volumes that are
/// created while the server runs are served, too.
pub struct Exports {
    control: ControlPlane,
    registry: VolumeRegistry,
    /// The names of the volumes that are served; if empty, all are.
    only: Vec<String>,
    /// What requests do while devices are missing; none for the volumes' own settings.
    unavailable: Option<WhenUnavailable>,
    served: watch::Sender<Vec<ServedVolume>>,
    backend: HostBackend,
}

impl Exports {
    /// The volumes named in `only`, or all if it is empty, through the host of `session`. What `unavailable` says overrides the
    /// volumes' own settings.
    pub fn new(session: &Session, only: Vec<String>, unavailable: Option<WhenUnavailable>) -> Exports {
        let (served, seen) = watch::channel(Vec::new());
        let (control, registry) = (session.control().clone(), session.registry().clone());
        Exports {
            control,
            registry,
            only,
            unavailable,
            served,
            backend: HostBackend::new(session.client().clone(), seen),
        }
    }

    /// Adopts new volumes and drops deleted ones. If the description can't be read, or not soon, nothing changes.
    async fn refresh(&self) {
        match tokio::time::timeout(REFRESH_WAIT, self.try_refresh()).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => tracing::warn!("can't look up the volumes: {failure}"),
            Err(_) => tracing::warn!("can't look up the volumes within {REFRESH_WAIT:?}"),
        }
    }

    async fn try_refresh(&self) -> Result<(), Failure> {
        let description = self.control.describe().await?;
        self.registry.follow(&description).await?;
        let mut volumes = Vec::new();
        for entry in description.volumes.iter().filter(|entry| is_usable(entry) && is_for_nbd(&description, entry)) {
            if self.only.is_empty() || self.only.contains(&entry.name) {
                let volume = describe(entry)?;
                let about = format!("{} on {} devices", entry.layout, entry.devices.len());
                let setting = self.unavailable.unwrap_or(entry.unavailable());
                let patience = patience(setting);
                volumes.push(ServedVolume { name: entry.name.clone(), description: about, volume, patience });
            }
        }
        self.served.send_replace(volumes);
        Ok(())
    }
}

fn patience(setting: WhenUnavailable) -> Patience {
    match setting {
        WhenUnavailable::Fail => Patience::Host,
        WhenUnavailable::Wait => Patience::Endless,
        WhenUnavailable::WaitFor(span) => Patience::For(span),
    }
}

impl Backend for Exports {
    type Volume = HostVolume;

    async fn exports(&self) -> Vec<Export> {
        self.refresh().await;
        self.backend.exports().await
    }

    async fn open(&self, name: &str) -> Option<HostVolume> {
        self.refresh().await;
        self.backend.open(name).await
    }
}
