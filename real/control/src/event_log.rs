//! The event log: changes in the array, recorded for operators to read and for tools to follow. No protocol depends on it.
//!
//! The log is the file `events.jsonl`, with one JSON object a line. Each line is appended as a whole, under the folder's lock. A power
//! loss may cut a line short: readers skip it, and the next writer starts a new line. When the file is full it is renamed to
//! `events.1.jsonl`, which replaces the previous file of that name. Therefore the log is bounded and always contains the latest events.
//!
//! The texts of all events are in `event_texts.rs`.

use crate::error::ControlError;
use crate::file;
use crate::folder::LocalFolder;
use crate::paths::{EVENTS, EVENTS_BEFORE};
use crate::private_files::private_file;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The version of this line's format.
    schema: u64,
    /// The time in UTC: `2030-01-31T23:59:59.123Z`.
    pub time: String,
    /// The same time in milliseconds since 1970.
    pub unix_millis: u64,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The process concerned, if any: "device d2", "the monitor".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// The event as a sentence.
    #[serde(alias = "words")]
    pub text: String,
    /// Numbers that belong to the event, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A device is out: the others serve without it.
    DeviceOut,
    /// A device does not answer, and the others can't serve without it.
    #[serde(alias = "device-away")]
    DeviceUnavailable,
    DeviceReturning,
    /// A device is completely resynchronised, and serves.
    DeviceIn,
    /// The disk in a device's slot is not allowed to serve.
    DeviceRefused,
    /// Writes to a device's disk fail, for some blocks or so often that the device must be taken out.
    DiskErrors,
    /// An operator took a device out, or allowed it to return.
    DeviceHeld,
    /// Another disk is about to fill a device's slot, or fills it now.
    DiskReplaced,
    /// A spare is about to fill a device's slot, or fills it now.
    SpareTaken,
    RebuildBegun,
    /// The rebuild of a new disk ended, or its device is out again.
    RebuildEnded,
    #[serde(alias = "pace-changed")]
    ThrottleChanged,
    /// A read found blocks with checksum errors.
    #[serde(alias = "rot-found")]
    ChecksumErrorFound,
    /// Blocks with checksum errors were repaired.
    #[serde(alias = "rot-repaired")]
    ChecksumErrorRepaired,
    /// Blocks can no longer be reconstructed.
    DataLost,
    ScrubBegun,
    /// A scrub of a volume was completed or stopped.
    ScrubEnded,
    /// A host that did not give up locks, or was silent, is fenced, or an operator has it fenced.
    HostFenced,
    /// A mount goes on with a new host, because its host was fenced.
    MountReplaced,
    /// Files that other users could read are private to the array's owner now.
    ModesCorrected,
    /// The process of a daemon was ended by a signal, or panicked.
    DaemonCrashed,
    /// Requests were refused because a device, an attribute volume or a file system has no space left.
    SpaceRefused,
    /// A daemon can't be started, or has ended in order.
    DaemonDown,
    /// A device or a spare was added to the array, or removed from it.
    DeviceAdded,
    DeviceRemoved,
    VolumeCreated,
    VolumeDeleted,
    VolumeResized,
    /// The migration of a volume to other devices or another layout began.
    MigrationBegun,
    /// It was completed or abandoned.
    MigrationEnded,
    VolumeReordered,
    FileSystemCreated,
    FileSystemDeleted,
    FileSystemResized,
    /// A kind that this release does not know.
    #[serde(other)]
    Other,
}

/// A reader's position in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCursor {
    inode: u64,
    offset: u64,
}

impl Event {
    pub(crate) fn now(kind: EventKind, text: impl Into<String>) -> Event {
        Event::at(unix_millis_now(), kind, text)
    }

