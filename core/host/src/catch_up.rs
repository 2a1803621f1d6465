//! Bringing a returning device what it missed, when the monitor has named this host as its helper (`docs/membership.md`).
//!
//! ```text
//!   Listing: every device that is in says what was written while the other was out
//!   Restoring: each of these blocks, by an ordinary storage transaction, a few at a time
//!   Done: the monitor is told, until the membership says it, too
//! ```
//!
//! It asks for nothing that a front end could not ask for; its requests are numbered apart from those of front ends.

use crate::host::{Host, Timer};
use braid_base::{BlockRange, DeviceId, Epoch, Now, Standing};
use braid_layout::VolumeDescription;
use braid_machine::{Effects, HostOutcome, HostRequest, HostSuccess, OpId};
use braid_wire::{Managed, Task};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Front ends number their requests below this.
const OWN_OPERATIONS: u64 = 1 << 63;
/// Restoring transactions at a time.
const PARALLEL: usize = 8;
/// Blocks of the volume that one of them restores at most.
const BLOCKS_AT_ONCE: u64 = 128;
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// A device that is being helped.
#[derive(Debug)]
pub(crate) struct CatchUp {
    device: DeviceId,
    /// The epoch of its return.
    since: Epoch,
    /// What is under way.
    asked: BTreeMap<OpId, Errand>,
    /// What is to be done, or to be done again.
    errands: VecDeque<Errand>,
    /// What was missed, by volume, as far as it is known; taken apart into errands when all lists are there.
    missed: BTreeMap<u64, BTreeSet<(u64, u64)>>,
    listed: bool,
    /// Blocks of volumes restored so far.
    pub restored: u64,
}

/// One thing to do for a returning device.
#[derive(Clone, Debug)]
enum Errand {
    /// Have it make the component of a volume that was created while it was out.
    Create(Rc<VolumeDescription>),
    /// Ask another device what was missed.
    List { volume: Rc<VolumeDescription>, of: DeviceId, from: u64 },
    /// Restore blocks.
    Restore { volume: Rc<VolumeDescription>, blocks: BlockRange },
}

impl Host {
    /// What this host helps a device with: the device, and how many blocks of volumes are still to be looked at, once that is known.
    pub fn helps(&self) -> Option<(DeviceId, Option<u64>)> {
        let helped = self.catch_up.as_ref()?;
        let blocks = |errand: &Errand| if let Errand::Restore { blocks, .. } = errand { blocks.count } else { 0 };
        let left = helped.errands.iter().chain(helped.asked.values()).map(blocks).sum();
        Some((helped.device, helped.listed.then_some(left)))
    }

    /// The device that it has helped to all that it missed.
    pub(crate) fn has_caught_up(&self) -> Option<(DeviceId, Epoch)> {
        let helped = self.catch_up.as_ref()?;
        let done = helped.listed && helped.errands.is_empty() && helped.asked.is_empty();
        done.then_some((helped.device, helped.since))
    }

    /// A membership has come: is there a device that this host is to help?
    pub(crate) fn look_for_help(&mut self, now: Now, out: &mut Effects) {
        let own = Some(self.config.generation);
        let mine = |standing| matches!(standing, Standing::Returning { helper } if helper == own);
        let membership = self.membership().expect("one has come");
        let members: Vec<_> = membership.members.iter().filter(|member| mine(member.standing)).copied().collect();
        if let Some(helped) = &self.catch_up {
            if members.iter().any(|member| (member.device, member.since) == (helped.device, helped.since)) {
                return;
            }
            self.catch_up = None;
        }
        // One at a time: another one's turn comes with the epoch in which this one is in.
        let Some(member) = members.first() else { return };
        let device = member.device;
        let concerned =
            |volume: &&Rc<VolumeDescription>| volume.layout.redundancy_units() > 0 && volume.devices.contains(&device);
        let volumes: Vec<_> = self.volumes.values().filter(concerned).cloned().collect();
        let mut errands: VecDeque<_> = volumes.iter().cloned().map(Errand::Create).collect();
        for volume in volumes {
            // Whoever writes a stripe of this device's writes one of theirs, too; and they are all in.
            let layout = volume.layout;
            let place = volume.devices.iter().position(|held| *held == device).expect("it is one of them");
            let others = (0..volume.devices.len()).filter(|other| *other != place);
            for of in others.filter(|other| layout.share_a_stripe(place, *other)).map(|other| volume.device_at(other)) {
                errands.push_back(Errand::List { volume: volume.clone(), of, from: 0 });
            }
        }
        self.catch_up = Some(CatchUp {
            device,
            since: member.since,
            asked: BTreeMap::new(),
            errands,
            missed: BTreeMap::new(),
            listed: false,
            restored: 0,
        });
        self.help(now, out);
    }

