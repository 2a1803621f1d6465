//! Keeps dead hosts out: whose lease has run out is served by no device from then on.

use crate::failure::Failure;
use braid_base::Generation;
use braid_control::{ArrayFolder, ControlError, Expired, Fence, LeaseJudge, Leases, Moment};
use braid_machine::HostRequest;
use braid_session::blocking;
use braid_shell::HostClient;

/// Runs until dropped, through the host `own`.
pub async fn keep_fenced(folder: ArrayFolder, leases: Leases, own: Generation, client: HostClient) {
    let mut ticks = tokio::time::interval(leases.heartbeat());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut judge = LeaseJudge::new(leases.heartbeat());
    loop {
        ticks.tick().await;
        // Read before anything is decided: should this process stop in between, hosts are judged by what was then.
        let now = Moment::now();
        let allowed = judge.allowed(&now, leases.host());
        // Who decides which hosts are dead lives: after a sleep of the machine it must not find itself among them.
        let decide = move |folder: &ArrayFolder| {
            folder.renew(own, &now, None)?;
            folder.expire(&now, allowed)
        };
        let expired = match blocking(&folder, decide).await {
            Ok(expired) => expired,
            // Its session tells so, too, and this one is ended.
            Err(ControlError::LeaseLost { .. }) => continue,
            Err(error) => {
                tracing::warn!("can't see which hosts are dead: {error}");
                continue;
            }
        };
        // Each time makes a new epoch: not for nothing.
        if !expired.gone.is_empty()
            && let Err(failure) = shut_out(&folder, &client, expired).await
        {
            tracing::info!("the monitor was not told which hosts are dead, and will be: {failure}");
        }
    }
}

/// Has hosts kept out whose leases have ended. When this is done, nothing of theirs can arrive any more.
pub async fn shut_out(folder: &ArrayFolder, client: &HostClient, expired: Expired) -> Result<(), Failure> {
    let Expired { gone, fence: Fence { below, except } } = expired;
    client.call(HostRequest::Fence { below, except }).await?;
    Ok(blocking(folder, move |folder| folder.forget(&gone)).await?)
}
