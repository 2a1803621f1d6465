//! Object requests read and write objects that hold bytes and attributes (device-atomics paper, sections 2, 4 and 5). This module defines
//! the requests and their answers.
//!
//! An object lives on one device and has a number there. It is independent of the component objects of volumes. An attribute is named by
//! page and number; an attribute without a value is undefined.
//!
//! A request is a list of commands that are executed in order and atomically: after a crash all of it has happened or nothing, and no
//! other request sees a part of it. If a command fails, nothing of the request happens. A compare-and-swap that finds another value does
//! not fail; later commands may depend on its result ([`When`]).
//!
//! Within a command the order is: the action, the sets, the gets.

use crate::declarations::wire;
use braid_base::{ObjectId, limits};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Commands that are executed atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectRequest {
    /// At most [`limits::OBJECT_COMMANDS_MAX`].
    pub commands: Vec<ObjectCommand>,
}

impl ObjectRequest {
    /// Validates the request, independent of what the device holds. Senders call this, too, because an invalid request may not fit into a
    /// frame.
    pub fn check(&self) -> Result<(), ObjectRefusal> {
        let mut bytes = 0;
        for (command, number) in self.commands.iter().zip(0..) {
            bytes += command.bytes();
            let too_much = number as usize >= limits::OBJECT_COMMANDS_MAX || bytes > limits::OBJECT_REQUEST_BYTES_MAX;
            let checked = if too_much { Err(ObjectFailure::Malformed) } else { command.check() };
            checked.map_err(|failure| ObjectRefusal { command: number, failure })?;
        }
        Ok(())
    }

    /// Approximate bytes of memory of the request.
    pub fn memory_bytes(&self) -> usize {
        let lists = |command: &ObjectCommand| {
            command.sets.len() * size_of::<SetAttribute>() + command.gets.len() * size_of::<AttributeName>()
        };
        let command = |command: &ObjectCommand| size_of::<ObjectCommand>() + lists(command) + command.bytes();
        self.commands.iter().map(command).sum()
    }

    /// True if the request changes nothing, whatever it finds.
    pub fn only_asks(&self) -> bool {
        self.commands.iter().all(ObjectCommand::only_asks)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectCommand {
    /// The object. For [`Action::Create`]: the number that it should have, at most [`limits::OBJECT_WISHED_MAX`], or zero to let the
    /// device choose a number that was never used before. In later commands of the same request, zero means the object created last.
    /// Ignored for [`Action::List`].
    pub object: ObjectId,
    /// If this condition does not hold, the command is skipped and answered by [`ActionResult::Skipped`].
    pub when: When,
    pub action: Action,
    /// Attributes to set after the action, at most [`limits::ATTRIBUTES_PER_COMMAND_MAX`].
    pub sets: Vec<SetAttribute>,
    /// If this condition does not hold after the action, the sets are skipped.
    pub sets_when: When,
    /// Attributes to get after the sets, subject to the same bound. An undefined attribute is returned as an empty value.
    pub gets: Vec<AttributeName>,
}

impl ObjectCommand {
    /// A command without conditions and attributes.
    pub fn new(object: ObjectId, action: Action) -> ObjectCommand {
        let (when, sets_when) = (When::Always, When::Always);
        ObjectCommand { object, when, action, sets: Vec::new(), sets_when, gets: Vec::new() }
    }

    fn check(&self) -> Result<(), ObjectFailure> {
        let attached = self.sets.len().max(self.gets.len());
        let takes_none = matches!(self.action, Action::Remove | Action::List { .. });
        let attached_max = if takes_none { 0 } else { limits::ATTRIBUTES_PER_COMMAND_MAX };
        let moved = match &self.action {
            Action::Read { length, .. } => *length as usize,
            Action::Write { data, .. } | Action::Append { data } => data.len(),
            _ => 0,
        };
        if attached > attached_max || moved > limits::OBJECT_IO_BYTES_MAX {
            return Err(ObjectFailure::Malformed);
        }
        match &self.action {
            Action::Create if self.object.0 > limits::OBJECT_WISHED_MAX => return Err(ObjectFailure::NumberTooHigh),
            Action::Write { offset, .. } if offset.saturating_add(moved as u64) > limits::OBJECT_BYTES_MAX => {
                return Err(ObjectFailure::TooLong);
            }
            Action::Truncate { length } if *length > limits::OBJECT_BYTES_MAX => return Err(ObjectFailure::TooLong),
            Action::CompareAndSwap { name, compare, swap, .. } => {
                check_value(compare)?;
                check_set(*name, swap)?;
            }
            Action::FetchAndAdd { name, .. } => check_set(*name, &Bytes::new())?,
            _ => {}
        }
        self.sets.iter().try_for_each(|set| check_set(set.name, &set.value))
    }

    /// True if the command changes nothing, whatever it finds.
    pub fn only_asks(&self) -> bool {
        let asks = matches!(
            self.action,
            Action::Nothing
                | Action::Read { .. }
                | Action::Flush
                | Action::Stat
                | Action::ListAttributes { .. }
                | Action::List { .. }
        );
        asks && self.sets.is_empty()
    }

    /// The bytes of data and of values that it carries.
    pub fn bytes(&self) -> usize {
        let action = match &self.action {
            Action::Write { data, .. } | Action::Append { data } => data.len(),
            Action::CompareAndSwap { compare, swap, .. } => compare.len() + swap.len(),
            _ => 0,
        };
        action + self.sets.iter().map(|set| set.value.len()).sum::<usize>()
    }
}

fn check_set(name: AttributeName, value: &Bytes) -> Result<(), ObjectFailure> {
    if name.is_reserved() {
        return Err(ObjectFailure::ReservedPage { page: name.page });
    }
    check_value(value)
}

fn check_value(value: &Bytes) -> Result<(), ObjectFailure> {
    if value.len() > limits::ATTRIBUTE_BYTES_MAX {
        return Err(ObjectFailure::ValueTooLong { length: value.len() as u32 });
    }
    Ok(())
}

wire! {
    /// A condition on the earlier commands of the same request. The device-atomics paper omits such conditions for want of an example
    /// (section 5). There are two: acquiring, using and releasing a lock in one round trip, and writes of a leader that must have no effect
    /// after it was replaced.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum When {
        /// The command is always executed.
        #[default]
        Always = 1,
        /// Every compare-and-swap so far in this request has swapped, or there was none. Skipped ones do not count.
        IfSwapped = 2,
        /// A compare-and-swap so far in this request has not swapped.
        IfNotSwapped = 3,
    }

    /// The name of an attribute in its object.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub struct AttributeName {
        /// The page. Pages from [`AttributeName::RESERVED_PAGES`] on belong to the device.
        pub page: u32,
        /// The number in the page.
        pub number: u32,
    }
}

