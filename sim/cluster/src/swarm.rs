//! A swarm run executes one seed, from options to verdict. Clients work while faults happen. Then everything heals, and the array
//! must come to rest without any loss.

mod counting;

use crate::activity::{Acting, Running};
use crate::at_rest;
use crate::availability::{Availability, Cause, Judged};
use crate::building;
use crate::cluster;
use crate::cluster::{AFTERMATH, Cluster, Failed, HostSlot, PendingOperation, Record, device_notes, failed};
use crate::control::at_rest::check_hold;
use crate::fault_injection::causes;
use crate::files;
use crate::leaks;
use crate::object_requests;
use crate::options::Options;
use crate::prelude::*;
use crate::report::{Failure, Report};
use crate::workload::{ClientOperation, Workload};
use braid_check::FileHistory;
use braid_wire::Failure as WireFailure;
use braid_world::{Bound, CrashPoint, Swarm};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

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
    outcome.unwrap_or_else(|_| failed("panic", LAST_PANIC.take()))
}

/// A run in progress.
pub(crate) struct Run {
    pub(crate) cluster: Cluster,
    pub(crate) swarm: Swarm,
    /// The faults of the run, and the errors and delays that they excuse.
    pub(crate) availability: Availability,
    workload: Workload,
    /// What happens beside; also what it has done so far.
    pub(crate) activities: Running,
    pub(crate) rng: Rng,
    /// Decides which operations have endless patience.
    patience_rng: Rng,
    /// Decides when hosts return that died as administrators.
    pub(crate) return_rng: Rng,
    /// The purpose of each alarm.
    schedule: BTreeMap<u64, Event>,
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

/// An event in the future.
type Event = Box<dyn FnOnce(&mut Run)>;

impl Run {
    fn new(options: Options, trace: Trace) -> Run {
        let mut rng = options.source("run");
        let swarm = Swarm::new(options.faults.clone(), rng.fork());
        let workload = Workload::new(&options.layout, options.stripes, rng.fork());
        let (patience_rng, return_rng) = (options.source("patience"), options.source("control").named("returns"));
        let availability = Availability::new(&options);
        let activities = Running::of(&options);
        let mut cluster = Cluster::new(options, trace);
        cluster.world.bound(RUN_MAX);
        if cluster.options.activities.has_any(&["changes", "silent-hosts"]) {
            let changes = cluster.options.activity().cloned();
            cluster.begin_control(changes);
        }
        Run {
            availability,
            activities,
            disconnecting: BTreeMap::new(),
            cluster,
            swarm,
            workload,
            rng,
            patience_rng,
            return_rng,
            schedule: BTreeMap::new(),
            next_token: 0,
            crash_plans: BTreeMap::new(),
            replacement: None,
            chores: BTreeSet::new(),
            paced: None,
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
        let swarms = 1 + u32::from(self.cluster.options.activities.has("volumes"));
        for swarm in 1..=swarms {
            self.rise();
            let options = &self.cluster.options;
            let until = self.cluster.world.now().after(options.swarm / swarms);
            let enough = options.operations * u64::from(swarm) / u64::from(swarms);
            while self.issued < enough
                && let Some(event) = self.cluster.next(until)
            {
                self.on_world_event(event)?;
            }
            let damaged = self.heal();
            self.come_to_rest()?;
            self.repair(damaged)?;
            if self.cluster.options.faults.has(FaultKind::CommonLeap) {
                self.go_on_at_once()?;
                self.come_to_rest()?;
            }
            self.try_each(|Acting { activity, rng, .. }, run| activity.at_rest(run, rng, swarm == swarms))?;
        }
        self.try_each(|acting, run| acting.activity.finish(run))?;
        self.cluster.world.up().into_iter().for_each(|node| self.count_machine(node));
        match self.cluster.check_all()? {
            Some(steps) => self.report.search_steps = steps,
            None => self.report.unjudged = 1,
        }
        self.each(|Acting { activity, .. }, run| activity.count(&run.cluster, &mut run.report));
        Ok(())
    }

    /// Scrubs stripes that had a damaged block until everything became healthy. If a device missed a write of that row, it was told that the
    /// block is lost there, too; now that the damaged block is readable again, redundancy covers it.
    fn repair(&mut self, damaged: BTreeSet<u64>) -> Result<(), Failed> {
        if damaged.is_empty() || self.cluster.options.activities.has("damage-degraded") {
            return Ok(());
        }
        // One more host might find no room at the devices.
        let host = self.staying_slots().first().copied().unwrap_or_else(|| self.cluster.add_host());
        let volume = self.cluster.volume().id;
        for stripe in damaged {
            let scrub = JobRequest::Scrub { volume, stripes: stripe..stripe + 1, repair: true, recompute: false };
            let scrubbed = at_rest::outcome_at_rest(&mut self.cluster, |array| array.ask(host, scrub.clone()))?;
            if !matches!(scrubbed, Ok(HostSuccess::Scrubbed(_))) {
                return failed("not-scrubbed", format!("{scrubbed:?}"));
            }
        }
        self.come_to_rest()
    }

    /// Enables the faults of the network, and starts the clients.
    fn rise(&mut self) {
        self.storming = true;
        let network = self.cluster.options.faults.network.clone();
        if network.loses_or_delays() {
            let now = self.cluster.world.now();
            self.availability.begin(now, FAULTS_OF_MESSAGES, Cause::Other, FOR_EVER);
        }
        self.cluster.world.network.set_options(network);
        for slot in self.cluster.slots() {
            self.wake_clients(slot);
        }
        if !self.cluster.options.activities.has("calm") {
            self.plan_next_fault();
        }
        self.watch_disks();
        self.start_activities();
    }

    /// Every request must be answered in its time; soon after that, nothing may be in progress.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), Failed> {
        let settings = self.cluster.options.settings.clone();
        // A metadata server takes over, and a silent host that holds a lock is fenced.
        let of_files = match self.cluster.options.activities.has("files") {
            true => 20 * settings.host_lease + 4 * settings.resend_max,
            false => Duration::ZERO,
        };
        // A change is settled when its administrator's lease is over, and requests have waited for that.
        let of_changes = match self.cluster.control {
            Some(_) => 20 * settings.host_lease + 2 * settings.request_timeout + Duration::from_secs(60),
            None => Duration::ZERO,
        };
        let of_files = of_files + of_changes;
        let patience = AFTERMATH + settings.request_timeout + settings.host_lease + of_files;
        let answered = self.cluster.world.now().after(patience);
        while self.cluster.requests.asked().next().is_some() {
            self.set_usual_pace();
            if self.cluster.control.is_some() {
                // Requests may wait for an administrator, and that one for a device whose slot waits for its disk.
                self.change_disks();
            }
            self.look_after_activities()?;
            self.each(|acting, run| acting.activity.drain(run));
            let Some(event) = self.cluster.next(answered) else {
                let late: Vec<&PendingOperation> = self.cluster.requests.asked().collect();
                let files: Vec<_> =
                    late.iter().filter_map(|asked| files::file_operation_of(&self.cluster, &asked.record)).collect();
                let control = self.cluster.control.as_ref().map_or(String::new(), |control| control.state());
                return failed("unanswered", format!("{late:?}\n{files:?}\n{control}"));
            };
            self.on_world_event(event)?;
        }
        let at_rest = self.cluster.world.now().after(
            AFTERMATH + 6 * settings.host_lease + 4 * settings.resend_max + 4 * settings.readmission_max + of_files,
        );
        let all_forgotten = at_rest.after(4 * settings.host_lease + Duration::from_secs(10));
        let all_arrived = self.cluster.world.now().after(AFTERMATH);
        loop {
            self.pass(Duration::from_millis(100))?;
            self.replace_fenced();
            self.look_after_activities()?;
            self.each(|acting, run| acting.activity.drain(run));
            self.each(|Acting { activity, .. }, run| activity.supervise(run));
            self.change_disks();
            self.set_usual_pace();
            let at_rest_now =
                at_rest::check_nothing_is_left(&self.cluster).and_then(|()| leaks::check_left(&self.cluster));
            match at_rest_now.and_then(|()| check_hold(&self.cluster)) {
                // A late copy of the operator's request may still arrive and begin.
                Ok(()) if device_notes::is_any_disk_changing(&self.cluster) => {}
                Ok(()) if !cluster::is_throttle_default(&self.cluster) => {}
                Ok(())
                    if (self.replacement.is_some() || self.paced.is_some())
                        && self.cluster.world.now() < all_arrived => {}
                // The next requests must find a healthy array.
                Ok(()) if !self.cluster.world.is_any_stalled() && self.is_swept() => {
                    match leaks::check_leaks(&self.cluster) {
                        Ok(()) => return Ok(()),
                        Err(failed) if self.cluster.world.now() > all_forgotten => return Err(failed),
                        Err(_) => {}
                    }
                }
                Ok(()) if self.cluster.world.now() > all_forgotten => {
                    return failed("left-unfenced", "dead hosts are not fenced, or a node is still stalled".into());
                }
                Ok(()) => {}
                Err(failed) if self.cluster.world.now() > at_rest => return Err(failed),
                Err(_) => {}
            }
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, span: Duration) -> Result<(), Failed> {
        self.pass_until(self.cluster.world.now().after(span))
    }

    fn pass_until(&mut self, until: Time) -> Result<(), Failed> {
        while let Some(event) = self.cluster.next(until) {
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
        let users = self.cluster.slots().filter(|slot| !self.cluster.files.is_server(*slot)).collect::<Vec<_>>();
        for (slot, number) in users.into_iter().zip(0..) {
            // Blocks of each stripe, so that all devices are used; each host uses other blocks.
            let offsets = (0..self.cluster.options.stripes).map(|row| row * stripe + number * length % stripe);
            let wishes = offsets.flat_map(|offset| {
                [ClientOperation::Read { offset, length }, ClientOperation::Write { offset, length }]
            });
            for (client, operation) in wishes.enumerate() {
                let mut is_used = false;
                self.each(|Acting { activity, .. }, run| is_used |= activity.use_volume(run, slot, client));
                if !is_used {
                    self.cluster.operation(slot, client, operation);
                }
            }
        }
        let until = self.cluster.world.now().after(PROMPT);
        while self.cluster.requests.asked().next().is_some() {
            let Some(event) = self.cluster.next(until) else {
                let late: Vec<&PendingOperation> = self.cluster.requests.asked().collect();
                return failed("slow-with-right-clocks", format!("{late:?}"));
            };
            if let WorldEvent::Reply { outcome: Err(error @ HostError::ClockApart { .. }), .. } = &event {
                return failed("refused-with-right-clocks", error.to_string());
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
        self.pass_until(self.healed.after(late + lease))
    }

    pub(crate) fn on_world_event(&mut self, event: WorldEvent) -> Result<(), Failed> {
        self.cluster.check_moment()?;
        self.look_after_activities()?;
        self.availability.observe(&self.cluster);
        match event {
            WorldEvent::Reply { op, outcome, .. } => {
                let is_operators = self.on_replacement(op, &outcome) | self.chores.remove(&op);
                let answered = self.cluster.on_reply(op, &outcome)?;
                let mut is_operators = is_operators | self.cluster.on_control_reply(op, &outcome);
                self.each(|Acting { activity, .. }, run| is_operators |= activity.on_reply(run, op, &outcome));
                if let Some(asked) = answered
                    && !is_operators
                {
                    self.each(|Acting { activity, .. }, run| activity.learn(&run.cluster, &asked));
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
                self.cluster.forget(node);
                let Some((unavailable, reboot)) = self.crash_plans.remove(&node) else {
                    assert!(self.cluster.world.places.is_shared(node), "power fails only where it was planned");
                    return Ok(());
                };
                let name = Fault::Crash { node, at: Some(CrashPoint::Write(1)), unavailable, reboot }.name();
                self.count_fault(name);
                let causes = causes(&self.cluster.world.places, node);
                self.availability.begin_together(self.cluster.world.now(), name, &causes, unavailable);
                self.plan(unavailable, move |run| run.bring_back(node, reboot));
            }
            WorldEvent::Suspended { node, span } => self.on_suspended(node, span),
            WorldEvent::Stepped(_) => {}
            WorldEvent::Alarm(token) if self.cluster.on_control_alarm(token) => self.return_administrators(),
            WorldEvent::Alarm(token) => {
                let event = self.schedule.remove(&token).expect("every alarm has a purpose");
                if self.storming {
                    event(self);
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
            return failed("impatient", format!("{asked:?}: {error}"));
        }
        if let Some(judged) = self.activities.iter().find_map(|activity| activity.judge(self, asked, outcome)) {
            return judged;
        }
        // Objects of a device are unavailable with it, and requests for them or for an attribute volume may have short time-outs. And
        // requests wait while a volume is on hold.
        let is_changing = self.cluster.control.is_some();
        if object_requests::object_operation(&self.cluster, asked).is_some() || is_changing {
            return Ok(());
        }
        match self.availability.judge(asked.node, asked.since, self.cluster.world.now(), outcome.as_ref().err()) {
            Ok(Judged::InQuiet { took }) => {
                self.report.quiet += 1;
                self.report.slowest_quiet = self.report.slowest_quiet.max(took);
                Ok(())
            }
            Ok(Judged::InPause { name, leases }) => {
                self.report.note_pause(name, leases);
                Ok(())
            }
            Ok(Judged::Excused) => Ok(()),
            Err(details) => failed("availability", details),
        }
    }

    /// True if no fault is active, and no effect of a fault remains.
    pub(crate) fn is_quiet(&self) -> bool {
        self.crash_plans.is_empty() && self.availability.is_quiet(self.cluster.world.now())
    }

    /// A client has finished its think time, and issues an operation.
    fn operate(&mut self, slot: HostSlot, node: NodeId, client: usize) {
        let is_there = self.cluster.node(slot) == node && self.cluster.world.is_up(node);
        // Another reason to go on may have woken it meanwhile. It thinks again when it is answered.
        let is_its = |asked: &PendingOperation| (asked.node, asked.client) == (node, client) && !asked.abandoned;
        if !is_there || self.is_disconnecting(node) || self.cluster.requests.asked().any(is_its) {
            return;
        }
        self.issued += 1;
        let mut is_done = false;
        self.each(|Acting { activity, rng, .. }, run| is_done = is_done || activity.operate(run, rng, slot, client));
        self.each(|Acting { activity, .. }, run| is_done = is_done || activity.use_volume(run, slot, client));
        if !is_done {
            let patience = self.patience();
            self.workload.follow(self.cluster.volume().bytes);
            let operation = self.workload.operation();
            self.cluster.operation_with(slot, client, operation, patience);
        }
    }

    /// How long the next operation may wait.
    pub(crate) fn patience(&mut self) -> Patience {
        if self.patience_rng.chance(1, ENDLESS_IN) {
            Patience::Endless
        } else if self.patience_rng.chance(1, ENDLESS_IN) {
            Patience::For(Duration::from_millis(self.patience_rng.between(100, 20_000)))
        } else {
            Patience::Host
        }
    }

    /// Starts a device, a lock server or the monitor, if it is down.
    pub(crate) fn restart(&mut self, node: NodeId) {
        match node {
            _ if self.cluster.world.is_up(node) => {}
            NodeId::Device(device) if self.cluster.device_notes.dead.contains(&device) => {}
            _ => building::restart(&mut self.cluster, node),
        }
    }

    /// Makes power fail at a node, and at all others at its place.
    pub(crate) fn crash(&mut self, node: NodeId) {
        self.cluster.world.up_together(node).into_iter().for_each(|node| self.crash_alone(node));
    }

    /// Ends one node as a loss of power does. The requests of a host then have unknown outcomes.
    pub(crate) fn crash_alone(&mut self, node: NodeId) {
        self.count_machine(node);
        if matches!(node, NodeId::Host(_)) {
            let lost = self.cluster.requests.asked().filter(|asked| asked.node == node).count() as u64;
            *self.report.unknown.entry("host died").or_default() += lost;
        }
        self.cluster.world.crash_alone(node);
        self.cluster.forget(node);
    }

    /// Hosts that have learned that they are fenced end, and new hosts take their places.
    fn replace_fenced(&mut self) {
        for slot in self.cluster.fenced() {
            self.count_fault("host fenced");
            self.crash_alone(self.cluster.node(slot));
            self.replace_if_down(slot);
            self.wake_clients(slot);
        }
    }

    pub(crate) fn replace_if_down(&mut self, slot: HostSlot) {
        let is_down = !self.cluster.world.is_up(self.cluster.node(slot));
        if is_down && !self.cluster.files.processes.contains(&slot) {
            let boot = Time(self.rng.below(1_000_000_000_000));
            self.cluster.replace_host(slot, LocalClock::exact(boot).drifting(self.swarm.drift_ppm()));
            let (node, by) = (self.cluster.node(slot), self.swarm.skew() + self.leapt);
            if !self.cluster.world.places.is_shared(node) {
                self.cluster.world.step_clock(node, by);
            }
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
        // Nobody works at a metadata server, where a step of the control plane may be answered.
        let works = |slot: &HostSlot| self.storming && !self.cluster.files.is_server(*slot);
        if let Some(slot) = self.cluster.slot(node).filter(works) {
            let most = self.cluster.options.think_max.as_nanos() as u64;
            let span = Duration::from_nanos(self.rng.below(most) + 1);
            self.plan(span, move |run| run.operate(slot, node, client));
        }
    }

    /// Plans an event, unless everything heals before.
    pub(crate) fn plan(&mut self, span: Duration, event: impl FnOnce(&mut Run) + 'static) {
        let at = self.cluster.world.now().after(span);
        self.next_token += 1;
        self.schedule.insert(self.next_token, Box::new(event));
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
