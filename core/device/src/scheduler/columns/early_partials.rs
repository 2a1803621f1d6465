//! Partials that have come before their columns. They are kept for a second, within a limit.

use super::execution::bytes_of;
use braid_base::{DeviceId, Epoch, Generation, Time, TransactionId, limits};
use braid_wire::Partial;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a partial is kept. The host sends the column again if it is late.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// The most arrivals that are listed, with those of partials that were taken out.
const LISTED_MAX: usize = 2 * limits::WAITING_MAX;

#[derive(Clone, Debug, Default)]
pub(super) struct EarlyPartials {
    by_transaction: BTreeMap<(TransactionId, DeviceId), (Time, Partial)>,
    /// When each one came. Those that were taken out meanwhile are still listed.
    by_arrival: VecDeque<(Time, TransactionId, DeviceId)>,
    bytes: usize,
}

impl EarlyPartials {
    /// Keeps a partial, if there is room. One of a later epoch takes the place of an earlier one.
    pub fn keep(&mut self, now: Time, from: DeviceId, partial: Partial) {
        self.drop_old(now);
        let key = (partial.transaction, from);
        if self.by_transaction.get(&key).is_some_and(|(_, held)| held.epoch >= partial.epoch) {
            return;
        }
        self.remove(key);
        let bytes = bytes_of(&partial.pieces);
        if self.bytes + bytes <= limits::EARLY_BYTES_MAX && self.by_transaction.len() < limits::WAITING_MAX {
            self.bytes += bytes;
            if self.by_arrival.len() >= LISTED_MAX {
                let held = &self.by_transaction;
                self.by_arrival.retain(|(since, id, from)| held.get(&(*id, *from)).is_some_and(|(at, _)| at == since));
            }
            self.by_arrival.push_back((now, key.0, from));
            self.by_transaction.insert(key, (now, partial));
        }
    }

    /// Takes out the partials for a column that has arrived, of this epoch and later ones.
    pub fn take(&mut self, id: TransactionId, since: Epoch) -> Vec<(DeviceId, Partial)> {
        let senders = self.by_transaction.range((id, DeviceId(0))..=(id, DeviceId(u16::MAX))).map(|(key, _)| *key);
        let taken: Vec<_> = senders.collect();
        let taken = taken.into_iter().filter_map(|key| Some((key.1, self.remove(key)?)));
        taken.filter(|(_, held)| held.epoch >= since).collect()
    }

    /// Drops the partials of a host, or of all hosts before an epoch.
    pub fn drop_if(&mut self, is_over: impl Fn(Generation, Epoch) -> bool) {
        let over = self.by_transaction.iter().filter(|(_, (_, held))| is_over(held.transaction.host, held.epoch));
        for key in over.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(key);
        }
    }

    pub fn drop_old(&mut self, now: Time) {
        while let Some((since, id, from)) = self.by_arrival.front().copied()
            && now.since(since) >= KEPT_FOR
        {
            self.by_arrival.pop_front();
            if self.by_transaction.get(&(id, from)).is_some_and(|(held_since, _)| *held_since == since) {
                self.remove((id, from));
            }
        }
    }

    /// When the oldest is to be dropped.
    pub fn deadline(&self) -> Option<Time> {
        self.by_arrival.front().map(|(since, ..)| since.after(KEPT_FOR))
    }

    fn remove(&mut self, key: (TransactionId, DeviceId)) -> Option<Partial> {
        let (_, held) = self.by_transaction.remove(&key)?;
        self.bytes -= bytes_of(&held.pieces);
        Some(held)
    }

    /// Asserts the bounds.
    pub fn invariants(&self) {
        assert!(self.bytes <= limits::EARLY_BYTES_MAX && self.by_transaction.len() <= self.by_arrival.len());
        assert!(self.by_arrival.len() <= LISTED_MAX);
    }
}
