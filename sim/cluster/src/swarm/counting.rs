//! What a run counts for its report.

use super::{COUNTED, Run};
use crate::cluster;
use crate::prelude::*;
use crate::report::Report;
use crate::role::Role;
use braid_wire::Failure as WireFailure;
use braid_world::DiskCounts;

impl Run {
    pub(crate) fn count_fault(&mut self, kind: &'static str) {
        *self.report.faults.entry(kind.into()).or_default() += 1;
    }

    pub(super) fn count_answer(&mut self, outcome: &HostOutcome) {
        let error = match outcome {
            Ok(_) => return self.report.done += 1,
            Err(HostError::TimedOut { .. }) => "timed out",
            Err(HostError::Contended { .. }) => "contended",
            Err(HostError::LockServerSilent { .. }) => "lock server silent",
            Err(HostError::Fenced) => "fenced",
            Err(HostError::Abandoned) => "abandoned",
            Err(HostError::Unavailable { .. }) => "unavailable",
            Err(HostError::ClockApart { .. }) => "clock apart",
            Err(HostError::Device { failure: WireFailure::NoSpace, .. }) => "device full",
            Err(HostError::Device { failure: WireFailure::Lost { .. } | WireFailure::Disk, .. }) => "block lost",
            Err(_) => "other error",
        };
        *self.report.unknown.entry(error).or_default() += 1;
    }

    /// Adds a machine's counters to the report, before the machine dies or the run ends.
    pub(crate) fn count_machine(&mut self, node: NodeId) {
        match self.cluster.world.machine(node) {
            Some(Role::Device(device)) => {
                for (name, count) in device.store().counters().into_iter().filter(|(name, _)| COUNTED.contains(name)) {
                    *self.report.stores.entry(name).or_default() += count;
                }
            }
            Some(Role::LockServer(server)) => self.report.lock_servers.add(server.server().counters()),
            Some(role) => self.report.hosts.add(&role.host().map(Host::counters).unwrap_or_default()),
            None => {}
        }
    }

    pub(super) fn report(mut self) -> Report {
        for (what, count) in self.cluster.control.iter().flat_map(|control| &control.counts) {
            *self.report.faults.entry(what.clone()).or_default() += count;
        }
        let world = &self.cluster.world;
        let mut disks = DiskCounts::default();
        let nodes = cluster::nodes_with_disks(&self.cluster).into_iter();
        nodes.filter_map(|node| world.disk(node)).for_each(|disk| disks.add(&disk.counts()));
        Report {
            disks,
            simulated: world.now().since(Time(0)),
            events: world.trace.events(),
            network: world.network.counts(),
            ignored: world.ignored().clone(),
            digest: world.trace.digest(),
            trace: world.trace.lines().map(str::to_string).collect(),
            ..self.report
        }
    }
}
