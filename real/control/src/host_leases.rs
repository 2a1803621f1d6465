//! The array's folder as the backend of host leases (`braid_host_leases`): it reads files into the table of leases, applies a transition,
//! and makes the writes that follow.
//!
//! A lease consists of two files. `17.json` says that host 17 has a lease, and whether the lease is over; it is changed only under
//! the folder's lock. `17.renewals` contains the time of the last renewal and the host's report; only the host writes it, without the
//! lock, and in place (`renewals`). Therefore a process that is suspended while it holds the lock does not prevent renewals, nor does a full
//! disk.

use crate::file::{self, Durability};
use crate::paths::{GENERATIONS, HOSTS};
use crate::private_files::{create_private_folder, private_file};
use crate::renewals;
use crate::roles::Roles;
use crate::{ControlError, Event, EventKind, HostEntry, LeaseReport, LocalFolder, Moment, Process, event_texts};
use braid_base::Generation;
use braid_host_leases::{self as leases, Expired, LeaseEnd, LeaseLost, LeaseTable, LeaseTime, Version, Write};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generations {
    pub(crate) schema: u64,
    pub(crate) last: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lease {
    schema: u64,
    pid: u32,
    /// The key was `what` in schema 1.
    #[serde(alias = "what")]
    role: String,
    boot: String,
    renewed_nanos: u64,
    #[serde(default)]
    report: LeaseReport,
    /// The lease has expired, and can no longer be renewed.
    #[serde(default)]
    expired: bool,
}

/// The last renewal of a lease. Until the first renewal, and for a host of an earlier release, which renews in the lease file, the lease
/// file holds the time.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heartbeat {
    schema: u64,
    boot: String,
    renewed_nanos: u64,
    report: LeaseReport,
}

/// The leases that were read, and who holds them.
struct ReadLeases {
    table: LeaseTable<LeaseReport>,
    holders: BTreeMap<Generation, Holder>,
}

/// The process that took a lease.
struct Holder {
    pid: u32,
    role: String,
}

impl LocalFolder {
    pub(crate) fn leases(&self) -> LeaseFiles<'_> {
        LeaseFiles { folder: self }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseFiles<'a> {
    folder: &'a LocalFolder,
}

