//! What makes hosts silent for longer than their leases: they are suspended, or their renewals are lost, late or unanswered; and the state of
//! the fencers that find them ([`super::fencers`]).

use super::options::SilenceOptions;
use crate::prelude::*;
use braid_host_leases::Fencer;

/// The longest silence, which ends before the array must be at rest.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// The longest time by which a heartbeat or a question is late.
const LATE_MAX: u64 = 4_000;

/// An outage of the store: it can be read, and not be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    from: Time,
    until: Time,
    /// Renewals are written in place, which may succeed where no file can be made.
    pub renewals: bool,
    /// All other writes.
    pub others: bool,
}

/// The fencers of a run, and what makes hosts silent.
pub(super) struct Fencing {
    pub options: SilenceOptions,
    /// A source of its own, so that runs without silent hosts are unchanged.
    pub rng: Rng,
    /// False when everything has healed.
    has_faults: bool,
    pub fencers: BTreeMap<Generation, FencerProcess>,
    /// Counts questions, so that an answer finds the one that it belongs to.
    pub last_question: u64,
    /// Hosts whose renewals are lost until then.
    pub mute: BTreeMap<Generation, Time>,
    /// The outages of the store, oldest first; one at a time.
    outages: Vec<Outage>,
}

pub(super) struct FencerProcess {
    pub fencer: Fencer,
    pub asked: Option<u64>,
}

pub(super) enum RenewalFate {
    Made,
    /// The host reads its lease, and can't write.
    Unwritable,
    /// It is lost, and the host has no answer.
    Lost,
    /// The same, but the host has looked at its lease, and writes the heartbeat after this time.
    Late {
        by: Duration,
    },
}

impl Fencing {
    pub fn new(options: SilenceOptions, rng: Rng) -> Fencing {
        Fencing {
            options,
            rng,
            has_faults: true,
            fencers: BTreeMap::new(),
            last_question: 0,
            mute: BTreeMap::new(),
            outages: Vec::new(),
        }
    }

    pub fn outage(&self, now: Time) -> Option<&Outage> {
        self.outages.last().filter(|outage| now < outage.until)
    }

    /// For how long after `since` no host could renew its lease.
    pub fn without_renewals(&self, since: Time, now: Time) -> Duration {
        let lost = self.outages.iter().filter(|outage| outage.renewals);
        lost.map(|outage| outage.until.min(now).since(outage.from.max(since))).sum()
    }

    pub fn way(&mut self) -> Duration {
        Duration::from_micros(self.rng.below(5_000) + 1)
    }

    /// True in so many of a thousand cases, while there are faults.
    pub fn draws(&mut self, of_thousand: u64) -> bool {
        self.has_faults && self.rng.below(1000) < of_thousand
    }

    pub fn late(&mut self) -> Duration {
        Duration::from_millis(self.rng.below(LATE_MAX) + 1)
    }

    /// How long the next silence is, for longer or shorter than it may be.
    pub fn draw_silence(&mut self, allowed: Duration) -> Duration {
        Duration::from_millis(self.rng.below(3 * allowed.as_millis() as u64) + 1).min(SILENCE_MAX)
    }

    pub fn heal(&mut self, now: Time) {
        self.has_faults = false;
        self.mute.clear();
        self.end_outage(now);
    }

    fn end_outage(&mut self, now: Time) {
        if let Some(outage) = self.outages.last_mut() {
            outage.until = outage.until.min(now);
        }
    }

    /// The store can't be written for a while, or not all of it: the file system is read-only, or takes no new file, or just not what the
    /// hosts write.
    pub fn begin_outage(&mut self, now: Time, span: Duration) -> &'static str {
        let (renewals, others, name) = match self.rng.below(3) {
            0 => (true, true, "store read-only"),
            1 => (false, true, "store without room"),
            _ => (true, false, "renewals without room"),
        };
        self.outages.push(Outage { from: now, until: now.after(span), renewals, others });
        name
    }
}
