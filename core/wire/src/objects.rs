//! Requests for objects that hold bytes and attributes (device atomics, sections 2, 4 and 5), and what devices answer.
//!
//! An object lives on one device, which gives it a number there. It has nothing to do with the component objects of volumes. Its attributes
//! are named by page and number; an attribute of no bytes is an undefined one.
//!
//! A request is a list of commands, done one after the other, as one: after a crash all of it has happened or nothing, and nobody
//! sees a part. If a command fails, nothing of the request happens. A compare-and-swap that finds another value is no failure; what
//! follows it may depend on it ([`When`]).
//!
//! Inside a command the order is: the action, the sets, the gets.

use braid_base::{ObjectId, limits};
use bytes::Bytes;

/// Commands that happen as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectRequest {
    /// At most [`limits::OBJECT_COMMANDS_MAX`].
    pub commands: Vec<ObjectCommand>,
}

impl ObjectRequest {
    /// Whether a device takes the request at all, whatever it holds. Senders ask this, too: what is refused here may not fit into a frame.
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

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        let lists = |command: &ObjectCommand| {
            command.sets.len() * size_of::<SetAttribute>() + command.gets.len() * size_of::<AttributeName>()
        };
        let command = |command: &ObjectCommand| size_of::<ObjectCommand>() + lists(command) + command.bytes();
        self.commands.iter().map(command).sum()
    }

    /// True if it changes nothing, whatever it finds.
    pub fn only_asks(&self) -> bool {
        self.commands.iter().all(ObjectCommand::only_asks)
    }
}

/// One command on one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectCommand {
    /// Which object. Of [`Action::Create`]: the number wished for, at most [`limits::OBJECT_WISHED_MAX`], or zero to let the device choose
    /// one that was never used before; behind that, in the same request, zero is the object last made. Of [`Action::List`]: ignored.
    pub object: ObjectId,
    /// If this does not hold, the command is skipped, and answered with [`ActionResult::Skipped`].
    pub when: When,
    /// What to do.
    pub action: Action,
    /// Attributes to set once that is done, at most [`limits::ATTRIBUTES_PER_COMMAND_MAX`].
    pub sets: Vec<SetAttribute>,
    /// If this does not hold after the action, the sets don't happen.
    pub sets_when: When,
    /// Attributes to get after that, as many at most. An undefined one has no bytes.
    pub gets: Vec<AttributeName>,
}

impl ObjectCommand {
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

    /// True if it changes nothing, whatever it finds.
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

    /// The bytes that it brings.
    fn bytes(&self) -> usize {
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

/// A condition on what came before in the same request. The device-atomics paper left this out (section 5), for want of an example: a lock
/// that is taken, used and given back in one round trip is one, and so is a leader whose late writes must not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// Whatever came before.
    #[default]
    Always,
    /// Every compare-and-swap so far in this request has swapped. Also if there was none; those that were skipped don't count.
    IfSwapped,
    /// Some compare-and-swap so far in this request has not swapped.
    IfNotSwapped,
}

/// An attribute's name in its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeName {
    /// Pages from [`AttributeName::RESERVED_PAGES`] on belong to the device.
    pub page: u32,
    /// In the page.
    pub number: u32,
}

impl AttributeName {
    /// Pages from here on are the device's: they can't be set, and but for [`AttributeName::OBJECT_PAGE`] nothing is there.
    pub const RESERVED_PAGES: u32 = 0xf000_0000;
    /// What the device knows of the object, to get only: number 1 its length in bytes, 2 its *incarnation*, a number that no other object of
    /// this device has or had. Each is eight bytes, big-endian.
    pub const OBJECT_PAGE: u32 = 0xf000_0001;
    /// See [`AttributeName::OBJECT_PAGE`].
    pub const OBJECT_LENGTH: AttributeName = AttributeName::new(AttributeName::OBJECT_PAGE, 1);
    /// See [`AttributeName::OBJECT_PAGE`].
    pub const OBJECT_LIFE: AttributeName = AttributeName::new(AttributeName::OBJECT_PAGE, 2);

