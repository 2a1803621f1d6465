//! Handles for requests to a host, or to any other machine that takes requests, which runs in a task of its own.

use braid_machine::{HostError, HostOutcome, Machine, MountRequest, OpId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// The most requests that wait for the driver; further callers wait.
const CALLS_MAX: usize = 1024;

/// A handle for requests to a machine. It is cheap to clone, and usable from any thread.
#[derive(Debug)]
pub struct Client<R, O> {
    calls: mpsc::Sender<Call<R, O>>,
    abandoned: mpsc::UnboundedSender<Arc<AtomicBool>>,
}

/// A handle for requests to this machine.
pub type ClientOf<M> = Client<<M as Machine>::Request, <M as Machine>::Outcome>;

/// A handle for requests to a host, which may have a file system mounted.
pub type HostClient = Client<MountRequest, HostOutcome>;

/// The requests of one client of a front end. All of them can be abandoned at once, from any thread.
#[derive(Clone, Debug)]
pub struct ClientSession {
    client: HostClient,
    abandoned: Arc<AtomicBool>,
}

/// Why a request has no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The machine has stopped.
    Stopped,
    /// The session was abandoned before the machine got the request.
    Abandoned,
}

/// A request, the receiver of its outcome, and its session.
#[derive(Debug)]
pub(crate) struct Call<R, O> {
    pub request: R,
    pub answer: oneshot::Sender<Result<O, Unanswered>>,
    /// For a request of a session: true once the session is abandoned.
    pub session: Option<Arc<AtomicBool>>,
}

/// The driver's ends of the channels.
pub(crate) struct Calls<R, O> {
    calls: mpsc::Receiver<Call<R, O>>,
    abandoned: mpsc::UnboundedReceiver<Arc<AtomicBool>>,
}

impl<R, O> Clone for Client<R, O> {
    fn clone(&self) -> Self {
        Client { calls: self.calls.clone(), abandoned: self.abandoned.clone() }
    }
}

impl<R, O> Client<R, O> {
    pub(crate) fn new() -> (Client<R, O>, Calls<R, O>) {
        let (calls, receiver) = mpsc::channel(CALLS_MAX);
        let (abandon, abandoned) = mpsc::unbounded_channel();
        (Client { calls, abandoned: abandon }, Calls { calls: receiver, abandoned })
    }

    /// Waits for a request to complete. If the future is dropped earlier, the request still runs, and its outcome is discarded.
    pub async fn ask(&self, request: R) -> Result<O, Unanswered> {
        self.ask_for(request, None).await
    }

    async fn ask_for(&self, request: R, session: Option<Arc<AtomicBool>>) -> Result<O, Unanswered> {
        let (answer, outcome) = oneshot::channel();
        if self.calls.send(Call { request, answer, session }).await.is_err() {
            return Err(Unanswered::Stopped);
        }
        outcome.await.unwrap_or(Err(Unanswered::Stopped))
    }
}

impl<R, T> Client<R, Result<T, HostError>> {
    /// As [`Client::ask`]; that the machine has stopped is an error like others.
    pub async fn call(&self, request: impl Into<R>) -> Result<T, HostError> {
        flat(self.ask(request.into()).await)
    }
}

impl HostClient {
    /// A new session for a client.
    pub fn session(&self) -> ClientSession {
        ClientSession { client: self.clone(), abandoned: Arc::default() }
    }
}

impl ClientSession {
    /// Waits for a request to complete. If the future is dropped earlier, the request still runs, and its outcome is discarded.
    pub async fn call(&self, request: impl Into<MountRequest>) -> HostOutcome {
        flat(self.client.ask_for(request.into(), Some(self.abandoned.clone())).await)
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

fn flat<T>(answer: Result<Result<T, HostError>, Unanswered>) -> Result<T, HostError> {
    answer.unwrap_or_else(|why| {
        Err(match why {
            Unanswered::Stopped => HostError::Stopped,
            Unanswered::Abandoned => HostError::Abandoned,
        })
    })
}

impl<R, O> Calls<R, O> {
    /// The next request. Sessions that were abandoned before the request was made have been added to `abandoned` by then.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        abandoned: &mut Vec<Arc<AtomicBool>>,
    ) -> Poll<Option<Call<R, O>>> {
        let call = self.calls.poll_recv(cx);
        // Checked after the request was taken, because a caller abandons a session before it makes its next request.
        while let Poll::Ready(Some(session)) = self.abandoned.poll_recv(cx) {
            abandoned.push(session);
        }
        call
    }
}

/// Requests that the machine has not answered yet.
pub(crate) struct Pending<O> {
    answers: HashMap<OpId, Waiting<O>>,
    last: u64,
}

struct Waiting<O> {
    /// None if no caller waits.
    answer: Option<oneshot::Sender<Result<O, Unanswered>>>,
    session: Option<Arc<AtomicBool>>,
}

impl<O> Pending<O> {
    pub fn new() -> Pending<O> {
        Pending { answers: HashMap::new(), last: 0 }
    }

    /// Gives a request its number.
    pub fn add(
        &mut self,
        answer: Option<oneshot::Sender<Result<O, Unanswered>>>,
        session: Option<Arc<AtomicBool>>,
    ) -> OpId {
        self.last += 1;
        let op = OpId::front_end(self.last);
        self.answers.insert(op, Waiting { answer, session });
        op
    }

    /// The numbers of these sessions' requests.
    pub fn of(&self, sessions: &[Arc<AtomicBool>]) -> Vec<OpId> {
        let is_of = |waiting: &Waiting<O>| {
            waiting.session.as_ref().is_some_and(|own| sessions.iter().any(|session| Arc::ptr_eq(own, session)))
        };
        let mut ops: Vec<_> = self.answers.iter().filter(|(_, waiting)| is_of(waiting)).map(|(op, _)| *op).collect();
        ops.sort_unstable();
        ops
    }

    /// Passes an outcome to the caller, if the caller still waits.
    pub fn answer(&mut self, op: OpId, outcome: O) {
        let waiting = self.answers.remove(&op).expect("a machine answers each request once");
        if let Some(answer) = waiting.answer {
            let _ = answer.send(Ok(outcome));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
