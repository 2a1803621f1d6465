//! Three candidates over loopback, on a real etcd of three members, with a client that knows them by their addresses. Devices and hosts, and
//! members of etcd that fail while a candidate leads, are in `tests/machines`.

#[path = "../../etcd/tests/members/mod.rs"]
mod members;

use braid_base::limits::Settings;
use braid_base::{DeviceId, Generation};
use braid_description::ArrayDescription;
use braid_host_leases::Version;
use braid_leader::{Candidate, CandidateError, CandidateState, Known, Place, Shown};
use braid_leader_client::{AskError, LeaderClient};
use braid_leadership::{CandidateId, Head};
use braid_membership::{Monitor, MonitorConfig};
use braid_registrar::{Reply, Request};
use braid_shell::{Address, Counters};
use members::{ARRAY, Etcd, LONG, content, wait_until};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A candidate that runs in a task.
struct Running {
    http: String,
    state: watch::Receiver<CandidateState>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), CandidateError>>,
}

impl Running {
    fn leads(&self) -> bool {
        !self.task.is_finished() && self.state.borrow().leads.is_some()
    }
}

fn place(etcd: &Etcd, folder: &Path, id: u16) -> Place {
    Place {
        id: CandidateId(id),
        wire: Address::loopback(0),
        http: "127.0.0.1:0".parse().expect("an address"),
        etcd: etcd.endpoints(),
        mark: folder.join(format!("mark{id}")),
        insecure_network: false,
    }
}

fn config() -> MonitorConfig {
    let devices = (0..3).map(DeviceId).collect();
    MonitorConfig { array: ARRAY, devices, last_generation: Generation(0), term: None, settings: Settings::default() }
}

/// A new array, and its candidates.
async fn start(etcd: &Etcd, count: u16) -> Vec<Running> {
    let head = Head::first((0..count).map(CandidateId).collect());
    assert!(etcd.registry().create(&head, &content()).await.expect("etcd runs"));
    let mut opened = Vec::new();
    for id in 0..count {
        opened.push(Candidate::open(place(etcd, &etcd.folder, id), config()).await.expect("it listens"));
    }
    let addresses: BTreeMap<_, _> = opened
        .iter()
        .enumerate()
        .map(|(id, candidate)| (CandidateId(id as u16), candidate.http().expect("bound").to_string()))
        .collect();
    let run = |candidate: Candidate| {
        let http = candidate.http().expect("bound").to_string();
        let (look, state) = watch::channel(CandidateState::default());
        let (stop, stopped) = oneshot::channel();
        let counters = Arc::new(Counters::default());
        let report = Box::new(|_, monitor: &Monitor, _| Some(monitor.membership().epoch.0.to_string()));
        let known = Known { candidates: addresses.clone(), cluster: "cluster".into() };
        let shown = Shown { state: look, report, known: watch::Sender::new(known).subscribe() };
        let task = tokio::spawn(candidate.run(counters, shown, async { drop(stopped.await) }));
        Running { http, state, stop: Some(stop), task }
    };
    opened.into_iter().map(run).collect()
}

fn client_of(candidates: &[Running]) -> LeaderClient {
    LeaderClient::new(candidates.iter().map(|candidate| candidate.http.clone()))
}

/// The number of the one that leads.
async fn leader(candidates: &[Running]) -> usize {
    wait_until(async || candidates.iter().any(Running::leads)).await;
    candidates.iter().position(Running::leads).expect("one leads")
}

fn take(nonce: u64) -> Request {
    Request::Take { nonce, role: "host".into(), report: "{}".into() }
}

fn taken(host: u32) -> Result<Reply, AskError> {
    Ok(Reply::Taken(Generation(host)))
}

#[tokio::test]
async fn clients_and_devices_go_on_with_the_next_leader_which_knows_all() {
    let mut etcd = Etcd::start("candidates", 3).await;
    let mut candidates = start(&etcd, 3).await;
    let client = client_of(&candidates);
    let ask = async |request| client.ask(&request, LONG).await;
    for host in 101..104 {
        assert_eq!(ask(take(host)).await, taken(host as u32));
    }
    let end = Request::ExpireOne { host: Generation(102), length: Duration::ZERO };
    assert!(matches!(ask(end).await, Ok(Reply::Ended(_))));
    let first = leader(&candidates).await;

    // It dies.
    candidates[first].task.abort();
    let begun = Instant::now();
    assert_eq!(ask(take(103)).await, taken(103), "it was repeated");
    println!("the next leader answered {:?} after a death", begun.elapsed());
    assert_eq!(ask(take(8)).await, taken(104));
    let next = ArrayDescription { revision: 1, populated: true, ..content().description };
    let replace = Request::Replace { after: 0, next: Box::new(next.clone()) };
    assert_eq!(ask(replace.clone()).await, Ok(Reply::Replaced));
    let second = leader(&candidates).await;

    // It ends in order.
    candidates[second].stop.take().expect("it runs").send(()).expect("it runs");
    let begun = Instant::now();
    assert_eq!(ask(Request::Describe).await, Ok(Reply::Description(Box::new(next))));
    println!("the next leader answered {:?} after an end in order", begun.elapsed());
    (&mut candidates[second].task).await.expect("it did not panic").expect("it ended in order");
    assert_eq!(ask(replace).await, Ok(Reply::Superseded));
    let Ok(Reply::Hosts(hosts)) = ask(Request::Hosts { length: LONG }).await else { panic!("no hosts") };
    let hosts: Vec<_> = hosts.into_iter().map(|host| (host.host.0, host.lease.is_over)).collect();
    assert_eq!(hosts, [(101, false), (102, true), (103, false), (104, false)]);
    let renew = |host| Request::Renew { host: Generation(host), confirmed: Version(0), report: String::new() };
    assert_eq!(ask(renew(103)).await, Ok(Reply::Renewed { is_asked_to_end: false }));
    let lost = ask(renew(102)).await;
    assert!(matches!(&lost, Err(AskError::Refused { code, .. }) if code == "lease-lost"), "{lost:?}");

    (0..3).for_each(|member| etcd.kill(member));
    let silent = client.ask(&Request::Describe, Duration::from_secs(1)).await;
    assert!(matches!(silent, Err(AskError::NoLeader { .. })), "{silent:?}");
}

