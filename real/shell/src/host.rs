//! The way for front ends to a host that runs in a task of its own, and to any other machine that takes requests.

use braid_machine::{HostError, HostOutcome, HostRequest, OpId};
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the driver at most; more wait in their callers.
const CALLS_MAX: usize = 1024;

/// Asks a host, or another machine, for something. Cheap to clone; usable from any thread.
#[derive(Clone, Debug)]
pub struct HostClient {
    calls: mpsc::Sender<Call>,
}

/// A request, and where its outcome goes.
pub(crate) type Call = (HostRequest, oneshot::Sender<HostOutcome>);

impl HostClient {
    pub(crate) fn new() -> (HostClient, mpsc::Receiver<Call>) {
        let (calls, receiver) = mpsc::channel(CALLS_MAX);
        (HostClient { calls }, receiver)
    }

    /// Waits for a request to end. Dropped before, the request still runs, and its outcome is lost.
    pub async fn call(&self, request: HostRequest) -> HostOutcome {
        let (answer, outcome) = oneshot::channel();
        if self.calls.send((request, answer)).await.is_err() {
            return Err(HostError::Stopped);
        }
        outcome.await.unwrap_or(Err(HostError::Stopped))
    }
}

/// Requests that the machine has and has not answered.
#[derive(Default)]
pub(crate) struct Pending {
    answers: HashMap<OpId, oneshot::Sender<HostOutcome>>,
    last: u64,
}

impl Pending {
    /// Names a request.
    pub fn add(&mut self, answer: oneshot::Sender<HostOutcome>) -> OpId {
        self.last += 1;
        let op = OpId(self.last);
        self.answers.insert(op, answer);
        op
    }

    /// Hands an outcome to who awaits it, if anybody still does.
    pub fn answer(&mut self, op: OpId, outcome: HostOutcome) {
        let answer = self.answers.remove(&op).expect("a machine answers what it was asked, once");
        let _ = answer.send(outcome);
    }

    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
