//! Requests on objects and attribute volumes, as operations of scenarios. The requests of clients have a history of their own, which is
//! checked at the end.
//!
//! The answers of an attribute volume keep the promises of `docs/attribute-volumes.md`:
//!
//! - A request that is refused because of the names in it is always refused in the same way, whatever the content.
//! - A request with an error whose outcome is known has changed nothing; any other request with an error is recorded as of unknown outcome.
//! - The outcome is decided once the same host has an answer to its next request to the same bucket.

use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, Record, failed};
use crate::object_workload::attribute_volume::{ATTRIBUTE_VOLUME, LISTED};
use crate::object_workload::{ObjectAsks, ObjectChoice, command, get};
use crate::prelude::*;
use braid_base::limits;
use braid_check::{
    Client, Linearizability, ObjectHistory, ObjectOperation, ObjectOperationId, Objects, check_counters, check_objects,
    is_beyond_the_model,
};
use braid_machine::ObjectsRequest;
use braid_objects::attribute_volume::{buckets, place_of};
use braid_objects::{Key, evaluate, map_access::apply};
use braid_wire::{Action, ActionResult, CommandResult, ObjectFailure, ObjectRequest};
use braid_world::Verdict;

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

    /// Issues commands as a part of the history.
    pub fn have_done(&mut self, slot: HostSlot, device: DeviceId, commands: Vec<ObjectCommand>) -> OpId {
        let patience = self.options.settings.request_timeout;
        let asks = ObjectAsks::Request(ObjectRequest { commands });
        wish_objects(self, slot, 0, ObjectChoice { device, asks, patience })
    }
}

/// Issues an object operation of a client at a host.
pub(crate) fn wish_objects(cluster: &mut Cluster, slot: HostSlot, client: usize, operation: ObjectChoice) -> OpId {
    let (now, node) = (cluster.world.now(), cluster.node(slot));
    let NodeId::Host(generation) = node else { unreachable!("host slots hold hosts") };
    let name = Client { host: generation.0, number: client };
    let ObjectChoice { device, asks, patience } = operation;
    let (request, record) = match asks {
        ObjectAsks::Request(request) if device == ATTRIBUTE_VOLUME => {
            let id = cluster.objects.ask(name, now, device, request.clone());
            let volume = cluster.volume.id;
            (ObjectsRequest::ExecuteOnVolume { volume, request, patience }, Record::AttributeVolume(id))
        }
        ObjectAsks::Request(request) => {
            let id = cluster.objects.ask(name, now, device, request.clone());
            (ObjectsRequest::Execute { device, request, patience }, Record::Objects(id))
        }
        ObjectAsks::Change(object, attribute, seen) => {
            // It counts as a read at the moment of the change.
            let look = ObjectRequest { commands: vec![get(object, attribute)] };
            let id = cluster.objects.ask(name, now, device, look);
            let request = ObjectsRequest::Await { device, object, name: attribute, seen: seen.clone(), patience };
            (request, Record::Change(id, seen))
        }
    };
    cluster.begin(slot, client, request, record)
}

/// The object request of an operation, with its outcome.
pub(crate) fn object_operation<'c>(cluster: &'c Cluster, asked: &PendingOperation) -> Option<&'c ObjectOperation> {
    match asked.record {
        Record::Objects(id) | Record::Change(id, _) | Record::AttributeVolume(id) => {
            Some(cluster.objects.operation(id))
        }
        _ => None,
    }
}

