//! The links to all devices, and the counter of sequences. All requests to devices leave the host here.
//!
//! Transactions, requests for objects, tasks and lock requests share the counter. So for each device one number
//! suffices as the settled mark, below which everything of this host is over
//! ([`Request::settled`](braid_wire::Request)).
//!
//! | module | what |
//! | --- | --- |
//! | `link` | one device: messages that ride on the next request, the settled mark, and when the device was last heard |
//! | `request_window` | requests for objects that one device has not answered, and abandoned ones |
//!
//! Other parts see a single link only to note what becomes of transactions, tasks and requests for objects: for all else they call methods
//! of `Links`, and name the device.

mod link;
mod request_window;

use crate::counters::HostCounters;
use braid_base::limits::Settings;
use braid_base::{DeviceId, Epoch, Generation, NodeId, Now, Time, Timers, was_paused};
use braid_machine::HostEffects;
use braid_wire::Command;
use link::Link;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The links of a host.
#[derive(Clone, Debug)]
pub struct Links {
    by_device: BTreeMap<DeviceId, Link>,
    /// The next free sequence.
    next_sequence: u64,
    timers: Timers<LinkTimer>,
    counters: HostCounters,
    /// When the host took its last step.
    last_step: Option<Time>,
    /// The host was paused: until then, answers of devices may be unread.
    unread_until: Time,
}

/// The context of the links, borrowed from their owner.
pub struct Outbound<'a> {
    pub now: Now,
    /// The generation by which devices know the owner.
    pub host: Generation,
    /// The epoch of the owner's membership.
    pub epoch: Epoch,
    /// Time-outs, intervals and limits.
    pub settings: &'a Settings,
    /// The effects of this step.
    pub out: &'a mut HostEffects,
}

/// What a host observes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedDevice {
    /// How long heartbeats wait for its answer, as a mean over time; none if none has waited.
    pub response_time: Option<Duration>,
    /// Requests that met a block which it has lost.
    pub corrupt: u64,
}

/// The end of a request for objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// The device keeps nothing of it, and a late execution does no harm.
    NothingKept,
    /// The device keeps the answer until it hears that the request is over.
    Answered,
    /// The device may have executed it, or may do so later. Later requests name it as abandoned.
    Abandoned,
}

/// The timers of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkTimer {
    /// Commits have waited long enough for a request to ride on.
    Linger(DeviceId),
    /// The next heartbeat is due.
    Heartbeat(DeviceId),
}

impl Links {
    /// Creates links to these devices.
    pub fn new(devices: &[DeviceId]) -> Links {
        let by_device = devices.iter().map(|device| (*device, Link::default())).collect();
        let (timers, counters) = (Timers::default(), HostCounters::default());
        Links { by_device, next_sequence: 1, timers, counters, last_step: None, unread_until: Time(0) }
    }

    pub fn counters(&self) -> &HostCounters {
        &self.counters
    }

    pub fn next_timer(&self) -> Option<(Time, LinkTimer)> {
        self.timers.next()
    }

    pub fn wake(&mut self, ctx: &mut Outbound, timer: LinkTimer) {
        self.timers.cancel(timer);
        match timer {
            LinkTimer::Linger(device) => self.on_linger(ctx, device),
            LinkTimer::Heartbeat(device) => self.send_heartbeat(ctx, device),
        }
    }

