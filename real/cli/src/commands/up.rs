//! `braid up`: brings up a whole array on this machine, and keeps it up.

use crate::commands::{Common, size};
use crate::copies;
use crate::creation::{self, Asked, LockAcquisition};
use crate::device;
use crate::failure::Failure;
use crate::front::{self, Front};
use crate::output;
use crate::signals::{self, Signals};
use crate::supervisor::{self, Keepers, Placement, Report, Tuning, keep_fenced};
use crate::{ordering, recovery, slots, volumes};
use braid_base::units::{format_size, parse_size};
use braid_base::{DeviceId, NodeId};
use braid_control::{
    ArrayDescription, ArrayFolder, ControlError, DeviceReport, DeviceStanding, Endpoint, Leases, Moment, RunningSet,
    Supervision, VolumeEntry, VolumeState, monitor_file,
};
use braid_layout::Scheme;
use braid_nbd::{Server, uri};
use braid_session::{HEARTBEAT, Session, blocking};
use braid_shell::Address;
use braid_store::StoreConfig;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Bring up an array on this machine: make or reopen it, run its monitor and devices, serve its volumes
///
/// The first time it makes the array: sparse files in a folder, and a volume on them. Later it opens what is there; then
/// options need not be given again, and must not differ. Devices that die are started again, and so is the monitor. Ctrl-C, SIGTERM or `braid down` ends it.
///
/// Examples:
///   braid up                                       5 devices of 8 GiB, RAID 5, volume vol0
///   braid up --dir /srv/a --devices 3 --size 100G  3 devices, RAID 5 2+1
///   braid up --layout raid1:2 --devices 2 --volume db:4GiB --volume logs:1GiB
///   braid up --port 0 --json                       free ports, one line for programs once it is ready
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The array's folder [default: --array]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How many devices [default: 5]
    #[arg(long, value_name = "N")]
    devices: Option<u16>,
    /// Raw size of each device; files are sparse [default: 8GiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// raid5:4+1, raid1:2, raid0:5, … [default: RAID 5 over all devices]
    #[arg(long)]
    layout: Option<Scheme>,
    /// Stripe unit, 4KiB to 1MiB [default: 64KiB]
    #[arg(long, value_parser = size, value_name = "SIZE")]
    unit: Option<u64>,
    /// A volume and its usable size; may be given more than once [default: vol0, which takes all but a sixteenth]
    #[arg(long = "volume", value_name = "NAME:SIZE", value_parser = named_size)]
    volumes: Vec<(String, u64)>,
    /// Lock servers that share the work, where a volume's ordering needs any [default: 1]
    #[arg(long, value_name = "N")]
    lock_servers: Option<u16>,
    /// How hosts get locks at several of them: one after the other, or all at once with a time-out [default: ordered]
    #[arg(long, value_enum, value_name = "HOW")]
    lock_acquisition: Option<LockAcquisition>,
    /// How long a device or host may be silent until the others go on without it, 1s to 60s [default: 4s]
    #[arg(long, value_name = "TIME", value_parser = lease)]
    lease: Option<Duration>,
    /// Port for NBD clients on 127.0.0.1; 0 takes any free one
    #[arg(long, default_value_t = 10809)]
    port: u16,
    /// Come up though devices can't be served, as far as the others can do without them
    #[arg(long)]
    degraded: bool,
    /// How long a device stays out until a spare takes its place: 30s, 10m [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = super::span)]
    spare_after: Option<Duration>,
    /// Memory in which each device keeps what its objects hold, 64MiB or more; what is beyond is read when it is asked for [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = super::device::object_memory)]
    object_memory: Option<u64>,
    /// Run the monitor and each device in a process of its own (the default)
    #[arg(long, conflicts_with = "in_process")]
    processes: bool,
    /// Run them in this process, in one thread with the host: less to pay for each request, one core for all
    #[arg(long)]
    in_process: bool,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true, env = super::bench::CHILD_OF)]
    child_of: Option<u32>,
}

/// How long all devices together may take to serve.
const READY_WAIT: Duration = Duration::from_secs(120);
/// How long device files may be in use by somebody else at the start.
const IN_USE_WAIT: Duration = Duration::from_secs(3);
/// So many leases devices may take to get their first one, before the array is ready without.
const LEASES_AWAITED: u32 = 3;
/// The wait before another look whether they have.
const LEASES_PAUSE: Duration = Duration::from_millis(10);
/// The wait before another try to serve, when the host was shut out and can't start again.
const FRONT_PAUSE: Duration = Duration::from_secs(1);

