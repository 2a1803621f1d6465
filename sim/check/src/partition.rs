//! Divides a history of object requests into independent parts. Orders of all parts together are an order of the history, so each
//! part is searched alone.
//!
//! For an object that exists from the start and is never removed, each attribute is a part, and so are its bytes with its length. All
//! other objects of a device form one part, because the device allocates their numbers from one sequence. A request that touches two
//! parts joins them.

use crate::history::Outcome;
use crate::object_history::{ObjectHistory, ObjectOperation};
use crate::prelude::*;
use braid_wire::Action;

/// A part of the state that a request may touch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Footprint {
    /// One attribute of an object that always exists.
    Attribute(DeviceId, ObjectId, AttributeName),
    /// All attributes of an object, where a request lists them.
    Attributes(DeviceId, ObjectId),
    /// The bytes of an object.
    Data(DeviceId, ObjectId),
    /// All objects of the device that are created or removed.
    Others(DeviceId),
}

/// The requests of a history that may have happened, as numbers, in parts. Each part belongs to one device and is in the order of the
/// history.
pub fn partition(history: &ObjectHistory) -> Vec<Vec<usize>> {
    let counted = |op: &&ObjectOperation| op.outcome != Outcome::Never;
    let operations = || history.operations().iter().filter(counted);
    let mut kinds = Kinds { staying: BTreeSet::new(), listed: BTreeSet::new() };
    for device in operations().map(|op| op.device).collect::<BTreeSet<_>>() {
        let there = history.initial(device);
        let objects =
            there.keys().map(|key| ObjectId(key.of)).filter(|object| there.contains_key(&Key::header(*object)));
        kinds.staying.extend(objects.map(|object| (device, object)));
    }
    for operation in operations() {
        for ObjectCommand { object, action, .. } in &operation.request.commands {
            match action {
                Action::Remove => drop(kinds.staying.remove(&(operation.device, *object))),
                Action::ListAttributes { .. } => drop(kinds.listed.insert((operation.device, *object))),
                _ => {}
            }
        }
    }
    let mut joined = Joined::default();
    let mut alone = Vec::new();
    let mut at = BTreeMap::new();
    for (number, operation) in history.operations().iter().enumerate().filter(|(_, op)| counted(op)) {
        let commands = operation.request.commands.iter();
        let places: BTreeSet<Footprint> =
            commands.flat_map(|command| kinds.places(operation.device, command)).collect();
        match places.first() {
            Some(first) => {
                places.iter().for_each(|place| joined.join(*first, *place));
                at.insert(number, *first);
            }
            None => alone.push(vec![number]),
        }
    }
    let mut parts: BTreeMap<Footprint, Vec<usize>> = BTreeMap::new();
    for (number, place) in at {
        parts.entry(joined.root(place)).or_default().push(number);
    }
    parts.into_values().chain(alone).collect()
}

struct Kinds {
    /// Objects that exist from the start and are never removed.
    staying: BTreeSet<(DeviceId, ObjectId)>,
    /// Objects whose attributes are listed.
    listed: BTreeSet<(DeviceId, ObjectId)>,
}

impl Kinds {
    fn places(&self, device: DeviceId, command: &ObjectCommand) -> Vec<Footprint> {
        let object = command.object;
        if matches!(command.action, Action::Create | Action::List { .. }) || !self.staying.contains(&(device, object)) {
            return vec![Footprint::Others(device)];
        }
        let attribute = |name: AttributeName| match name {
            AttributeName::OBJECT_LENGTH => Some(Footprint::Data(device, object)),
            _ if name.is_reserved() => None,
            _ if self.listed.contains(&(device, object)) => Some(Footprint::Attributes(device, object)),
            _ => Some(Footprint::Attribute(device, object, name)),
        };
        let names = command.sets.iter().map(|set| set.name).chain(command.gets.iter().copied());
        let mut places: Vec<Footprint> = names.filter_map(attribute).collect();
        places.extend(match &command.action {
            Action::Read { .. }
            | Action::Write { .. }
            | Action::Append { .. }
            | Action::Truncate { .. }
            | Action::Stat => Some(Footprint::Data(device, object)),
            Action::CompareAndSwap { name, .. } | Action::FetchAndAdd { name, .. } => attribute(*name),
            Action::ListAttributes { .. } => Some(Footprint::Attributes(device, object)),
            Action::Nothing | Action::Flush | Action::Create | Action::Remove | Action::List { .. } => None,
        });
        places
    }
}

/// A union-find structure over footprints.
#[derive(Default)]
struct Joined {
    parents: BTreeMap<Footprint, Footprint>,
}

impl Joined {
    fn root(&self, mut place: Footprint) -> Footprint {
        while let Some(parent) = self.parents.get(&place) {
            place = *parent;
        }
        place
    }

    fn join(&mut self, one: Footprint, other: Footprint) {
        let (one, other) = (self.root(one), self.root(other));
        if one != other {
            self.parents.insert(other, one);
        }
    }
}