impl AttributeName {
    /// The first of the pages that belong to the device. They can't be set, and all but [`AttributeName::OBJECT_PAGE`] are empty.
    pub const RESERVED_PAGES: u32 = 0xf000_0000;
    /// What the device knows about the object. These attributes can only be read: number 1 is the length in bytes, number 2 the
    /// *incarnation*, a number that no other object of this device has or had. Each is eight bytes, big-endian.
    pub const OBJECT_PAGE: u32 = 0xf000_0001;
    /// See [`AttributeName::OBJECT_PAGE`].
    pub const OBJECT_LENGTH: AttributeName = AttributeName::new(AttributeName::OBJECT_PAGE, 1);
    /// See [`AttributeName::OBJECT_PAGE`].
    pub const OBJECT_LIFE: AttributeName = AttributeName::new(AttributeName::OBJECT_PAGE, 2);

    pub const fn new(page: u32, number: u32) -> AttributeName {
        AttributeName { page, number }
    }

    /// True if the page belongs to the device.
    pub fn is_reserved(self) -> bool {
        self.page >= AttributeName::RESERVED_PAGES
    }
}

wire! {
    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct SetAttribute {
        pub name: AttributeName,
        /// At most [`limits::ATTRIBUTE_BYTES_MAX`] bytes. An empty value makes the attribute undefined.
        pub value: Bytes,
    }

    /// What a command does before its sets and gets.
    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum Action {
        /// Nothing, but fails if the object does not exist.
        Nothing = 1,
        /// Creates an empty object. Fails if it exists.
        Create = 2,
        /// Removes the object with all its bytes and attributes. Like [`Action::List`], it must not have sets or gets.
        Remove = 3,
        /// Reads bytes, up to the object's end. Bytes that were never written are zeros.
        Read {
            /// The first byte.
            offset: u64,
            /// How many bytes at most. A length above [`limits::OBJECT_IO_BYTES_MAX`] is refused, because a shorter answer would look like
            /// the object's end.
            length: u32,
        } = 4,
        /// Writes bytes, and extends the object if necessary, to at most [`limits::OBJECT_BYTES_MAX`]. A write of no bytes changes nothing.
        Write {
            /// The first byte.
            offset: u64,
            /// At most [`limits::OBJECT_IO_BYTES_MAX`].
            data: Bytes,
        } = 5,
        /// Writes bytes at the object's end.
        Append {
            /// At most [`limits::OBJECT_IO_BYTES_MAX`].
            data: Bytes,
        } = 6,
        /// Sets the object's length. An extension reads as zeros and takes no space. One request cuts off at most
        /// [`limits::OBJECT_PIECES_CUT_MAX`] written pieces of 4 KiB.
        Truncate {
            /// The new length.
            length: u64,
        } = 7,
        /// Ends when everything answered before is durable, which it always is.
        Flush = 8,
        /// Returns the object's length and incarnation.
        Stat = 9,
        /// Gives the attribute a new value, if its present value is equal to `compare`, in every byte and in length.
        CompareAndSwap {
            name: AttributeName,
            /// The expected value.
            compare: Bytes,
            /// The new value; empty: undefined.
            swap: Bytes,
            /// What an undefined attribute is equal to.
            undefined: Undefined,
            /// Whether to return the previous value.
            original: bool,
        } = 10,
        /// Adds to a signed eight-byte number, big-endian. An undefined attribute counts as zero. An overflow is a failure, because a
        /// counter that wraps around might do so unnoticed.
        FetchAndAdd {
            name: AttributeName,
            add: i64,
            /// Whether to return the previous value.
            original: bool,
        } = 11,
        /// Lists attributes by name: of one page, or of all pages.
        ListAttributes {
            /// Begins after this attribute; `None`: with the first.
            after: Option<AttributeName>,
            /// Only this page.
            page: Option<u32>,
            /// How many at most, and at most [`limits::OBJECT_LIST_MAX`].
            most: u32,
        } = 12,
        /// Lists the device's objects by number.
        List {
            /// Begins after this object; zero: with the first.
            after: ObjectId,
            /// How many at most, and at most [`limits::OBJECT_LIST_MAX`].
            most: u32,
        } = 13,
    }

    /// What an undefined attribute is equal to in a comparison.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Undefined {
        /// To every value, as in the device-atomics paper (section 4), so that a lock need not be initialized.
        #[default]
        Matches = 1,
        /// Only to an empty value. For requests that must not recreate what others have removed.
        IsEmpty = 2,
    }
}

