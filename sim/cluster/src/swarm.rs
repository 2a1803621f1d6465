//! A swarm run executes one seed, from options to verdict. Clients work while faults happen. Then everything heals, and the array
//! must come to rest without any loss.

mod counting;

use crate::availability::{Availability, Cause, Judged};
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, Record};
use crate::damage::Row;
use crate::fault_events::FaultEvent;
use crate::file_workload::FileWorkload;
use crate::metadata_processes::MetadataFaults;
use crate::object_workload::attribute_volume::ATTRIBUTE_VOLUME;
use crate::object_workload::{ObjectOptions, ObjectWorkload};
use crate::options::Options;
use crate::records::Ruined;
use crate::report::{Failure, Report};
use crate::workload::{ClientOperation, Workload};
use braid_base::{BLOCK_BYTES, DeviceId, DiskId, NodeId, Rng, Time};
use braid_check::{FileHistory, ObjectOperation, count_outcomes};
use braid_layout::VolumeDescription;
use braid_machine::{FilesRequest, HostError, HostOutcome, OpId, Patience};
use braid_wire::Failure as WireFailure;
use braid_world::{Bound, CrashPoint, Fault, FaultKind, LocalClock, Swarm, Trace, WorldEvent};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The longest stall and the longest delay of a message; these end on their own after healing.
pub(crate) const AFTERMATH: Duration = Duration::from_secs(16);

/// The name of all faults of messages.
pub(crate) const FAULTS_OF_MESSAGES: &str = "faults of messages";
/// The duration of a fault whose end is announced later.
pub(crate) const FOR_EVER: Duration = Duration::from_nanos(u64::MAX);
/// When all faults are over and clocks are right, every request ends within this time, since devices know each other's stamps by
/// then.
const PROMPT: Duration = Duration::from_secs(5);

/// One operation in so many has endless patience, and one in so many of the others waits for some seconds.
const ENDLESS_IN: u64 = 6;

/// The bound of a run. Of a thousand seeds, none uses a tenth of it.
pub(crate) const RUN_MAX: Bound = Bound { events: 10_000_000, real_time: Duration::from_secs(300) };

/// The counters of stores that show how the stores were exercised. Counts before a loss of power at a disk command are lost.
const COUNTED: [&str; 5] = ["journal_batches", "chunks_written", "blocks_homed", "checkpoints", "write_errors"];

/// Runs `options` from beginning to end, and keeps this many lines of the trace.
pub fn run(options: Options, lines: usize) -> Result<Report, Box<Failure>> {
    run_with(options, lines, |_| ())
}

/// The same. `on_history` gets the history of the file system, if the run has one.
pub fn run_with(options: Options, lines: usize, on_history: impl FnOnce(&FileHistory)) -> Result<Report, Box<Failure>> {
    let (seed, ordering) = (options.seed, options.ordering);
    let mut run = caught(|| Ok(Run::new(options, Trace::keeping(lines)))).map_err(|Failed { details, .. }| {
        Failure { check: "panic-at-start", seed, ordering, at: Time(0), event: 0, details, trace: Vec::new() }
    })?;
    let ended = caught(|| run.go_to_the_end());
    on_history(&run.cluster.files.history);
    let failed = match ended {
        Ok(()) => return Ok(run.report()),
        Err(failed) => failed,
    };
    let world = &run.cluster.world;
    Err(Box::new(Failure {
        check: failed.check,
        seed,
        ordering,
        at: world.now(),
        event: world.trace.events(),
        details: failed.details,
        trace: world.trace.lines().map(str::to_string).collect(),
    }))
}

/// Reports a panic as a failure. The state that it leaves unfinished is only read afterwards.
pub(crate) fn caught<T>(act: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
    catch_panics_quietly();
    QUIET.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(act));
    QUIET.set(false);
    outcome.unwrap_or_else(|_| Err(Failed { check: "panic", details: LAST_PANIC.take() }))
}

