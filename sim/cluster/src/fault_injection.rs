//! Faults of a swarm run as events: each fault begins and ends, at the latest when everything heals.

use crate::availability::Cause;
use crate::cluster;
use crate::cluster::{AFTERMATH, Cluster, HostSlot, device_notes};
use crate::control::store::disk_entry;
use crate::damage_places;
use crate::member_state;
use crate::prelude::*;
use crate::swarm::{FAULTS_OF_MESSAGES, FOR_EVER, Replacement, Run};
use braid_control_protocol::{NextDisk, Timing};
use braid_description::ArrayDescription;
use braid_wire::RecoveryThrottle;
use braid_world::places::Places;
use braid_world::{Damageable, Topology};

/// How often the run looks for devices to be restarted.
const START_AGAIN_EVERY: Duration = Duration::from_millis(100);
/// The largest number of bad sectors of a disk.
const BAD_SECTORS_MAX: usize = 4;
/// How often the operator checks whether a disk can be replaced.
const DISKS_EVERY: Duration = Duration::from_millis(50);

impl Topology for Cluster {
    fn up(&self) -> Vec<NodeId> {
        let mut up = self.world.up();
        // It may not fail again before the effects of its first failure are repaired.
        if let Some(frail) = self.options.faults.frail.filter(|_| !member_state::is_calm(self)) {
            up.retain(|node| *node != NodeId::Device(frail));
        }
        up
    }

    fn skew(&self, node: NodeId) -> i64 {
        self.world.skew(node)
    }

    fn damageable(&self) -> Vec<Damageable> {
        damage_places::places_that_may_be_damaged(self)
    }

    fn replaceable(&self) -> Vec<NodeId> {
        damage_places::devices_that_may_be_replaced(self)
    }

    fn place(&self, node: NodeId) -> NodeId {
        self.world.places.of(node)
    }
}

/// What is unavailable while a node is down, with all others at its place.
pub(crate) fn causes(places: &Places, node: NodeId) -> Vec<Cause> {
    let together = places.together(node);
    let has_host = together.iter().any(|node| matches!(node, NodeId::Host(_)));
    let of = |node: &NodeId| match node {
        NodeId::Device(device) if has_host => Some(Cause::Node(*device)),
        NodeId::Host(_) if places.is_shared(*node) => None,
        _ => Some(Cause::of(*node)),
    };
    together.iter().filter_map(of).collect()
}

impl Run {
    pub(crate) fn plan_next_fault(&mut self) {
        let pause = self.swarm.pause();
        self.plan(pause, |run| {
            if let Some(fault) = run.swarm.next(&run.cluster) {
                let cause = cause_of(&fault);
                run.on_fault_of(fault, cause);
            }
            run.plan_next_fault();
        });
    }

