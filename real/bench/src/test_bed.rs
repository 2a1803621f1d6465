//! Where it is measured: arrays, their volumes, and the ways to them; and putting everything away in the end.
//!
//! Arrays are used as people use them: by the commands of a `braid`, this one or another. So another program can be
//! measured as well, and nothing here needs to know how it keeps its folder.

use super::content::Content;
use super::load::{Target, nbd_failure};
use super::settings::{ArraySettings, Settings, Through, VolumeSettings};
use braid_admin::failure::Failure;
use braid_control::ArrayFolder;
use braid_nbd::Client;
use braid_session::Metrics;
use braid_session::Session;
use braid_shell::Address;
use braid_wire::Atomicity;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long an array may take to come up, and to go down.
const UP_WAIT: Duration = Duration::from_secs(150);
const DOWN_WAIT: Duration = Duration::from_secs(40);
/// How long a command may take. The longest waits for transactions of others.
const COMMAND_WAIT: Duration = Duration::from_secs(60);
/// Raw bytes of a device beyond what its volumes need, whatever their layout. Files are sparse, so it costs nothing.
const DEVICE_SPARE: u64 = 256 << 20;
/// By this variable an array that is brought up dies with its parent; see `braid up`.
pub const CHILD_OF: &str = "BRAID_CHILD_OF";

/// Arrays and volumes that are there to be measured.
pub struct TestBed {
    place: ArrayChoice,
    seed: u64,
    arrays: Vec<Array>,
    sessions: Vec<Session>,
    hosts: Vec<HostProcess>,
}

/// A `braid nbd` of the bench's own.
struct HostProcess {
    child: Child,
    generation: u64,
}

/// Where arrays are.
#[derive(Clone, Debug)]
pub enum ArrayChoice {
    /// In a folder that is made for them, and removed.
    Scratch(PathBuf),
    /// There is one already.
    Given(ArrayFolder),
}

struct Array {
    settings: ArraySettings,
    program: PathBuf,
    folder: ArrayFolder,
    /// If the bench has brought it up.
    up: Option<(Child, BufReader<ChildStdout>)>,
    volumes: Vec<Volume>,
}

struct Volume {
    settings: VolumeSettings,
    name: String,
    /// Where its array's NBD server listens.
    server: Address,
    content: Rc<Content>,
}

/// Where one side is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    array: usize,
    volume: usize,
}

/// The clients' ways to a volume.
pub struct Ways {
    /// One for each client.
    pub targets: Vec<Target>,
}

/// What was counted up to a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By each device.
    pub devices: Vec<Metrics>,
    /// How often each device had been started again.
    pub restarts: Vec<u64>,
    /// By the process that keeps the array up, and its host, which serves NBD.
    pub server: Metrics,
    /// By each lock server.
    pub lock_servers: Vec<Metrics>,
    /// By each host within the bench, or in a process of its own.
    pub hosts: Vec<Metrics>,
    /// Whether each of those hosts is a process of its own, so that its CPU time is its own.
    pub host_processes: bool,
}

impl TestBed {
    /// Nothing is there yet. `seed` decides what is written to volumes.
    pub fn new(place: ArrayChoice, seed: u64) -> TestBed {
        TestBed { place, seed, arrays: Vec::new(), sessions: Vec::new(), hosts: Vec::new() }
    }

    /// Brings up an array for `side`, or finds the one that is there. `bytes` is what all its volumes hold together.
    pub async fn bring_up(&mut self, side: &ArraySettings, bytes: u64) -> Result<(), Failure> {
        if self.arrays.iter().any(|array| array.settings == *side) {
            return Ok(());
        }
        let program = match &side.binary {
            Some(program) => program.clone(),
            None => std::env::current_exe()?,
        };
        let (folder, up) = match &self.place {
            ArrayChoice::Given(folder) => (folder.clone(), None),
            ArrayChoice::Scratch(dir) => {
                std::fs::create_dir_all(dir).map_err(|error| Failure::from(error).of(dir.display()))?;
                let folder = ArrayFolder::at(&dir.join(format!("array-{}", self.arrays.len())));
                let child = start(&program, side, folder.dir(), 2 * bytes + DEVICE_SPARE)?;
                (folder, Some(child))
            }
        };
        // Noted before it is awaited, so that it is put away whatever happens.
        self.arrays.push(Array { settings: side.clone(), program, folder, up, volumes: Vec::new() });
        match &mut self.arrays.last_mut().expect("just added").up {
            Some(up) => timeout(UP_WAIT, ready(up)).await.unwrap_or_else(|_| {
                let message = format!("an array to measure did not come up within {UP_WAIT:?}");
                Err(Failure::unreachable("device-slow", message))
            })?,
            None => return Ok(()),
        };
        Ok(())
    }