/// A run in progress.
pub(crate) struct Run {
    pub(crate) cluster: Cluster,
    pub(crate) swarm: Swarm,
    /// The faults of the run, and the errors and delays that they excuse.
    pub(crate) availability: Availability,
    workload: Workload,
    /// The workloads of the other volumes, in order, and the index of the next one to be used.
    other_workloads: Vec<Workload>,
    which_volume: Rng,
    /// The workload on objects, if the run has one.
    object_workload: Option<ObjectWorkload>,
    /// The workload on the volume, if it is an attribute volume.
    attribute_workload: Option<ObjectWorkload>,
    pub(crate) rng: Rng,
    /// Draws the faults of calm runs.
    pub(crate) calm_rng: Rng,
    /// Decides which operations have endless patience.
    patience_rng: Rng,
    /// For lost connections. It is separate, so that the rest of a seed is the same with and without them.
    pub(crate) reconnect_rng: Rng,
    /// Decides which device is suspended, and when.
    pub(crate) suspension_rng: Rng,
    /// The purpose of each alarm.
    schedule: BTreeMap<u64, ScheduledEvent>,
    next_token: u64,
    /// Nodes that are to lose power at a disk command: how long they are down, and whether clocks restart.
    pub(crate) crash_plans: BTreeMap<NodeId, (Duration, bool)>,
    /// The disk replacement in progress.
    pub(crate) replacement: Option<Replacement>,
    /// Other requests of the operator.
    pub(crate) chores: BTreeSet<OpId>,
    /// The operator's last request to set the recovery throttle; a copy of an earlier one may still arrive.
    pub(crate) paced: Option<OpId>,
    /// Hosts that were told to disconnect, and when, by their requests.
    pub(crate) disconnecting: BTreeMap<OpId, (NodeId, Time)>,
    /// Decides which host disconnects.
    pub(crate) disconnect_rng: Rng,
    /// Decides which host changes the volume, how, and when.
    pub(crate) change_rng: Rng,
    /// Decides when hosts return that died as administrators.
    pub(crate) return_rng: Rng,
    /// Decides which host is silent, and when.
    pub(crate) silence_rng: Rng,
    /// Decides which volumes are created, deleted and used then, by which host, and when.
    pub(crate) life_rng: Rng,
    /// Draws the devices that are added and removed.
    pub(crate) coming_rng: Rng,
    /// Decides which host asks for which file system.
    pub(crate) take_over_rng: Rng,
    /// The operations on files, if the run has a file system.
    file_workload: Option<FileWorkload>,
    /// Decides which operations are on files.
    file_rng: Rng,
    /// Faults of metadata servers.
    pub(crate) metadata: MetadataFaults,
    /// The hosts that take over from fenced hosts, by their requests.
    pub(crate) takeovers: BTreeMap<OpId, Takeover>,
    /// Decides which blocks are damaged while the array is degraded.
    pub(crate) damage_rng: Rng,
    pub(crate) damaged: BTreeMap<Row, u32>,
    /// Decides which records are damaged, and of which device.
    pub(crate) record_rng: Rng,
    pub(crate) ruined: Option<Ruined>,
    /// By how much all wall clocks have leapt, until they are set right.
    pub(crate) leapt: i64,
    issued: u64,
    pub(crate) storming: bool,
    /// When everything last became healthy.
    pub(crate) healed: Time,
    pub(crate) report: Report,
}

/// A disk that the operator wants to replace.
pub(crate) struct Replacement {
    /// The request; none if an administrator of the control plane makes it.
    pub op: Option<OpId>,
    pub device: DeviceId,
    pub disk: DiskId,
    /// How long the device is down during the replacement.
    pub unavailable: Duration,
    /// When the request was refused. A copy of the request may still arrive, at a monitor that has no memory of it.
    pub refused: Option<Time>,
}

/// A host has another host fenced, and then reads the blocks on which that one had worked.
pub(crate) struct Takeover {
    /// The host that takes over.
    pub by: HostSlot,
    /// The device that dies when the blocks have been read.
    pub device: NodeId,
    /// How long the device is down.
    pub unavailable: Duration,
    /// Reads that have not been answered.
    pub left: BTreeSet<OpId>,
}

/// An event in the future.
pub(crate) enum ScheduledEvent {
    /// A client has finished its think time.
    ClientOperation { slot: HostSlot, node: NodeId, client: usize },
    /// A fault begins or ends.
    FaultEvent(FaultEvent),
}

