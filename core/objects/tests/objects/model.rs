//! A model of objects, as simple as possible: it follows the documentation of [`braid_wire::objects`], and has no keys, views or pieces.

use crate::words::*;
use braid_wire::*;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub objects: BTreeMap<u64, Object>,
    pub incarnations: u64,
    highest: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    pub incarnation: u64,
    pub bytes: Vec<u8>,
    pub attributes: BTreeMap<(u32, u32), Vec<u8>>,
}

impl Model {
    /// Executes a request on a copy of the objects, which replaces them if nothing fails.
    pub fn ask(&mut self, request: &ObjectRequest) -> ObjectAnswer {
        let mut brought = 0;
        for (number, command) in request.commands.iter().enumerate() {
            brought += bytes_of(command);
            let failure = match impossible(command) {
                _ if number >= 64 || brought > 512 << 10 => ObjectFailure::Malformed,
                Some(failure) => failure,
                None => continue,
            };
            return Err(ObjectRefusal { command: number as u32, failure });
        }
        let mut run = Run { model: self.clone(), made: None, swaps: Vec::new(), told: 0 };
        let mut results = Vec::new();
        for (number, command) in request.commands.iter().enumerate() {
            let refusal = |failure| ObjectRefusal { command: number as u32, failure };
            results.push(run.command(command).map_err(refusal)?);
        }
        *self = run.model;
        Ok(results)
    }
}

/// The execution of one request.
struct Run {
    model: Model,
    made: Option<u64>,
    swaps: Vec<bool>,
    told: usize,
}

impl Run {
    fn holds(&self, when: When) -> bool {
        match when {
            When::Always => true,
            When::IfSwapped => self.swaps.iter().all(|swapped| *swapped),
            When::IfNotSwapped => self.swaps.contains(&false),
        }
    }

    fn command(&mut self, command: &ObjectCommand) -> Result<CommandResult, ObjectFailure> {
        if !self.holds(command.when) {
            return Ok(CommandResult { action: ActionResult::Skipped, values: vec![] });
        }
        let action = match command.action {
            Action::Create => self.create(command.object.0)?,
            Action::List { after, most } => self.list(after.0, most)?,
            Action::Remove => {
                self.object(command)?;
                let number = self.number(command);
                self.model.objects.remove(&number);
                return Ok(CommandResult { action: ActionResult::Done, values: vec![] });
            }
            ref action => self.act(command, action)?,
        };
        // The rest of the command refers to the new object.
        let target = match action {
            ActionResult::Created { object } => ObjectCommand { object, ..command.clone() },
            _ => command.clone(),
        };
        if self.holds(command.sets_when) {
            for set in &command.sets {
                let object = self.object(&target)?;
                put(object, set.name, &set.value);
            }
        }
        let mut values = Vec::new();
        for name in &command.gets {
            let object = self.object(&target)?;
            let value = match (name.page, name.number) {
                (0xf000_0001, 1) => (object.bytes.len() as u64).to_be_bytes().to_vec(),
                (0xf000_0001, 2) => object.incarnation.to_be_bytes().to_vec(),
                name => object.attributes.get(&name).cloned().unwrap_or_default(),
            };
            self.told += value.len();
            values.push(Bytes::from(value));
        }
        if self.told > 512 << 10 {
            return Err(ObjectFailure::Malformed);
        }
        Ok(CommandResult { action, values })
    }

    fn number(&self, command: &ObjectCommand) -> u64 {
        if command.object.0 == 0 { self.made.unwrap_or(0) } else { command.object.0 }
    }

    fn object(&mut self, command: &ObjectCommand) -> Result<&mut Object, ObjectFailure> {
        let number = self.number(command);
        self.model.objects.get_mut(&number).ok_or(ObjectFailure::NoSuchObject)
    }

    fn create(&mut self, wished: u64) -> Result<ActionResult, ObjectFailure> {
        let number = if wished == 0 { self.model.highest + 1 } else { wished };
        if self.model.objects.contains_key(&number) {
            return Err(ObjectFailure::ObjectExists);
        }
        self.model.highest = self.model.highest.max(number);
        self.model.incarnations += 1;
        let incarnation = self.model.incarnations;
        self.model.objects.insert(number, Object { incarnation, ..Object::default() });
        self.made = Some(number);
        Ok(ActionResult::Created { object: ObjectId(number) })
    }

    fn list(&mut self, after: u64, most: u32) -> Result<ActionResult, ObjectFailure> {
        let behind: Vec<u64> = self.model.objects.keys().copied().filter(|number| *number > after).collect();
        let most = most.min(1024) as usize;
        let found: Vec<_> = behind.iter().take(most).map(|number| ObjectId(*number)).collect();
        self.told += 8 * found.len();
        Ok(ActionResult::Objects { found, more: behind.len() > most })
    }