/// Runs the array until it is asked to end.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    if let Some(parent) = arguments.child_of {
        signals::die_with(parent)?;
    }
    let mut signals = Signals::catch()?;
    let folder = match &arguments.dir {
        Some(_) if common.array_named => {
            let message = "--dir and --array are two names for the same: the array's folder";
            return Err(Failure::usage("usage", message).hint("give one of them"));
        }
        Some(dir) => ArrayFolder::at(dir),
        None => common.folder(),
    };
    let placement = if arguments.in_process { Placement::Task } else { Placement::Process };
    let tuning = Tuning { spare_after: arguments.spare_after, object_memory: arguments.object_memory };
    let asked = Asked {
        devices: arguments.devices,
        size: arguments.size,
        layout: arguments.layout,
        unit: arguments.unit,
        volumes: arguments.volumes,
        lock_servers: arguments.lock_servers,
        lock_acquisition: arguments.lock_acquisition,
        lease: arguments.lease,
    };
    // Nothing is left behind by an array that can't be.
    if !folder.dir().join("array.json").exists() {
        asked.creation()?;
    }
    let new_folder = !folder.dir().exists();
    let supervision = folder.supervise()?;
    let server = match front::bind(&Address::loopback(arguments.port)).await {
        Ok(server) => server,
        Err(failure) => {
            if new_folder {
                supervision.leave_no_trace()?;
            }
            return Err(failure);
        }
    };
    let description = open_or_create(&folder, &asked)?;
    copies::require_newest(&folder, &description)?;
    recovery::require_state(&folder, &description)?;

    let mut array = Array {
        keepers: Keepers::start(&folder, &description, placement, tuning),
        running: RunningSet::begun(std::process::id()),
        lock_servers_started: false,
        may_be_degraded: arguments.degraded,
        supervision,
        folder,
    };
    let outcome = array.run(&description, server, &mut signals, common).await;
    // Whatever happened, nobody stays behind.
    array.keepers.stop().await;
    if outcome.as_ref().is_err_and(|failure| failure.code == volumes::NO_ROOM) {
        array.supervision.discard(new_folder)?;
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

/// What runs, and what is known of it.
struct Array {
    folder: ArrayFolder,
    keepers: Keepers,
    running: RunningSet,
    lock_servers_started: bool,
    /// Devices that can't be served are done without.
    may_be_degraded: bool,
    /// Given up last of all: from then on another may run the array.
    supervision: Supervision,
}

impl Array {
    /// Brings the array up, says so, and keeps it up until it is asked to end.
    async fn run(
        &mut self,
        description: &ArrayDescription,
        server: Server,
        signals: &mut Signals,
        common: &Common,
    ) -> Result<(), Failure> {
        let session = tokio::select! {
            session = self.bring_up(description) => session?,
            () = signals.asked_to_end() => return Ok(()),
        };
        let mut front = Front::start(session, server, Vec::new());
        let address = front.address().clone();
        self.running.nbd = Some(Endpoint(address.to_string()));
        self.running.ready = true;
        self.supervision.publish(&self.running)?;
        let view = Ready {
            folder: &self.folder,
            description: &self.folder.describe()?,
            running: &self.running,
            address: &address,
        };
        output::print(common.json, || view.json(), || view.text());

        let mut watching = self.watching(&front, description.leases());
        let mut ticks = tokio::time::interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = signals.asked_to_end() => break,
                report = self.keepers.report() => self.note(&report),
                _ = ticks.tick() => match blocking(&self.folder, ArrayFolder::describe).await {
                    Ok(description) => {
                        if !self.supervision.is_published() {
                            tracing::warn!("run.json is gone from the array's folder, and is made anew");
                            self.publish();
                        }
                        match self.supervision.keep_lock() {
                            Ok(false) => {}
                            Ok(true) => tracing::warn!("up.lock is gone from the array's folder, and is made anew"),
                            Err(error) => tracing::warn!("can't make up.lock anew: {error}"),
                        }
                        self.start_lock_servers_if_needed(&description);
                        self.follow_devices(description).await;
                    }
                    Err(error) => tracing::warn!("can't see what is to run: {error}"),
                },
                loss = front.session().lost() => {
                    tracing::warn!("the host is shut out, and starts again: {loss}");
                    watching.shutdown().await;
                    front.stop().await;
                    front = tokio::select! {
                        front = reopen(&self.folder, &address) => front,
                        () = signals.asked_to_end() => return Ok(()),
                    };
                    watching = self.watching(&front, description.leases());
                }
            }
        }
        drop(watching);
        front.stop().await;
        Ok(())
    }

    /// Waits for the devices, and makes what volumes are to be there.
    async fn bring_up(&mut self, description: &ArrayDescription) -> Result<Session, Failure> {
        self.start_lock_servers_if_needed(description);
        let ours = description.devices.iter().filter(|device| device.address.is_none());
        let all_serve = self.all_serve(ours.count(), description.populated);
        tokio::time::timeout(READY_WAIT, all_serve).await.unwrap_or_else(|_| {
            Err(Failure::unreachable("device-slow", format!("the devices did not all serve within {READY_WAIT:?}")))
        })?;
        let session = Session::start(&self.folder, "up").await?;
        let volumes = async {
            match volumes::settle(&session).await {
                Err(failure) if self.may_be_degraded => {
                    tracing::warn!("what was begun with a volume can't be ended now: {failure}");
                }
                settled => settled?,
            }
            volumes::create_initial(&session).await
        };
        match volumes.await {
            Ok(()) => {
                self.await_leases(description.leases().lease()).await;
                Ok(session)
            }
            Err(failure) => {
                session.end().await;
                Err(failure)
            }
        }
    }

    /// Waits until every device that is in, and was started, has a lease from the monitor: the monitor soon takes those for away that have none,
    /// and requests that need them would fail. One that gets none for some leases is left to the monitor.
    async fn await_leases(&self, lease: Duration) {
        let begun = Instant::now();
        let pid = self.running.monitor.as_ref().and_then(|monitor| monitor.pid);
        let is_down = |id: u16| self.running.device(DeviceId(id)).is_some_and(|device| device.pid.is_none());
        let lacks_lease = |device: &DeviceReport| {
            let heard = device.heard_millis.is_some_and(|millis| Duration::from_millis(millis) < lease);
            let is_in = matches!(device.standing, DeviceStanding::In | DeviceStanding::Away);
            let has_lease = heard && device.standing != DeviceStanding::Away;
            is_in && !has_lease && device.refusal().is_none() && !is_down(device.id)
        };
        loop {
            let shown = blocking(&self.folder, |folder| folder.monitor(&Moment::now())).await.ok().flatten();
            // A monitor that was killed has left its last word.
            let shown = shown.filter(|entry| pid.is_none_or(|pid| pid == entry.pid));
            let lacking = shown.map(|entry| entry.report.devices.into_iter().filter(lacks_lease).collect::<Vec<_>>());
            if lacking.as_ref().is_some_and(Vec::is_empty) {
                return;
            }
            if begun.elapsed() > lease * LEASES_AWAITED {
                let ids: Vec<String> = lacking.iter().flatten().map(|device| device.id.to_string()).collect();
                return tracing::warn!("devices that have no lease yet: {}", ids.join(", "));
            }
            tokio::time::sleep(LEASES_PAUSE).await;
        }
    }

    /// Waits until the monitor and every device that is ours to run serve.
    async fn all_serve(&mut self, devices: usize, populated: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        while self.running.devices.len() < devices || self.running.monitor.is_none() {
            let report = self.keepers.report().await;
            match &report.state {
                Ok(_) => self.note(&report),
                // A run that was just killed may not have let go of its files yet.
                Err(failure) if is_in_use(failure) && begun.elapsed() < IN_USE_WAIT => {}
                // Only some volumes need one, and those wait.
                Err(_) if matches!(report.node, NodeId::LockServer(_)) => self.note(&report),
                // Somebody else runs it, which will do.
                Err(failure) if report.node == NodeId::Monitor && is_in_use(failure) => self.note(&report),
                // Until all has been made that is to be there from the start, all are needed.
                Err(_) if self.may_be_degraded && populated => self.note(&report),
                Err(failure) if populated && failure.hint.is_none() => {
                    let hint = "`braid up --degraded` does without it, as far as the others can";
                    return Err(failure.clone().hint(hint));
                }
                Err(failure) => return Err(failure.clone()),
            }
        }
        Ok(())
    }

    /// Once they run they go on, whether or not they are needed any longer: it costs little.
    fn start_lock_servers_if_needed(&mut self, description: &ArrayDescription) {
        if !self.lock_servers_started && description.volumes.iter().any(ordering::needs_lock_server) {
            self.lock_servers_started = true;
            self.keepers.start_lock_servers(description);
        }
    }

    /// Runs the devices that the array has, each on the disk that fills its slot.
    async fn follow_devices(&mut self, description: ArrayDescription) {
        let description = match blocking(&self.folder, move |folder| slots::fill(folder, description)).await {
            Ok(description) => description,
            Err(error) => return tracing::warn!("can't see which disks fill the slots of devices: {error}"),
        };
        self.keepers.follow(&description);
        let there = self.running.devices.len();
        self.running.devices.retain(|running| description.device(running.id).is_some());
        if self.running.devices.len() < there {
            self.publish();
        }
    }

    /// Lets others know of the fate of the monitor, a device or a lock server.
    fn note(&mut self, report: &Report) {
        if let Err(failure) = &report.state {
            tracing::warn!("{} is down, and will be started again: {failure}", supervisor::name(report.node));
        }
        if let NodeId::Device(device) = report.node
            && !self.keepers.keeps(device)
        {
            // It is gone from the array.
            return;
        }
        let among = match report.node {
            NodeId::Monitor => {
                self.running.monitor = Some(report.entry(self.running.monitor.as_ref()));
                return self.publish();
            }
            NodeId::LockServer(_) => &mut self.running.lock_servers,
            _ => &mut self.running.devices,
        };
        let entry = report.entry(among.iter().find(|other| other.id == supervisor::number(report.node)));
        among.retain(|other| other.id != entry.id);
        among.push(entry);
        among.sort_by_key(|other| other.id);
        self.publish();
    }

    fn publish(&self) {
        if let Err(error) = self.supervision.publish(&self.running) {
            // Hosts that run already go on; it is tried again with the next report.
            tracing::warn!("can't let others know where devices are: {error}");
        }
    }

    /// What keeps the array in order, by way of the front's host.
    fn watching(&self, front: &Front, leases: Leases) -> JoinSet<()> {
        let mut watching = JoinSet::new();
        let session = front.session();
        let client = session.client().clone();
        let view = session.view().clone();
        watching.spawn_local(keep_fenced(self.folder.clone(), leases, session.generation(), client.clone(), view));
        watching.spawn(ordering::keep_settled(self.folder.clone(), client.clone(), session.generation()));
        watching.spawn(slots::keep_settled(self.folder.clone(), client));
        watching.spawn(copies::keep_copied(self.folder.clone()));
        watching
    }
}

