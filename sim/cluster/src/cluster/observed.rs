//! What checks have observed of the membership so far.

use crate::prelude::*;

/// What the checks have observed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub memberships: Seen,
    /// When devices were unavailable or out.
    pub absences: Absences,
    /// When a device was last unavailable, that is, in and without a lease.
    pub last_unavailable: Option<Time>,
}

/// Earlier memberships.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Every membership that any node was known to use.
    memberships: BTreeMap<Epoch, Membership>,
}

/// Times in which some device was unavailable, or in which not all nodes used the same membership with all devices in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Absences {
    pub spans: Vec<(Time, Time)>,
    pub now: bool,
}

impl Absences {
    /// True if one of them overlaps the time between two moments.
    pub fn overlap(&self, begun: Time, done: Time) -> bool {
        let first = self.spans.partition_point(|(_, end)| *end < begun);
        self.spans.get(first).is_some_and(|(start, _)| *start <= done)
    }
}

impl Seen {
    pub fn learn(&mut self, membership: &Membership) -> Result<(), String> {
        match self.memberships.get(&membership.epoch) {
            Some(known) if known == membership => return Ok(()),
            Some(known) => return Err(format!("one epoch, two memberships: {known:?} and {membership:?}")),
            None => {}
        }
        if let Some((_, before)) = self.memberships.range(..membership.epoch).next_back() {
            follows(before, membership)?;
        }
        if let Some((_, after)) = self.memberships.range(membership.epoch..).next() {
            follows(membership, after)?;
        }
        self.memberships.insert(membership.epoch, membership.clone());
        Ok(())
    }
}

/// Fenced hosts stay fenced, and no device has an earlier begin of its presence than before.
fn follows(before: &Membership, after: &Membership) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {before:?} and then {after:?}"));
    let kept_out = before.fence.also.iter().any(|host| !after.fence.refuses(*host));
    if kept_out || after.fence.below < before.fence.below {
        return wrong("a fenced host is admitted again");
    }
    for member in &before.members {
        match after.member(member.device) {
            // It was removed.
            None => {}
            Some(later) if later.since < member.since => {
                return wrong("the presence of a device begins earlier than before");
            }
            Some(later)
                if member.member_state == MemberState::Out
                    && later.member_state == MemberState::In
                    && later.since <= before.epoch =>
            {
                return wrong("a device is in that was out, and has not returned");
            }
            Some(_) => {}
        }
    }
    Ok(())
}
