//! The test bed: the arrays that are measured, their volumes, the connections to them, and their removal at the end.
//!
//! Arrays are operated as users operate them: with the commands of a `braid`, this build or another one. Therefore another build can be
//! measured, too, and nothing here depends on the content of an array's folder.

use super::content::Content;
use super::load::{Target, nbd_failure};
use super::settings::{ArraySettings, Settings, Through, VolumeSettings};
use crate::prelude::*;
use braid_admin::parent_process::THIS_PROGRAM;
use braid_control::ControlPlane;
use braid_nbd::Client;
use braid_ordering::Atomicity;
use braid_session::Metrics;
use braid_shell::Address;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;
use std::rc::Rc;
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long an array may take to start.
const UP_WAIT: Duration = Duration::from_secs(150);
const DOWN_WAIT: Duration = Duration::from_secs(40);
/// How long a command may take. The longest commands wait for transactions of other hosts.
const COMMAND_WAIT: Duration = Duration::from_secs(60);
/// Raw bytes of a device beyond what its volumes need with any layout. Files are sparse, so they cost nothing.
const DEVICE_SPARE: u64 = 256 << 20;
/// With this variable an array dies with its parent process; see `braid up`.
pub const CHILD_OF: &str = "BRAID_CHILD_OF";

/// The arrays and volumes to be measured.
pub struct TestBed {
    place: ArrayChoice,
    seed: u64,
    arrays: Vec<Array>,
    sessions: Vec<Session>,
    hosts: Vec<HostProcess>,
}

/// A `braid nbd` process of the bench.
struct HostProcess {
    child: Child,
    generation: u64,
}

#[derive(Clone, Debug)]
pub enum ArrayChoice {
    /// In a folder that is created for them, and removed.
    Scratch(PathBuf),
    /// An existing array.
    Given(ControlPlane),
}

struct Array {
    settings: ArraySettings,
    program: PathBuf,
    control: ControlPlane,
    /// The process, if the bench has started the array.
    up: Option<(Child, BufReader<ChildStdout>)>,
    volumes: Vec<Volume>,
    /// The names of file systems that the bench has created.
    file_systems: Vec<String>,
}

struct Volume {
    settings: VolumeSettings,
    name: String,
    /// The addresses of its array's NBD servers.
    servers: Vec<Address>,
    content: Rc<Content>,
}

/// The array and volume of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    array: usize,
    volume: usize,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub devices: Vec<Metrics>,
    /// How often each device has been restarted.
    pub restarts: Vec<u64>,
    /// Of the processes with hosts that serve NBD: the one that runs the array, and nodes.
    pub server: Metrics,
    pub lock_servers: Vec<Metrics>,
    /// Of each host, within the bench or in a process of its own.
    pub hosts: Vec<Metrics>,
    /// True if each of those hosts has a process of its own, whose CPU time is that of the host.
    pub host_processes: bool,
}

impl TestBed {
    /// An empty test bed. `seed` determines what is written to volumes.
    pub fn new(place: ArrayChoice, seed: u64) -> TestBed {
        TestBed { place, seed, arrays: Vec::new(), sessions: Vec::new(), hosts: Vec::new() }
    }

    /// Starts an array for `side`, or uses the existing one. `bytes` is the total size of its volumes.
    pub async fn bring_up(&mut self, side: &ArraySettings, bytes: u64) -> Result<(), Failure> {
        if self.arrays.iter().any(|array| array.settings == *side) {
            return Ok(());
        }
        let program = side.binary.clone().unwrap_or_else(|| THIS_PROGRAM.into());
        let (control, up) = match &self.place {
            ArrayChoice::Given(control) => (control.clone(), None),
            ArrayChoice::Scratch(dir) => {
                std::fs::create_dir_all(dir).map_err(|error| Failure::from(error).of(dir.display()))?;
                let control = ControlPlane::at(&dir.join(format!("array-{}", self.arrays.len())));
                let child = start(&program, side, control.place(), 2 * bytes + DEVICE_SPARE)?;
                (control, Some(child))
            }
        };
        // Recorded before the wait, so that it is removed in any case.
        let (settings, volumes, file_systems) = (side.clone(), Vec::new(), Vec::new());
        self.arrays.push(Array { settings, program, control, up, volumes, file_systems });
        if let Some(up) = &mut self.arrays.last_mut().expect("an array was added").up {
            timeout(UP_WAIT, ready(up)).await.unwrap_or_else(|_| {
                let message = format!("an array for the measurement did not start within {UP_WAIT:?}");
                Err(Failure::unreachable("device-slow", message))
            })?;
        }
        Ok(())
    }

