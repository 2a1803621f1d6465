//! Functions with which tests write requests.

pub use braid_base::{ObjectId, limits};
pub use braid_objects::map_access::apply;
pub use braid_objects::{Collected, Evaluation, Key, Kind, collect, evaluate};
use braid_wire::*;
pub use bytes::Bytes;
pub use proptest::collection::vec;
pub use std::collections::BTreeMap;

pub const OBJECT: ObjectId = ObjectId(7);
pub const LOCK: AttributeName = AttributeName::new(1, 1);
pub const COUNT: AttributeName = AttributeName::new(1, 2);
pub const NOTE: AttributeName = AttributeName::new(2, 1);

/// Objects in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    pub map: BTreeMap<Key, Bytes>,
}

impl Objects {
    /// One empty object.
    pub fn with_one() -> Objects {
        let mut objects = Objects::default();
        objects.does([command(Action::Create)]);
        objects
    }

    /// Executes a request and returns its answer.
    pub fn ask(&mut self, commands: impl IntoIterator<Item = ObjectCommand>) -> ObjectAnswer {
        let request = ObjectRequest { commands: commands.into_iter().collect() };
        let Evaluation { answer, changes, .. } = evaluate(&request, &mut self.map).expect("all of it is here");
        assert!(answer.is_ok() || changes.is_empty(), "a refused request changes nothing");
        assert!(changes.is_sorted_by(|one, next| one.key < next.key), "each key once, ascending");
        apply(&changes, &mut self.map);
        answer
    }

    /// Executes a request that must succeed.
    pub fn does(&mut self, commands: impl IntoIterator<Item = ObjectCommand>) -> Vec<CommandResult> {
        self.ask(commands).expect("it can be done")
    }

    pub fn acts(&mut self, action: Action) -> ActionResult {
        self.does([command(action)]).remove(0).action
    }

    pub fn refuses(&mut self, command: ObjectCommand) -> ObjectFailure {
        let before = self.map.clone();
        let refusal = self.ask([command]).expect_err("a refusal");
        assert_eq!((refusal.command, &self.map), (0, &before));
        refusal.failure
    }

    /// Collects garbage until nothing is left. Returns the number of steps.
    pub fn collect(&mut self, most: usize) -> usize {
        for times in 0.. {
            let Collected { changes, next } = collect(&mut self.map, 0, most).expect("all of it is here");
            assert!(changes.len() <= most);
            if changes.is_empty() {
                assert_eq!(next, None);
                return times;
            }
            apply(&changes, &mut self.map);
        }
        unreachable!("a garbage collection ends")
    }
}

/// A command on the object, without sets and gets.
pub fn command(action: Action) -> ObjectCommand {
    ObjectCommand::new(OBJECT, action)
}

/// Methods that add to a command.
pub trait Words {
    fn of(self, object: u64) -> ObjectCommand;
    fn when(self, when: When) -> ObjectCommand;
    fn set(self, name: AttributeName, value: &[u8]) -> ObjectCommand;
    fn sets_when(self, when: When) -> ObjectCommand;
    fn get(self, name: AttributeName) -> ObjectCommand;
}

impl Words for ObjectCommand {
    fn of(self, object: u64) -> ObjectCommand {
        ObjectCommand { object: ObjectId(object), ..self }
    }

    fn when(self, when: When) -> ObjectCommand {
        ObjectCommand { when, ..self }
    }

    fn set(mut self, name: AttributeName, value: &[u8]) -> ObjectCommand {
        self.sets.push(SetAttribute { name, value: Bytes::copy_from_slice(value) });
        self
    }

    fn sets_when(self, sets_when: When) -> ObjectCommand {
        ObjectCommand { sets_when, ..self }
    }

    fn get(mut self, name: AttributeName) -> ObjectCommand {
        self.gets.push(name);
        self
    }
}

/// A command that only sets an attribute.
pub fn set(name: AttributeName, value: &[u8]) -> ObjectCommand {
    command(Action::Nothing).set(name, value)
}

/// A compare-and-swap as in the paper, which returns the original value.
pub fn swap(name: AttributeName, compare: &[u8], swap: &[u8]) -> Action {
    let (compare, swap) = (Bytes::copy_from_slice(compare), Bytes::copy_from_slice(swap));
    Action::CompareAndSwap { name, compare, swap, undefined: Undefined::Matches, original: true }
}

/// A compare-and-swap for which an undefined attribute is equal only to an empty value.
pub fn swap_empty(name: AttributeName, compare: &[u8], swap: &[u8]) -> Action {
    let (compare, swap) = (Bytes::copy_from_slice(compare), Bytes::copy_from_slice(swap));
    Action::CompareAndSwap { name, compare, swap, undefined: Undefined::IsEmpty, original: true }
}

pub fn add(name: AttributeName, add: i64) -> Action {
    Action::FetchAndAdd { name, add, original: true }
}

pub fn write(offset: u64, data: &[u8]) -> Action {
    Action::Write { offset, data: Bytes::copy_from_slice(data) }
}

pub fn read(offset: u64, length: u32) -> Action {
    Action::Read { offset, length }
}
