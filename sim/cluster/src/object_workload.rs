//! The workload on objects: commands of every kind, alone and several in a request, on a few objects that all clients share.
//!
//! Every value is unique, so that a value that is found identifies the request that wrote it. Attributes have fixed purposes, so that
//! the history consists of parts that can be checked separately:
//!
//! | page | number | commands |
//! | --- | --- | --- |
//! | 1 | 1 | additions only |
//! | 1 | 2 | values are swapped, set, made undefined and awaited |
//! | 1 | 3 | numbers are added to, swapped and set |
//! | 2 | any | several in a request, also for two objects, with conditions |
//! | 3 | any | attached to operations on bytes |
//! | 4 | any | long values are set and never read |

pub mod attribute_volume;

use crate::prelude::*;
use braid_check::ObjectOperation;
use braid_wire::{Action, ActionResult, ObjectRequest, SetAttribute, Undefined, When};

/// A counter that is only added to.
pub const COUNTER: AttributeName = AttributeName::new(1, 1);
/// An attribute whose values are swapped.
const WORD: AttributeName = AttributeName::new(1, 2);
/// A number on which all operations are used.
const NUMBER: AttributeName = AttributeName::new(1, 3);
/// The smallest number of objects that are created and removed.
const COMES_AND_GOES: u64 = 100;
/// The time-out of impatient requests is at most the longest one divided by this.
const HASTY: u64 = 30;
/// The end of the range in which an object has bytes.
const BYTES_MAX: u64 = 8 << 10;

/// Objects that clients use in addition to the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectOptions {
    pub devices: u16,
    /// Objects that each of these devices has from the start and keeps.
    pub staying: u64,
    /// The share of clients' operations that concern objects, in per cent.
    pub share: u64,
    /// The longest value of an attribute.
    pub value_bytes_max: u64,
    /// The longest of the values that are set to fill the journal; 0 for none.
    pub bulk_bytes_max: u64,
    /// The longest time-out of a request.
    pub patience_max: Duration,
    /// The share of requests with a much shorter time-out, in per cent.
    pub hasty: u64,
    /// The smallest number of clients of a host, if they mainly use objects and there are few hosts.
    pub crowd: usize,
}

impl ObjectOptions {
    pub fn draw(rng: &mut Rng, request_timeout: Duration) -> ObjectOptions {
        ObjectOptions {
            devices: rng.between(1, 3) as u16,
            staying: rng.between(1, 3),
            share: [20, 60, 95][rng.below(3) as usize],
            value_bytes_max: [20, 200, 2_000][rng.below(3) as usize],
            bulk_bytes_max: [0, 60_000][rng.below(2) as usize],
            patience_max: [request_timeout, request_timeout / 4][rng.below(2) as usize],
            hasty: [0, 10, 50][rng.below(3) as usize],
            crowd: [0, 0, 6, 12][rng.below(4) as usize],
        }
    }
}

/// The next object operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChoice {
    pub device: DeviceId,
    pub asks: ObjectAsks,
    /// The time-out of the request.
    pub patience: Duration,
}

/// See [`ObjectChoice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectAsks {
    /// Commands to be executed.
    Request(ObjectRequest),
    /// A request to wait until an attribute has another value than this.
    Change(ObjectId, AttributeName, Bytes),
}

/// A generator of object operations.
#[derive(Clone, Debug)]
pub struct ObjectWorkload {
    rng: Rng,
    options: ObjectOptions,
    /// The number of values made so far.
    values: u64,
    /// The value of each attribute that a client was last told.
    told: BTreeMap<(DeviceId, ObjectId, AttributeName), Bytes>,
}

impl ObjectWorkload {
    /// A generator for objects with these options.
    pub fn new(options: ObjectOptions, rng: Rng) -> ObjectWorkload {
        ObjectWorkload { rng, options, values: 0, told: BTreeMap::new() }
    }

    /// The array has so many devices.
    pub(crate) fn limit_devices(&mut self, count: u16) {
        self.options.devices = self.options.devices.min(count);
    }

