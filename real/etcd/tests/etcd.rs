//! Candidates on a real etcd of three members, which are killed, stopped, and taken back to an earlier state.

use braid_base::{ArrayId, Rng, Time};
use braid_etcd::{Calls, Change, Registry, Swapped};
use braid_leadership::{Candidate, CandidateId, Effect, Head, Input, Times, WriteId};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::time::{ClockId, clock_gettime};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

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
        Registry::new(&endpoints, ArrayId([9; 16])).expect("endpoints")
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

/// What a candidate is told by its test and by the other candidates.
enum Told {
    Input(Input),
    /// Whether it may grant leases, to be answered.
    MayGrant(UnboundedSender<bool>),
    /// Ends without a word to others.
    Die,
}

/// A candidate that runs in a task.
struct Running {
    told: UnboundedSender<Told>,
    effects: UnboundedReceiver<Effect>,
}

impl Running {
    fn tell(&self, input: Input) {
        let _ = self.told.send(Told::Input(input));
    }

    async fn next(&mut self) -> Effect {
        timeout(LONG, self.effects.recv()).await.expect("in time").expect("it runs")
    }

    async fn wins(&mut self) -> Head {
        match self.next().await {
            Effect::Won { head, .. } => head,
            other => panic!("{other:?}"),
        }
    }

    async fn may_grant(&self) -> bool {
        let (asked, mut answer) = unbounded_channel();
        let _ = self.told.send(Told::MayGrant(asked));
        timeout(LONG, answer.recv()).await.expect("in time").expect("it runs")
    }
}

/// Candidates that reach each other. Each write puts its number under `last`.
fn candidates(etcd: &Etcd, count: u16) -> Vec<Running> {
    let channels: Vec<_> = (0..count).map(|_| unbounded_channel()).collect();
    let senders: Vec<_> = channels.iter().map(|(told, _)| told.clone()).collect();
    let run = |(id, (told, heard)): (usize, (UnboundedSender<Told>, _))| {
        let (tells, effects) = unbounded_channel();
        let others = senders.clone();
        // Each begins with another member.
        let members: Vec<_> = (0..etcd.ports.len()).map(|step| (id + step) % etcd.ports.len()).collect();
        tokio::spawn(play(CandidateId(id as u16), Arc::new(etcd.registry_of(&members)), heard, others, tells));
        Running { told, effects }
    };
    channels.into_iter().enumerate().map(run).collect()
}

async fn play(
    id: CandidateId,
    registry: Arc<Registry>,
    mut heard: UnboundedReceiver<Told>,
    others: Vec<UnboundedSender<Told>>,
    tells: UnboundedSender<Effect>,
) {
    let (calls, mut answers) = Calls::new(registry);
    let nonces = Rng::new(now().0 ^ u64::from(id.0) << 56);
    let mut candidate = Candidate::new(now(), id, Times::default(), nonces, None);
    loop {
        let due = candidate.deadline().map_or(LONG, |due| due.since(now()));
        let input = tokio::select! {
            () = sleep(due) => Input::Wake,
            Some((call, answer)) = answers.recv() => Input::Answer { call, answer },
            told = heard.recv() => match told {
                Some(Told::Input(input)) => input,
                Some(Told::MayGrant(asked)) => {
                    let _ = asked.send(candidate.may_grant(now()));
                    continue;
                }
                Some(Told::Die) | None => return,
            },
        };
        for effect in candidate.step(now(), input) {
            match effect {
                Effect::Read { call } => calls.read(call),
                Effect::Swap { call, expected, head, write } => {
                    let put = |write: WriteId| Change::Put { key: "last".into(), value: write.0.to_string().into() };
                    calls.swap(call, expected, head, write.into_iter().map(put).collect());
                }
                Effect::Send { to, message } => {
                    let _ = others[usize::from(to.0)].send(Told::Input(Input::Message { from: id, message }));
                }
                told => {
                    let _ = tells.send(told);
                }
            }
        }
    }
}

fn first(candidates: impl IntoIterator<Item = u16>) -> Head {
    Head::first(candidates.into_iter().map(CandidateId).collect())
}

#[tokio::test]
async fn a_head_is_made_once_and_what_is_written_with_a_swap_is_written_with_it_alone() {
    let etcd = Etcd::start("swaps", 1).await;
    let registry = etcd.registry();
    let head = first([0]);
    let entry = |value: &str| Change::Put { key: "device/0".into(), value: value.into() };
    let second = Head { seq: 1, leader: Some(CandidateId(0)), ..head.clone() };
    assert_eq!(registry.swap(&head, &second, &[]).await.expect("answered"), Swapped::Differs(None));
    assert!(registry.create(&head, &[entry("a")]).await.expect("answered"));
    assert!(!registry.create(&second, &[entry("b")]).await.expect("answered"));
    assert_eq!(
        registry.swap(&second, &head, &[entry("c")]).await.expect("answered"),
        Swapped::Differs(Some(head.clone()))
    );
    let keys = registry.read_all().await.expect("answered");
    assert_eq!((keys.len(), &keys["device/0"][..]), (2, &b"a"[..]));
    let gone = Change::Delete { key: "device/0".into() };
    assert_eq!(registry.swap(&head, &second, &[gone]).await.expect("answered"), Swapped::Done);
    assert_eq!(registry.head().await.expect("answered"), Some(second));
    assert_eq!(registry.read_all().await.expect("answered").into_keys().collect::<Vec<_>>(), ["head"]);
}

