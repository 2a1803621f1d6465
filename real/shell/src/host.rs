//! Handles for requests to a host, or to any other machine that takes requests, which runs in a task of its own.

use braid_machine::{HostError, HostOutcome, HostRequest, OpId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// The most requests that wait for the driver; further callers wait.
const CALLS_MAX: usize = 1024;

/// A handle for requests to a machine. It is cheap to clone, and usable from any thread.
#[derive(Clone, Debug)]
pub struct HostClient {
    calls: mpsc::Sender<Call>,
    abandoned: mpsc::UnboundedSender<Arc<AtomicBool>>,
}

/// The requests of one client of a front end. All of them can be abandoned at once, from any thread.
#[derive(Clone, Debug)]
pub struct ClientSession {
    client: HostClient,
    abandoned: Arc<AtomicBool>,
}

/// A request, the receiver of its outcome, and its session.
#[derive(Debug)]
pub(crate) struct Call {
    pub request: HostRequest,
    pub answer: oneshot::Sender<HostOutcome>,
    /// For a request of a session: true once the session is abandoned.
    pub session: Option<Arc<AtomicBool>>,
}

/// The driver's ends of the channels.
pub(crate) struct Calls {
    calls: mpsc::Receiver<Call>,
    abandoned: mpsc::UnboundedReceiver<Arc<AtomicBool>>,
}

impl HostClient {
    pub(crate) fn new() -> (HostClient, Calls) {
        let (calls, receiver) = mpsc::channel(CALLS_MAX);
        let (abandon, abandoned) = mpsc::unbounded_channel();
        (HostClient { calls, abandoned: abandon }, Calls { calls: receiver, abandoned })
    }

    /// Waits for a request to complete. If the future is dropped earlier, the request still runs, and its outcome is discarded.
    pub async fn call(&self, request: HostRequest) -> HostOutcome {
        self.call_for(request, None).await
    }

    /// A new session for a client.
    pub fn session(&self) -> ClientSession {
        ClientSession { client: self.clone(), abandoned: Arc::default() }
    }

    async fn call_for(&self, request: HostRequest, session: Option<Arc<AtomicBool>>) -> HostOutcome {
        let (answer, outcome) = oneshot::channel();
        if self.calls.send(Call { request, answer, session }).await.is_err() {
            return Err(HostError::Stopped);
        }
        outcome.await.unwrap_or(Err(HostError::Stopped))
    }
}

impl ClientSession {
    /// Waits for a request to complete. If the future is dropped earlier, the request still runs, and its outcome is discarded.
    pub async fn call(&self, request: HostRequest) -> HostOutcome {
        self.client.call_for(request, Some(self.abandoned.clone())).await
    }

    /// Abandons all requests of the client, which has gone: the machine starts none that it has not started, and is told to abandon the
    /// others. It is told so before it gets any request that is made after this call, by any client.
    pub fn abandon(&self) {
        if !self.abandoned.swap(true, Ordering::SeqCst) {
            // A machine that has stopped needs no notice.
            let _ = self.client.abandoned.send(self.abandoned.clone());
        }
    }
}

impl Calls {
    /// The next request. Sessions that were abandoned before the request was made have been added to `abandoned` by then.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, abandoned: &mut Vec<Arc<AtomicBool>>) -> Poll<Option<Call>> {
        let call = self.calls.poll_recv(cx);
        // Checked after the request was taken, because a caller abandons a session before it makes its next request.
        while let Poll::Ready(Some(session)) = self.abandoned.poll_recv(cx) {
            abandoned.push(session);
        }
        call
    }
}

/// Requests that the machine has not answered yet.
#[derive(Default)]
pub(crate) struct Pending {
    answers: HashMap<OpId, Waiting>,
    last: u64,
}

struct Waiting {
    /// None if no caller waits.
    answer: Option<oneshot::Sender<HostOutcome>>,
    session: Option<Arc<AtomicBool>>,
}

impl Pending {
    /// Gives a request its number.
    pub fn add(&mut self, answer: Option<oneshot::Sender<HostOutcome>>, session: Option<Arc<AtomicBool>>) -> OpId {
        self.last += 1;
        let op = OpId(self.last);
        self.answers.insert(op, Waiting { answer, session });
        op
    }

    /// The numbers of these sessions' requests.
    pub fn of(&self, sessions: &[Arc<AtomicBool>]) -> Vec<OpId> {
        let is_of = |waiting: &Waiting| {
            waiting.session.as_ref().is_some_and(|own| sessions.iter().any(|session| Arc::ptr_eq(own, session)))
        };
        let mut ops: Vec<_> = self.answers.iter().filter(|(_, waiting)| is_of(waiting)).map(|(op, _)| *op).collect();
        ops.sort_unstable();
        ops
    }

    /// Passes an outcome to the caller, if the caller still waits.
    pub fn answer(&mut self, op: OpId, outcome: HostOutcome) {
        let waiting = self.answers.remove(&op).expect("a machine answers each request once");
        if let Some(answer) = waiting.answer {
            let _ = answer.send(outcome);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
