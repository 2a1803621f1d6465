//! What the registry has beside `head`: one key for each entry of the array's description, for each lease, and for each copy of the monitor's
//! record. One value for the whole description would be 0.6 MB in a large array, for every change.
//!
//! | key | value |
//! | --- | --- |
//! | `array` | the description without the lists below, and the last generation that was given |
//! | `device/N`, `volume/N`, `file-system/N`, `spare/DISK` | an entry of the description |
//! | `lease/N` | who took generation N, and whether its lease is over |
//! | `record/0`, `record/1` | the copies of the monitor's record ([`crate::record_disk`]) |
//! | `machines` | the machines and the tokens by which others join ([`crate::machines`]) |
//!
//! A value is JSON with a schema, as in an array's folder; more or other fields are refused. Lists are in the order of their keys.

use crate::machines::Machines;
use crate::record_disk::copies_of;
use braid_base::{DiskId, Generation};
use braid_description::{
    ArrayDescription, DeviceEntry, DiskEntry, FileSystemEntry, SCHEMA, VolumeEntry, parse, parse_disk,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;

/// A transaction of etcd has 128 operations at most. One of them replaces `head`.
const CHANGES_MAX: usize = 127;
/// A request to etcd has 1.5 MiB at most, of which the rest is for `head` and what is around the values.
const BYTES_MAX: usize = 1_400 << 10;
/// What a change has beside its value, with the prefix of the array.
const KEY_BYTES: usize = 128;

/// The values of all keys but `head`, by the texts of the keys.
pub type Keys = BTreeMap<String, Bytes>;

/// A key of the registry. A key has one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Array,
    Device(u16),
    Volume(u64),
    FileSystem(u16),
    Spare(DiskId),
    /// A copy of the monitor's record.
    Record(u8),
    Lease(Generation),
    /// It is the last one: candidates change with the last write of several.
    Machines,
}

/// What a swap does to a key beside `head`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    /// None removes the key.
    pub value: Option<Bytes>,
}

/// The lease of a host, as it is kept over terms. Renewals and reports are in the memory of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseEntry {
    pub role: String,
    /// Names the request that took it, so that the request can be repeated.
    pub nonce: u64,
    pub is_over: bool,
    /// The host is to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_asked_to_end: bool,
}

/// What the keys say beside the monitor's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub description: ArrayDescription,
    /// The last generation that was given.
    pub last: Generation,
    pub leases: BTreeMap<Generation, LeaseEntry>,
    /// None if it is not known where they are: then no other one joins.
    pub machines: Machines,
}

/// Why keys can't be read, or not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("the registry has a key {key:?}, which this release does not know")]
    UnknownKey { key: String },
    #[error("the value of the key {key} in the registry can't be read: {why}")]
    Unreadable { key: Key, why: String },
    #[error("the registry has no key {key}")]
    Missing { key: Key },
    #[error("the description in the registry contradicts itself: {reason}")]
    Contradiction { reason: String },
    #[error("the value of the key {key} can't be written: {why}")]
    Unwritable { key: Key, why: String },
    #[error(
        "a change of {changes} keys with {bytes} bytes is too large: the registry takes {CHANGES_MAX} keys with {BYTES_MAX} bytes at once"
    )]
    TooLarge { changes: usize, bytes: usize },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Value<T> {
    schema: u64,
    entry: T,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayEntry {
    last_generation: u32,
    description: ArrayDescription,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Array => f.write_str("array"),
            Key::Device(id) => write!(f, "device/{id}"),
            Key::Volume(id) => write!(f, "volume/{id}"),
            Key::FileSystem(id) => write!(f, "file-system/{id}"),
            Key::Spare(disk) => write!(f, "spare/{disk}"),
            Key::Record(copy) => write!(f, "record/{copy}"),
            Key::Lease(host) => write!(f, "lease/{}", host.0),
            Key::Machines => f.write_str("machines"),
        }
    }
}

impl FromStr for Key {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Key, EntryError> {
        let (kind, name) = text.split_once('/').unwrap_or((text, ""));
        let key = match kind {
            "array" => Some(Key::Array),
            "machines" => Some(Key::Machines),
            "device" => name.parse().ok().map(Key::Device),
            "volume" => name.parse().ok().map(Key::Volume),
            "file-system" => name.parse().ok().map(Key::FileSystem),
            "spare" => parse_disk(name).map(Key::Spare),
            "record" => name.parse().ok().filter(|copy| *copy < 2).map(Key::Record),
            "lease" => name.parse().ok().map(Generation).map(Key::Lease),
            _ => None,
        };
        // Not `device/07`.
        key.filter(|key| key.to_string() == text).ok_or_else(|| EntryError::UnknownKey { key: text.into() })
    }
}

