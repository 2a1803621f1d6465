//! What is due to a peer: the answers to its requests that are not made yet.
//!
//! A device reads its disk for an answer, and a peer may send thousands of requests before it is stopped by what it does not read. So the
//! answer is charged to the peer when the request is taken. A request that exceeds the peer's part is dropped, as if it was lost on the way:
//! the protocols send it again. What the peer sends besides, such as heartbeats, still arrives.

use crate::budget::{Account, Charge};
use braid_wire::Demand;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// An answer that was not made for so long will not be: most likely the node has ignored the request, since another one replaced it.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// The answers that are due to one peer.
pub(crate) struct Due {
    /// By the sequence numbers of requests: a request that was sent again may be answered as often.
    answers: BTreeMap<u64, Awaited>,
    charge: Charge,
    account: Account,
}

struct Awaited {
    since: Instant,
    times: usize,
    /// All together.
    bytes: usize,
}

impl Due {
    pub fn new(account: &Account) -> Due {
        Due { answers: BTreeMap::new(), charge: account.charge(0), account: account.clone() }
    }

    /// Charges the answer to a request. Returns false if there is no room for it.
    #[must_use]
    pub fn admit(&mut self, demand: Demand, now: Instant) -> bool {
        let Demand { sequence, bytes } = demand;
        if !self.account.has_room_for(bytes) {
            return false;
        }
        let awaited = self.answers.entry(sequence).or_insert(Awaited { since: now, times: 0, bytes: 0 });
        *awaited = Awaited { since: now, times: awaited.times + 1, bytes: awaited.bytes + bytes };
        self.charge.resize(self.charge.bytes() + bytes);
        true
    }

    /// A request was answered.
    pub fn end(&mut self, sequence: u64) {
        let Some(awaited) = self.answers.get_mut(&sequence) else { return };
        let bytes = awaited.bytes / awaited.times;
        (awaited.times, awaited.bytes) = (awaited.times - 1, awaited.bytes - bytes);
        if awaited.times == 0 {
            self.answers.remove(&sequence);
        }
        self.charge.resize(self.charge.bytes() - bytes);
    }

    /// Forgets what will not be answered.
    pub fn look(&mut self, now: Instant) {
        self.answers.retain(|_, awaited| now.saturating_duration_since(awaited.since) < FORGOTTEN);
        self.charge.resize(self.answers.values().map(|awaited| awaited.bytes).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{BUDGET_MIN, leaked};

    const MIB: usize = 1 << 20;

    #[test]
    fn answers_are_charged_until_they_are_made_or_will_not_be() {
        let budget = leaked(BUDGET_MIN);
        let account = Account::new(budget);
        let (mut due, mut now) = (Due::new(&account), Instant::now());
        let admitted = |due: &mut Due, sequence| due.admit(Demand { sequence, bytes: 4 * MIB }, now);
        let count = (0..1000).take_while(|sequence| admitted(&mut due, *sequence)).count();
        assert_eq!(count, BUDGET_MIN as usize / MIB / 8 * 7 / 2 / 4, "half of the rest");
        due.end(0);
        due.end(0);
        assert_eq!(account.used(), (count - 1) * 4 * MIB);
        // A request that was sent again is answered twice.
        assert!(admitted(&mut due, 1));
        assert!(!admitted(&mut due, 1));
        due.end(1);
        assert_eq!(account.used(), (count - 1) * 4 * MIB);
        now += FORGOTTEN;
        due.look(now);
        assert_eq!(budget.used(), 0);
        due.end(1);
        assert_eq!(budget.used(), 0);
    }
}
