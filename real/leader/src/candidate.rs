//! A candidate: a process that leads, or stands by. It runs its registrar as the node that devices and hosts know as the monitor, makes the
//! registrar's calls to etcd, and passes on what candidates and processes say.

use crate::machine::{CandidateMachine, Told};
use crate::server;
use braid_base::{ArrayId, Level, NodeId, Now, Rng};
use braid_etcd::{Calls, Registry, RegistryError};
use braid_leader_client::http::{self, CANDIDATES};
use braid_leadership::{CandidateId, Mark, Message};
use braid_membership::{Monitor, MonitorConfig};
use braid_registrar::{Input, Outcome, Outgoing, Refused, Registrar, Request, RequestId};
use braid_shell::{Address, ClientOf, Counters, Listener, Node, now, run_service};
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

/// How long a process waits for the answer to its request.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long a message to another candidate may take. Later ones are worth nothing.
const MESSAGE_WAIT: Duration = Duration::from_secs(1);
/// How often the mark of one term is written.
const MARK_PAUSE: Duration = Duration::from_secs(10);

/// Where a candidate is, and whom it knows.
#[derive(Clone, Debug)]
pub struct Place {
    pub id: CandidateId,
    /// Where devices and hosts connect.
    pub wire: Address,
    /// Where processes and other candidates connect, over HTTP.
    pub http: SocketAddr,
    /// The members of etcd, such as `http://10.77.0.1:2379`.
    pub etcd: Vec<String>,
    /// The file in which it keeps what it has seen of the history.
    pub mark: PathBuf,
    /// It may listen beyond loopback, though nothing is encrypted and no caller is identified.
    pub insecure_network: bool,
}

/// Why a candidate can't run, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum CandidateError {
    #[error(
        "{address} can be reached from other machines, where nothing is encrypted and no caller is identified: allow that with --insecure-network, in a network that you trust"
    )]
    Exposed { address: String },
    #[error("can't listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What a candidate is at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateState {
    /// The term in which it leads; none if it stands by.
    pub leads: Option<u64>,
    /// The last term that it has seen, and the last write.
    pub term: Option<u64>,
    pub seq: Option<u64>,
    /// It has stopped for good, because the registry has gone back to an earlier state.
    pub has_stopped: bool,
    /// Why it could not use the registry when it led last.
    pub unusable: Option<String>,
    /// The level that its release knows.
    pub knows: Level,
}

impl CandidateState {
    pub(crate) fn of(registrar: &Registrar) -> CandidateState {
        CandidateState {
            leads: registrar.leads().map(|(head, _)| head.term),
            term: registrar.seen().map(|mark| mark.term),
            seq: registrar.seen().map(|mark| mark.seq),
            has_stopped: registrar.deadline().is_none(),
            unusable: registrar.unusable().map(ToString::to_string),
            knows: Level::KNOWN,
        }
    }
}

/// Makes the report of the monitor that leads, as JSON, after each of its steps, with the revision of the description whose volumes it
/// knows; none if the one before is good enough.
pub type ReportMaker = Box<dyn FnMut(Now, &Monitor, u64) -> Option<String> + Send>;

/// What a candidate shows of itself.
pub struct Shown {
    pub state: watch::Sender<CandidateState>,
    pub report: ReportMaker,
    pub known: watch::Receiver<Known>,
}

/// What it knows of the array's machines. It may change while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// `HOST:PORT` of the HTTP interface of each candidate.
    pub candidates: BTreeMap<CandidateId, String>,
    /// The file by which machines know the array.
    pub cluster: String,
}

/// A candidate that listens, and does not run yet.
pub struct Candidate {
    place: Place,
    config: MonitorConfig,
    registry: Arc<Registry>,
    listener: Listener,
    http: TcpListener,
    mark: Option<Mark>,
}