impl Change {
    /// Makes the change.
    pub fn make(self, keys: &mut Keys) {
        let key = self.key.to_string();
        match self.value {
            Some(value) => drop(keys.insert(key, value)),
            None => drop(keys.remove(&key)),
        }
    }
}

impl Content {
    /// That of a new array.
    pub fn new(mut description: ArrayDescription, last: Generation) -> Content {
        sort(&mut description);
        Content { description, last, leases: BTreeMap::new(), machines: Machines::default() }
    }

    /// The content of these keys.
    pub fn of(keys: &Keys) -> Result<Content, EntryError> {
        let mut array = None;
        let (mut devices, mut volumes, mut file_systems, mut spares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut leases, mut machines) = (BTreeMap::new(), Machines::default());
        for (text, bytes) in keys {
            match text.parse()? {
                key @ Key::Array => array = Some(read::<ArrayEntry>(key, bytes)?),
                key @ Key::Device(_) => devices.push(read_entry(key, bytes, device_key)?),
                key @ Key::Volume(_) => volumes.push(read_entry(key, bytes, volume_key)?),
                key @ Key::FileSystem(_) => file_systems.push(read_entry(key, bytes, file_system_key)?),
                key @ Key::Spare(_) => spares.push(read_entry(key, bytes, spare_key)?),
                key @ Key::Lease(host) => drop(leases.insert(host, read::<LeaseEntry>(key, bytes)?)),
                key @ Key::Machines => machines = read(key, bytes)?,
                Key::Record(_) => {}
            }
        }
        let array = array.ok_or(EntryError::Missing { key: Key::Array })?;
        let mut description = ArrayDescription { devices, volumes, file_systems, spares, ..array.description };
        sort(&mut description);
        description.check().map_err(|reason| EntryError::Contradiction { reason })?;
        Ok(Content { description, last: Generation(array.last_generation), leases, machines })
    }

    /// The keys of a new array, without leases, and with empty copies of the monitor's record.
    pub fn changes(&self) -> Result<Vec<Change>, EntryError> {
        let mut changes = changes(None, &self.description, self.last)?;
        changes.extend([0, 1].map(|copy| Change { key: Key::Record(copy), value: Some(Bytes::new()) }));
        fit(&changes).map(|()| changes)
    }

    /// What puts this content, and this disk of a monitor, in the place of all keys that there are: the changes of as few transactions as
    /// possible, in their order.
    pub fn replacing(&self, keys: &Keys, disk: &[u8]) -> Result<VecDeque<Vec<Change>>, EntryError> {
        let removed = |key: &String| key.parse().map(|key| (key, Change { key, value: None }));
        let mut changes = keys.keys().map(removed).collect::<Result<BTreeMap<_, _>, _>>()?;
        let leases =
            self.leases.iter().map(|(host, lease)| lease_change(*host, lease)).collect::<Result<Vec<_>, _>>()?;
        let made = all_changes(None, &self.description, self.last)?.into_iter().chain(leases).chain(copies_of(disk));
        let made = made.chain(machines_change(&self.machines)?);
        changes.extend(made.map(|change| (change.key, change)));
        Ok(divide(changes))
    }
}

/// What is written when this description follows that one, with this last generation.
pub fn changes(
    before: Option<&ArrayDescription>,
    next: &ArrayDescription,
    last: Generation,
) -> Result<Vec<Change>, EntryError> {
    let changes = all_changes(before, next, last)?;
    fit(&changes).map(|()| changes)
}

fn all_changes(
    before: Option<&ArrayDescription>,
    next: &ArrayDescription,
    last: Generation,
) -> Result<Vec<Change>, EntryError> {
    let mut changes = vec![array_change(next, last)?];
    add(&mut changes, before.map(|before| &before.devices), &next.devices, device_key)?;
    add(&mut changes, before.map(|before| &before.volumes), &next.volumes, volume_key)?;
    add(&mut changes, before.map(|before| &before.file_systems), &next.file_systems, file_system_key)?;
    add(&mut changes, before.map(|before| &before.spares), &next.spares, spare_key)?;
    Ok(changes)
}

