//! The check of a file system. The process that checks takes the place of the metadata server meanwhile: a file system that nobody serves
//! does not change.
//!
//! The lease of the check tells the metadata server to release the file system, and to wait with the next take-over until the check is over.
//! Hosts wait meanwhile, as after the death of a metadata server.

use crate::failure::Failure;
use crate::file_systems;
use crate::health::is_there;
use braid_base::{Now, Time};
use braid_control::{ArrayFolder, ControlError, Moment};
use braid_machine::{Effects, HostRequest, Input, Machine};
use braid_metadata::{MetadataNode, MetadataServerConfig, MetadataService, NodeState};
use braid_namespace::check::Finding;
use braid_session::{ObservedHost, Session};
use braid_wire::OwnershipRequest;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// The interval of the check whether the check is complete.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

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
    let role = role(name);
    let hosts = folder.hosts(&Moment::now(), folder.describe()?.leases().lease())?;
    Ok(hosts.iter().any(|host| host.role == role && host.live && is_there(host.pid)))
}

/// Checks a file system that is ready.
pub async fn check(folder: &ArrayFolder, name: &str) -> Result<FileSystemFindings, Failure> {
    let entry = file_systems::find(&folder.describe()?, name)?.clone();
    if is_under_way(folder, name)? {
        return Err(Failure::failed("check-under-way", format!("file system {name} is being checked already")));
    }
    // Its lease is what the metadata server sees.
    let announcement = Session::start(folder, &role(name)).await?;
    let checked = async {
        // A server that does not release the file system is fenced by the take-over.
        file_systems::await_released(folder, entry.id()).await?;
        run(folder, name).await
    };
    let outcome = checked.await;
    announcement.end().await;
    outcome
}

async fn run(folder: &ArrayFolder, name: &str) -> Result<FileSystemFindings, Failure> {
    let (volume, config) = file_systems::server_config(&folder.describe()?, name)?;
    let file_system = config.file_system;
    let node = Shared::default();
    let around = |host, generation| {
        let config = MetadataServerConfig { generation, ..config };
        *node.borrow_mut() = Some(MetadataNode::new(host, volume, config).that_checks());
        ObservedNode(node.clone())
    };
    let session = Session::start_around(folder, &role(name), None, around).await?;
    let outcome = tokio::select! {
        outcome = follow(&node, name) => outcome,
        loss = session.lost() => Err(loss.into()),
    };
    let since = node.borrow().as_ref().and_then(MetadataNode::owns_since);
    if let (Ok(_), Some(since)) = (&outcome, since) {
        let request = OwnershipRequest::Release { since };
        // If that fails, the next server takes over instead.
        if let Err(error) = session.client().call(HostRequest::Ownership { file_system, request }).await {
            tracing::warn!("file system {name} is not released: {error}");
        }
    }
    session.end().await;
    outcome
}

/// Returns when the check is complete, or impossible.
async fn follow(node: &Shared, name: &str) -> Result<FileSystemFindings, Failure> {
    loop {
        if let Some(outcome) = node.borrow().as_ref().and_then(|node| outcome_of(node, name)) {
            return outcome;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

fn outcome_of(node: &MetadataNode<ObservedHost>, name: &str) -> Option<Result<FileSystemFindings, Failure>> {
    if let NodeState::Ended(error) = node.state() {
        let message =
            format!("the check of file system {name} was interrupted, because another process took it over: {error}");
        return Some(Err(Failure::failed("ownership-lost", message).hint("try again")));
    }
    let server = node.server()?;
    if let MetadataService::Unusable(error) = server.service() {
        return Some(Err(Failure::data_lost("metadata-damaged", format!("file system {name}: {error}"))));
    }
    let (findings, omitted) = server.findings()?;
    Some(Ok(FileSystemFindings { findings, omitted }))
}

/// The role of the hosts of a check, as their leases state it.
pub fn role(name: &str) -> String {
    format!("fs check {name}")
}

impl ObservedNode {
    fn with<T>(&self, act: impl FnOnce(&mut MetadataNode<ObservedHost>) -> T) -> T {
        act(self.0.borrow_mut().as_mut().expect("it was made before the machine ran"))
    }
}

impl Machine for ObservedNode {
    fn step(&mut self, now: Now, input: Input, out: &mut Effects) {
        self.with(|node| node.step(now, input, out));
    }

    fn deadline(&self) -> Option<Time> {
        self.with(|node| node.deadline())
    }

    fn invariants(&self) {
        self.with(|node| node.invariants());
    }
}
