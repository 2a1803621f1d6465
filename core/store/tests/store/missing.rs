//! A naive model of what other devices have missed. It keeps all facts in order, and applies the rules to all of them at every query. It
//! returns what must be recorded, and what may be.

use crate::protocol::*;

/// The store's own device.
pub const OWN: DeviceId = DeviceId(2);
/// All devices of the array, with the store's own.
pub const DEVICES: [DeviceId; 4] = [DeviceId(1), OWN, DeviceId(3), DeviceId(5)];

/// The properties of a write that the model needs.
#[derive(Clone, Debug)]
pub struct Written {
    pub object: ObjectId,
    pub redundant: bool,
    pub epoch: Epoch,
    pub participants: Vec<DeviceId>,
    pub linkage: Linkage,
}

impl Written {
    /// A write with a single participant is part of its resync. Another returning device may miss the same hostwrite.
    fn is_alone(&self) -> bool {
        self.participants.len() == 1
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Fact {
    Asked(TransactionId),
    Prepared(TransactionId),
    Refused(TransactionId),
    /// And whether no membership was being adopted, so that the missing devices are certain after a crash, too.
    Applied(TransactionId, bool),
    Committed(TransactionId),
    Aborted(TransactionId),
    Forgotten(TransactionId),
    Adopted(Membership),
}

/// The model.
#[derive(Default)]
pub struct Missing {
    writes: BTreeMap<TransactionId, Written>,
    facts: Vec<Fact>,
    pub membership: Option<Membership>,
    /// Requested memberships that are not known to be durable.
    pub adopting: BTreeSet<u64>,
    has_crashed: bool,
}

/// Blocks of volumes.
type Blocks = BTreeMap<(DeviceId, ObjectId), BTreeSet<u64>>;

impl Missing {
    pub fn epoch(&self) -> Epoch {
        self.membership.as_ref().map_or(Epoch(1), |membership| membership.epoch)
    }

    /// The next membership, in which one device has advanced to its next member state; the first one if there is none.
    pub fn next(&self, device: DeviceId, leap: u32) -> Membership {
        let Some(mut next) = self.membership.clone() else { return Membership::first(DEVICES) };
        next.epoch = Epoch(next.epoch.0 + leap);
        let epoch = next.epoch;
        let member = next.member_mut(device).expect("it is a member");
        let (member_state, since) = match member.member_state {
            MemberState::In => (MemberState::Out, epoch),
            MemberState::Out => (MemberState::Returning { recovery_coordinator: None }, epoch),
            MemberState::Returning { .. } => (MemberState::In, member.since),
        };
        *member = Member { device, member_state, since };
        next
    }

    pub fn asked(&mut self, id: TransactionId, written: Written) {
        self.writes.insert(id, written);
        self.facts.push(Fact::Asked(id));
    }

    pub fn prepared(&mut self, id: TransactionId) {
        self.facts.push(Fact::Prepared(id));
    }

    pub fn refused(&mut self, id: TransactionId) {
        self.facts.push(Fact::Refused(id));
    }

    pub fn applied(&mut self, id: TransactionId) {
        self.facts.push(Fact::Applied(id, self.adopting.is_empty()));
    }

    pub fn decided(&mut self, id: TransactionId, commit: bool) {
        self.facts.push(if commit { Fact::Committed(id) } else { Fact::Aborted(id) });
    }

    pub fn forgotten(&mut self, id: TransactionId) {
        self.facts.push(Fact::Forgotten(id));
    }

    pub fn adopted(&mut self, membership: Membership) {
        self.membership = Some(membership.clone());
        self.facts.push(Fact::Adopted(membership));
    }

    /// The power has failed: of memberships and decisions that were not durable, only these are left.
    pub fn recover(&mut self, membership: Option<Membership>, stands: impl Fn(TransactionId) -> bool) {
        let epoch = membership.as_ref().map_or(Epoch(0), |membership| membership.epoch);
        self.facts.retain(|fact| match fact {
            Fact::Adopted(membership) => membership.epoch <= epoch,
            Fact::Committed(id) | Fact::Aborted(id) => stands(*id),
            _ => true,
        });
        let last = self.facts.iter().rev().find_map(|fact| match fact {
            Fact::Adopted(membership) => Some(membership.clone()),
            _ => None,
        });
        assert_eq!(membership, last, "recovery finds a membership that was adopted");
        self.membership = membership;
        self.adopting.clear();
        self.has_crashed = true;
    }

    /// The first epoch of the store's own device's presence, if it has been out.
    pub fn returned(&self) -> Epoch {
        let memberships = self.facts.iter().filter_map(|fact| match fact {
            Fact::Adopted(membership) => Some(membership),
            _ => None,
        });
        memberships.skip(1).map(own_since).max().filter(|since| *since > Epoch(1)).unwrap_or(Epoch(0))
    }

    /// True if the other devices have decided about the transaction without this one.
    pub fn is_stale(&self, id: TransactionId) -> bool {
        let write = &self.writes[&id];
        write.redundant && write.participants.len() > 1 && write.epoch < self.returned()
    }

    /// What must be recorded, and what may be. They differ by writes that were refused or dropped before they were durable.
    pub fn bounds(&self) -> (Blocks, Blocks) {
        (self.must(), self.may())
    }

    fn must(&self) -> Blocks {
        let mut rules = Rules::default();
        let mut decisions: BTreeSet<TransactionId> = BTreeSet::new();
        let mut undecided: BTreeSet<TransactionId> = BTreeSet::new();
        // After a crash it is unknown which of the unanswered writes became durable.
        let mut on_their_way: BTreeSet<TransactionId> = BTreeSet::new();
        for fact in &self.facts {
            match fact {
                Fact::Asked(id) => {
                    on_their_way.insert(*id);
                }
                Fact::Refused(id) => {
                    on_their_way.remove(id);
                }
                Fact::Prepared(id) => {
                    on_their_way.remove(id);
                    undecided.insert(*id);
                    let write = &self.writes[id];
                    rules.add(write, false, |device| write.participants.contains(&device));
                }
                Fact::Applied(id, certain) => {
                    on_their_way.remove(id);
                    if *certain || !self.has_crashed {
                        rules.add(&self.writes[id], self.writes[id].is_alone(), |_| true);
                    }
                }
                Fact::Committed(id) => {
                    undecided.remove(id);
                    decisions.insert(*id);
                    rules.add(&self.writes[id], self.writes[id].is_alone(), |_| true);
                }
                Fact::Aborted(id) => {
                    undecided.remove(id);
                }
                Fact::Forgotten(id) => {
                    decisions.remove(id);
                }
                Fact::Adopted(membership) => {
                    let before = rules.membership.replace(membership);
                    for id in undecided.iter().chain(&decisions) {
                        let write = &self.writes[id];
                        rules.add(write, false, |device| write.participants.contains(&device));
                    }
                    rules.drop_of_present();
                    if before.is_some_and(|before| own_since(membership) > before.epoch) {
                        let stays = |id: &TransactionId| {
                            let write = &self.writes[id];
                            !write.redundant || write.epoch >= own_since(membership)
                        };
                        undecided.retain(stays);
                        decisions.retain(stays);
                    }
                }
            }
        }
        if !self.has_crashed {
            undecided.append(&mut on_their_way);
        }
        for id in undecided {
            rules.add_undecided(&self.writes[&id]);
        }
        rules.blocks
    }

    /// Every write that was ever requested may be recorded, from the membership on by which a device misses it.
    fn may(&self) -> Blocks {
        let mut rules = Rules::default();
        let mut known: Vec<&Written> = Vec::new();
        for fact in &self.facts {
            let first = known.len();
            let news = match fact {
                Fact::Asked(id) => {
                    known.push(&self.writes[id]);
                    &known[first..]
                }
                Fact::Adopted(membership) => {
                    rules.membership = Some(membership);
                    rules.drop_of_present();
                    &known
                }
                _ => continue,
            };
            for write in news {
                rules.add(write, write.is_alone(), |_| true);
                rules.add_undecided(write);
            }
        }
        rules.blocks
    }
}

fn own_since(membership: &Membership) -> Epoch {
    membership.member(OWN).expect("it is a member").since
}

#[derive(Default)]
struct Rules<'a> {
    membership: Option<&'a Membership>,
    blocks: Blocks,
}

impl Rules<'_> {
    fn add(&mut self, write: &Written, alone: bool, concerns: impl Fn(DeviceId) -> bool) {
        let Some(membership) = self.membership else { return };
        let misses = |member: &&Member| match member.member_state {
            MemberState::In => false,
            MemberState::Returning { .. } => alone || member.since > write.epoch,
            MemberState::Out => true,
        };
        for member in membership.members.iter().filter(misses) {
            if write.redundant && member.device != OWN && concerns(member.device) {
                self.put(member.device, write);
            }
        }
    }

    fn add_undecided(&mut self, write: &Written) {
        let Some(membership) = self.membership else { return };
        for device in DEVICES {
            if write.redundant && !membership.has_been_in_since(device, write.epoch) {
                self.put(device, write);
            }
        }
    }

    fn put(&mut self, device: DeviceId, write: &Written) {
        let blocks = write.linkage.first..=write.linkage.last;
        self.blocks.entry((device, write.object)).or_default().extend(blocks);
    }

    fn drop_of_present(&mut self) {
        let membership = self.membership.expect("one was adopted");
        let is_in = |device| membership.member(device).is_some_and(|member| member.member_state == MemberState::In);
        self.blocks.retain(|(device, _), _| !is_in(*device));
    }
}
