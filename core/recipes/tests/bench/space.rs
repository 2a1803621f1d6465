//! The objects that clients share: `braid_objects` on a map in memory.

use braid_base::ObjectId;
use braid_objects::{Change, Key, evaluate, map_access};
use braid_recipes::{Answer, RequestFailure};
use braid_wire::{
    Action, ActionResult, AttributeName, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal, ObjectRequest,
    SetAttribute,
};
use bytes::Bytes;
use std::collections::BTreeMap;

/// The objects of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    map: BTreeMap<Key, Bytes>,
    /// The space for objects, in bytes; none if it is unlimited.
    room: Option<usize>,
}

/// The space that an attribute takes besides its value, in bytes.
const ENTRY: usize = 21;

impl Space {
    /// A space with these objects, all empty.
    pub fn with(objects: &[ObjectId]) -> Space {
        let mut space = Space::default();
        for object in objects {
            space.execute(&one(*object, Action::Create)).expect("an object can be made");
        }
        space
    }

    /// Executes a request atomically.
    pub fn execute(&mut self, request: &ObjectRequest) -> ObjectAnswer {
        let evaluation = evaluate(request, &mut self.map).expect("all is in memory");
        let length = |value: Option<&Bytes>| value.map_or(0, |value| ENTRY + value.len());
        let longer = |change: &Change| length(change.value.as_ref()) > length(self.map.get(&change.key));
        if let Some(room) = self.room
            && evaluation.changes.iter().any(longer)
        {
            let mut after = self.map.clone();
            map_access::apply(&evaluation.changes, &mut after);
            if after.values().map(|value| length(Some(value))).sum::<usize>() > room {
                return Err(ObjectRefusal { command: 0, failure: ObjectFailure::NoSpace });
            }
        }
        map_access::apply(&evaluation.changes, &mut self.map);
        evaluation.answer
    }

    /// The same, as a client is answered.
    pub fn answer(&mut self, request: &ObjectRequest) -> Answer {
        match self.execute(request) {
            Ok(results) => Answer::Results(results),
            Err(refusal) => Answer::RequestFailure(RequestFailure::Refused(refusal.failure)),
        }
    }

    /// Limits the free space to this many bytes. As on a device, and stricter than in an attribute volume: when the space is used up, no
    /// value can become longer, even if another one becomes shorter in the same request.
    pub fn leave_room_for(&mut self, more: usize) {
        self.room = Some(self.map.values().map(|value| ENTRY + value.len()).sum::<usize>() + more);
    }

    /// An attribute's value; no bytes if it is undefined, or if the object does not exist.
    pub fn value(&self, object: ObjectId, name: AttributeName) -> Bytes {
        let incarnation = self.map.get(&Key::header(object)).map(|header| header.slice(..8));
        let incarnation =
            incarnation.map(|incarnation| u64::from_be_bytes(incarnation[..].try_into().expect("eight bytes")));
        incarnation
            .and_then(|incarnation| self.map.get(&Key::attribute(incarnation, name)).cloned())
            .unwrap_or_default()
    }

    /// Sets an attribute, as another client would.
    pub fn set(&mut self, object: ObjectId, name: AttributeName, value: &[u8]) {
        let sets = vec![SetAttribute { name, value: Bytes::copy_from_slice(value) }];
        let commands = vec![ObjectCommand { sets, ..command(object, Action::Nothing) }];
        self.execute(&ObjectRequest { commands }).expect("an attribute can be set");
    }

    /// An attribute as a number; 0 if it is undefined.
    pub fn number(&self, object: ObjectId, name: AttributeName) -> u64 {
        let value = self.value(object, name);
        if value.is_empty() { 0 } else { u64::from_be_bytes(value[..].try_into().expect("eight bytes")) }
    }

    /// All bytes of an object (256 KiB at most).
    pub fn bytes(&self, object: ObjectId) -> Bytes {
        let read = one(object, Action::Read { offset: 0, length: 256 << 10 });
        match self.clone().execute(&read).expect("the object is there").remove(0).action {
            ActionResult::Data { data } => data,
            other => panic!("a read brings bytes, not {other:?}"),
        }
    }

    /// The numbers of all objects.
    pub fn objects(&self) -> Vec<ObjectId> {
        let list = one(ObjectId(0), Action::List { after: ObjectId(0), most: 1024 });
        match self.clone().execute(&list).expect("a list").remove(0).action {
            ActionResult::Objects { found, .. } => found,
            other => panic!("a list brings objects, not {other:?}"),
        }
    }

    /// The names of an object's attributes on a page.
    pub fn attributes(&self, object: ObjectId, page: u32) -> Vec<AttributeName> {
        let list = one(object, Action::ListAttributes { after: None, page: Some(page), most: 1024 });
        match self.clone().execute(&list).expect("a list").remove(0).action {
            ActionResult::Attributes { found, .. } => found.into_iter().map(|(name, _)| name).collect(),
            other => panic!("a list brings names, not {other:?}"),
        }
    }
}

/// A command without conditions, sets and gets.
pub fn command(object: ObjectId, action: Action) -> ObjectCommand {
    ObjectCommand::new(object, action)
}

/// A request of one such command.
pub fn one(object: ObjectId, action: Action) -> ObjectRequest {
    ObjectRequest { commands: vec![command(object, action)] }
}
