//! The control plane of an array on several machines, as one of them uses it. The leading monitor has the description and the leases of
//! hosts, and is asked for each call. The folder of the machine has what concerns it alone: the files of its devices, sockets, logs, events,
//! and notes of scrubs; and `cluster.json`, by which it knows the array. `docs/three-machines.md` describes it.

use crate::changes;
use crate::description_file::Stored;
use crate::file::{self, Durability};
use crate::folder::LocalFolder;
use crate::host_leases::fitting;
use crate::paths::{CLUSTER, DESCRIPTION, RESERVE};
use crate::private_files::create_private_folder;
use crate::reserve;
use crate::{
    ArrayDescription, ControlError, DeviceEntry, HostEntry, LeaseReport, MonitorEntry, MonitorReport, Origin, Process,
};
use braid_base::{ArrayId, Generation, Level};
use braid_host_leases::{Expired, LEASE_MILLIS_MAX, LEASE_MILLIS_MIN, LeaseEnd, Version};
use braid_leader_client::http::{self, Method, STATE};
use braid_leader_client::{AskError, LeaderClient};
use braid_registrar::{HostLease, MachineEntry, Machines, Reply, Request, check};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::task::JoinSet;

/// How long the leader may take to answer. The next leader needs 1.5 s.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// The same for a renewal, which is repeated soon, and for a report, of which a host does not wait for an old one.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// How long a monitor may take to say what it does.
const STATE_WAIT: Duration = Duration::from_millis(500);
/// The role of the host of the process that runs a machine's part of the array.
pub const AGENT: &str = "up";
/// The variable in which an agent tells its processes its [number](Cluster::holder).
pub const HOLDER: &str = "BRAID_HOLDER";

/// The schema of `cluster.json`.
pub const SCHEMA: u64 = 1;

/// What `cluster.json` has: how a machine knows the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    pub schema: u64,
    pub array: ArrayId,
    /// The machine of this folder. It is the failure domain of its devices.
    pub machine: String,
    pub machines: BTreeMap<String, MachineEntry>,
    /// The members of etcd, such as `http://10.77.0.1:2379`.
    pub etcd: Vec<String>,
    /// The lease in milliseconds, as in the description, which a monitor knows only when it leads.
    pub lease_millis: u64,
    /// Its processes may listen beyond loopback, though nothing is encrypted and no caller is identified.
    #[serde(default)]
    pub insecure_network: bool,
}

impl ClusterFile {
    /// The machine of this folder.
    pub fn own(&self) -> &MachineEntry {
        &self.machines[&self.machine]
    }

    /// Why it can't be used.
    pub fn check(&self) -> Result<(), String> {
        let is_open = |host: &str| host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
        let exposed = self.machines.values().find(|entry| !self.insecure_network && is_open(&entry.host));
        match () {
            () if self.schema != SCHEMA => Err(format!("it has schema {}, this release knows {SCHEMA}", self.schema)),
            () if !(LEASE_MILLIS_MIN..=LEASE_MILLIS_MAX).contains(&self.lease_millis) => {
                Err(format!("a lease has {LEASE_MILLIS_MIN} to {LEASE_MILLIS_MAX} ms"))
            }
            () if let Err(reason) = check(&self.machines) => Err(reason),
            () if let Some(exposed) = exposed => {
                let at = exposed.http();
                Err(format!(
                    "nothing is encrypted at {at}, and no caller is identified: allow that with --insecure-network, in a network that you trust"
                ))
            }
            () if !self.machines.contains_key(&self.machine) => Err(format!("it has no machine {}", self.machine)),
            () if self.storing().next().is_none() => Err("no machine has devices".to_string()),
            () if self.etcd.is_empty() => Err("it names no member of etcd".to_string()),
            () => Ok(()),
        }
    }

    /// The machines that have devices.
    pub fn storing(&self) -> impl Iterator<Item = (&String, &MachineEntry)> + Clone {
        self.machines.iter().filter(|(_, machine)| !machine.witness)
    }

