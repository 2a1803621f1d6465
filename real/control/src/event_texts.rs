//! The texts of all events: one function for each event, which returns the event with its kind, text and figures. The callers decide when
//! an event is recorded; its text is written here and nowhere else. The kinds and the log itself are in `event_log.rs`.
//!
//! The callers are `real/daemons/src/membership_events.rs` (devices), `real/session/src/corruption_events.rs` (checksum errors that requests
//! found), `real/session/src/space_events.rs` (want of space) and `real/admin/src/scrub.rs` (scrubs). Changes of volumes and file systems have
//! their texts in `changes.rs`, which compares descriptions.

use crate::changes::by_this_command;
use crate::event_log::{Event, EventKind};
use crate::scrubs::{ByteRange, ScrubFindings};
use braid_base::units::format_size;
use braid_base::{DeviceId, Generation};

/// What the resynchronisation or the rebuild of a device restored.
#[derive(Clone, Copy, Debug)]
pub struct Restored {
    pub bytes: u64,
    pub lost_blocks: u64,
    pub millis: u64,
}

impl Restored {
    fn text(self) -> String {
        let lost = match self.lost_blocks {
            0 => String::new(),
            lost => format!("; {lost} blocks could not be reconstructed, and are lost"),
        };
        match self.bytes {
            0 => format!("nothing had to be restored{lost}"),
            bytes => format!("{} were restored in {:.1} s{lost}", format_size(bytes), self.millis as f64 / 1000.0),
        }
    }

    fn figures_of(self, event: Event) -> Event {
        event.with("bytes", self.bytes).with("lost_blocks", self.lost_blocks).with("seconds", self.millis / 1000)
    }
}

fn about_device(device: u16, kind: EventKind, text: impl FnOnce(DeviceId) -> String) -> Event {
    Event::now(kind, text(DeviceId(device))).of_device(device)
}

