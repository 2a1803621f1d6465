//! Which hosts hold and await locks of the lock servers.

use crate::failure::Failure;
use crate::operation_driver::needs_lock_server;
use braid_base::{LockServerId, ObjectId};
use braid_client::space_object;
use braid_control::{ControlPlane, Moment};
use braid_machine::{HostError, HostSuccess, RangesRequest};
use braid_session::Session;
use braid_shell::HostClient;
use braid_wire::LockName;
pub use braid_wire::{LockExtent, LockMode, SurveyedLock};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct LockQuestion {
    pub space: Option<String>,
    /// Only those that wait.
    pub waiting: bool,
    /// The most locks of each server.
    pub most: usize,
    /// How long a server may take to answer.
    pub wait: Duration,
}

/// What the lock servers of an array tell.
#[derive(Clone, Debug, Default)]
pub struct LockSurveys {
    pub servers: Vec<ServerSurvey>,
    /// The names of what is locked: of spaces that a host with a lease uses, and of volumes.
    pub spaces: BTreeMap<ObjectId, String>,
    pub volumes: BTreeMap<ObjectId, String>,
    /// The roles of hosts with leases, by generation.
    pub roles: BTreeMap<u32, String>,
}

#[derive(Clone, Debug)]
pub struct ServerSurvey {
    pub id: LockServerId,
    /// `serving`; `recovering`: it has started again, and requests that came since are not listed; `silent`: it does not answer.
    pub state: &'static str,
    /// It has more locks than were asked for.
    pub more: bool,
    pub locks: Vec<SurveyedLock>,
}

/// The state of a server that does not answer.
pub const SILENT: &str = "silent";
/// The state of a server that does not know all locks yet.
pub const RECOVERING: &str = "recovering";

/// Asks all lock servers at once.
pub async fn survey(control: &ControlPlane, question: &LockQuestion) -> Result<LockSurveys, Failure> {
    braid_session::require_up(control).await?;
    let description = control.describe().await?;
    let hosts = control.leases().hosts(Moment::now(), description.leases().lease()).await?;
    let runs = description.locks_ranges
        || description.volumes.iter().any(needs_lock_server)
        || hosts.iter().any(|host| host.report.lock_server.is_some());
    if !runs {
        return Ok(LockSurveys::default());
    }
    let session = Session::start(control, "locks").await?;
    let asked = description.lock_servers().map(|server| of_server(session.client(), server, question));
    let servers = join_all(asked).await;
    session.leave().await;
    let spaces = hosts.iter().flat_map(|host| &host.report.spaces).chain(&question.space);
    Ok(LockSurveys {
        servers: servers.into_iter().collect::<Result<_, _>>()?,
        spaces: spaces.map(|space| (space_object(space), space.clone())).collect(),
        volumes: description.volumes.iter().map(|volume| (ObjectId(volume.id), volume.name.clone())).collect(),
        roles: hosts.iter().map(|host| (host.generation.0, host.role.clone())).collect(),
    })
}

async fn of_server(client: &HostClient, id: LockServerId, question: &LockQuestion) -> Result<ServerSurvey, Failure> {
    let LockQuestion { waiting, wait, most, .. } = *question;
    let object = question.space.as_deref().map(space_object);
    let mut told = ServerSurvey { id, state: "serving", more: false, locks: Vec::new() };
    let mut from = Some(LockName::default());
    while let Some(name) = from.filter(|_| told.locks.len() <= most) {
        match client.call(RangesRequest::Survey { server: id, from: name, object, waiting, wait }).await {
            Ok(HostSuccess::LocksSurveyed(survey)) => {
                told.locks.extend(survey.locks);
                from = survey.next;
                if !survey.is_recovered {
                    told.state = RECOVERING;
                }
            }
            Ok(_) => unreachable!("a survey has such an answer"),
            Err(HostError::LockServerSilent { .. }) => {
                told.state = SILENT;
                from = None;
            }
            Err(error) => return Err(error.into()),
        }
    }
    told.more = told.locks.len() > most || from.is_some();
    told.locks.truncate(most);
    Ok(told)
}
