//! The way for front ends to a host that runs in a task of its own, and to any other machine that takes requests.

use braid_machine::{HostError, HostOutcome, HostRequest, OpId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the driver at most; more wait in their callers.
const CALLS_MAX: usize = 1024;

/// Asks a host, or another machine, for something. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct HostClient {
    calls: mpsc::Sender<Call>,
    abandoned: mpsc::UnboundedSender<Arc<AtomicBool>>,
}

/// What one client of a front end asks. All of it can be abandoned at once, from any thread.
#[derive(Clone, Debug)]
pub struct ClientSession {
    client: HostClient,
    abandoned: Arc<AtomicBool>,
}

/// A request, where its outcome goes, and for whom it is.
#[derive(Debug)]
pub(crate) struct Call {
    pub request: HostRequest,
    pub answer: oneshot::Sender<HostOutcome>,
    /// Of a session, whether that is abandoned.
    pub session: Option<Arc<AtomicBool>>,
}

/// The driver's ends.
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

    /// Waits for a request to end. Dropped before, the request still runs, and its outcome is lost.
    pub async fn call(&self, request: HostRequest) -> HostOutcome {
        self.call_for(request, None).await
    }

    /// A session of its own for a client.
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
    /// Waits for a request to end. Dropped before, the request still runs, and its outcome is lost.
    pub async fn call(&self, request: HostRequest) -> HostOutcome {
        self.client.call_for(request, Some(self.abandoned.clone())).await
    }

    /// The client is gone: what the machine has not begun is not begun, and what it has, it is told to abandon. It hears of that before
    /// it hears of any request that anybody makes after this.
    pub fn abandon(&self) {
        if !self.abandoned.swap(true, Ordering::SeqCst) {
            // A machine that has stopped does nothing more.
            let _ = self.client.abandoned.send(self.abandoned.clone());
        }
    }
}

impl Calls {
    /// The next request. What was abandoned before it was made is with `abandoned` then.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, abandoned: &mut Vec<Arc<AtomicBool>>) -> Poll<Option<Call>> {
        let call = self.calls.poll_recv(cx);
        // Looked at behind the request: whoever makes one has abandoned others before.
        while let Poll::Ready(Some(session)) = self.abandoned.poll_recv(cx) {
            abandoned.push(session);
        }
        call
    }
}

/// Requests that the machine has and has not answered.
#[derive(Default)]
pub(crate) struct Pending {
    answers: HashMap<OpId, Waiting>,
    last: u64,
}

struct Waiting {
    /// None if nobody waits.
    answer: Option<oneshot::Sender<HostOutcome>>,
    session: Option<Arc<AtomicBool>>,
}

impl Pending {
    /// Names a request.
    pub fn add(&mut self, answer: Option<oneshot::Sender<HostOutcome>>, session: Option<Arc<AtomicBool>>) -> OpId {
        self.last += 1;
        let op = OpId(self.last);
        self.answers.insert(op, Waiting { answer, session });
        op
    }

    /// The requests of these sessions.
    pub fn of(&self, sessions: &[Arc<AtomicBool>]) -> Vec<OpId> {
        let is_of = |waiting: &Waiting| {
            waiting.session.as_ref().is_some_and(|own| sessions.iter().any(|session| Arc::ptr_eq(own, session)))
        };
        let mut ops: Vec<_> = self.answers.iter().filter(|(_, waiting)| is_of(waiting)).map(|(op, _)| *op).collect();
        ops.sort_unstable();
        ops
    }

    /// Hands an outcome to who awaits it, if anybody still does.
    pub fn answer(&mut self, op: OpId, outcome: HostOutcome) {
        let waiting = self.answers.remove(&op).expect("a machine answers what it was asked, once");
        if let Some(answer) = waiting.answer {
            let _ = answer.send(outcome);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