    /// Begins a fault whose cause is known.
    pub(crate) fn on_fault_of(&mut self, fault: Fault, cause: Cause) {
        let now = self.cluster.world.now();
        if let Some(span) = span_of(&fault) {
            let causes = match &fault {
                Fault::Crash { node, .. } => causes(&self.cluster.world.places, *node),
                // Its hosts continue with their operations afterwards.
                Fault::Stall { node, .. } if self.cluster.world.places.is_shared(*node) => vec![Cause::Other],
                _ => vec![cause],
            };
            self.availability.begin_together(now, fault.name(), &causes, span);
        }
        self.cluster.turned |= matches!(fault, Fault::ClockRate { .. } | Fault::ClockLeap { .. });
        // A crash at a disk command is counted when the command is reached.
        if !matches!(fault, Fault::Crash { at: Some(_), .. }) {
            self.count_fault(fault.name());
        }
        let world = &mut self.cluster.world;
        match fault {
            Fault::Crash { node, at: Some(point), unavailable, reboot } => {
                self.disk(node).crash_at(point);
                self.crash_plans.insert(node, (unavailable, reboot));
            }
            Fault::Crash { node, at: None, unavailable, reboot } => {
                self.crash(node);
                self.plan(unavailable, move |run| run.bring_back(node, reboot));
            }
            Fault::Blackout { nodes } => {
                nodes.iter().for_each(|(node, _)| self.crash(*node));
                for (node, unavailable) in nodes {
                    self.plan(unavailable, move |run| run.bring_back(node, true));
                }
            }
            Fault::Flap { node, times, down, up } => {
                let slot = self.cluster.slot(node);
                self.flap(node, slot, times, (down, up));
            }
            Fault::Stall { node, span } => world.stall(node, span),
            Fault::SlowNode { node, busy, span } => {
                let place = world.places.of(node);
                world.slow_down(place, busy);
                self.plan(span, move |run| run.cluster.world.slow_down(place, Duration::ZERO));
            }
            Fault::Cut { pairs, span, .. } => self.cut(pairs, span),
            Fault::ClockStep { node, by } => world.step_clock(node, by),
            Fault::ClockRate { node, ppm, span } => {
                let place = world.places.of(node);
                world.set_clock_rate(place, ppm);
                self.plan(span, move |run| run.set_clock(place));
            }
            Fault::ClockLeap { node, by, span } => {
                let place = world.places.of(node);
                world.step_clock(place, by);
                self.plan(span, move |run| run.set_clock(place));
            }
            Fault::CommonLeap { by, span } => {
                let places: BTreeSet<NodeId> = world.nodes().into_iter().map(|node| world.places.of(node)).collect();
                places.into_iter().for_each(|place| world.step_clock(place, by));
                self.leapt = by;
                self.plan(span, Run::set_clocks);
            }
            Fault::SlowDisk { node, times, span } => {
                self.disk(node).slow_down(times);
                self.plan(span, move |run| run.disk(node).slow_down(1));
            }
            Fault::FullDisk { node, span } => {
                self.disk(node).set_full(true);
                self.plan(span, move |run| run.disk(node).set_full(false));
            }
            Fault::FailedWrite { node } => self.disk(node).fail_write(),
            Fault::FailedSync { node } => self.disk(node).fail_sync(),
            Fault::BadSector { node, sector } => {
                let disk = self.disk(node);
                if disk.spoilt() < BAD_SECTORS_MAX {
                    let bytes = damage_places::data_sector(&disk.peek(0, 512), sector);
                    disk.spoil(bytes);
                }
            }
            Fault::Corruption(Damageable { node, bytes }) => {
                self.disk(node).corrupt(bytes);
            }
            Fault::Unreadable(Damageable { node, bytes }) => {
                self.disk(node).lose(bytes);
            }
            Fault::Replace { node, unavailable } => self.ask_for_replacement(node, unavailable),
            Fault::Scrub { node } => {
                let slot = self.cluster.slot(node).expect("only hosts scrub");
                let volume = self.cluster.volume().id;
                self.begin_chore(
                    slot,
                    JobRequest::Scrub { volume, stripes: 0..u64::MAX, repair: true, recompute: false },
                );
            }
            Fault::Fence { .. } => self.each(|acting, run| acting.activity.on_fault(run, &fault)),
            Fault::RecoveryThrottle { throttle, span } => {
                self.ask_for_pace(throttle);
                self.plan(span, Run::set_usual_pace);
            }
            Fault::Misdirected { meant, hit } => {
                self.disk(meant.node).misdirect(meant.bytes, hit);
            }
        }
    }

