//! Changes of the ordering and migrations of the volume during a run; migrations are continued or given up.

use super::ChangeOptions;
use crate::activity::{Activity, Draw, Feature, Options, Run, pick};
use crate::cluster::{Cluster, Failed, HostSlot, failed};
use crate::prelude::*;
use braid_control_protocol::{Change, Migration, Operation, Timing, VolumeChange};
use braid_layout::Placement;

/// Where the volume grows, it does by at most so many stripes of its first layout.
const STRIPES_ADDED_MAX: u64 = 4;
/// The longest time until a migration has ended on a healthy array.
const END_MAX: Duration = Duration::from_secs(120);
/// The progress of a migration is recorded so often in runs.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// Faults that take no device out for long.
const WITH_ALL_DEVICES: [FaultKind; 8] = [
    FaultKind::HostCrash,
    FaultKind::ServerCrash,
    FaultKind::ClockStep,
    FaultKind::ClockRate,
    FaultKind::SlowDisk,
    FaultKind::SlowNode,
    FaultKind::Chore,
    FaultKind::Corruption,
];

/// Activities beside which there are no changes.
pub(super) const NOT_PLAIN: &[&str] = &[
    // Requests to it are not held to a promise that a change could weaken.
    "attribute-volumes",
    // They are made and removed past the store.
    "volumes",
    // A device that is out for good prevents every change.
    "dead",
    // It is placed, and what is lost is worked out, for one layout of the volume.
    "damage-degraded",
    // The operator gives a device another disk past the store.
    "record-damage",
    // Requests wait while a volume is on hold, and may not be late there.
    "calm",
];

/// A random place for the volume: another layout, on random devices.
fn draw_target(cluster: &Cluster, rng: &mut Rng) -> Placement {
    let mut devices = cluster.devices();
    let redundant = cluster.volume.layout.redundancy_units() > 0;
    let schemes: Vec<RaidLevel> = match redundant {
        true => vec![RaidLevel::Raid1 { copies: 2 }, RaidLevel::Raid5 { data: 2 }, RaidLevel::Raid5 { data: 3 }],
        false => vec![RaidLevel::Raid0 { data: 1 }, RaidLevel::Raid0 { data: 2 }, RaidLevel::Raid0 { data: 3 }],
    };
    let fitting: Vec<RaidLevel> = schemes.into_iter().filter(|scheme| scheme.width() <= devices.len()).collect();
    let scheme = fitting[rng.below(fitting.len() as u64) as usize];
    while devices.len() as u64 > rng.between(scheme.width() as u64, devices.len() as u64) {
        devices.remove(rng.below(devices.len() as u64) as usize);
    }
    let by = rng.below(devices.len() as u64) as usize;
    devices.rotate_left(by);
    let unit = [1, 2, 4, 16][rng.below(4) as usize];
    let layout = Layout::new(scheme, devices.len(), unit).expect("a ring that is wide enough");
    Placement { layout: layout.beginning_at(cluster.volume.place_for(&layout)), devices }
}

/// The hosts that stay, and neither perform an operation nor settle what another one has begun.
pub(super) fn idle_slots(run: &Run) -> Vec<HostSlot> {
    run.staying_slots().into_iter().filter(|slot| !run.cluster.has_administrators(*slot)).collect()
}

/// Has an idle host begin an operation, if there is one.
pub(super) fn begin_at_any(
    run: &mut Run,
    rng: &mut Rng,
    draw: impl Fn(&mut Run, &mut Rng, HostSlot) -> (Subject, Operation),
) {
    if let Some(by) = pick(rng, &idle_slots(run)) {
        let (subject, operation) = draw(run, rng, by);
        run.cluster.operator(by).begin_on(subject, operation);
    }
}

impl Feature for ChangeOptions {
    const NAME: &'static str = "changes";
    const KINDS: &'static [&'static str] = &["reorder"];
    const NOT_WITH: &'static [&'static str] = NOT_PLAIN;
    const EXCUSES: fn(&HostError) -> bool = |error| matches!(error, HostError::Fenced);

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<ChangeOptions> {
        let orderings = options.ordering != Ordering::None && draw.one_in(10);
        let moves = options.activities.has("migrate");
        let lives = options.activities.has("create-delete");
        if !orderings && !moves && !lives && !options.activities.has_any(&["add-remove", "file-systems"]) {
            return None;
        }
        draw.acts_every([50, 300, 1_000]);
        draw.every = draw.every.filter(|_| orderings || moves);
        let rng = &mut draw.rng;
        let changes = ChangeOptions {
            orderings,
            moves,
            deaths: [0, 3, 15][rng.below(3) as usize],
            pauses: [0, 3, 30][rng.below(3) as usize],
            store_faults: [0, 5, 30][rng.below(3) as usize],
            copy_rate: [0, 1 << 16, 1 << 18][rng.below(3) as usize],
            grows: rng.below(4) == 0,
        };
        if lives {
            // Such damage is placed for one volume only.
            options.without_faults(&[FaultKind::Misdirected]);
        }
        if rng.chance(2, 3) {
            // While a device is out, no change begins.
            options.faults.weights.retain(|kind, _| WITH_ALL_DEVICES.contains(kind));
        }
        let by_lock_servers = orderings || options.ordering.needs_lock_server();
        options.lock_servers = options.lock_servers.max(by_lock_servers.into());
        options.chunks = None;
        let settings = &mut options.settings;
        settings.request_timeout = settings.request_timeout.max(8 * settings.lock_timeout);
        options.with_control(2);
        Some(changes)
    }
}

