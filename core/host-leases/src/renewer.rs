//! The part of a host: it renews its lease, notices that the lease is over, and has its process stop.
//!
//! A host that is fenced is refused by all devices. A host whose lease is over will be: it stops before that, instead of answering its users
//! with errors. So does one that does not know for that long whether it still has a lease. A host that reads that its lease is not over, and can't
//! write its renewal, goes on: whoever ends a lease writes that down before the host is fenced, and devices refuse it from the fence on. So the
//! host misses neither.

use crate::LeaseTime;
use std::time::Duration;

/// The part of a host that keeps its lease. It renews at every wake-up, one renewal at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renewer {
    /// How long the host may be silent.
    allowed: Duration,
    /// When the last renewal was made out after which it knew that its lease was not over.
    renewed: LeaseTime,
    /// When the renewal under way was made out.
    asked: Option<LeaseTime>,
    has_stopped: bool,
}

/// Something that happens to the renewer of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenewerInput {
    /// It is time to renew. A device or the monitor may have told the host that it is fenced.
    Wake { is_fenced: bool },
    /// The lease is renewed.
    Renewed,
    /// The lease is over, or there is none.
    Refused,
    /// The renewal failed, or has no answer. It may have had its effect, may have it later, or never.
    Unknown,
    /// The renewal could not be written. The lease was read, and is not over.
    Unwritable,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenewerStep {
    /// Renew the lease, with the time of this input.
    Renew,
    /// Wait for the next wake-up.
    Wait,
    /// Begin nothing more: the array refuses the host, or soon will.
    Stop(StopReason),
}

/// Why a host stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// A lock server did not hear from it for a lease, or its lease was ended before.
    Fenced,
    LeaseLost,
    /// It could not find out for as long as a host may be silent whether it has a lease.
    Unrenewed,
}

impl Renewer {
    /// The renewer of a lease that was taken at this time, of a host that may be silent for `allowed`.
    pub fn new(taken: LeaseTime, allowed: Duration) -> Renewer {
        Renewer { allowed, renewed: taken, asked: None, has_stopped: false }
    }

    pub fn step(&mut self, now: &LeaseTime, input: RenewerInput) -> RenewerStep {
        assert!(!self.has_stopped, "a host that has stopped renews nothing");
        match input {
            RenewerInput::Wake { is_fenced: true } => self.stop(StopReason::Fenced),
            RenewerInput::Wake { is_fenced: false } => {
                assert_eq!(self.asked.replace(now.clone()), None, "one renewal at a time");
                RenewerStep::Renew
            }
            RenewerInput::Renewed | RenewerInput::Unwritable => {
                self.renewed = self.asked.take().expect("a renewal is under way");
                RenewerStep::Wait
            }
            RenewerInput::Refused => self.stop(StopReason::LeaseLost),
            RenewerInput::Unknown => {
                self.asked = None;
                match now.since(&self.renewed) {
                    Some(age) if age <= self.allowed => RenewerStep::Wait,
                    _ => self.stop(StopReason::Unrenewed),
                }
            }
        }
    }

    fn stop(&mut self, reason: StopReason) -> RenewerStep {
        self.has_stopped = true;
        RenewerStep::Stop(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_secs(60);
    const WAKE: RenewerInput = RenewerInput::Wake { is_fenced: false };

    fn at(seconds: u64) -> LeaseTime {
        LeaseTime { boot: "this".into(), elapsed: Duration::from_secs(seconds) }
    }

    fn renewer() -> Renewer {
        Renewer::new(at(0), ALLOWED)
    }

    #[test]
    fn a_host_goes_on_without_answers_for_as_long_as_it_may_be_silent() {
        let mut renewer = renewer();
        for second in 0..60 {
            assert_eq!(renewer.step(&at(second), WAKE), RenewerStep::Renew);
            assert_eq!(renewer.step(&at(second + 1), RenewerInput::Unknown), RenewerStep::Wait);
        }
        renewer.step(&at(60), WAKE);
        assert_eq!(renewer.step(&at(61), RenewerInput::Unknown), RenewerStep::Stop(StopReason::Unrenewed));
    }

    #[test]
    fn a_host_that_reads_its_lease_and_can_t_write_goes_on_until_the_lease_is_over() {
        let mut renewer = renewer();
        for second in 0..600 {
            assert_eq!(renewer.step(&at(second), WAKE), RenewerStep::Renew);
            assert_eq!(renewer.step(&at(second), RenewerInput::Unwritable), RenewerStep::Wait);
        }
        renewer.step(&at(600), WAKE);
        assert_eq!(renewer.step(&at(600), RenewerInput::Refused), RenewerStep::Stop(StopReason::LeaseLost));
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_made_out() {
        let mut renewer = renewer();
        renewer.step(&at(10), WAKE);
        // It was suspended before it heard the answer.
        assert_eq!(renewer.step(&at(65), RenewerInput::Renewed), RenewerStep::Wait);
        renewer.step(&at(66), WAKE);
        assert_eq!(renewer.step(&at(71), RenewerInput::Unknown), RenewerStep::Stop(StopReason::Unrenewed));
    }

    #[test]
    fn a_host_stops_when_its_lease_is_over_or_devices_refuse_it() {
        let mut refused = renewer();
        refused.step(&at(1), WAKE);
        assert_eq!(refused.step(&at(1), RenewerInput::Refused), RenewerStep::Stop(StopReason::LeaseLost));
        let fenced = RenewerInput::Wake { is_fenced: true };
        assert_eq!(renewer().step(&at(1), fenced), RenewerStep::Stop(StopReason::Fenced));
    }

    #[test]
    fn a_lease_of_an_earlier_boot_has_ended() {
        let mut renewer = renewer();
        let next = LeaseTime { boot: "next".into(), elapsed: Duration::from_secs(1) };
        renewer.step(&next, WAKE);
        assert_eq!(renewer.step(&next, RenewerInput::Unknown), RenewerStep::Stop(StopReason::Unrenewed));
    }
}