    /// Ends all faults: those that last are ended now, and nodes that are down are restarted. Returns the stripes of the volume that have a
    /// damaged block at present.
    pub(crate) fn heal(&mut self) -> BTreeSet<u64> {
        let damaged = damage_places::damaged_stripes(&self.cluster);
        self.storming = false;
        self.healed = self.cluster.world.now();
        let (now, delay) = (self.cluster.world.now(), self.cluster.options.faults.network.delay_max);
        // Stalled nodes and late messages continue until their time has come.
        self.availability.end_all_but(now, &["stall", "replaced disk", "record damaged", FAULTS_OF_MESSAGES]);
        self.availability.end(now.after(delay), FAULTS_OF_MESSAGES);
        self.cluster.world.network.heal();
        self.cluster.control.iter_mut().for_each(|control| control.heal(now));
        self.each(|acting, run| acting.activity.heal(run));
        let is_damaged = self.cluster.options.activities.has("damage-degraded");
        for node in cluster::nodes_with_disks(&self.cluster) {
            let disk = self.disk(node);
            disk.slow_down(1);
            disk.spare();
            // Blocks that may be lost for good must be determined first.
            if is_damaged {
                disk.end_faults()
            } else {
                disk.heal()
            }
            self.cluster.world.spare(node);
            self.restart(node);
        }
        self.start_broken();
        for slot in self.cluster.slots() {
            match self.cluster.files.is_server(slot) {
                true => self.cluster.world.spare(self.cluster.node(slot)),
                false => self.replace_if_down(slot),
            }
        }
        self.each(|acting, run| acting.activity.healed(run));
        self.leapt = 0;
        let options = &self.cluster.options.faults;
        let (skew_max, drift_max) = (options.skew_max.cast_signed(), options.drift_ppm_max.cast_signed());
        // The clock of a dead device, too, since its slot may get another disk.
        let dead = cluster::nodes_with_disks(&self.cluster).into_iter().filter(|node| !self.cluster.world.is_up(*node));
        for node in dead.chain(self.cluster.world.up()).collect::<Vec<_>>() {
            self.cluster.world.slow_down(node, Duration::ZERO);
            if self.cluster.world.skew(node).abs() > skew_max || self.cluster.world.clock_rate(node).abs() > drift_max {
                self.set_clock(node);
            }
        }
        damaged
    }

    fn start_broken(&mut self) {
        for device in self.cluster.device_notes.broken(&self.cluster.world) {
            self.count_fault("device stopped");
            self.count_machine(NodeId::Device(device));
            self.cluster.world.stop(NodeId::Device(device));
            self.cluster.restart_device(device);
        }
    }

    /// The operator requests a new disk for a device, through any host.
    fn ask_for_replacement(&mut self, node: NodeId, unavailable: Duration) {
        let NodeId::Device(device) = node else { unreachable!("only devices are replaced") };
        let Some(slot) = self.staying_slots().first().copied() else { return };
        let (disk, blocks) = (self.cluster.device_notes.new_disk(), self.cluster.options.disk_blocks());
        let op = if self.cluster.control.is_some() {
            // An administrator has it replaced, which may die.
            let next = NextDisk { disk, blocks, is_spare: false, lose: false, until_rebuilt: false };
            let operation = braid_control_protocol::Replacement::of(device, next, Timing::default());
            self.cluster.operator(slot).begin_on(Subject::Device(device, Some(disk_entry(disk))), operation.into());
            None
        } else {
            let request = Administration::Replace { device, disk, blocks, lose: false };
            Some(self.cluster.ask(slot, ArrayRequest::Administer { request }))
        };
        self.cluster.device_notes.replacing = true;
        self.replacement = Some(Replacement { op, device, disk, unavailable, refused: None });
    }

    fn ask_for_pace(&mut self, throttle: RecoveryThrottle) {
        let Some(slot) = self.staying_slots().first().copied() else { return };
        let request = Administration::RecoveryThrottle(throttle);
        self.paced = Some(self.begin_chore(slot, ArrayRequest::Administer { request }));
    }

    /// Begins something that no client has asked for.
    pub(crate) fn begin_chore(&mut self, slot: HostSlot, request: impl Into<MountRequest>) -> OpId {
        let op = self.cluster.ask(slot, request);
        self.chores.insert(op);
        op
    }

    /// The operator requests the default recovery throttle, if it has another value, unless such a request is in progress.
    pub(crate) fn set_usual_pace(&mut self) {
        let waits = |paced: OpId| self.cluster.requests.is_open(paced);
        if !cluster::is_throttle_default(&self.cluster) && !self.paced.is_some_and(waits) {
            self.ask_for_pace(RecoveryThrottle::default());
        }
    }

    /// The request for a new disk was answered. If it was refused, it will not happen; after any other error it may still happen.
    pub(crate) fn on_replacement(&mut self, op: OpId, outcome: &HostOutcome) -> bool {
        let Some(replacement) = self.replacement.as_mut().filter(|replacement| replacement.op == Some(op)) else {
            return false;
        };
        if let Err(HostError::AdminError(_)) = outcome {
            replacement.refused = Some(self.cluster.world.now());
        }
        true
    }