/// Asks the registrar that runs in this process. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct Handle {
    client: ClientOf<CandidateMachine>,
    waiting: Arc<Mutex<BTreeMap<RequestId, oneshot::Sender<Outcome>>>>,
    last: Arc<AtomicU64>,
    state: watch::Receiver<CandidateState>,
    report: watch::Receiver<Option<String>>,
    known: watch::Receiver<Known>,
}

impl Handle {
    /// The last report of the monitor, if it leads.
    pub fn report(&self) -> Option<String> {
        self.report.borrow().clone()
    }

    pub fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    pub fn state(&self) -> CandidateState {
        self.state.borrow().clone()
    }

    /// Another candidate has said something.
    pub async fn hear(&self, from: CandidateId, message: Message) {
        self.tell(Input::Message { from, message }).await;
    }

    /// Without an answer in time, its outcome is unknown.
    pub async fn ask(&self, request: Request) -> Outcome {
        let id = RequestId(self.last.fetch_add(1, Ordering::Relaxed));
        let (answer, outcome) = oneshot::channel();
        self.waiting().insert(id, answer);
        self.tell(Input::Request { id, request }).await;
        let outcome = timeout(ANSWER_WAIT, outcome).await;
        self.waiting().remove(&id);
        outcome.ok().and_then(Result::ok).unwrap_or(Err(Refused::Unknown))
    }

    async fn tell(&self, input: Input) {
        // If it has stopped, those that wait are told with the end of the candidate.
        let _ = self.client.ask(Told(input)).await;
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<RequestId, oneshot::Sender<Outcome>>> {
        self.waiting.lock().expect("no holder panics")
    }
}

impl Candidate {
    /// Binds the listeners, and reads the mark.
    pub async fn open(place: Place, config: MonitorConfig) -> Result<Candidate, CandidateError> {
        let exposed = match &place.wire {
            Address::Tcp { host, .. } if !is_loopback(host) => Some(place.wire.to_string()),
            _ if !place.http.ip().is_loopback() => Some(place.http.to_string()),
            _ => None,
        };
        if let Some(address) = exposed.filter(|_| !place.insecure_network) {
            return Err(CandidateError::Exposed { address });
        }
        let registry = Arc::new(Registry::new(&place.etcd, config.array)?);
        let failed = |address: String| move |source| CandidateError::Listen { address, source };
        let listener = Listener::bind(&place.wire).await.map_err(failed(place.wire.to_string()))?;
        let http = TcpListener::bind(place.http).await.map_err(failed(place.http.to_string()))?;
        let mark = read_mark(&place.mark, config.array);
        Ok(Candidate { place, config, registry, listener, http, mark })
    }

    /// Where devices and hosts connect.
    pub fn wire(&self) -> Address {
        self.listener.address().clone()
    }

    /// Where processes and candidates connect.
    pub fn http(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }

