//! A [`Membership`] lists the devices of the array and its fenced hosts in one epoch. The monitor creates memberships. A device stores
//! the last one that it adopted; a host uses the last one that it received. The protocol is described in `docs/membership.md`.

use crate::{DeviceId, Epoch, Generation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The devices of the array and the fenced hosts in one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Membership {
    /// The number of this membership. Every change of the other fields increments it.
    pub epoch: Epoch,
    /// All devices of the array, in ascending order.
    pub members: Vec<Member>,
    /// The fenced hosts.
    pub fence: FenceTable,
}

/// The state of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    pub device: DeviceId,
    pub member_state: MemberState,
    /// The first epoch of its uninterrupted presence; for a device that is out, the epoch in which it was taken out.
    pub since: Epoch,
}

/// Whether a device is in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MemberState {
    /// It has all data, and is read and written.
    In,
    /// It is back after having been out. It takes part in every write that touches it, and is not read until it is resynchronised.
    Returning {
        /// The host that resynchronises it; `None` if no host is available.
        recovery_coordinator: Option<Generation>,
    },
    /// It is neither read nor written, and its data becomes stale.
    Out,
}

/// A set of fenced hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FenceTable {
    /// Every generation below this one is fenced…
    pub below: Generation,
    /// …except these.
    pub except: BTreeSet<Generation>,
    /// These are fenced, too.
    pub also: BTreeSet<Generation>,
}

impl Membership {
    /// The first membership of an array: all of these devices are in.
    pub fn first(devices: impl IntoIterator<Item = DeviceId>) -> Membership {
        let mut devices: Vec<_> = devices.into_iter().collect();
        devices.sort_unstable();
        devices.dedup();
        let epoch = Epoch(1);
        let member = |device| Member { device, member_state: MemberState::In, since: epoch };
        Membership { epoch, members: devices.into_iter().map(member).collect(), fence: FenceTable::default() }
    }

    /// The state of a device; `None` if it is not a device of the array.
    pub fn member(&self, device: DeviceId) -> Option<&Member> {
        let index = self.members.binary_search_by_key(&device, |member| member.device).ok()?;
        Some(&self.members[index])
    }

    /// Adds a device, which is out. Panics if the array has a device of this number.
    pub fn add(&mut self, device: DeviceId) {
        let at =
            self.members.binary_search_by_key(&device, |member| member.device).expect_err("a device is added once");
        self.members.insert(at, Member { device, member_state: MemberState::Out, since: self.epoch });
    }

    /// Like [`Membership::member`], for changes.
    pub fn member_mut(&mut self, device: DeviceId) -> Option<&mut Member> {
        let index = self.members.binary_search_by_key(&device, |member| member.device).ok()?;
        Some(&mut self.members[index])
    }

    /// True if the device has been present without interruption since `epoch`. A device that was taken out in the meantime has dropped
    /// its undecided transactions with others.
    pub fn has_been_in_since(&self, device: DeviceId, epoch: Epoch) -> bool {
        let there = |member: &Member| member.member_state != MemberState::Out && member.since <= epoch;
        self.member(device).is_some_and(there)
    }

    /// The devices whose state satisfies `member_state`.
    pub fn devices(&self, member_state: impl Fn(MemberState) -> bool) -> impl Iterator<Item = DeviceId> {
        self.members.iter().filter(move |member| member_state(member.member_state)).map(|member| member.device)
    }

    /// True if both memberships have the same devices in the same states, present since the same epochs. A change between two such
    /// memberships does not affect transactions under way.
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
    /// True if `host` is fenced.
    pub fn refuses(&self, host: Generation) -> bool {
        self.also.contains(&host) || (host < self.below && !self.except.contains(&host))
    }

    /// Fences every host below `below` except those of `except`, and also those of `also`. A host that was fenced stays fenced.
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
    fn a_fenced_host_stays_fenced() {
        let mut fence = FenceTable::default();
        fence.add(Generation(0), &set(&[]), &set(&[3]));
        fence.add(Generation(6), &set(&[2, 3, 4]), &set(&[8]));
        fence.add(Generation(5), &set(&[1, 4, 8]), &set(&[]));
        let out: Vec<u32> = (0..10).filter(|host| fence.refuses(Generation(*host))).collect();
        // The second call spares 2, 3 and 4, but 3 was fenced before; the third call spares 4 alone of those that are left.
        assert_eq!(out, [0, 1, 2, 3, 5, 8]);
    }
}