    fn at(unix_millis: u64, kind: EventKind, text: impl Into<String>) -> Event {
        let (schema, time) = (crate::file::SCHEMA, universal_time(unix_millis));
        let text = text.into().chars().take(TEXT_MAX).collect();
        let (device, volume, process, figures) = (None, None, None, BTreeMap::new());
        Event { schema, time, unix_millis, kind, device, volume, process, text, figures }
    }

    pub fn of_device(self, device: u16) -> Event {
        Event { device: Some(device), ..self }
    }

    pub fn of_process(self, process: &str) -> Event {
        Event { process: Some(process.to_string()), ..self }
    }

    /// The same event, concerning this volume.
    pub fn of_volume(self, volume: &str) -> Event {
        Event { volume: Some(volume.to_string()), ..self }
    }

    /// The same event with another number.
    pub fn with(mut self, name: &str, value: u64) -> Event {
        self.figures.insert(name.to_string(), value);
        self
    }
}

impl EventKind {
    /// The name of the kind in the log.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| Some(name.as_str()?.to_string())).unwrap_or_default()
    }
}

impl LocalFolder {
    pub(crate) fn record_event(&self, event: &Event) -> Result<(), ControlError> {
        let _lock = self.lock()?;
        self.append_event(event)
    }

    /// The same, while the folder is locked.
    pub(crate) fn append_event(&self, event: &Event) -> Result<(), ControlError> {
        let mut line = serde_json::to_vec(event).expect("our own types have a JSON form");
        line.push(b'\n');
        let path = self.path(EVENTS);
        let full = std::fs::metadata(&path).is_ok_and(|there| there.len() + line.len() as u64 > FILE_BYTES_MAX);
        if full {
            std::fs::rename(&path, self.path(EVENTS_BEFORE)).map_err(ControlError::file("replace", &path))?;
        }
        let mut append = || {
            let mut file = private_file().create(true).read(true).append(true).open(&path)?;
            if !ends_well(&mut file)? {
                line.insert(0, b'\n');
            }
            file.write_all(&line)
        };
        append().map_err(ControlError::file("write", &path))
    }

    pub(crate) fn events(&self) -> Result<(Vec<Event>, EventCursor), ControlError> {
        self.unless_renamed(|| {
            let mut events = Vec::new();
            self.read_events(EVENTS_BEFORE, 0, &mut events)?;
            let cursor = self.read_events(EVENTS, 0, &mut events)?;
            Ok((events, cursor.unwrap_or_default()))
        })
    }

    /// The latest events. It takes no lock, so that it answers whatever holds that: an event that is appended meanwhile may be missing.
    pub(crate) fn latest_events(&self) -> Result<Vec<Event>, ControlError> {
        let length = std::fs::metadata(self.path(EVENTS)).map_or(0, |file| file.len());
        let mut events = Vec::new();
        self.read_events(EVENTS, length.saturating_sub(LATEST_BYTES), &mut events)?;
        Ok(events)
    }

    /// Reads without the folder's lock, which a suspended process may hold, and which can't be made on a read-only file system. If the log's
    /// file is renamed meanwhile, it could be read twice or missed: then it is read again. A line that is being appended is left for the next
    /// time.
    fn unless_renamed<T>(&self, read: impl Fn() -> Result<T, ControlError>) -> Result<T, ControlError> {
        let inode = |name: &str| std::fs::metadata(self.path(name)).ok().map(|file| file.ino());
        let names = || (inode(EVENTS_BEFORE), inode(EVENTS));
        for _ in 1..READS_MAX {
            let before = names();
            let found = read()?;
            if names() == before {
                return Ok(found);
            }
        }
        read()
    }

