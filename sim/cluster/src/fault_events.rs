//! Faults of a swarm run as events: each fault begins and ends, at the latest when everything heals.

use crate::availability::Cause;
use crate::cluster::{Cluster, HostSlot};
use crate::control::Subject;
use crate::damage;
use crate::swarm::{AFTERMATH, FAULTS_OF_MESSAGES, FOR_EVER, Replacement, Run, ScheduledEvent, Takeover};
use crate::workload::ClientOperation;
use braid_base::{BLOCK_BYTES, NodeId, Time};
use braid_control_protocol::{NextDisk, Timing};
use braid_machine::{ArrayRequest, HostError, HostOutcome, JobRequest, OpId};
use braid_wire::{Administration, RecoveryThrottle};
use braid_world::{Damageable, Fault, FaultKind, Topology};
use std::collections::BTreeSet;
use std::time::Duration;

/// A future event of a fault.
pub(crate) enum FaultEvent {
    /// The next fault begins.
    Next,
    /// A node returns.
    Return { node: NodeId, reboot: bool },
    /// A flapping node dies again.
    Flap { place: FlapTarget, times: u32, down: Duration, up: Duration },
    /// A cut ends.
    Join(Vec<(NodeId, NodeId)>),
    /// A disk has its normal speed again.
    Quicken(NodeId),
    /// A node has its normal speed again.
    Hurry(NodeId),
    /// A disk has space again.
    Space(NodeId),
    /// The clocks of a node are set right and run at their normal rate.
    SetClock(NodeId),
    /// A host is fenced after its messages to a device were lost.
    Fence { host: NodeId, device: NodeId, dies: bool, unavailable: Duration },
    /// All wall clocks that leapt together are set right.
    SetClocks,
    /// Disks for which slots wait are brought, and damaged devices are checked.
    Disks,
    /// The recovery throttle is set to its default.
    UsualPace,
    /// Devices that have stopped are restarted.
    StartAgain,
    /// Clients of a host lose their connections.
    Reconnect,
    /// A device is to be suspended at one of its next reads.
    Suspend,
    /// A host disconnects gracefully.
    Disconnect,
    /// A host changes the volume.
    Change,
    /// A host is silent for a while.
    Silence,
    /// A host creates or deletes a volume.
    Life,
    /// A host adds or removes a device.
    Coming,
    /// A host asks for a file system.
    TakeOver,
    /// A metadata server dies, or is taken over from.
    MetadataServer,
    /// A metadata server is started, if there is none.
    StartMetadataServer,
    /// A check of the file system is announced.
    AnnounceCheck,
    /// It is over.
    EndCheck,
    /// Metadata servers look whether one is announced.
    ObserveCheck,
    /// All hosts hear which metadata server owns the file system.
    EndDetours,
    /// A device dies for good, if all others are in.
    Death,
    /// A block is damaged, if a device is out or returning.
    DamageDegraded,
    /// A record is damaged, if the array is healthy.
    RecordDamage,
}

/// How often the run looks for devices to be restarted.
const START_AGAIN_EVERY: Duration = Duration::from_millis(100);
/// The largest number of bad sectors of a disk.
const BAD_SECTORS_MAX: usize = 4;
/// How often the operator checks whether a disk can be replaced.
const DISKS_EVERY: Duration = Duration::from_millis(50);

/// How often the run checks whether a device can die.
const DEATHS_EVERY: Duration = Duration::from_millis(70);

/// The node that flaps. A host returns as another node, so its slot identifies it.
#[derive(Clone, Copy)]
pub(crate) enum FlapTarget {
    Slot(HostSlot),
    Node(NodeId),
}

impl Topology for Cluster {
    fn up(&self) -> Vec<NodeId> {
        let mut up = self.world.up();
        // It may not fail again before the effects of its first failure are repaired.
        if let Some(frail) = self.options.faults.frail.filter(|_| !self.is_calm()) {
            up.retain(|node| *node != NodeId::Device(frail));
        }
        up
    }

