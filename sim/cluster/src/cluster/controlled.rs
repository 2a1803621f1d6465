//! The cluster around its control plane: it lends the control plane what this sees of the array, and carries out what follows.

use super::{ARRAY, Cluster};
use crate::control::context::{Action, Context};
use crate::control::store;
use crate::control::{Beginning, ChangeOptions, ControlPlane, RETURN_MAX, SilenceOptions, TOKENS};
use crate::prelude::*;
use crate::role::HostSlot;
use crate::volumes;
use braid_control_protocol::{VolumeRecord, VolumeState};
use braid_description::ArrayDescription;
use braid_machine::ControlRequest;

/// A silent host is fenced after so many leases, in runs without options for that.
const LEASES: u32 = 15;

impl Cluster {
    pub(crate) fn context(&self) -> Context<'_> {
        let lease = self.options.settings.host_lease.max(Duration::from_millis(500));
        let leases = self.options.activity::<SilenceOptions>().map_or(LEASES, |silences| silences.leases);
        Context {
            world: &self.world,
            hosts: &self.hosts,
            devices: self.devices(),
            disks: &self.device_notes.disks,
            lock_servers: self.lock_servers(),
            files: &self.files,
            asks_leader: self.candidates.is_some(),
            lease,
            silence_allowed: lease * leases,
            actions: Vec::new(),
        }
    }

    /// Executes something with the control plane, if there is one, and what follows from it.
    pub(crate) fn with_control<T>(&mut self, act: impl FnOnce(&mut ControlPlane, &mut Context) -> T) -> Option<T> {
        let mut control = self.control.take()?;
        let mut context = self.context();
        let result = act(&mut control, &mut context);
        let actions = context.actions;
        self.control = Some(control);
        actions.into_iter().for_each(|action| self.carry_out(action));
        Some(result)
    }

    fn carry_out(&mut self, action: Action) {
        let now = self.world.now();
        let Some(control) = &mut self.control else { return };
        match action {
            Action::Later(span, event) => {
                let token = control.alarms.add(event);
                self.world.alarm(now.after(span), token);
            }
            Action::Ask(host, request, purpose) => {
                let Some(slot) = self.slot_of(host) else { return };
                let op = self.ask(slot, request);
                if let (Some(control), Some(purpose)) = (&mut self.control, purpose) {
                    control.asked.insert(op, purpose);
                }
            }
            Action::End(host) => {
                control.killed.push(NodeId::Host(host));
                self.files.disturb(now.after(RETURN_MAX));
                self.crash(NodeId::Host(host));
            }
            Action::Suspend(host, span) => {
                self.files.disturb(now.after(span));
                self.world.stall(NodeId::Host(host), span);
            }
            Action::Replace(next, by) => {
                let candidates = self.candidates.as_mut().expect("a leader is asked");
                candidates.replace(&mut self.world, next, by);
            }
            Action::Disturb(span) => self.files.disturb(now.after(span)),
            Action::Follow(volume, record) => self.follow_record(volume, record.as_ref()),
        }
    }

    /// The record of a volume was replaced, or removed. The cluster keeps the volumes that hosts may use, and those that were deleted.
    fn follow_record(&mut self, volume: VolumeId, record: Option<&VolumeRecord>) {
        self.files.disturb(self.world.now());
        let place = self.others.iter().position(|other| other.id == volume);
        match (record.filter(|record| record.is_usable()), place) {
            _ if volume == self.volume.id => {
                if let (Some(VolumeRecord { volume, .. }), Some(control)) = (record, &mut self.control) {
                    control.orderings.insert(volume.ordering);
                    self.options.ordering = volume.ordering;
                    self.volume = volume.clone();
                }
            }
            (Some(record), Some(place)) => {
                self.files.follow(&record.volume);
                self.others[place] = record.volume.clone();
            }
            (Some(record), None) => self.others.push(record.volume.clone()),
            (None, Some(place)) => self.removed.push(self.others.remove(place)),
            (None, None) => {}
        }
        let Some(record) = record else { return };
        let request = match record.state {
            VolumeState::Deleting { .. } => ControlRequest::DropVolume { volume },
            _ => ControlRequest::AdoptVolume { volume: record.widest() },
        };
        volumes::tell_monitor(self, request);
    }

    /// Begins the control plane, with these faults: all living hosts have leases, and follow it.
    pub(crate) fn begin_control(&mut self, faults: Option<ChangeOptions>) {
        let generations = self.slots().map(|slot| self.generation(slot));
        let beginning = Beginning {
            array: ARRAY,
            volumes: self.volumes(),
            devices: self.devices().into_iter().map(|device| (device, self.device_notes.disk_of(device))).collect(),
            last: Generation(self.generations.last),
            living: generations.filter(|host| self.slot_of(*host).is_some()).collect(),
            faults,
            silences: self.options.activity().cloned(),
        };
        let devices = beginning.devices.iter().map(|(device, disk)| (*device, Some(*disk))).collect();
        let first = store::ready_description(ARRAY, &beginning.volumes, devices);
        volumes::change_description(self, move |next| {
            let (schema, revision, creation) = (next.schema, next.revision, next.creation.clone());
            *next = ArrayDescription { schema, revision, creation, ..first.clone() };
        });
        let mut context = self.context();
        let mut control = ControlPlane::new(beginning, |name| self.options.source(name), &mut context);
        let actions = context.actions;
        if let Some(candidates) = &self.candidates {
            control.store.put(candidates.description());
        }
        self.control = Some(Box::new(control));
        actions.into_iter().for_each(|action| self.carry_out(action));
    }

    /// Handles an alarm. Returns false if it is not one of the control plane.
    pub(crate) fn on_control_alarm(&mut self, token: u64) -> bool {
        if token >= TOKENS {
            self.with_control(|control, cx| control.on_alarm(cx, token));
        }
        token >= TOKENS
    }

    /// Handles the outcome of a request. Returns false if the control plane has not made it.
    pub(crate) fn on_control_reply(&mut self, op: OpId, outcome: &HostOutcome) -> bool {
        let handled = self.with_control(|control, cx| {
            let purpose = control.asked.remove(&op)?;
            control.on_reply(cx, purpose, outcome);
            Some(())
        });
        handled.flatten().is_some()
    }

    /// The slot of a host that is up.
    pub(crate) fn slot_of(&self, host: Generation) -> Option<HostSlot> {
        let node = NodeId::Host(host);
        self.slot(node).filter(|_| self.world.is_up(node))
    }

    /// The generation that is in a host's slot now.
    pub fn generation(&self, slot: HostSlot) -> Generation {
        let NodeId::Host(own) = self.node(slot) else { unreachable!("host slots hold hosts") };
        own
    }

    /// True if a host performs an operation of its own, or has not heard how that ended.
    pub(crate) fn administers(&self, slot: HostSlot) -> bool {
        self.control.as_ref().is_some_and(|control| control.administers(self.generation(slot)))
    }

    /// The same, also for operations that settle what another host has begun.
    pub(crate) fn has_administrators(&self, slot: HostSlot) -> bool {
        self.control.as_ref().is_some_and(|control| control.has_administrators(self.generation(slot)))
    }

    /// The volumes that are on hold, according to the store.
    pub(crate) fn volumes_on_hold(&self) -> BTreeSet<VolumeId> {
        self.control.iter().flat_map(|control| control.volumes_on_hold()).collect()
    }
}
