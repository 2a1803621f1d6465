//! Calm runs have one fault at a time, and begin the next fault only when no effect of the last one remains. So every operation must
//! succeed, except for the pauses that are promised ([`crate::availability`]).

use crate::activity::{Activity, Draw, Feature, Options, Run};
use crate::availability::Cause;
use crate::nodes::cut_off;
use crate::prelude::*;
use braid_world::{CrashPoint, NetworkOptions};

/// The kinds of faults of calm runs.
const KINDS: [FaultKind; 8] = [
    FaultKind::HostCrash,
    FaultKind::DeviceCrash,
    FaultKind::ServerCrash,
    FaultKind::Flap,
    FaultKind::Stall,
    FaultKind::Cut,
    FaultKind::ClockStep,
    FaultKind::Chore,
];
/// How often the run checks whether effects of the last fault remain.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(crate) struct Calm;

impl Feature for Calm {
    const NAME: &'static str = "calm";
    const ONE_IN: u64 = 8;
    const NOT_WITH: &'static [&'static str] = &["objects", "attribute-volumes", "migrate"];

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<Calm> {
        let (settings, faults) = (&mut options.settings, &mut options.faults);
        let kinds = KINDS.into_iter().filter(|kind| draw.choices.may(kind.name()));
        faults.weights = kinds.map(|kind| (kind, if kind == FaultKind::DeviceCrash { 3 } else { 1 })).collect();
        faults.every = Duration::from_millis(draw.rng.between(200, 2_000));
        faults.network = NetworkOptions {
            latency_max: faults.network.latency_max,
            double: faults.network.double,
            in_order: faults.network.in_order,
            ..NetworkOptions::clean()
        };
        let lease = settings.host_lease;
        settings.request_timeout = settings.request_timeout.max(8 * lease);
        settings.resend_max = (lease / 4).max(Duration::from_millis(50));
        settings.resend_min = settings.resend_min.min(settings.resend_max);
        options.swarm = 12 * lease + Duration::from_secs(10);
        options.spread_operations();
        options.chunks = None;
        Some(Calm)
    }
}

impl Activity for Calm {
    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        plan_next(run);
    }

    /// Begins the next fault, if no effect of the one before remains.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        if !run.is_quiet() {
            return run.plan(LOOK_EVERY, |run| run.with(Calm::act));
        }
        let faults = &run.cluster.options.faults;
        // Sometimes none.
        let kind = faults.chosen_by(rng.below(faults.weights.values().sum::<u64>() + 1));
        begin(kind, run, rng);
        plan_next(run);
    }
}

fn plan_next(run: &mut Run) {
    let pause = run.swarm.pause();
    run.plan(pause, |run| run.with(Calm::act));
}

fn begin(kind: Option<FaultKind>, run: &mut Run, rng: &mut Rng) {
    // A device is drawn for every kind.
    let devices = run.cluster.devices();
    let device = devices[rng.below(devices.len() as u64) as usize];
    let node = NodeId::Device(device);
    let gone = Cause::Device(device);
    let Some(kind) = kind else { return };
    match kind {
        FaultKind::DeviceCrash => {
            let count = rng.between(1, 12);
            let at = [None, Some(CrashPoint::Write(count)), Some(CrashPoint::Sync(count))];
            let (at, unavailable, reboot) = (at[rng.below(3) as usize], absence(run, rng), rng.chance(1, 2));
            run.on_fault_of(Fault::Crash { node, at, unavailable, reboot }, gone);
        }
        FaultKind::Flap => {
            let lease = run.cluster.options.settings.device_lease.as_millis() as u64;
            let mut span = || Duration::from_millis(rng.between(1, lease));
            let (down, up) = (span(), span());
            let times = rng.between(2, 4) as u32;
            run.on_fault_of(Fault::Flap { node, times, down, up }, gone);
        }
        FaultKind::Stall => {
            let span = absence(run, rng);
            // Then the messages of the whole pause wait for a machine that decides by silence.
            let (node, cause) = if rng.chance(1, 2) { a_server(run, rng) } else { (node, gone) };
            run.on_fault_of(Fault::Stall { node, span }, cause);
        }
        FaultKind::Cut => {
            let hosts = run.cluster.slots().map(|slot| run.cluster.node(slot));
            let others: Vec<NodeId> = match rng.below(3) {
                0 => hosts.collect(),
                1 => vec![NodeId::Monitor],
                _ => hosts.chain([NodeId::Monitor]).collect(),
            };
            let ways = [(true, true), (true, false), (false, true)][rng.below(3) as usize];
            let (places, span) = (&run.cluster.world.places, absence(run, rng));
            let cause = if places.is_shared(node) { Cause::Other } else { gone };
            let cut = cut_off(&places.together(node), &others, ways, span);
            run.on_fault_of(cut, cause);
        }
        FaultKind::HostCrash => {
            let slot = rng.below(run.cluster.slots().count() as u64) as usize;
            let node = run.cluster.node(crate::HostSlot(slot));
            let unavailable = absence(run, rng);
            run.on_fault_of(Fault::Crash { node, at: None, unavailable, reboot: false }, Cause::Host);
        }
        FaultKind::ServerCrash => {
            let (node, cause) = a_server(run, rng);
            let (unavailable, reboot) = (absence(run, rng), rng.chance(1, 2));
            run.on_fault_of(Fault::Crash { node, at: None, unavailable, reboot }, cause);
        }
        FaultKind::ClockStep => {
            let up = run.cluster.world.up();
            let node = up[rng.below(up.len() as u64) as usize];
            let by = run.swarm.skew() - run.cluster.world.skew(node);
            run.count_fault("clock step");
            run.cluster.world.step_clock(node, by);
        }
        FaultKind::Chore => {
            let slot = crate::HostSlot(rng.below(run.cluster.slots().count() as u64) as usize);
            let node = run.cluster.node(slot);
            if run.cluster.world.is_up(node) {
                run.on_fault_of(Fault::Scrub { node }, Cause::Other);
            }
        }
        _ => {}
    }
}

/// Draws the monitor or a lock server.
fn a_server(run: &Run, rng: &mut Rng) -> (NodeId, Cause) {
    let servers = run.cluster.lock_servers();
    match rng.below(servers.len() as u64 + 1) {
        0 => (NodeId::Monitor, Cause::Monitor),
        server => (NodeId::LockServer(LockServerId(server as u16 - 1)), Cause::LockServer),
    }
}

/// Draws a duration that is shorter than a lease, about a lease, or much longer.
fn absence(run: &Run, rng: &mut Rng) -> Duration {
    let lease = run.cluster.options.settings.host_lease.as_millis() as u64;
    let most = [lease / 10, lease / 2, 2 * lease, 4 * lease][rng.below(4) as usize];
    Duration::from_millis(rng.between(1, most.max(1)))
}