#[tokio::test]
async fn candidates_stop_when_etcd_has_gone_back() {
    let mut etcd = Etcd::start("back", 1).await;
    let candidates = start(&etcd, 2).await;
    let client = client_of(&candidates);
    assert_eq!(client.ask(&take(1), LONG).await, taken(101));
    let seq = etcd.registry().head().await.expect("answered").expect("there is one").seq;
    etcd.kill(0);
    let earlier = etcd.folder.join("earlier");
    copy(&etcd.data(0), &earlier);
    etcd.run(0);
    assert_eq!(client.ask(&take(2), LONG).await, taken(102));
    // Each has seen what is lost then.
    for candidate in &candidates {
        wait_until(async || candidate.state.borrow().seq > Some(seq + 8)).await;
    }
    etcd.kill(0);
    std::fs::remove_dir_all(etcd.data(0)).expect("removed");
    copy(&earlier, &etcd.data(0));
    etcd.run(0);
    for candidate in &candidates {
        wait_until(async || candidate.state.borrow().has_stopped).await;
        assert!(!candidate.leads());
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
    assert!(copied.success());
}

/// A candidate that answers every request with this status and code, or not at all; and how often it was asked.
async fn stub(status: &'static str, code: &'static str) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, asked) = (listener.local_addr().expect("bound").to_string(), Arc::new(AtomicU64::new(0)));
    let counted = asked.clone();
    tokio::spawn(async move {
        loop {
            let (mut caller, _) = listener.accept().await.expect("a caller");
            counted.fetch_add(1, Ordering::Relaxed);
            let (mut request, body) = (vec![0; 1 << 16], format!(r#"{{"code":"{code}","message":"as a stub"}}"#));
            let _ = caller.read(&mut request).await;
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let _ = caller.write_all(if status.is_empty() { b"" } else { answer.as_bytes() }).await;
        }
    });
    (address, asked)
}

#[tokio::test]
async fn only_what_can_be_repeated_is_asked_again_when_its_outcome_is_unknown() {
    let replace = || Request::Replace { after: 0, next: Box::new(content().description) };
    // Status, code, and how often each is asked: a description, a replacement.
    let cases = [
        ("409 Conflict", "invalid", [1, 1]),
        ("421 Misdirected Request", "not-leading", [2, 2]),
        ("503 Service Unavailable", "busy", [2, 2]),
        ("400 Bad Request", "request", [2, 2]),
        ("504 Gateway Timeout", "unknown", [2, 1]),
        ("", "", [2, 1]),
    ];
    for (status, code, times) in cases {
        for (request, at_least) in [Request::Describe, replace()].into_iter().zip(times) {
            let (address, asked) = stub(status, code).await;
            let client = LeaderClient::new([address]);
            let error = client.ask(&request, Duration::from_secs(1)).await.expect_err("it has no answer");
            let is_right = match (at_least, status) {
                (1, "409 Conflict") => matches!(error, AskError::Refused { .. }),
                (1, _) => matches!(error, AskError::Unknown { .. }),
                _ => matches!(error, AskError::NoLeader { .. }),
            };
            let asked = asked.load(Ordering::Relaxed);
            assert!(is_right && (asked == 1) == (at_least == 1), "{status}: {request:?} {asked} times: {error}");
        }
    }
}

#[tokio::test]
async fn an_address_of_the_network_needs_a_word() {
    let etcd = Etcd::start("exposed", 1).await;
    let everywhere = Place { http: "0.0.0.0:0".parse().expect("an address"), ..place(&etcd, &etcd.folder, 0) };
    let refused = Candidate::open(everywhere.clone(), config()).await.err().expect("it is exposed");
    assert!(refused.to_string().contains("--insecure-network"), "{refused}");
    let allowed = Place { insecure_network: true, ..everywhere };
    assert!(Candidate::open(allowed, config()).await.is_ok());
}