    fn skew(&self, node: NodeId) -> i64 {
        self.world.skew(node)
    }

    fn damageable(&self) -> Vec<Damageable> {
        self.places_that_may_be_damaged()
    }

    fn replaceable(&self) -> Vec<NodeId> {
        self.devices_that_may_be_replaced()
    }
}

impl Run {
    pub(crate) fn on_fault_event(&mut self, fault_events: FaultEvent) {
        match fault_events {
            FaultEvent::Next if self.cluster.options.faults.has(FaultKind::Calm) => self.next_calm(),
            FaultEvent::Next => {
                if let Some(fault) = self.swarm.next(&self.cluster) {
                    self.on_fault(fault);
                }
                let pause = self.swarm.pause();
                self.plan_fault(pause, FaultEvent::Next);
            }
            FaultEvent::Return { node, reboot } => self.bring_back(node, reboot),
            FaultEvent::Flap { place, times, down, up } => self.flap(place, times, down, up),
            FaultEvent::Join(pairs) => pairs.iter().for_each(|(from, to)| self.cluster.world.network.join(*from, *to)),
            FaultEvent::Quicken(node) => self.cluster.world.disk_mut(node).expect("the node has a disk").slow_down(1),
            FaultEvent::Hurry(node) => self.cluster.world.slow_down(node, Duration::ZERO),
            FaultEvent::Space(node) => self.cluster.world.disk_mut(node).expect("the node has a disk").set_full(false),
            FaultEvent::SetClock(node) => self.set_clock(node),
            FaultEvent::SetClocks => self.set_clocks(),
            FaultEvent::UsualPace => self.set_usual_pace(),
            FaultEvent::StartAgain => {
                self.start_broken();
                self.plan_fault(START_AGAIN_EVERY, FaultEvent::StartAgain);
            }
            FaultEvent::Reconnect => {
                self.reconnect();
                self.plan_reconnect();
            }
            FaultEvent::Suspend => self.suspend_and_plan_next(),
            FaultEvent::Disconnect => self.disconnect_and_plan_next(),
            FaultEvent::Change => self.change_and_plan_next(),
            FaultEvent::Silence => self.silence_and_plan_next(),
            FaultEvent::Coming => self.add_or_remove_and_plan_next(),
            FaultEvent::Life => self.create_or_delete_and_plan_next(),
            FaultEvent::TakeOver => self.contend_and_plan_next(),
            FaultEvent::MetadataServer => self.disturb_metadata_and_plan_next(),
            FaultEvent::StartMetadataServer => self.start_metadata_if_none(),
            FaultEvent::AnnounceCheck => self.announce_check(),
            FaultEvent::EndCheck => self.end_check(),
            FaultEvent::ObserveCheck => self.observe_check(),
            FaultEvent::EndDetours => self.end_detours(),
            FaultEvent::Fence { host, device, dies, unavailable } => self.fence(host, device, dies, unavailable),
            FaultEvent::Death => {
                self.let_die();
                self.plan_fault(DEATHS_EVERY, FaultEvent::Death);
            }
            FaultEvent::DamageDegraded => self.damage_and_plan_next(),
            FaultEvent::RecordDamage => self.damage_a_record_and_plan_next(),
            FaultEvent::Disks => {
                self.look_after_ruined();
                self.change_disks();
                self.plan_fault(DISKS_EVERY, FaultEvent::Disks);
            }
        }
    }

    fn on_fault(&mut self, fault: Fault) {
        let cause = cause_of(&fault);
        self.on_fault_of(fault, cause);
    }