/// True if another process has it.
fn is_in_use(failure: &Failure) -> bool {
    ["device-in-use", "monitor-in-use"].contains(&failure.code.as_str())
}

/// The array in `folder` as it was created; or a new one as `asked` for.
fn open_or_create(folder: &ArrayFolder, asked: &Asked) -> Result<ArrayDescription, Failure> {
    let description = match folder.describe() {
        // A creation that failed (for want of space, say) may be tried again otherwise: nothing was served from it.
        Ok(description) if !description.populated && !asked.differences(&description.creation).is_empty() => {
            let creation = asked.creation()?;
            folder.update(|description| {
                description.devices = creation::device_entries(&creation);
                description.creation = creation;
                description.created = false;
                description.volumes.clear();
                Ok::<_, Failure>(())
            })?;
            for entry in &description.devices {
                // Those of the new creation are made anew anyhow.
                let _ = std::fs::remove_file(entry.path(folder.dir()));
            }
            folder.describe()?
        }
        Ok(description) => {
            refuse_differences(folder, asked, &description)?;
            description
        }
        Err(ControlError::NoArray { .. }) => {
            let creation = asked.creation()?;
            let description = ArrayDescription::new(creation::device_entries(&creation), creation);
            refuse_left_overs(folder, &description)?;
            folder.create(&description)?;
            description
        }
        Err(error) => return Err(error.into()),
    };
    if description.created {
        return Ok(description);
    }
    // What an earlier attempt left of it knows other devices, or the same ones otherwise.
    let _ = std::fs::remove_file(folder.dir().join(monitor_file()));
    let mut disks = BTreeMap::new();
    for entry in &description.devices {
        let config = StoreConfig { array: description.array, device: DeviceId(entry.id), size: entry.size };
        disks.insert(entry.id, device::create(&entry.path(folder.dir()), &config, true)?);
    }
    folder.update(|description| {
        for entry in &mut description.devices {
            entry.disk = disks.get(&entry.id).copied();
        }
        description.created = true;
        Ok::<_, Failure>(description.clone())
    })
}