    /// The folder of the first array.
    pub fn control(&self) -> &ControlPlane {
        &self.arrays.first().expect("one was brought up").control
    }

    /// Creates a file system on the first array, with these further arguments, and returns its name.
    pub async fn make_file_system(
        &mut self,
        layout: RaidLevel,
        bytes: u64,
        arguments: &[&str],
    ) -> Result<String, Failure> {
        let array = self.arrays.first_mut().expect("one was brought up");
        let name = match array.file_systems.len() {
            0 => format!("bench-fs-{}", std::process::id()),
            number => format!("bench-fs-{}-{number}", std::process::id()),
        };
        array.file_systems.push(name.clone());
        let (bytes, layout) = (bytes.to_string(), layout.to_string());
        let create = ["fs", "create", &name, "--size", &bytes, "--layout", &layout];
        array.command(&[&create, arguments].concat()).await?;
        Ok(name)
    }

    /// Sets how a file system on the first array commits operations on several metadata servers.
    pub async fn set_commit_protocol(&self, name: &str, protocol: &str) -> Result<(), Failure> {
        let array = self.arrays.first().expect("one was brought up");
        array.command(&["fs", "set-commit-protocol", name, protocol]).await.map(|_| ())
    }

    /// Creates a volume for `side` on its array, or uses the existing one. Returns true if it is new.
    pub async fn make_volume(&mut self, side: &Settings) -> Result<(Site, bool), Failure> {
        let index = self.arrays.iter().position(|array| array.settings == side.array).expect("it was brought up");
        let array = &mut self.arrays[index];
        if let Some(volume) = array.volumes.iter().position(|volume| volume.settings == side.volume) {
            return Ok((Site { array: index, volume }, false));
        }
        let site = Site { array: index, volume: array.volumes.len() };
        let name = format!("bench-{}-{}", std::process::id(), site.volume);
        let VolumeSettings { layout, unit, ordering, atomicity, parity_site, bytes } = &side.volume;
        let seed = self.seed ^ ((index as u64) << 32 | site.volume as u64);
        // Recorded before it is created, for the same reason.
        array.volumes.push(Volume {
            settings: side.volume.clone(),
            name: name.clone(),
            servers: Vec::new(),
            content: Rc::new(Content::new(*bytes, seed)),
        });
        let (layout, ordering) = (layout.to_string(), ordering.name());
        // Another build may not know this option.
        let atomicity: &[&str] = match atomicity {
            Atomicity::Implied => &[],
            Atomicity::Consistent => &["--atomicity", "consistent"],
        };
        let parity: &[&str] =
            if *parity_site == SitePolicy::OF_NEW_VOLUMES { &[] } else { &["--parity-site", parity_site.name()] };
        let sizes = [bytes.to_string(), unit.to_string()];
        let create = ["volume", "create", &name, "--size", &sizes[0], "--unit", &sizes[1], "--layout", &layout];
        let made = array.command(&[&create[..], &["--ordering", ordering], atomicity, parity].concat()).await;
        if made.as_ref().is_err_and(|failure| failure.code == "volume-exists") {
            // It was not created by the bench, so the bench must not delete it.
            array.volumes.pop();
        }
        let made = made?;
        let uri = made["nbd"].as_str().unwrap_or_default();
        let server = uri.strip_prefix("nbd://").and_then(|rest| rest.split('/').next()).unwrap_or(uri);
        let mut servers = vec![server.to_string()];
        if side.array.nodes > 0 {
            let status = array.command(&["status"]).await?;
            let nodes = status["nodes"].as_array().into_iter().flatten();
            servers = nodes.filter_map(|node| Some(node["nbd"].as_str()?.to_string())).collect();
        }
        let servers = servers.iter().map(|server| server.parse()).collect::<Result<_, _>>();
        array.volumes[site.volume].servers = servers
            .map_err(|_| Failure::failed("nbd", format!("'{uri}' is not an address that the bench can connect to")))?;
        Ok((site, true))
    }

    pub fn name(&self, site: Site) -> &str {
        &self.volume(site).name
    }

    pub fn content(&self, site: Site) -> Rc<Content> {
        self.volume(site).content.clone()
    }

