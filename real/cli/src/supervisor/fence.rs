//! Keeps dead hosts out: whose lease has run out is refused by every device from then on.

use crate::session::{HEARTBEAT, LEASE, blocking};
use braid_base::{DeviceId, Generation};
use braid_control::{ArrayFolder, ControlError, Fence, Moment};
use braid_machine::HostRequest;
use braid_shell::HostClient;
use braid_wire::Task;
use std::collections::BTreeMap;
use tokio::task::JoinSet;

/// Runs until dropped, through the host `own`. A device that is away is told as soon as it is back.
pub async fn keep_fenced(folder: ArrayFolder, own: Generation, client: HostClient, devices: Vec<DeviceId>) {
    let mut told: BTreeMap<DeviceId, Fence> = BTreeMap::new();
    let mut telling = JoinSet::new();
    let mut busy: Vec<DeviceId> = Vec::new();
    let mut ticks = tokio::time::interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            Some(Ok((device, fence, outcome))) = telling.join_next() => {
                busy.retain(|other| *other != device);
                match outcome {
                    Ok(_) => { told.insert(device, fence); }
                    Err(error) => tracing::info!("device {device} was not told which hosts are dead: {error}"),
                }
                // The rest waits for the next tick: a device that fails at once is not asked again at once.
                continue;
            }
        }
        // Who decides which hosts are dead lives: after a sleep of the machine it must not find itself among them.
        let decide = move |folder: &ArrayFolder| {
            folder.renew(own, &Moment::now(), None)?;
            folder.expire(&Moment::now(), LEASE)
        };
        let fence = match blocking(&folder, decide).await {
            Ok(fence) => fence,
            // Its session tells so, too, and this one is ended.
            Err(ControlError::LeaseLost { .. }) => continue,
            Err(error) => {
                tracing::warn!("can't see which hosts are dead: {error}");
                continue;
            }
        };
        for device in devices.iter().copied() {
            if busy.contains(&device) || told.get(&device) == Some(&fence) {
                continue;
            }
            busy.push(device);
            let task = Task::Fence { below: fence.below, except: fence.except.clone(), also: Vec::new() };
            let (client, fence) = (client.clone(), fence.clone());
            telling.spawn(async move { (device, fence, client.call(HostRequest::Manage { device, task }).await) });
        }
    }
}
