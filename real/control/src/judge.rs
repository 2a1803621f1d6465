//! Judging leases by a clock that also runs while the machine sleeps.
//!
//! After a sleep, or when all processes were stopped together, every lease looks expired, though nobody has had a chance to renew it. So a judge
//! notes when it last looked. A long gap between two looks is time in which it stood still itself, and it grants that time to
//! everybody.

use crate::Moment;
use std::time::Duration;

/// Who decides whose lease has expired, over all of its looks.
#[derive(Clone, Debug)]
pub struct LeaseJudge {
    /// A longer gap between two looks means that the judge stood still.
    longest: Duration,
    last: Option<Moment>,
    /// When each gap ended, and how long it was; oldest first.
    gaps: Vec<(Duration, Duration)>,
}

impl LeaseJudge {
    /// A judge that has not looked yet, and is to look at least once in a heartbeat.
    pub fn new(heartbeat: Duration) -> LeaseJudge {
        LeaseJudge { longest: heartbeat * 2, last: None, gaps: Vec::new() }
    }

    /// To be called at every look. How long a host may be silent at this moment if leases last for `length`: longer by what the judge itself
    /// stood still, until a whole lease has passed since. At most twice as long, and a gap, however often it stands still.
    pub fn allowed(&mut self, now: &Moment, length: Duration) -> Duration {
        match self.last.replace(now.clone()).map(|last| now.since(&last)) {
            Some(Some(gap)) if gap > self.longest => self.gaps.push((now.elapsed, gap)),
            // Leases of another boot are over anyhow.
            Some(None) => self.gaps.clear(),
            _ => {}
        }
        self.gaps.retain(|(end, _)| now.elapsed.saturating_sub(*end) <= length);
        length + self.gaps.iter().map(|(_, gap)| *gap).sum::<Duration>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);
    const HEARTBEAT: Duration = Duration::from_millis(500);

    fn at(millis: u64) -> Moment {
        Moment { boot: "this".into(), elapsed: Duration::from_millis(millis) }
    }

    /// Looks every half second in between, and returns what is allowed at the end.
    fn look(judge: &mut LeaseJudge, from: u64, to: u64) -> Duration {
        (from..=to)
            .step_by(500)
            .map(|millis| judge.allowed(&at(millis), LENGTH))
            .last()
            .expect("it looks at least once")
    }

    #[test]
    fn who_looks_all_the_time_grants_the_lease_and_no_more() {
        assert_eq!(look(&mut LeaseJudge::new(HEARTBEAT), 0, 300_000), LENGTH);
    }

    #[test]
    fn the_time_that_the_judge_stood_still_is_granted_to_everybody_for_one_lease() {
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
        assert!(most <= Some(2 * LENGTH + Duration::from_millis(1_500)), "{most:?}");
        assert!(judge.gaps.len() <= 61, "and remembers no more than a lease of gaps");
    }

    #[test]
    fn a_gap_over_a_boot_is_none() {
        let mut judge = LeaseJudge::new(HEARTBEAT);
        judge.allowed(&at(1_000), LENGTH);
        let next = Moment { boot: "next".into(), elapsed: Duration::from_secs(100) };
        assert_eq!(judge.allowed(&next, LENGTH), LENGTH);
    }
}
