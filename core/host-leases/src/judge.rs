//! Deciding which leases have expired, with a clock that also advances while the machine sleeps.
//!
//! After the machine slept, or after all processes were suspended together, every lease looks expired although no host had a chance to
//! renew it. Therefore a judge records when it last checked. A long gap between two checks means that the judge itself was
//! suspended, and the judge extends all leases by that time. It is the same if no host at all can renew, because the table of leases can't be
//! written: such a check does not count.
//!
//! A host may have been silent since before several gaps that follow each other closely. Therefore a gap is forgotten when a lease has passed
//! without the gaps after it, and not when a lease has passed by the clock.

use crate::LeaseTime;
use std::time::Duration;

/// A gap that is longer than any lease.
const UNKNOWN: Duration = Duration::from_secs(1 << 40);

/// Decides which leases have expired, over a sequence of checks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseJudge {
    /// A longer gap between two checks means that the judge was suspended.
    longest: Duration,
    last: Option<LeaseTime>,
    /// The check before the last one.
    before: Option<LeaseTime>,
    /// When it began to watch, before its first check.
    started: Option<LeaseTime>,
    /// It has checked, and no check has counted: it does not know since when nobody can renew.
    is_blind: bool,
    /// When each gap ended and how long it was, oldest first.
    gaps: Vec<(Duration, Duration)>,
}

impl LeaseJudge {
    /// A judge that has not checked yet, and will check at least once per heartbeat.
    pub fn new(heartbeat: Duration) -> LeaseJudge {
        LeaseJudge {
            longest: heartbeat * 2,
            last: None,
            before: None,
            started: None,
            is_blind: false,
            gaps: Vec::new(),
        }
    }

    /// It watches from now on. If it is suspended before its first check, it notices that. It does not know whether hosts could renew before:
    /// no lease expires before it has watched for as long as leases last.
    pub fn start(&mut self, now: &LeaseTime) {
        (self.started, self.last) = (Some(now.clone()), Some(now.clone()));
        self.gaps.push((now.elapsed, UNKNOWN));
    }

    /// How long a host may be silent now if leases last for `length`. To be called at every check. The result is `length` and all recent gaps.
    /// A gap is recent until a time of `length` has passed since its end, in which later gaps do not count. However often the judge is
    /// suspended, a heartbeat counts between two gaps: a silent host is found after as many checks as there are heartbeats in `length`.
    pub fn allowed(&mut self, now: &LeaseTime, length: Duration) -> Duration {
        self.before = self.last.replace(now.clone());
        match self.before.as_ref().map(|last| now.since(last)) {
            Some(Some(gap)) if gap > self.longest => self.gaps.push((now.elapsed, gap)),
            // Leases of another boot have expired anyhow.
            Some(None) => self.gaps.clear(),
            None if std::mem::take(&mut self.is_blind) => self.gaps.push((now.elapsed, UNKNOWN)),
            _ => {}
        }
        let (heartbeat, mut later) = (self.longest / 2, Duration::ZERO);
        let is_recent = |(end, gap): &&(Duration, Duration)| {
            let is_recent = now.elapsed.saturating_sub(*end).saturating_sub(later) <= length;
            later += gap.saturating_sub(heartbeat);
            is_recent
        };
        let recent = self.gaps.iter().rev().take_while(is_recent).count();
        self.gaps.drain(..self.gaps.len() - recent);
        length + self.gaps.iter().map(|(_, gap)| *gap).sum::<Duration>()
    }

    /// To be called after a check that could not be completed, or that found no host that has renewed its lease lately (`silent` is the shortest
    /// silence): perhaps none can. The check does not count then, so that the time until the next one that counts is a gap.
    pub fn discount(&mut self, silent: Option<Duration>) {
        if silent.is_some_and(|silent| silent <= self.longest) {
            return;
        }
        let Some(check) = self.last.take() else { return };
        self.gaps.retain(|(end, _)| *end != check.elapsed);
        self.last = self.before.take().filter(|before| Some(before) != self.started.as_ref());
        self.is_blind = self.last.is_none();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);
    const HEARTBEAT: Duration = Duration::from_millis(500);

    fn at(millis: u64) -> LeaseTime {
        LeaseTime { boot: "this".into(), elapsed: Duration::from_millis(millis) }
    }

    /// Checks every half second, and returns what is allowed at the end.
    fn look(judge: &mut LeaseJudge, from: u64, to: u64) -> Duration {
        (from..=to)
            .step_by(500)
            .map(|millis| judge.allowed(&at(millis), LENGTH))
            .last()
            .expect("it looks at least once")
    }

    #[test]
    fn constant_observation_grants_the_lease_and_no_more() {
        assert_eq!(look(&mut LeaseJudge::new(HEARTBEAT), 0, 300_000), LENGTH);
    }