/// The answer to a request: the result of each command, or why nothing happened.
pub type ObjectAnswer = Result<Vec<CommandResult>, ObjectRefusal>;

wire! {
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct CommandResult {
        pub action: ActionResult,
        /// The values of the attributes to get, in that order. Empty if the command was skipped.
        pub values: Vec<Bytes>,
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub enum ActionResult {
        /// The command's condition did not hold.
        Skipped = 1,
        Done = 2,
        Created {
            object: ObjectId,
        } = 3,
        Data {
            /// The bytes, up to the object's end.
            data: Bytes,
        } = 4,
        Appended {
            /// The offset of the first appended byte.
            offset: u64,
        } = 5,
        Stat {
            /// The object's length in bytes.
            length: u64,
            /// The object's incarnation: a number that no other object of this device has or had.
            incarnation: u64,
        } = 6,
        Compared {
            /// Whether the attribute had the expected value.
            swapped: bool,
            /// The previous value, if it was asked for; empty: undefined.
            original: Option<Bytes>,
        } = 7,
        Added {
            /// The previous value, if it was asked for.
            original: Option<i64>,
        } = 8,
        /// Names of attributes, ascending, and the lengths of their values.
        Attributes {
            /// Some of the attributes.
            found: Vec<(AttributeName, u32)>,
            /// Whether there are more. Continue after the last one.
            more: bool,
        } = 9,
        /// Numbers of objects, ascending.
        Objects {
            /// Some of the objects.
            found: Vec<ObjectId>,
            /// Whether there are more. Continue after the last one.
            more: bool,
        } = 10,
    }

    /// Why a request had no effect.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    #[error("command {command}: {failure}")]
    pub struct ObjectRefusal {
        /// The index of the command that failed, from 0.
        pub command: u32,
        pub failure: ObjectFailure,
    }

    /// Why a command failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
    pub enum ObjectFailure {
        #[error("there is no object of that number")]
        NoSuchObject = 1,
        #[error("there is an object of that number already")]
        ObjectExists = 2,
        #[error("the attribute has {length} bytes, and is not a number of 8 bytes")]
        NotANumber { length: u32 } = 3,
        #[error("the sum does not fit into a signed number of 64 bits")]
        Overflow = 4,
        #[error("a value may have at most 65536 bytes, and this one has {length}")]
        ValueTooLong { length: u32 } = 5,
        #[error("page {page:#x} belongs to the device: use a page below 0xf0000000")]
        ReservedPage { page: u32 } = 6,
        /// A write or truncate exceeds [`limits::OBJECT_BYTES_MAX`].
        #[error("the object would be longer than an object may be")]
        TooLong = 7,
        /// The device has no free space. Removing still works.
        #[error("the device is full")]
        NoSpace = 8,
        #[error("data of the object is damaged on the device")]
        Lost = 9,
        #[error("the device has too many requests under way: try again later")]
        Busy = 10,
        /// The request is invalid: too many commands, attributes or bytes in it or in its answer, or a combination that is not allowed.
        #[error("the request is malformed: it is too large, or combines what can't be combined")]
        Malformed = 11,
        #[error(
            "the attributes of one request to an attribute volume must be of one object; of an object from 2^63 on, they must have the same number"
        )]
        NotTogether = 12,
        /// A truncate cuts off too many pieces. Cut off more in several requests, beginning at the end.
        #[error("a request may cut off at most 4 MiB of data: truncate in several requests")]
        CutsTooMuch = 13,
        #[error(
            "an attribute volume holds attributes only: its objects all exist, can't be created or removed, and have no bytes"
        )]
        NotInAttributeVolume = 14,
        #[error(
            "the volume is not an attribute volume, and can't become one: it must be a dedicated volume of at least 128 KiB, atomic and ordered"
        )]
        NotAnAttributeVolume = 15,
        #[error(
            "the highest number that a request may choose is {:#x}: choose a lower one, or 0 to let the device choose",
            limits::OBJECT_WISHED_MAX
        )]
        NumberTooHigh = 16,
    }
}