    /// True if it is this machine that runs a server of this number, of those that any machine can run. They are dealt among all, and those of
    /// a machine that is not among the `live` ones go to the next one.
    pub fn deals_here(&self, number: u16, live: Option<&Live>) -> bool {
        let all = live.map(|live| &live.all).filter(|all| !all.is_empty()).unwrap_or(&self.machines);
        let names: Vec<_> = all.iter().filter(|(_, entry)| !entry.witness).map(|(name, _)| name).collect();
        let mut turns = names.iter().cycle().skip(usize::from(number) % names.len()).take(names.len()).copied();
        turns.find(|name| live.is_none_or(|live| live.machines.contains(*name))) == Some(&self.machine)
    }
}

/// What lives of an array on several machines.
#[derive(Clone, Debug)]
pub struct Live {
    /// Those whose agents live, and this one.
    pub machines: BTreeSet<String>,
    /// The file systems whose metadata servers are on other machines.
    pub served_elsewhere: BTreeSet<u16>,
    /// All machines that there are.
    pub all: BTreeMap<String, MachineEntry>,
    /// The lock servers that are there.
    pub locks_elsewhere: BTreeSet<u16>,
}

/// What a machine's monitor does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MonitorRole {
    Leads,
    StandsBy,
    /// For good, because etcd has gone back to an earlier state.
    Stopped,
    /// It does not answer.
    Silent,
}

impl fmt::Display for MonitorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MonitorRole::Leads => "leads",
            MonitorRole::StandsBy => "stands by",
            MonitorRole::Stopped => "has stopped, because etcd has gone back",
            MonitorRole::Silent => "is silent",
        })
    }
}

/// What a monitor says of itself to everyone, as far as it is used.
#[derive(Deserialize)]
struct CandidateSays {
    leads: Option<u64>,
    has_stopped: bool,
    /// A release that does not say it knows the first one.
    #[serde(default)]
    knows: Level,
}

/// What the leading monitor says of itself, in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorSays {
    pub pid: u32,
    pub origin: Option<Origin>,
    pub report: MonitorReport,
}

/// What a host says with its lease.
#[derive(Serialize, Deserialize)]
struct HostSays {
    pid: u32,
    report: LeaseReport,
}

/// An array on several machines. Clones share what they know of it.
#[derive(Clone, Debug)]
pub struct Cluster {
    folder: LocalFolder,
    known: Arc<Known>,
}

#[derive(Debug, Default)]
struct Known {
    opened: OnceLock<(ClusterFile, LeaderClient)>,
    /// When the file was written by which the client knows the candidates.
    written: Mutex<Option<SystemTime>>,
    /// Hosts of this process that have been asked to end.
    asked_to_end: Mutex<BTreeSet<Generation>>,
    /// The process is about to end, and waits for the leader only a little.
    is_ending: AtomicBool,
    /// What the leading monitor reported last, and when.
    monitor: Mutex<Option<(Instant, MonitorEntry)>>,
    /// What hosts said last. A new leader has not heard them yet.
    said: Mutex<BTreeMap<Generation, String>>,
    holder: OnceLock<u64>,
}

impl Cluster {
    /// That of the machine with this folder. Nothing is read.
    pub(crate) fn at(folder: LocalFolder) -> Cluster {
        Cluster { folder, known: Arc::default() }
    }

    /// True if the folder is one of a machine.
    pub(crate) fn is_at(folder: &LocalFolder) -> bool {
        folder.path(CLUSTER).exists()
    }

    /// Fails if the folder can't become one of a machine.
    pub fn require_none(folder: &LocalFolder) -> Result<(), ControlError> {
        folder.require_trust()?;
        match [CLUSTER, DESCRIPTION].iter().any(|name| folder.path(name).exists()) {
            true => Err(ControlError::ArrayExists { dir: folder.dir().to_path_buf() }),
            false => Ok(()),
        }
    }

