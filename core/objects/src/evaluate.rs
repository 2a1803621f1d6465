//! The evaluation of a request, command by command. [`braid_wire::objects`] defines the commands.

use crate::header::Header;
use crate::key::Key;
use crate::map_access::{Change, Obstacle, View};
use crate::overlay::Overlay;
use braid_base::{ObjectId, limits};
use braid_wire::{
    Action, ActionResult, CommandResult, ObjectAnswer, ObjectCommand, ObjectFailure, ObjectRefusal, ObjectRequest, When,
};
use bytes::Bytes;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// What to answer once `changes`, and everything that the view returned, are durable.
    pub answer: ObjectAnswer,
    /// The changes, to be made atomically: each key once, ascending.
    pub changes: Vec<Change>,
    /// True if the answer need not be remembered, because the request can be evaluated again: it changes nothing, or no device ever
    /// accepts it.
    pub only_asks: bool,
    /// What the answer says, for a program with types of its own. The store does not keep it: only the answer is found after a restart.
    pub found: Option<Found>,
}

/// What a procedure has found, for the program that has asked for it.
#[derive(Clone, Debug)]
pub struct Found(Arc<dyn Any + Send + Sync>);

impl Evaluation {
    /// That of a procedure that only asks, and has found this.
    pub fn that_finds<T: Any + Send + Sync>(found: T) -> Evaluation {
        let found = Some(Found::new(found));
        Evaluation { answer: Ok(Vec::new()), changes: Vec::new(), only_asks: true, found }
    }
}

impl Found {
    pub fn new<T: Any + Send + Sync>(found: T) -> Found {
        Found(Arc::new(found))
    }

    /// What the procedure has found: its type is known to the program that has asked.
    pub fn take<T: Any + Send + Sync + Clone>(self) -> T {
        Arc::unwrap_or_clone(self.0.downcast().expect("a procedure finds what it is asked for"))
    }
}

impl PartialEq for Found {
    fn eq(&self, other: &Found) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Found {}

/// The most keys that one request changes: attributes; pieces written, of which each command writes two in part; pieces cut off; for each
/// command a header and the record of an ended incarnation; and the last number that was given out.
pub const CHANGES_MAX: usize = limits::OBJECT_COMMANDS_MAX * (limits::ATTRIBUTES_PER_COMMAND_MAX + 1 + 2 + 2)
    + limits::OBJECT_REQUEST_BYTES_MAX / crate::key::PIECE_BYTES as usize
    + limits::OBJECT_PIECES_CUT_MAX
    + 1;

/// The most bytes of all values that one request assigns to keys: the bytes in the request, two pieces for each command that writes parts
/// of them, and some numbers for each command.
pub const CHANGED_BYTES_MAX: usize = limits::OBJECT_REQUEST_BYTES_MAX
    + limits::OBJECT_COMMANDS_MAX * (2 * crate::key::PIECE_BYTES as usize + 32)
    + crate::header::HEADER_BYTES;

/// The most bytes of a request's answer as encoded by [`braid_wire::encode_answer`]: its values, and their framing.
pub const ANSWER_BYTES_MAX: usize =
    limits::OBJECT_REQUEST_BYTES_MAX + limits::OBJECT_COMMANDS_MAX * (4 * limits::ATTRIBUTES_PER_COMMAND_MAX + 32) + 32;

/// A request whose effect on the map can be computed: object commands, or an operation of a program that stores its own kinds of keys,
/// such as a metadata server. It may be evaluated several times before it takes effect once.
pub trait Procedure: CloneProcedure + Debug + Send {
    /// Computes the answer and the changes. `Err` if keys are needed that are not in memory.
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere>;
    /// Approximate bytes of memory of the request.
    fn memory_bytes(&self) -> usize;
}

/// Clones a procedure of any type: a machine in which it waits can be cloned.
pub trait CloneProcedure {
    fn clone_boxed(&self) -> Box<dyn Procedure>;
}

impl<P: Procedure + Clone + 'static> CloneProcedure for P {
    fn clone_boxed(&self) -> Box<dyn Procedure> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Procedure> {
    fn clone(&self) -> Self {
        // Not that of the box.
        (**self).clone_boxed()
    }
}

impl Procedure for ObjectRequest {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        evaluate(self, map)
    }

    fn memory_bytes(&self) -> usize {
        ObjectRequest::memory_bytes(self)
    }
}

/// Evaluates a request. `Err` if it needs keys that are not in memory.
///
/// The request is validated, too, because it comes from the network.
pub fn evaluate(request: &ObjectRequest, view: &mut dyn View) -> Result<Evaluation, NotHere> {
    if let Err(refusal) = request.check() {
        return Ok(Evaluation { answer: Err(refusal), changes: Vec::new(), only_asks: true, found: None });
    }
    let mut work = Work { map: Overlay::new(view), all_swapped: true, made: None, cut: 0, told: 0 };
    let (answer, changes) = match work.request(request) {
        Ok(results) => (Ok(results), work.map.into_changes()),
        Err((_, EvaluationError::NotHere)) => return Err(NotHere),
        Err((command, EvaluationError::Fails(failure))) => (Err(ObjectRefusal { command, failure }), Vec::new()),
    };
    let changed = |change: &Change| change.value.as_ref().map_or(0, Bytes::len);
    assert!(changes.len() <= CHANGES_MAX, "a request changes no more keys than its bound");
    assert!(
        changes.iter().map(changed).sum::<usize>() <= CHANGED_BYTES_MAX,
        "a request changes no more bytes than its bound"
    );
    Ok(Evaluation { answer, changes, only_asks: request.only_asks(), found: None })
}

