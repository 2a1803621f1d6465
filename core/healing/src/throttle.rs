//! The recovery throttle sets the speed of jobs. Without user requests, jobs run as fast as possible. With user requests, they run in a
//! small part of the time, so that users hardly notice them (`docs/healing.md`).
//!
//! ```text
//!   no users      the full number of parallel transactions, of full size
//!   users here    one small transaction at a time; after one that took t, the job rests for t·(100−s)/s, where s is the share in per cent
//!   or there
//! ```
//!
//! Users are "here" while a user's request is under way at this host, or was so recently. They are "there" (at other hosts) if a device
//! of the volume has reported it. In addition, there may be a limit in bytes a second.

use crate::ctx::Ctx;
use braid_base::{DeviceId, Time, VolumeId};
use braid_wire::RecoveryThrottle;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most blocks of a device that one transaction restores while there are users.
const BLOCKS_BESIDE_USERS: u64 = 32;
/// The longest rest: a transaction that took longer may have waited for something else.
const REST_MAX: Duration = Duration::from_secs(1);
/// The burst that a rate limit permits after a rest: the bytes of a quarter of a second.
const BURST: Duration = Duration::from_millis(250);

/// Where users are at work.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// When the last request arrived here.
    here_at: Option<Time>,
    /// Devices that serve users of other hosts, and until when their last report counts.
    busy_until: BTreeMap<DeviceId, Time>,
}

/// How much work one job may do now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    throttle: RecoveryThrottle,
    /// In per cent.
    share: u8,
    /// The most transactions at a time.
    pub parallel: usize,
    /// The most blocks of a device that one transaction restores.
    pub blocks: u64,
}

/// The throttle of one job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throttle {
    /// When the bytes admitted so far are within the rate.
    free_at: Time,
    /// The end of the rest, if there are users.
    rests_until: Time,
}

impl Users {
    /// A user's request has arrived.
    pub fn came(&mut self, now: Time) {
        self.here_at = Some(now);
    }

    /// A device has reported whether it serves users of other hosts.
    pub fn note_busy(&mut self, now: Time, device: DeviceId, busy: bool, heartbeat: Duration) {
        if busy {
            // The report counts for two heartbeats; the next one comes sooner.
            self.busy_until.insert(device, now.after(heartbeat * 2));
        } else {
            self.busy_until.remove(&device);
        }
    }

    /// True if users of this host are at work, or other users on the volume's devices.
    pub fn are_at_work(&self, ctx: &Ctx, volume: VolumeId) -> bool {
        let lately = |at: Time| ctx.now.since(at) <= ctx.heartbeat;
        let busy = |device: &DeviceId| self.busy_until.get(device).is_some_and(|until| *until > ctx.now);
        let there = || ctx.volumes.get(&volume).is_some_and(|volume| volume.holders().iter().any(busy));
        self.here_at.is_some_and(lately) || ctx.has_users || there()
    }
}

impl Budget {
    /// The budget that the monitor's throttle permits. Work that `hastens` does not yield to users, unless the throttle sets a share.
    pub fn new(throttle: RecoveryThrottle, hastens: bool, are_users_at_work: impl FnOnce() -> bool) -> Budget {
        let share = match throttle.share {
            0 if hastens => 100,
            0 => RecoveryThrottle::SHARE_DEFAULT,
            share => share.min(100),
        };
        if share < 100 && are_users_at_work() {
            Budget { throttle, share, parallel: 1, blocks: BLOCKS_BESIDE_USERS }
        } else {
            Budget { throttle, share: 100, parallel: usize::MAX, blocks: u64::MAX }
        }
    }

    /// Replaces the limit in bytes a second, unless the new one is zero.
    pub fn with_rate(self, bytes_per_second: u64) -> Budget {
        match bytes_per_second {
            0 => self,
            _ => Budget { throttle: RecoveryThrottle { bytes_per_second, ..self.throttle }, ..self },
        }
    }
}

impl Throttle {
    /// Admits some bytes, or says when to ask again.
    pub fn begin(&mut self, now: Time, budget: &Budget, bytes: u64) -> Result<(), Time> {
        let throttle = budget.throttle;
        if throttle.paused {
            return Err(now.after(BURST));
        }
        if budget.share < 100 && now < self.rests_until {
            return Err(self.rests_until);
        }
        if throttle.bytes_per_second == 0 {
            return Ok(());
        }
        if self.free_at > now.after(BURST) {
            let wait = self.free_at.since(now) - BURST;
            return Err(now.after(wait.min(BURST)));
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(throttle.bytes_per_second);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4).min(u64::MAX / 4));
        self.free_at = self.free_at.max(now).after(takes);
        Ok(())
    }

    /// A transaction that took `took` has ended.
    pub fn ended(&mut self, now: Time, budget: &Budget, took: Duration) {
        if budget.share < 100 {
            let share = u32::from(budget.share.max(1));
            let rest = took.min(REST_MAX) * (100 - share) / share;
            self.rests_until = self.rests_until.max(now.after(rest.min(REST_MAX)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes_per_second: u64, share: u8) -> Budget {
        let throttle = RecoveryThrottle { bytes_per_second, share, paused: false };
        Budget { throttle, share, parallel: 1, blocks: u64::MAX }
    }

    #[test]
    fn what_is_let_through_is_what_the_rate_says() {
        let budget = budget(1_000_000, 100);
        let (mut throttle, mut now, mut sent) = (Throttle::default(), Time(5_000_000_000), 0);
        let end = now.after(Duration::from_secs(10));
        while now < end {
            match throttle.begin(now, &budget, 50_000) {
                Ok(()) => sent += 50_000,
                Err(later) => {
                    assert!(later > now);
                    now = later;
                }
            }
        }
        assert!((10_000_000..10_400_000).contains(&sent), "{sent}");
        let paused = Budget { throttle: RecoveryThrottle { paused: true, ..budget.throttle }, ..budget };
        assert!(throttle.begin(now, &paused, 1).is_err());
        let unlimited = Budget { throttle: RecoveryThrottle::default(), ..budget };
        assert_eq!(throttle.begin(now, &unlimited, u64::MAX), Ok(()));
    }

    #[test]
    fn a_share_of_its_time_is_worked_and_the_rest_rested() {
        for share in [1, 20, 50, 99] {
            let (budget, mut throttle) = (budget(0, share), Throttle::default());
            let (begun, took) = (Time(1_000_000_000), Duration::from_millis(5));
            let (mut now, mut worked) = (begun, Duration::ZERO);
            while now.since(begun) < Duration::from_secs(50) {
                if let Err(later) = throttle.begin(now, &budget, 1) {
                    now = later;
                }
                assert_eq!(throttle.begin(now, &budget, 1), Ok(()));
                now = now.after(took);
                worked += took;
                throttle.ended(now, &budget, took);
            }
            let found = worked.as_secs_f64() / now.since(begun).as_secs_f64() * 100.0;
            assert!((found - f64::from(share)).abs() < 1.0, "{found} for {share}");
            // Without users, a job does not wait for the end of its rest.
            assert_eq!(throttle.begin(now, &Budget { share: 100, ..budget }, 1), Ok(()));
        }
    }
}
