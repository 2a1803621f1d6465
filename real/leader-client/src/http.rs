//! One call of the HTTP interface, and the forms of what is said there. Bodies are JSON.
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `POST /v1/requests` | [`Request`](braid_registrar::Request) | 200 with [`Reply`](braid_registrar::Reply); 409 from a leader that refuses it, 421 from one that does not lead, 503 and 504 (its outcome is not known), all with [`Refusal`] |
//! | `POST /v1/candidates/N` | what candidate N says to this one | 204 |
//! | `GET /v1/state` | | 200 with what the candidate is at present |
//! | `GET /v1/monitor` | | 200 with the monitor's report from the one that leads, 421 from others |
//! | `GET /v1/cluster` | | 200 with the file by which machines know the array, for those that join |

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
pub use hyper::Method;
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A body has so many bytes at most: the description of 1,024 devices and 1,000 volumes has 0.6 MB.
pub const BODY_BYTES_MAX: usize = 4 << 20;

pub const REQUESTS: &str = "/v1/requests";
pub const CANDIDATES: &str = "/v1/candidates/";
pub const STATE: &str = "/v1/state";
pub const MONITOR: &str = "/v1/monitor";
pub const CLUSTER: &str = "/v1/cluster";

/// Why a request was refused, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: String,
    pub message: String,
}

/// Why a call has no answer. It may have had its effect.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing was sent.
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("no answer within {0:?}")]
    Silent(Duration),
}

/// Makes a call to the address `HOST:PORT`, on a connection of its own.
pub async fn call(
    address: &str,
    (method, path): (Method, &str),
    body: Vec<u8>,
    within: Duration,
) -> Result<(StatusCode, Bytes), CallError> {
    let called = async {
        let stream = TcpStream::connect(address).await.map_err(CallError::Connect)?;
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder().method(method).uri(path).header(http::header::HOST, address);
        let request = request.body(Full::new(Bytes::from(body))).expect("a path and an address");
        let answered = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            Ok((status, body_of(answer.into_body(), BODY_BYTES_MAX).await?))
        };
        let mut answered = pin!(answered);
        tokio::select! {
            biased;
            answered = &mut answered => answered,
            ended = connection => match ended {
                Err(error) => Err(error.into()),
                // All of the answer is here.
                Ok(()) => answered.await,
            },
        }
    };
    timeout(within, called).await.unwrap_or(Err(CallError::Silent(within)))
}

/// All of a body of at most so many bytes.
pub async fn body_of(
    body: impl Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    most: usize,
) -> Result<Bytes, CallError> {
    Ok(Limited::new(body, most).collect().await.map_err(CallError::Body)?.to_bytes())
}