fn refuse_differences(folder: &ArrayFolder, asked: &Asked, description: &ArrayDescription) -> Result<(), Failure> {
    let differences = asked.differences(&description.creation);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::usage("arguments-differ", differences.join("; ")).hint(format!(
        "`braid up --dir {}` without them opens the array as it is; `braid volume` adds and removes volumes; another --dir makes another array",
        folder.dir().display()
    )))
}

/// Device files without a description may be all that is left of an array: they are not written over.
fn refuse_left_overs(folder: &ArrayFolder, description: &ArrayDescription) -> Result<(), Failure> {
    let paths = description.devices.iter().map(|entry| entry.path(folder.dir()));
    match paths.into_iter().find(|path| path.exists()) {
        None => Ok(()),
        Some(path) => {
            let message = format!("{} is there, but no array.json that says what it belongs to", path.display());
            Err(Failure::failed("left-overs", message)
                .hint("`braid monitor recover --from FILE...` makes array.json anew from the copies that device files have; or bring it back; or, if the files may go, remove them; or take another --dir"))
        }
    }
}

/// Serves at the same address as before, as a new host.
async fn reopen(folder: &ArrayFolder, address: &Address) -> Front {
    loop {
        let front = async {
            let server = front::bind(address).await?;
            Ok(Front::start(Session::start(folder, "up").await?, server, Vec::new()))
        };
        match front.await {
            Ok(front) => return front,
            Err(failure) => {
                let failure: Failure = failure;
                tracing::error!("can't serve volumes, and will try again: {failure}");
                tokio::time::sleep(FRONT_PAUSE).await;
            }
        }
    }
}