    /// The next object operation; `None` if the client's next operation does not concern objects.
    pub fn operation(&mut self) -> Option<ObjectChoice> {
        if !self.rng.chance(self.options.share, 100) {
            return None;
        }
        let device = DeviceId(self.rng.below(self.options.devices.into()) as u16);
        let patience = self.patience();
        let object = ObjectId(self.rng.between(1, self.options.staying));
        let asks = match self.rng.below(20) {
            0..5 => request(vec![self.addition(object)]),
            5..9 => request(vec![self.word(device, object)]),
            9 => ObjectAsks::Change(object, WORD, self.known(device, object, WORD)),
            10 | 11 => request(vec![self.number(device, object)]),
            12 | 13 => request(self.several(device, object)),
            14..16 => request(vec![self.bytes(object)]),
            16 | 17 if self.options.bulk_bytes_max > 0 => request(vec![self.bulk(object)]),
            _ => request(self.coming_and_going()),
        };
        Some(ObjectChoice { device, asks, patience })
    }

    fn patience(&mut self) -> Duration {
        let most = self.options.patience_max.as_nanos() as u64;
        if self.rng.chance(self.options.hasty, 100) {
            return Duration::from_nanos(self.rng.below(most / HASTY) + 1);
        }
        Duration::from_nanos(most / 8 + self.rng.below(most))
    }

    /// Learns the values that a client was told.
    pub fn learn(&mut self, operation: &ObjectOperation) {
        let Some(Ok(results)) = operation.answer() else { return };
        for (command, result) in operation.request.commands.iter().zip(results) {
            let mut tell =
                |name, value: &Bytes| self.told.insert((operation.device, command.object, name), value.clone());
            if let (
                Action::CompareAndSwap { name, swap, .. },
                ActionResult::Compared { swapped, original: Some(original) },
            ) = (&command.action, &result.action)
            {
                tell(*name, if *swapped { swap } else { original });
            }
            for (name, value) in command.gets.iter().zip(&result.values) {
                tell(*name, value);
            }
        }
    }

    fn addition(&mut self, object: ObjectId) -> ObjectCommand {
        if self.rng.below(5) == 0 {
            return get(object, COUNTER);
        }
        let add = self.rng.between(1, 3) as i64;
        let original = self.rng.below(8) > 0;
        let gets = if self.rng.below(4) == 0 { vec![COUNTER] } else { Vec::new() };
        ObjectCommand { gets, ..command(object, Action::FetchAndAdd { name: COUNTER, add, original }) }
    }

    fn word(&mut self, device: DeviceId, object: ObjectId) -> ObjectCommand {
        match self.rng.below(8) {
            0 => get(object, WORD),
            1 => set(object, WORD, self.value()),
            2 => set(object, WORD, Bytes::new()),
            // Adding to a value that is not a number fails.
            3 => command(object, Action::FetchAndAdd { name: WORD, add: 1, original: true }),
            _ => {
                let (compare, swap) = (self.known(device, object, WORD), self.value());
                self.swap(object, WORD, compare, swap)
            }
        }
    }

    fn number(&mut self, device: DeviceId, object: ObjectId) -> ObjectCommand {
        let value = number(self.rng.below(1 << 40) as i64);
        match self.rng.below(5) {
            0 => set(object, NUMBER, value),
            1 => get(object, NUMBER),
            2 => {
                let known = self.known(device, object, NUMBER);
                self.swap(object, NUMBER, known, value)
            }
            _ => {
                let add = self.rng.between(1, 1000) as i64 - 500;
                let overflows = self.rng.below(20) == 0;
                let add = if overflows { i64::MAX } else { add };
                command(object, Action::FetchAndAdd { name: NUMBER, add, original: true })
            }
        }
    }

    /// Several commands in a request: a lock that is taken and used, or values of two objects that are changed or read together.
    fn several(&mut self, device: DeviceId, object: ObjectId) -> Vec<ObjectCommand> {
        let other = ObjectId(self.rng.between(1, self.options.staying));
        let name = AttributeName::new(2, 1);
        let count = AttributeName::new(2, 2);
        let value = self.value();
        let known = self.known(device, object, name);
        let swap = self.swap(object, name, known, value.clone());
        let sets = vec![SetAttribute { name: AttributeName::new(2, 3), value: value.clone() }];
        let add = Action::FetchAndAdd { name: count, add: 1, original: true };
        match self.rng.below(4) {
            0 => vec![
                ObjectCommand { sets, sets_when: When::IfSwapped, gets: vec![count], ..swap },
                ObjectCommand { when: When::IfSwapped, ..command(object, add) },
                ObjectCommand { when: When::IfNotSwapped, ..get(object, AttributeName::new(2, 3)) },
            ],
            1 => vec![swap, ObjectCommand { when: When::IfSwapped, ..set(other, AttributeName::new(2, 4), value) }],
            2 => vec![get(object, name), get(other, AttributeName::new(2, 4)), get(object, count)],
            // The second command fails, so the first one must have no effect.
            _ => vec![
                ObjectCommand { sets, ..command(object, add) },
                command(ObjectId(COMES_AND_GOES - 1), Action::Nothing),
            ],
        }
    }