    fn act(&mut self, command: &ObjectCommand, action: &Action) -> Result<ActionResult, ObjectFailure> {
        let object = self.object(command)?;
        let length = object.bytes.len() as u64;
        let mut told = 0;
        let result = match action.clone() {
            Action::Nothing | Action::Flush => ActionResult::Done,
            Action::Stat => ActionResult::Stat { length, incarnation: object.incarnation },
            Action::Read { offset, length } => {
                let behind = object.bytes.iter().skip(offset.min(1 << 40) as usize);
                let data: Vec<u8> = behind.take(length as usize).copied().collect();
                told = data.len();
                ActionResult::Data { data: data.into() }
            }
            Action::Write { offset, data } => {
                overwrite(object, offset as usize, &data);
                ActionResult::Done
            }
            Action::Append { data } => {
                overwrite(object, length as usize, &data);
                ActionResult::Appended { offset: length }
            }
            Action::Truncate { length } => {
                object.bytes.resize(length as usize, 0);
                ActionResult::Done
            }
            Action::CompareAndSwap { name, compare, swap, undefined, original } => {
                let value = object.attributes.get(&(name.page, name.number)).cloned();
                let swapped = match (&value, undefined) {
                    (Some(value), _) => *value == compare,
                    (None, Undefined::Matches) => true,
                    (None, Undefined::IsEmpty) => compare.is_empty(),
                };
                if swapped {
                    put(object, name, &swap);
                }
                let value = value.unwrap_or_default();
                told = if original { value.len() } else { 0 };
                self.swaps.push(swapped);
                ActionResult::Compared { swapped, original: original.then(|| value.into()) }
            }
            Action::FetchAndAdd { name, add, original } => {
                let number = match object.attributes.get(&(name.page, name.number)) {
                    None => 0,
                    Some(value) if value.len() == 8 => {
                        value.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte)) as i64
                    }
                    Some(value) => return Err(ObjectFailure::NotANumber { length: value.len() as u32 }),
                };
                let sum = i128::from(number) + i128::from(add);
                let sum = i64::try_from(sum).map_err(|_| ObjectFailure::Overflow)?;
                put(object, name, &sum.to_be_bytes());
                ActionResult::Added { original: original.then_some(number) }
            }
            Action::ListAttributes { after, page, most } => {
                let after = after.map(|after| (after.page, after.number));
                let wanted = |name: &(u32, u32)| page.is_none_or(|page| name.0 == page) && Some(*name) > after;
                let all: Vec<_> = object.attributes.iter().filter(|(name, _)| wanted(name)).collect();
                let most = most.min(1024) as usize;
                let named =
                    |(name, value): &(&(u32, u32), &Vec<u8>)| (AttributeName::new(name.0, name.1), value.len() as u32);
                let found: Vec<_> = all.iter().take(most).map(named).collect();
                told = 12 * found.len();
                ActionResult::Attributes { found, more: all.len() > most }
            }
            Action::Create | Action::Remove | Action::List { .. } => unreachable!("handled by the caller"),
        };
        self.told += told;
        if self.told > 512 << 10 {
            return Err(ObjectFailure::Malformed);
        }
        Ok(result)
    }
}

fn overwrite(object: &mut Object, offset: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let end = offset + data.len();
    if end > object.bytes.len() {
        object.bytes.resize(end, 0);
    }
    object.bytes[offset..end].copy_from_slice(data);
}

fn put(object: &mut Object, name: AttributeName, value: &[u8]) {
    let name = (name.page, name.number);
    if value.is_empty() {
        object.attributes.remove(&name);
    } else {
        object.attributes.insert(name, value.to_vec());
    }
}

/// The failure of a command that no device accepts.
fn impossible(command: &ObjectCommand) -> Option<ObjectFailure> {
    let most_attached = command.sets.len().max(command.gets.len());
    let no_value = Bytes::new();
    let mut written: Vec<(AttributeName, &Bytes)> = Vec::new();
    let failure = match &command.action {
        _ if most_attached > 64 => Some(ObjectFailure::Malformed),
        Action::Remove | Action::List { .. } if most_attached > 0 => Some(ObjectFailure::Malformed),
        Action::Read { length, .. } if *length > 256 << 10 => Some(ObjectFailure::Malformed),
        Action::Write { data, .. } | Action::Append { data } if data.len() > 256 << 10 => {
            Some(ObjectFailure::Malformed)
        }
        Action::Write { offset, data } if u128::from(*offset) + data.len() as u128 > 1 << 50 => {
            Some(ObjectFailure::TooLong)
        }
        Action::Truncate { length } if *length > 1 << 50 => Some(ObjectFailure::TooLong),
        Action::Create if command.object.0 >> 56 == 0xff => Some(ObjectFailure::NumberTooHigh),
        Action::CompareAndSwap { compare, .. } if compare.len() > 64 << 10 => {
            Some(ObjectFailure::ValueTooLong { length: compare.len() as u32 })
        }
        Action::CompareAndSwap { name, swap, .. } => {
            written.push((*name, swap));
            None
        }
        Action::FetchAndAdd { name, .. } => {
            written.push((*name, &no_value));
            None
        }
        _ => None,
    };
    written.extend(command.sets.iter().map(|set| (set.name, &set.value)));
    let not_set = |(name, value): (AttributeName, &Bytes)| match value.len() {
        _ if name.page >= 0xf000_0000 => Some(ObjectFailure::ReservedPage { page: name.page }),
        0..=65536 => None,
        length => Some(ObjectFailure::ValueTooLong { length: length as u32 }),
    };
    failure.or_else(|| written.into_iter().find_map(not_set))
}

fn bytes_of(command: &ObjectCommand) -> usize {
    let action = match &command.action {
        Action::Write { data, .. } | Action::Append { data } => data.len(),
        Action::CompareAndSwap { compare, swap, .. } => compare.len() + swap.len(),
        _ => 0,
    };
    action + command.sets.iter().map(|set| set.value.len()).sum::<usize>()
}

const _: () = assert!(limits::ATTRIBUTE_BYTES_MAX == 65536 && limits::OBJECT_REQUEST_BYTES_MAX == 512 << 10);