    /// The array that was brought up first.
    pub fn folder(&self) -> &ArrayFolder {
        &self.arrays.first().expect("one was brought up").folder
    }

    /// Makes a volume for `side` on its array, or finds the one that is there. True if it is new.
    pub async fn make_volume(&mut self, side: &Settings) -> Result<(Site, bool), Failure> {
        let index = self.arrays.iter().position(|array| array.settings == side.array).expect("it was brought up");
        let array = &mut self.arrays[index];
        if let Some(volume) = array.volumes.iter().position(|volume| volume.settings == side.volume) {
            return Ok((Site { array: index, volume }, false));
        }
        let site = Site { array: index, volume: array.volumes.len() };
        let name = format!("bench-{}-{}", std::process::id(), site.volume);
        let VolumeSettings { layout, unit, ordering, atomicity, bytes } = &side.volume;
        let seed = self.seed ^ ((index as u64) << 32 | site.volume as u64);
        // Noted before it is made, for the same reason.
        array.volumes.push(Volume {
            settings: side.volume.clone(),
            name: name.clone(),
            server: Address::loopback(0),
            content: Rc::new(Content::new(*bytes, seed)),
        });
        let (layout, ordering) = (layout.to_string(), ordering.name());
        // Another program may not know the other kind.
        let atomicity: &[&str] = match atomicity {
            Atomicity::Implied => &[],
            Atomicity::Consistent => &["--atomicity", "consistent"],
        };
        let sizes = [bytes.to_string(), unit.to_string()];
        let create = ["volume", "create", &name, "--size", &sizes[0], "--unit", &sizes[1], "--layout", &layout];
        let made = array.command(&[&create[..], &["--ordering", ordering], atomicity].concat()).await;
        if made.as_ref().is_err_and(|failure| failure.code == "volume-exists") {
            // It is not ours, so it is not ours to delete.
            array.volumes.pop();
        }
        let made = made?;
        let uri = made["nbd"].as_str().unwrap_or_default();
        let server = uri.strip_prefix("nbd://").and_then(|rest| rest.split('/').next()).unwrap_or(uri);
        array.volumes[site.volume].server = server
            .parse()
            .map_err(|_| Failure::failed("nbd", format!("'{uri}' is not an address that the bench can connect to")))?;
        Ok((site, true))
    }

    /// What the volume at `site` is called.
    pub fn name(&self, site: Site) -> &str {
        &self.volume(site).name
    }

    /// What is known of the volume at `site`.
    pub fn content(&self, site: Site) -> Rc<Content> {
        self.volume(site).content.clone()
    }

    /// Opens the volume at `site` for so many clients.
    pub async fn open(&mut self, site: Site, through: Through, clients: u16) -> Result<Ways, Failure> {
        let mut targets = Vec::new();
        for _ in 0..clients {
            let volume = self.volume(site);
            targets.push(match through {
                Through::Nbd => {
                    let client = Client::open(&volume.server, &volume.name).await.map_err(nbd_failure)?;
                    Target::Nbd(Rc::new(client))
                }
                Through::Hosts => {
                    let (name, array) = (volume.name.clone(), &self.arrays[site.array]);
                    let (host, address) = array.start_host(&name).await?;
                    self.hosts.push(host);
                    Target::Nbd(Rc::new(Client::open(&address, &name).await.map_err(nbd_failure)?))
                }
                Through::Direct => {
                    let folder = &self.arrays[site.array].folder;
                    let session = Session::start(folder, "bench").await?;
                    let client = session.client().clone();
                    let taken = session.take_in(&volume.name).await;
                    self.sessions.push(session);
                    Target::Host { client, volume: taken?.id }
                }
            });
        }
        Ok(Ways { targets })
    }

    /// Ends what [`TestBed::open`] began.
    pub async fn close(&mut self, ways: Ways) {
        drop(ways);
        self.end_hosts().await;
    }

    /// All at once: each may have to wait for what it has begun.
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