/// Events that say one thing about a device: each with its kind, and its text with the device as `id`.
macro_rules! of_device {
    ($($(#[$doc:meta])* $event:ident($($given:ident: $of:ty),*) = $kind:ident, |$id:ident| $text:literal;)*) => {$(
        $(#[$doc])*
        pub fn $event(device: u16, $($given: $of),*) -> Event {
            about_device(device, EventKind::$kind, |$id| format!($text))
        }
    )*};
}

// The membership state of a device.

/// A device is out. `outages`: how often it went out in a row, if more than once; then it stays out for so many milliseconds.
pub fn device_out(device: u16, outages: u32, stays_out_millis: Option<u64>) -> Event {
    let text =
        |id| format!("device {id} is out: the others serve without it{}", flapping_words(outages, stays_out_millis));
    let event = about_device(device, EventKind::DeviceOut, text);
    let figures =
        [("outages", Some(u64::from(outages)).filter(|outages| *outages > 0)), ("stays_out_millis", stays_out_millis)];
    figures
        .into_iter()
        .fold(event, |event, (name, value)| value.into_iter().fold(event, |event, it| event.with(name, it)))
}

/// Says that a device comes and goes, and how long it has to stay out; empty if it does not.
pub fn flapping_words(outages: u32, stays_out_millis: Option<u64>) -> String {
    if outages == 0 {
        return String::new();
    }
    let stays = stays_out_millis.map(|millis| format!(", and stays out for {} s at least", millis.div_ceil(1000)));
    format!("; it went out {outages} times, each time within a minute of its return{}", stays.unwrap_or_default())
}

of_device! {
    device_unavailable() = DeviceUnavailable, |id| "device {id} does not answer, and the others can't serve without it";
    device_answers_again() = DeviceIn, |id| "device {id} answers again";
    device_returning() = DeviceReturning, |id| "device {id} is back, and is resynchronised";
    device_returning_with_another_disk() = DeviceReturning,
        |id| "device {id} has another disk than before, and is rebuilt";
    /// A device was out between two reports of the monitor.
    device_returning_after_a_moment() = DeviceReturning, |id| "device {id} was out for a moment, and is back";
    /// A device is in, but its resynchronisation was not observed.
    device_in_unobserved() = DeviceIn, |id| "device {id} is in and up to date";
    rebuild_begun() = RebuildBegun, |id| "the rebuild of device {id} begins";
}

/// A device is in, and it is known what was restored.
pub fn device_in(device: u16, restored: Restored) -> Event {
    let text = |id| format!("device {id} is in and up to date: {}", restored.text());
    restored.figures_of(about_device(device, EventKind::DeviceIn, text))
}

pub fn rebuild_ended(device: u16, restored: Restored) -> Event {
    let text = |id| format!("the rebuild of device {id} has ended: {}", restored.text());
    restored.figures_of(about_device(device, EventKind::RebuildEnded, text))
}

pub fn rebuild_stopped(device: u16, restored: Restored) -> Event {
    let text = |id| {
        format!(
            "the rebuild of device {id} has stopped, because the device is out; it will continue when the device returns"
        )
    };
    restored.figures_of(about_device(device, EventKind::RebuildEnded, text))
}

// The slot of a device and its disk.

of_device! {
    device_taken_out() = DeviceHeld, |id| "device {id} was taken out by an operator, and stays out";
    device_allowed_to_return() = DeviceHeld, |id| "device {id} was allowed to return by an operator";
    disk_errors(bad_slots: u32) = DiskErrors,
        |id| "{bad_slots} slots of the disk of device {id} can't be written, and are no longer used";
    disk_to_be_replaced(disk: &str) = DiskReplaced,
        |id| "disk {disk} will fill the slot of device {id} as soon as the others can serve without it";
    disk_replaced(disk: &str) = DiskReplaced, |id| "disk {disk} now fills the slot of device {id}";
    spare_taken(disk: &str) = SpareTaken, |id| "spare {disk} now fills the slot of device {id}";
    /// The disk in a slot is not allowed to serve; `reason` is the monitor's.
    device_refused(reason: &str) = DeviceRefused, |id| "device {id} is refused: {reason}";
}

/// So many slots of a disk can't be written that the device must be taken out; or, if there are none, the device lacks blocks that it
/// should have.
pub fn disk_failing(device: u16, bad_slots: u32) -> Event {
    let text = |id| {
        let what = match bad_slots {
            0 => format!("device {id} lacks blocks that it should have, and must be rebuilt"),
            _ => format!("the disk of device {id} is failing: {bad_slots} slots can't be written"),
        };
        format!("{what}; the device is taken out as soon as the others can serve without it")
    };
    about_device(device, EventKind::DiskErrors, text)
}

// Recovery.

/// An operator changed the recovery throttle; both settings are given as text.
pub fn throttle_changed(before: &str, now: &str, bytes_per_second: u64) -> Event {
    let text = format!("the recovery throttle was {before}; it is now {now}");
    Event::now(EventKind::ThrottleChanged, text).with("bytes_per_second", bytes_per_second)
}

pub fn checksum_errors_found(device: u16, requests: u64) -> Event {
    let text =
        |id| format!("{requests} requests found blocks of device {id} with checksum errors, and reconstructed them");
    about_device(device, EventKind::ChecksumErrorFound, text).with("requests", requests)
}

pub fn checksum_errors_repaired(blocks: u64) -> Event {
    let text = format!("{blocks} blocks with checksum errors were repaired");
    Event::now(EventKind::ChecksumErrorRepaired, text).with("blocks", blocks)
}

/// A range of a volume could not be restored when a device was resynchronised.
pub fn range_not_restored(device: u16, volume: &str, range: ByteRange) -> Event {
    let (first, last) = (range.offset, range.offset + range.length - 1);
    let text =
        format!("bytes {first} to {last} could not be restored: other blocks of their stripes have checksum errors");
    let event = Event::now(EventKind::DataLost, text).of_device(device).of_volume(volume);
    event.with("offset", range.offset).with("length", range.length)
}

// Scrubs.

pub fn scrub_begun(volume: &str, from: u64, stripes: u64) -> Event {
    let text = match from {
        0 => "a scrub begins".to_string(),
        from => format!("a scrub continues with stripe {from} of {stripes}"),
    };
    Event::now(EventKind::ScrubBegun, text).of_volume(volume)
}

pub fn scrub_found_checksum_errors(volume: &str, device: u16, blocks: u64) -> Event {
    let text = |id| format!("a scrub found {blocks} blocks of device {id} with checksum errors");
    about_device(device, EventKind::ChecksumErrorFound, text).of_volume(volume).with("blocks", blocks)
}

pub fn scrub_repaired_checksum_errors(volume: &str, blocks: u64) -> Event {
    let text = format!("a scrub repaired {blocks} blocks with checksum errors");
    Event::now(EventKind::ChecksumErrorRepaired, text).of_volume(volume).with("blocks", blocks)
}

pub fn scrub_found_lost_range(volume: &str, range: ByteRange) -> Event {
    let text = format!("bytes {} to {} are lost", range.offset, range.offset + range.length - 1);
    let event = Event::now(EventKind::DataLost, text).of_volume(volume);
    event.with("offset", range.offset).with("length", range.length)
}

/// A scrub has ended, or was interrupted after a stripe; `findings` are given as text and as figures.
pub fn scrub_ended(
    volume: &str,
    interrupted_after: Option<u64>,
    findings: &str,
    found: &ScrubFindings,
    seconds: u64,
) -> Event {
    let text = match interrupted_after {
        Some(stripe) => format!("a scrub was interrupted after stripe {stripe}: {findings}"),
        None => format!("a scrub has ended: {findings}"),
    };
    let ended = Event::now(EventKind::ScrubEnded, text).of_volume(volume).with("seconds", seconds);
    ended.with("corrupted", found.lost).with("repaired", found.repaired).with("mismatched", found.mismatched)
}

// Space. The figures change, and the texts do not: so a repetition is known.

pub fn device_full(device: u16, requests: u64) -> Event {
    let text = |id| format!("device {id} has no space left for objects and attributes, and refuses requests");
    about_device(device, EventKind::SpaceRefused, text).with("requests", requests)
}

pub fn volume_full(volume: &str, is_of_attributes: bool, requests: u64) -> Event {
    let text = match is_of_attributes {
        true => format!(
            "attribute volume {volume} has no space left where attributes were to be stored, and refuses requests"
        ),
        false => {
            format!("writes to volume {volume} are refused: the file system or disk of a device has no space left")
        }
    };
    Event::now(EventKind::SpaceRefused, text).of_volume(volume).with("requests", requests)
}

pub fn file_system_full(file_system: &str, requests: u64) -> Event {
    let text = format!("file system {file_system} has no space left for bytes or names, and refuses requests");
    Event::now(EventKind::SpaceRefused, text).with("requests", requests)
}

// Mounts.

/// A metadata server has a host fenced. `role` is that of the host, `why` says what it has done.
pub fn host_fenced(file_system: &str, host: Generation, role: &str, why: &str) -> Event {
    let role = if role.is_empty() { String::new() } else { format!(" ({role})") };
    let text = format!("host {host}{role} is fenced by the metadata server of {file_system}: {why}");
    Event::now(EventKind::HostFenced, text).with("host", host.0.into())
}

/// The lease of a host is ended for good; it is fenced by that.
pub fn lease_ended(host: Generation, role: &str) -> Event {
    let text = format!("the lease of host {host} ({role}) is ended, and it is fenced");
    by_this_command(Event::now(EventKind::HostFenced, text).with("host", host.0.into()))
}

pub fn mount_replaced(file_system: &str, directory: &str, old: Generation, new: Generation) -> Event {
    let text = format!(
        "the mount of {file_system} on {directory} goes on as host {new}, because host {old} was fenced: files that were open answer errors"
    );
    Event::now(EventKind::MountReplaced, text).with("old_host", old.0.into()).with("host", new.0.into())
}

// Daemons.

/// How the process of a daemon ended that crashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    pub pid: u32,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Otherwise its exit status.
    pub exit_status: Option<i32>,
    /// The signal or the exit status in words, or the first line of the message of its panic.
    pub how: String,
}

/// A daemon crashed. `process` is its name, `device` its number if it is a device.
pub fn daemon_crashed(process: &str, device: Option<u16>, crash: &Crash) -> Event {
    let text = format!("{process} crashed (process {}): {}", crash.pid, crash.how);
    let event = Event::now(EventKind::DaemonCrashed, text).of_process(process).with("pid", crash.pid.into());
    let event = device.into_iter().fold(event, Event::of_device);
    let figures = [("signal", crash.signal), ("exit_status", crash.exit_status)];
    let known = figures.into_iter().filter_map(|(name, value)| Some((name, u64::try_from(value?).ok()?)));
    known.fold(event, |event, (name, value)| event.with(name, value))
}

/// A daemon is down that did not crash: the disk of a device is missing, or is another one, for example.
pub fn daemon_down(process: &str, device: Option<u16>, why: &str) -> Event {
    let why = why.strip_prefix(process).and_then(|why| why.strip_prefix(": ")).unwrap_or(why);
    let event = Event::now(EventKind::DaemonDown, format!("{process} is down: {why}")).of_process(process);
    device.into_iter().fold(event, Event::of_device)
}

// The folder.

/// Files and folders that other users could read are private to their owner now.
pub fn modes_corrected(files: usize) -> Event {
    let text = format!("{files} files and folders of the array could be read by other users; now only their owner can");
    Event::now(EventKind::ModesCorrected, text).with("files", files as u64)
}