impl Options {
    /// A control plane with so many hosts needs time. Clients that reconnect would abandon requests that wait.
    pub(super) fn with_control(&mut self, hosts: usize) {
        self.activities.remove(&["reconnect"]);
        self.settings.hosts_max += hosts.saturating_sub(self.hosts);
        self.hosts = self.hosts.max(hosts);
        self.swarm = self.swarm.max(Duration::from_secs(10));
        self.spread_operations();
    }
}

impl Activity for ChangeOptions {
    fn uses_device_locks(&self) -> bool {
        self.orderings
    }

    /// Has a host change the volume, or one of the file system, if none does.
    fn act(&mut self, run: &mut Run, rng: &mut Rng) {
        let idle = idle_slots(run);
        let Cluster { others, files, .. } = &run.cluster;
        let of_files: Vec<usize> = (0..others.len()).filter(|number| files.uses(others[*number].id)).collect();
        let drawn = if of_files.is_empty() { 0 } else { rng.below(of_files.len() as u64 + 1) as usize };
        let mut begin = |cluster: &mut Cluster| {
            // In some cases, two hosts try at a time.
            let may = !cluster.volumes_on_hold().contains(&cluster.volume.id) || rng.chance(1, 10);
            let by = pick(rng, &idle).filter(|_| may)?;
            let (name, operation) = self.draw_operation(cluster, rng, by);
            cluster.operator(by).begin(operation);
            Some(name)
        };
        let begun = match of_files.get(drawn.wrapping_sub(1)) {
            Some(number) => run.cluster.on_volume(*number, begin),
            None => begin(&mut run.cluster),
        };
        begun.into_iter().for_each(|name| run.count_fault(name));
    }

    /// After the faults, ends each migration that the run has left, in half of the seeds.
    fn at_rest(&mut self, run: &mut Run, rng: &mut Rng, _is_last: bool) -> Result<(), Failed> {
        for volume in run.cluster.volumes() {
            if volume.moving.is_none() || !rng.chance(1, 2) {
                continue;
            }
            let by = HostSlot(0);
            let own = run.cluster.generation(by);
            run.count_fault("last migration ended");
            let migration = Migration::continuing(own, Timing::default());
            run.cluster.operator(by).begin_on(Subject::Volume(volume.id, None), migration.into());
            let until = run.cluster.world.now().after(END_MAX);
            while run.cluster.administers(by)
                && let Some(event) = run.cluster.next(until)
            {
                run.on_world_event(event)?;
            }
            let moves = |now: &VolumeDescription| now.id == volume.id && now.moving.is_some();
            if let Some(left) = run.cluster.volumes().into_iter().find(moves) {
                return failed("left-moving", format!("{left:?}"));
            }
            run.come_to_rest()?;
        }
        Ok(())
    }
}

impl ChangeOptions {
    /// The size to which the volume is to grow, if this is the time.
    fn draw_growth(&self, cluster: &Cluster, rng: &mut Rng) -> Option<u64> {
        let Options { layout, stripes, .. } = &cluster.options;
        let volume = cluster.volume();
        // An attribute volume can't grow: its size says where attributes lie.
        let may_grow = self.grows && !cluster.options.activities.has("attribute-volumes");
        // Metadata servers would have to begin anew, which those of runs do only for checks.
        let may_grow = may_grow && !cluster.files.uses(volume.id);
        let may = may_grow && volume.moving.is_none() && rng.chance(1, 3);
        let most = (stripes + STRIPES_ADDED_MAX) * layout.stripe_blocks();
        let blocks = volume.blocks() + rng.below(2 * layout.stripe_blocks()) + 1;
        (may && blocks <= most).then_some(blocks * BLOCK_BYTES as u64)
    }

    /// An operation on the volume, and what it is called.
    fn draw_operation(&self, cluster: &Cluster, rng: &mut Rng, by: HostSlot) -> (&'static str, Operation) {
        let own = cluster.generation(by);
        let timing = Timing { note: NOTE_EVERY, ..Timing::default() };
        let changing = |change| VolumeChange::new(own, change, timing).into();
        if let Some(bytes) = self.draw_growth(cluster, rng) {
            return ("growth", changing(Change::Grow(bytes)));
        }
        let moves = self.moves && (!self.orderings || rng.below(2) == 0);
        if !moves {
            let orderings = [Ordering::Timestamp, Ordering::DeviceLock, Ordering::ServerLock, Ordering::CallbackLock];
            let to = orderings[rng.below(4) as usize];
            return ("change of the ordering", changing(Change::Ordering(to)));
        }
        match (cluster.volume.moving.is_some(), rng.below(8)) {
            (true, 0 | 1) => ("migration given up", changing(Change::GiveUpMove)),
            (true, _) => ("migration continued", Migration::continuing(own, timing).into()),
            (false, _) => ("migration begun", Migration::to(own, draw_target(cluster, rng), timing).into()),
        }
    }
}

impl Run {
    /// Hosts that died as administrators, or lost their leases, return after a while.
    pub(crate) fn return_administrators(&mut self) {
        let killed = self.cluster.control.as_mut().map(|control| std::mem::take(&mut control.killed));
        for node in killed.into_iter().flatten() {
            if self.storming {
                let span = Duration::from_millis(self.return_rng.below(1_000) + 1);
                self.plan(span, move |run| run.bring_back(node, false));
            } else {
                self.bring_back(node, false);
            }
        }
    }
}
