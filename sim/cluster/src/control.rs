//! The control plane of a simulated array: a store with leases, hosts that follow it, and administrators that change and move the volume,
//! create and delete others, and add and remove devices, while clients use them. The protocol is that of real arrays (`braid_control_protocol`); only the store and the ways to it are simulated.
//!
//! It begins when it is needed. Until then, hosts know the volume as it was when they started.

mod administrators;
pub(crate) mod changes;
pub(crate) mod comings;
mod file_system_work;
pub(crate) mod file_systems;
mod hosts;
mod leases;
pub(crate) mod lives;
mod options;
mod processes;
mod servers;
pub(crate) mod silences;
mod silent_hosts;
pub(crate) mod store;
mod users;

use crate::cluster::{Cluster, Failed, HostSlot};
use administrators::Process;
use braid_base::{DeviceId, DiskId, Generation, NodeId, Rng, Time, VolumeId};
use braid_control_protocol::{Answer, Command, Done, Error, HostControl, HostEvent, Operation, Tag};
use braid_description::Subject;
use braid_host_leases::{Answer as FencerAnswer, Heartbeat, Question as FencerQuestion};
use braid_machine::{HostOutcome, HostSuccess, OpId};
use braid_ordering::Ordering;
use leases::{LeaseStore, Report};
use processes::{Name, Processes};
use silent_hosts::Fencing;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Store;

pub use options::{ChangeOptions, SilenceOptions};

/// Alarms of the control plane have tokens from this one on.
const TOKENS: u64 = 1 << 62;
/// The longest way to the store, or back.
const WAY_MAX: Duration = Duration::from_millis(5);
/// The longest time that a scenario waits for a change.
const CHANGE_MAX: Duration = Duration::from_secs(120);

pub(crate) struct ControlPlane {
    store: Store,
    hosts: BTreeMap<Generation, HostControl>,
    administrators: BTreeMap<Name, Process>,
    last_administrator: u64,
    /// How administrators ended.
    ended: Vec<(Name, Subject, Result<Done, Error>)>,
    alarms: Alarms,
    processes: Processes,
    /// Requests that the control plane has made to hosts.
    asked: BTreeMap<OpId, Purpose>,
    /// The orderings that the volume has had.
    pub orderings: BTreeSet<Ordering>,
    /// The faults, while there are any.
    pub faults: Option<ChangeOptions>,
    rng: Rng,
    /// Fencers of silent hosts, in runs that have them.
    fencing: Option<Fencing>,
    /// A condition that did not hold.
    failed: Option<Failed>,
    /// Hosts that died as administrators or fencers, or lost their leases.
    killed: Vec<NodeId>,
    pub counts: BTreeMap<&'static str, u64>,
    /// The administrator that was to replace a disk has died, or could not do it.
    replacement_ended: bool,
}

/// What happens at each alarm.
#[derive(Default)]
struct Alarms {
    queue: BTreeMap<u64, Event>,
    last: u64,
}

/// Something that happens later.
enum Event {
    /// Something happens to the control part of a host.
    Host(Generation, HostEvent),
    /// A renewal arrives at the store.
    Renewal { host: Generation, heartbeat: Heartbeat<Report> },
    /// A host that looked at its lease before writes its heartbeat.
    LateHeartbeat { host: Generation, heartbeat: Heartbeat<Report> },
    /// A fencer begins, if there is none.
    LookForFencer,
    /// A fencer begins a round.
    FencerTick(Generation),
    /// A question of a fencer arrives.
    FencerQuestion { by: Generation, number: u64, question: FencerQuestion },
    /// An answer arrives at a fencer.
    FencerAnswer { to: Generation, number: u64, answer: FencerAnswer },
    /// A command arrives at the store. Its answer goes back, unless it is lost.
    Command { by: Name, subject: Subject, command: Command, answered: Option<Tag> },
    /// An answer arrives.
    Answer { to: Name, tag: Tag, answer: Answer },
    /// The deadline of an administrator has passed.
    Wake(Name),
}

/// What a request to a host is for.
enum Purpose {
    Step(Generation),
    Question(Name, Tag),
    /// Are these devices in?
    Members(Name, Tag, BTreeSet<DeviceId>),
    /// The fence of a fencer, in its question of this number.
    Fencing(Generation, u64),
}

impl ControlPlane {
    fn at(&mut self, event: Event) -> u64 {
        self.alarms.last += 1;
        self.alarms.queue.insert(TOKENS + self.alarms.last, event);
        TOKENS + self.alarms.last
    }

