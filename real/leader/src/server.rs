//! The HTTP interface of a candidate. Connections, bodies and the time of a request are bounded.

use crate::candidate::Handle;
use braid_leader_client::http::{BODY_BYTES_MAX, CANDIDATES, CLUSTER, MONITOR, REQUESTS, Refusal, STATE, body_of};
use braid_leadership::{CandidateId, Message};
use braid_registrar::{Refused, Request};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The most connections at a time. Others wait.
const CONNECTIONS_MAX: usize = 1024;
/// The most requests of processes at a time. Others are refused at once: there must be room for what candidates say, also while etcd is
/// away and nothing is answered.
const REQUESTS_MAX: usize = 768;
/// How many KiB the bodies of requests may have together. Beyond that, requests are refused.
const BODIES_KIB_MAX: usize = 64 << 10;
/// What a candidate says has so many bytes at most.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// How long a caller may take for the head of its request, and for the body.
const RECEIVE_WAIT: Duration = Duration::from_secs(5);
/// How long a connection may live.
const CONNECTION_MAX: Duration = Duration::from_secs(30);
/// The pause after a connection that could not be accepted, such as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Answer = Response<Full<Bytes>>;

/// Answers callers. Never returns.
pub(crate) async fn serve(listener: TcpListener, handle: Handle) -> Infallible {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let requests = Arc::new((Semaphore::new(REQUESTS_MAX), Semaphore::new(BODIES_KIB_MAX)));
    loop {
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        let (stream, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("can't accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (handle, requests) = (handle.clone(), requests.clone());
        tokio::spawn(async move {
            let answer = service_fn(|request| async { Ok::<_, Infallible>(answer(&handle, &requests, request).await) });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(RECEIVE_WAIT);
            let served = builder.serve_connection(TokioIo::new(stream), answer);
            if let Ok(Err(error)) = timeout(CONNECTION_MAX, served).await {
                tracing::debug!("{error}");
            }
            drop(place);
        });
    }
}

async fn answer(
    handle: &Handle,
    (requests, bodies): &(Semaphore, Semaphore),
    request: http::Request<Incoming>,
) -> Answer {
    let (parts, body) = request.into_parts();
    let is_request = parts.uri.path() == REQUESTS;
    let most = if is_request { BODY_BYTES_MAX } else { MESSAGE_BYTES_MAX };
    let bytes = body.size_hint().upper().map_or(most, |upper| most.min(upper as usize));
    let (place, room) = (requests.try_acquire(), bodies.try_acquire_many(bytes.div_ceil(1 << 10) as u32));
    if is_request && (place.is_err() || room.is_err()) {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", &Refused::Busy);
    }
    let _place = place.ok().filter(|_| is_request);
    let body = match timeout(RECEIVE_WAIT, body_of(body, most)).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return refuse(StatusCode::BAD_REQUEST, "body", &error),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "body", &"the body did not come in time"),
    };
    let path = parts.uri.path();
    let from = path.strip_prefix(CANDIDATES).and_then(|number| number.parse().ok()).map(CandidateId);
    match (parts.method, from) {
        (Method::GET, None) if path == STATE => json(StatusCode::OK, &handle.state()),
        (Method::GET, None) if path == CLUSTER => send(StatusCode::OK, handle.known().cluster),
        (Method::GET, None) if path == MONITOR => match handle.report() {
            Some(report) => send(StatusCode::OK, report),
            None => refuse(StatusCode::MISDIRECTED_REQUEST, "not-leading", &Refused::NotLeading),
        },
        (Method::POST, None) if path == REQUESTS => match serde_json::from_slice::<Request>(&body) {
            Ok(request) => respond(handle, request).await,
            Err(error) => refuse(StatusCode::BAD_REQUEST, "request", &error),
        },
        (Method::POST, Some(from)) => match serde_json::from_slice::<Message>(&body) {
            Ok(message) => {
                handle.hear(from, message).await;
                Response::builder().status(StatusCode::NO_CONTENT).body(Full::default()).expect("a status")
            }
            Err(error) => refuse(StatusCode::BAD_REQUEST, "message", &error),
        },
        _ => refuse(StatusCode::NOT_FOUND, "not-found", &"there is no such call"),
    }
}

async fn respond(handle: &Handle, request: Request) -> Answer {
    let refused = match handle.ask(request).await {
        Ok(reply) => return json(StatusCode::OK, &reply),
        Err(refused) => refused,
    };
    let (status, code) = match &refused {
        Refused::NotLeading => (StatusCode::MISDIRECTED_REQUEST, "not-leading"),
        Refused::Unknown => (StatusCode::GATEWAY_TIMEOUT, "unknown"),
        Refused::Busy | Refused::Unreadable => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        Refused::Token(_) => (StatusCode::CONFLICT, "bad-token"),
        Refused::LeaseLost(_) => (StatusCode::CONFLICT, "lease-lost"),
        _ => (StatusCode::CONFLICT, "invalid"),
    };
    refuse(status, code, &refused)
}

fn refuse(status: StatusCode, code: &str, why: &dyn std::fmt::Display) -> Answer {
    json(status, &Refusal { code: code.into(), message: why.to_string() })
}

fn json(status: StatusCode, body: &impl Serialize) -> Answer {
    send(status, serde_json::to_vec(body).expect("names are strings"))
}

fn send(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let answer = Response::builder().status(status).header(CONTENT_TYPE, "application/json");
    answer.body(Full::new(body.into())).expect("a status and a header")
}