    /// A random number of the agent that started this process, or of this process. No device has leases of two at a time.
    pub fn holder(&self) -> u64 {
        let given = || std::env::var(HOLDER).ok().and_then(|number| number.parse().ok());
        *self.known.holder.get_or_init(|| given().unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0))
    }

    /// Makes the folder one of a machine.
    pub fn create(folder: &LocalFolder, file: &ClusterFile) -> Result<(), ControlError> {
        Cluster::require_none(folder)?;
        create_private_folder(folder.dir()).map_err(ControlError::file("create", folder.dir()))?;
        let _lock = folder.lock()?;
        Cluster::require_none(folder)?;
        reserve::fill(&folder.path(RESERVE))?;
        folder.replace(&folder.path(CLUSTER), file, Durability::Durable)?;
        folder.make_private().map(drop)
    }

    /// From now on this process waits for the leader only a little: it is about to end.
    pub fn hurry(&self) {
        self.known.is_ending.store(true, Ordering::Relaxed);
    }

    pub fn folder(&self) -> &LocalFolder {
        &self.folder
    }

    /// How this machine knows the array. It is read once.
    pub fn file(&self) -> Result<&ClusterFile, ControlError> {
        self.open().map(|(file, _)| file)
    }

    /// True if this machine runs the device: it is the device's failure domain.
    pub fn has(&self, device: &DeviceEntry) -> bool {
        self.file().is_ok_and(|file| file.machine == device.domain)
    }

    /// What lives, as far as it has renewed its lease within `length`; none if the leader has not heard all of it yet.
    pub async fn live(&self, length: Duration) -> Result<Option<Live>, ControlError> {
        let own = &self.file()?.machine;
        let hosts: Vec<_> = self.hosts(length).await?.into_iter().filter(|host| host.live).collect();
        let elsewhere = hosts.iter().filter(|host| host.report.machine.as_ref() != Some(own));
        let elsewhere: Vec<_> = elsewhere.map(|host| &host.report).collect();
        let served = elsewhere.iter().filter_map(|report| Some(report.metadata_server.as_ref()?.file_system));
        let locks = elsewhere.iter().filter_map(|report| Some(report.lock_server.as_ref()?.id));
        let (served_elsewhere, locks_elsewhere) = (served.collect(), locks.collect());
        let agents = hosts.iter().filter(|host| host.role == AGENT).map(|host| host.report.machine.clone());
        let machines: Option<_> = agents.chain([Some(own.clone())]).collect();
        // A leader of the release before does not know.
        let all = self.machines(Request::Machines).await.map(|known| known.machines).unwrap_or_default();
        Ok(machines.map(|machines| Live { machines, served_elsewhere, locks_elsewhere, all }))
    }

    /// How long ago agents of this machine renewed their leases. It is the first value of those that the leader may have heard nothing else of:
    /// they may be of any machine.
    pub async fn own_agents(&self, length: Duration) -> Result<Vec<(bool, Duration)>, ControlError> {
        let own = &self.file()?.machine;
        let agents = self.hosts(length).await?.into_iter().filter(|host| host.role == AGENT && !host.is_over);
        let may_be_own = |host: &HostEntry| host.report.machine.as_ref().map_or(!host.is_renewed, |of| of == own);
        let silent = agents.filter(may_be_own).filter_map(|host| Some((host.report.machine.is_some(), host.silent?)));
        Ok(silent.collect())
    }

    /// What the monitor of each machine does, as far as `cluster.json` knew them when it was read.
    pub async fn monitors(&self) -> Result<BTreeMap<String, MonitorRole>, ControlError> {
        Ok(self.monitors_of(self.file()?.machines.clone()).await)
    }

    /// What the monitor of each of these machines does.
    pub async fn monitors_of(&self, machines: BTreeMap<String, MachineEntry>) -> BTreeMap<String, MonitorRole> {
        let role = |says| match says {
            None => MonitorRole::Silent,
            Some(CandidateSays { has_stopped: true, .. }) => MonitorRole::Stopped,
            Some(CandidateSays { leads: Some(_), .. }) => MonitorRole::Leads,
            Some(_) => MonitorRole::StandsBy,
        };
        candidates_say(machines).await.into_iter().map(|(name, says)| (name, role(says))).collect()
    }

    /// The machines whose monitors do not say that they know this level. Those that are gone are not asked.
    pub async fn older_monitors(&self, level: Level) -> Result<Vec<String>, ControlError> {
        let mut there = self.machines(Request::Machines).await?.machines;
        if there.is_empty() {
            there = self.file()?.machines.clone();
        }
        let says = candidates_say(there.clone()).await;
        let knows = |name: &String| says.get(name).and_then(Option::as_ref).is_some_and(|says| says.knows >= level);
        Ok(there.into_iter().filter(|(name, entry)| !entry.gone && !knows(name)).map(|(name, _)| name).collect())
    }

    fn open(&self) -> Result<&(ClusterFile, LeaderClient), ControlError> {
        if let Some(opened) = self.known.opened.get() {
            return Ok(opened);
        }
        self.folder.require_trust()?;
        let path = self.folder.path(CLUSTER);
        let missing = || ControlError::NoArray { dir: self.folder.dir().to_path_buf() };
        let file: ClusterFile = file::read(&path)?.ok_or_else(missing)?;
        file.check().map_err(|reason| ControlError::Inconsistent { file: path, reason })?;
        let leader = LeaderClient::new(candidates(&file));
        Ok(self.known.opened.get_or_init(|| (file, leader)))
    }

    /// The client, which knows the machines that have joined meanwhile, as soon as the file has them.
    fn leader(&self) -> Result<&LeaderClient, ControlError> {
        let (_, leader) = self.open()?;
        let path = self.folder.path(CLUSTER);
        let written = std::fs::metadata(&path).and_then(|found| found.modified()).ok();
        if std::mem::replace(&mut *self.known.written.lock().expect("no holder panics"), written) != written
            && let Ok(Some(file)) = file::read::<ClusterFile>(&path)
            && file.check().is_ok()
        {
            leader.know(candidates(&file));
        }
        Ok(leader)
    }

    /// Has the leader carry out a request about the machines of the array. Returns them.
    pub async fn machines(&self, request: Request) -> Result<Machines, ControlError> {
        match self.ask(request).await? {
            Reply::Machines(machines) => Ok(machines),
            other => Err(strange(&other)),
        }
    }

    /// Writes the machines that the leader knows into the file, for the processes here that run and for later ones. Returns it.
    pub async fn learn(&self) -> Result<ClusterFile, ControlError> {
        let (machines, path) = (self.machines(Request::Machines).await?.machines, self.folder.path(CLUSTER));
        let before = file::read::<ClusterFile>(&path)?.unwrap_or(self.file()?.clone());
        let next = ClusterFile { machines, ..before.clone() };
        if next == before {
            return Ok(before);
        }
        if let Err(reason) = next.check() {
            tracing::warn!("the machines that the leader knows can't be together here: {reason}");
            return Ok(before);
        }
        let _lock = self.folder.lock()?;
        self.folder.replace(&path, &next, Durability::Durable)?;
        Ok(next)
    }

    async fn ask(&self, request: Request) -> Result<Reply, ControlError> {
        let is_ending = self.known.is_ending.load(Ordering::Relaxed);
        self.ask_within(request, if is_ending { SHORT_WAIT } else { ANSWER_WAIT }).await
    }

    async fn ask_within(&self, request: Request, within: Duration) -> Result<Reply, ControlError> {
        match self.leader()?.ask(&request, within).await {
            Err(why @ AskError::NoLeader { .. }) => {
                Err(ControlError::NoLeader { monitors: self.monitors().await?, why })
            }
            answered => Ok(answered?),
        }
    }

    pub(crate) async fn describe(&self) -> Result<ArrayDescription, ControlError> {
        match self.ask(Request::Describe).await? {
            Reply::Description(description) if description.level > Level::KNOWN => {
                let message = format!("the array has level {}: use a newer release", description.level);
                Err(ControlError::Leader(AskError::Refused { code: "newer-level".into(), message }))
            }
            Reply::Description(description) => Ok(*description),
            other => Err(strange(&other)),
        }
    }

    pub(crate) async fn read(&self) -> Result<Stored, ControlError> {
        self.describe().await.map(Stored::of_leader)
    }

    /// Replaces the description if it is still the revision that was read, and records what has changed in the log of this machine.
    pub(crate) async fn replace(&self, read: &Stored, next: ArrayDescription) -> Result<bool, ControlError> {
        let events = changes::events(&read.description, &next);
        match self.ask(Request::Replace { after: read.description.revision, next: Box::new(next) }).await? {
            Reply::Replaced => {
                let folder = self.folder.clone();
                let record = move || events.iter().try_for_each(|event| folder.append_event(event));
                if let Err(error) = tokio::task::spawn_blocking(record).await.expect("it does not panic") {
                    tracing::warn!("can't record an event: {error}");
                }
                Ok(true)
            }
            Reply::Superseded => Ok(false),
            other => Err(strange(&other)),
        }
    }

    /// The last report of the leading monitor; none if this process has seen none.
    pub(crate) async fn monitor(&self) -> Result<Option<MonitorEntry>, ControlError> {
        match self.leader()?.monitor(SHORT_WAIT).await {
            // It leads as far as is known: who needs it goes on asking where it was.
            Err(AskError::NoLeader { .. }) => {}
            said => {
                let read = serde_json::from_str(&said?).map_err(|error| unreadable(&error));
                let MonitorSays { pid, origin, report } = read?;
                let entry = MonitorEntry { process: Process::new(pid, origin), age: Some(Duration::ZERO), report };
                *self.known.monitor.lock().expect("no holder panics") = Some((Instant::now(), entry));
            }
        }
        let last = self.known.monitor.lock().expect("no holder panics").clone();
        Ok(last.map(|(at, entry)| MonitorEntry { age: Some(at.elapsed()), ..entry }))
    }

    pub(crate) async fn hosts(&self, length: Duration) -> Result<Vec<HostEntry>, ControlError> {
        match self.ask(Request::Hosts { length }).await? {
            Reply::Hosts(mut hosts) => {
                let mut said = self.known.said.lock().expect("no holder panics");
                let before = std::mem::take(&mut *said);
                for host in &mut hosts {
                    let says = &mut host.lease.heartbeat.report;
                    if says.is_empty() {
                        says.clone_from(before.get(&host.host).unwrap_or(&String::new()));
                    }
                    said.insert(host.host, says.clone());
                }
                Ok(hosts.into_iter().map(entry).collect())
            }
            other => Err(strange(&other)),
        }
    }

    /// The last generation that has a lease. The registry has the last one that was given.
    pub(crate) async fn last_generation(&self) -> Result<Option<u32>, ControlError> {
        Ok(self.hosts(Duration::ZERO).await?.last().map(|host| host.generation.0))
    }

    /// True if a host that has a lease has this role: those that have none any more are not remembered.
    pub(crate) async fn has_role(&self, role: String) -> Result<bool, ControlError> {
        Ok(self.hosts(Duration::ZERO).await?.iter().any(|host| host.role == role))
    }

    pub(crate) async fn take_generation(&self, role: String) -> Result<Generation, ControlError> {
        let (nonce, report) = (uuid::Uuid::new_v4().as_u64_pair().0, self.says(LeaseReport::default())?);
        match self.ask(Request::Take { nonce, role, report }).await? {
            Reply::Taken(host) => Ok(host),
            other => Err(strange(&other)),
        }
    }

    pub(crate) async fn renew(&self, host: Generation, report: LeaseReport) -> Result<(), ControlError> {
        let confirmed = Version(report.revision);
        let request = Request::Renew { host, confirmed, report: self.says(report)? };
        match self.ask_within(request, SHORT_WAIT).await {
            Ok(Reply::Renewed { is_asked_to_end }) => {
                if is_asked_to_end {
                    self.asked_to_end().insert(host);
                }
                Ok(())
            }
            Ok(other) => Err(strange(&other)),
            Err(ControlError::Leader(AskError::Refused { code, .. })) if code == "lease-lost" => {
                Err(ControlError::LeaseLost { generation: host })
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn is_asked_to_end(&self, host: Generation) -> bool {
        self.asked_to_end().contains(&host)
    }

    /// Something that has no other answer than that it is done.
    pub(crate) async fn have(&self, request: Request) -> Result<(), ControlError> {
        match self.ask(request).await? {
            Reply::Done => Ok(()),
            other => Err(strange(&other)),
        }
    }

    pub(crate) async fn expire(&self, by: Generation, length: Duration) -> Result<Expired, ControlError> {
        match self.ask(Request::Expire { by, length }).await? {
            Reply::Expired(expired) => Ok(expired),
            other => Err(strange(&other)),
        }
    }

    pub(crate) async fn expire_one(&self, host: Generation, length: Duration) -> Result<LeaseEnd, ControlError> {
        match self.ask(Request::ExpireOne { host, length }).await? {
            Reply::Ended(end) => Ok(end),
            other => Err(strange(&other)),
        }
    }

    /// What a host of this process says, as the leader keeps it.
    fn says(&self, report: LeaseReport) -> Result<String, ControlError> {
        let report = LeaseReport { origin: Origin::own(), machine: Some(self.file()?.machine.clone()), ..report };
        let bytes = fitting(&mut HostSays { pid: std::process::id(), report }, |says| &mut says.report);
        Ok(String::from_utf8(bytes).expect("JSON is text"))
    }

    fn asked_to_end(&self) -> MutexGuard<'_, BTreeSet<Generation>> {
        self.known.asked_to_end.lock().expect("no holder panics")
    }
}

/// What the monitor of each of these machines says, if it answers.
async fn candidates_say(machines: BTreeMap<String, MachineEntry>) -> BTreeMap<String, Option<CandidateSays>> {
    let mut asked = JoinSet::new();
    for (name, machine) in machines {
        asked.spawn(async move {
            let answered = http::call(&machine.http(), (Method::GET, STATE), Vec::new(), STATE_WAIT).await;
            (name, answered.ok().and_then(|(_, body)| serde_json::from_slice(&body).ok()))
        });
    }
    asked.join_all().await.into_iter().collect()
}

/// Where the candidates are. The one of this machine is asked first.
fn candidates(file: &ClusterFile) -> Vec<String> {
    let others = file.machines.values().filter(|entry| *entry != file.own() && !entry.gone);
    [file.own()].into_iter().chain(others).map(MachineEntry::http).collect()
}

/// A host as the leader lists it. What it said can be unreadable: a newer release may have written that.
fn entry(listed: HostLease) -> HostEntry {
    let HostLease { host, role, is_live, silent, lease } = listed;
    let says = serde_json::from_str(&lease.heartbeat.report);
    let HostSays { pid, mut report } = says.unwrap_or(HostSays { pid: 0, report: LeaseReport::default() });
    HostEntry {
        generation: host,
        process: Process::new(pid, report.origin.take()),
        role,
        live: is_live,
        is_over: lease.is_over,
        is_renewed: lease.is_renewed,
        silent,
        report,
    }
}

fn strange(reply: &Reply) -> ControlError {
    ControlError::Leader(AskError::Unknown { why: format!("the leading monitor answers something else: {reply:?}") })
}

fn unreadable(error: &serde_json::Error) -> ControlError {
    ControlError::Leader(AskError::Unknown { why: format!("the report of the leading monitor can't be read: {error}") })
}