impl Run {
    fn new(options: Options, trace: Trace) -> Run {
        let mut rng = options.source("run");
        let swarm = Swarm::new(options.faults.clone(), rng.fork());
        let workload = Workload::new(&options.layout, options.stripes, rng.fork());
        let object_rng = options.source("objects").named("events");
        let device_count = (options.layout.devices() + usize::from(options.other_devices)) as u16;
        let objects = options
            .objects
            .clone()
            .map(|objects| ObjectOptions { devices: objects.devices.min(device_count), ..objects });
        let object_workload = objects.map(|objects| ObjectWorkload::new(objects, object_rng));
        let object_rng = options.source("attribute-volumes").named("events");
        let calm_rng = options.source("calm").named("events");
        let patience_rng = options.source("patience");
        let reconnect_rng = options.source("reconnect").named("events");
        let suspension_rng = options.source("suspend").named("events");
        let attribute_workload =
            options.attribute_volume.clone().map(|attribute_volume| ObjectWorkload::new(attribute_volume, object_rng));
        let which_volume = options.source("volumes").named("events");
        let damage_rng = options.source("damage-degraded").named("events");
        let availability = Availability::new(&options);
        let record_rng = options.source("record-damage").named("events");
        let disconnect_rng = options.source("disconnect").named("events");
        let take_over_rng = options.source("take-over").named("events");
        let change_rng = options.source("changes").named("events");
        let return_rng = options.source("control").named("returns");
        let silence_rng = options.source("silent-hosts").named("events");
        let life_rng = options.source("create-delete").named("events");
        let coming_rng = options.source("add-remove").named("events");
        let (file_rng, metadata) = (options.source("files").named("share"), MetadataFaults::new(&options.source("files")));
        let of_files = options.source("files").named("events");
        let file_workload = options.files.as_ref().map(|files| FileWorkload::new(files, of_files));
        let mut cluster = Cluster::new(options, trace);
        cluster.world.bound(RUN_MAX);
        if cluster.options.changes.is_some() || cluster.options.silences.is_some() {
            cluster.begin_control(cluster.options.changes.clone());
        }
        Run {
            availability,
            disconnecting: BTreeMap::new(),
            disconnect_rng,
            change_rng,
            return_rng,
            silence_rng,
            life_rng,
            coming_rng,
            take_over_rng,
            file_workload,
            file_rng,
            metadata,
            damage_rng,
            damaged: BTreeMap::new(),
            record_rng,
            ruined: None,
            cluster,
            swarm,
            workload,
            other_workloads: Vec::new(),
            which_volume,
            object_workload,
            attribute_workload,
            rng,
            calm_rng,
            patience_rng,
            reconnect_rng,
            suspension_rng,
            schedule: BTreeMap::new(),
            next_token: 0,
            crash_plans: BTreeMap::new(),
            replacement: None,
            chores: BTreeSet::new(),
            paced: None,
            takeovers: BTreeMap::new(),
            leapt: 0,
            issued: 0,
            storming: true,
            healed: Time(0),
            report: Report { runs: 1, ..Report::default() },
        }
    }

    fn go_to_the_end(&mut self) -> Result<(), Failed> {
        for node in self.cluster.world.up() {
            let by = self.swarm.skew();
            self.cluster.world.step_clock(node, by);
        }
        // Other volumes are created and removed between two swarm runs.
        let changes = !self.cluster.options.more_volumes.is_empty();
        let swarms = 1 + u32::from(changes);
        for swarm in 1..=swarms {
            self.rise();
            let options = &self.cluster.options;
            let until = self.cluster.world.now().after(options.swarm / swarms);
            let enough = options.operations * u64::from(swarm) / u64::from(swarms);
            while self.issued < enough
                && let Some(event) = self.cluster.world.next(until)
            {
                self.on_world_event(event)?;
            }
            self.heal();
            self.come_to_rest()?;
            if self.cluster.options.faults.has(FaultKind::CommonLeap) {
                self.go_on_at_once()?;
                self.come_to_rest()?;
            }
            self.go_on_without_the_dead()?;
            if !self.damaged.is_empty() {
                self.make_whole()?;
                self.come_to_rest()?;
            }
            if swarm < swarms {
                self.change_volumes()?;
            }
        }
        self.end_last_move()?;
        self.check_files()?;
        self.count_machines();
        self.count_changes();
        match self.cluster.check_all()? {
            Some(steps) => self.report.search_steps = steps,
            None => self.report.unjudged = 1,
        }
        let is_of_attribute_volume = |operation: &&ObjectOperation| operation.device == ATTRIBUTE_VOLUME;
        let (attribute_volume, devices): (Vec<_>, Vec<_>) =
            self.cluster.objects.operations().iter().partition(is_of_attribute_volume);
        (self.report.objects, self.report.attribute_volumes) =
            (count_outcomes(devices), count_outcomes(attribute_volume));
        Ok(())
    }

