//! The workload on an attribute volume: the same as on devices, as far as attribute volumes support it, and occasionally requests
//! that they refuse.
//!
//! Objects with odd numbers have all their attributes in one bucket, the others are spread over buckets. Commands in one request use
//! pages of their own and, for an object that is spread, one number.

use super::{COUNTER, NUMBER, ObjectChoice, ObjectOptions, ObjectWorkload, WORD, command, get, request, set};
use crate::prelude::*;
use braid_objects::attribute_volume::FIRST_SPREAD_OBJECT;
use braid_wire::{Action, SetAttribute, When};

/// The attribute volume, in place of a device.
pub const ATTRIBUTE_VOLUME: DeviceId = DeviceId(u16::MAX);
/// The object whose attributes are listed.
pub(crate) const LISTED: ObjectId = ObjectId(3);

impl ObjectOptions {
    /// Draws options for a volume that is an attribute volume: all operations of clients concern it.
    pub fn draw_for_attribute_volume(rng: &mut Rng, request_timeout: Duration) -> ObjectOptions {
        let options = ObjectOptions::draw(rng, request_timeout);
        ObjectOptions { devices: 1, staying: rng.between(1, 4), share: 100, hasty: 0, crowd: 0, ..options }
    }

    pub fn in_attribute_volume(&self) -> impl Iterator<Item = ObjectId> + use<> {
        (1..=self.staying).map(|number| ObjectId(if number % 2 == 1 { number } else { FIRST_SPREAD_OBJECT.0 + number }))
    }
}

impl ObjectWorkload {
    /// The next operation of a client on an attribute volume.
    pub fn wish_of_attribute_volume(&mut self) -> ObjectChoice {
        let (device, patience) = (ATTRIBUTE_VOLUME, self.patience());
        let object = self.one_in_attribute_volume();
        let commands = match self.rng.below(20) {
            0..6 => vec![self.addition(object)],
            6..11 => vec![self.word(device, object)],
            11 | 12 => vec![self.number(device, object)],
            13..17 => self.together(object),
            17 if self.options.bulk_bytes_max > 0 => vec![self.bulk(object)],
            18 => self.not_taken(object),
            _ => vec![self.about(object)],
        };
        ObjectChoice { device, asks: request(commands), patience }
    }

    fn one_in_attribute_volume(&mut self) -> ObjectId {
        let which = self.rng.below(self.options.staying) as usize;
        self.options.in_attribute_volume().nth(which).expect("the index is below the number of objects")
    }

    /// Several commands in one request: with conditions, refused in the middle, or reading all values that others change together.
    fn together(&mut self, object: ObjectId) -> Vec<ObjectCommand> {
        let name = |which: u32| match object < FIRST_SPREAD_OBJECT {
            true => AttributeName::new(2, which),
            false => AttributeName::new(10 + which, 7),
        };
        let (lock, count, mark) = (name(1), name(2), name(3));
        let value = self.value();
        let known = self.known(ATTRIBUTE_VOLUME, object, lock);
        let swap = self.swap(object, lock, known, value.clone());
        let sets = vec![SetAttribute { name: mark, value: value.clone() }];
        let add = Action::FetchAndAdd { name: count, add: 1, original: true };
        match self.rng.below(4) {
            0 => vec![
                ObjectCommand { sets, sets_when: When::IfSwapped, gets: vec![count], ..swap },
                ObjectCommand { when: When::IfSwapped, ..command(object, add) },
                ObjectCommand { when: When::IfNotSwapped, ..get(object, mark) },
            ],
            1 => vec![swap, ObjectCommand { when: When::IfSwapped, ..set(object, mark, value) }],
            2 => vec![ObjectCommand { gets: vec![lock, count, mark], ..command(object, Action::Nothing) }],
            // Unless the value has the length of a number by chance, the second command fails, so the first one must have no effect.
            _ => vec![
                ObjectCommand { sets, ..command(object, add) },
                command(object, Action::FetchAndAdd { name: mark, add: 1, original: true }),
            ],
        }
    }

    fn about(&mut self, object: ObjectId) -> ObjectCommand {
        match self.rng.below(5) {
            0 => command(object, Action::Stat),
            1 => command(object, Action::Flush),
            2 if object == LISTED => command(object, Action::ListAttributes { after: None, page: None, most: 20 }),
            3 => get(object, WORD),
            _ => get(object, COUNTER),
        }
    }

    /// Requests that every attribute volume refuses, wherever objects lie.
    fn not_taken(&mut self, object: ObjectId) -> Vec<ObjectCommand> {
        let data = self.value();
        match self.rng.below(4) {
            0 => vec![set(object, WORD, data), command(object, Action::Remove)],
            1 => vec![command(object, Action::Append { data })],
            2 => vec![set(FIRST_SPREAD_OBJECT, COUNTER, data), get(FIRST_SPREAD_OBJECT, NUMBER)],
            _ => vec![set(ObjectId(1), WORD, data), get(ObjectId(5), WORD)],
        }
    }
}
