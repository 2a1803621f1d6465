//! Keeps dead hosts out: whose lease has run out is served by no device from then on.
//!
//! Hosts that end in good order leave nothing behind. For those that could not tell every device so, and since hosts that lock servers had
//! fenced are listed one by one, all generations that have ended are fenced together now and then. Each fence makes a new epoch, so that is
//! done seldom ([`Sweep`]).

use crate::failure::Failure;
use braid_base::{FenceTable, Generation};
use braid_control::{ArrayFolder, ControlError, Expired, Fence, LeaseJudge, Leases, Moment};
use braid_machine::HostRequest;
use braid_session::{HostView, blocking};
use braid_shell::HostClient;
use std::time::{Duration, Instant};

/// So many generations that have ended are fenced at once,
const ENDED_MAX: usize = 1024;
/// or fewer after so long.
const ENDED_WAIT: Duration = Duration::from_secs(600);
/// So many hosts that are fenced one by one are fenced by one number instead.
const LISTED_MAX: usize = 64;

/// When generations that have ended are next to be fenced.
struct Sweep {
    last: Instant,
}

impl Sweep {
    /// True if it is time to, by what the array keeps out so far and by those who live.
    fn is_due(&self, kept_out: &FenceTable, now: Instant, Fence { below, except }: &Fence) -> bool {
        let newer = below.0.saturating_sub(kept_out.below.0.max(1)) as usize;
        let newer_that_live = except.iter().filter(|host| **host >= kept_out.below).count();
        let spared = kept_out.except.iter().filter(|host| except.binary_search(host).is_err()).count();
        let ended = newer.saturating_sub(newer_that_live) + spared;
        let waited = now.duration_since(self.last) >= ENDED_WAIT;
        ended >= ENDED_MAX || kept_out.also.len() >= LISTED_MAX || (ended > 0 && waited)
    }
}

/// Runs until dropped, through the host `own`.
pub async fn keep_fenced(folder: ArrayFolder, leases: Leases, own: Generation, client: HostClient, view: HostView) {
    let mut ticks = tokio::time::interval(leases.heartbeat());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut judge = LeaseJudge::new(leases.heartbeat());
    let mut sweep = Sweep { last: Instant::now() };
    loop {
        ticks.tick().await;
        // Read before anything is decided: should this process stop in between, hosts are judged by what was then.
        let now = Moment::now();
        let allowed = judge.allowed(&now, leases.host());
        let expired = match blocking(&folder, move |folder| folder.expire(own, &now, allowed)).await {
            Ok(expired) => expired,
            // Its session tells so, too, and this one is ended.
            Err(ControlError::LeaseLost { .. }) => continue,
            Err(error) => {
                tracing::warn!("can't see which hosts are dead: {error}");
                continue;
            }
        };
        let is_due = view.fence().is_some_and(|kept_out| sweep.is_due(&kept_out, Instant::now(), &expired.fence));
        // Each time makes a new epoch: not for nothing.
        if expired.gone.is_empty() && !is_due {
            continue;
        }
        match shut_out(&folder, &client, expired).await {
            Ok(()) => sweep.last = Instant::now(),
            Err(failure) => tracing::info!("the monitor was not told which hosts are dead, and will be: {failure}"),
        }
    }
}

/// Has hosts kept out whose leases have ended. When this is done, nothing of theirs can arrive any more.
pub async fn shut_out(folder: &ArrayFolder, client: &HostClient, expired: Expired) -> Result<(), Failure> {
    let Expired { gone, fence: Fence { below, except } } = expired;
    client.call(HostRequest::Fence { below, except }).await?;
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
        assert!(!due(&kept_out, 102, &[3, 50, 100, 101], 10_000), "all live");
        assert!(!due(&kept_out, 102, &[3, 50, 100], 10), "one has ended");
        assert!(due(&kept_out, 102, &[3, 50, 100], 600));
        assert!(due(&kept_out, 102, &[3, 100, 101], 600), "one that was spared has ended since");
        assert!(!due(&kept_out, 1_124, &[3, 50, 1_123], 10));
        assert!(due(&kept_out, 1_124, &[3, 50], 10));
        let listed = FenceTable { also: (200..264).map(Generation).collect(), ..kept_out.clone() };
        assert!(due(&listed, 102, &[3, 50, 100, 101], 10), "the list is to become short again");
        assert!(!due(&FenceTable::default(), 2, &[1], 600), "a new array");
    }
}