    pub(crate) fn events_since(&self, cursor: &mut EventCursor) -> Result<Vec<Event>, ControlError> {
        let there = |name: &str| std::fs::metadata(self.path(name)).ok();
        let last = *cursor;
        match there(EVENTS) {
            Some(file) if file.ino() == last.inode && file.len() == last.offset => return Ok(Vec::new()),
            None => return Ok(Vec::new()),
            Some(_) => {}
        }
        let (events, next) = self.unless_renamed(|| {
            let mut events = Vec::new();
            let read_on = |name: &str| {
                let file = there(name).filter(|file| file.ino() == last.inode);
                file.map(|file| if file.len() < last.offset { 0 } else { last.offset })
            };
            if let Some(offset) = read_on(EVENTS_BEFORE) {
                self.read_events(EVENTS_BEFORE, offset, &mut events)?;
            }
            let next = self.read_events(EVENTS, read_on(EVENTS).unwrap_or(0), &mut events)?;
            Ok((events, next.unwrap_or(last)))
        })?;
        *cursor = next;
        Ok(events)
    }

    /// Reads whole lines from `offset` on, and skips lines that are no events. Returns the position reached, or none if the file is
    /// missing.
    fn read_events(
        &self,
        name: &str,
        offset: u64,
        events: &mut Vec<Event>,
    ) -> Result<Option<EventCursor>, ControlError> {
        let path = self.path(name);
        file::require_kind(&path, false)?;
        let read = || {
            let mut file = File::open(&path)?;
            let inode = file.metadata()?.ino();
            let mut text = Vec::new();
            file.seek(SeekFrom::Start(offset))?;
            // No writer lets the file grow larger.
            file.take(2 * FILE_BYTES_MAX).read_to_end(&mut text)?;
            Ok((inode, text))
        };
        let (inode, text) = match read() {
            Err(error) if std::io::Error::kind(&error) == ErrorKind::NotFound => return Ok(None),
            outcome => outcome.map_err(ControlError::file("read", &path))?,
        };
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        events.extend(text[..whole].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()));
        Ok(Some(EventCursor { inode, offset: offset + whole as u64 }))
    }
}