    /// Begins a fault whose cause is known.
    pub(crate) fn on_fault_of(&mut self, fault: Fault, cause: Cause) {
        let now = self.cluster.world.now();
        if let Some(span) = span_of(&fault) {
            self.availability.begin(now, fault.name(), cause, span);
        }
        self.cluster.turned |= matches!(fault, Fault::ClockRate { .. } | Fault::ClockLeap { .. });
        // A crash at a disk command is counted when the command is reached.
        if !matches!(fault, Fault::Crash { at: Some(_), .. }) {
            self.count_fault(fault.name());
        }
        let world = &mut self.cluster.world;
        match fault {
            Fault::Crash { node, at: Some(point), unavailable, reboot } => {
                world.disk_mut(node).expect("the node has a disk").crash_at(point);
                self.crash_plans.insert(node, (unavailable, reboot));
            }
            Fault::Crash { node, at: None, unavailable, reboot } => {
                self.crash(node);
                self.plan_fault(unavailable, FaultEvent::Return { node, reboot });
            }
            Fault::Blackout { nodes } => {
                nodes.iter().for_each(|(node, _)| self.crash(*node));
                for (node, unavailable) in nodes {
                    self.plan_fault(unavailable, FaultEvent::Return { node, reboot: true });
                }
            }
            Fault::Flap { node, times, down, up } => {
                let place = self.cluster.slot(node).map_or(FlapTarget::Node(node), FlapTarget::Slot);
                self.flap(place, times, down, up);
            }
            Fault::Stall { node, span } => world.stall(node, span),
            Fault::SlowNode { node, busy, span } => {
                world.slow_down(node, busy);
                self.plan_fault(span, FaultEvent::Hurry(node));
            }
            Fault::Cut { pairs, span, .. } => {
                pairs.iter().for_each(|(from, to)| world.network.cut(*from, *to));
                self.plan_fault(span, FaultEvent::Join(pairs));
            }
            Fault::ClockStep { node, by } => world.step_clock(node, by),
            Fault::ClockRate { node, ppm, span } => {
                world.set_clock_rate(node, ppm);
                self.plan_fault(span, FaultEvent::SetClock(node));
            }
            Fault::ClockLeap { node, by, span } => {
                world.step_clock(node, by);
                self.plan_fault(span, FaultEvent::SetClock(node));
            }
            Fault::CommonLeap { by, span } => {
                world.nodes().into_iter().for_each(|node| world.step_clock(node, by));
                self.leapt = by;
                self.plan_fault(span, FaultEvent::SetClocks);
            }
            Fault::SlowDisk { node, times, span } => {
                world.disk_mut(node).expect("the node has a disk").slow_down(times);
                self.plan_fault(span, FaultEvent::Quicken(node));
            }
            Fault::FullDisk { node, span } => {
                world.disk_mut(node).expect("the node has a disk").set_full(true);
                self.plan_fault(span, FaultEvent::Space(node));
            }
            Fault::FailedWrite { node } => world.disk_mut(node).expect("the node has a disk").fail_write(),
            Fault::FailedSync { node } => world.disk_mut(node).expect("the node has a disk").fail_sync(),
            Fault::BadSector { node, sector } => {
                let disk = world.disk_mut(node).expect("the node has a disk");
                if disk.spoilt() < BAD_SECTORS_MAX {
                    let bytes = damage::data_sector(&disk.peek(0, 512), sector);
                    disk.spoil(bytes);
                }
            }
            Fault::Corruption(Damageable { node, bytes }) => {
                world.disk_mut(node).expect("the node has a disk").corrupt(bytes);
            }
            Fault::Unreadable(Damageable { node, bytes }) => {
                world.disk_mut(node).expect("the node has a disk").lose(bytes);
            }
            Fault::Replace { node, unavailable } => self.ask_for_replacement(node, unavailable),
            Fault::Scrub { node } => {
                let slot = self.cluster.slot(node).expect("only hosts scrub");
                let volume = self.cluster.volume().id;
                let op = self
                    .cluster
                    .ask(slot, JobRequest::Scrub { volume, stripes: 0..u64::MAX, repair: true, recompute: false });
                self.chores.insert(op);
            }
            Fault::Fence { node, device, deaf, dies, unavailable } => {
                world.network.cut(node, device);
                self.plan_fault(deaf, FaultEvent::Fence { host: node, device, dies, unavailable });
            }
            Fault::RecoveryThrottle { bytes_per_second, share, paused, span } => {
                self.ask_for_pace(RecoveryThrottle { bytes_per_second, share, paused });
                self.plan_fault(span, FaultEvent::UsualPace);
            }
            Fault::Misdirected { meant, hit } => {
                world.disk_mut(meant.node).expect("the node has a disk").misdirect(meant.bytes, hit);
            }
        }
    }

