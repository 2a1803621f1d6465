//! Pairs of devices that did not reach each other. Such a pair can't execute a write together, so for a while the host computes the parity
//! of writes that need it. Then one write tries; if that is in vain, the next one tries after twice the time.

use braid_base::{DeviceId, Time};
use braid_blocks::Column;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long no columns are sent to a pair that did not reach each other, at first.
const CUT_FOR: Duration = Duration::from_secs(10);
/// The longest time.
const CUT_FOR_MAX: Duration = Duration::from_secs(320);
/// How long the write that tries may take.
const TRY_FOR: Duration = Duration::from_secs(2);
/// The most pairs that are remembered.
const PAIRS_MAX: usize = 256;

/// A device, and one that owes it something.
type Pair = (DeviceId, DeviceId);

#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts {
    by_pair: BTreeMap<Pair, Cut>,
}

#[derive(Clone, Debug)]
struct Cut {
    until: Time,
    span: Duration,
    /// A write tries.
    is_tried: bool,
}

impl Cuts {
    /// A device has waited in vain for what others owe it.
    pub fn add(&mut self, now: Time, device: DeviceId, owing: &[DeviceId]) {
        for sender in owing {
            let pair = (device, *sender);
            let span = match self.by_pair.get(&pair) {
                // One of several writes that were under way.
                Some(cut) if now <= cut.until && !cut.is_tried => continue,
                Some(cut) => (cut.span * 2).min(CUT_FOR_MAX),
                None => CUT_FOR,
            };
            if self.by_pair.len() < PAIRS_MAX || self.by_pair.contains_key(&pair) {
                self.by_pair.insert(pair, Cut { until: now.after(span), span, is_tried: false });
            }
        }
    }

    /// True if these columns may be sent: the devices reach each other, as far as is known, or this write tries whether they do.
    pub fn allow(&mut self, now: Time, columns: &BTreeMap<DeviceId, Column>) -> bool {
        if self.by_pair.is_empty() {
            return true;
        }
        let concerned: Vec<Pair> = pairs(columns).filter(|pair| self.by_pair.contains_key(pair)).collect();
        if concerned.iter().any(|pair| now <= self.by_pair[pair].until) {
            return false;
        }
        for pair in concerned {
            let cut = self.by_pair.get_mut(&pair).expect("just seen");
            (cut.until, cut.is_tried) = (now.after(TRY_FOR), true);
        }
        true
    }

    /// The devices have executed these columns.
    pub fn end(&mut self, columns: &BTreeMap<DeviceId, Column>) {
        if !self.by_pair.is_empty() {
            for pair in pairs(columns) {
                self.by_pair.remove(&pair);
            }
        }
    }
}

fn pairs(columns: &BTreeMap<DeviceId, Column>) -> impl Iterator<Item = Pair> + '_ {
    columns.iter().flat_map(|(device, column)| column.awaited().into_iter().map(|sender| (*device, sender)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::BlockRange;
    use braid_blocks::{Base, ParityRows};

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    /// The columns of a write for which one device owes something to another.
    fn columns(device: u16, sender: u16) -> BTreeMap<DeviceId, Column> {
        let (blocks, from) = (BlockRange::new(0, 1), vec![DeviceId(sender)]);
        let rows = ParityRows { blocks, base: Base::Old, from, own: Vec::new() };
        BTreeMap::from([(DeviceId(device), Column { parity: vec![rows], ..Column::default() })])
    }

    #[test]
    fn one_write_tries_after_a_while_and_the_next_one_after_twice_the_time() {
        let mut cuts = Cuts::default();
        let (cut, other) = (columns(4, 0), columns(4, 1));
        assert!(cuts.allow(at(0), &cut));
        // Two writes were under way.
        cuts.add(at(1), DeviceId(4), &[DeviceId(0)]);
        cuts.add(at(2), DeviceId(4), &[DeviceId(0)]);
        assert!(!cuts.allow(at(11), &cut) && cuts.allow(at(11), &other), "only this pair is cut");
        assert!(cuts.allow(at(12), &cut), "one tries");
        assert!(!cuts.allow(at(12), &cut), "the others don't");
        cuts.add(at(13), DeviceId(4), &[DeviceId(0)]);
        assert!(!cuts.allow(at(33), &cut));
        assert!(cuts.allow(at(34), &cut));
        cuts.end(&cut);
        assert!(cuts.allow(at(34), &cut) && cuts.allow(at(34), &cut), "they reach each other");
    }

    #[test]
    fn a_write_that_tried_and_ended_otherwise_is_followed_by_another_one() {
        let mut cuts = Cuts::default();
        let cut = columns(4, 0);
        cuts.add(at(0), DeviceId(4), &[DeviceId(0)]);
        assert!(cuts.allow(at(11), &cut) && !cuts.allow(at(13), &cut) && cuts.allow(at(14), &cut));
    }
}
