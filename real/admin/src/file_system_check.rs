//! The check of a file system. The process that checks takes the place of the metadata server meanwhile: a file system that nobody serves
//! does not change.
//!
//! The lease of the check tells the metadata server to release the file system, and to wait with the next take-over until the check is over.
//! Hosts wait meanwhile, as after the death of a metadata server.
//!
//! With several shards, a name may be in one and its inode in another, so that they are checked as one. First a lease of the check tells the
//! metadata servers to *settle*: they begin no further operations, and end those under way. Otherwise one shard might have done its part of
//! an operation, and another one not yet. Then the check reads the maps of all shards, one after the other, into memory.
//!
//! ```text
//!   lease "settles" ─► all servers have settled ─► lease "fs check NAME" ─► they release their shards ─► maps ─► check
//! ```

use crate::failure::Failure;
use crate::file_systems;
use crate::health::is_there;
use braid_base::units::format_size;
use braid_base::{Now, Time};
use braid_control::{ArrayFolder, ControlError, FileSystemEntry, Moment};
use braid_machine::{ArrayRequest, HostEffects, HostInput, HostOutcome, HostRequest, Machine, NoDisk};
use braid_metadata::{
    Collected, MetadataNode, MetadataServer, MetadataServerConfig, MetadataService, NodeState, check_together,
};
use braid_namespace::check::Finding;
use braid_session::{ObservedHost, Session};
use braid_wire::OwnershipRequest;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The interval of the check whether the check is complete.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// How long metadata servers may take to settle. One that died is replaced meanwhile.
const SETTLE_WAIT: Duration = Duration::from_secs(30);
/// How long metadata servers may take to serve again after a check.
const SERVED_AGAIN: Duration = Duration::from_secs(10);
/// The memory for the maps of all shards together.
const MAPS_BYTES_MAX: usize = 2 << 30;

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemFindings {
    pub findings: Vec<Finding>,
    /// Findings beyond these.
    pub omitted: u64,
}

/// The machine, which this task reads while it runs.
type Shared = Rc<RefCell<Option<MetadataNode<ObservedHost>>>>;

struct ObservedNode(Shared);

/// True if a check of this file system is under way.
pub fn is_under_way(folder: &ArrayFolder, name: &str) -> Result<bool, ControlError> {
    has_live_host(folder, &role(name))
}

/// True if the metadata servers of this file system are to settle.
pub fn settles(folder: &ArrayFolder, name: &str) -> Result<bool, ControlError> {
    has_live_host(folder, &settling_role(name))
}

fn has_live_host(folder: &ArrayFolder, role: &str) -> Result<bool, ControlError> {
    let hosts = folder.hosts(&Moment::now(), folder.describe()?.leases().lease())?;
    Ok(hosts.iter().any(|host| host.role == role && host.live && is_there(host.pid)))
}

/// Checks a file system that is ready.
pub async fn check(folder: &ArrayFolder, name: &str) -> Result<FileSystemFindings, Failure> {
    let entry = file_systems::find(&folder.describe()?, name)?.clone();
    if is_under_way(folder, name)? || settles(folder, name)? {
        return Err(Failure::failed("check-under-way", format!("file system {name} is being checked already")));
    }
    if entry.shards.is_none() {
        return announced(folder, &entry, async { own(folder, &entry, 0, None, findings_of).await }).await;
    }
    let settling = Session::start(folder, &settling_role(name)).await?;
    let checked = async {
        await_settled(folder, &entry).await?;
        announced(folder, &entry, check_shards(folder, &entry)).await
    };
    let outcome = checked.await;
    settling.end().await;
    outcome
}

/// Runs a check, of which a lease tells the metadata servers.
async fn announced(
    folder: &ArrayFolder,
    entry: &FileSystemEntry,
    run: impl Future<Output = Result<FileSystemFindings, Failure>>,
) -> Result<FileSystemFindings, Failure> {
    // Its lease is what the metadata server sees.
    let was_served = file_systems::await_served(folder, entry, Duration::ZERO).await?;
    let announcement = Session::start(folder, &role(&entry.name)).await?;
    let checked = async {
        // A server that does not release the file system is fenced by the take-over.
        file_systems::await_released(folder, entry).await?;
        run.await
    };
    let outcome = checked.await;
    announcement.end().await;
    if was_served && !file_systems::await_served(folder, entry, SERVED_AGAIN).await? {
        tracing::warn!("file system {} is not served again yet: `braid fs status` shows why", entry.name);
    }
    outcome
}