    fn way(&mut self) -> Duration {
        Duration::from_nanos(self.rng.below(WAY_MAX.as_nanos() as u64) + 1)
    }

    /// True if something on the way between a host, its control part and the store is lost.
    fn draws_store_fault(&mut self) -> bool {
        self.faults.as_ref().is_some_and(|faults| self.rng.below(1000) < faults.store_faults)
    }

    /// True if a host has an administrator that performs an operation of its own, or one that settles.
    fn has_administrator(&self, host: Generation, is_own: bool) -> bool {
        self.administrators.iter().any(|(name, process)| name.host == host && process.is_own == is_own)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl Cluster {
    /// Begins the control plane: all living hosts have leases, and follow it.
    pub(crate) fn begin_control(&mut self, faults: Option<ChangeOptions>) {
        let rng = self.options.source("control");
        let living: Vec<NodeId> =
            self.slots().map(|slot| self.node(slot)).filter(|node| self.world.machine(*node).is_some()).collect();
        let hosts = living.iter().filter_map(|node| match node {
            NodeId::Host(host) => Some(*host),
            _ => None,
        });
        let leases = LeaseStore::new(Generation(self.generations.last), hosts, &self.lease_time());
        let silences = self.options.activity::<SilenceOptions>().cloned();
        let fencing = silences.map(|silences| Fencing::new(silences, self.options.source("fencers")));
        self.control = Some(Box::new(ControlPlane {
            store: Store::new(
                self.volumes(),
                self.devices().into_iter().map(|device| (device, self.disk_of(device))),
                leases,
            ),
            hosts: BTreeMap::new(),
            administrators: BTreeMap::new(),
            last_administrator: 0,
            ended: Vec::new(),
            alarms: Alarms::default(),
            processes: Processes::default(),
            asked: BTreeMap::new(),
            orderings: [self.volume.ordering].into(),
            faults,
            rng,
            fencing,
            failed: None,
            killed: Vec::new(),
            counts: BTreeMap::new(),
            replacement_ended: false,
        }));
        living.into_iter().for_each(|node| self.lease_host(node));
        self.with_control(|cluster, control| {
            if control.fencing.is_some() {
                cluster.look_for_fencer(control);
            }
        });
    }

    /// Performs an operation on the volume, until all hosts know of it. Unless a run has a control plane, there is one for this operation
    /// only.
    pub(crate) fn operate(&mut self, by: HostSlot, operation: impl Into<Operation>) -> Result<(), Error> {
        let is_for_this = self.control.is_none();
        if is_for_this {
            self.begin_control(None);
        }
        let own = self.generation(by);
        let until = self.world.now().after(CHANGE_MAX);
        while self.administers(by) && self.pass(until) {}
        let before = self.control.as_ref().map_or(0, |control| control.ended.len());
        self.begin_operation(by, operation.into());
        let ended = |cluster: &Cluster| {
            let control = cluster.control.as_ref()?;
            control.ended[before..].iter().find(|(by, ..)| by.host == own).map(|(.., result)| result.clone())
        };
        while ended(self).is_none() && self.pass(until) {}
        let result = ended(self).unwrap_or_else(|| panic!("an operation did not end within {CHANGE_MAX:?}"));
        while !self.is_followed() && self.pass(until) {}
        if is_for_this {
            self.control = None;
        }
        result.map(drop)
    }

    /// True if all hosts that are up know the record in the store.
    fn is_followed(&self) -> bool {
        let Some(control) = &self.control else { return true };
        let is_behind = |(host, part): (&Generation, &HostControl)| {
            self.slot_of(*host).is_some() && part.applied() != Some(control.store.version())
        };
        !control.hosts.iter().any(is_behind)
    }

    fn schedule(&mut self, control: &mut ControlPlane, span: Duration, event: Event) {
        let at = self.world.now().after(span);
        self.world.alarm(at, control.at(event));
    }

    /// Executes something with the control plane, if there is one. Requests that are made meanwhile are not held back.
    fn with_control(&mut self, act: impl FnOnce(&mut Cluster, &mut ControlPlane)) {
        if let Some(mut control) = self.control.take() {
            act(self, &mut control);
            self.control = Some(control);
        }
    }

    /// Handles an alarm. Returns false if it is not one of the control plane.
    pub(crate) fn on_control_alarm(&mut self, token: u64) -> bool {
        if token < TOKENS {
            return false;
        }
        self.with_control(|cluster, control| {
            // An alarm of an earlier control plane has no event.
            let Some(event) = control.alarms.queue.remove(&token) else { return };
            match event {
                Event::Host(host, event) => cluster.on_host_event(control, host, event),
                Event::Renewal { host, heartbeat } => cluster.on_renewal(control, host, heartbeat),
                Event::LateHeartbeat { host, heartbeat } => cluster.on_late_heartbeat(control, host, heartbeat),
                Event::LookForFencer => cluster.look_for_fencer(control),
                Event::FencerTick(own) => cluster.on_fencer_tick(control, own),
                Event::FencerQuestion { by, number, question } => {
                    cluster.on_fencer_question(control, by, number, question);
                }
                Event::FencerAnswer { to, number, answer } => cluster.answer_fencer(control, to, number, answer),
                Event::Command { by, subject, command, answered } => {
                    let answer = cluster.on_command(control, &subject, command);
                    if let Some(tag) = answered {
                        let way = control.way();
                        cluster.schedule(control, way, Event::Answer { to: by, tag, answer });
                    }
                }
                Event::Answer { to, tag, answer } => cluster.answer_administrator(control, to, tag, answer),
                Event::Wake(own) => cluster.wake_administrator(control, own),
            }
        });
        true
    }

    /// Handles the outcome of a request. Returns false if the control plane has not made it.
    pub(crate) fn on_control_reply(&mut self, op: OpId, outcome: &HostOutcome) -> bool {
        let Some(purpose) = self.control.as_mut().and_then(|control| control.asked.remove(&op)) else { return false };
        self.with_control(|cluster, control| match purpose {
            Purpose::Step(host) => {
                let event = if outcome.is_ok() { HostEvent::Did } else { HostEvent::Lost };
                cluster.on_host_event(control, host, event);
            }
            Purpose::Question(own, tag) => {
                let answer = administrators::answer_of(outcome);
                cluster.answer_administrator(control, own, tag, answer);
            }
            Purpose::Members(own, tag, devices) => {
                let answer = match outcome {
                    Ok(HostSuccess::Membership(membership)) => Answer::of_members(membership, &devices),
                    _ => administrators::answer_of(outcome),
                };
                cluster.answer_administrator(control, own, tag, answer);
            }
            Purpose::Fencing(own, number) => cluster.on_fence_outcome(control, (own, number), outcome),
        });
        true
    }

    /// The slot of a host that is up.
    fn slot_of(&self, host: Generation) -> Option<HostSlot> {
        let node = NodeId::Host(host);
        self.slot(node).filter(|_| self.world.machine(node).is_some())
    }

    /// True if the volume is on hold, according to the store.
    fn is_on_hold(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.store.held_by(self.volume.id).is_some())
    }

    /// The volumes that are on hold, according to the store.
    pub(crate) fn volumes_on_hold(&self) -> BTreeSet<VolumeId> {
        let unsettled = self.control.iter().flat_map(|control| control.store.unsettled());
        unsettled.filter(|(record, _)| record.held_by().is_some()).map(|(record, _)| record.volume.id).collect()
    }

    /// The records of the store and the administrators at work, for failures.
    pub(crate) fn control_state(&self) -> String {
        let Some(control) = &self.control else { return String::new() };
        format!("{:?}\n{:?}", control.store.records(), control.administrators)
    }

    /// The generation that is in a host's slot now.
    pub(crate) fn generation(&self, slot: HostSlot) -> Generation {
        let NodeId::Host(own) = self.node(slot) else { unreachable!("host slots hold hosts") };
        own
    }

    /// The hosts that died as administrators, or lost their leases, since the last call.
    fn take_killed(&mut self) -> Vec<NodeId> {
        self.control.as_mut().map(|control| std::mem::take(&mut control.killed)).unwrap_or_default()
    }

    /// True, once, if the administrator that was to replace a disk has died, or could not do it.
    pub(crate) fn take_replacement_end(&mut self) -> bool {
        self.control.as_mut().is_some_and(|control| std::mem::take(&mut control.replacement_ended))
    }

    /// The operator has brought the disk that fills a slot: the description names it.
    pub(crate) fn note_disk(&mut self, device: DeviceId, disk: DiskId) {
        if let Some(control) = &mut self.control {
            control.store.fill_slot(device, disk);
        }
    }

    /// Ends the faults of the control plane.
    pub(crate) fn heal_control(&mut self) {
        let now = self.time();
        if let Some(control) = &mut self.control {
            control.faults = None;
            if let Some(fencing) = &mut control.fencing {
                fencing.heal(now);
            }
        }
    }

    fn time(&self) -> Time {
        self.world.now()
    }
}