    fn bytes(&mut self, object: ObjectId) -> ObjectCommand {
        let value = self.value();
        let mark = AttributeName::new(3, 1);
        let offset = self.rng.below(BYTES_MAX);
        match self.rng.below(8) {
            0 | 1 => command(object, Action::Append { data: value }),
            2 => ObjectCommand {
                gets: vec![AttributeName::OBJECT_LENGTH],
                ..command(object, Action::Append { data: value })
            },
            3 => ObjectCommand {
                sets: vec![SetAttribute { name: mark, value: value.clone() }],
                ..command(object, Action::Write { offset, data: value })
            },
            4 => command(object, Action::Truncate { length: offset / 4 }),
            5 => command(object, Action::Stat),
            _ => {
                let length = self.rng.below(BYTES_MAX) as u32;
                ObjectCommand { gets: vec![mark], ..command(object, Action::Read { offset, length }) }
            }
        }
    }

    fn bulk(&mut self, object: ObjectId) -> ObjectCommand {
        let length = self.rng.between(1, self.options.bulk_bytes_max) as usize;
        set(object, AttributeName::new(4, 1), vec![length as u8; length].into())
    }

    fn coming_and_going(&mut self) -> Vec<ObjectCommand> {
        let object = ObjectId(COMES_AND_GOES + self.rng.below(4));
        let name = AttributeName::new(1, 1 + self.rng.below(3) as u32);
        match self.rng.below(9) {
            0 => vec![command(object, Action::Create)],
            1 => vec![command(ObjectId(0), Action::Create), set(ObjectId(0), name, self.value())],
            2 => vec![ObjectCommand {
                sets: vec![SetAttribute { name, value: self.value() }],
                ..command(object, Action::Create)
            }],
            3 => vec![command(object, Action::Remove)],
            4 => vec![command(object, Action::Remove), command(object, Action::Create)],
            5 => vec![command(ObjectId(0), Action::List { after: ObjectId(0), most: 20 })],
            6 => vec![command(object, Action::ListAttributes { after: None, page: None, most: 20 })],
            7 => vec![ObjectCommand { gets: vec![name], ..set(object, name, self.value()) }],
            _ => vec![command(object, Action::Append { data: self.value() }), command(object, Action::Stat)],
        }
    }

    fn swap(&mut self, object: ObjectId, name: AttributeName, compare: Bytes, swap: Bytes) -> ObjectCommand {
        let undefined = if self.rng.chance(1, 2) { Undefined::Matches } else { Undefined::IsEmpty };
        command(object, Action::CompareAndSwap { name, compare, swap, undefined, original: true })
    }

    /// A value that the attribute may have; sometimes one that was never written.
    fn known(&mut self, device: DeviceId, object: ObjectId, name: AttributeName) -> Bytes {
        match self.rng.below(8) {
            0 => self.value(),
            _ => self.told.get(&(device, object, name)).cloned().unwrap_or_default(),
        }
    }

    /// A unique value.
    fn value(&mut self) -> Bytes {
        self.values += 1;
        let mut value = format!("value {} ", self.values).into_bytes();
        let length = self.rng.below(self.options.value_bytes_max) as usize;
        while value.len() < length {
            value.push(b'a' + (value.len() % 26) as u8);
        }
        value.into()
    }
}

/// A command with this action, without conditions.
pub fn command(object: ObjectId, action: Action) -> ObjectCommand {
    ObjectCommand::new(object, action)
}

pub fn get(object: ObjectId, name: AttributeName) -> ObjectCommand {
    ObjectCommand { gets: vec![name], ..command(object, Action::Nothing) }
}

pub fn set(object: ObjectId, name: AttributeName, value: Bytes) -> ObjectCommand {
    ObjectCommand { sets: vec![SetAttribute { name, value }], ..command(object, Action::Nothing) }
}

fn request(commands: Vec<ObjectCommand>) -> ObjectAsks {
    ObjectAsks::Request(ObjectRequest { commands })
}

fn number(value: i64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}
