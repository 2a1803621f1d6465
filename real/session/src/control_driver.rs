//! The driver of a host's control part (`braid_control_protocol::HostControl`): it reads the array's description, has the host perform the
//! steps, and renews the lease. With the description it reads the addresses of other nodes; with the lease it reports what the host does, and it
//! records in the event log what people should know.

use crate::addressing::{listed_for_host, tell};
use crate::corruption_events::CorruptionReporter;
use crate::error::Loss;
use crate::host_view::HostView;
use crate::metrics::Metrics;
use crate::registry;
use crate::space_events::{self, Full, SpaceReporter};
use braid_base::{FileSystemId, Generation};
use braid_control::{
    ControlError, ControlPlane, LeaseReport, Leases, MetadataService, Moment, MountReport, until_next,
};
use braid_control_protocol::{HostAction, HostControl, HostEvent, HostStep, Version};
use braid_host_leases::{RenewerInput, StopReason};
use braid_shell::{Addresses, HostClient};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// The counter of a metadata server of requests that it refused for want of space.
const SHORT_COUNTER: &str = "metadata_refused_for_space";

/// What a lease reports of a service, beside its host.
#[derive(Clone, Debug, Default)]
pub struct ServiceReport {
    pub metadata_server: Option<MetadataService>,
    pub counters: Metrics,
}

pub(crate) struct ControlDriver {
    pub control: ControlPlane,
    pub generation: Generation,
    pub leases: Leases,
    pub part: HostControl,
    pub client: HostClient,
    pub view: HostView,
    pub reports: Reports,
    /// The metadata servers that the host speaks to.
    pub servers: Vec<FileSystemId>,
    /// Tells the host where other nodes are.
    pub follow: watch::Sender<Addresses>,
    /// Tells which version the host has applied.
    pub applying: watch::Sender<Version>,
    /// Ends pauses.
    pub look: Arc<Notify>,
    /// When the array was read last, if changes are told from then on.
    pub read: Option<Instant>,
}

/// What is reported with the lease, and recorded in the event log.
pub(crate) struct Reports {
    pub corruption: Option<CorruptionReporter>,
    pub space: SpaceReporter,
    /// Records events.
    pub telling: Option<JoinHandle<()>>,
    pub service: Option<Box<dyn Fn() -> ServiceReport>>,
    pub mount: Option<MountReport>,
}

impl ControlDriver {
    pub async fn run(mut self, losing: watch::Sender<Option<Loss>>) {
        let mut event = HostEvent::Wake;
        let mut unrenewed = None;
        loop {
            let now = Moment::now();
            let action = self.part.step(&now, event, |volume| self.view.is_idle_for(volume));
            if let Some(version) = self.part.applied() {
                self.applying.send_if_modified(|applied| std::mem::replace(applied, version) != version);
            }
            event = match action {
                HostAction::Read => self.read().await,
                HostAction::Perform(step) => self.perform(step).await,
                HostAction::Renew { confirmed } => {
                    let renewal = self.renew(now, confirmed).await;
                    let end = renewal_input(&renewal);
                    unrenewed = renewal.err();
                    HostEvent::Renewal(end)
                }
                HostAction::Wait(span) => {
                    if let Some(error) = unrenewed.take() {
                        tracing::warn!("{error}");
                    }
                    self.wait(span).await
                }
                HostAction::Stop(reason) => {
                    let loss = match (reason, unrenewed.map(Arc::new)) {
                        (StopReason::LeaseLost, Some(error)) => Loss::LeaseLost(error),
                        (StopReason::Unrenewed, Some(error)) => Loss::Unrenewed(error),
                        _ => Loss::Fenced,
                    };
                    losing.send_replace(Some(loss));
                    return;
                }
            };
        }
    }

    async fn wait(&mut self, span: Duration) -> HostEvent {
        if tokio::time::timeout(until_next(span), self.look.notified()).await.is_ok() {
            // Something asks for a look.
            self.read = None;
        }
        if self.view.is_fenced() { HostEvent::Fenced } else { HostEvent::Wake }
    }

