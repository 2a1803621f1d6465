//! The control plane of a simulated array: a store with leases, hosts that follow it, and administrators that change and move the volume,
//! create and delete others, and add and remove devices, while clients use them. The protocol is that of real arrays (`braid_control_protocol`); only the store and the ways to it are simulated.
//!
//! It begins when it is needed. Until then, hosts know the volume as it was when they started.
//!
//! The control plane is a part that changes nothing around it: for each step it is lent a [`Context`], shows there what follows as actions,
//! and the cluster carries them out (`cluster::controlled`). This file has its state, and [`steps`] says what happens at each event:
//!
//! | part | what |
//! |---|---|
//! | `store`, `leases` | what is stored; `commands` and `renewals` arrive there |
//! | `hosts` | the control part of hosts |
//! | `administrators`, `administrator_state` | operations in progress, and what they ask |
//! | `fencing`, `fencers` | what makes hosts silent, and who has them fenced |
//!
//! The activities that use it are here, too: `reordering_and_migration`, `device_membership`, `volume_lifecycle`, `silent_hosts` and
//! `file_systems`, with its parts `file_system_work`, `servers` and `file_system_users`.

pub(crate) mod administrator_state;
mod administrators;
pub(crate) mod at_rest;
mod commands;
pub(crate) mod context;
pub(crate) mod device_membership;
mod fencers;
mod fencing;
mod file_system_users;
mod file_system_work;
pub(crate) mod file_systems;
mod hosts;
mod leases;
mod options;
mod renewals;
pub(crate) mod reordering_and_migration;
mod servers;
pub(crate) mod silent_hosts;
mod steps;
pub(crate) mod store;
pub(crate) mod volume_lifecycle;

use crate::failed::Failed;
use crate::prelude::*;
use administrator_state::AdministratorState;
use braid_base::ArrayId;
use braid_control_protocol::{Announcement, Done, Error, HostControl};
use context::{Context, Event, Purpose};
use fencing::Fencing;
use leases::LeaseStore;
use store::Store;

pub use options::{ChangeOptions, SilenceOptions};

/// Alarms of the control plane have tokens from this one on.
pub(crate) const TOKENS: u64 = 1 << 62;
/// The longest way to the store, or back.
const WAY_MAX: Duration = Duration::from_millis(5);
/// A host that died as an administrator or as a fencer returns within this time.
pub(crate) const RETURN_MAX: Duration = Duration::from_secs(1);

pub(crate) struct ControlPlane {
    pub(crate) store: Store,
    hosts: BTreeMap<Generation, HostControl>,
    processes: AdministratorState,
    /// What happens at each alarm.
    pub(crate) alarms: Alarms,
    /// Requests that the control plane has made to hosts.
    pub(crate) asked: BTreeMap<OpId, Purpose>,
    /// The orderings that the volume has had.
    pub(crate) orderings: BTreeSet<Ordering>,
    /// The faults, while there are any.
    faults: Option<ChangeOptions>,
    rng: Rng,
    /// Fencers of silent hosts, in runs that have them.
    fencing: Option<Fencing>,
    /// The first condition that did not hold.
    pub(crate) failed: Option<Failed>,
    /// Hosts that died as administrators or fencers, or lost their leases.
    pub(crate) killed: Vec<NodeId>,
    pub(crate) counts: BTreeMap<String, u64>,
}

/// What happens at each alarm.
#[derive(Default)]
pub(crate) struct Alarms {
    queue: BTreeMap<u64, Event>,
    last: u64,
}

impl Alarms {
    /// The token of an alarm for this event.
    pub fn add(&mut self, event: Event) -> u64 {
        self.last += 1;
        self.queue.insert(TOKENS + self.last, event);
        TOKENS + self.last
    }
}

/// What there is when a control plane begins.
pub(crate) struct Beginning {
    pub array: ArrayId,
    pub volumes: Vec<VolumeDescription>,
    pub devices: Vec<(DeviceId, DiskId)>,
    /// The last generation that was given.
    pub last: Generation,
    /// The hosts that are up.
    pub living: Vec<Generation>,
    pub faults: Option<ChangeOptions>,
    pub silences: Option<SilenceOptions>,
}

