//! Three machines with an array on them, for acceptance tests. Each is a network namespace, with [mounts and a boot clock](place) of its own, a
//! [member of etcd](etcd), a folder and an agent.
//!
//! Their links meet in a switch: a bridge in a namespace of its own, so nothing of this machine's network is touched. Tests kill processes
//! and machines while a [load](braid_processes::load) writes and verifies. The commands are those of `docs/three-machines.md`. It needs root.

pub mod cuts;
pub mod etcd;
pub mod place;

use crate::etcd::CLIENTS;
use crate::place::Place;
use braid_processes::array::{number, pid_of};
use braid_processes::load::{Plan, Record};
use braid_processes::network::Namespace;
use braid_processes::program::braid_bin;
use braid_processes::scratch::path_text;
use braid_processes::{Client, Daemon, Load, Outcome, Scratch, poll_until, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where clients of each machine find the volume, in its namespace.
pub const NBD: &str = "nbd://127.0.0.1:10809/vol0";
/// Longer than everything takes that is waited for.
pub const LONG: Duration = Duration::from_secs(60);
/// The longest pause while nothing is lost that the volume needs.
pub const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The longest pause after the loss of a machine. 5 s are expected; 10 s if the leading monitor and the leader of etcd were there.
pub const LOSS_PAUSE_MAX: Duration = Duration::from_secs(20);
/// Within this time, a lease that is not renewed would have ended, and what follows from that would have begun.
pub const NOTICED: Duration = Duration::from_secs(8);
/// More than a load writes to.
const LOAD_BYTES: u64 = 1 << 20;
/// Only where this variable is not set, a test may be skipped.
const REQUIRED: &str = "BRAID_MACHINES";
/// How long a member of etcd may take to say what it is.
const ETCD_WAIT: Duration = Duration::from_secs(2);

/// One set of machines exists at a time: what tests measure depends on what else runs.
static ALONE: Mutex<()> = Mutex::new(());

/// A machine. All that runs on it is killed when this is dropped.
#[derive(Debug)]
pub struct Machine {
    pub name: String,
    pub address: String,
    /// Its folder of the array.
    dir: PathBuf,
    /// How commands name that.
    array: String,
    /// The folder of its member of etcd.
    data: PathBuf,
    log: PathBuf,
    etcd: Option<Child>,
    agent: Option<Daemon>,
    /// The program that its agent runs.
    pub program: PathBuf,
    pub place: Place,
    net: Namespace,
}

/// Three machines that are connected.
#[derive(Debug)]
pub struct Machines {
    // Fields are dropped in this order.
    pub all: Vec<Machine>,
    /// From the first command until the volume was served on all of them.
    pub served_after: Duration,
    switch: Namespace,
    scratch: Scratch,
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
        let (dir, data, log, lib) = (path("array"), path("etcd"), path("log"), path("lib"));
        let place = Place::new(id, &net, &lib)?;
        let array = path_text(&dir).to_string();
        Some(Machine {
            name,
            address,
            dir,
            array,
            data,
            log,
            etcd: None,
            agent: None,
            program: braid_bin(),
            place,
            net,
        })
    }

    /// Runs a command of `braid` on it, with `--json`.
    pub fn braid(&self, arguments: &[&str]) -> Outcome {
        let program = [path_text(&self.program)];
        self.place.run(&[&program, arguments, &["--array", &self.array, "--json"]].concat())
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
        self.try_start_agent().unwrap_or_else(|outcome| panic!("{outcome}"));
        let served = || self.net.within(|| Client::try_open(NBD)).map(drop);
        poll_until(LONG, || served().map_err(|error| format!("{NBD} on {}: {error}", self.name)));
    }

    /// Starts its agent, which may fail.
    pub fn try_start_agent(&mut self) -> Result<(), Outcome> {
        self.agent = Some(self.start(&["agent", "--array", &self.array, "--json"])?);
        Ok(())
    }

    /// Starts its agent, which can't become ready.
    pub fn spawn_agent(&self) -> Child {
        let (words, program) = (self.place.launcher(), path_text(&self.program));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args([program, "agent", "--array", &self.array]);
        command.stderr(Stdio::null()).spawn().expect("env is part of every Debian")
    }

    /// Starts a process of its program.
    fn start(&self, arguments: &[&str]) -> Result<Daemon, Outcome> {
        let instead = format!("exec {} \"$@\"", path_text(&self.program));
        let shell = if self.program == braid_bin() { &[][..] } else { &["sh", "-c", &instead] };
        Daemon::start_by(&[&self.place.launcher(), shell].concat(), arguments, &self.log)
    }

    /// Ends its agent in order.
    pub fn stop_agent(&mut self) {
        let status = self.agent.take().expect("it runs").end(Signal::TERM);
        assert_eq!(status, Some(0), "{}", self.name);
    }

    /// Leaves it nothing but the program, what that needs of the system, and an array's name. Returns its root.
    pub fn make_bare(&mut self) -> PathBuf {
        let root = PathBuf::from(self.file("root"));
        self.place.make_bare(&root);
        self.array = "braid://lab".to_string();
        self.place.seen(&root)
    }

    /// Kills its agent, with all that that has started.
    pub fn kill_agent(&mut self) {
        drop(self.agent.take());
        let own = |pid: &&str| self.etcd.as_ref().is_none_or(|etcd| **pid != etcd.id().to_string());
        poll_until(LONG, || {
            let listed = run("ip", &["netns", "pids", self.net.name()]).stdout;
            listed.lines().filter(own).for_each(kill);
            if listed.lines().any(|pid| own(&pid)) { Err(listed) } else { Ok(()) }
        });
    }

    /// Runs an array of one machine in its folder, with this command, until the next one is started.
    pub fn up(&mut self, arguments: &[&str]) {
        let words = [&["up", "--dir", path_text(&self.dir), "--json"][..], arguments].concat();
        self.agent = Some(self.start(&words).unwrap_or_else(|outcome| panic!("{outcome}")));
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
        if let Some(mut member) = self.etcd.take() {
            // It may have ended by itself.
            let _ = member.kill();
            member.wait().expect("it can be waited for");
        }
        self.kill_agent();
    }
}

