//! Operations of scenarios on objects with bytes and attributes. The requests of clients have a history of their own, which is
//! checked at the end.

use crate::activity::{Activity, Draw, Feature};
use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, Record, failed};
use crate::object_workload::attribute_volume::ATTRIBUTE_VOLUME;
use crate::object_workload::{ObjectAsks, ObjectChoice, ObjectOptions, ObjectWorkload, command, get};
use crate::options::Options;
use crate::report::Report;
use crate::swarm::Run;
use braid_base::{DeviceId, NodeId, ObjectId, Rng, limits};
use braid_check::{
    Client, Linearizability, ObjectHistory, ObjectOperation, Objects, check_counters, check_objects, count_outcomes,
    is_beyond_the_model,
};
use braid_machine::{HostError, HostOutcome, HostSuccess, ObjectsRequest, OpId};
use braid_objects::{evaluate, map_access::apply};
use braid_ordering::Atomicity;
use braid_wire::{Action, ActionResult, AttributeName, CommandResult, ObjectCommand, ObjectRequest};
use braid_world::{FaultKind, Verdict};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// The number of clients of all hosts together, where there are many; each has one operation in progress.
const CLIENTS_AT_ONCE_MAX: usize = 12;
/// The longest delay of a message that is held at a cut.
const HELD_MAX: Duration = Duration::from_secs(1);
/// Bytes of a device for objects, in addition to those for the volume.
const BYTES_FOR_OBJECTS: u64 = 16 << 20;

/// Clients also use objects of devices.
#[derive(Clone, Debug)]
pub(crate) struct ObjectUse {
    options: ObjectOptions,
    workload: ObjectWorkload,
}

impl Feature for ObjectUse {
    const NAME: &'static str = "objects";
    const ONE_IN: u64 = 4;
    const NEEDS_ATOMICITY: bool = false;

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<ObjectUse> {
        // An object lies on one device: a lost disk would lose it.
        options.without_faults(&[FaultKind::Replace, FaultKind::Misdirected]);
        // Tests of exactly-once execution need many requests that are interrupted.
        let is_atomic = options.atomicity == Atomicity::Implied;
        let often = draw.rng.below(2) == 0 && is_atomic;
        let faults = &mut options.faults;
        if often && draw.choices.may(FaultKind::DeviceCrash.name()) {
            faults.weights.insert(FaultKind::DeviceCrash, 30);
            faults.every = faults.every.min(Duration::from_millis(200));
            faults.span_max = faults.span_max.min(Duration::from_millis(500));
        }
        let objects = ObjectOptions::draw(&mut draw.rng, options.settings.request_timeout);
        // By the time a cut is healed, impatient requests are abandoned, and their messages arrive late.
        if objects.hasty > 0 && is_atomic && draw.choices.may(FaultKind::Cut.name()) {
            faults.weights.insert(FaultKind::Cut, 20);
            faults.every = faults.every.min(Duration::from_millis(300));
            (faults.network.held, faults.network.held_max) = (3_000, HELD_MAX);
        }
        // Where much is written to the journal, the journal wraps around soon.
        if objects.bulk_bytes_max > 0 && !options.activities.has("migrate") {
            options.journal_bytes = Some(1 << 20);
        }
        // Devices without space refuse objects: here they must accept them.
        options.chunks = None;
        options.device_bytes += BYTES_FOR_OBJECTS;
        // The operations on the volume are checked, too; many of them at once take long to check. And not too many object requests
        // may be in progress.
        if objects.share > 90 && is_atomic {
            options.clients = options.clients.max(objects.crowd.min(CLIENTS_AT_ONCE_MAX / options.hosts));
        }
        let workload = ObjectWorkload::new(objects.clone(), options.source(Self::NAME).named("events"));
        Some(ObjectUse { options: objects, workload })
    }
}

impl Activity for ObjectUse {
    fn prepare(&self, cluster: &mut Cluster, first: HostSlot) {
        for device in cluster.devices().into_iter().take(self.options.devices.into()) {
            cluster.make_objects(first, device, 1..=self.options.staying);
        }
    }

    fn start(&mut self, run: &mut Run, _rng: &mut Rng) {
        self.workload.limit_devices(run.cluster.devices().len() as u16);
        run.cluster.overhear();
    }

    fn operate(&mut self, run: &mut Run, _rng: &mut Rng, slot: HostSlot, client: usize) -> bool {
        let operation = self.workload.operation();
        operation.map(|operation| run.cluster.wish_objects(slot, client, operation)).is_some()
    }

