//! The recovery throttle sets the speed of jobs. Without user requests, jobs run as fast as possible. With user requests, they leave most
//! of the array to users (`docs/healing.md`).
//!
//! ```text
//!   no users               the full number of parallel transactions, of full size
//!   users, a resync        40 MiB/s, or a third of the rate without users if that is more: large transactions, since these cost least
//!                          for each byte; two at a time, so that the rate falls where they take long
//!   users, another job,    one small transaction at a time; after one that took t, the job rests for t·(100−s)/s, where s is the share
//!   or a share is set      in per cent
//! ```
//!
//! Users are "here" while a user's request is under way at this host, or was so recently. They are "there" (at other hosts) if a device
//! of the volume has reported it. In addition, there may be a limit in bytes a second.

use crate::ctx::Ctx;
use braid_base::{DeviceId, Time, VolumeId};
use braid_wire::RecoveryThrottle;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most blocks of a device that one transaction of a job with a share takes while there are users.
const BLOCKS_BESIDE_USERS: u64 = 32;
/// The most transactions of a resync at a time while there are users.
const RESYNC_PARALLEL: usize = 2;
/// How long the rate without users is measured.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// The longest rest: a transaction that took longer may have waited for something else.
const REST_MAX: Duration = Duration::from_secs(1);
/// The burst that a rate limit permits after a rest: the bytes of a quarter of a second.
const BURST: Duration = Duration::from_millis(250);

/// Where users are at work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    /// When the last request arrived here.
    here_at: Option<Time>,
    /// Devices that serve users of other hosts, and until when their last report counts.
    busy_until: BTreeMap<DeviceId, Time>,
}

