//! Operations of scenarios on objects with bytes and attributes. The requests of clients have a history of their own, which is
//! checked at the end.

use crate::cluster::{Cluster, Failed, HostSlot, PendingOperation, Record};
use crate::object_workload::attribute_volume::ATTRIBUTE_VOLUME;
use crate::object_workload::{ObjectAsks, ObjectChoice, command, get};
use braid_base::{DeviceId, NodeId, ObjectId, limits};
use braid_check::{
    Client, Linearizability, Moment, ObjectOperation, ObjectOperationId, Objects, check_counters, check_objects,
    is_beyond_the_model,
};
use braid_machine::{HostError, HostOutcome, HostSuccess, ObjectsRequest, OpId};
use braid_objects::{evaluate, map_access::apply};
use braid_wire::{
    Action, ActionResult, Answer, AttributeName, Command, CommandResult, LockAnswer, LockReply, Message, ObjectAnswer,
    ObjectCommand, ObjectFailure, ObjectRefusal, ObjectRequest, Rejection, Reply,
};
use braid_world::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Abandoned requests to devices, which may still happen: the host, the device, when the client was told, and the request.
pub(crate) type Abandoned = Vec<(u32, DeviceId, Moment, ObjectOperationId)>;

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
            self.hold_to_what_was_abandoned(*id, outcome);
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
                let details = format!("{record:?}: {outcome:?}");
                return Err(Failed { check: "unexpected-answer", details });
            }
        }
        Ok(())
    }

    /// An abandoned request has happened once the same host gets an answer of that device to a later request, or it never will
    /// (`docs/objects.md`).
    fn hold_to_what_was_abandoned(&mut self, id: ObjectOperationId, outcome: &HostOutcome) {
        let now = self.world.now();
        let operation = self.objects.operation(id);
        let (host, device, asked) = (operation.client.host, operation.device, operation.invoked);
        let is_answer = match outcome {
            Ok(_) => true,
            // This does not hold for errors that the host finds by itself.
            Err(HostError::Objects(refusal)) => {
                refusal.failure != ObjectFailure::Busy && operation.request.check().is_ok()
            }
            _ => false,
        };
        if is_answer {
            let is_over = |(of, at, ended, _): &mut (u32, DeviceId, Moment, ObjectOperationId)| {
                *of == host && *at == device && ended.number < asked.number
            };
            for (.., id) in self.abandoned.extract_if(.., is_over) {
                self.objects.is_over(id, now);
            }
        } else if matches!(outcome, Err(HostError::TimedOut { .. })) && !operation.request.only_asks() {
            let ended = self.objects.moment(now);
            self.abandoned.push((host, device, ended, id));
        }
    }

    /// From now on checks that requests that change something get the same answer each time.
    pub(crate) fn overhear(&mut self) {
        let sniffer = Rc::clone(&self.sniffer);
        self.world.network.set_rule(move |from, to, message| {
            sniffer.borrow_mut().hear(from, to, message);
            Verdict::Pass
        });
    }

    /// Hosts that were told, since the last call, that a device or a lock server has no room for them.
    pub(crate) fn turned_away(&self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.sniffer.borrow_mut().turned_away)
    }

    pub(crate) fn check_answers(&self) -> Result<(), Failed> {
        match &self.sniffer.borrow().contradiction {
            Some(details) => Err(Failed { check: "answered-twice", details: details.clone() }),
            None => Ok(()),
        }
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
            Linearizability::Not(contradiction) => {
                Err(Failed { check: "linearizable", details: contradiction.to_string() })
            }
            Linearizability::GaveUp(_) => Ok(None),
        }
    }

    /// Reads each attribute by itself, so that the reads do not join independent parts of the history.
    fn look_at_all(&mut self, reader: HostSlot, device: DeviceId) -> Result<(), Failed> {
        let initial = self.objects.initial(device);
        let staying: BTreeSet<ObjectId> =
            initial.keys().filter(|key| key.kind == braid_objects::Kind::Header).map(|key| ObjectId(key.of)).collect();
        let names = self.named(device);
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
            other => return Err(Failed { check: "unexpected-answer", details: format!("{other:?}") }),
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

    /// All attributes named in requests, including refused requests.
    pub(crate) fn named(&self, device: DeviceId) -> BTreeSet<(ObjectId, AttributeName)> {
        let mut names = BTreeSet::new();
        for operation in self.objects.operations().iter().filter(|op| op.device == device) {
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

    pub(crate) fn look(
        &mut self,
        reader: HostSlot,
        device: DeviceId,
        look: ObjectCommand,
    ) -> Result<ActionResult, Failed> {
        let op = self.have_done(reader, device, vec![look]);
        match self.answer(op, "objects can't be read after healing")? {
            HostSuccess::Objects(mut results) if results.len() == 1 => Ok(results.remove(0).action),
            other => Err(Failed { check: "unexpected-answer", details: format!("{other:?}") }),
        }
    }
}

/// Requests and answers of hosts and devices, taken from the network.
#[derive(Debug, Default)]
pub(crate) struct Sniffer {
    /// Requests that change something.
    requests: BTreeSet<(NodeId, NodeId, u64)>,
    answers: BTreeMap<(NodeId, NodeId, u64), ObjectAnswer>,
    contradiction: Option<String>,
    /// Hosts that were told, since the last look, that a device or a lock server has no room for them.
    turned_away: BTreeSet<NodeId>,
}

impl Sniffer {
    fn hear(&mut self, from: NodeId, to: NodeId, message: &Message) {
        match message {
            Message::Request(heard) => {
                if let Command::Objects { sequence, request, .. } = &heard.command
                    && !request.only_asks()
                {
                    self.requests.insert((from, to, *sequence));
                }
            }
            Message::Answer(Answer { reply: Reply::Rejected { rejection: Rejection::TooManyHosts }, .. })
            | Message::LockAnswer(LockAnswer {
                reply: LockReply::Rejected { rejection: Rejection::TooManyHosts },
                ..
            }) => {
                self.turned_away.insert(to);
            }
            Message::Answer(heard) => {
                let Reply::Objects { sequence, answer } = &heard.reply else { return };
                let name = (to, from, *sequence);
                if matches!(answer, Err(ObjectRefusal { failure: ObjectFailure::Busy, .. }))
                    || !self.requests.contains(&name)
                {
                    return;
                }
                let known = self.answers.entry(name).or_insert_with(|| answer.clone());
                if known != answer {
                    let details =
                        format!("{from} answers request {sequence} of {to} first {known:?} and then {answer:?}");
                    self.contradiction.get_or_insert(details);
                }
            }
            _ => {}
        }
    }
}