    /// The attribute of this number on this page.
    pub const fn new(page: u32, number: u32) -> AttributeName {
        AttributeName { page, number }
    }

    /// True if its page belongs to the device.
    pub fn is_reserved(self) -> bool {
        self.page >= AttributeName::RESERVED_PAGES
    }
}

/// A new value for an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetAttribute {
    /// Which.
    pub name: AttributeName,
    /// At most [`limits::ATTRIBUTE_BYTES_MAX`] bytes. None at all: it is undefined from now on.
    pub value: Bytes,
}

/// What a command does before its sets and gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Nothing, if the object is there.
    Nothing,
    /// Makes the object, empty. One that is there already is a failure.
    Create,
    /// Removes the object with all its bytes and attributes. Must not have sets or gets, and neither must [`Action::List`].
    Remove,
    /// Reads bytes; what lies beyond the object's end is not answered, what was never written is zeros.
    Read {
        /// From this byte on.
        offset: u64,
        /// At most so many. More than [`limits::OBJECT_IO_BYTES_MAX`] are refused: less would look like the object's end.
        length: u32,
    },
    /// Writes bytes; the object grows if need be, to [`limits::OBJECT_BYTES_MAX`] at most. No bytes change nothing.
    Write {
        /// At this byte.
        offset: u64,
        /// At most [`limits::OBJECT_IO_BYTES_MAX`].
        data: Bytes,
    },
    /// Writes bytes at the object's end.
    Append {
        /// Likewise.
        data: Bytes,
    },
    /// Cuts the object off, or has it grow by zeros that take no room. One request cuts off at most
    /// [`limits::OBJECT_PIECES_CUT_MAX`] pieces of 4 KiB that were written.
    Truncate {
        /// Its length from now on.
        length: u64,
    },
    /// Ends when everything answered before is durable, which it is anyhow.
    Flush,
    /// How long the object is.
    Stat,
    /// Gives the attribute another value, if it has the one that it is compared with; to the byte and in its length.
    CompareAndSwap {
        /// Which.
        name: AttributeName,
        /// With this.
        compare: Bytes,
        /// Its value from now on; no bytes: undefined.
        swap: Bytes,
        /// What an undefined attribute is equal to.
        undefined: Undefined,
        /// Whether to answer the value that it had.
        original: bool,
    },
    /// Adds to a signed number of eight bytes, big-endian; an undefined attribute counts as zero. A sum that does not fit is a failure:
    /// a counter must not begin anew unnoticed.
    FetchAndAdd {
        /// Which.
        name: AttributeName,
        /// So much.
        add: i64,
        /// Whether to answer the value that it had.
        original: bool,
    },
    /// Lists attributes by name, of one page or from one page on.
    ListAttributes {
        /// Those after this one; none: from the first.
        after: Option<AttributeName>,
        /// Only of this page.
        page: Option<u32>,
        /// At most so many, and at most [`limits::OBJECT_LIST_MAX`].
        most: u32,
    },
    /// Lists the device's objects by number.
    List {
        /// Those after this one; zero: from the first.
        after: ObjectId,
        /// Likewise.
        most: u32,
    },
}

/// What an undefined attribute is equal to in a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undefined {
    /// Everything: as in the device-atomics paper (section 4), so that nobody needs to initialize a lock.
    #[default]
    Matches,
    /// Only a value of no bytes. For whoever must not bring back what others have removed.
    IsEmpty,
}

/// What became of a request: of each command, or why nothing happened.
pub type ObjectAnswer = Result<Vec<CommandResult>, ObjectRefusal>;

/// What one command brought.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommandResult {
    /// Of the action.
    pub action: ActionResult,
    /// The attributes asked for, in that order. Of a command that was skipped, none.
    pub values: Vec<Bytes>,
}