    /// What has been counted at `site` by now.
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
            let message =
                format!("device {} is {} in the middle of a measurement", unavailable["id"], unavailable["state"]);
            return Err(Failure::unreachable("device-unavailable", message));
        }
        let (hosts, lock_servers) = (list("hosts"), list("lock_servers"));
        let server = hosts.iter().find(|host| host["pid"] == status["pid"]);
        let mut of_processes = Vec::new();
        for process in &self.hosts {
            let found = hosts.iter().find(|host| host["generation"] == process.generation).ok_or_else(|| {
                Failure::unreachable("host-away", "a host of the bench has ended in the middle of a measurement")
            })?;
            of_processes.push(counters(found));
        }
        Ok(Snapshot {
            devices: devices.iter().map(counters).collect(),
            restarts: devices.iter().chain(&lock_servers).filter_map(|part| part["restarts"].as_u64()).collect(),
            server: server.map(counters).unwrap_or_default(),
            lock_servers: lock_servers.iter().map(counters).collect(),
            hosts: self.sessions.iter().map(Session::counters).chain(of_processes).collect(),
            host_processes: !self.hosts.is_empty(),
        })
    }

    /// Puts everything away that the bench has made. What can't be is told.
    pub async fn tidy(mut self) {
        self.end_hosts().await;
        for array in self.arrays {
            array.put_away().await;
        }
        if let ArrayChoice::Scratch(dir) = &self.place
            && dir.exists()
            && let Err(error) = std::fs::remove_dir_all(dir)
        {
            tracing::warn!("{} could not be removed, and may be: {error}", dir.display());
        }
    }

    fn volume(&self, site: Site) -> &Volume {
        &self.arrays[site.array].volumes[site.volume]
    }
}

impl Array {
    /// Runs a command of its `braid` on it. Returns what that prints for programs.
    async fn command(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--array").arg(self.folder.dir()).arg("--json").stdin(Stdio::null());
        // A Ctrl-C is the bench's to hear, which then ends its commands itself.
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
            let last = errors.trim().lines().last().unwrap_or("it says nothing of why").to_string();
            Failure::failed("command-failed", format!("{name} ended with {}: {last}", output.status))
        }))
    }

    async fn put_away(mut self) {
        let Some((child, _)) = self.up.take() else {
            for volume in &self.volumes {
                match self.command(&["volume", "delete", &volume.name, "--yes"]).await {
                    Err(failure) if failure.code != "no-such-volume" => {
                        let name = &volume.name;
                        tracing::warn!("{failure}: `braid volume delete {name}` removes what the bench has left");
                    }
                    _ => {}
                }
            }
            return;
        };
        end(child, &format!("the array in {}", self.folder.dir().display())).await;
    }

    /// Starts one more host of the array that serves this volume, and says where.
    async fn start_host(&self, volume: &str) -> Result<(HostProcess, Address), Failure> {
        let mut command = Command::new(&self.program);
        command.args(["nbd", "--json", "--volume", volume, "--array"]).arg(self.folder.dir());
        let mut started = spawn(command, &self.program, Stdio::null())?;
        let said = timeout(UP_WAIT, ready(&mut started)).await.unwrap_or_else(|_| {
            Err(Failure::unreachable("host-slow", format!("a host did not serve within {UP_WAIT:?}")))
        })?;
        let address = said["address"].as_str().and_then(|address| address.parse().ok());
        let (Some(address), Some(generation)) = (address, said["generation"].as_u64()) else {
            return Err(Failure::failed("nbd", format!("a host said '{said}', which the bench does not understand")));
        };
        Ok((HostProcess { child: started.0, generation }, address))
    }
}

/// Asks a process to end, and after a while makes it.
async fn end(mut child: Child, what: &str) {
    if let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid as i32)) {
        // Until it is waited for, its number is not given to another.
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(DOWN_WAIT, child.wait()).await.is_err() {
        tracing::warn!("{what} did not end within {DOWN_WAIT:?}, and is killed");
        let _ = child.kill().await;
    }
}

/// Starts an array with room for volumes, and none yet but a small one: without, one would fill it.
fn start(
    program: &Path,
    settings: &ArraySettings,
    dir: &Path,
    device_bytes: u64,
) -> Result<(Child, BufReader<ChildStdout>), Failure> {
    let block = braid_base::BLOCK_BYTES as u64;
    let mut command = Command::new(program);
    command.arg("up").arg("--dir").arg(dir).args(["--port", "0", "--json", "--volume", "unused:4KiB"]);
    command.args(["--devices", &settings.devices.to_string()]);
    command.args(["--size", &device_bytes.next_multiple_of(block).to_string()]);
    command.arg(if settings.in_process { "--in-process" } else { "--processes" });
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

/// Waits until a process says that it is ready, and what it says.
async fn ready((child, output): &mut (Child, BufReader<ChildStdout>)) -> Result<Value, Failure> {
    let mut line = String::new();
    output.read_line(&mut line).await?;
    let said: Value = serde_json::from_str(&line).unwrap_or_default();
    if said["ready"] == true {
        return Ok(said);
    }
    let status = child.wait().await?;
    let silent = || Failure::failed("up-failed", format!("it ended with {status} before it was ready"));
    Err(Failure::from_json(&said, status.code())
        .unwrap_or_else(silent)
        .of("an array or host to measure did not come up"))
}