#[tokio::test]
async fn one_candidate_leads_and_the_next_one_follows_when_it_ends() {
    let etcd = Etcd::start("follows", 1).await;
    etcd.registry().create(&first([0, 1]), &[]).await.expect("created");
    let mut all = candidates(&etcd, 2);
    let (mut heir, mut leader) = (all.pop().expect("two"), all.pop().expect("two"));
    let head = tokio::select! {
        head = leader.wins() => head,
        head = heir.wins() => {
            std::mem::swap(&mut leader, &mut heir);
            head
        }
    };
    leader.tell(Input::Write { write: WriteId(7), candidates: None });
    assert_eq!(leader.next().await, Effect::Written(WriteId(7)));
    assert_eq!(etcd.registry().read_all().await.expect("answered")["last"], b"7");
    // In order.
    let begun = Instant::now();
    leader.tell(Input::Resign);
    assert_eq!(leader.next().await, Effect::Ended);
    let next = heir.wins().await;
    println!("after an end in order, the next one led after {:?}", begun.elapsed());
    assert_eq!((next.term, next.leader == head.leader), (head.term + 1, false));
    // And without a word.
    let begun = Instant::now();
    let _ = heir.told.send(Told::Die);
    let last = leader.wins().await;
    println!("after a death, after {:?}", begun.elapsed());
    assert_eq!((last.term, last.leader), (next.term + 1, head.leader));
}

/// A member is killed, another one stopped and continued, and then all are away: the leader stays, and may grant leases.
#[tokio::test]
async fn a_leader_survives_the_members_of_etcd() {
    let mut etcd = Etcd::start("members", 3).await;
    etcd.registry().create(&first([0, 1]), &[]).await.expect("created");
    let mut all = candidates(&etcd, 2);
    let (mut heir, mut leader) = (all.pop().expect("two"), all.pop().expect("two"));
    let head = tokio::select! {
        head = leader.wins() => head,
        head = heir.wins() => {
            std::mem::swap(&mut leader, &mut heir);
            head
        }
    };
    let mut written = 0;
    for index in 0..3 {
        for stops in [false, true] {
            let begun = Instant::now();
            if stops {
                etcd.stop(index);
            } else {
                etcd.kill(index);
            }
            written += 1;
            leader.tell(Input::Write { write: WriteId(written), candidates: None });
            assert_eq!(leader.next().await, Effect::Written(WriteId(written)), "member {index}, stopped: {stops}");
            println!("member {index}, stopped: {stops}: written after {:?}", begun.elapsed());
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
    // The doubt is over when it is still so after that time; then it is the promise of the other candidate.
    let begun = Instant::now();
    wait_until(async || begun.elapsed() > Duration::from_secs(3) && leader.may_grant().await).await;
    (0..3).for_each(|index| etcd.run(index));
    leader.tell(Input::Write { write: WriteId(99), candidates: None });
    assert_eq!(leader.next().await, Effect::Written(WriteId(99)));
    let found = etcd.registry().head().await.expect("answered").expect("there is one");
    assert_eq!((found.term, found.nonce), (head.term, head.nonce));
    assert!(heir.effects.try_recv().is_err(), "the other one has never led");
}

/// A swap is sent to a member that is stopped, and given up. It reaches etcd when others have written.
#[tokio::test]
async fn a_late_swap_changes_nothing() {
    let etcd = Etcd::start("late", 3).await;
    let head = first([0]);
    etcd.registry().create(&head, &[]).await.expect("created");
    let seq = |seq: u64| Head { seq, ..head.clone() };
    for round in 0..3 {
        let member = round as usize;
        let others: Vec<_> = (0..3).filter(|other| *other != member).collect();
        let present = seq(2 * round);
        let late = etcd.registry_of(&[member]);
        wait_until(async || late.head().await.is_ok_and(|found| found == Some(present.clone()))).await;
        etcd.stop(member);
        let stale = Change::Put { key: "last".into(), value: b"late".into() };
        assert!(late.swap(&present, &seq(2 * round + 1), &[stale]).await.is_err());
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
        let keys = etcd.registry().read_all().await.expect("answered");
        assert!(!keys.contains_key("last"), "round {round}");
        assert_eq!(etcd.registry().head().await.expect("answered"), Some(next));
    }
}

#[tokio::test]
async fn candidates_stop_when_etcd_has_gone_back() {
    let mut etcd = Etcd::start("back", 1).await;
    etcd.registry().create(&first([0, 1]), &[]).await.expect("created");
    let mut all = candidates(&etcd, 2);
    let (second, first) = (all.pop().expect("two"), all.pop().expect("two"));
    let (mut first, mut second) = (first, second);
    tokio::select! {
        _ = first.wins() => {}
        _ = second.wins() => {}
    }
    etcd.kill(0);
    let kept = etcd.folder.join("kept");
    copy(&etcd.data(0), &kept);
    etcd.run(0);
    let before = async |registry: Registry| registry.head().await.ok().flatten();
    let mut newest = 0;
    wait_until(async || {
        let seq = before(etcd.registry()).await.map_or(0, |head| head.seq);
        newest = if newest == 0 { seq } else { newest };
        seq > newest + 3
    })
    .await;
    etcd.kill(0);
    std::fs::remove_dir_all(etcd.data(0)).expect("removed");
    copy(&kept, &etcd.data(0));
    etcd.run(0);
    for running in [&mut first, &mut second] {
        while !matches!(running.next().await, Effect::Stopped { .. }) {}
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