/// What `braid up` says once it is ready.
struct Ready<'a> {
    folder: &'a ArrayFolder,
    description: &'a ArrayDescription,
    running: &'a RunningSet,
    address: &'a Address,
}

impl Ready<'_> {
    fn volumes(&self) -> impl Iterator<Item = (&VolumeEntry, String)> {
        // A mirror is served to programs, not over NBD.
        let ready =
            self.description.volumes.iter().filter(|volume| volume.state == VolumeState::Ready && !volume.mirror);
        ready.map(|volume| (volume, uri(self.address, &volume.name)))
    }

    fn json(&self) -> serde_json::Value {
        let volumes =
            self.volumes().map(|(volume, nbd)| json!({"name": volume.name, "size": volume.bytes, "nbd": nbd}));
        let devices = self.running.devices.iter().map(|device| {
            let entry = self.description.devices.iter().find(|entry| entry.id == device.id);
            let file = entry.map(|entry| entry.path(&self.folder.absolute()));
            json!({"id": device.id, "address": device.address, "pid": device.pid, "file": file})
        });
        json!({
            "schema": 1,
            "ready": true,
            "dir": self.folder.absolute(),
            "volumes": volumes.collect::<Vec<_>>(),
            "devices": devices.collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let dir = self.folder.dir().display();
        let layout = &self.description.creation.layout;
        let mut text = format!("array {} in {dir} is up: {layout}\n\n", self.description.array);
        for device in &self.running.devices {
            text += &format!("  device {}  {}\n", DeviceId(device.id), device.address);
        }
        text += "\n";
        for (volume, nbd) in self.volumes() {
            text += &format!("  volume {}  {}  {nbd}\n", volume.name, format_size(volume.bytes));
        }
        if let Some((volume, nbd)) = self.volumes().next() {
            text += &what_to_try(&volume.name, &nbd, &dir.to_string());
        }
        text += "\nCtrl-C ends it; `braid up` opens it again.\n";
        text
    }
}

fn what_to_try(name: &str, nbd: &str, dir: &str) -> String {
    format!(
        "
Try, in another terminal:
  nbdinfo {nbd}
  nbdcopy disk.img {nbd}            # in; the other way round: out
  qemu-img convert -f qcow2 -O raw -n disk.qcow2 {nbd}
  braid status --array {dir}
  braid volume check {name} --array {dir}

A file system on it, without kernel modules (as root):
  mkdir -p /tmp/{name} /mnt/{name}
  nbdfuse /tmp/{name} {nbd} &
  until [ -e /tmp/{name}/nbd ]; do sleep 0.1; done
  mkfs.ext4 /tmp/{name}/nbd && mount -o loop /tmp/{name}/nbd /mnt/{name}
  umount /mnt/{name} && umount /tmp/{name}      # when done
"
    )
}

/// Which leases there can be is said where the array is made.
fn lease(text: &str) -> Result<Duration, String> {
    match text.strip_suffix("ms").map(str::parse) {
        Some(Ok(millis)) => Ok(Duration::from_millis(millis)),
        _ => super::span(text).map_err(|_| "a lease is 1s to 60s: write 4s, for instance".to_string()),
    }
}

fn named_size(text: &str) -> Result<(String, u64), String> {
    let (name, size) = text.split_once(':').ok_or_else(|| format!("'{text}' is not NAME:SIZE, such as vol1:10GiB"))?;
    Ok((name.to_string(), parse_size(size).map_err(|error| error.to_string())?))
}