    /// Goes on with what is to be done.
    pub(crate) fn help(&mut self, now: Now, out: &mut Effects) {
        loop {
            let Some(helped) = &mut self.catch_up else { return };
            if helped.errands.is_empty() && helped.asked.is_empty() && !helped.listed {
                helped.listed = true;
                let missed = std::mem::take(&mut helped.missed);
                let errands = missed.into_iter().flat_map(|(volume, extents)| {
                    let volume = self.volumes.get(&braid_base::VolumeId(volume)).cloned();
                    volume.into_iter().flat_map(move |volume| restores(&volume, &extents))
                });
                helped.errands = errands.collect();
                continue;
            }
            if helped.asked.len() >= PARALLEL {
                return;
            }
            let Some(errand) = helped.errands.pop_front() else {
                if helped.asked.is_empty() {
                    // The monitor hears of it at once, and again until it has taken note.
                    self.on_monitor_timer(now, out);
                }
                return;
            };
            let (device, since) = (helped.device, helped.since);
            let op = self.own_operation();
            let helped = self.catch_up.as_mut().expect("just seen");
            helped.asked.insert(op, errand.clone());
            let request = match errand {
                Errand::Create(volume) => {
                    let (object, blocks) = (volume.id.object(), volume.component_blocks());
                    let (ordering, redundant, atomicity) = (volume.ordering, true, volume.atomicity);
                    let task = Task::CreateObject { object, blocks, ordering, redundant, atomicity };
                    HostRequest::Manage { device, task }
                }
                Errand::List { volume, of, from } => {
                    let task = Task::ListMissed { device, object: volume.id.object(), from };
                    HostRequest::Manage { device: of, task }
                }
                Errand::Restore { volume, blocks } => HostRequest::Restore { volume: volume.id, device, blocks },
            };
            self.on_request(now, op, request, out);
            if self.catch_up.as_ref().is_none_or(|helped| helped.since != since) {
                return;
            }
        }
    }

    /// One of this host's own requests has ended.
    pub(crate) fn on_errand(&mut self, now: Now, op: OpId, outcome: HostOutcome) {
        let Some(helped) = &mut self.catch_up else { return };
        let Some(errand) = helped.asked.remove(&op) else { return };
        match (errand, outcome) {
            (Errand::List { volume, of, .. }, Ok(HostSuccess::Managed(Managed::Missed { extents, next }))) => {
                let missed = helped.missed.entry(volume.id.0).or_default();
                missed.extend(extents.into_iter().map(|extent| (extent.start, extent.count)));
                if let Some(from) = next {
                    helped.errands.push_back(Errand::List { volume, of, from });
                }
            }
            (Errand::Restore { blocks, .. }, Ok(_)) => helped.restored += blocks.count,
            (Errand::Create(_), Ok(_)) => {}
            (Errand::Create(volume) | Errand::List { volume, .. } | Errand::Restore { volume, .. }, Err(_))
                if !self.volumes.contains_key(&volume.id) => {}
            (errand, _) => {
                helped.errands.push_back(errand);
                self.timers.set(Timer::Help, now.time.after(PAUSE));
                return;
            }
        }
        if self.timers.deadline_of(Timer::Help).is_none() {
            self.timers.set(Timer::Help, now.time);
        }
    }

    /// Names a request of this host's own.
    pub(crate) fn own_operation(&mut self) -> OpId {
        self.next_sequence += 1;
        OpId(OWN_OPERATIONS | (self.next_sequence - 1))
    }

    /// Whether a request is this host's own.
    pub(crate) fn is_own(op: OpId) -> bool {
        op.0 >= OWN_OPERATIONS
    }
}

/// Missed extents of a volume, each block once, cut into what one transaction restores.
fn restores(volume: &Rc<VolumeDescription>, extents: &BTreeSet<(u64, u64)>) -> Vec<Errand> {
    let mut merged: Vec<BlockRange> = Vec::new();
    for (start, count) in extents {
        let range = BlockRange::new(*start, *count);
        match merged.last_mut() {
            Some(last) if range.start <= last.end() => last.count = last.count.max(range.end() - last.start),
            _ => merged.push(range),
        }
    }
    let end = volume.stripes() * volume.layout.stripe_blocks();
    let mut errands = Vec::new();
    for range in merged {
        let mut start = range.start;
        while start < range.end().min(end) {
            let count = BLOCKS_AT_ONCE.min(range.end().min(end) - start);
            errands.push(Errand::Restore { volume: volume.clone(), blocks: BlockRange::new(start, count) });
            start += count;
        }
    }
    errands
}