impl ControlPlane {
    /// A control plane in which all living hosts have leases, and follow it. `source` gives random sources by name.
    pub fn new(beginning: Beginning, source: impl Fn(&str) -> Rng, cx: &mut Context) -> ControlPlane {
        let Beginning { array, volumes, devices, last, living, faults, silences } = beginning;
        let leases = LeaseStore::new(last, living.iter().copied(), &cx.lease_time());
        let orderings = volumes.first().map(|volume| volume.ordering).into_iter().collect();
        let mut control = ControlPlane {
            store: Store::new(array, &volumes, devices, leases),
            hosts: BTreeMap::new(),
            processes: AdministratorState::default(),
            alarms: Alarms::default(),
            asked: BTreeMap::new(),
            orderings,
            faults,
            rng: source("control"),
            fencing: silences.map(|silences| Fencing::new(silences, source("fencers"))),
            failed: None,
            killed: Vec::new(),
            counts: BTreeMap::new(),
        };
        living.into_iter().for_each(|host| control.lease_host(cx, host));
        if control.fencing.is_some() {
            control.look_for_fencer(cx);
        }
        control
    }

    fn way(&mut self) -> Duration {
        Duration::from_nanos(self.rng.below(WAY_MAX.as_nanos() as u64) + 1)
    }

    /// True if something on the way between a host, its control part and the store is lost.
    fn draws_store_fault(&mut self) -> bool {
        self.faults.as_ref().is_some_and(|faults| self.rng.below(1000) < faults.store_faults)
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// True if a host performs an operation of its own, or has not heard how that ended.
    pub fn administers(&self, host: Generation) -> bool {
        self.processes.of(host).any(|process| process.is_own)
    }

    /// The same, also for operations that settle what another host has begun.
    pub fn has_administrators(&self, host: Generation) -> bool {
        self.processes.of(host).next().is_some()
    }

    /// True if all hosts that are up know the record in the store.
    pub fn is_followed(&self, is_up: impl Fn(Generation) -> bool) -> bool {
        let is_behind =
            |(host, part): (&Generation, &HostControl)| is_up(*host) && part.applied() != Some(self.store.version());
        !self.hosts.iter().any(is_behind)
    }

    /// The volumes that are on hold, according to the store.
    pub fn volumes_on_hold(&self) -> BTreeSet<VolumeId> {
        let held = self.store.unsettled().filter(|(record, _)| record.held_by().is_some());
        held.map(|(record, _)| record.volume.id).collect()
    }

    /// The records of the store and the administrators at work, for failures.
    pub fn state(&self) -> String {
        format!("{:?}\n{:?}", self.store.records(), self.processes.working)
    }

    /// True, once, if the administrator that was to replace a disk has died, or could not do it.
    pub fn take_replacement_end(&mut self) -> bool {
        std::mem::take(&mut self.processes.replacement_ended)
    }

    /// What living processes announce to the metadata servers of a file system.
    fn announced(&self, cx: &Context, file_system: FileSystemId) -> BTreeSet<Announcement> {
        let (table, now) = (self.store.leases.table(), cx.lease_time());
        let of_it = self.processes.announced.iter().filter(|(of, ..)| *of == file_system);
        let living = of_it.filter(|(.., host)| table.is_live(*host, &now, cx.lease));
        living.map(|(_, announcement, _)| *announcement).collect()
    }

    /// How this administrator ended, if it has.
    pub fn result_of(&self, own: administrator_state::Name) -> Option<Result<Done, Error>> {
        self.processes.ended.iter().find(|(by, ..)| *by == own).map(|(.., result)| result.clone())
    }

    /// What administrators ask of their own processes since the last call.
    fn take_questions(&mut self) -> Vec<administrator_state::OwnQuestion> {
        std::mem::take(&mut self.processes.asked)
    }

    /// The ends of operations since so many of them.
    fn ended_since(&self, seen: usize) -> &[administrator_state::End] {
        &self.processes.ended[seen.min(self.processes.ended.len())..]
    }
}
