//! The parity site of a volume: where the parity of its writes is computed. It can be changed while hosts use the volume.
//!
//! Nothing is put on hold for a change: writes whose parity is computed at different sites mix freely (`docs/parallel-raid.md`). Hosts
//! follow the description of the array, and adopt the new site with their next renewal of the lease.

use crate::array::Array;
use crate::failure::Failure;
use crate::volumes;
use crate::waiting::await_until;
use braid_control::{ControlPlane, HostEntry, Moment};
use braid_layout::SitePolicy;
use std::time::Duration;

/// How long to wait until hosts have adopted a change. A suspended host adopts it when it runs again.
const ADOPTION_WAIT: Duration = Duration::from_secs(5);

/// The result of changing a volume's parity site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParitySiteChange {
    /// The previous site.
    pub before: String,
    /// False if the volume had the requested site already.
    pub changed: bool,
    /// Why the site has no effect on this volume; none if it has.
    pub without_effect: Option<&'static str>,
    /// The hosts with leases that have not adopted the site yet: they are suspended, or the machine is busy.
    pub pending_hosts: Vec<HostEntry>,
}

impl Array {
    /// Sets where the parity of a volume is computed. Hosts that use the volume adopt it, without a pause; this waits for them for up to
    /// five seconds. The array need not be up. Errors: `no-such-volume`, `volume-reordering`.
    pub async fn set_parity_site(&self, name: &str, to: SitePolicy) -> Result<ParitySiteChange, Failure> {
        let control = self.control();
        let description = control.describe().await?;
        let entry = volumes::find(&description, name)?;
        let (before, without_effect) = (entry.parity_site.clone(), volumes::without_effect(entry)?);
        let changed = before != to.name();
        let revision = if changed { record(control, name, to).await? } else { description.revision };
        let pending_hosts = await_adoption(control, revision).await?;
        Ok(ParitySiteChange { before, changed, without_effect, pending_hosts })
    }
}

/// Records the site in the description of the array. Returns the revision with it.
async fn record(control: &ControlPlane, name: &str, to: SitePolicy) -> Result<u64, Failure> {
    control
        .update(|description| {
            let revision = description.revision + 1;
            volumes::changeable(description, name)?.parity_site = to.name().to_string();
            Ok(revision)
        })
        .await
}

/// Waits until all hosts with leases have applied a revision of the description. Returns those that have not.
async fn await_adoption(control: &ControlPlane, revision: u64) -> Result<Vec<HostEntry>, Failure> {
    let lease = control.describe().await?.leases().lease();
    let behind = async || {
        let mut hosts = control.leases().hosts(Moment::now(), lease).await?;
        hosts.retain(|host| host.goes_on() && host.report.lock_server.is_none() && host.report.revision < revision);
        Ok(hosts)
    };
    await_until(control, ADOPTION_WAIT, async || Ok(behind().await?.is_empty())).await?;
    behind().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::VolumeEntry;

    fn entry(layout: &str, ordering: &str, atomicity: &str) -> VolumeEntry {
        let volume = crate::health::tests::volume(layout.parse().unwrap(), 3);
        VolumeEntry {
            ordering: ordering.into(),
            atomicity: atomicity.into(),
            parity_site: "at-parity".into(),
            ..VolumeEntry::new("vol0".into(), &volume)
        }
    }

    #[test]
    fn only_volumes_with_parity_and_stamps_have_a_parity_site() {
        let has_effect = |entry: &VolumeEntry| volumes::without_effect(entry).unwrap().is_none();
        assert!(has_effect(&entry("raid5:2+1", "timestamp", "implied")));
        for (layout, ordering, atomicity) in [
            ("raid1:2", "timestamp", "implied"),
            ("raid0:3", "timestamp", "implied"),
            ("raid5:2+1", "device-lock", "implied"),
            ("raid5:2+1", "callback-lock", "implied"),
            ("raid5:2+1", "none", "consistent"),
            ("raid5:2+1", "timestamp", "consistent"),
        ] {
            assert!(!has_effect(&entry(layout, ordering, atomicity)), "{layout}, {ordering}, {atomicity}");
        }
        let attributes = VolumeEntry { attribute_volume: true, ..entry("raid5:2+1", "timestamp", "implied") };
        assert!(!has_effect(&attributes));
    }
}
