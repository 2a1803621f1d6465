//! Finds the leader among the candidates, and asks it. A request that has no definite answer is asked again, at another candidate, until its
//! time is over, if it can be repeated.

use crate::http::{self, CallError, MONITOR, REQUESTS, Refusal};
use braid_registrar::{Reply, Request};
use hyper::{Method, StatusCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long one candidate may take: a leader that can't reach the registry says nothing.
const CALL_WAIT: Duration = Duration::from_secs(2);
/// The pause when no candidate leads.
const PAUSE: Duration = Duration::from_millis(50);

/// Asks the leader of an array. Clones share what they know of it.
#[derive(Clone, Debug)]
pub struct LeaderClient {
    /// `HOST:PORT` of each candidate's HTTP interface.
    candidates: Arc<RwLock<Vec<String>>>,
    /// The one that answered last.
    last: Arc<AtomicUsize>,
}

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The leader has refused it: nothing has changed.
    #[error("{message}")]
    Refused {
        /// What it is, for programs: `lease-lost`, `busy`, `invalid`, …
        code: String,
        message: String,
    },
    /// It may have been carried out, or be carried out later, and was not repeated: look what is there now.
    #[error("the outcome is not known: {why}")]
    Unknown { why: String },
    /// Nothing was changed, but by a request that can be repeated.
    #[error("no leader has answered within {within:?}: {why}")]
    NoLeader { within: Duration, why: String },
}

impl LeaderClient {
    /// `candidates`: `HOST:PORT` of the HTTP interface of each, at least one. Nothing is sent before the first request.
    pub fn new(candidates: impl IntoIterator<Item = String>) -> LeaderClient {
        LeaderClient { candidates: Arc::new(RwLock::new(candidates.into_iter().collect())), last: Arc::default() }
    }

    /// From now on, these are the candidates, also for requests that are under way.
    pub fn know(&self, candidates: Vec<String>) {
        *self.candidates.write().unwrap_or_else(PoisonError::into_inner) = candidates;
    }

    /// Asks until there is a definite answer, at most for the time `within`.
    pub async fn ask(&self, request: &Request, within: Duration) -> Result<Reply, AskError> {
        let body = match serde_json::to_vec(request) {
            Ok(body) => body,
            Err(error) => return Err(AskError::Refused { code: "invalid".into(), message: error.to_string() }),
        };
        let read = |reply: &[u8]| serde_json::from_slice(reply).map_err(|error| error.to_string());
        self.ask_for((Method::POST, REQUESTS), body, is_repeatable(request), within, read).await
    }

    /// The report of the leading monitor, as JSON.
    pub async fn monitor(&self, within: Duration) -> Result<String, AskError> {
        let read = |report: &[u8]| String::from_utf8(report.to_vec()).map_err(|error| error.to_string());
        self.ask_for((Method::GET, MONITOR), Vec::new(), true, within, read).await
    }

    /// Asks one candidate after the other.
    async fn ask_for<T>(
        &self,
        (method, path): (Method, &str),
        body: Vec<u8>,
        is_repeatable: bool,
        within: Duration,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, AskError> {
        let begun = Instant::now();
        let mut why = "no candidate is known".to_string();
        while let Some(left) = within.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            let candidates = self.candidates.read().unwrap_or_else(PoisonError::into_inner).clone();
            let count = candidates.len();
            // The list may have become shorter.
            let last = self.last.load(Ordering::Relaxed);
            let index = last % count.max(1);
            let Some(address) = candidates.get(index) else { break };
            let answered = http::call(address, (method.clone(), path), body.clone(), left.min(CALL_WAIT)).await;
            let may_be_made = match answered {
                Ok((StatusCode::OK, reply)) => match read(&reply) {
                    Ok(reply) => return Ok(reply),
                    Err(error) => {
                        why = format!("{address} answers what this release does not understand: {error}");
                        true
                    }
                },
                Ok((status, refusal)) => {
                    let Refusal { code, message } = serde_json::from_slice(&refusal)
                        .unwrap_or_else(|_| Refusal { code: "strange".into(), message: status.to_string() });
                    // Only a leader says this.
                    if status == StatusCode::CONFLICT {
                        return Err(AskError::Refused { code, message });
                    }
                    why = format!("{address}: {message}");
                    status == StatusCode::GATEWAY_TIMEOUT
                }
                Err(error) => {
                    // The rest of the time may be too short for an answer.
                    if left >= CALL_WAIT || !matches!(error, CallError::Silent(_)) {
                        why = format!("{address}: {error}");
                    }
                    !matches!(error, CallError::Connect(_))
                }
            };
            if may_be_made && !is_repeatable {
                return Err(AskError::Unknown { why });
            }
            // Another request may have found the leader meanwhile.
            let _ = self.last.compare_exchange(last, (index + 1) % count, Ordering::Relaxed, Ordering::Relaxed);
            if index + 1 == count {
                sleep(PAUSE).await;
            }
        }
        Err(AskError::NoLeader { within, why })
    }
}

/// True if a request leads to the same when it is made twice. A replacement that was made is refused the second time, as one that came too
/// late is; and silence is judged for the time at which a request arrives.
fn is_repeatable(request: &Request) -> bool {
    use Request::{Expire, ExpireOne, Leave, Replace};
    !matches!(request, Replace { .. } | Expire { .. } | ExpireOne { .. } | Leave { .. })
}