/// An evaluation needs keys that are not in memory: see [`Obstacle::NotHere`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHere;

/// Why a command is not executed.
#[derive(Clone, Debug)]
pub(crate) enum EvaluationError {
    NotHere,
    Fails(ObjectFailure),
}

impl From<ObjectFailure> for EvaluationError {
    fn from(failure: ObjectFailure) -> EvaluationError {
        EvaluationError::Fails(failure)
    }
}

impl From<Obstacle> for EvaluationError {
    fn from(obstacle: Obstacle) -> EvaluationError {
        match obstacle {
            Obstacle::NotHere => EvaluationError::NotHere,
            Obstacle::Lost => EvaluationError::Fails(ObjectFailure::Lost),
        }
    }
}

/// A request under evaluation: the map with the changes of the request so far, and the state that later commands depend on.
pub(crate) struct Work<'a> {
    pub map: Overlay<'a>,
    /// Every compare-and-swap so far has swapped.
    pub all_swapped: bool,
    /// The object that was created last in this request.
    pub made: Option<ObjectId>,
    /// The number of pieces cut off so far.
    pub cut: usize,
    /// The bytes of the answer so far.
    pub told: usize,
}

impl Work<'_> {
    fn request(&mut self, request: &ObjectRequest) -> Result<Vec<CommandResult>, (u32, EvaluationError)> {
        let numbered = request.commands.iter().zip(0..);
        numbered.map(|(command, number)| self.command(command).map_err(|failure| (number, failure))).collect()
    }

    fn command(&mut self, command: &ObjectCommand) -> Result<CommandResult, EvaluationError> {
        if !self.holds(command.when) {
            return Ok(CommandResult { action: ActionResult::Skipped, values: Vec::new() });
        }
        let (object, action) = match &command.action {
            Action::Create => {
                let object = self.create(command.object)?;
                (object, ActionResult::Created { object })
            }
            Action::List { after, most } => (command.object, self.list(*after, *most)?),
            action => {
                let made = if command.object.0 == 0 { self.made } else { Some(command.object) };
                let object = made.ok_or(ObjectFailure::NoSuchObject)?;
                (object, self.act(object, action)?)
            }
        };
        if !command.sets.is_empty() && self.holds(command.sets_when) {
            let Header { incarnation, .. } = self.header(object)?;
            for set in &command.sets {
                self.set(incarnation, set.name, &set.value);
            }
        }
        let values = if command.gets.is_empty() { Vec::new() } else { self.values(object, &command.gets)? };
        Ok(CommandResult { action, values })
    }

    fn holds(&self, when: When) -> bool {
        match when {
            When::Always => true,
            When::IfSwapped => self.all_swapped,
            When::IfNotSwapped => !self.all_swapped,
        }
    }

    /// Executes an action on an existing object.
    fn act(&mut self, object: ObjectId, action: &Action) -> Result<ActionResult, EvaluationError> {
        let header = self.header(object)?;
        Ok(match action {
            Action::Nothing | Action::Flush => ActionResult::Done,
            Action::Remove => {
                self.map.put(Key::header(object), None);
                self.map.put(Key::ended(header.incarnation), Some(Bytes::from_static(&[1])));
                ActionResult::Done
            }
            Action::Stat => ActionResult::Stat { length: header.length, incarnation: header.incarnation },
            Action::Read { offset, length } => ActionResult::Data { data: self.read(header, *offset, *length)? },
            Action::Write { offset, data } => {
                self.write(object, header, *offset, data)?;
                ActionResult::Done
            }
            Action::Append { data } => {
                self.write(object, header, header.length, data)?;
                ActionResult::Appended { offset: header.length }
            }
            Action::Truncate { length } => {
                self.truncate(object, header, *length)?;
                ActionResult::Done
            }
            Action::CompareAndSwap { name, compare, swap, undefined, original } => {
                self.compare_and_swap(header, *name, compare, swap, *undefined, *original)?
            }
            Action::FetchAndAdd { name, add, original } => self.fetch_and_add(header, *name, *add, *original)?,
            Action::ListAttributes { after, page, most } => self.list_attributes(header, *after, *page, *most)?,
            Action::Create | Action::List { .. } => unreachable!("these actions need no existing object"),
        })
    }

    /// Adds to the bytes of the answer. Fails if they exceed the bound.
    pub fn tell(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.told += bytes;
        if self.told > limits::OBJECT_REQUEST_BYTES_MAX {
            return Err(ObjectFailure::Malformed.into());
        }
        Ok(())
    }
}

/// The encoding of numbers in values.
pub(crate) fn words(words: &[u64]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
