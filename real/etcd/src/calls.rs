//! The calls of one registrar, each in a task of its own. Every call is answered, in any order, at the latest after its time.

use crate::{Registry, RegistryError, Swapped};
use braid_leadership::{Answer, CallId};
use braid_registrar::{Found, Input, Outgoing};
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::debug;

#[derive(Clone, Debug)]
pub struct Calls {
    registry: Arc<Registry>,
    answers: mpsc::UnboundedSender<Input>,
}

impl Calls {
    /// The answers arrive at the receiver. A registrar has few calls under way, so the channel needs no bound.
    pub fn new(registry: Arc<Registry>) -> (Calls, mpsc::UnboundedReceiver<Input>) {
        let (answers, received) = mpsc::unbounded_channel();
        (Calls { registry, answers }, received)
    }

    /// Makes a call. What is to be said to another candidate, or to a process, is returned.
    pub fn make(&self, call: Outgoing) -> Option<Outgoing> {
        let registry = self.registry.clone();
        match call {
            Outgoing::Read { call } => self.answer(call, async move { registry.head().await.map(Answer::Head) }),
            Outgoing::Swap { call, expected, head, changes } => self.answer(call, async move {
                Ok(match registry.swap(&expected, &head, &changes).await? {
                    Swapped::Done => Answer::Swapped,
                    Swapped::Differs(Some(found)) => Answer::Differs(found),
                    // The next read shows that the key is gone.
                    Swapped::Differs(None) => Answer::Failed,
                })
            }),
            Outgoing::ReadAll { read } => self.spawn(async move {
                let (head, keys) = registry.read_all().await.unwrap_or_else(|error| {
                    debug!("{error}");
                    Default::default()
                });
                Input::Found { read, found: head.map(|head| Found { head, keys }) }
            }),
            other @ (Outgoing::Send { .. } | Outgoing::Reply { .. }) => return Some(other),
        }
        None
    }

    fn answer(&self, call: CallId, called: impl Future<Output = Result<Answer, RegistryError>> + Send + 'static) {
        self.spawn(async move {
            let answer = called.await.unwrap_or_else(|error| {
                debug!("{error}");
                Answer::Failed
            });
            Input::Answer { call, answer }
        });
    }

    fn spawn(&self, called: impl Future<Output = Input> + Send + 'static) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            // Without a receiver, the registrar has ended.
            let _ = answers.send(called.await);
        });
    }
}