    fn learn(&mut self, cluster: &Cluster, answered: &PendingOperation) {
        if let Some(operation) = cluster.object_operation(answered).filter(|it| it.device != ATTRIBUTE_VOLUME) {
            self.workload.learn(operation);
        }
    }

    fn count(&self, cluster: &Cluster, report: &mut Report) {
        let operations = cluster.objects.operations().iter().filter(|operation| operation.device != ATTRIBUTE_VOLUME);
        report.count(Self::NAME, count_outcomes(operations));
    }
}

impl Cluster {
    /// Creates the first objects of a device, with these numbers.
    pub fn make_objects(&mut self, by: HostSlot, device: DeviceId, numbers: impl IntoIterator<Item = u64>) {
        let commands = numbers.into_iter().map(|number| command(ObjectId(number), Action::Create)).collect();
        let request = ObjectRequest { commands };
        let patience = self.options.settings.request_timeout;
        let asked = self.ask(by, ObjectsRequest::Execute { device, request: request.clone(), patience });
        let mut there = Objects::new();
        let evaluation = evaluate(&request, &mut there).expect("all of the map is in memory");
        apply(&evaluation.changes, &mut there);
        let results = evaluation.answer.expect("the device has no objects yet");
        assert_eq!(self.finish(asked), Ok(HostSuccess::Objects(results)), "a new device accepts objects");
        self.objects.begin_with(device, there);
    }

    /// Issues an object operation of a client at a host.
    pub fn wish_objects(&mut self, slot: HostSlot, client: usize, operation: ObjectChoice) -> OpId {
        let (now, node) = (self.world.now(), self.node(slot));
        let NodeId::Host(generation) = node else { unreachable!("host slots hold hosts") };
        let name = Client { host: generation.0, number: client };
        let ObjectChoice { device, asks, patience } = operation;
        let (request, record) = match asks {
            ObjectAsks::Request(request) if device == ATTRIBUTE_VOLUME => {
                let id = self.objects.ask(name, now, device, request.clone());
                let volume = self.volume.id;
                (ObjectsRequest::ExecuteOnVolume { volume, request, patience }, Record::AttributeVolume(id))
            }
            ObjectAsks::Request(request) => {
                let id = self.objects.ask(name, now, device, request.clone());
                (ObjectsRequest::Execute { device, request, patience }, Record::Objects(id))
            }
            ObjectAsks::Change(object, attribute, seen) => {
                // It counts as a read at the moment of the change.
                let look = ObjectRequest { commands: vec![get(object, attribute)] };
                let id = self.objects.ask(name, now, device, look);
                let request = ObjectsRequest::Await { device, object, name: attribute, seen: seen.clone(), patience };
                (request, Record::Change(id, seen))
            }
        };
        self.begin(slot, client, request, record)
    }

    /// Issues commands as a part of the history.
    pub fn have_done(&mut self, slot: HostSlot, device: DeviceId, commands: Vec<ObjectCommand>) -> OpId {
        let patience = self.options.settings.request_timeout;
        let asks = ObjectAsks::Request(ObjectRequest { commands });
        self.wish_objects(slot, 0, ObjectChoice { device, asks, patience })
    }

    /// The object request of an operation, with its outcome.
    pub(crate) fn object_operation(&self, asked: &PendingOperation) -> Option<&ObjectOperation> {
        match asked.record {
            Record::Objects(id) | Record::Change(id, _) | Record::AttributeVolume(id) => {
                Some(self.objects.operation(id))
            }
            _ => None,
        }
    }

    /// Records an answer in the history.
    pub(crate) fn on_object_reply(&mut self, record: &Record, outcome: &HostOutcome) -> Result<(), Failed> {
        let now = self.world.now();
        if let Record::Objects(id) = record {
            self.undecided.hold_to_what_was_abandoned(&mut self.objects, now, *id, outcome);
        }
        match (record, outcome) {
            (Record::Objects(id), Ok(HostSuccess::Objects(results))) => {
                self.objects.answered(*id, now, Ok(results.clone()));
            }
            (Record::Change(id, seen), Ok(HostSuccess::Value(value))) if seen != value => {
                let result = CommandResult { action: ActionResult::Done, values: vec![value.clone()] };
                self.objects.answered(*id, now, Ok(vec![result]));
            }
            // No change is known to have happened.
            (Record::Change(id, _), Ok(HostSuccess::Value(_))) => self.objects.never(*id),
            (Record::Objects(id) | Record::Change(id, _), Err(HostError::Objects(refusal)))
                if !is_beyond_the_model(refusal.failure) =>
            {
                self.objects.answered(*id, now, Err(*refusal));
            }
            // The error says so: a refusal, or a host that has no room for the request or disconnects.
            (
                Record::Objects(id) | Record::Change(id, _),
                Err(error @ (HostError::Objects(_) | HostError::Busy | HostError::Disconnecting)),
            ) if self.options.excuses(error) => {
                self.objects.never(*id);
            }
            (_, Err(error)) if self.options.excuses(error) => {}
            (record, outcome) => {
                return failed("unexpected-answer", format!("{record:?}: {outcome:?}"));
            }
        }
        Ok(())
    }

