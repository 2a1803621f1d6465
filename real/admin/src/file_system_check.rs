//! The check of a file system. The process that checks takes the place of the metadata server meanwhile: a file system that nobody serves
//! does not change.
//!
//! The protocol is `braid_control_protocol::FileSystemCheck`. A lease of the check tells the metadata servers to release the file system, and
//! to wait with the next take-over until the check is over. Hosts wait meanwhile, as after the death of a metadata server.
//!
//! With several shards, a name may be in one and its inode in another, so that they are checked as one: the maps of all shards are read,
//! one after the other, into memory. Before that, another lease tells the metadata servers to *quiesce*: they begin no further operations,
//! and end those under way.

use crate::failure::Failure;
use crate::file_systems;
use crate::operation_driver::{self, Ended, Judge, Questions, Subject, Work, Worker, ask_ownership, role, role_of};
use braid_base::units::format_size;
use braid_base::{FileSystemId, Ownership};
use braid_control::{ControlError, ControlPlane, FileSystemEntry, Moment};
use braid_control_protocol::{Announcement, Answer, Error, FileSystemCheck, FileSystemTiming, Question};
use braid_metadata::{
    Collected, MetadataNode, MetadataServer, MetadataServerConfig, MetadataService, NodeState, check_together,
};
use braid_namespace::check::Finding;
use braid_session::{Session, SessionHost};
use braid_shell::{View, Watched};
use braid_wire::OwnershipRequest;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The interval of the check whether the check is complete.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// The memory for the maps of all shards together.
const MAPS_BYTES_MAX: usize = 2 << 30;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystemFindings {
    pub findings: Vec<Finding>,
    /// Findings beyond these.
    pub omitted: u64,
}

/// The machine, which this task reads while it runs.
type Node = MetadataNode<SessionHost>;

/// True if a check of this file system is under way.
pub async fn is_under_way(control: &ControlPlane, name: &str) -> Result<bool, ControlError> {
    has_live_host(control, &role(name)).await
}

/// True if the metadata servers of this file system are to quiesce.
pub async fn quiesces(control: &ControlPlane, name: &str) -> Result<bool, ControlError> {
    has_live_host(control, &role_of(name, Announcement::Quiesce)).await
}

async fn has_live_host(control: &ControlPlane, role: &str) -> Result<bool, ControlError> {
    let hosts = control.leases().hosts(Moment::now(), control.describe().await?.leases().lease()).await?;
    Ok(hosts.iter().any(|host| host.role == role && host.is_alive()))
}

/// Checks a file system that is ready.
pub async fn check(control: &ControlPlane, name: &str) -> Result<FileSystemFindings, Failure> {
    let entry = file_systems::find(&control.describe().await?, name)?.clone();
    let questions = Questions {
        control: control.clone(),
        client: None,
        subject: Subject::FileSystem(entry.id),
        what: format!("file system '{name}' can't be checked"),
        judge: Judge::begin(),
    };
    let checker = Checker { control, entry: &entry, announced: RefCell::default(), found: RefCell::default() };
    let unserved = |_: &str| tracing::warn!("file system {name} is not served again yet: `braid fs status` shows why");
    let timing = FileSystemTiming::default();
    let operation = FileSystemCheck::of(entry.servers(), timing);
    let Ended { result, reasons, .. } =
        operation_driver::run(operation.into(), &questions, Some(&checker), unserved).await;
    match result {
        Ok(_) => match checker.findings()? {
            found if found.findings == [Finding::Blank] => {
                let message =
                    format!("no metadata server has served file system {name} yet: there is nothing to check");
                Err(Failure::unreachable("file-system-not-served", message)
                    .hint("`braid up` starts one; `braid fs status` shows what it does"))
            }
            found => Ok(found),
        },
        Err(Error::Interrupted) => {
            let message =
                format!("the check of file system {name} was interrupted, because other processes served it meanwhile");
            Err(Failure::failed("ownership-lost", message).hint("try again"))
        }
        Err(Error::CheckUnderWay) => {
            Err(Failure::failed("check-under-way", format!("file system {name} is being checked already")))
        }
        Err(Error::NotQuiescent(shards)) => {
            let open = entry.named_servers().filter(|(shard, _)| shards.contains(shard));
            let message = format!(
                "these metadata servers have not ended their operations within {:?}: {}",
                timing.quiesce,
                open.map(|(_, server)| server).collect::<Vec<_>>().join(", ")
            );
            Err(Failure::unreachable("not-settled", message)
                .hint("with several shards, all metadata servers must run before a check: see `braid fs status`"))
        }
        Err(error) => Err(operation_driver::explain(control, name, error, reasons).await?),
    }
}

/// Does what a check asks of its process: announcements are leases of hosts, whose roles metadata servers see.
struct Checker<'a> {
    control: &'a ControlPlane,
    entry: &'a FileSystemEntry,
    announced: RefCell<BTreeMap<Announcement, Session>>,
    found: RefCell<Found>,
}

#[derive(Default)]
struct Found {
    /// Of a file system with one shard.
    findings: Option<FileSystemFindings>,
    /// Of one with several, in the order of the shards.
    maps: Vec<Arc<Collected>>,
}

impl Worker for Checker<'_> {
    fn begin(&self, question: &Question) -> Option<Work<'_>> {
        match *question {
            Question::Announce(announcement) => Work::doing(self.announce(announcement)),
            Question::Withdraw(announcement) => Work::doing(self.withdraw(announcement)),
            Question::Examine { shard } => Work::doing(self.examine(shard)),
            Question::Ownership { file_system, request } => Work::doing(self.ownership(file_system, request)),
            _ => None,
        }
    }
}