/// It may have ended by itself.
fn kill(pid: &str) {
    let _ = pid.parse().ok().and_then(Pid::from_raw).map(|pid| kill_process(pid, Signal::KILL));
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
        machines.join_all();
        machines.served_after = begun.elapsed();
        println!("all machines serve the volume after {:?}", machines.served_after);
        Some(machines)
    }

    /// All machines but the first join the array; then all serve its volume.
    pub fn join_all(&mut self) {
        let first = self.all[0].address.clone();
        self.at_once(|machine| {
            if machine.address != first {
                machine.join(&format!("{first}:7400"));
            }
            machine.start_agent();
        });
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

    /// Writes the array into etcd again, on the first machine, from what the devices of all machines know. No agent runs.
    #[track_caller]
    pub fn recover(&self, from: &[&str]) {
        let files: Vec<_> = self.all[1..].iter().map(|machine| machine.file("export.json")).collect();
        for (machine, file) in self.all[1..].iter().zip(&files) {
            let _ = std::fs::remove_file(file);
            machine.braid(&["cluster", "recover", "--export", file]).done();
        }
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        self.all[0].braid(&[&["cluster", "recover"], from, &files].concat()).done();
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
        Some(Machines { all, served_after: Duration::ZERO, switch, scratch, _alone: alone })
    }

    /// A fourth machine with the folder of another one. It takes the address of that for its own, but does not take it away: all packets for
    /// the address go to the original. Nothing runs on it yet.
    pub fn copied(&self, index: usize) -> Machine {
        let copy = Machine::new(4, &self.switch, &self.scratch).expect("there were three");
        copy.net.ip(&["address", "add", &format!("{}/32", self.all[index].address), "dev", "lo"]);
        let (from, to) = (format!("{}/.", self.all[index].dir()), copy.dir());
        std::fs::create_dir(to).expect("it is new");
        // Sockets are copied, too, and what changes meanwhile.
        run("cp", &["--archive", "--sparse=always", &from, to]);
        copy
    }

    /// A further machine, without a member of etcd, which does not belong to the array.
    pub fn further(&self, id: u8) -> Machine {
        Machine::new(id, &self.switch, &self.scratch).expect("the others were made")
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
            let index = self.at(address)?;
            monitor["pid"].as_u64().map(|_| (index, pid_of(monitor)))
        })
    }

    fn at(&self, address: &str) -> Option<usize> {
        self.all.iter().position(|one| address.starts_with(&format!("{}:", one.address)))
    }

    /// The machine of lock server 0, as machine `asked` says it.
    pub fn lock_server(&self, asked: usize) -> usize {
        let find = |status: &Value| self.at(status["lock_servers"][0]["address"].as_str()?);
        self.all[asked].find("the lock server serves", find)
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