    /// Enables the faults of the network, and starts the clients.
    fn rise(&mut self) {
        self.storming = true;
        let (others, object_rng) = (&self.cluster.others, &mut self.which_volume);
        let workload = |volume: &VolumeDescription| Workload::new(&volume.layout, volume.stripes(), object_rng.fork());
        // The volumes of a file system are used through it.
        let is_for_clients = |volume: &&VolumeDescription| !self.cluster.is_of_files(volume.id);
        self.other_workloads = others.iter().filter(is_for_clients).map(workload).collect();
        let network = self.cluster.options.faults.network.clone();
        if network.loses_or_delays() {
            let now = self.cluster.world.now();
            self.availability.begin(now, FAULTS_OF_MESSAGES, Cause::Other, FOR_EVER);
        }
        self.cluster.world.network.set_options(network);
        if self.object_workload.is_some() || self.cluster.options.disconnects.is_some() {
            self.cluster.overhear();
        }
        for slot in self.cluster.slots() {
            self.wake_clients(slot);
        }
        let is_calm = self.cluster.options.faults.has(FaultKind::Calm);
        if !is_calm {
            let pause = self.swarm.pause();
            self.plan_fault(pause, FaultEvent::Next);
        }
        self.look_after_disks();
        if is_calm {
            let pause = self.swarm.pause();
            self.plan_fault(pause, FaultEvent::Next);
        }
        self.plan_reconnect();
        self.plan_take_over();
        self.plan_disconnect();
        self.plan_deaths();
        self.plan_damage();
        self.begin_record_damage();
        self.plan_metadata_fault();
        self.plan_checks_of_files();
        self.plan_life();
        self.plan_coming();
        self.plan_change();
        self.plan_silence();
        self.plan_suspension();
    }