impl Checker<'_> {
    async fn announce(&self, announcement: Announcement) -> Result<Answer, Failure> {
        let session = Session::start(self.control, &role_of(&self.entry.name, announcement)).await?;
        self.announced.borrow_mut().insert(announcement, session);
        Ok(Answer::Yes)
    }

    /// Asks the monitor by a host that announces the check. If it has lost its lease, the check has lapsed.
    async fn ownership(&self, file_system: FileSystemId, request: OwnershipRequest) -> Result<Answer, Failure> {
        let client = self.announced.borrow().values().next().map(|session| session.client().clone());
        let client = client.ok_or_else(|| Failure::failed("internal", "the check is not announced"))?;
        ask_ownership(&client, file_system, request).await
    }

    async fn withdraw(&self, announcement: Announcement) -> Result<Answer, Failure> {
        let session = self.announced.borrow_mut().remove(&announcement);
        if let Some(session) = session {
            session.end().await;
        }
        Ok(Answer::Yes)
    }

    /// Checks a shard if it is the only one. Otherwise reads its map, as the maps of all shards are checked as one.
    async fn examine(&self, shard: usize) -> Result<Answer, Failure> {
        let (name, servers) = (&self.entry.name, self.entry.servers().len());
        if self.entry.shards.is_none() {
            let (findings, released) = own(self.control, self.entry, shard, None, findings_of).await?;
            self.found.borrow_mut().findings = Some(findings);
            return Ok(released);
        }
        let most = MAPS_BYTES_MAX / servers;
        let (map, released) = own(self.control, self.entry, shard, Some(most), MetadataServer::collected).await?;
        if map.is_cut {
            let message = format!(
                "the metadata of file system {name} shard {shard} takes more than {} of memory: too much for a check of all shards together",
                format_size(most as u64)
            );
            return Err(Failure::failed("too-large", message));
        }
        let maps = &mut self.found.borrow_mut().maps;
        maps.truncate(shard);
        maps.push(map);
        Ok(released)
    }

    fn findings(self) -> Result<FileSystemFindings, Failure> {
        let name = &self.entry.name;
        let Found { findings, maps } = self.found.into_inner();
        if let Some(findings) = findings {
            return Ok(findings);
        }
        let (findings, omitted) =
            check_together(maps.into_iter().map(Arc::unwrap_or_clone).collect()).map_err(|undecided| {
                let message = format!(
                    "file system {name} can't be checked: {} operations on several shards are neither done nor undone",
                    undecided.transactions
                );
                Failure::failed("not-settled", message).hint("try again: its metadata servers decide them")
            })?;
        Ok(FileSystemFindings { findings, omitted })
    }
}

fn findings_of(server: &MetadataServer) -> Option<FileSystemFindings> {
    server.findings().map(|(findings, omitted)| FileSystemFindings { findings, omitted })
}

/// Takes over a shard, to check it, or to collect its map with so many bytes of memory. Releases it when there is a result.
async fn own<T>(
    control: &ControlPlane,
    entry: &FileSystemEntry,
    shard: usize,
    collects: Option<usize>,
    result: impl Fn(&MetadataServer) -> Option<T>,
) -> Result<(T, Answer), Failure> {
    let name = &entry.name;
    let (volume, config) = file_systems::server_config(&control.describe().await?, name, shard)?;
    let file_system = config.file_system;
    let mut view = None;
    let around = |host, generation| {
        let config = MetadataServerConfig { generation, ..config };
        let process = MetadataNode::new(host, volume, config);
        let (machine, seen) = Watched::new(match collects {
            Some(most) => process.for_export(most),
            None => process.for_check(),
        });
        view = Some(seen);
        machine
    };
    let session = Session::start_around(control, &role(name), None, None, around).await?;
    let node: View<Node> = view.expect("the session has a machine");
    let outcome = tokio::select! {
        outcome = follow(&node, name, result) => outcome,
        loss = session.lost() => Err(loss.into()),
    };
    let since = node.look(MetadataNode::owns_since);
    let released = match (&outcome, since) {
        (Ok(_), Some(since)) => {
            let request = OwnershipRequest::Release { since };
            match ask_ownership(session.client(), file_system, request).await {
                // What a single shard contains is known. The next server takes over.
                Err(error) if collects.is_none() => {
                    tracing::warn!("file system {name} is not released: {error}");
                    Ok(Answer::Ownership(Ownership::default()))
                }
                released => released,
            }
        }
        // The node has ended.
        _ => Err(Failure::failed("ownership-lost", format!("file system {name} is not owned any more"))),
    };
    session.end().await;
    Ok((outcome?, released?))
}

/// Returns when there is a result, or none is possible.
async fn follow<T>(node: &View<Node>, name: &str, result: impl Fn(&MetadataServer) -> Option<T>) -> Result<T, Failure> {
    loop {
        if let Some(outcome) = node.look(|node| outcome_of(node, name, &result)) {
            return outcome;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

fn outcome_of<T>(
    node: &Node,
    name: &str,
    result: impl FnOnce(&MetadataServer) -> Option<T>,
) -> Option<Result<T, Failure>> {
    if let NodeState::Ended(error) = node.state() {
        let message =
            format!("the check of file system {name} was interrupted, because another process took it over: {error}");
        return Some(Err(Failure::failed("ownership-lost", message).hint("try again")));
    }
    let server = node.server()?;
    if let MetadataService::Unusable(error) = server.service() {
        return Some(Err(Failure::data_lost("metadata-damaged", format!("file system {name}: {error}"))));
    }
    result(server).map(Ok)
}
