//! Checks of what can become full: tables and journals, memory, and the file systems that hold the array's files.

use super::examination::{Examination, Process, Space};
use super::finding::{Findings, Severity, Subject};
use crate::snapshot::UNCLAIMED_COUNTER;
use crate::volumes::CHUNK_BLOCKS;
use Bound::{Counter, Fixed};
use braid_base::DeviceId;
use braid_base::limits;
use braid_base::units::format_size;
use braid_control::{FileSystemEntry, FileSystemState};
use std::collections::BTreeMap;

/// Something with a bound, whose fill a process reports.
struct Table {
    /// The counter with its fill.
    counter: &'static str,
    bound: Bound,
    what: &'static str,
    /// What to do if it is nearly full.
    action: &'static str,
}

/// How much a table holds at most.
enum Bound {
    Fixed(usize),
    /// The counter that tells it.
    Counter(&'static str),
}

impl Table {
    const fn of(counter: &'static str, bound: Bound, what: &'static str, action: &'static str) -> Table {
        Table { counter, bound, what, action }
    }
}

/// Per cent of a table from which on it is worth a warning, and an error. A journal of a busy device may be fuller than others.
const NEARLY_FULL: u64 = 90;
const FULL: u64 = 98;
/// The free part of a file system below which writes are at risk, in per cent, and the bytes below which they soon fail.
const FREE_PERCENT_MIN: u64 = 5;
const FREE_BYTES_MIN: u64 = 64 << 20;
/// The files that can still be made in a file system below which that is at risk.
const FREE_FILES_MIN: u64 = 100;
/// The memory that a process may use itself: a device has its journal, its caches and its queues there.
const OWN_MEMORY_MAX: u64 = 512 << 20;
/// The counters of what a process holds for its peers, and of its budget for that.
const HELD_COUNTER: &str = "memory_used_bytes";
const BUDGET_COUNTER: &str = "memory_budget_bytes";

const END_HOSTS: &str = "end hosts that are not needed; `braid status` lists them";
const JOURNAL: &str = "the load is higher than the disk can take: reduce it, or use a faster disk; if it stays so without load, see what is said of transactions";

const OF_DEVICES: [Table; 6] = [
    Table::of("journal_bytes_used", Counter("journal_capacity"), "its journal", JOURNAL),
    Table::of("hosts", Fixed(limits::HOSTS_MAX), "its table of hosts", END_HOSTS),
    Table::of(
        "transactions",
        Fixed(limits::DEVICE_TRANSACTIONS_MAX),
        "its table of transactions",
        "see what is said of transactions; end hosts that are not needed",
    ),
    Table::of(
        "waiting",
        Fixed(limits::WAITING_MAX),
        "its queue of waiting requests",
        "reduce the load on blocks that many hosts write; see what is said of transactions",
    ),
    Table::of(
        "watchers",
        Fixed(limits::WATCHERS_MAX),
        "its table of programs that wait for attributes",
        "end programs that wait for locks or attributes of this device",
    ),
    Table::of("answers_kept", Fixed(limits::OBJECT_ANSWERS_MAX), "its table of remembered answers", END_HOSTS),
];

/// What to do when the room for names and inodes is used up.
const METADATA_ROOM: &str = "remove files: when the room for names and inodes is full, nothing can be created, though there may be free space for bytes; \
                             `braid fs resize` does not make it larger, but a new file system of a larger size has more of it: copy the files there";

/// The tables of a metadata server, as its lease names them.
const OF_METADATA_SERVERS: [Table; 3] = [
    Table::of(
        "metadata_room_used_blocks",
        Counter("metadata_room_blocks"),
        "the room for names and inodes in its metadata volume",
        METADATA_ROOM,
    ),
    Table::of("metadata_journal_bytes_used", Counter("metadata_journal_capacity"), "its journal", JOURNAL),
    Table::of(
        "metadata_sessions",
        Fixed(limits::HOSTS_MAX),
        "its table of hosts",
        "unmount file systems that are not used",
    ),
];

const OF_LOCK_SERVERS: [Table; 2] = [
    Table::of("hosts", Fixed(limits::HOSTS_MAX), "its table of hosts", END_HOSTS),
    Table::of("requests_in_table", Fixed(limits::LOCK_REQUESTS_MAX), "its table of locks", END_HOSTS),
];

const OF_THE_MONITOR: [Table; 1] = [Table::of(
    "hosts_in_fence",
    Fixed(limits::FENCED_MAX),
    "its list of fenced hosts",
    "end old hosts: the list gets short when all hosts below a number are gone",
)];

/// Journals, and tables with a bound.
pub fn tables(examination: &Examination, found: &mut Findings) {
    for Process { subject, counters, .. } in &examination.processes {
        let tables: &[Table] = match subject {
            Subject::Device(_) => &OF_DEVICES,
            Subject::MetadataServer(_) => &OF_METADATA_SERVERS,
            Subject::LockServer(_) => &OF_LOCK_SERVERS,
            Subject::Monitor => &OF_THE_MONITOR,
            _ => continue,
        };
        match counters {
            Some(counters) => tables.iter().for_each(|table| fill(subject, table, counters, found)),
            None if matches!(subject, Subject::Device(_)) => found.not_checked(subject, examination.look.why_untold()),
            None => found.not_checked(subject, "it reports nothing"),
        }
    }
    let is_known = |wanted: &Subject| examination.processes.iter().any(|process| process.subject == *wanted);
    let control = &examination.look.control;
    // Those of other machines are looked after there.
    let devices = examination.look.description.devices.iter();
    let devices = devices.filter(|device| control.cluster().is_none_or(|cluster| cluster.has(device)));
    let devices = devices.map(|device| Subject::Device(DeviceId(device.id)));
    let ready = |entry: &&FileSystemEntry| entry.state == FileSystemState::Ready;
    let file_systems = examination.look.description.file_systems.iter().filter(ready);
    let servers = file_systems.flat_map(|entry| entry.named_servers());
    let servers = servers.map(|(_, called)| Subject::MetadataServer(called));
    devices
        .chain(servers)
        .filter(|subject| !is_known(subject))
        .for_each(|subject| found.not_checked(&subject, "it does not run"));
    if let Ok(Some(last)) = examination.look.control.local().known_generation() {
        let percent = u64::from(last) * 100 / u64::from(u32::MAX);
        if percent >= NEARLY_FULL {
            let text = format!("has used {percent} % of the numbers for hosts, which are never used again");
            found.warning(Subject::Array, text, "copy its volumes to a new array in time");
        }
    }
}

fn fill(subject: &Subject, table: &Table, counters: &BTreeMap<String, u64>, found: &mut Findings) {
    let bound = match table.bound {
        Bound::Fixed(bound) => Some(bound as u64),
        Bound::Counter(name) => counters.get(name).copied(),
    };
    let (Some(used), Some(bound)) = (counters.get(table.counter).copied(), bound.filter(|bound| *bound > 0)) else {
        return found.not_checked(subject, &format!("it does not tell the fill of {}", table.what));
    };
    let percent = percent_of(used, bound);
    if percent >= NEARLY_FULL {
        let severity = if percent >= FULL { Severity::Error } else { Severity::Warning };
        found.found(severity, subject.clone(), format!("has filled {} to {percent} %", table.what), table.action);
    }
}

/// The file systems that hold the array's files, the space of devices, and requests that were refused for want of space. The files of devices
/// are sparse, and grow when they are written.
pub fn space(examination: &Examination, found: &mut Findings) {
    refused(examination, found);
    for (id, state) in &examination.look.states {
        if state.counter(UNCLAIMED_COUNTER).is_some_and(|blocks| blocks < CHUNK_BLOCKS) {
            let text = "has no space left for further volumes and objects; its volumes have theirs";
            found.note(Subject::Device(*id), text);
        }
    }
    for Space { path, size_bytes, free_bytes, files, free_files } in &examination.spaces {
        if *files > 0 && *free_files < FREE_FILES_MIN {
            let text = format!("lies in a file system that has room for {free_files} more files (inodes)");
            let action = "remove files there: otherwise hosts and mounts can't be started, and nothing can be changed";
            let severity = if *free_files == 0 { Severity::Error } else { Severity::Warning };
            found.found(severity, Subject::File(path.clone()), text, action);
        }
        let percent = free_bytes.saturating_mul(100).checked_div(*size_bytes).unwrap_or(100);
        if percent >= FREE_PERCENT_MIN && *free_bytes >= FREE_BYTES_MIN {
            continue;
        }
        let severity = if *free_bytes < FREE_BYTES_MIN { Severity::Error } else { Severity::Warning };
        let text = format!("lies in a file system with {} free, {percent} % of it", format_size(*free_bytes));
        let action = "free space there: if it is full, writes to blocks that were never written fail";
        found.found(severity, Subject::File(path.clone()), text, action);
    }
}

/// Requests that were refused for want of space. Each part of the array is reported once, with its last event.
fn refused(examination: &Examination, found: &mut Findings) {
    let refused = &examination.refused_for_space;
    for (index, last) in refused.iter().enumerate() {
        if refused[index + 1..].iter().any(|later| later.text == last.text) {
            continue;
        }
        let entry = last.volume.as_deref().map(|name| (name, examination.look.description.volume(name)));
        let (subject, action) = match (last.device, entry) {
            (Some(device), _) => {
                (Subject::Device(DeviceId(device)), "remove objects or volumes that are not needed, or add devices")
            }
            // It was deleted since.
            (None, Some((_, None))) => continue,
            (None, Some((name, Some(volume)))) if volume.attribute_volume => {
                (Subject::Volume(name.to_string()), "remove attributes, or copy them to a larger attribute volume")
            }
            (None, Some((name, Some(_)))) => {
                (Subject::Volume(name.to_string()), "free space on the file systems that hold the files of its devices")
            }
            // The event does not tell which of both is full.
            (None, None) if examination.processes.iter().any(|process| lacks_metadata_room(process, &last.text)) => {
                (Subject::Array, METADATA_ROOM)
            }
            (None, None) => (Subject::Array, "remove files, or grow it: `braid fs resize`"),
        };
        found.warning(subject, format!("had no space at {}: {}", last.time, last.text), action);
    }
}

/// True if this is a metadata server whose room is nearly full, of the file system that a text is about.
fn lacks_metadata_room(process: &Process, text: &str) -> bool {
    let Subject::MetadataServer(name) = &process.subject else { return false };
    let count = |counter: &str| process.counters.as_ref().and_then(|all| all.get(counter)).copied().unwrap_or_default();
    let percent = percent_of(count("metadata_room_used_blocks"), count("metadata_room_blocks"));
    text.contains(&format!("file system {name} ")) && percent >= NEARLY_FULL
}

pub fn memory(examination: &Examination, found: &mut Findings) {
    for Process { subject, pid, counters, .. } in &examination.processes {
        // A command that has just begun has published nothing yet.
        let Some(counters) = counters else { continue };
        let Some(used) = counters.get("resident_bytes").copied() else {
            // The devices of a node do not report the memory of its process.
            let is_shared = examination.processes.iter().filter(|other| other.pid == *pid).count() > 1;
            if !is_shared {
                found.not_checked(subject, "it does not tell its memory");
            }
            continue;
        };
        let Memory { most, held } = Memory::of(counters);
        if used > most {
            let text = format!("uses {} of memory, more than {} (process {pid})", format_size(used), format_size(most));
            let action = "`braid status --verbose` lists its queues and tables; reduce the load, or restart the process: acknowledged writes are durable";
            found.warning(subject.clone(), text, action);
        }
        if let Some((held, budget)) = held.filter(|(held, budget)| percent_of(*held, *budget) >= NEARLY_FULL) {
            let (held, budget) = (format_size(held), format_size(budget));
            let text =
                format!("holds {held} for its peers, of a budget of {budget} (process {pid}): it slows them down");
            let action = "see which hosts or NBD clients do not read what they asked for, and end them";
            found.warning(subject.clone(), text, action);
        }
    }
}

/// The memory that a process may use.
struct Memory {
    /// All together: its own, and what it holds for its peers.
    most: u64,
    /// What it holds for its peers, and the budget for that, if it reports them.
    held: Option<(u64, u64)>,
}

impl Memory {
    fn of(counters: &BTreeMap<String, u64>) -> Memory {
        let counter = |name| counters.get(name).copied();
        let held = counter(HELD_COUNTER).zip(counter(BUDGET_COUNTER)).filter(|(_, budget)| *budget > 0);
        Memory { most: OWN_MEMORY_MAX + held.map_or(0, |(_, budget)| budget), held }
    }
}

fn percent_of(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(u64::MAX)
}