    /// Every request must be answered in its time; soon after that, nothing may be in progress.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), Failed> {
        let settings = self.cluster.options.settings.clone();
        let of_files = match self.cluster.options.files {
            // A metadata server takes over, and a silent host that holds a lock is fenced.
            Some(_) => 20 * settings.host_lease + 4 * settings.resend_max,
            None => Duration::ZERO,
        };
        // A change is settled when its administrator's lease is over, and requests have waited for that.
        let of_changes = match self.cluster.control {
            Some(_) => 20 * settings.host_lease + 2 * settings.request_timeout + Duration::from_secs(60),
            None => Duration::ZERO,
        };
        let of_files = of_files + of_changes;
        let patience = AFTERMATH + settings.request_timeout + settings.host_lease + of_files;
        let answered = self.cluster.world.now().after(patience);
        while self.cluster.asked().next().is_some() {
            self.set_usual_pace();
            if self.cluster.control.is_some() {
                // Requests may wait for an administrator, and that one for a device whose slot waits for its disk.
                self.change_disks();
            }
            self.look_after_metadata()?;
            self.cluster.release_advisory_locks();
            let Some(event) = self.cluster.world.next(answered) else {
                let late: Vec<&PendingOperation> = self.cluster.asked().collect();
                let files: Vec<_> =
                    late.iter().filter_map(|asked| self.cluster.file_operation_of(&asked.record)).collect();
                return Err(Failed {
                    check: "unanswered",
                    details: format!("{late:?}\n{files:?}\n{}", self.cluster.control_state()),
                });
            };
            self.on_world_event(event)?;
        }
        let at_rest = self.cluster.world.now().after(
            AFTERMATH + 6 * settings.host_lease + 4 * settings.resend_max + 4 * settings.readmission_max + of_files,
        );
        let all_forgotten = at_rest.after(4 * settings.host_lease + Duration::from_secs(10));
        let all_arrived = self.cluster.world.now().after(AFTERMATH);
        loop {
            let pause = self.cluster.world.now().after(Duration::from_millis(100));
            while let Some(event) = self.cluster.world.next(pause) {
                self.on_world_event(event)?;
            }
            self.replace_fenced();
            self.look_after_metadata()?;
            self.cluster.release_advisory_locks();
            self.look_after_ruined();
            self.change_disks();
            self.set_usual_pace();
            let at_rest_now = self.cluster.check_nothing_is_left().and_then(|()| self.cluster.check_left());
            match at_rest_now.and_then(|()| self.cluster.check_hold()) {
                // A late copy of the operator's request may still arrive and begin.
                Ok(()) if self.cluster.is_any_disk_changing() => {}
                Ok(()) if !self.cluster.is_throttle_default() => {}
                Ok(())
                    if (self.replacement.is_some() || self.paced.is_some())
                        && self.cluster.world.now() < all_arrived => {}
                // The next requests must find a healthy array.
                Ok(()) if !self.cluster.world.is_any_stalled() && self.is_swept() => match self.cluster.check_leaks() {
                    Ok(()) => return Ok(()),
                    Err(failed) if self.cluster.world.now() > all_forgotten => return Err(failed),
                    Err(_) => {}
                },
                Ok(()) if self.cluster.world.now() > all_forgotten => {
                    let details = "dead hosts are not fenced, or a node is still stalled".into();
                    return Err(Failed { check: "left-unfenced", details });
                }
                Ok(()) => {}
                Err(failed) if self.cluster.world.now() > at_rest => return Err(failed),
                Err(_) => {}
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) -> Result<(), Failed> {
        let until = self.cluster.world.now().after(span);
        while let Some(event) = self.cluster.world.next(until) {
            self.on_world_event(event)?;
        }
        Ok(())
    }

    /// Clocks are right, and everything is healthy and at rest. Now each host must be able to read and write within seconds, whatever
    /// stamps were accepted while all clocks were ahead.
    fn go_on_at_once(&mut self) -> Result<(), Failed> {
        self.let_leases_of_the_dead_expire()?;
        let length = BLOCK_BYTES as u64;
        let stripe = self.cluster.options.layout.stripe_blocks() * length;
        let is_attribute_volume = self.cluster.options.attribute_volume.is_some();
        let users = self.cluster.slots().filter(|slot| !self.cluster.files.is_server(*slot)).collect::<Vec<_>>();
        for (slot, number) in users.into_iter().zip(0..) {
            // Blocks of each stripe, so that all devices are used; each host uses other blocks.
            let offsets = (0..self.cluster.options.stripes).map(|row| row * stripe + number * length % stripe);
            let wishes = offsets.flat_map(|offset| {
                [ClientOperation::Read { offset, length }, ClientOperation::Write { offset, length }]
            });
            for (client, operation) in wishes.enumerate() {
                if is_attribute_volume {
                    let operation = self
                        .attribute_workload
                        .as_mut()
                        .expect("the volume is an attribute volume")
                        .wish_of_attribute_volume();
                    self.cluster.wish_objects(slot, client, operation);
                } else {
                    self.cluster.operation(slot, client, operation);
                }
            }
        }
        let until = self.cluster.world.now().after(PROMPT);
        while self.cluster.asked().next().is_some() {
            let Some(event) = self.cluster.world.next(until) else {
                let late: Vec<&PendingOperation> = self.cluster.asked().collect();
                return Err(Failed { check: "slow-with-right-clocks", details: format!("{late:?}") });
            };
            if let WorldEvent::Reply { outcome: Err(error @ HostError::ClockApart { .. }), .. } = &event {
                return Err(Failed { check: "refused-with-right-clocks", details: error.to_string() });
            }
            self.on_world_event(event)?;
        }
        Ok(())
    }

    /// Late messages of dead hosts renew their leases at lock servers, which look for silent hosts four times in each lease.
    fn let_leases_of_the_dead_expire(&mut self) -> Result<(), Failed> {
        let Options { faults, settings, lock_servers, .. } = &self.cluster.options;
        if *lock_servers == 0 || !faults.network.loses_or_delays() {
            return Ok(());
        }
        let late = faults.network.delay_max.max(faults.network.held_max);
        let lease = settings.host_lease + settings.host_lease / 4 + 2 * settings.heartbeat;
        let until = self.healed.after(late + lease);
        while let Some(event) = self.cluster.world.next(until) {
            self.on_world_event(event)?;
        }
        Ok(())
    }

    pub(crate) fn on_world_event(&mut self, event: WorldEvent) -> Result<(), Failed> {
        self.cluster.check_moment()?;
        self.look_after_metadata()?;
        self.availability.observe(&self.cluster);
        match event {
            WorldEvent::Reply { op, outcome, .. } => {
                let is_operators = self.on_replacement(op, &outcome) | self.chores.remove(&op);
                let answered = self.cluster.on_reply(op, &outcome)?;
                let is_operators = is_operators | self.cluster.on_control_reply(op, &outcome);
                let is_operators = is_operators | self.on_takeover(op, &outcome) | self.on_release(op);
                if let Some(asked) = answered
                    && !is_operators
                {
                    if let Some(operation) = self.cluster.object_operation(&asked) {
                        let is_of_attribute_volume = operation.device == ATTRIBUTE_VOLUME;
                        let wishes = if is_of_attribute_volume {
                            &mut self.attribute_workload
                        } else {
                            &mut self.object_workload
                        };
                        wishes.as_mut().expect("an object request has an object workload").learn(operation);
                    }
                    if let Some(operation) = self.cluster.file_operation_of(&asked.record) {
                        self.file_workload.as_mut().expect("the run has a file system").learn(operation);
                    }
                    // No client waits for an abandoned operation.
                    if !asked.abandoned {
                        self.judge(&asked, &outcome)?;
                    }
                    self.count_answer(&outcome);
                    let took = self.cluster.world.now().since(asked.since);
                    self.report.slowest = self.report.slowest.max(took);
                    match outcome {
                        Err(HostError::Fenced) => self.replace_fenced(),
                        // The client has gone on to another operation.
                        _ if asked.abandoned => {}
                        _ => self.think(asked.node, asked.client),
                    }
                }
                self.on_disconnected(op);
            }
            WorldEvent::PowerFailed(node) => {
                let (unavailable, reboot) =
                    self.crash_plans.remove(&node).expect("power fails only where it was planned");
                let name = Fault::Crash { node, at: Some(CrashPoint::Write(1)), unavailable, reboot }.name();
                self.count_fault(name);
                self.availability.begin(self.cluster.world.now(), name, Cause::of(node), unavailable);
                if let NodeId::Host(host) = node {
                    self.cluster.files.unknown.insert(host);
                    self.cluster.forget_asked(node);
                }
                self.plan(unavailable, ScheduledEvent::FaultEvent(FaultEvent::Return { node, reboot }));
            }
            WorldEvent::Suspended { node, span } => self.on_suspended(node, span),
            WorldEvent::Stepped(_) => {}
            WorldEvent::Alarm(token) if self.cluster.on_control_alarm(token) => self.return_administrators(),
            WorldEvent::Alarm(token) => {
                let schedule = self.schedule.remove(&token).expect("every alarm has a purpose");
                if self.storming {
                    self.on_scheduled(schedule);
                }
            }
        }
        Ok(())
    }

    /// Checks an answer against the availability that is promised.
    fn judge(&mut self, asked: &PendingOperation, outcome: &HostOutcome) -> Result<(), Failed> {
        let must_wait = match asked.patience {
            Patience::Host => false,
            // A host's clock may run fast, by less than a twentieth.
            Patience::For(span) => self.cluster.world.now().since(asked.since) < span - span / 20,
            Patience::Endless => true,
        };
        if let Err(error) = outcome
            && must_wait
            && !is_final(error)
            && !(asked.patience != Patience::Endless && is_undecidable(asked, error))
            && !self.is_disconnecting(asked.node)
        {
            return Err(Failed { check: "impatient", details: format!("{asked:?}: {error}") });
        }
        if self.cluster.file_operation_of(&asked.record).is_some() {
            return self.judge_files(asked, outcome);
        }
        // Objects of a device are unavailable with it, and requests for them or for an attribute volume may have short time-outs. And
        // requests wait while a volume is on hold.
        let is_changing = self.cluster.control.is_some();
        if self.cluster.object_operation(asked).is_some() || is_changing {
            return Ok(());
        }
        match self.availability.judge(asked.node, asked.since, self.cluster.world.now(), outcome.as_ref().err()) {
            Ok(Judged::InQuiet { took }) => {
                self.report.quiet += 1;
                self.report.slowest_quiet = self.report.slowest_quiet.max(took);
                Ok(())
            }
            Ok(Judged::InPause { name, leases }) => {
                let longest = self.report.pauses.entry(name).or_default();
                *longest = leases.max(*longest);
                Ok(())
            }
            Ok(Judged::Excused) => Ok(()),
            Err(details) => Err(Failed { check: "availability", details }),
        }
    }

    /// True if no fault is active, and no effect of a fault remains.
    pub(crate) fn is_quiet(&self) -> bool {
        self.crash_plans.is_empty() && self.availability.is_quiet(self.cluster.world.now())
    }

    fn on_scheduled(&mut self, schedule: ScheduledEvent) {
        match schedule {
            ScheduledEvent::ClientOperation { slot, node, client } => {
                let is_there = self.cluster.node(slot) == node && self.cluster.world.machine(node).is_some();
                if is_there && !self.is_disconnecting(node) {
                    self.issued += 1;
                    if self.wish_of_files(slot, client) {
                        return;
                    }
                    let of_objects = self.object_workload.as_mut().and_then(ObjectWorkload::operation);
                    match (of_objects, &mut self.attribute_workload) {
                        (Some(operation), _) => drop(self.cluster.wish_objects(slot, client, operation)),
                        (None, Some(wishes)) => {
                            let operation = wishes.wish_of_attribute_volume();
                            self.cluster.wish_objects(slot, client, operation);
                        }
                        (None, None) => {
                            self.wish_of_a_volume(slot, client);
                        }
                    }
                }
            }
            ScheduledEvent::FaultEvent(fault_events) => self.on_fault_event(fault_events),
        }
    }

    /// A process of a host that has the file system mounted issues an operation on files, in most cases.
    fn wish_of_files(&mut self, slot: HostSlot, client: usize) -> bool {
        let (Some(files), Some(workload)) = (&self.cluster.options.files, &mut self.file_workload) else {
            return false;
        };
        if !self.cluster.files.hosts.contains(&slot) || !self.file_rng.chance(files.share, 100) {
            return false;
        }
        let node = self.cluster.node(slot);
        let (open, held) = (self.cluster.files.open_files(node, client), self.cluster.files.held_locks(node, client));
        let call = workload.operation(client, &open, &held);
        if let FilesRequest::Close { handle } = call.0 {
            self.cluster.forget_handle(slot, client, handle);
        }
        self.cluster.file_operation(slot, client, call);
        true
    }

    /// A client issues an operation on one of the volumes.
    fn wish_of_a_volume(&mut self, slot: HostSlot, client: usize) {
        if self.wish_of_a_created_volume(slot, client) {
            return;
        }
        let number = match self.other_workloads.len() as u64 {
            0 => 0,
            others => self.which_volume.below(others + 1) as usize,
        };
        let patience = if self.patience_rng.chance(1, ENDLESS_IN) {
            Patience::Endless
        } else if self.patience_rng.chance(1, ENDLESS_IN) {
            Patience::For(Duration::from_millis(self.patience_rng.between(100, 20_000)))
        } else {
            Patience::Host
        };
        match self.other_workloads.get_mut(number.wrapping_sub(1)) {
            Some(workload) => {
                let operation = workload.operation();
                self.cluster.on_volume(number - 1, |cluster| cluster.operation_with(slot, client, operation, patience));
            }
            None => {
                self.workload.follow(self.cluster.volume().bytes);
                let operation = self.workload.operation();
                self.cluster.operation_with(slot, client, operation, patience);
            }
        }
    }

    /// Starts a device, a lock server or the monitor, if it is down.
    pub(crate) fn restart(&mut self, node: NodeId) {
        match node {
            _ if self.cluster.world.machine(node).is_some() => {}
            NodeId::Device(device) if self.cluster.dead.contains(&device) => {}
            NodeId::Device(device) => self.cluster.restart_device(device),
            NodeId::LockServer(server) => self.cluster.restart_lock_server(server),
            NodeId::Monitor => self.cluster.restart_monitor(),
            NodeId::MetadataServer(_) => unreachable!("its process is a host"),
            NodeId::Host(_) => unreachable!("a host returns as a new generation"),
        }
    }

    /// Makes power fail at a node. The requests of a host then have unknown outcomes.
    pub(crate) fn crash(&mut self, node: NodeId) {
        self.count_machine(node);
        if matches!(node, NodeId::Host(_)) {
            let lost = self.cluster.asked().filter(|asked| asked.node == node).count() as u64;
            *self.report.unknown.entry("host died").or_default() += lost;
        }
        self.cluster.crash(node);
    }

    /// Hosts that have learned that they are fenced end, and new hosts take their places.
    fn replace_fenced(&mut self) {
        for slot in self.cluster.fenced() {
            self.count_fault("host fenced");
            self.crash(self.cluster.node(slot));
            self.replace_if_down(slot);
            self.wake_clients(slot);
        }
    }

    pub(crate) fn replace_if_down(&mut self, slot: HostSlot) {
        let waits = self.cluster.files.is_server(slot) && !self.may_serve();
        if self.cluster.world.machine(self.cluster.node(slot)).is_none() && !waits {
            let boot = Time(self.rng.below(1_000_000_000_000));
            self.cluster.replace_host(slot, LocalClock::exact(boot).drifting(self.swarm.drift_ppm()));
            let (node, by) = (self.cluster.node(slot), self.swarm.skew() + self.leapt);
            self.cluster.world.step_clock(node, by);
        }
    }

    pub(crate) fn wake_clients(&mut self, slot: HostSlot) {
        let node = self.cluster.node(slot);
        if self.cluster.files.is_server(slot) {
            return;
        }
        (0..self.cluster.options.clients).for_each(|client| self.think(node, client));
    }

    fn think(&mut self, node: NodeId, client: usize) {
        if let Some(slot) = self.cluster.slot(node).filter(|_| self.storming) {
            let most = self.cluster.options.think_max.as_nanos() as u64;
            let span = Duration::from_nanos(self.rng.below(most) + 1);
            self.plan(span, ScheduledEvent::ClientOperation { slot, node, client });
        }
    }

    pub(crate) fn plan(&mut self, span: Duration, schedule: ScheduledEvent) {
        let at = self.cluster.world.now().after(span);
        self.next_token += 1;
        self.schedule.insert(self.next_token, schedule);
        self.cluster.world.alarm(at, self.next_token);
    }
}

/// True for an error that may end a write of limited patience early: its outcome can't be known, since all its devices have been out.
fn is_undecidable(asked: &PendingOperation, error: &HostError) -> bool {
    matches!((&asked.record, error), (Record::Write(_), HostError::Unavailable { .. }))
}

/// True for an error that may end an operation of endless patience: nothing has happened, and nothing will.
fn is_final(error: &HostError) -> bool {
    let lasts = |failure: &WireFailure| matches!(failure, WireFailure::NoSpace | WireFailure::Lost { .. });
    match error {
        HostError::Fenced => true,
        HostError::Device { failure, .. } => lasts(failure),
        _ => false,
    }
}

thread_local! {
    /// The message of this thread's last panic.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether this thread executes a run.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A panic in a run is reported like other failures: its message goes into the failure instead of being printed.
fn catch_panics_quietly() {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            LAST_PANIC.set(info.to_string());
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
}