    async fn read(&mut self) -> HostEvent {
        if self.read.is_some_and(|last| self.control.is_settled(last)) {
            return HostEvent::Unread;
        }
        match self.control.overview().await {
            Ok(read) => {
                // Other servers say in their leases where they serve, which is not told.
                let has_servers = !read.description.file_systems.is_empty()
                    || read.running.as_ref().is_none_or(|running| !running.lock_servers.is_empty());
                self.read = (!has_servers).then(Instant::now);
                tell(&self.follow, listed_for_host(&self.control, &read, &self.servers));
                match registry::records(&read.description) {
                    Ok(records) => return HostEvent::Read { version: Version(read.description.revision), records },
                    Err(failure) => tracing::warn!("can't follow the volumes: {failure}"),
                }
            }
            Err(error) => tracing::warn!("can't look up the array: {error}"),
        }
        HostEvent::Unread
    }

    async fn perform(&self, step: HostStep) -> HostEvent {
        match tokio::time::timeout(self.leases.heartbeat(), self.client.call(step.request())).await {
            Ok(Ok(_)) => return HostEvent::Did,
            Ok(Err(failure)) => tracing::warn!("can't follow the volumes: {failure}"),
            Err(_) => tracing::warn!("can't follow the volumes: the host does not answer"),
        }
        HostEvent::Lost
    }

    /// Renews the lease, and with it reports the host's metrics and the version of the description that it has applied.
    async fn renew(&mut self, now: Moment, confirmed: Version) -> Result<(), ControlError> {
        let (view, reports, generation) = (&self.view, &mut self.reports, self.generation);
        let (counters, coordinates_recovery) = (view.counters(), view.coordinates_recovery());
        // The log needs the folder's lock, which another process may hold for long; the renewal does not wait for it.
        let is_told = reports.telling.as_ref().is_none_or(JoinHandle::is_finished);
        let diff = reports.corruption.as_mut().filter(|_| is_told);
        let diff = diff.map(|corruption| {
            let repaired = counters.get("corruption_repaired").unwrap_or(0);
            corruption.take(view.corrupt(), repaired, coordinates_recovery.as_ref(), Instant::now())
        });
        let ServiceReport { metadata_server, counters: more } =
            reports.service.as_ref().map(|report| report()).unwrap_or_default();
        let more = more.into_map();
        let of_server = metadata_server.as_ref().zip(more.get(SHORT_COUNTER));
        let of_server = of_server.map(|(server, count)| (Full::FileSystem(FileSystemId(server.file_system)), *count));
        let refused = view.refused_for_space().into_iter().map(|(short, count)| (Full::Of(short), count));
        let short = match is_told {
            true => reports.space.take(refused.chain(of_server), Instant::now()),
            false => Vec::new(),
        };
        let report = LeaseReport {
            counters: counters.into_map().into_iter().chain(more).collect(),
            revision: confirmed.0,
            coordinates_recovery,
            waiting: view.waiting(),
            metadata_server,
            exports: view.exports(),
            spaces: view.spaces().lock().expect("nobody panics with it").iter().cloned().collect(),
            mount: reports.mount.clone(),
            ..LeaseReport::default()
        };
        let renewal = self.control.leases().renew(generation, now, report).await;
        let diff = diff.filter(|diff| !diff.is_empty());
        if diff.is_some() || !short.is_empty() {
            let control = self.control.clone();
            let record = async move {
                space_events::tell(&control, short).await?;
                match diff {
                    Some(diff) => diff.tell(&control).await,
                    None => Ok(()),
                }
            };
            reports.telling = Some(tokio::spawn(async move {
                if let Err(error) = record.await {
                    tracing::warn!("can't record events of host {generation} in the log: {error}");
                }
            }));
        }
        renewal
    }
}

/// What a host hears of the renewal of its lease.
pub fn renewal_input(renewal: &Result<(), ControlError>) -> RenewerInput {
    match renewal {
        Ok(()) => RenewerInput::Renewed,
        Err(ControlError::LeaseLost { .. }) => RenewerInput::Refused,
        Err(ControlError::Unrenewed { .. }) => RenewerInput::Unwritable,
        Err(_) => RenewerInput::Unknown,
    }
}