    /// Connects this many clients to the volume at `site`.
    pub async fn open(&mut self, site: Site, through: Through, clients: u16) -> Result<Vec<Target>, Failure> {
        let mut targets = Vec::new();
        for number in 0..usize::from(clients) {
            let volume = self.volume(site);
            targets.push(match through {
                Through::Nbd => {
                    let server = &volume.servers[number % volume.servers.len()];
                    let client = Client::open(server, &volume.name).await.map_err(nbd_failure)?;
                    Target::Nbd(Rc::new(client))
                }
                Through::Hosts => {
                    let (name, array) = (volume.name.clone(), &self.arrays[site.array]);
                    let (host, address) = array.start_host(&name).await?;
                    self.hosts.push(host);
                    Target::Nbd(Rc::new(Client::open(&address, &name).await.map_err(nbd_failure)?))
                }
                Through::Direct => {
                    let control = &self.arrays[site.array].control;
                    let session = Session::start(control, "bench").await?;
                    let client = session.client().clone();
                    let taken = session.take_in(&volume.name).await;
                    self.sessions.push(session);
                    Target::Host { client, volume: taken?.id }
                }
            });
        }
        Ok(targets)
    }

    /// Closes what [`TestBed::open`] has opened.
    pub async fn close(&mut self, targets: Vec<Target>) {
        drop(targets);
        self.end_hosts().await;
    }

    /// Ends all hosts concurrently, because each may have to wait for its operations.
    async fn end_hosts(&mut self) {
        let mut ending = JoinSet::new();
        for session in self.sessions.drain(..) {
            ending.spawn_local(session.end());
        }
        for host in self.hosts.drain(..) {
            ending.spawn_local(async move { end(host.child, "a host of the bench").await });
        }
        while ending.join_next().await.is_some() {}
    }

    /// The current counters of the array and hosts at `site`.
    pub async fn snapshot(&self, site: Site) -> Result<Snapshot, Failure> {
        let array = &self.arrays[site.array];
        let status = array.command(&["status"]).await?;
        let counters = |entry: &Value| -> Metrics {
            let counters = entry["counters"].as_object().into_iter().flatten();
            counters.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
        };
        let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
        let devices = list("devices");
        if let Some(unavailable) = devices.iter().find(|device| device["state"] != "serving") {
            let message = format!("device {} is {} during a measurement", unavailable["id"], unavailable["state"]);
            return Err(Failure::unreachable("device-unavailable", message));
        }
        let (hosts, lock_servers) = (list("hosts"), list("lock_servers"));
        // The host of `braid up`, and those of nodes.
        let mut server = Metrics::default();
        let nodes = list("nodes");
        let serves = |host: &&Value| host["pid"] == status["pid"] || nodes.iter().any(|it| it["pid"] == host["pid"]);
        hosts.iter().filter(serves).for_each(|host| server.add(&counters(host)));
        let mut of_processes = Vec::new();
        for process in &self.hosts {
            let found = hosts.iter().find(|host| host["generation"] == process.generation).ok_or_else(|| {
                Failure::unreachable("host-ended", "a host of the bench has ended during a measurement")
            })?;
            of_processes.push(counters(found));
        }
        Ok(Snapshot {
            devices: devices.iter().map(counters).collect(),
            restarts: devices.iter().chain(&lock_servers).filter_map(|part| part["restarts"].as_u64()).collect(),
            server,
            lock_servers: lock_servers.iter().map(counters).collect(),
            hosts: self.sessions.iter().map(Session::counters).chain(of_processes).collect(),
            host_processes: !self.hosts.is_empty(),
        })
    }

    /// Removes everything that the bench has created. Failures are logged.
    pub async fn tidy(mut self) {
        self.end_hosts().await;
        for array in self.arrays {
            array.put_away().await;
        }
        if let ArrayChoice::Scratch(dir) = &self.place
            && dir.exists()
            && let Err(error) = std::fs::remove_dir_all(dir)
        {
            tracing::warn!("{} could not be removed; remove it by hand: {error}", dir.display());
        }
    }

    fn volume(&self, site: Site) -> &Volume {
        &self.arrays[site.array].volumes[site.volume]
    }
}