    /// From now on checks that requests that change something get the same answer each time.
    pub(crate) fn overhear(&mut self) {
        let sniffer = Rc::clone(&self.sniffer);
        self.world.network.set_rule(move |from, to, message| {
            sniffer.borrow_mut().hear(from, to, message);
            Verdict::Pass
        });
    }

    /// Reads all objects, and then checks the whole history. Returns the steps of the search for an order, or `None` if it was
    /// abandoned, for example because too many concurrent requests have unknown outcomes.
    pub(crate) fn check_objects(&mut self, reader: HostSlot) -> Result<Option<u64>, Failed> {
        let touched: BTreeSet<DeviceId> = self.objects.operations().iter().map(|op| op.device).collect();
        for device in touched {
            match device {
                ATTRIBUTE_VOLUME => self.look_at_attribute_volume(reader)?,
                _ => self.look_at_all(reader, device)?,
            }
        }
        check_counters(&self.objects)
            .map_err(|miscounted| Failed { check: "counters", details: miscounted.to_string() })?;
        match check_objects(&self.objects) {
            Linearizability::Linearizable { steps } => Ok(Some(steps)),
            Linearizability::Not(contradiction) => failed("linearizable", contradiction.to_string()),
            Linearizability::GaveUp(_) => Ok(None),
        }
    }

    /// Reads each attribute by itself, so that the reads do not join independent parts of the history.
    fn look_at_all(&mut self, reader: HostSlot, device: DeviceId) -> Result<(), Failed> {
        let initial = self.objects.initial(device);
        let staying: BTreeSet<ObjectId> =
            initial.keys().filter(|key| key.kind == braid_objects::Kind::Header).map(|key| ObjectId(key.of)).collect();
        let names = named(&self.objects, device);
        let whole = Action::Read { offset: 0, length: limits::OBJECT_IO_BYTES_MAX as u32 };
        let mut looks: Vec<ObjectCommand> = Vec::new();
        looks.extend(
            names.iter().filter(|(object, _)| staying.contains(object)).map(|(object, name)| get(*object, *name)),
        );
        looks.extend(staying.iter().map(|object| command(*object, whole.clone())));
        for look in looks {
            self.look(reader, device, look)?;
        }
        let list = Action::List { after: ObjectId(0), most: limits::OBJECT_LIST_MAX as u32 };
        let found = match self.look(reader, device, command(ObjectId(0), list))? {
            ActionResult::Objects { found, .. } => found,
            other => return failed("unexpected-answer", format!("{other:?}")),
        };
        for object in found.into_iter().filter(|object| !staying.contains(object)) {
            self.look(reader, device, command(object, whole.clone()))?;
            let all = Action::ListAttributes { after: None, page: None, most: limits::OBJECT_LIST_MAX as u32 };
            if let ActionResult::Attributes { found, .. } = self.look(reader, device, command(object, all))? {
                for (name, _) in found {
                    self.look(reader, device, get(object, name))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn look(
        &mut self,
        reader: HostSlot,
        device: DeviceId,
        look: ObjectCommand,
    ) -> Result<ActionResult, Failed> {
        let op = self.have_done(reader, device, vec![look]);
        match self.answer(op, "objects can't be read after healing")? {
            HostSuccess::Objects(mut results) if results.len() == 1 => Ok(results.remove(0).action),
            other => failed("unexpected-answer", format!("{other:?}")),
        }
    }
}

/// All attributes named in requests, including refused requests.
pub(crate) fn named(history: &ObjectHistory, device: DeviceId) -> BTreeSet<(ObjectId, AttributeName)> {
    let mut names = BTreeSet::new();
    for operation in history.operations().iter().filter(|op| op.device == device) {
        for command in &operation.request.commands {
            let action = match &command.action {
                Action::CompareAndSwap { name, .. } | Action::FetchAndAdd { name, .. } => Some(*name),
                _ => None,
            };
            let named = command.sets.iter().map(|set| set.name).chain(command.gets.iter().copied()).chain(action);
            names.extend(named.map(|name| (command.object, name)));
        }
    }
    names
}
