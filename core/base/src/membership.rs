//! Who is in the array: one [`Membership`] for each epoch. A monitor makes them; devices keep the last one they lived by, hosts go by
//! the last one they heard of. How that is used: `docs/membership.md`.

use crate::{DeviceId, Epoch, Generation};
use std::collections::BTreeSet;

/// Who is in the array in one epoch, and which hosts are kept out of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// Which epoch. Every change of the rest makes a new one.
    pub epoch: Epoch,
    /// All devices of the array, ascending.
    pub members: Vec<Member>,
    /// Hosts that are kept out.
    pub fence: FenceTable,
}

/// One device's part in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Which device.
    pub device: DeviceId,
    /// Whether it is in.
    pub member_state: MemberState,
    /// The first epoch of its uninterrupted presence; of one that is out, that in which it was taken out.
    pub since: Epoch,
}

/// Whether a device is in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// It has everything, and is read and written.
    In,
    /// It is back. It takes part in every write that touches it, and is not read until it has caught up with what it missed.
    Returning {
        /// The host that sees to that; none if there is no host to.
        recovery_coordinator: Option<Generation>,
    },
    /// It is neither read nor written: what it holds grows old.
    Out,
}

/// Which hosts are kept out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FenceTable {
    /// Every generation below this one…
    pub below: Generation,
    /// …except these…
    pub except: BTreeSet<Generation>,
    /// …and these besides.
    pub also: BTreeSet<Generation>,
}

impl Membership {
    /// The first one: all of these devices are in.
    pub fn first(devices: impl IntoIterator<Item = DeviceId>) -> Membership {
        let mut devices: Vec<_> = devices.into_iter().collect();
        devices.sort_unstable();
        devices.dedup();
        let epoch = Epoch(1);
        let member = |device| Member { device, member_state: MemberState::In, since: epoch };
        Membership { epoch, members: devices.into_iter().map(member).collect(), fence: FenceTable::default() }
    }

    /// A device's part; none if the array does not have it.
    pub fn member(&self, device: DeviceId) -> Option<&Member> {
        let index = self.members.binary_search_by_key(&device, |member| member.device).ok()?;
        Some(&self.members[index])
    }

    /// One more device, which is out. None has its number.
    pub fn add(&mut self, device: DeviceId) {
        let at = self.members.binary_search_by_key(&device, |member| member.device).expect_err("it is not there yet");
        self.members.insert(at, Member { device, member_state: MemberState::Out, since: self.epoch });
    }

    /// The same, to be changed.
    pub fn member_mut(&mut self, device: DeviceId) -> Option<&mut Member> {
        let index = self.members.binary_search_by_key(&device, |member| member.device).ok()?;
        Some(&mut self.members[index])
    }

    /// True if the device has been there without interruption since `epoch`. Any other has dropped what it shared with others and was
    /// undecided.
    pub fn has_been_in_since(&self, device: DeviceId, epoch: Epoch) -> bool {
        let there = |member: &Member| member.member_state != MemberState::Out && member.since <= epoch;
        self.member(device).is_some_and(there)
    }

    /// The devices that stand so.
    pub fn devices(&self, member_state: impl Fn(MemberState) -> bool) -> impl Iterator<Item = DeviceId> {
        self.members.iter().filter(move |member| member_state(member.member_state)).map(|member| member.device)
    }

    /// True if the same devices are in, as long as they were, in both: nothing that was under way is put in doubt.
    pub fn has_same_devices(&self, other: &Membership) -> bool {
        let alike = |a: &Member, b: &Member| {
            let readable = |member: &Member| member.member_state == MemberState::In;
            let out = |member: &Member| member.member_state == MemberState::Out;
            (a.device, a.since, readable(a), out(a)) == (b.device, b.since, readable(b), out(b))
        };
        self.members.len() == other.members.len() && self.members.iter().zip(&other.members).all(|(a, b)| alike(a, b))
    }
}

impl FenceTable {
    /// True if `host` is kept out.
    pub fn refuses(&self, host: Generation) -> bool {
        self.also.contains(&host) || (host < self.below && !self.except.contains(&host))
    }

    /// Keeps out every host below `below` but those of `except`, and those of `also` besides. Whoever was kept out stays so.
    pub fn add(&mut self, below: Generation, except: &BTreeSet<Generation>, also: &BTreeSet<Generation>) {
        let before = self.clone();
        let named = FenceTable { below, except: except.clone(), also: also.clone() };
        let below = before.below.max(below);
        let spared = before.except.iter().chain(except).copied();
        let spared = spared.filter(|host| *host < below && !before.refuses(*host) && !named.refuses(*host)).collect();
        let besides = before.also.iter().chain(also).copied().filter(|host| *host >= below).collect();
        *self = FenceTable { below, except: spared, also: besides };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hosts: &[u32]) -> BTreeSet<Generation> {
        hosts.iter().copied().map(Generation).collect()
    }

    #[test]
    fn who_is_kept_out_stays_out() {
        let mut fence = FenceTable::default();
        fence.add(Generation(0), &set(&[]), &set(&[3]));
        fence.add(Generation(6), &set(&[2, 3, 4]), &set(&[8]));
        fence.add(Generation(5), &set(&[1, 4, 8]), &set(&[]));
        let out: Vec<u32> = (0..10).filter(|host| fence.refuses(Generation(*host))).collect();
        // The second names 2, 3 and 4 as living, but 3 was out by then; the third spares only 4 of those that were left.
        assert_eq!(out, [0, 1, 2, 3, 5, 8]);
    }
}
