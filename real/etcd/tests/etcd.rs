//! Registrars on a real etcd of three members, which are killed, stopped, and taken back to an earlier state.

use braid_base::limits::Settings;
use braid_base::{ArrayId, Clock, DeviceId, DiskId, Epoch, Generation, Level, NodeId, Now, Rng, Time};
use braid_description::{ArrayDescription, Creation, DeviceEntry};
use braid_etcd::{Calls, Registry, Swapped};
use braid_host_leases::Version;
use braid_leadership::{CandidateId, Head};
use braid_machine::{Effect, Input as MonitorInput, MonitorEffects};
use braid_membership::MonitorConfig;
use braid_registrar::{
    Change, Content, Input, Key, Keys, Outcome, Outgoing, Refused, Registrar, Reply, Request, RequestId,
};
use braid_wire::{Message, MonitorCommand, MonitorReply, MonitorRequest};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

const ARRAY: ArrayId = ArrayId([9; 16]);
/// Longer than everything takes.
const LONG: Duration = Duration::from_secs(60);

/// The members of an etcd, on loopback, in a folder that is removed at the end.
struct Etcd {
    folder: PathBuf,
    ports: Vec<(u16, u16)>,
    members: Vec<Option<Child>>,
}

impl Etcd {
    async fn start(name: &str, members: usize) -> Etcd {
        let folder = std::env::temp_dir().join(format!("braid-etcd-{name}-{}", std::process::id()));
        let held: Vec<_> = (0..2 * members).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let ports: Vec<_> = held.iter().map(|port| port.local_addr().expect("bound").port()).collect();
        drop(held);
        let ports = ports.chunks(2).map(|pair| (pair[0], pair[1])).collect();
        let mut etcd = Etcd { folder, ports, members: (0..members).map(|_| None).collect() };
        (0..members).for_each(|index| etcd.run(index));
        let registry = etcd.registry();
        wait_until(async || registry.head().await.is_ok()).await;
        etcd
    }

    fn data(&self, index: usize) -> PathBuf {
        self.folder.join(index.to_string())
    }

    fn run(&mut self, index: usize) {
        std::fs::create_dir_all(&self.folder).expect("a folder");
        let log = std::fs::File::create(self.folder.join(format!("{index}.log"))).expect("a log");
        let (client, peer) = self.ports[index];
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let cluster: Vec<_> =
            self.ports.iter().enumerate().map(|(other, (_, peer))| format!("m{other}={}", url(*peer))).collect();
        let mut command = Command::new("etcd");
        command.arg("--name").arg(format!("m{index}")).arg("--data-dir").arg(self.data(index));
        command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        command.args([
            "--initial-cluster",
            &cluster.join(","),
            "--initial-cluster-token",
            &format!("t{}", self.ports[0].0),
        ]);
        let member = command.stdout(Stdio::null()).stderr(log).spawn().expect("the package etcd-server is installed");
        self.members[index] = Some(member);
    }

    fn kill(&mut self, index: usize) {
        let mut member = self.members[index].take().expect("it runs");
        member.kill().expect("killed");
        member.wait().expect("it has ended");
    }

    /// Returns when it stands still.
    fn stop(&self, index: usize) {
        let member = Pid::from_child(self.members[index].as_ref().expect("it runs"));
        kill_process(member, Signal::STOP).expect("signalled");
        let stopped = waitpid(Some(member), WaitOptions::UNTRACED).expect("a child").expect("waited for").1;
        assert!(stopped.stopped());
    }

    fn go_on(&self, index: usize) {
        let member = Pid::from_child(self.members[index].as_ref().expect("it runs"));
        kill_process(member, Signal::CONT).expect("signalled");
    }

    /// Asks all members, from the first on.
    fn registry(&self) -> Registry {
        self.registry_of(&(0..self.ports.len()).collect::<Vec<_>>())
    }

