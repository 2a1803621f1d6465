//! The monitor of an array on several machines: this machine's candidate. It leads, or stands by, and says so to those that ask.

use crate::membership_events::MembershipEvents;
use crate::monitord::report_of;
use crate::published_metrics::{Awaited, Server, metrics_of};
use braid_admin::cluster_recovery::{Found, head};
use braid_admin::failure::Failure;
use braid_base::limits::Settings;
use braid_base::{Epoch, Generation, Now};
use braid_control::{ArrayDescription, Cluster, ClusterFile, ControlPlane, Event, Leases, MonitorSays, Origin};
use braid_etcd::{Registry, RegistryError, Swapped};
use braid_leader::{Candidate, CandidateError, CandidateState, Known, Place, Shown};
use braid_leadership::times::SILENCE;
use braid_leadership::{CandidateId, Head};
use braid_membership::{DISK_BYTES, Monitor, MonitorConfig};
use braid_registrar::{Content, Machines};
use braid_session::HEARTBEAT;
use braid_shell::{Address, Counters};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// How long etcd may take to have a leader.
const ETCD_WAIT: Duration = Duration::from_secs(10);
/// The wait before it is asked again which machines there are.
const LEARN_PAUSE: Duration = Duration::from_secs(1);
/// What the candidate has seen of the history, in the folder of its machine.
const MARK: &str = "candidate.json";

/// Makes the keys of a new array in etcd.
pub async fn create(file: &ClusterFile, description: ArrayDescription) -> Result<(), Failure> {
    let machines = Machines::new(file.machines.clone());
    let (head, disk) = (head(&machines, 0), vec![0; DISK_BYTES as usize]);
    let content = Content { machines, ..Content::new(description, Generation(0)) };
    replace(file, Found::default(), (head, &content, &disk)).await
}

/// What etcd has of the array.
pub async fn find(file: &ClusterFile) -> Result<Found, Failure> {
    let registry = registry_of(file)?;
    answered(async || registry.read_all().await).await.map(|(head, keys)| Found { head, keys })
}

/// The same, if no monitor leads: one that does writes every quarter of a second.
pub async fn find_unled(file: &ClusterFile) -> Result<Found, Failure> {
    let found = find(file).await?;
    tokio::time::sleep(SILENCE).await;
    if find(file).await?.head == found.head { Ok(found) } else { Err(in_use()) }
}

/// Puts this content and this disk of a monitor in the place of what was found. Until all is written there is no candidate, so that nothing
/// is led that is incomplete.
pub async fn replace(
    file: &ClusterFile,
    found: Found,
    (head, content, disk): (Head, &Content, &[u8]),
) -> Result<(), Failure> {
    let (registry, mut before) = (registry_of(file)?, found.head);
    let parts = content.replacing(&found.keys, disk).map_err(|error| failure(RegistryError::from(error).into()))?;
    for (part, seq) in parts.iter().zip(0..) {
        let candidates = if seq + 1 == parts.len() { head.candidates.clone() } else { BTreeSet::new() };
        let next = Head { seq: seq as u64, candidates, ..head.clone() };
        match answered(async || registry.replace(before.as_ref(), &next, part).await).await? {
            Swapped::Differs(found) if found.as_ref() != Some(&next) => return Err(in_use()),
            // If it is there, an attempt without an answer has made it.
            Swapped::Done | Swapped::Differs(_) => before = Some(next),
        }
    }
    Ok(())
}

fn registry_of(file: &ClusterFile) -> Result<Registry, Failure> {
    Registry::new(&file.etcd, file.array).map_err(|error| failure(error.into()))
}

/// Calls etcd until it answers.
async fn answered<T>(mut call: impl AsyncFnMut() -> Result<T, RegistryError>) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            // What is there does not change by itself.
            Err(error @ (RegistryError::Strange { .. } | RegistryError::Entries(_))) => {
                return Err(failure(error.into()));
            }
            Err(error) if begun.elapsed() > ETCD_WAIT => return Err(failure(error.into())),
            Err(_) => tokio::time::sleep(HEARTBEAT).await,
        }
    }
}

fn in_use() -> Failure {
    let message = "the array in etcd is being written: a monitor leads, or this command runs twice";
    Failure::failed("registry-in-use", message).hint("end `braid agent` on all machines, and try again")
}