/// What an action brought.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ActionResult {
    /// The command's condition did not hold.
    Skipped,
    /// It is done.
    Done,
    /// To a create.
    Created {
        /// The object's number.
        object: ObjectId,
    },
    /// To a read.
    Data {
        /// The bytes, as far as the object has them.
        data: Bytes,
    },
    /// To an append.
    Appended {
        /// Where the bytes begin.
        offset: u64,
    },
    /// To a stat.
    Stat {
        /// The object's length in bytes.
        length: u64,
        /// Its number among all objects that the device ever had.
        incarnation: u64,
    },
    /// To a compare-and-swap.
    Compared {
        /// Whether it had the value.
        swapped: bool,
        /// The value that it had, if that was asked for; no bytes: undefined.
        original: Option<Bytes>,
    },
    /// To a fetch-and-add.
    Added {
        /// The value that it had, if that was asked for.
        original: Option<i64>,
    },
    /// To a list of attributes, ascending: names, and the lengths of the values.
    Attributes {
        /// Some of them.
        found: Vec<(AttributeName, u32)>,
        /// Whether there are more: ask again after the last.
        more: bool,
    },
    /// To a list of objects, ascending.
    Objects {
        /// Some of them.
        found: Vec<ObjectId>,
        /// Whether there are more: ask again after the last.
        more: bool,
    },
}

/// Why nothing of a request happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("command {command}: {failure}")]
pub struct ObjectRefusal {
    /// Which command failed, from 0.
    pub command: u32,
    /// Why.
    pub failure: ObjectFailure,
}

/// Why a command can't be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ObjectFailure {
    /// It was never made, or is removed.
    #[error("there is no object of that number")]
    NoSuchObject,
    /// One that was to be made.
    #[error("there is an object of that number already")]
    ObjectExists,
    /// The device chooses such numbers.
    #[error("the highest number that may be wished for is {:#x}", limits::OBJECT_WISHED_MAX)]
    NumberTooHigh,
    /// A fetch-and-add finds something else.
    #[error("the attribute has {length} bytes, and is no number of 8")]
    NotANumber {
        /// Of the value.
        length: u32,
    },
    /// Of a fetch-and-add.
    #[error("the sum does not fit into a signed number of 64 bits")]
    Overflow,
    /// Of an attribute.
    #[error("a value can have 65536 bytes at most, this one has {length}")]
    ValueTooLong {
        /// Of the value.
        length: u32,
    },
    /// The device's pages can't be set.
    #[error("page {page:#x} belongs to the device: pages below 0xf0000000 are yours")]
    ReservedPage {
        /// Which.
        page: u32,
    },
    /// Of a write or truncate.
    #[error("an object can't be that long")]
    TooLong,
    /// Of a truncate: who cuts off more goes from the end in steps.
    #[error("a request cuts off 4 MiB of data at most: do it in steps")]
    CutsTooMuch,
    /// Removing still works.
    #[error("the device is full")]
    NoSpace,
    /// What the device had there is damaged.
    #[error("what the device holds of the object is damaged")]
    Lost,
    /// A table is full.
    #[error("the device has too much under way: try again later")]
    Busy,
    /// Too many commands, attributes or bytes in one request or its answer, or things that don't go together.
    #[error("the request is not one that a device takes: too much at once, or what does not go together")]
    Malformed,
    /// Of a request to an attribute volume: its attributes don't lie together.
    #[error(
        "the attributes of one request to an attribute volume must be of one object; of an object from 2^63 on, they must have the same number"
    )]
    NotTogether,
    /// Of a request to an attribute volume.
    #[error(
        "an attribute volume keeps attributes only: its objects are all there, are not made or removed, and hold no bytes"
    )]
    NotInAttributeVolume,
    /// Of a request to an attribute volume.
    #[error(
        "the volume can't be an attribute volume, or holds something else: an attribute volume is a volume of its own, of at least 128 KiB, atomic and ordered"
    )]
    NotAnAttributeVolume,
}