    /// Brings the disks for which slots wait, and checks whether replaced devices are complete.
    pub(crate) fn change_disks(&mut self) {
        for (device, disk) in self.cluster.device_notes.awaited_disks(&self.cluster.world) {
            let node = NodeId::Device(device);
            if self.cluster.world.is_up(node) {
                self.crash_alone(node);
            }
            self.cluster.swap_disk(device, disk);
            // The operator has brought the disk that fills the slot: the description names it.
            let fill = move |next: &mut ArrayDescription| {
                if next.device(device.0).is_some_and(|entry| entry.disk != Some(disk)) {
                    next.fill_slot(device.0, disk);
                }
            };
            match (&mut self.cluster.candidates, &mut self.cluster.control) {
                (Some(candidates), _) => candidates.change(Box::new(fill)),
                (None, Some(control)) => control.store.fill_slot(device, disk),
                (None, None) => {}
            }
            let unavailable = self.replacement.as_ref().map_or(Duration::ZERO, |replacement| replacement.unavailable);
            if self.storming {
                self.plan(unavailable, move |run| run.bring_back(node, false));
            } else {
                self.disk(node).heal();
                self.restart(node);
            }
        }
        let has_ended = self.cluster.control.as_mut().is_some_and(|control| control.take_replacement_end());
        let now = self.cluster.world.now();
        if let Some(replacement) = self.replacement.as_mut().filter(|replacement| has_ended && replacement.op.is_none())
        {
            replacement.refused = Some(now);
        }
        let Some(Replacement { device, disk, refused, .. }) = &self.replacement else { return };
        let late = |refused: Time| self.cluster.world.now().since(refused) > AFTERMATH;
        let is_over = refused.is_some_and(late) && !device_notes::is_any_disk_changing(&self.cluster);
        if is_over || device_notes::is_whole_with(&self.cluster, *device, *disk) {
            (self.replacement, self.cluster.device_notes.replacing) = (None, false);
            self.availability.end(self.cluster.world.now(), "replaced disk");
        }
    }

    fn disk(&mut self, node: NodeId) -> &mut Disk {
        self.cluster.world.disk_mut(node).expect("the node has a disk")
    }

    /// Cuts connections, from the first of two nodes to the second one, for a while.
    pub(crate) fn cut(&mut self, pairs: Vec<(NodeId, NodeId)>, span: Duration) {
        pairs.iter().for_each(|(from, to)| self.cluster.world.network.cut(*from, *to));
        self.plan(span, move |run| {
            pairs.iter().for_each(|(from, to)| run.cluster.world.network.join(*from, *to));
        });
    }

    /// A node dies and returns. A host returns as another node, which its slot identifies.
    fn flap(&mut self, node: NodeId, slot: Option<HostSlot>, times: u32, (down, up): (Duration, Duration)) {
        let node = slot.map_or(node, |slot| self.cluster.node(slot));
        if self.cluster.world.is_up(node) {
            self.crash(node);
            let causes = causes(&self.cluster.world.places, node);
            self.availability.begin_together(self.cluster.world.now(), "flap", &causes, down);
            self.plan(down, move |run| run.bring_back(node, false));
        }
        if times > 1 {
            self.plan(down + up, move |run| run.flap(node, slot, times - 1, (down, up)));
        }
    }

    /// Starts a node, and those at its place that are down, too.
    pub(crate) fn bring_back(&mut self, node: NodeId, reboot: bool) {
        for other in self.cluster.world.places.together(node) {
            if other == node || !self.cluster.world.is_up(other) {
                self.start_again(other, reboot);
            }
        }
    }

    fn start_again(&mut self, node: NodeId, reboot: bool) {
        if let Some(slot) = self.cluster.slot(node) {
            self.replace_if_down(slot);
            self.wake_clients(slot);
        } else if self.cluster.world.disk(node).is_some() {
            if reboot && !self.cluster.world.is_up(node) {
                self.cluster.world.reboot_clock(node, Time(self.rng.below(1_000_000_000)));
            }
            self.restart(node);
        }
    }

    fn set_clock(&mut self, node: NodeId) {
        let (ppm, skew) = (self.swarm.drift_ppm(), self.swarm.skew());
        self.cluster.world.set_clock_rate(node, ppm);
        let by = skew - self.cluster.world.skew(node);
        self.cluster.world.step_clock(node, by);
    }

