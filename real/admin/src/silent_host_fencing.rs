//! Fencing of silent hosts: a host whose lease has expired is fenced, so that no device serves it from then on.
//! `real/control/src/lease_durations.rs` says when a lease expires.
//!
//! A host that disconnects gracefully leaves no state behind, unless a device did not hear it. The membership lists each host that a lock
//! server had fenced. Therefore all generations that have ended are fenced together from time to time. Each fence makes a new epoch, so
//! this is done rarely (`Sweep`).

use crate::failure::Failure;
use braid_base::{FenceTable, Generation};
use braid_control::{ArrayFolder, ControlError, Expired, Fence, LeaseJudge, Leases, Moment};
use braid_machine::ArrayRequest;
use braid_session::{HostView, blocking};
use braid_shell::HostClient;
use std::time::{Duration, Instant};

/// This many generations that have ended are fenced together,
const ENDED_MAX: usize = 1024;
/// or fewer after this time.
const ENDED_WAIT: Duration = Duration::from_secs(600);
/// This many individually fenced hosts are replaced by one bound.
const LISTED_MAX: usize = 64;

/// Decides when to fence the generations that have ended.
struct Sweep {
    last: Instant,
}

impl Sweep {
    /// True if they should be fenced now, given the current fence and the live hosts.
    fn is_due(&self, kept_out: &FenceTable, now: Instant, Fence { below, except }: &Fence) -> bool {
        let newer = below.0.saturating_sub(kept_out.below.0.max(1)) as usize;
        let newer_that_live = except.iter().filter(|host| **host >= kept_out.below).count();
        let spared = kept_out.except.iter().filter(|host| except.binary_search(host).is_err()).count();
        let ended = newer.saturating_sub(newer_that_live) + spared;
        let waited = now.duration_since(self.last) >= ENDED_WAIT;
        ended >= ENDED_MAX || kept_out.also.len() >= LISTED_MAX || (ended > 0 && waited)
    }
}

/// Runs until dropped, with the host `own`.
pub async fn keep_fenced(folder: ArrayFolder, leases: Leases, own: Generation, client: HostClient, view: HostView) {
    let mut ticks = tokio::time::interval(leases.heartbeat());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut judge = LeaseJudge::new(leases.heartbeat());
    let mut sweep = Sweep { last: Instant::now() };
    loop {
        ticks.tick().await;
        // The time is read before the decision: if this process is suspended in between, hosts are judged by the state at this time.
        let now = Moment::now();
        let allowed = judge.allowed(&now, leases.host());
        let expired = match blocking(&folder, move |folder| folder.expire(own, &now, allowed)).await {
            Ok(expired) => expired,
            // This host itself has lost its lease; its session reports that, and ends this task.
            Err(ControlError::LeaseLost { .. }) => continue,
            Err(error) => {
                tracing::warn!("can't determine which hosts are dead: {error}");
                continue;
            }
        };
        let is_due = view.fence().is_some_and(|kept_out| sweep.is_due(&kept_out, Instant::now(), &expired.fence));
        // Each fence makes a new epoch, so none is made without need.
        if expired.gone.is_empty() && !is_due {
            continue;
        }
        match shut_out(&folder, &client, expired).await {
            Ok(()) => sweep.last = Instant::now(),
            Err(failure) => tracing::info!("could not tell the monitor which hosts are dead; trying again: {failure}"),
        }
    }
}

/// Fences hosts whose leases have ended. When this returns, no request of theirs can take effect any more.
pub async fn shut_out(folder: &ArrayFolder, client: &HostClient, expired: Expired) -> Result<(), Failure> {
    let Expired { gone, fence: Fence { below, except } } = expired;
    client.call(ArrayRequest::Fence { below, except }).await?;
    Ok(blocking(folder, move |folder| folder.forget(&gone)).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(hosts: &[u32]) -> Vec<Generation> {
        hosts.iter().copied().map(Generation).collect()
    }

    #[test]
    fn generations_that_have_ended_are_fenced_when_they_are_many_or_have_waited() {
        let sweep = Sweep { last: Instant::now() };
        let kept_out = FenceTable {
            below: Generation(100),
            except: hosts(&[3, 50]).into_iter().collect(),
            ..FenceTable::default()
        };
        let due = |kept_out: &FenceTable, below: u32, except: &[u32], waited: u64| {
            let fence = Fence { below: Generation(below), except: hosts(except) };
            sweep.is_due(kept_out, sweep.last + Duration::from_secs(waited), &fence)
        };
        assert!(!due(&kept_out, 102, &[3, 50, 100, 101], 10_000), "all are live");
        assert!(!due(&kept_out, 102, &[3, 50, 100], 10), "one has ended");
        assert!(due(&kept_out, 102, &[3, 50, 100], 600));
        assert!(due(&kept_out, 102, &[3, 100, 101], 600), "an exempt host has ended since");
        assert!(!due(&kept_out, 1_124, &[3, 50, 1_123], 10));
        assert!(due(&kept_out, 1_124, &[3, 50], 10));
        let listed = FenceTable { also: (200..264).map(Generation).collect(), ..kept_out.clone() };
        assert!(due(&listed, 102, &[3, 50, 100, 101], 10), "the list is to be shortened");
        assert!(!due(&FenceTable::default(), 2, &[1], 600), "a new array");
    }
}
