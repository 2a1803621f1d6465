//! The calls of one registrar, each in a task of its own. Every call is answered, in any order, at the latest after its time.

use crate::registry::record_key;
use crate::{Change, Registry, RegistryError, Swapped};
use braid_leadership::{Answer, CallId, CandidateId, Message};
use braid_registrar::{CopyWrite, Found, Input, Outgoing};
use bytes::Bytes;
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

    /// Makes a call. What is to be said to another candidate is returned.
    pub fn make(&self, call: Outgoing) -> Option<(CandidateId, Message)> {
        let registry = self.registry.clone();
        match call {
            Outgoing::Read { call } => self.answer(call, async move { registry.head().await.map(Answer::Head) }),
            Outgoing::Swap { call, expected, head, write } => self.answer(call, async move {
                let changes: Vec<_> = write.into_iter().map(put).collect();
                Ok(match registry.swap(&expected, &head, &changes).await? {
                    Swapped::Done => Answer::Swapped,
                    Swapped::Differs(Some(found)) => Answer::Differs(found),
                    // The next read shows that the key is gone.
                    Swapped::Differs(None) => Answer::Failed,
                })
            }),
            Outgoing::ReadRecord { read } => self.spawn(async move {
                let found = registry.record().await.unwrap_or_else(|error| {
                    debug!("{error}");
                    None
                });
                Input::Record { read, found }
            }),
            Outgoing::Send { to, message } => return Some((to, message)),
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

fn put(CopyWrite { copy, bytes }: CopyWrite) -> Change {
    Change::Put { key: record_key(copy), value: bytes.into() }
}

impl Registry {
    /// `head`, and both copies of the record; none if there is no `head`.
    async fn record(&self) -> Result<Option<Found>, RegistryError> {
        let (head, mut keys) = self.read_all().await?;
        let mut copy = |copy| keys.remove(&record_key(copy)).map(Bytes::from);
        let copies = [copy(0), copy(1)];
        Ok(head.map(|head| Found { head, copies }))
    }
}