    fn registry_of(&self, members: &[usize]) -> Registry {
        let endpoints: Vec<_> =
            members.iter().map(|index| format!("http://127.0.0.1:{}", self.ports[*index].0)).collect();
        Registry::new(&endpoints, ARRAY).expect("endpoints")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for mut member in self.members.iter_mut().filter_map(Option::take) {
            let _ = (member.kill(), member.wait());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn now() -> Time {
    let reading = clock_gettime(ClockId::Boottime);
    Time(reading.tv_sec as u64 * 1_000_000_000 + reading.tv_nsec as u64)
}

async fn wait_until(mut so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, waiting).await.expect("in time");
}

/// What a registrar is told by its test and by the others.
enum Told {
    Input(Input),
    /// A request, to be answered.
    Ask(Request, UnboundedSender<Outcome>),
    /// How it is, to be answered.
    Look(UnboundedSender<View>),
    /// Ends without a word to others.
    Die,
}

/// A registrar, seen from outside.
#[derive(Clone, Debug)]
struct View {
    /// The head with which it has won, if it leads.
    leads: Option<Head>,
    /// The hosts whose fence is recorded.
    fenced: Vec<u32>,
    /// How many leases it has granted.
    leases: u64,
    /// The number of the newest head that it has seen.
    seen: u64,
    has_stopped: bool,
}

/// A registrar that runs in a task.
struct Running {
    told: UnboundedSender<Told>,
}

impl Running {
    fn tell(&self, told: Told) {
        let _ = self.told.send(told);
    }

    async fn view(&self) -> View {
        let (asked, mut answer) = unbounded_channel();
        self.tell(Told::Look(asked));
        timeout(LONG, answer.recv()).await.expect("in time").expect("it runs")
    }

    async fn ask(&self, request: Request) -> Outcome {
        let (asked, mut answer) = unbounded_channel();
        self.tell(Told::Ask(request, asked));
        timeout(LONG, answer.recv()).await.expect("in time").expect("it runs")
    }

    async fn leads(&self) -> Option<Head> {
        self.view().await.leads
    }

    /// Returns the head with which it has won, when it has.
    async fn wins(&self) -> Head {
        wait_until(async || self.leads().await.is_some()).await;
        self.leads().await.expect("it leads")
    }

    /// Returns when the fence of this host is recorded.
    async fn fence(&self, host: u32) {
        let asked = || {
            let fence = MonitorCommand::Fence {
                ticket: host.into(),
                below: Generation(0),
                except: Vec::new(),
                also: vec![Generation(host)],
            };
            Told::Input(request(NodeId::Host(Generation(50)), fence))
        };
        wait_until(async || {
            self.tell(asked());
            self.view().await.fenced.contains(&host)
        })
        .await;
    }

    /// Returns when it has granted more leases.
    async fn grants(&self) {
        let before = self.view().await.leases;
        wait_until(async || self.view().await.leases > before + 2).await;
    }
}

fn request(from: NodeId, command: MonitorCommand) -> Input {
    let message = Message::MonitorRequest(MonitorRequest { epoch: Epoch(0), command });
    Input::Monitor(MonitorInput::Message { to: NodeId::Monitor, from, message })
}

/// What a device says twice a second.
fn renewal(device: u16) -> Input {
    let (disk, silent, undecided) = (Some(DiskId(device.into())), Vec::new(), Vec::new());
    let (sent, stamps, knows) = (now(), Clock(0), Level::KNOWN);
    let renew = MonitorCommand::Renew { sent, silent, disk, bad_slots: 0, failing: false, undecided, stamps, knows };
    request(NodeId::Device(DeviceId(device)), renew)
}

/// Registrars that reach each other. Three devices ask all of them for leases.
fn registrars(etcd: &Etcd, count: u16) -> Vec<Running> {
    let channels: Vec<_> = (0..count).map(|_| unbounded_channel()).collect();
    let senders: Vec<_> = channels.iter().map(|(told, _)| told.clone()).collect();
    let run = |(id, (told, heard)): (usize, (UnboundedSender<Told>, _))| {
        // Each begins with another member.
        let members: Vec<_> = (0..etcd.ports.len()).map(|step| (id + step) % etcd.ports.len()).collect();
        let registry = Arc::new(etcd.registry_of(&members));
        tokio::spawn(run(CandidateId(id as u16), registry, heard, senders.clone()));
        Running { told }
    };
    channels.into_iter().enumerate().map(run).collect()
}

async fn run(
    id: CandidateId,
    registry: Arc<Registry>,
    mut heard: UnboundedReceiver<Told>,
    others: Vec<UnboundedSender<Told>>,
) {
    let (calls, mut answers) = Calls::new(registry);
    let nonces = Rng::new(now().0 ^ u64::from(id.0) << 56);
    let config = MonitorConfig {
        array: ARRAY,
        devices: (0..3).map(DeviceId).collect(),
        last_generation: Generation(0),
        term: None,
        settings: Settings::default(),
    };
    let mut registrar = Registrar::new(now(), id, config, nonces, None);
    let (mut leases, mut askers) = (0, BTreeMap::new());
    let mut devices = tokio::time::interval(Duration::from_millis(500));
    loop {
        let due = registrar.deadline().map_or(LONG, |due| due.since(now()));
        let inputs = tokio::select! {
            () = sleep(due) => vec![Input::Monitor(MonitorInput::Wake)],
            _ = devices.tick() => (0..3).map(renewal).collect(),
            Some(answer) = answers.recv() => vec![answer],
            told = heard.recv() => match told {
                Some(Told::Input(input)) => vec![input],
                Some(Told::Ask(request, asker)) => {
                    let id = RequestId(now().0);
                    askers.insert(id, asker);
                    vec![Input::Request { id, request }]
                }
                Some(Told::Look(asked)) => {
                    let leads = registrar.leads();
                    let fence = leads.map(|(_, monitor)| monitor.membership().fence.clone());
                    let is_fenced = |host: &u32| fence.as_ref().is_some_and(|fence| fence.refuses(Generation(*host)));
                    let _ = asked.send(View {
                        leads: leads.map(|(head, _)| head.clone()),
                        fenced: (1..20).filter(is_fenced).collect(),
                        leases,
                        seen: registrar.seen().map_or(0, |mark| mark.seq),
                        has_stopped: registrar.deadline().is_none(),
                    });
                    continue;
                }
                Some(Told::Die) | None => return,
            },
        };
        for input in inputs {
            let mut out = MonitorEffects::new();
            let clock = Clock(now().0);
            let outgoing = registrar.step(Now { time: now(), clock }, input, &mut out);
            registrar.invariants();
            for other in outgoing.into_iter().filter_map(|call| calls.make(call)) {
                match other {
                    Outgoing::Send { to, message } => {
                        let _ = others[usize::from(to.0)].send(Told::Input(Input::Message { from: id, message }));
                    }
                    Outgoing::Reply { id, outcome } => {
                        let _ = askers.remove(&id).expect("it was asked").send(outcome);
                    }
                    call => panic!("it is made: {call:?}"),
                }
            }
            let is_lease = |effect: &Effect<_, _>| {
                let Effect::Send { message: Message::MonitorAnswer(answer), .. } = effect else { return false };
                matches!(answer.reply, MonitorReply::Lease { .. })
            };
            leases += out.drain().filter(is_lease).count() as u64;
        }
    }
}

/// The one of two that leads, the other one, and the head with which it has won.
async fn leader_of(registrars: Vec<Running>) -> (Running, Running, Head) {
    let [one, other]: [Running; 2] = registrars.try_into().ok().expect("two");
    wait_until(async || one.leads().await.is_some() || other.leads().await.is_some()).await;
    let (leader, heir) = if one.leads().await.is_some() { (one, other) } else { (other, one) };
    let head = leader.wins().await;
    (leader, heir, head)
}

fn content() -> Content {
    let devices = (0..3).map(|id| DeviceEntry::new(id, 1 << 30)).collect();
    Content::new(ArrayDescription::new(ARRAY, devices, Creation::default()), Generation(100))
}

/// The keys of the array when nothing has changed.
fn new_keys() -> Keys {
    let mut keys = Keys::new();
    let changes = content().changes().expect("few keys");
    changes.into_iter().for_each(|change| change.make(&mut keys));
    keys
}

fn lease(value: Option<&'static str>) -> Change {
    Change { key: Key::Lease(Generation(1)), value: value.map(Into::into) }
}

fn first(candidates: impl IntoIterator<Item = u16>) -> Head {
    Head::first(candidates.into_iter().map(CandidateId).collect())
}

#[tokio::test]
async fn a_head_is_made_once_and_what_is_written_with_a_swap_is_written_with_it_alone() {
    let etcd = Etcd::start("swaps", 1).await;
    let registry = etcd.registry();
    let head = first([0]);
    let second = Head { seq: 1, leader: Some(CandidateId(0)), ..head.clone() };
    assert_eq!(registry.swap(&head, &second, &[]).await.expect("answered"), Swapped::Differs(None));
    assert!(registry.create(&head, &content()).await.expect("answered"));
    assert!(!registry.create(&second, &content()).await.expect("answered"));
    assert_eq!(
        registry.swap(&second, &head, &[lease(Some("c"))]).await.expect("answered"),
        Swapped::Differs(Some(head.clone()))
    );
    assert_eq!(registry.read_all().await.expect("answered"), (Some(head.clone()), new_keys()));
    let third = Head { seq: 2, ..second.clone() };
    assert_eq!(registry.swap(&head, &second, &[lease(Some("a"))]).await.expect("answered"), Swapped::Done);
    assert_eq!(registry.read_all().await.expect("answered").1["lease/1"], "a");
    assert_eq!(registry.swap(&second, &third, &[lease(None)]).await.expect("answered"), Swapped::Done);
    assert_eq!(registry.head().await.expect("answered"), Some(third.clone()));
    assert_eq!(registry.read_all().await.expect("answered"), (Some(third), new_keys()));
}

/// As many keys as a transaction takes, and large ones.
#[tokio::test]
async fn a_change_that_the_registrar_does_not_refuse_is_one_that_etcd_takes() {
    let etcd = Etcd::start("large", 1).await;
    let registry = etcd.registry();
    let mut large = content();
    let devices = |count| (0..count).map(|id| DeviceEntry { domain: "d".repeat(11_000), ..DeviceEntry::new(id, 1) });
    large.description.devices = devices(124).collect();
    assert!(registry.create(&first(0..1_000), &large).await.expect("etcd takes it"));
    assert_eq!(registry.read_all().await.expect("answered").1.len(), 127);
    large.description.devices = devices(125).collect();
    let refused = registry.create(&first([0]), &large).await.expect_err("too large");
    assert!(refused.to_string().contains("127"), "{refused}");
}

#[tokio::test]
async fn one_monitor_leads_and_the_next_one_goes_on_with_its_record() {
    let etcd = Etcd::start("follows", 1).await;
    etcd.registry().create(&first([0, 1]), &content()).await.expect("created");
    let (leader, heir, head) = leader_of(registrars(&etcd, 2)).await;
    leader.grants().await;
    leader.fence(7).await;
    // It ends in order.
    let begun = Instant::now();
    leader.tell(Told::Input(Input::Resign));
    let next = heir.wins().await;
    println!("after an end in order, the next one led after {:?}", begun.elapsed());
    assert_eq!((next.term, next.leader == head.leader), (head.term + 1, false));
    heir.grants().await;
    assert!(leader.leads().await.is_none() && heir.view().await.fenced == [7]);
    heir.fence(8).await;
    // And without a word.
    let begun = Instant::now();
    heir.tell(Told::Die);
    let last = leader.wins().await;
    println!("after a death, after {:?}", begun.elapsed());
    assert_eq!((last.term, last.leader), (next.term + 1, head.leader));
    leader.grants().await;
    assert_eq!(leader.view().await.fenced, [7, 8]);
}

/// Each member is killed, and stopped and continued, and then all are killed: the leader stays, and grants leases.
#[tokio::test]
async fn a_leader_survives_the_members_of_etcd() {
    let mut etcd = Etcd::start("members", 3).await;
    etcd.registry().create(&first([0, 1]), &content()).await.expect("created");
    let (leader, heir, head) = leader_of(registrars(&etcd, 2)).await;
    let mut host = 0;
    for index in 0..3 {
        for stops in [false, true] {
            let begun = Instant::now();
            if stops {
                etcd.stop(index);
            } else {
                etcd.kill(index);
            }
            host += 1;
            leader.fence(host).await;
            println!("member {index}, stopped: {stops}: recorded after {:?}", begun.elapsed());
            if stops {
                etcd.go_on(index);
            } else {
                etcd.run(index);
            }
            // It is a part of the quorum again when the next one goes.
            let registry = etcd.registry_of(&[index]);
            wait_until(async || registry.head().await.is_ok()).await;
        }
    }
    (0..3).for_each(|index| etcd.kill(index));
    // After the doubt, it relies on the promise of the other one.
    sleep(Duration::from_secs(3)).await;
    leader.grants().await;
    (0..3).for_each(|index| etcd.run(index));
    leader.fence(host + 1).await;
    let found = etcd.registry().head().await.expect("answered").expect("there is one");
    assert_eq!((found.term, found.nonce), (head.term, head.nonce), "the other one has never led");
    assert!(heir.leads().await.is_none());
}

/// A swap is sent to a member that is stopped, and given up. It reaches etcd when others have written.
#[tokio::test]
async fn a_late_swap_changes_nothing() {
    let etcd = Etcd::start("late", 3).await;
    let head = first([0]);
    etcd.registry().create(&head, &content()).await.expect("created");
    let seq = |seq: u64| Head { seq, ..head.clone() };
    for round in 0..3 {
        let member = round as usize;
        let others: Vec<_> = (0..3).filter(|other| *other != member).collect();
        let present = seq(2 * round);
        let late = etcd.registry_of(&[member]);
        wait_until(async || late.head().await.is_ok_and(|found| found == Some(present.clone()))).await;
        etcd.stop(member);
        assert!(late.swap(&present, &seq(2 * round + 1), &[lease(Some("late"))]).await.is_err());
        let others = etcd.registry_of(&others);
        let next = seq(2 * round + 2);
        wait_until(async || match others.swap(&present, &next, &[]).await {
            Ok(Swapped::Done) => true,
            Ok(Swapped::Differs(found)) => found == Some(next.clone()),
            Err(_) => false,
        })
        .await;
        etcd.go_on(member);
        wait_until(async || late.head().await.is_ok()).await;
        assert_eq!(etcd.registry().read_all().await.expect("answered"), (Some(next), new_keys()), "round {round}");
    }
}

/// A connection says nothing any more, as after a break of the network, and new ones work.
#[tokio::test]
async fn a_connection_that_has_fallen_silent_is_given_up() {
    let etcd = Etcd::start("silent", 1).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (breaks, _) = tokio::sync::broadcast::channel(1);
    let (broken, target) = (breaks.clone(), etcd.ports[0].0);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.expect("a connection");
            let mut broken = broken.subscribe();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(("127.0.0.1", target)).await.expect("etcd runs");
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = broken.recv() => sleep(LONG * 2).await,
                }
            });
        }
    });
    let registry = Registry::new(&[format!("http://127.0.0.1:{port}")], ARRAY).expect("an endpoint");
    registry.head().await.expect("answered");
    breaks.send(()).expect("there is a connection");
    assert!(registry.head().await.is_err());
    wait_until(async || registry.head().await.is_ok()).await;
}