/// What is written of the description when none of its lists changes.
pub(crate) fn array_change(description: &ArrayDescription, last: Generation) -> Result<Change, EntryError> {
    let mut alone = description.clone();
    (alone.devices, alone.spares, alone.volumes, alone.file_systems) = Default::default();
    let schema = alone.schema;
    put(Key::Array, schema, &ArrayEntry { last_generation: last.0, description: alone })
}

/// None if there are none.
pub(crate) fn machines_change(machines: &Machines) -> Result<Option<Change>, EntryError> {
    (!machines.machines.is_empty()).then(|| put(Key::Machines, SCHEMA, machines)).transpose()
}

pub(crate) fn lease_change(host: Generation, lease: &LeaseEntry) -> Result<Change, EntryError> {
    put(Key::Lease(host), SCHEMA, lease)
}

/// Brings the lists of a description into the order of their keys.
pub(crate) fn sort(description: &mut ArrayDescription) {
    description.devices.sort_by_key(device_key);
    description.volumes.sort_by_key(volume_key);
    description.file_systems.sort_by_key(file_system_key);
    description.spares.sort_by_key(spare_key);
}

fn device_key(entry: &DeviceEntry) -> Key {
    Key::Device(entry.id)
}

fn volume_key(entry: &VolumeEntry) -> Key {
    Key::Volume(entry.id)
}

fn file_system_key(entry: &FileSystemEntry) -> Key {
    Key::FileSystem(entry.id)
}

fn spare_key(entry: &DiskEntry) -> Key {
    Key::Spare(entry.disk)
}

/// Divides changes among as few transactions as possible, in their order.
pub(crate) fn divide(changes: BTreeMap<Key, Change>) -> VecDeque<Vec<Change>> {
    let mut parts = VecDeque::from_iter([Vec::new()]);
    for change in changes.into_values() {
        let part = parts.back_mut().expect("there is one");
        part.push(change);
        if fit(part).is_err() {
            let last = part.pop().into_iter().collect();
            parts.push_back(last);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Fails if etcd does not take these changes in one transaction.
fn fit(changes: &[Change]) -> Result<(), EntryError> {
    let bytes = changes.iter().map(|change| KEY_BYTES + change.value.as_ref().map_or(0, Bytes::len)).sum();
    match changes.len() <= CHANGES_MAX && bytes <= BYTES_MAX {
        true => Ok(()),
        false => Err(EntryError::TooLarge { changes: changes.len(), bytes }),
    }
}

/// Adds what is written when this list follows that one.
fn add<T: PartialEq + Serialize>(
    changes: &mut Vec<Change>,
    before: Option<&Vec<T>>,
    next: &[T],
    key_of: fn(&T) -> Key,
) -> Result<(), EntryError> {
    let mut before: BTreeMap<Key, &T> = before.into_iter().flatten().map(|entry| (key_of(entry), entry)).collect();
    for entry in next {
        if before.remove(&key_of(entry)) != Some(entry) {
            changes.push(put(key_of(entry), SCHEMA, entry)?);
        }
    }
    changes.extend(before.into_keys().map(|key| Change { key, value: None }));
    Ok(())
}

fn put<T: Serialize>(key: Key, schema: u64, entry: &T) -> Result<Change, EntryError> {
    // Paths may be no UTF-8.
    let value = serde_json::to_vec(&Value { schema, entry });
    let value = value.map_err(|error| EntryError::Unwritable { key, why: error.to_string() })?;
    Ok(Change { key, value: Some(value.into()) })
}

fn read<T: DeserializeOwned>(key: Key, bytes: &[u8]) -> Result<T, EntryError> {
    let value = parse::<Value<T>>(bytes).map_err(|error| EntryError::Unreadable { key, why: error.to_string() })?;
    Ok(value.entry)
}

fn read_entry<T: DeserializeOwned>(key: Key, bytes: &[u8], key_of: fn(&T) -> Key) -> Result<T, EntryError> {
    let entry = read(key, bytes)?;
    match key_of(&entry) {
        own if own == key => Ok(entry),
        other => Err(EntryError::Unreadable { key, why: format!("it is that of {other}") }),
    }
}