impl LeaseFiles<'_> {
    pub(crate) fn take_generation(&self, role: &str, now: &Moment) -> Result<Generation, ControlError> {
        let lock = self.folder.lock()?;
        let hosts = self.folder.path(HOSTS);
        create_private_folder(&hosts).map_err(ControlError::file("create", &hosts))?;
        let last = self.leased()?.into_iter().chain([Generation(self.last_generation()?)]).max();
        let mut read = ReadLeases::new(last.unwrap_or_default());
        let taken = read.table.take(now, self.of_this_process(LeaseReport::default()));
        let (generation, writes) = taken.ok_or(ControlError::GenerationsExhausted)?;
        read.holders.insert(generation, Holder { pid: std::process::id(), role: role.to_string() });
        self.folder.require_lock(&lock)?;
        if let Err(error) = Roles::note(self.folder, role) {
            tracing::warn!("can't remember the role of a host, to fence it by that when it has ended: {error}");
        }
        let renewals = self.renewals_path(generation);
        // Before the lease: while the lease is there, each renewal has its place.
        self.folder.with_reserve(|| renewals::create(&renewals))?;
        // Both under the same lock: otherwise another process could see the generation without its lease, and fence it.
        self.write(&read, writes, now)?;
        Ok(generation)
    }

    pub(crate) fn renew(&self, generation: Generation, now: &Moment, report: LeaseReport) -> Result<(), ControlError> {
        let mut read = self.read_lease_alone(generation)?;
        let write =
            read.table.renew(generation, heartbeat(Some(LeaseTime::clone(now)), self.of_this_process(report)))?;
        let written = self.write(&read, [write], now);
        // If the lease is over meanwhile, the heartbeat is ignored.
        let again = self.read_lease_alone(generation)?.table.require(generation);
        again.inspect_err(|_| drop(file::remove(&self.renewals_path(generation))))?;
        written.map_err(|error| ControlError::Unrenewed { generation, source: Box::new(error) })
    }

    pub(crate) fn release(&self, generation: Generation) -> Result<(), ControlError> {
        let lock = self.folder.lock()?;
        let mut read = ReadLeases::new(Generation(0));
        let writes = read.table.release(generation);
        self.write(&read, writes, &Moment::now()).inspect(|()| drop(lock))
    }

    pub(crate) fn ask_to_end(&self, host: Generation) -> Result<(), ControlError> {
        let path = self.end_path(host);
        private_file().create(true).append(true).open(&path).map(drop).map_err(ControlError::file("create", &path))
    }

    pub(crate) fn is_asked_to_end(&self, host: Generation) -> bool {
        self.end_path(host).exists()
    }

    pub(crate) fn hosts(&self, now: &Moment, length: Duration) -> Result<Vec<HostEntry>, ControlError> {
        let ReadLeases { table, mut holders } = self.read_leases(Generation(0))?;
        let entry = |(generation, lease): (Generation, &leases::Lease<LeaseReport>)| {
            let Holder { pid, role } = holders.remove(&generation).expect("it was read with the lease");
            let mut report = lease.heartbeat.report.clone();
            let process = Process::found_in(self.folder.dir(), pid, report.origin.take());
            let live = table.is_live(generation, now, length) && !process.is_of_original();
            let silent = table.silent(generation, now);
            let (is_over, is_renewed) = (lease.is_over, lease.is_renewed);
            HostEntry { generation, process, role, live, is_over, is_renewed, silent, report }
        };
        Ok(table.leases().map(entry).collect())
    }

    pub(crate) fn expire(&self, by: Generation, now: &Moment, length: Duration) -> Result<Expired, ControlError> {
        let _lock = self.folder.lock()?;
        let mut read = self.read_leases(Generation(self.last_generation()?))?;
        let (expired, writes) = read.table.expire(by, now, length)?;
        self.write(&read, writes, now)?;
        self.sweep()?;
        Ok(expired)
    }

    pub(crate) fn expire_one(
        &self,
        host: Generation,
        now: &Moment,
        length: Duration,
    ) -> Result<LeaseEnd, ControlError> {
        let _lock = self.folder.lock()?;
        let mut read = self.read_leases(Generation(0))?;
        let (end, writes) = read.table.expire_one(host, now, length);
        self.write(&read, writes, now)?;
        Ok(end)
    }

    pub(crate) fn forget(&self, gone: &[Generation]) -> Result<(), ControlError> {
        let _lock = self.folder.lock()?;
        let mut read = ReadLeases::new(Generation(0));
        for host in gone {
            if let Some((holder, lease)) = self.read_lease(*host)? {
                read.insert(*host, holder, lease, None);
            }
        }
        let writes = read.table.forget(gone);
        self.write(&read, writes, &Moment::now())
    }

    /// Makes the writes of a transition, in their order. The folder is locked, unless only a heartbeat is written.
    fn write(
        &self,
        read: &ReadLeases,
        writes: impl IntoIterator<Item = Write>,
        now: &Moment,
    ) -> Result<(), ControlError> {
        writes.into_iter().try_for_each(|write| match write {
            Write::Counter(Generation(last)) => {
                let counter = Generations { schema: file::SCHEMA, last };
                self.folder.replace(&self.folder.path(GENERATIONS), &counter, Durability::Durable)
            }
            Write::Lease(host) => {
                self.folder.replace(&self.lease_path(host), &read.lease_file(host, now), Durability::ThisBoot)?;
                let is_over = read.table.lease(host).is_some_and(|lease| lease.is_over);
                let is_it = |event: &Event| {
                    event.kind == EventKind::HostFenced && event.figures.get("host") == Some(&host.0.into())
                };
                // A metadata server may have told it.
                if is_over && !self.folder.latest_events().is_ok_and(|events| events.iter().any(is_it)) {
                    let role = read.holders.get(&host).map_or("", |holder| &holder.role);
                    if let Err(error) = self.folder.append_event(&event_texts::lease_ended(host, role)) {
                        tracing::warn!("can't record an event: {error}");
                    }
                }
                Ok(())
            }
            Write::Heartbeat(host) => {
                let lease = read.table.lease(host).expect("a lease that is renewed");
                self.write_heartbeat(host, &lease.heartbeat)
            }
            Write::RemoveLease(host) => file::remove(&self.lease_path(host)),
            Write::RemoveHeartbeat(host) => {
                file::remove(&self.end_path(host))?;
                file::remove(&self.renewals_path(host))
            }
        })
    }

    fn write_heartbeat(
        &self,
        host: Generation,
        heartbeat: &leases::Heartbeat<LeaseReport>,
    ) -> Result<(), ControlError> {
        let (boot, renewed_nanos) = in_file(heartbeat.renewed.as_ref());
        let mut heartbeat = Heartbeat { schema: file::SCHEMA, boot, renewed_nanos, report: heartbeat.report.clone() };
        let path = self.renewals_path(host);
        let in_slot = fitting(&mut heartbeat, |heartbeat| &mut heartbeat.report);
        // The file is missing if somebody has removed it; or if the lease is over, which the caller finds out.
        // In place, but a file system that copies what is written, or has snapshots, needs space for it all the same.
        let write = || self.folder.with_reserve(|| renewals::write(&path, &in_slot));
        if !write()? && self.lease_path(host).exists() {
            self.folder.with_reserve(|| renewals::create(&path))?;
            write()?;
        }
        Ok(())
    }

    /// The whole table. `last` is the last generation that was given, as far as the caller needs it.
    fn read_leases(&self, last: Generation) -> Result<ReadLeases, ControlError> {
        let mut read = ReadLeases::new(last);
        for generation in self.leased()? {
            match self.read_lease(generation) {
                Ok(None) => {}
                Ok(Some((holder, lease))) => {
                    let heartbeat = if lease.is_over { None } else { self.read_heartbeat(generation)? };
                    read.insert(generation, holder, lease, heartbeat);
                }
                // The file is not synced, so a power loss may leave it empty. Then its boot is over, and so is the lease.
                Err(ControlError::Damaged { .. }) => {
                    let holder = Holder { pid: 0, role: "unreadable lease".to_string() };
                    let lease = leases::Lease {
                        is_over: false,
                        is_renewed: false,
                        heartbeat: heartbeat(None, LeaseReport::default()),
                    };
                    read.insert(generation, holder, lease, None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    /// The lease of one host without its heartbeat.
    fn read_lease_alone(&self, generation: Generation) -> Result<ReadLeases, ControlError> {
        let mut read = ReadLeases::new(Generation(0));
        if let Some((holder, lease)) = self.read_lease(generation)? {
            read.insert(generation, holder, lease, None);
        }
        Ok(read)
    }

    fn read_lease(&self, generation: Generation) -> Result<Option<(Holder, leases::Lease<LeaseReport>)>, ControlError> {
        let file = file::read::<Lease>(&self.lease_path(generation))?;
        Ok(file.map(|Lease { pid, role, boot, renewed_nanos, report, expired, .. }| {
            let lease = leases::Lease {
                is_over: expired,
                is_renewed: false,
                heartbeat: heartbeat(Some(time(boot, renewed_nanos)), report),
            };
            (Holder { pid, role }, lease)
        }))
    }

    fn read_heartbeat(&self, generation: Generation) -> Result<Option<leases::Heartbeat<LeaseReport>>, ControlError> {
        let path = self.renewals_path(generation);
        let Some(text) = renewals::read(&path)? else { return Ok(None) };
        match file::parse(&path, &text) {
            Ok(Heartbeat { boot, renewed_nanos, report, .. }) => {
                Ok(Some(heartbeat(Some(time(boot, renewed_nanos)), report)))
            }
            // A power loss may leave the file empty. Then the lease is of an earlier boot, too.
            Err(ControlError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn leased(&self) -> Result<Vec<Generation>, ControlError> {
        let dir = self.folder.path(HOSTS);
        let mut leased = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(ControlError::file("list", &dir))? {
            let name = entry.map_err(ControlError::file("list", &dir))?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(generation) = number.and_then(|number| number.parse().ok()).map(Generation) else { continue };
            // A file whose name has the number in another form is a copy, and ignored.
            if number == Some(generation.0.to_string().as_str()) {
                leased.push(generation);
            }
        }
        Ok(leased)
    }

    /// Removes renewals without a lease, left by hosts that were suspended or killed during a renewal (`.heartbeat` are those of earlier
    /// releases), and requests to them. The folder is locked.
    fn sweep(&self) -> Result<(), ControlError> {
        let dir = self.folder.path(HOSTS);
        for entry in std::fs::read_dir(&dir).map_err(ControlError::file("list", &dir))? {
            let path = entry.map_err(ControlError::file("list", &dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let name = name.trim_start_matches('.').trim_end_matches(".new");
            let endings = [".heartbeat", ".renewals", ".end"];
            let of = endings.iter().find_map(|ending| name.strip_suffix(ending));
            let Some(of) = of.and_then(|of| of.parse().ok()).map(Generation) else { continue };
            if !self.lease_path(of).exists() {
                // For tidiness only.
                let _ = file::remove(&path);
            }
        }
        Ok(())
    }

    pub(crate) fn begin_generations(&self) -> Result<(), ControlError> {
        let path = self.folder.path(GENERATIONS);
        // An interrupted creation, or an array whose description was removed, may have left a counter: it is continued.
        if file::read::<Generations>(&path)?.is_none() {
            self.folder.replace(&path, &Generations { schema: file::SCHEMA, last: 0 }, Durability::Durable)?;
        }
        Ok(())
    }

    pub(crate) fn last_generation(&self) -> Result<u32, ControlError> {
        let path = self.folder.path(GENERATIONS);
        if let Some(generations) = file::read::<Generations>(&path)? {
            return Ok(generations.last);
        }
        self.folder.describe()?;
        Err(ControlError::GenerationsMissing { file: path })
    }

    /// A report with what only the folder adds.
    fn of_this_process(&self, report: LeaseReport) -> LeaseReport {
        LeaseReport { origin: self.folder.own_origin(), machine: MACHINE.clone(), ..report }
    }

    fn lease_path(&self, generation: Generation) -> PathBuf {
        self.folder.path(HOSTS).join(format!("{}.json", generation.0))
    }

    fn renewals_path(&self, generation: Generation) -> PathBuf {
        self.folder.path(HOSTS).join(format!("{}.renewals", generation.0))
    }

    fn end_path(&self, generation: Generation) -> PathBuf {
        self.folder.path(HOSTS).join(format!("{}.end", generation.0))
    }
}

/// The counter of a host's requests to lock servers.
const LOCK_REQUESTS: &str = "lock_requests";

impl ReadLeases {
    fn new(last: Generation) -> ReadLeases {
        ReadLeases { table: LeaseTable::new(last), holders: BTreeMap::new() }
    }

    fn insert(
        &mut self,
        generation: Generation,
        holder: Holder,
        lease: leases::Lease<LeaseReport>,
        heartbeat: Option<leases::Heartbeat<LeaseReport>>,
    ) {
        self.table.insert(generation, lease, heartbeat);
        self.holders.insert(generation, holder);
    }

    fn lease_file(&self, host: Generation, now: &Moment) -> Lease {
        let leases::Lease { is_over: expired, heartbeat, .. } =
            self.table.lease(host).expect("a lease that is written");
        let Holder { pid, role } = &self.holders[&host];
        // The time of a lease that is over says nothing.
        let over = LeaseTime { boot: now.boot.clone(), elapsed: Duration::ZERO };
        let (boot, renewed_nanos) = in_file(if *expired { Some(&over) } else { heartbeat.renewed.as_ref() });
        let (pid, role, report) = (*pid, role.clone(), heartbeat.report.clone());
        Lease { schema: file::SCHEMA, pid, role, boot, renewed_nanos, report, expired: *expired }
    }
}

impl From<LeaseLost> for ControlError {
    fn from(LeaseLost(generation): LeaseLost) -> ControlError {
        ControlError::LeaseLost { generation }
    }
}

/// So much of the path of a mount is kept where the whole report does not fit into a slot.
const DIRECTORY_CHARS: usize = 1000;

/// The text of what contains a report, without those parts of the report for people that don't fit into a slot.
pub(crate) fn fitting<T: Serialize>(whole: &mut T, report: fn(&mut T) -> &mut LeaseReport) -> Vec<u8> {
    let text = |whole: &T| serde_json::to_vec(whole).expect("our own types have a JSON form");
    let shorter: [fn(&mut LeaseReport); 6] = [
        |_| {},
        |report| report.spaces.clear(),
        |report| report.coordinates_recovery.iter_mut().for_each(|recovery| recovery.lost.clear()),
        // Servers that have lost their list of hosts ask for one counter.
        |report| report.counters.retain(|name, _| name == LOCK_REQUESTS),
        |report| {
            if let Some(server) = &mut report.metadata_server {
                server.hosts.clear();
                server.locks.clear();
                server.hosts_cut = true;
            }
        },
        // In JSON, a control character has six bytes.
        |report| {
            if let Some(mount) = &mut report.mount {
                mount.directory_bytes = None;
                mount.directory = mount.directory.chars().take(DIRECTORY_CHARS).chain(['…']).collect();
            }
        },
    ];
    for shorten in shorter {
        shorten(report(whole));
        let text = text(whole);
        if text.len() <= renewals::BYTES_MAX {
            return text;
        }
    }
    let report = report(whole);
    *report = LeaseReport { revision: report.revision, ..LeaseReport::default() };
    text(whole)
}

/// The name of this machine; none if it has a strange one.
static MACHINE: LazyLock<Option<String>> = LazyLock::new(|| {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty() && name.len() <= MACHINE_BYTES_MAX)
});
/// Linux has names of 64 bytes at most.
const MACHINE_BYTES_MAX: usize = 64;

fn heartbeat(renewed: Option<LeaseTime>, report: LeaseReport) -> leases::Heartbeat<LeaseReport> {
    leases::Heartbeat { renewed, confirmed: Version(report.revision), report }
}

fn time(boot: String, renewed_nanos: u64) -> LeaseTime {
    LeaseTime { boot, elapsed: Duration::from_nanos(renewed_nanos) }
}

fn in_file(time: Option<&LeaseTime>) -> (String, u64) {
    time.map_or_else(Default::default, |time| (time.boot.clone(), nanos(time.elapsed)))
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