/// True unless the last line of the file was cut short.
fn ends_well(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

/// The time in milliseconds since 1970, as events have it.
pub fn unix_millis_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The time in UTC, as events have it.
pub fn utc_now() -> String {
    universal_time(unix_millis_now())
}

/// Formats a time as `2030-01-31T23:59:59.123Z`.
fn universal_time(unix_millis: u64) -> String {
    // Years have four digits in this format.
    let since = Duration::from_millis(unix_millis.min(253_402_300_799_999));
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// About four thousand events fit.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often a reader begins again because the file was renamed, which happens once in thousands of events.
const READS_MAX: usize = 3;
/// The part of the log that counts as its latest events.
const LATEST_BYTES: u64 = 128 << 10;
/// Characters of a sentence.
const TEXT_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    fn texts(events: &[Event]) -> Vec<&str> {
        events.iter().map(|event| event.text.as_str()).collect()
    }

    #[test]
    fn logged_events_are_read_in_order_and_followed() {
        let (_scratch, folder) = Scratch::with_array("events");
        let (events, mut cursor) = folder.events().unwrap();
        assert_eq!(events, []);
        assert_eq!(folder.events_since(&mut cursor).unwrap(), []);
        let event = Event::at(1_900_000_000_000, EventKind::DeviceOut, "first").of_device(3).with("bytes", 7);
        folder.record_event(&event).unwrap();
        assert_eq!(folder.events_since(&mut cursor).unwrap(), std::slice::from_ref(&event));
        assert_eq!(folder.events_since(&mut cursor).unwrap(), []);
        folder.record_event(&Event::now(EventKind::DeviceIn, "second")).unwrap();
        assert_eq!(texts(&folder.events_since(&mut cursor).unwrap()), ["second"]);
        assert_eq!(texts(&folder.events().unwrap().0), ["first", "second"]);
    }

    #[test]
    fn a_line_that_was_cut_short_spoils_no_other() {
        let (_scratch, folder) = Scratch::with_array("torn-event");
        folder.record_event(&Event::now(EventKind::ScrubBegun, "whole")).unwrap();
        let mut file = File::options().append(true).open(folder.path(EVENTS)).unwrap();
        file.write_all(b"{\"schema\":1,\"time\":\"20").unwrap();
        let (events, mut cursor) = folder.events().unwrap();
        assert_eq!(texts(&events), ["whole"]);
        folder.record_event(&Event::now(EventKind::ScrubEnded, "next")).unwrap();
        assert_eq!(texts(&folder.events_since(&mut cursor).unwrap()), ["next"]);
        // A kind or a field added by a later release does not make the line unreadable.
        file.write_all(b"{\"schema\":1,\"time\":\"\",\"unix_millis\":1,\"kind\":\"new\",\"words\":\"w\",\"x\":1}\n")
            .unwrap();
        let later = folder.events_since(&mut cursor).unwrap();
        assert_eq!((later[0].kind, texts(&later)), (EventKind::Other, vec!["w"]), "`words` is the key of schema 1");
    }

    #[test]
    fn the_log_is_bounded_and_a_reader_misses_nothing_when_it_begins_anew() {
        let (_scratch, folder) = Scratch::with_array("long-log");
        folder.record_event(&Event::now(EventKind::DeviceIn, "old")).unwrap();
        let (_, mut cursor) = folder.events().unwrap();
        let filled = File::options().append(true).open(folder.path(EVENTS)).unwrap();
        folder.record_event(&Event::now(EventKind::DeviceIn, "unread")).unwrap();
        filled.set_len(FILE_BYTES_MAX - 10).unwrap();
        folder.record_event(&Event::now(EventKind::DeviceIn, "new")).unwrap();
        assert_eq!(texts(&folder.events_since(&mut cursor).unwrap()), ["unread", "new"]);
        assert_eq!(texts(&folder.events().unwrap().0), ["old", "unread", "new"]);
        for round in 0..2 {
            filled.set_len(0).unwrap();
            let file = File::options().append(true).open(folder.path(EVENTS)).unwrap();
            file.set_len(FILE_BYTES_MAX).unwrap();
            folder.record_event(&Event::now(EventKind::DeviceIn, "last")).unwrap();
            let size = |name| std::fs::metadata(folder.path(name)).unwrap().len();
            assert!(size(EVENTS) < 1000 && size(EVENTS_BEFORE) <= FILE_BYTES_MAX, "{round}");
        }
    }

    #[test]
    fn a_reader_goes_on_when_the_log_is_emptied_or_replaced_and_waits_for_no_lock() {
        let (_scratch, folder) = Scratch::with_array("emptied-log");
        let record = |text: &str| folder.record_event(&Event::now(EventKind::DeviceIn, text)).unwrap();
        ["one", "two"].into_iter().for_each(record);
        let (_, mut cursor) = folder.events().unwrap();
        File::options().write(true).open(folder.path(EVENTS)).unwrap().set_len(0).unwrap();
        assert_eq!(texts(&folder.events_since(&mut cursor).unwrap()), [""; 0]);
        record("after it was emptied");
        assert_eq!(texts(&folder.events_since(&mut cursor).unwrap()), ["after it was emptied"]);
        std::fs::rename(folder.path(EVENTS), folder.path("events.old")).unwrap();
        assert_eq!(texts(&folder.events_since(&mut cursor).unwrap()), [""; 0]);
        record("after it was moved away");
        let _held = folder.lock().unwrap();
        assert_eq!(texts(&folder.events_since(&mut cursor).unwrap()), ["after it was moved away"]);
        assert_eq!(texts(&folder.events().unwrap().0), ["after it was moved away"]);
    }

    #[test]
    fn times_are_written_as_everybody_reads_them() {
        assert_eq!(universal_time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(universal_time(951_827_696_007), "2000-02-29T12:34:56.007Z");
        assert_eq!(universal_time(1_893_455_999_999), "2029-12-31T23:59:59.999Z");
        assert_eq!(universal_time(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }
}
