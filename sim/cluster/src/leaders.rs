//! Arrays whose monitor is one of several candidates ([`crate::candidates`]), and the faults of their registry.
//!
//! One fault of a candidate, of its way to the registry, or of the registry as a whole has no effect on users: the next leader comes, or the
//! pact holds, before leases of devices are over.

use crate::activity::{Activity, Draw, Feature, Options, Report, Run, pick};
use crate::availability::Cause;
use crate::candidates::{Candidates, HEARTBEAT, LEASE};
use crate::cluster::{Cluster, monitors};
use crate::prelude::*;
use crate::role::{RoleRequest, leader};
use braid_registrar::Input;
use braid_world::RegistryPath;

/// The file systems whose owners are asked for.
const FILE_SYSTEMS: u64 = 3;

#[derive(Clone, Debug)]
pub(crate) struct Leaders {
    pub candidates: u16,
}

impl Feature for Leaders {
    const NAME: &'static str = "leaders";
    const ONE_IN: u64 = 6;
    const EVERY: Option<[u64; 3]> = Some([1_000, 4_000, 12_000]);
    // They name the one monitor, or its disk.
    const NOT_WITH: &'static [&'static str] = &["calm", "dead", "record-damage"];

    /// Leaders change within seconds. So the run is long, and its operations are spread over it.
    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Leaders> {
        let settings = &mut options.settings;
        (settings.host_lease, settings.device_lease, settings.heartbeat) = (LEASE, LEASE, HEARTBEAT);
        (settings.readmission_min, settings.readmission_max) = (HEARTBEAT, 2 * LEASE);
        options.swarm = Duration::from_secs(draw.rng.between(20, 40));
        options.spread_operations();
        Some(Leaders { candidates: draw.rng.between(2, 3) as u16 })
    }
}

impl Activity for Leaders {
    fn candidates(&self) -> u16 {
        self.candidates
    }

    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let most = [500, 3_000, 8_000][rng.below(3) as usize];
        let span = Duration::from_millis(rng.between(50, most));
        let candidate = rng.below(self.candidates.into()) as usize;
        let leads = leader(&run.cluster.world).map(|(node, ..)| node);
        // Mostly the one that leads.
        let is_it = |candidate: &usize| leads.is_some_and(|node| monitors(&run.cluster)[*candidate] == node);
        let of_leader = (0..usize::from(self.candidates)).find(is_it).filter(|_| rng.chance(1, 2));
        let candidate = of_leader.unwrap_or(candidate);
        let way = |path: RegistryPath| move |candidates: &mut Candidates| *candidates.path(candidate) = path;
        let usual = RegistryPath::default();
        match rng.below(9) {
            0 => disturb(run, "calls lost", span, way(RegistryPath { loses_calls: true, ..usual })),
            1 => disturb(run, "answers lost", span, way(RegistryPath { loses_answers: true, ..usual })),
            2 => disturb(run, "reads refused", span, way(RegistryPath { refuses_reads: true, ..usual })),
            3 => disturb(run, "writes refused", span, way(RegistryPath { refuses_writes: true, ..usual })),
            4 => {
                let latency = Duration::from_millis(rng.between(0, 200));
                let (late_calls, late_answers) = (rng.below(20), rng.below(20));
                let path = RegistryPath { latency, late_calls, late_answers, ..usual };
                disturb(run, "registry slow", span, way(path));
            }
            5 => disturb(run, "registry unavailable", span, |candidates| candidates.registry().outages = 1),
            6 => disturb(run, "registry full", span, |candidates| candidates.registry().is_full = true),
            7 => {
                if let Some(node) = leads {
                    disturb(run, "leader resigns", Duration::ZERO, |_| ());
                    let (op, input) = (OpId::front_end(0), Box::new(Input::Resign));
                    run.cluster.world.request(node, op, RoleRequest::Registrar(input));
                }
            }
            _ => {}
        }
        // What is asked while leaders change claims to be current.
        for _ in 0..3 {
            let wait = Duration::from_millis(rng.below(4_000));
            let file_system = FileSystemId(rng.below(FILE_SYSTEMS) as u16);
            let Some(slot) = pick(rng, &run.staying_slots()) else { return };
            run.plan(wait, move |run| {
                if run.staying_slots().contains(&slot) {
                    let op = run.cluster.own(slot, file_system, OwnershipRequest::Inquire);
                    run.chores.insert(op);
                }
            });
        }
    }

    fn heal(&mut self, run: &mut Run) {
        if let Some(candidates) = &mut run.cluster.candidates {
            candidates.heal();
            candidates.heal_clients();
        }
    }

    fn count(&self, cluster: &Cluster, report: &mut Report) {
        let counts = cluster.candidates.iter().flat_map(|candidates| candidates.counts());
        counts.for_each(|(what, count)| *report.faults.entry(what.into()).or_default() += count);
    }
}

/// Begins a fault, which ends with all others of the registry after this time.
fn disturb(run: &mut Run, name: &'static str, span: Duration, act: impl FnOnce(&mut Candidates)) {
    run.count_fault(name);
    run.availability.begin(run.cluster.world.now(), name, Cause::Candidate, span);
    run.cluster.candidates.iter_mut().for_each(|candidates| candidates.heal());
    if let Some(candidates) = run.cluster.candidates.as_deref_mut() {
        act(candidates);
    }
    run.plan(span, |run| run.cluster.candidates.iter_mut().for_each(|candidates| candidates.heal()));
}