impl Array {
    /// Runs a command of the array's `braid` on it. Returns its JSON output.
    async fn command(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--array").arg(self.control.place()).arg("--json").stdin(Stdio::null());
        // The bench handles Ctrl-C itself, and then ends its commands.
        command.process_group(0).kill_on_drop(true);
        let name = format!("{} {}", self.program.display(), arguments.join(" "));
        let output = timeout(COMMAND_WAIT, command.output()).await.unwrap_or_else(|_| {
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, format!("it took longer than {COMMAND_WAIT:?}")))
        });
        let output = output.map_err(|error| Failure::from(error).of(&name))?;
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() && said.is_object() {
            return Ok(said);
        }
        Err(Failure::from_json(&said, output.status.code()).unwrap_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last = errors.trim().lines().last().unwrap_or("it printed no reason").to_string();
            Failure::failed("command-failed", format!("{name} ended with {}: {last}", output.status))
        }))
    }

    async fn put_away(mut self) {
        let Some((child, _)) = self.up.take() else {
            for name in &self.file_systems {
                if let Err(failure) = self.command(&["fs", "delete", name, "--yes"]).await {
                    tracing::warn!("{failure}: remove the bench's file system with `braid fs delete {name}`");
                }
            }
            for volume in &self.volumes {
                match self.command(&["volume", "delete", &volume.name, "--yes"]).await {
                    Err(failure) if failure.code != "no-such-volume" => {
                        let name = &volume.name;
                        tracing::warn!("{failure}: remove the bench's volume with `braid volume delete {name}`");
                    }
                    _ => {}
                }
            }
            return;
        };
        end(child, &format!("the array in {}", self.control.place().display())).await;
    }

    /// Starts another host of the array that serves this volume, and returns its address.
    async fn start_host(&self, volume: &str) -> Result<(HostProcess, Address), Failure> {
        let mut command = Command::new(&self.program);
        command.args(["nbd", "--json", "--volume", volume, "--array"]).arg(self.control.place());
        let mut started = spawn(command, &self.program, Stdio::null())?;
        let said = timeout(UP_WAIT, ready(&mut started)).await.unwrap_or_else(|_| {
            Err(Failure::unreachable("host-slow", format!("a host did not serve within {UP_WAIT:?}")))
        })?;
        let address = said["address"].as_str().and_then(|address| address.parse().ok());
        let (Some(address), Some(generation)) = (address, said["generation"].as_u64()) else {
            return Err(Failure::failed("nbd", format!("a host printed '{said}', which the bench can't parse")));
        };
        Ok((HostProcess { child: started.0, generation }, address))
    }
}

/// Asks a process to end, and kills it after a while.
async fn end(mut child: Child, what: &str) {
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid as i32)) {
        // Its PID is not reused until it is waited for.
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(DOWN_WAIT, child.wait()).await.is_err() {
        tracing::warn!("{what} did not end within {DOWN_WAIT:?}, and is killed");
        let _ = child.kill().await;
    }
}

/// Starts an array with space for volumes, and only a small initial volume: by default, one would fill the array.
fn start(
    program: &Path,
    settings: &ArraySettings,
    dir: &Path,
    device_bytes: u64,
) -> Result<(Child, BufReader<ChildStdout>), Failure> {
    let block = braid_base::BLOCK_BYTES as u64;
    let mut command = Command::new(program);
    command.args(["up", "--yes", "--dir"]).arg(dir).args(["--port", "0", "--json", "--volume", "unused:4KiB"]);
    command.args(["--devices", &settings.devices.to_string()]);
    command.args(["--size", &device_bytes.next_multiple_of(block).to_string()]);
    match settings.nodes {
        // Another build may not know nodes.
        0 => command.arg("--processes"),
        nodes => command.args(["--nodes", &nodes.to_string()]),
    };
    spawn(command, program, Stdio::null())
}

/// Starts a process that dies with this one.
pub fn spawn(mut command: Command, program: &Path, input: Stdio) -> Result<(Child, BufReader<ChildStdout>), Failure> {
    command.env(CHILD_OF, std::process::id().to_string()).env_remove("BRAID_ARRAY");
    command.stdin(input).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| Failure::from(error).of(program.display()))?;
    let output = BufReader::new(child.stdout.take().expect("it was asked for"));
    Ok((child, output))
}

/// Waits until a process announces that it is ready, and returns its announcement.
async fn ready((child, output): &mut (Child, BufReader<ChildStdout>)) -> Result<Value, Failure> {
    let said = braid_admin::launch::ready(child, output).await;
    said.map_err(|failure| failure.of("an array or host for the measurement did not start"))
}
