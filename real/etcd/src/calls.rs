//! The calls of one candidate, each in a task of its own. Every call is answered, in any order, at the latest after its time.

use crate::{Change, Registry, RegistryError, Swapped};
use braid_leadership::{Answer, CallId, Head};
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::debug;

#[derive(Clone, Debug)]
pub struct Calls {
    registry: Arc<Registry>,
    answers: mpsc::UnboundedSender<(CallId, Answer)>,
}

impl Calls {
    /// The answers arrive at the receiver. A candidate has two calls under way each half second, so the channel needs no bound.
    pub fn new(registry: Arc<Registry>) -> (Calls, mpsc::UnboundedReceiver<(CallId, Answer)>) {
        let (answers, received) = mpsc::unbounded_channel();
        (Calls { registry, answers }, received)
    }

    /// Executes [`Effect::Read`](braid_leadership::Effect::Read).
    pub fn read(&self, call: CallId) {
        let registry = self.registry.clone();
        self.answer(call, async move { registry.head().await.map(Answer::Head) });
    }

    /// Executes [`Effect::Swap`](braid_leadership::Effect::Swap), with what its write contains.
    pub fn swap(&self, call: CallId, expected: Head, head: Head, changes: Arc<[Change]>) {
        let registry = self.registry.clone();
        self.answer(call, async move {
            Ok(match registry.swap(&expected, &head, &changes).await? {
                Swapped::Done => Answer::Swapped,
                Swapped::Differs(Some(found)) => Answer::Differs(found),
                // The next read shows that the key is gone.
                Swapped::Differs(None) => Answer::Failed,
            })
        });
    }

    fn answer(&self, call: CallId, called: impl Future<Output = Result<Answer, RegistryError>> + Send + 'static) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let answer = called.await.unwrap_or_else(|error| {
                debug!("{error}");
                Answer::Failed
            });
            // Without a receiver, the candidate has ended.
            let _ = answers.send((call, answer));
        });
    }
}