/// Records an answer in the history.
pub(crate) fn on_object_reply(cluster: &mut Cluster, record: &Record, outcome: &HostOutcome) -> Result<(), Failed> {
    let now = cluster.world.now();
    if let Record::Objects(id) = record {
        cluster.undecided.hold_to_what_was_abandoned(&mut cluster.objects, now, *id, outcome);
    }
    match (record, outcome) {
        (Record::Objects(id), Ok(HostSuccess::Objects(results))) => {
            cluster.objects.answered(*id, now, Ok(results.clone()));
        }
        (Record::Change(id, seen), Ok(HostSuccess::Value(value))) if seen != value => {
            let result = CommandResult { action: ActionResult::Done, values: vec![value.clone()] };
            cluster.objects.answered(*id, now, Ok(vec![result]));
        }
        // No change is known to have happened.
        (Record::Change(id, _), Ok(HostSuccess::Value(_))) => cluster.objects.never(*id),
        (Record::Objects(id) | Record::Change(id, _), Err(HostError::Objects(refusal)))
            if !is_beyond_the_model(refusal.failure) =>
        {
            cluster.objects.answered(*id, now, Err(*refusal));
        }
        // The error says so: a refusal, or a host that has no room for the request or disconnects.
        (
            Record::Objects(id) | Record::Change(id, _),
            Err(error @ (HostError::Objects(_) | HostError::Busy | HostError::Disconnecting)),
        ) if cluster.options.excuses(error) => {
            cluster.objects.never(*id);
        }
        (_, Err(error)) if cluster.options.excuses(error) => {}
        (record, outcome) => {
            return failed("unexpected-answer", format!("{record:?}: {outcome:?}"));
        }
    }
    Ok(())
}

/// From now on checks that requests that change something get the same answer each time.
pub(crate) fn overhear(cluster: &mut Cluster) {
    let sniffer = Rc::clone(&cluster.sniffer);
    cluster.world.network.set_rule(move |from, to, message| {
        sniffer.borrow_mut().hear(from, to, message);
        Verdict::Pass
    });
}

/// Reads all objects, and then checks the whole history. Returns the steps of the search for an order, or `None` if it was
/// abandoned, for example because too many concurrent requests have unknown outcomes.
pub(crate) fn check_all_objects(cluster: &mut Cluster, reader: HostSlot) -> Result<Option<u64>, Failed> {
    let touched: BTreeSet<DeviceId> = cluster.objects.operations().iter().map(|op| op.device).collect();
    for device in touched {
        match device {
            ATTRIBUTE_VOLUME => look_at_attribute_volume(cluster, reader)?,
            _ => look_at_all(cluster, reader, device)?,
        }
    }
    check_counters(&cluster.objects)
        .map_err(|miscounted| Failed { check: "counters", details: miscounted.to_string() })?;
    match check_objects(&cluster.objects) {
        Linearizability::Linearizable { steps } => Ok(Some(steps)),
        Linearizability::Not(contradiction) => failed("linearizable", contradiction.to_string()),
        Linearizability::GaveUp(_) => Ok(None),
    }
}

/// Reads each attribute by itself, so that the reads do not join independent parts of the history.
fn look_at_all(cluster: &mut Cluster, reader: HostSlot, device: DeviceId) -> Result<(), Failed> {
    let initial = cluster.objects.initial(device);
    let staying: BTreeSet<ObjectId> =
        initial.keys().filter(|key| key.kind == braid_objects::Kind::Header).map(|key| ObjectId(key.of)).collect();
    let names = named(&cluster.objects, device);
    let whole = Action::Read { offset: 0, length: limits::OBJECT_IO_BYTES_MAX as u32 };
    let mut looks: Vec<ObjectCommand> = Vec::new();
    looks.extend(names.iter().filter(|(object, _)| staying.contains(object)).map(|(object, name)| get(*object, *name)));
    looks.extend(staying.iter().map(|object| command(*object, whole.clone())));
    for wanted in looks {
        look(cluster, reader, device, wanted)?;
    }
    let list = Action::List { after: ObjectId(0), most: limits::OBJECT_LIST_MAX as u32 };
    let found = match look(cluster, reader, device, command(ObjectId(0), list))? {
        ActionResult::Objects { found, .. } => found,
        other => return failed("unexpected-answer", format!("{other:?}")),
    };
    for object in found.into_iter().filter(|object| !staying.contains(object)) {
        look(cluster, reader, device, command(object, whole.clone()))?;
        let all = Action::ListAttributes { after: None, page: None, most: limits::OBJECT_LIST_MAX as u32 };
        if let ActionResult::Attributes { found, .. } = look(cluster, reader, device, command(object, all))? {
            for (name, _) in found {
                look(cluster, reader, device, get(object, name))?;
            }
        }
    }
    Ok(())
}

