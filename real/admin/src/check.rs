//! Checking a volume: compares the parity of each stripe with its data.

use crate::array::Array;
use crate::failure::Failure;
use crate::volumes;
use braid_base::DeviceId;
use braid_layout::VolumeDescription;
use braid_machine::{HostError, HostSuccess, JobRequest, Patience, VolumeRequest};
use braid_session::Session;
use braid_shell::HostClient;
use std::collections::BTreeSet;
use tokio::task::JoinSet;

/// Stripes checked concurrently.
const IN_FLIGHT: u64 = 32;
/// Attempts per unit: a unit that differs from its stripe may have been written between the two reads.
const LOOKS: u32 = 5;

/// The result of checking a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The number of stripes of the volume.
    pub stripes: u64,
    /// Stripes whose parity and data differ.
    pub bad: Vec<u64>,
    /// Stripes with a damaged block, and the devices of those blocks.
    pub unreadable: Vec<u64>,
    pub damaged: BTreeSet<DeviceId>,
    /// The number of stripes that could not be checked because a device is not in.
    pub unchecked: u64,
    /// The devices that were missing for them.
    pub lacks: BTreeSet<DeviceId>,
}

impl Findings {
    /// True if every stripe that was checked is correct.
    pub fn is_sound(&self) -> bool {
        self.bad.is_empty() && self.unreadable.is_empty()
    }
}

impl Array {
    /// Compares the parity of every stripe of a volume with its data, while the volume is in use. With `reconstruct`, each unit is also
    /// reconstructed from the others of its stripe, and compared. `progress` is called with the number of stripes checked and their total.
    /// Errors: `no-such-volume`, `no-redundancy`, `not-up`.
    pub async fn check_volume(
        &self,
        name: &str,
        reconstruct: bool,
        progress: impl Fn(u64, u64),
    ) -> Result<Findings, Failure> {
        let description = self.control().describe().await?;
        let volume = volumes::describe(volumes::find(&description, name)?)?;
        if volume.layout.redundancy_units() == 0 {
            return Err(Failure::usage("no-redundancy", format!("volume '{name}' has no parity to check")));
        }
        self.with_host("volume check", async |session| check(session, name, reconstruct, progress).await).await
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Finding {
    Good,
    Bad,
    Unreadable(DeviceId),
    /// These devices are out, or being resynchronised.
    Unchecked(Vec<DeviceId>),
}

async fn check(
    session: &Session,
    name: &str,
    reconstruct: bool,
    progress: impl Fn(u64, u64),
) -> Result<Findings, Failure> {
    let volume = session.take_in(name).await?;
    let stripes = volume.stripes();
    let mut checked = 0;
    let mut found = Findings { stripes, ..Findings::default() };
    let mut running: JoinSet<(u64, Result<Finding, HostError>)> = JoinSet::new();
    for stripe in 0..stripes + IN_FLIGHT {
        if stripe < stripes {
            let (client, volume) = (session.client().clone(), volume.clone());
            running.spawn(async move { (stripe, check_stripe(&client, &volume, stripe, reconstruct).await) });
        }
        if stripe + 1 < IN_FLIGHT {
            continue;
        }
        let Some(done) = running.join_next().await else { break };
        let (stripe, finding) = done.map_err(|error| Failure::failed("internal", error.to_string()))?;
        match finding? {
            Finding::Good => {}
            Finding::Bad => found.bad.push(stripe),
            Finding::Unreadable(device) => {
                found.unreadable.push(stripe);
                found.damaged.insert(device);
            }
            Finding::Unchecked(devices) => {
                found.unchecked += 1;
                found.lacks.extend(devices);
            }
        }
        checked += 1;
        progress(checked, stripes);
    }
    found.bad.sort_unstable();
    found.unreadable.sort_unstable();
    Ok(found)
}

async fn check_stripe(
    client: &HostClient,
    volume: &VolumeDescription,
    stripe: u64,
    reconstruct: bool,
) -> Result<Finding, HostError> {
    match client.call(JobRequest::Check { volume: volume.id, stripe }).await {
        Ok(HostSuccess::Checked { matches: true }) => {}
        Ok(_) => return Ok(Finding::Bad),
        Err(error) => return not_compared(error),
    }
    if !reconstruct {
        return Ok(Finding::Good);
    }
    let block = braid_base::BLOCK_BYTES as u64;
    let unit = volume.layout.unit_blocks() * block;
    let begin = stripe * volume.layout.stripe_blocks() * block;
    let end = (begin + volume.layout.stripe_blocks() * block).min(volume.bytes);
    for offset in (begin..end).step_by(unit as usize) {
        let length = unit.min(end - offset) as usize;
        let mut looks = 0;
        loop {
            let rebuilt = match client.call(JobRequest::Reconstruct { volume: volume.id, offset, length }).await {
                Ok(success) => content(success),
                Err(error) => return not_compared(error),
            };
            let there = match client
                .call(VolumeRequest::Read { volume: volume.id, offset, length, patience: Patience::Host })
                .await
            {
                Ok(success) => content(success),
                Err(error) => return not_compared(error),
            };
            if rebuilt == there {
                break;
            }
            looks += 1;
            if looks == LOOKS {
                return Ok(Finding::Bad);
            }
        }
    }
    Ok(Finding::Good)
}

fn not_compared(error: HostError) -> Result<Finding, HostError> {
    match error {
        HostError::Device { failure: braid_wire::Failure::Lost { .. }, device } => Ok(Finding::Unreadable(device)),
        HostError::Unavailable { devices } => Ok(Finding::Unchecked(devices)),
        other => Err(other),
    }
}

fn content(success: HostSuccess) -> Vec<u8> {
    match success {
        HostSuccess::Data(parts) => parts.concat(),
        _ => Vec::new(),
    }
}