/// Runs the candidate of this machine until `stop` completes. Calls `serving` with its address once it listens.
pub async fn run(
    control: &ControlPlane,
    spare_after: Option<Duration>,
    serving: impl FnOnce(&Address),
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let cluster = control.cluster().expect("the array is on several machines");
    let (file, own) = (cluster.file()?, cluster.file()?.own());
    // If etcd can't be reached, the others can't read either. What it can't read, it could not lead.
    if let Ok((Some(_), keys)) = registry_of(file)?.read_all().await {
        Content::of(&keys).map_err(|error| failure(RegistryError::from(error).into()))?;
    }
    let http = tokio::net::lookup_host(own.http()).await.ok().and_then(|mut found| found.next());
    let unknown = || Failure::usage("bad-address", format!("{} is no address of this machine", own.host));
    let place = Place {
        id: CandidateId(own.candidate),
        wire: own.wire().parse().map_err(|_| unknown())?,
        http: http.ok_or_else(unknown)?,
        etcd: file.etcd.clone(),
        mark: cluster.folder().dir().join(MARK),
        insecure_network: file.insecure_network,
    };
    let settings = Leases::of_millis(file.lease_millis).settings();
    let settings = Settings { spare_after: spare_after.unwrap_or(settings.spare_after), ..settings };
    let (array, last_generation) = (file.array, Generation(0));
    // It learns the devices and the last generation when it leads.
    let config = MonitorConfig { array, devices: Vec::new(), last_generation, term: None, settings };
    let candidate = Candidate::open(place, config).await.map_err(failure)?;
    let (counters, address) = (Arc::new(Counters::default()), candidate.wire());
    serving(&address);
    let (events, told) = mpsc::unbounded_channel();
    let mut reporter = Reporter {
        address: address.to_string(),
        shown: None,
        membership_events: MembershipEvents::after(None),
        events,
        counters: counters.clone(),
    };
    let known = watch::Sender::new(known_of(file));
    let shown = Shown {
        state: watch::Sender::new(CandidateState::default()),
        report: Box::new(move |now, monitor, revision| reporter.report(now, monitor, revision)),
        known: known.subscribe(),
    };
    let mut state = shown.state.subscribe();
    let stopping = async {
        if state.wait_for(|state| state.has_stopped).await.is_ok() {
            tracing::error!("this monitor has stopped: etcd has gone back to an earlier state");
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = candidate.run(counters, shown, stop) => ended.map_err(failure),
        never = record(control.clone(), told) => match never {},
        never = learn(cluster, known) => match never {},
        never = stopping => never,
    }
}

fn known_of(file: &ClusterFile) -> Known {
    let candidates = file.machines.values().map(|entry| (CandidateId(entry.candidate), entry.http())).collect();
    Known { candidates, cluster: serde_json::to_string(file).expect("our own types have a JSON form") }
}

/// Keeps up with the machines that join.
async fn learn(cluster: &Cluster, known: watch::Sender<Known>) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LEARN_PAUSE).await;
        match cluster.learn().await {
            Ok(file) => drop(known.send_replace(known_of(&file))),
            Err(error) => tracing::debug!("can't read which machines there are: {error}"),
        }
    }
}

/// Makes the report of the monitor that leads: often enough for those who wait for something in it.
struct Reporter {
    address: String,
    /// When the last report was made, and of what.
    shown: Option<(Instant, (Awaited, u64))>,
    membership_events: MembershipEvents,
    events: mpsc::UnboundedSender<Vec<Event>>,
    counters: Arc<Counters>,
}

impl Reporter {
    fn report(&mut self, _: Now, monitor: &Monitor, revision: u64) -> Option<String> {
        let of = (Server::service(monitor).1, revision);
        let is_due = self.shown.is_none_or(|(when, last)| when.elapsed() >= HEARTBEAT || last != of);
        // Until the membership has been read there is nothing to report.
        if !is_due || of.0.0 == Epoch(0) {
            return None;
        }
        self.shown = Some((Instant::now(), of));
        let counters = metrics_of(monitor, &self.counters).into_map();
        let mut report = report_of(monitor, (revision, &self.address), counters);
        let events = self.membership_events.take(&mut report, Instant::now());
        if !events.is_empty() {
            // Without a receiver, the candidate has ended.
            let _ = self.events.send(events);
        }
        let says = MonitorSays { pid: std::process::id(), origin: Origin::own(), report };
        Some(serde_json::to_string(&says).expect("our own types have a JSON form"))
    }
}

/// Records events in the log of this machine.
async fn record(control: ControlPlane, mut told: mpsc::UnboundedReceiver<Vec<Event>>) -> std::convert::Infallible {
    while let Some(events) = told.recv().await {
        if let Err(error) = control.record(events).await {
            tracing::warn!("the monitor can't write events to the log: {error}");
        }
    }
    std::future::pending().await
}

fn failure(error: CandidateError) -> Failure {
    let message = error.to_string();
    match error {
        CandidateError::Registry(RegistryError::Strange { .. } | RegistryError::Entries(_)) => {
            Failure::failed("registry-unreadable", message).hint("a newer release has written it, or it is damaged")
        }
        CandidateError::Exposed { .. } => Failure::usage("insecure-network", message),
        CandidateError::Listen { .. } => Failure::failed("monitor-in-use", message),
        CandidateError::Registry(_) => {
            Failure::unreachable("registry", message).hint("the members of etcd are named in cluster.json")
        }
        CandidateError::Io(_) => Failure::failed("io", message),
    }
}