    /// Runs until `stop` completes; then its term ends in order, if it leads.
    pub async fn run(
        self,
        counters: Arc<Counters>,
        Shown { state: look, report, known }: Shown,
        stop: impl Future<Output = ()>,
    ) -> Result<(), CandidateError> {
        let Candidate { place, config, registry, listener, http, mark } = self;
        let us = Node { array: config.array, id: NodeId::Monitor };
        let mut random = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let registrar = Registrar::new(now().time, place.id, config, Rng::new(u64::from_ne_bytes(random)), mark);
        let (outgoing, mut wanted) = mpsc::unbounded_channel();
        let (seen, marks) = watch::channel(mark);
        let state = look.subscribe();
        let (reported, last_report) = watch::channel(None);
        let machine = CandidateMachine { registrar, outgoing, state: look, seen, report, reported };
        // All others connect to it.
        let (_, none) = watch::channel(Default::default());
        let (end, ended) = oneshot::channel::<()>();
        let until = async { drop(ended.await) };
        let (client, running) = run_service(machine, us, (us.id, listener), none, counters, until);
        let (waiting, last) = (Arc::default(), Arc::default());
        let handle = Handle { client, waiting, last, state: state.clone(), report: last_report, known };
        let (calls, mut answers) = Calls::new(registry);
        let pumping = async {
            loop {
                tokio::select! {
                    Some(call) = wanted.recv() => match calls.make(call) {
                        Some(Outgoing::Send { to, message }) => send(&place, handle.known().candidates.remove(&to), message),
                        Some(Outgoing::Reply { id, outcome }) => {
                            // Its process may have gone.
                            handle.waiting().remove(&id).map(|asker| asker.send(outcome));
                        }
                        other => debug_assert!(other.is_none(), "it is made: {other:?}"),
                    },
                    Some(answer) = answers.recv() => handle.tell(answer).await,
                }
            }
        };
        let ending = async {
            stop.await;
            handle.tell(Input::Resign).await;
            let mut state = state;
            let _ = timeout(2 * MESSAGE_WAIT, state.wait_for(|state| state.leads.is_none())).await;
            let _ = end.send(());
            std::future::pending().await
        };
        let ended = tokio::select! {
            ended = running => ended.map_err(CandidateError::from),
            never = server::serve(http, handle.clone()) => match never {},
            never = keep_mark(&place, us.array, marks.clone()) => match never {},
            () = pumping => unreachable!("it has no end"),
            never = ending => never,
        };
        handle.waiting().clear();
        let last = *marks.borrow();
        if let Some(mark) = last {
            write_mark(&place, us.array, mark).await;
        }
        ended
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Says something to another candidate, if its address is known. What is lost is said again.
fn send(place: &Place, to: Option<String>, message: Message) {
    let Some(address) = to else { return };
    let path = format!("{CANDIDATES}{}", place.id.0);
    let body = serde_json::to_vec(&message).expect("numbers");
    tokio::spawn(async move {
        if let Err(error) = http::call(&address, (Method::POST, &path), body, MESSAGE_WAIT).await {
            tracing::debug!("the candidate at {address}: {error}");
        }
    });
}

/// What the file of a mark has.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkFile {
    schema: u32,
    array: ArrayId,
    mark: Mark,
}

/// The mark that is kept. One that can't be read, or is of another array, counts as none: that only loses a check.
fn read_mark(path: &Path, array: ArrayId) -> Option<Mark> {
    let why = match std::fs::read(path).map(|bytes| serde_json::from_slice::<MarkFile>(&bytes)) {
        Ok(Ok(file)) if (file.schema, file.array) == (1, array) => return Some(file.mark),
        Ok(Ok(_)) => "it is of another array, or of another release".to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    tracing::warn!("{}: what was seen of the history is lost: {why}", path.display());
    None
}

/// Writes the mark when a term begins, and then now and then.
async fn keep_mark(place: &Place, array: ArrayId, mut marks: watch::Receiver<Option<Mark>>) -> Infallible {
    let mut term = None;
    while marks.changed().await.is_ok() {
        let Some(mark) = *marks.borrow_and_update() else { continue };
        if term.replace(mark.term) == Some(mark.term) {
            let begins = |seen: &Option<Mark>| seen.is_some_and(|seen| seen.term != mark.term);
            let _ = timeout(MARK_PAUSE, marks.wait_for(begins)).await;
        }
        let last = *marks.borrow_and_update();
        if let Some(mark) = last {
            write_mark(place, array, mark).await;
        }
    }
    std::future::pending().await
}

async fn write_mark(place: &Place, array: ArrayId, mark: Mark) {
    let new = PathBuf::from(format!("{}.new", place.mark.display()));
    let bytes = serde_json::to_vec(&MarkFile { schema: 1, array, mark }).expect("numbers");
    let written = async {
        let mut file = tokio::fs::File::create(&new).await?;
        file.write_all(&bytes).await?;
        file.sync_all().await?;
        tokio::fs::rename(&new, &place.mark).await
    };
    if let Err(error) = written.await {
        tracing::warn!("{}: can't write what was seen of the history: {error}", place.mark.display());
    }
}
