//! Three machines with an array on them, for acceptance tests. Each is a network namespace, with a member of etcd, a folder and an agent.
//!
//! Their links meet in a switch: a bridge in a namespace of its own, so nothing of this machine's network is touched. Tests kill processes
//! and machines while a [load](braid_processes::load) writes and verifies. The commands are those of `docs/three-machines.md`. It needs root.

use braid_processes::array::{number, pid_of};
use braid_processes::load::{Plan, Record};
use braid_processes::network::Namespace;
use braid_processes::program::braid;
use braid_processes::scratch::path_text;
use braid_processes::{Client, Daemon, Load, Outcome, Scratch, poll_until, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where clients of each machine find the volume, in its namespace.
pub const NBD: &str = "nbd://127.0.0.1:10809/vol0";
/// Longer than everything takes that is waited for.
pub const LONG: Duration = Duration::from_secs(60);
/// More than a load writes to.
const LOAD_BYTES: u64 = 1 << 20;
/// Only where this variable is not set, a test may be skipped.
const REQUIRED: &str = "BRAID_MACHINES";
/// How long a member of etcd may take to say what it is.
const ETCD_WAIT: Duration = Duration::from_secs(2);
/// The ports of etcd for clients and for other members.
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

/// One set of machines exists at a time: what tests measure depends on what else runs.
static ALONE: Mutex<()> = Mutex::new(());

/// A machine. All that runs on it is killed when this is dropped.
#[derive(Debug)]
pub struct Machine {
    pub name: String,
    pub address: String,
    /// Its folder of the array.
    dir: PathBuf,
    /// The folder of its member of etcd.
    data: PathBuf,
    log: PathBuf,
    etcd: Option<Child>,
    agent: Option<Daemon>,
    net: Namespace,
}

/// Three machines that are connected.
#[derive(Debug)]
pub struct Machines {
    // Fields are dropped in this order.
    pub all: Vec<Machine>,
    /// From the first command until the volume was served on all of them.
    pub served_after: Duration,
    _switch: Namespace,
    _scratch: Scratch,
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    fn new(id: u8, switch: &Namespace, scratch: &Scratch) -> Option<Machine> {
        let (name, address, net) = (format!("m{id}"), format!("10.77.0.{id}"), Namespace::new()?);
        switch.ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", net.name()]);
        switch.ip(&["link", "set", &name, "master", "switch", "up"]);
        net.ip(&["address", "add", &format!("{address}/24"), "dev", "eth0"]);
        net.ip(&["link", "set", "eth0", "up"]);
        let path = |what: &str| scratch.path(&format!("{name}-{what}"));
        let (dir, data, log) = (path("array"), path("etcd"), path("log"));
        Some(Machine { name, address, dir, data, log, etcd: None, agent: None, net })
    }

    /// Runs a command of `braid` on it, with `--json`.
    pub fn braid(&self, arguments: &[&str]) -> Outcome {
        self.net.within(|| braid(&[arguments, &["--array", path_text(&self.dir), "--json"]].concat()))
    }

    /// Polls the status that it shows until `find` has found something there.
    #[track_caller]
    pub fn find<T>(&self, what: &str, find: impl Fn(&Value) -> Option<T>) -> T {
        poll_until(LONG, || {
            let outcome = self.braid(&["status"]);
            let found = if outcome.status == Some(0) { find(&outcome.json()) } else { None };
            found.ok_or_else(|| format!("{what}: {outcome}"))
        })
    }

    /// Waits until it says that the volume is in this state.
    #[track_caller]
    pub fn await_volume(&self, state: &str) {
        self.find(state, |status| (status["volumes"][0]["state"] == state).then_some(()));
    }

    /// A client of the volume on it.
    pub fn volume(&self) -> Client {
        self.net.within(|| Client::open(NBD))
    }

    /// Starts writers on it, and waits until they are at work. They write where no earlier load has written.
    pub fn load(&self) -> Load {
        self.load_that(false)
    }

    /// The same, which ends by itself if the server may go, and does.
    pub fn load_that(&self, hosts_may_go: bool) -> Load {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let begin = NEXT.fetch_add(1, Ordering::Relaxed) * LOAD_BYTES + 100;
        self.net.within(|| Load::running(Plan { begin, hosts_may_go, ..Plan::of(&[NBD]) }))
    }

    /// Starts its member of etcd.
    pub fn start_etcd(&mut self) {
        let at = |port: u16| format!("http://{}:{port}", self.address);
        let all: Vec<_> = (1..=3).map(|id| format!("m{id}=http://10.77.0.{id}:{PEERS}")).collect();
        let mut command = Command::new("etcd");
        command.args(["--name", &self.name, "--data-dir", path_text(&self.data), "--initial-cluster", &all.join(",")]);
        command.args(["--listen-client-urls", &at(CLIENTS), "--advertise-client-urls", &at(CLIENTS)]);
        command.args(["--listen-peer-urls", &at(PEERS), "--initial-advertise-peer-urls", &at(PEERS)]);
        let log = File::create(self.data.with_extension("log")).expect("a log can be written");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let member = self.net.within(|| command.spawn());
        self.etcd = Some(member.expect("the package etcd-server is installed"));
    }

    pub fn kill_etcd(&mut self) {
        let mut member = self.etcd.take().expect("it runs");
        member.kill().expect("it can be killed");
        member.wait().expect("it can be waited for");
    }

    /// The process of its member of etcd.
    pub fn etcd_pid(&self) -> u32 {
        self.etcd.as_ref().expect("it runs").id()
    }

    /// True if its member leads etcd.
    fn leads_etcd(&self) -> bool {
        let metrics = || -> io::Result<String> {
            let mut stream = TcpStream::connect((self.address.as_str(), CLIENTS))?;
            stream.set_read_timeout(Some(ETCD_WAIT))?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut said = String::new();
            stream.read_to_string(&mut said)?;
            Ok(said)
        };
        self.etcd.is_some() && self.net.within(metrics).is_ok_and(|said| said.contains("\netcd_server_is_leader 1\n"))
    }

    /// Makes its folder, from what the machine at `first` says.
    pub fn join(&self, first: &str) {
        let join = ["cluster", "join", first, "--machine", &self.name];
        poll_until(LONG, || match self.braid(&join) {
            outcome if outcome.status == Some(0) => Ok(()),
            outcome => Err(outcome.to_string()),
        });
    }

    /// Starts its agent, and waits until the volume is served.
    pub fn start_agent(&mut self) {
        let agent = ["agent", "--array", path_text(&self.dir), "--json"];
        let started = self.net.within(|| Daemon::start(&agent, &self.log));
        self.agent = Some(started.unwrap_or_else(|outcome| panic!("{outcome}")));
        let served = || self.net.within(|| Client::try_open(NBD)).map(drop);
        poll_until(LONG, || served().map_err(|error| format!("{NBD} on {}: {error}", self.name)));
    }

    /// Ends its agent in order.
    pub fn stop_agent(&mut self) {
        let status = self.agent.take().expect("it runs").end(Signal::TERM);
        assert_eq!(status, Some(0), "{}", self.name);
    }

    /// Runs an array of one machine in its folder, with this command, until the next one is started.
    pub fn up(&mut self, arguments: &[&str]) {
        let words = [&["up", "--dir", path_text(&self.dir), "--json"][..], arguments].concat();
        let started = self.net.within(|| Daemon::start(&words, &self.log));
        self.agent = Some(started.unwrap_or_else(|outcome| panic!("{outcome}")));
    }

    /// The path of its folder of the array.
    pub fn dir(&self) -> &str {
        path_text(&self.dir)
    }

    /// A path of a file beside that.
    pub fn file(&self, name: &str) -> String {
        format!("{}-{name}", self.dir())
    }

    /// As if its power had failed: no other machine is told anything.
    pub fn die(&mut self) {
        self.link("down");
        self.kill_all();
    }

    /// Starts it again.
    pub fn revive(&mut self) {
        self.link("up");
        self.start_etcd();
        self.start_agent();
    }

    /// Its link is `up` or `down`.
    pub fn link(&self, state: &str) {
        self.net.ip(&["link", "set", "eth0", state]);
    }

    /// Kills all processes on it, also those that are started meanwhile.
    fn kill_all(&mut self) {
        loop {
            let listed = run("ip", &["netns", "pids", self.net.name()]).stdout;
            let pids: Vec<_> = listed.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
            if pids.is_empty() {
                break;
            }
            for pid in pids {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
            sleep(Duration::from_millis(10));
        }
        if let Some(mut member) = self.etcd.take() {
            member.wait().expect("it can be waited for");
        }
        self.agent = None;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_all();
    }
}

impl Machines {
    /// Three machines that have joined a new array, whose volume is served on each; none, with a message, where the system does not permit it.
    pub fn start() -> Option<Machines> {
        let mut machines = Machines::with_etcd()?;
        let begun = Instant::now();
        machines.init();
        let first = machines.all[0].address.clone();
        machines.at_once(|machine| {
            if machine.address != first {
                machine.join(&format!("{first}:7400"));
            }
            machine.start_agent();
            println!("{} serves the volume after {:?}", machine.name, begun.elapsed());
        });
        machines.served_after = begun.elapsed();
        Some(machines)
    }

    /// etcd loses all data on all machines, and is made anew.
    pub fn lose_etcd(&mut self) {
        self.all.iter_mut().for_each(Machine::kill_etcd);
        for machine in &mut self.all {
            std::fs::remove_dir_all(&machine.data).expect("it can be removed");
            machine.start_etcd();
        }
        self.etcd_leader();
    }

    /// Three machines with etcd, and without an array.
    pub fn with_etcd() -> Option<Machines> {
        let machines = Machines::connected();
        assert!(machines.is_some() || std::env::var_os(REQUIRED).is_none(), "the test was skipped");
        let mut machines = machines?;
        machines.all.iter_mut().for_each(Machine::start_etcd);
        machines.etcd_leader();
        Some(machines)
    }

    /// Nothing runs on them yet.
    fn connected() -> Option<Machines> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (switch, scratch) = (Namespace::new()?, Scratch::new());
        switch.ip(&["link", "add", "switch", "type", "bridge"]);
        switch.ip(&["link", "set", "switch", "up"]);
        let all = (1..=3).map(|id| Machine::new(id, &switch, &scratch)).collect::<Option<_>>()?;
        Some(Machines { all, served_after: Duration::ZERO, _switch: switch, _scratch: scratch, _alone: alone })
    }

    /// A further machine, without a member of etcd, which does not belong to the array.
    pub fn further(&self, id: u8) -> Machine {
        Machine::new(id, &self._switch, &self._scratch).expect("the others were made")
    }

    /// Does this with all machines at once.
    pub fn at_once(&mut self, work: impl Fn(&mut Machine) + Sync) {
        std::thread::scope(|scope| self.all.iter_mut().for_each(|machine| drop(scope.spawn(|| work(machine)))));
    }

    /// Makes the array, on the first machine. It is small, so that it is checked block by block quickly.
    fn init(&self) {
        self.make(&["init", "--devices", "2", "--size", "256MiB", "--volume", "vol0:64MiB"]).done();
    }

    /// Runs a command on the first machine that names all of them, and etcd.
    pub fn make(&self, arguments: &[&str]) -> Outcome {
        let machines: Vec<_> = self.all.iter().map(|one| format!("--machine={}={}", one.name, one.address)).collect();
        let members: Vec<_> = self.all.iter().map(|one| format!("http://{}:{CLIENTS}", one.address)).collect();
        let members = members.join(",");
        let machines: Vec<_> = machines.iter().map(String::as_str).collect();
        self.all[0]
            .braid(&[&["cluster"][..], arguments, &["--etcd", &members, "--insecure-network"], &machines].concat())
    }

    /// The machine whose member leads etcd, once one does.
    pub fn etcd_leader(&self) -> usize {
        let find = || self.all.iter().position(Machine::leads_etcd);
        poll_until(LONG, || find().ok_or_else(|| "no member of etcd leads".to_string()))
    }

    /// The machine whose monitor leads, and the process of that, as machine `asked` says it.
    pub fn leader(&self, asked: usize) -> (usize, u32) {
        self.all[asked].find("a monitor leads", |status| {
            let (monitor, address) = (&status["monitor"], status["monitor"]["address"].as_str()?);
            let index = self.all.iter().position(|one| address.starts_with(&format!("{}:", one.address)))?;
            monitor["pid"].as_u64().map(|_| (index, pid_of(monitor)))
        })
    }

    /// All that was acknowledged is there on each machine, and the volume is sound.
    #[track_caller]
    pub fn assert_kept(&self, mut record: Record) {
        self.all.iter().for_each(|machine| machine.net.within(|| record.verify(NBD)));
        let found = self.all[0].braid(&["volume", "check", "vol0", "--reconstruct"]).done().json();
        for wrong in ["bad", "unreadable", "unchecked"] {
            assert_eq!(number(&found[wrong]), 0, "{found}");
        }
        println!("{} operations are kept, and {} stripes are sound", record.operations, found["stripes"]);
    }
}