#[tokio::test]
async fn the_next_leader_has_the_description_the_generations_and_the_leases() {
    let mut etcd = Etcd::start("store", 3).await;
    etcd.registry().create(&first([0, 1]), &content()).await.expect("created");
    let (leader, heir, _) = leader_of(registrars(&etcd, 2)).await;
    let host = |nonce| Request::Take { nonce, role: "host".into(), report: Default::default() };
    assert_eq!(heir.ask(host(7)).await, Err(Refused::NotLeading));
    // A member dies meanwhile.
    etcd.kill(0);
    for number in 101..104 {
        assert_eq!(leader.ask(host(number)).await, Ok(Reply::Taken(Generation(number as u32))));
    }
    let next = ArrayDescription { populated: true, revision: 1, ..content().description };
    let replace = Request::Replace { after: 0, next: Box::new(next.clone()) };
    assert_eq!(leader.ask(replace.clone()).await, Ok(Reply::Replaced));
    sleep(Duration::from_millis(20)).await;
    let end = Request::ExpireOne { host: Generation(102), length: Duration::ZERO };
    assert!(matches!(leader.ask(end).await, Ok(Reply::Ended(_))));
    leader.tell(Told::Die);
    etcd.run(0);
    heir.wins().await;
    assert_eq!(heir.ask(Request::Describe).await, Ok(Reply::Description(Box::new(next))));
    assert_eq!(heir.ask(replace).await, Ok(Reply::Superseded));
    let Ok(Reply::Hosts(hosts)) = heir.ask(Request::Hosts { length: LONG }).await else { panic!("no hosts") };
    let hosts: Vec<_> = hosts.into_iter().map(|host| (host.host.0, host.lease.is_over)).collect();
    assert_eq!(hosts, [(101, false), (102, true), (103, false)]);
    let (confirmed, report) = (Version(1), Default::default());
    let renew = |host| Request::Renew { host: Generation(host), confirmed, report: bytes::Bytes::clone(&report) };
    assert_eq!(heir.ask(renew(102)).await, Err(Refused::LeaseLost(Generation(102))));
    assert_eq!(heir.ask(renew(103)).await, Ok(Reply::Renewed { is_asked_to_end: false }));
    assert_eq!(heir.ask(host(103)).await, Ok(Reply::Taken(Generation(103))), "it was repeated");
    assert_eq!(heir.ask(host(9)).await, Ok(Reply::Taken(Generation(104))));
}

#[tokio::test]
async fn candidates_stop_when_etcd_has_gone_back() {
    let mut etcd = Etcd::start("back", 1).await;
    etcd.registry().create(&first([0, 1]), &content()).await.expect("created");
    let (leader, heir, _) = leader_of(registrars(&etcd, 2)).await;
    etcd.kill(0);
    let kept = etcd.folder.join("kept");
    copy(&etcd.data(0), &kept);
    etcd.run(0);
    // Each has seen what is lost then.
    let newest = leader.view().await.seen.max(heir.view().await.seen);
    for registrar in [&leader, &heir] {
        wait_until(async || registrar.view().await.seen > newest + 3).await;
    }
    etcd.kill(0);
    std::fs::remove_dir_all(etcd.data(0)).expect("removed");
    copy(&kept, &etcd.data(0));
    etcd.run(0);
    for registrar in [&leader, &heir] {
        wait_until(async || registrar.view().await.has_stopped).await;
        assert!(registrar.leads().await.is_none());
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}