    /// Ends all faults: those that last are ended now, and nodes that are down are restarted.
    pub(crate) fn heal(&mut self) {
        self.storming = false;
        self.healed = self.cluster.world.now();
        let (now, delay) = (self.cluster.world.now(), self.cluster.options.faults.network.delay_max);
        // Stalled nodes and late messages continue until their time has come.
        self.availability.end_all_but(now, &["stall", "replaced disk", "record damaged", FAULTS_OF_MESSAGES]);
        self.availability.end(now.after(delay), FAULTS_OF_MESSAGES);
        self.cluster.world.network.heal();
        self.cluster.heal_control();
        if self.cluster.options.disconnects.is_some() && self.cluster.options.objects.is_none() {
            self.cluster.overhear();
        }
        for node in self.cluster.nodes_with_disks().collect::<Vec<_>>() {
            let disk = self.cluster.world.disk_mut(node).expect("the node has a disk");
            disk.slow_down(1);
            disk.spare();
            // Blocks that may be lost for good must be determined first.
            if self.cluster.options.damage_degraded.is_some() {
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
        self.end_detours();
        self.end_checks();
        self.start_metadata_if_none();
        self.leapt = 0;
        let options = &self.cluster.options.faults;
        let (skew_max, drift_max) = (options.skew_max.cast_signed(), options.drift_ppm_max.cast_signed());
        // The clock of a dead device, too, since its slot may get another disk.
        let dead = self.cluster.nodes_with_disks().filter(|node| self.cluster.world.machine(*node).is_none());
        for node in dead.chain(self.cluster.world.up()).collect::<Vec<_>>() {
            self.cluster.world.slow_down(node, Duration::ZERO);
            if self.cluster.world.skew(node).abs() > skew_max || self.cluster.world.clock_rate(node).abs() > drift_max {
                self.set_clock(node);
            }
        }
    }

    fn start_broken(&mut self) {
        for device in self.cluster.broken() {
            self.count_fault("device stopped");
            self.count_machine(NodeId::Device(device));
            self.cluster.start_again(device);
        }
    }

    /// The operator requests a new disk for a device, through any host.
    fn ask_for_replacement(&mut self, node: NodeId, unavailable: Duration) {
        let NodeId::Device(device) = node else { unreachable!("only devices are replaced") };
        let Some(slot) = self.staying_slots().first().copied() else { return };
        let (disk, blocks) = (self.cluster.new_disk(), self.cluster.disk_blocks());
        let op = if self.cluster.control.is_some() {
            // An administrator has it replaced, which may die.
            let next = NextDisk { disk, blocks, is_spare: false, lose: false, until_rebuilt: false };
            let operation = braid_control_protocol::Replacement::of(device, next, Timing::default());
            self.cluster.begin_operation_on(slot, Subject::Device(device), operation.into());
            None
        } else {
            let request = Administration::Replace { device, disk, blocks, lose: false };
            Some(self.cluster.ask(slot, ArrayRequest::Administer { request }))
        };
        self.cluster.replacing = true;
        self.replacement = Some(Replacement { op, device, disk, unavailable, refused: None });
    }

    fn ask_for_pace(&mut self, throttle: RecoveryThrottle) {
        let Some(slot) = self.staying_slots().first().copied() else { return };
        let op =
            self.cluster.ask(slot, ArrayRequest::Administer { request: Administration::RecoveryThrottle(throttle) });
        self.chores.insert(op);
        self.paced = Some(op);
    }

    /// Another host requests that this host be fenced.
    fn fence(&mut self, host: NodeId, device: NodeId, dies: bool, unavailable: Duration) {
        let NodeId::Host(generation) = host else { unreachable!("only hosts are fenced") };
        self.cluster.world.network.join(host, device);
        if dies && self.cluster.world.machine(host).is_some() {
            self.crash(host);
            self.plan_fault(unavailable, FaultEvent::Return { node: host, reboot: false });
        }
        let mut others = self.staying_slots().into_iter().filter(|slot| self.cluster.node(*slot) != host);
        let Some(by) = others.next() else { return };
        let op = self.cluster.fence(by, generation);
        self.takeovers.insert(op, Takeover { by, device, unavailable, left: BTreeSet::new() });
    }

    /// Handles the answer to a request to fence a host, or to a read of the blocks on which that host had worked. After the reads, a
    /// device dies that may have missed some of the writes.
    pub(crate) fn on_takeover(&mut self, op: OpId, outcome: &HostOutcome) -> bool {
        if let Some(takeover) = self.takeovers.remove(&op) {
            if outcome.is_ok() && self.storming {
                self.take_over(op, takeover);
            }
            return true;
        }
        let Some((name, takeover)) = self.takeovers.iter_mut().find(|(_, takeover)| takeover.left.contains(&op)) else {
            return false;
        };
        takeover.left.remove(&op);
        if takeover.left.is_empty() {
            let name = *name;
            let Takeover { device, unavailable, .. } = self.takeovers.remove(&name).expect("just seen");
            if self.storming && self.cluster.world.machine(device).is_some() {
                self.count_fault("device crash after a fence");
                self.crash(device);
                self.plan_fault(unavailable, FaultEvent::Return { node: device, reboot: false });
            }
        }
        true
    }

    fn take_over(&mut self, op: OpId, mut takeover: Takeover) {
        let volume = self.cluster.volume().clone();
        let stripe = volume.layout.stripe_blocks() * BLOCK_BYTES as u64;
        // This request belongs to none of the host's clients, each of which waits for its own request.
        let client = self.cluster.options.clients;
        if self.cluster.options.attribute_volume.is_some()
            || self.cluster.world.machine(self.cluster.node(takeover.by)).is_none()
        {
            return;
        }
        for offset in (0..volume.bytes).step_by(stripe as usize) {
            let operation = ClientOperation::Read { offset, length: stripe.min(volume.bytes - offset) };
            takeover.left.insert(self.cluster.operation(takeover.by, client, operation));
        }
        self.takeovers.insert(op, takeover);
    }

    /// The operator requests the default recovery throttle, if it has another value, unless such a request is in progress.
    pub(crate) fn set_usual_pace(&mut self) {
        let waits = |paced: OpId| self.cluster.asked().any(|asked| asked.op == paced);
        if !self.cluster.is_throttle_default() && !self.paced.is_some_and(waits) {
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
        for (device, disk) in self.cluster.awaited_disks() {
            let node = NodeId::Device(device);
            if self.cluster.world.machine(node).is_some() {
                self.crash(node);
            }
            self.cluster.swap_disk(device, disk);
            self.cluster.note_disk(device, disk);
            let unavailable = self.replacement.as_ref().map_or(Duration::ZERO, |replacement| replacement.unavailable);
            if self.storming {
                self.plan_fault(unavailable, FaultEvent::Return { node, reboot: false });
            } else {
                self.cluster.world.disk_mut(node).expect("the node has a disk").heal();
                self.restart(node);
            }
        }
        let has_ended = self.cluster.take_replacement_end();
        let now = self.cluster.world.now();
        if let Some(replacement) = self.replacement.as_mut().filter(|replacement| has_ended && replacement.op.is_none())
        {
            replacement.refused = Some(now);
        }
        let Some(Replacement { device, disk, refused, .. }) = &self.replacement else { return };
        let late = |refused: Time| self.cluster.world.now().since(refused) > AFTERMATH;
        let is_over = refused.is_some_and(late) && !self.cluster.is_any_disk_changing();
        if is_over || self.cluster.is_whole_with(*device, *disk) {
            (self.replacement, self.cluster.replacing) = (None, false);
            self.availability.end(self.cluster.world.now(), "replaced disk");
        }
    }

    /// Clients of one host lose their connections and repeat their requests at once on other hosts.
    fn reconnect(&mut self) {
        let up = |slot: &HostSlot| self.cluster.world.machine(self.cluster.node(*slot)).is_some();
        let slots: Vec<_> = self.cluster.slots().filter(up).collect();
        if slots.is_empty() {
            return;
        }
        let slot = slots[self.reconnect_rng.below(slots.len() as u64) as usize];
        let (wishes, told) = self.cluster.lose_connections(slot);
        self.chores.insert(told);
        if !wishes.is_empty() {
            self.count_fault("reconnect");
        }
        for (client, operation) in wishes {
            self.cluster.operation(slot, client, operation);
        }
    }

    /// Schedules lost connections, if the run has them.
    pub(crate) fn plan_reconnect(&mut self) {
        if let Some(every) = self.cluster.options.reconnects {
            let pause = self.reconnect_rng.below(2 * every.as_nanos() as u64) + 1;
            self.plan_fault(Duration::from_nanos(pause), FaultEvent::Reconnect);
        }
    }

    fn flap(&mut self, place: FlapTarget, times: u32, down: Duration, up: Duration) {
        let node = match place {
            FlapTarget::Slot(slot) => self.cluster.node(slot),
            FlapTarget::Node(node) => node,
        };
        if self.cluster.world.machine(node).is_some() {
            self.crash(node);
            self.availability.begin(self.cluster.world.now(), "flap", Cause::of(node), down);
            self.plan_fault(down, FaultEvent::Return { node, reboot: false });
        }
        if times > 1 {
            self.plan_fault(down + up, FaultEvent::Flap { place, times: times - 1, down, up });
        }
    }

    pub(crate) fn bring_back(&mut self, node: NodeId, reboot: bool) {
        if let Some(slot) = self.cluster.slot(node) {
            self.replace_if_down(slot);
            self.wake_clients(slot);
        } else if self.cluster.world.disk(node).is_some() {
            if reboot && self.cluster.world.machine(node).is_none() {
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

    /// Starts the operator's checks of disks, if the run may replace any.
    pub(crate) fn look_after_disks(&mut self) {
        if self.cluster.options.faults.has(FaultKind::DiskError) {
            self.plan_fault(START_AGAIN_EVERY, FaultEvent::StartAgain);
        }
        if self.cluster.options.faults.has(FaultKind::Replace) {
            self.plan_disks();
        }
    }

    pub(crate) fn plan_deaths(&mut self) {
        if !self.cluster.options.dying.is_empty() {
            let wait = self.cluster.options.swarm / 4;
            self.plan_fault(wait, FaultEvent::Death);
        }
    }

    pub(crate) fn plan_disks(&mut self) {
        self.plan_fault(DISKS_EVERY, FaultEvent::Disks);
    }

    pub(crate) fn plan_fault(&mut self, span: Duration, fault_events: FaultEvent) {
        self.plan(span, ScheduledEvent::FaultEvent(fault_events));
    }
}

impl Cause {
    /// What a node that is down makes unavailable.
    pub(crate) fn of(node: NodeId) -> Cause {
        match node {
            NodeId::Host(_) => Cause::Host,
            NodeId::Device(device) => Cause::Device(device),
            NodeId::LockServer(_) => Cause::LockServer,
            NodeId::Monitor => Cause::Monitor,
            NodeId::MetadataServer(_) => unreachable!("its process is a host"),
        }
    }
}

/// What a fault of a swarm run makes unavailable.
fn cause_of(fault: &Fault) -> Cause {
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