    /// After all clocks have leapt together, sets those right that were not set since.
    fn set_clocks(&mut self) {
        self.leapt = 0;
        let far = 10 * self.cluster.options.settings.stamp_ahead_max.as_nanos() as i64;
        for node in self.cluster.world.nodes() {
            if self.cluster.world.skew(node).abs() > far {
                self.set_clock(node);
            }
        }
    }

    /// Starts what is done again and again if disks may fail or be replaced.
    pub(crate) fn watch_disks(&mut self) {
        if self.cluster.options.faults.has(FaultKind::DiskError) {
            self.plan(START_AGAIN_EVERY, Run::start_again_and_again);
        }
        if self.cluster.options.faults.has(FaultKind::Replace) {
            self.look_after_disks();
        }
    }

    fn start_again_and_again(&mut self) {
        self.start_broken();
        self.plan(START_AGAIN_EVERY, Run::start_again_and_again);
    }

    /// The operator brings the disks for which slots wait, and looks after damaged devices.
    pub(crate) fn look_after_disks(&mut self) {
        self.plan(DISKS_EVERY, |run| {
            run.each(|acting, run| acting.activity.supervise(run));
            run.change_disks();
            run.look_after_disks();
        });
    }

    /// A device is suspended now.
    pub(crate) fn on_suspended(&mut self, node: NodeId, span: Duration) {
        self.count_fault("suspended after a read");
        // It ends by itself, also when everything else heals.
        let cause = if self.cluster.world.places.is_shared(node) { Cause::Other } else { Cause::of(node) };
        self.availability.begin(self.cluster.world.now(), "stall", cause, span);
    }
}

/// A node and each of these, in both directions.
pub(crate) fn both_ways(node: NodeId, others: impl IntoIterator<Item = NodeId>) -> Vec<(NodeId, NodeId)> {
    others.into_iter().flat_map(|other| [(node, other), (other, node)]).collect()
}

impl Cause {
    /// What a node that is down makes unavailable.
    pub(crate) fn of(node: NodeId) -> Cause {
        match node {
            NodeId::Host(_) => Cause::Host,
            NodeId::Device(device) => Cause::Device(device),
            NodeId::LockServer(_) => Cause::LockServer,
            NodeId::Monitor => Cause::Monitor,
            // The process of a metadata server is a host.
            NodeId::MetadataServer(_) => Cause::Candidate,
        }
    }
}

/// What a fault of a swarm run makes unavailable.
pub(crate) fn cause_of(fault: &Fault) -> Cause {
    match fault {
        Fault::Crash { node, .. } => Cause::of(*node),
        // A stalled host continues with its operations afterwards.
        Fault::Stall { node, .. } if !matches!(node, NodeId::Host(_)) => Cause::of(*node),
        _ => Cause::Other,
    }
}

/// The duration of a fault that is recorded from now on. Some faults are recorded later; some have an unknown end.
fn span_of(fault: &Fault) -> Option<Duration> {
    match fault {
        Fault::Crash { at: None, unavailable, .. } => Some(*unavailable),
        Fault::Crash { .. } | Fault::Flap { .. } | Fault::ClockStep { .. } | Fault::Scrub { .. } => None,
        Fault::Blackout { nodes } => nodes.iter().map(|(_, unavailable)| *unavailable).max(),
        Fault::Stall { span, .. }
        | Fault::SlowNode { span, .. }
        | Fault::Cut { span, .. }
        | Fault::ClockRate { span, .. }
        | Fault::ClockLeap { span, .. }
        | Fault::CommonLeap { span, .. }
        | Fault::SlowDisk { span, .. }
        | Fault::FullDisk { span, .. }
        | Fault::RecoveryThrottle { span, .. } => Some(*span),
        Fault::Corruption(_) | Fault::Unreadable(_) => None,
        // A device stops when it finds the error, and the time and number of stops are unknown. Until everything heals, the device
        // may be unavailable for a moment.
        Fault::FailedWrite { .. } | Fault::FailedSync { .. } | Fault::BadSector { .. } => Some(FOR_EVER),
        // A fenced host may continue for a while, and the transactions that it leaves block others.
        Fault::Replace { .. } | Fault::Misdirected { .. } | Fault::Fence { .. } => Some(FOR_EVER),
    }
}