    #[test]
    fn after_a_suspended_observer_every_host_gets_one_more_lease() {
        let mut judge = LeaseJudge::new(HEARTBEAT);
        look(&mut judge, 0, 10_000);
        // A host that renewed its lease just before is silent for 64 s now.
        assert_eq!(look(&mut judge, 74_000, 74_000), LENGTH + Duration::from_secs(64));
        // If it does not wake, it has no more time than a lease.
        assert_eq!(look(&mut judge, 74_500, 134_000), LENGTH + Duration::from_secs(64));
        assert_eq!(look(&mut judge, 134_500, 134_500), LENGTH);
    }

    #[test]
    fn a_judge_that_hardly_gets_to_look_judges_all_the_same() {
        let mut judge = LeaseJudge::new(HEARTBEAT);
        let most = (0..600_000).step_by(1_500).map(|millis| judge.allowed(&at(millis), LENGTH)).max();
        // Of each second and a half, the half counts.
        assert!(most <= Some(4 * LENGTH + Duration::from_millis(1_500)), "{most:?}");
        assert!(judge.gaps.len() <= 122, "and remembers no more gaps than there are heartbeats in a lease");
    }

    #[test]
    fn while_no_host_can_renew_its_lease_no_time_passes() {
        let mut judge = LeaseJudge::new(HEARTBEAT);
        look(&mut judge, 0, 10_000);
        // Nobody writes the table of leases from 10 s until 310 s. A host may die in that time.
        for millis in (10_500..=310_000).step_by(500) {
            let silent = Duration::from_millis(millis - 10_000);
            assert!(judge.allowed(&at(millis), LENGTH) >= silent, "after {millis} ms");
            judge.discount(Some(silent));
        }
        let after = judge.allowed(&at(310_500), LENGTH);
        judge.discount(Some(Duration::ZERO));
        assert!(after > Duration::from_secs(355) && after < Duration::from_secs(365), "{after:?}");
        assert_eq!(look(&mut judge, 311_000, 371_000), LENGTH, "a lease later, nothing is left of it");
        let mut later = LeaseJudge::new(HEARTBEAT);
        later.allowed(&at(310_000), LENGTH);
        later.discount(Some(Duration::from_secs(300)));
        assert!(later.allowed(&at(310_500), LENGTH) >= UNKNOWN, "it has not seen the beginning");
        assert_eq!(look(&mut later, 311_000, 371_000), LENGTH);
    }

    #[test]
    fn silence_before_several_gaps_counts_only_between_them() {
        // A host is silent from 10 s on. Then nobody can renew, or the judge sleeps, but for 5 s after each minute and a half. Also a judge that
        // begins in between knows of the silence before.
        for (is_asleep, begins) in [(false, 0), (true, 0), (false, 195_000)] {
            let mut judge = LeaseJudge::new(HEARTBEAT);
            judge.start(&at(begins));
            for millis in (begins + 500..=600_000).step_by(500) {
                let into = millis.saturating_sub(10_000) % 95_000;
                let is_gap = into > 0 && into < 90_000;
                if is_gap && is_asleep && into < 89_500 {
                    continue;
                }
                let silent = Duration::from_millis(millis.saturating_sub(10_000));
                assert!(judge.allowed(&at(millis), LENGTH) >= silent, "after {millis} ms, {is_asleep}, {begins}");
                judge.discount(Some(if is_gap { Duration::from_millis(into) } else { Duration::ZERO }));
            }
            assert_eq!(look(&mut judge, 600_500, 661_000), LENGTH, "a lease later, nothing is left of it");
        }
    }

    #[test]
    fn a_suspension_before_the_first_check_is_noticed() {
        let mut judge = LeaseJudge::new(HEARTBEAT);
        judge.start(&at(10_000));
        assert!(look(&mut judge, 74_000, 133_500) >= UNKNOWN, "it has watched for less than a lease");
        assert_eq!(look(&mut judge, 134_000, 134_000), LENGTH + Duration::from_secs(64));
        let mut judge = LeaseJudge::new(HEARTBEAT);
        judge.start(&at(10_000));
        judge.allowed(&at(10_500), LENGTH);
        judge.discount(None);
        assert!(judge.allowed(&at(11_000), LENGTH) >= UNKNOWN, "nobody could renew before it began");
    }

    #[test]
    fn no_lease_expires_before_a_new_observer_has_watched_for_as_long() {
        let mut judge = LeaseJudge::new(HEARTBEAT);
        judge.start(&at(10_000));
        assert!(look(&mut judge, 10_500, 70_000) >= UNKNOWN, "perhaps nobody could renew before");
        assert_eq!(look(&mut judge, 70_500, 70_500), LENGTH);
    }

    #[test]
    fn a_gap_over_a_boot_is_none() {
        let mut judge = LeaseJudge::new(HEARTBEAT);
        judge.allowed(&at(1_000), LENGTH);
        let next = LeaseTime { boot: "next".into(), elapsed: Duration::from_secs(100) };
        assert_eq!(judge.allowed(&next, LENGTH), LENGTH);
    }
}