pub(crate) fn look(
    cluster: &mut Cluster,
    reader: HostSlot,
    device: DeviceId,
    look: ObjectCommand,
) -> Result<ActionResult, Failed> {
    let op = cluster.have_done(reader, device, vec![look]);
    match cluster.answer(op, "objects can't be read after healing")? {
        HostSuccess::Objects(mut results) if results.len() == 1 => Ok(results.remove(0).action),
        other => failed("unexpected-answer", format!("{other:?}")),
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

/// Records an answer in the history.
pub(crate) fn on_bucket_reply(
    cluster: &mut Cluster,
    id: ObjectOperationId,
    outcome: &HostOutcome,
) -> Result<(), Failed> {
    let now = cluster.world.now();
    let operation = cluster.objects.operation(id).clone();
    let place = place_of(&operation.request, buckets(cluster.volume.blocks()));
    match (outcome, place) {
        (Ok(HostSuccess::Objects(results)), Ok(place)) => {
            cluster.objects.answered(id, now, Ok(results.clone()));
            cluster.undecided.close(&mut cluster.objects, now, (operation.client.host, place), operation.invoked);
        }
        (Err(HostError::Objects(refusal)), Err(expected)) if *refusal == expected => cluster.objects.never(id),
        // These errors take precedence.
        (Err(error @ (HostError::Fenced | HostError::Disconnecting)), Err(_)) if cluster.options.excuses(error) => {
            cluster.objects.never(id)
        }
        // The bucket is full, which the model does not know.
        (Err(HostError::Objects(refusal)), Ok(_)) if refusal.failure == ObjectFailure::NoSpace => {
            cluster.objects.never(id);
        }
        (Err(HostError::Objects(refusal)), Ok(place)) if !is_beyond_the_model(refusal.failure) => {
            cluster.objects.answered(id, now, Err(*refusal));
            cluster.undecided.close(&mut cluster.objects, now, (operation.client.host, place), operation.invoked);
        }
        (Err(error), Ok(place)) if cluster.options.excuses(error) => match error {
            HostError::TimedOut { .. } | HostError::Unavailable { .. } | HostError::Fenced => {
                cluster.undecided.open.push((operation.client.host, place, now, id));
            }
            _ => cluster.objects.never(id),
        },
        _ => {
            return failed("unexpected-answer", format!("{operation}: {outcome:?}"));
        }
    }
    Ok(())
}

/// Reads each attribute by itself, so that the reads do not join independent parts of the history.
pub(crate) fn look_at_attribute_volume(cluster: &mut Cluster, reader: HostSlot) -> Result<(), Failed> {
    let there = cluster.objects.initial(ATTRIBUTE_VOLUME);
    let names = named(&cluster.objects, ATTRIBUTE_VOLUME);
    for (object, name) in names.into_iter().filter(|(object, _)| there.contains_key(&Key::header(*object))) {
        look(cluster, reader, ATTRIBUTE_VOLUME, get(object, name))?;
    }
    for object in there.keys().map(|key| ObjectId(key.of)).collect::<Vec<_>>() {
        look(cluster, reader, ATTRIBUTE_VOLUME, command(object, Action::Stat))?;
        if object == LISTED {
            let all = Action::ListAttributes { after: None, page: None, most: 100 };
            look(cluster, reader, ATTRIBUTE_VOLUME, command(object, all))?;
        }
    }
    Ok(())
}