/// What a job loses by yielding to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Nothing: it runs in a share of the time.
    Background,
    /// Redundancy, as long as it runs: it keeps a minimum rate.
    Resync,
    /// Redundancy, which it restores in seconds: it does not yield.
    ShortResync,
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
    /// The rate without users, in bytes a second, as last measured; and the measurement under way: its begin and its bytes.
    idle_rate: u64,
    measured: Option<(Time, u64)>,
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
    /// The budget that the monitor's throttle permits.
    pub fn new(throttle: RecoveryThrottle, urgency: Urgency, are_users_at_work: impl FnOnce() -> bool) -> Budget {
        let share = match (throttle.share, urgency) {
            (0, Urgency::Background) => RecoveryThrottle::SHARE_DEFAULT,
            (0, Urgency::Resync | Urgency::ShortResync) => 100,
            (share, _) => share.min(100),
        };
        let yields = share < 100 || (throttle.share == 0 && urgency == Urgency::Resync);
        let all = Budget { throttle, share, parallel: usize::MAX, blocks: u64::MAX };
        if !yields || !are_users_at_work() {
            Budget { share: 100, ..all }
        } else if share < 100 {
            Budget { parallel: 1, blocks: BLOCKS_BESIDE_USERS, ..all }
        } else {
            Budget { parallel: RESYNC_PARALLEL, ..all }
        }
    }

    /// True if users are at work, and the job yields to them.
    fn yields(&self) -> bool {
        self.parallel != usize::MAX
    }

    /// True if nothing limits the job: no users are at work, or they have no priority, and an operator has set no limit.
    pub fn is_unlimited(&self) -> bool {
        let RecoveryThrottle { bytes_per_second, share, paused } = self.throttle;
        !self.yields() && !paused && bytes_per_second == 0 && (share == 0 || share >= 100)
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
        let rate = self.rate(budget);
        if rate == 0 {
            return Ok(());
        }
        if self.free_at > now.after(BURST) {
            let wait = self.free_at.since(now) - BURST;
            return Err(now.after(wait.min(BURST)));
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4).min(u64::MAX / 4));
        self.free_at = self.free_at.max(now).after(takes);
        Ok(())
    }

    /// The limit in bytes a second; 0: none.
    fn rate(&self, budget: &Budget) -> u64 {
        let beside_users = RecoveryThrottle::RESYNC_RATE.max(self.idle_rate / 3);
        match budget.throttle.bytes_per_second {
            limit if !budget.yields() || budget.share < 100 => limit,
            0 => beside_users,
            limit => limit.min(beside_users),
        }
    }

    /// A transaction of `bytes` that took `took` has ended.
    pub fn ended(&mut self, now: Time, budget: &Budget, took: Duration, bytes: u64) {
        self.measure(now, budget, bytes);
        if budget.share < 100 {
            let share = u32::from(budget.share.max(1));
            let rest = took.min(REST_MAX) * (100 - share) / share;
            self.rests_until = self.rests_until.max(now.after(rest.min(REST_MAX)));
        }
    }

    /// Measures the rate without users.
    fn measure(&mut self, now: Time, budget: &Budget, bytes: u64) {
        self.measured = match self.measured {
            _ if budget.yields() => None,
            Some((since, before)) if now.since(since) >= MEASURED_FOR => {
                let nanos = now.since(since).as_nanos();
                let rate = u128::from(before + bytes) * 1_000_000_000 / nanos;
                self.idle_rate = u64::try_from(rate).unwrap_or(u64::MAX);
                None
            }
            Some((since, before)) => Some((since, before + bytes)),
            None => Some((now, 0)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes_per_second: u64, share: u8) -> Budget {
        let throttle = RecoveryThrottle { bytes_per_second, share, paused: false };
        Budget { throttle, share, parallel: if share < 100 { 1 } else { usize::MAX }, blocks: u64::MAX }
    }

    #[test]
    fn the_throttle_lets_through_its_rate() {
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
                throttle.ended(now, &budget, took, 1);
            }
            let found = worked.as_secs_f64() / now.since(begun).as_secs_f64() * 100.0;
            assert!((found - f64::from(share)).abs() < 1.0, "{found} for {share}");
            // Without users, a job does not wait for the end of its rest.
            assert_eq!(throttle.begin(now, &Budget { share: 100, ..budget }, 1), Ok(()));
        }
    }

    fn restored_in_ten_seconds(throttle: &mut Throttle, budget: &Budget, took: Duration) -> u64 {
        let (begun, mut now, mut out, mut bytes) = (Time(9_000_000_000), Time(9_000_000_000), Vec::new(), 0);
        while now.since(begun) < Duration::from_secs(10) {
            let admitted = out.len() < budget.parallel.min(8) && throttle.begin(now, budget, 1 << 20).is_ok();
            if admitted {
                out.push(now.after(took));
                continue;
            }
            now = now.after(Duration::from_millis(1));
            let ended = out.iter().filter(|end| **end <= now).count();
            out.retain(|end| *end > now);
            for _ in 0..ended {
                throttle.ended(now, budget, took, 1 << 20);
                bytes += 1 << 20;
            }
        }
        bytes
    }

    #[test]
    fn a_resync_keeps_a_rate_beside_users_and_yields_where_its_transactions_take_long() {
        let beside = Budget::new(RecoveryThrottle::default(), Urgency::Resync, || true);
        let ten_seconds = |took| restored_in_ten_seconds(&mut Throttle::default(), &beside, took) >> 20;
        let fast = ten_seconds(Duration::from_millis(20));
        assert!((400..=415).contains(&fast), "{fast}");
        let slow = ten_seconds(Duration::from_millis(200));
        assert!((90..=102).contains(&slow), "two at a time: {slow}");
    }

    #[test]
    fn a_resync_that_is_fast_without_users_keeps_a_third_of_its_rate_beside_them() {
        let alone = Budget::new(RecoveryThrottle::default(), Urgency::Resync, || false);
        let beside = Budget::new(RecoveryThrottle::default(), Urgency::Resync, || true);
        let mut throttle = Throttle::default();
        let idle = restored_in_ten_seconds(&mut throttle, &alone, Duration::from_millis(20));
        let paced = restored_in_ten_seconds(&mut throttle, &beside, Duration::from_millis(5));
        let third = idle as f64 / 3.0;
        assert!((0.95 * third..1.05 * third).contains(&(paced as f64)), "{paced} of {idle}");
    }

    #[test]
    fn a_share_that_an_operator_sets_counts_for_every_job() {
        let set = RecoveryThrottle { share: 10, ..RecoveryThrottle::default() };
        for urgency in [Urgency::Background, Urgency::Resync, Urgency::ShortResync] {
            let budget = Budget::new(set, urgency, || true);
            assert_eq!((budget.share, budget.parallel), (10, 1));
            assert_eq!(Budget::new(set, urgency, || false).share, 100, "users count only while they are at work");
        }
        let unset = RecoveryThrottle::default();
        assert_eq!(Budget::new(unset, Urgency::Background, || true).share, RecoveryThrottle::SHARE_DEFAULT);
        assert!(!Budget::new(unset, Urgency::ShortResync, || true).yields());
    }
}