    /// Takes the next free sequence.
    pub fn take_sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// True if there is a link to this device.
    pub fn has(&self, device: DeviceId) -> bool {
        self.by_device.contains_key(&device)
    }

    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.by_device.keys().copied()
    }

    /// The link to a device that is still needed, to note what becomes of transactions, tasks and requests for objects.
    pub fn of(&mut self, device: DeviceId) -> &mut Link {
        self.by_device.get_mut(&device).expect("links stay while anything needs them")
    }

    /// A device has answered. False if it is not a device of this array.
    pub fn heard(&mut self, now: Now, device: DeviceId) -> bool {
        let Some(link) = self.by_device.get_mut(&device) else { return false };
        (link.last_heard, link.crowded) = (Some(now.time), false);
        true
    }

    /// A device has answered a heartbeat. That waits for nothing but the device: no disk, no lock, no other device.
    pub fn heard_heartbeat(&mut self, now: Now, device: DeviceId) {
        self.of(device).response_time.answered(now.time);
    }

    /// The host takes a step, as it does at least once per heartbeat. If it was paused before, answers of devices may be unread.
    pub fn take_step(&mut self, now: Time, heartbeat: Duration) {
        let planned = self.last_step.replace(now).map(|last| last.after(heartbeat));
        if was_paused(planned, now, heartbeat) {
            self.unread_until = now.after(heartbeat);
        }
    }

    /// True if the answers that devices sent before now are read, as far as the host knows.
    pub fn are_read(&self, now: Time) -> bool {
        now >= self.unread_until
    }

    /// A device had no room for this host when it last answered.
    pub fn turned_away(&mut self, device: DeviceId) {
        self.of(device).crowded = true;
    }

    /// True if a device had no room for this host when it last answered.
    pub fn is_crowded(&self, device: DeviceId) -> bool {
        self.by_device.get(&device).is_some_and(|link| link.crowded)
    }

    /// When a device was last heard.
    pub fn last_heard(&self, device: DeviceId) -> Option<Time> {
        self.by_device.get(&device).and_then(|link| link.last_heard)
    }

    /// A request met a block that this device has lost.
    pub fn count_corrupt(&mut self, device: DeviceId) {
        self.of(device).corrupt += 1;
    }

    /// What was observed of each device.
    pub fn observed(&self) -> impl Iterator<Item = (DeviceId, ObservedDevice)> + '_ {
        let of = |link: &Link| ObservedDevice { response_time: link.response_time.mean(), corrupt: link.corrupt };
        self.by_device.iter().map(move |(device, link)| (*device, of(link)))
    }

    /// Sends a command, with everything that rides on it.
    pub fn send(&mut self, ctx: &mut Outbound, device: DeviceId, command: Command) {
        // Nothing is sent to a device that has left the array.
        let Some(link) = self.by_device.get_mut(&device) else { return };
        let message = link.request(ctx.now.time, ctx.host, ctx.epoch, self.next_sequence, command);
        if link.lingers && !link.has_any_queued() {
            link.lingers = false;
            self.timers.cancel(LinkTimer::Linger(device));
        }
        self.counters.requests_sent += 1;
        ctx.out.send(NodeId::Device(device), message);
    }

    /// Sends a heartbeat, and schedules the next one whatever else is sent: the answers to heartbeats also name
    /// transactions of dead hosts.
    pub fn send_heartbeat(&mut self, ctx: &mut Outbound, device: DeviceId) {
        let heartbeat = ctx.settings.heartbeat;
        self.of(device).requeue_unconfirmed(ctx.now.time, 2 * heartbeat);
        self.send(ctx, device, Command::Heartbeat);
        self.timers.set(LinkTimer::Heartbeat(device), ctx.now.time.after(heartbeat));
    }

    /// True if a request for objects that begins now can name all abandoned requests to this device.
    pub fn may_begin_request(&self, device: DeviceId) -> bool {
        self.by_device.get(&device).is_some_and(|link| link.window.may_begin())
    }

    /// A request for objects is over.
    pub fn end_request(&mut self, device: DeviceId, sequence: u64, end: RequestEnd) {
        let next = self.next_sequence;
        let link = self.of(device);
        match end {
            RequestEnd::NothingKept => link.settle_read(sequence),
            RequestEnd::Answered => {
                link.keeps = true;
                link.settle(sequence);
            }
            RequestEnd::Abandoned => {
                link.keeps = true;
                link.window.abandon(sequence, next);
            }
        }
    }

    /// True if the device may keep commits or answers of this host that are over.
    pub fn keeps(&self, device: DeviceId) -> bool {
        self.by_device.get(&device).is_some_and(|link| link.keeps)
    }

    /// The device has confirmed that everything of this host is over.
    pub fn keeps_nothing(&mut self, device: DeviceId) {
        self.of(device).keeps = false;
    }

    /// Queues the commits that a device has not confirmed for `wait`, to be sent again with the next request. False if
    /// all are confirmed.
    pub fn requeue_unconfirmed(&mut self, now: Time, device: DeviceId, wait: Duration) -> bool {
        let link = self.of(device);
        let has_any = link.has_unconfirmed();
        if has_any {
            link.requeue_unconfirmed(now, wait);
        }
        has_any
    }

    /// Queues a commit once more, for a request that goes to the device at once: the device may have lost the commit in
    /// a restart.
    pub fn requeue_commit(&mut self, device: DeviceId, sequence: u64) {
        self.of(device).queue_commit(sequence);
    }

    /// Queues a commit for the next request to a device. If there is none, a heartbeat carries it after a linger time.
    pub fn queue_commit(&mut self, ctx: &Outbound, device: DeviceId, sequence: u64) {
        let link = self.of(device);
        link.queue_commit(sequence);
        if !std::mem::replace(&mut link.lingers, true) {
            self.timers.set(LinkTimer::Linger(device), ctx.now.time.after(ctx.settings.commit_linger));
        }
    }

    /// Commits have waited long enough for a request to ride on.
    fn on_linger(&mut self, ctx: &mut Outbound, device: DeviceId) {
        self.of(device).lingers = false;
        while self.of(device).has_any_queued() {
            self.send_carrier(ctx, device);
        }
    }

    /// Sends a queued commit to a device at once.
    pub fn hurry_commit(&mut self, ctx: &mut Outbound, device: DeviceId, sequence: u64) {
        if self.of(device).has_queued(sequence) {
            self.send_carrier(ctx, device);
        }
    }

    /// Sends a heartbeat only because commits have no request to ride on.
    fn send_carrier(&mut self, ctx: &mut Outbound, device: DeviceId) {
        self.counters.commit_carriers += 1;
        self.send(ctx, device, Command::Heartbeat);
    }

    /// A device is in an earlier epoch, and so has dropped the requests of this epoch. It is asked soon whether it has
    /// adopted this one.
    pub fn await_adoption(&mut self, ctx: &Outbound, device: DeviceId, wait: Duration) {
        self.of(device).behind = true;
        self.timers.set(LinkTimer::Heartbeat(device), ctx.now.time.after(wait));
    }

    /// True if a device that was behind has now answered in this epoch.
    pub fn has_adopted(&mut self, device: DeviceId) -> bool {
        std::mem::take(&mut self.of(device).behind)
    }

    /// Creates links to the devices of a new membership. Drops links to other devices that nothing needs any more.
    pub fn follow(&mut self, members: &BTreeSet<DeviceId>, needed: &BTreeSet<DeviceId>) {
        for device in members {
            self.by_device.entry(*device).or_default();
        }
        let timers = &mut self.timers;
        self.by_device.retain(|device, _| {
            if members.contains(device) {
                return true;
            }
            timers.cancel(LinkTimer::Heartbeat(*device));
            let stays = needed.contains(device);
            if !stays {
                timers.cancel(LinkTimer::Linger(*device));
            }
            stays
        });
    }

    /// Asserts that queued commits have a deadline.
    pub fn invariants(&self) {
        for (device, link) in &self.by_device {
            let set = self.timers.deadline_of(LinkTimer::Linger(*device)).is_some();
            assert_eq!(link.lingers, set, "a link knows whether its commits have a deadline: {device}");
        }
    }
}