/// Waits until all metadata servers have settled.
async fn await_settled(folder: &ArrayFolder, entry: &FileSystemEntry) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let mut open = Vec::new();
        for (id, server) in entry.named_servers() {
            let lease = file_systems::server_of(folder, id)?;
            if !lease.is_some_and(|host| host.report.metadata_server.is_some_and(|server| server.settled)) {
                open.push(server);
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > SETTLE_WAIT {
            let message = format!(
                "these metadata servers have not ended their operations within {SETTLE_WAIT:?}: {}",
                open.join(", ")
            );
            return Err(Failure::unreachable("not-settled", message)
                .hint("with several shards, all metadata servers must run before a check: see `braid fs status`"));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Reads the maps of all shards, and checks them as one.
async fn check_shards(folder: &ArrayFolder, entry: &FileSystemEntry) -> Result<FileSystemFindings, Failure> {
    let name = &entry.name;
    let mut maps: Vec<Collected> = Vec::new();
    for shard in 0..entry.servers().len() {
        let most = MAPS_BYTES_MAX / entry.servers().len();
        let map = own(folder, entry, shard, Some(most), |server| server.take_collected()).await?;
        if map.is_cut {
            let message = format!(
                "the metadata of file system {name} shard {shard} takes more than {} of memory: too much for a check of all shards together",
                format_size(most as u64)
            );
            return Err(Failure::failed("too-large", message));
        }
        maps.push(map);
    }
    let (findings, omitted) = check_together(maps).map_err(|undecided| {
        let message = format!(
            "file system {name} can't be checked: {} operations on several shards are neither done nor undone",
            undecided.transactions
        );
        Failure::failed("not-settled", message).hint("try again: its metadata servers decide them")
    })?;
    Ok(FileSystemFindings { findings, omitted })
}

fn findings_of(server: &mut MetadataServer) -> Option<FileSystemFindings> {
    server.findings().map(|(findings, omitted)| FileSystemFindings { findings, omitted })
}

/// Takes over a shard, to check it, or to collect its map with so many bytes of memory. Releases it when there is a result.
async fn own<T>(
    folder: &ArrayFolder,
    entry: &FileSystemEntry,
    shard: usize,
    collects: Option<usize>,
    result: impl FnMut(&mut MetadataServer) -> Option<T>,
) -> Result<T, Failure> {
    let name = &entry.name;
    let (volume, config) = file_systems::server_config(&folder.describe()?, name, shard)?;
    let file_system = config.file_system;
    let node = Shared::default();
    let around = |host, generation| {
        let config = MetadataServerConfig { generation, ..config };
        let process = MetadataNode::new(host, volume, config);
        *node.borrow_mut() = Some(match collects {
            Some(most) => process.that_collects(most),
            None => process.that_checks(),
        });
        ObservedNode(node.clone())
    };
    let session = Session::start_around(folder, &role(name), None, None, around).await?;
    let outcome = tokio::select! {
        outcome = follow(&node, name, result) => outcome,
        loss = session.lost() => Err(loss.into()),
    };
    let since = node.borrow().as_ref().and_then(MetadataNode::owns_since);
    if let (Ok(_), Some(since)) = (&outcome, since) {
        let request = OwnershipRequest::Release { since };
        // If that fails, the next server takes over instead.
        if let Err(error) = session.client().call(ArrayRequest::Ownership { file_system, request }).await {
            tracing::warn!("file system {name} is not released: {error}");
        }
    }
    session.end().await;
    outcome
}

/// Returns when there is a result, or none is possible.
async fn follow<T>(
    node: &Shared,
    name: &str,
    mut result: impl FnMut(&mut MetadataServer) -> Option<T>,
) -> Result<T, Failure> {
    loop {
        if let Some(outcome) = node.borrow_mut().as_mut().and_then(|node| outcome_of(node, name, &mut result)) {
            return outcome;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

fn outcome_of<T>(
    node: &mut MetadataNode<ObservedHost>,
    name: &str,
    result: impl FnOnce(&mut MetadataServer) -> Option<T>,
) -> Option<Result<T, Failure>> {
    if let NodeState::Ended(error) = node.state() {
        let message =
            format!("the check of file system {name} was interrupted, because another process took it over: {error}");
        return Some(Err(Failure::failed("ownership-lost", message).hint("try again")));
    }
    let server = node.server_mut()?;
    if let MetadataService::Unusable(error) = server.service() {
        return Some(Err(Failure::data_lost("metadata-damaged", format!("file system {name}: {error}"))));
    }
    result(server).map(Ok)
}

/// The role of the hosts of a check, as their leases state it.
pub fn role(name: &str) -> String {
    format!("fs check {name}")
}

/// The role of the host that tells metadata servers to settle.
fn settling_role(name: &str) -> String {
    format!("fs check {name}: settles")
}

impl ObservedNode {
    fn with<T>(&self, act: impl FnOnce(&mut MetadataNode<ObservedHost>) -> T) -> T {
        act(self.0.borrow_mut().as_mut().expect("it was made before the machine ran"))
    }
}

impl Machine for ObservedNode {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        self.with(|node| node.step(now, input, out));
    }

    fn deadline(&self) -> Option<Time> {
        self.with(|node| node.deadline())
    }

    fn invariants(&self) {
        self.with(|node| node.invariants());
    }
}
