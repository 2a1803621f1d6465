//! `braid cluster` and `braid agent`: an array on several machines.

use super::service;
use super::up::{json_of, text_of};
use crate::report;
use braid_admin::array_creation::CreateOptions;
use braid_admin::cluster::{self, DEVICES, NewCluster, PORT};
use braid_admin::{Failure, cluster_recovery, parent_process};
use braid_base::DeviceId;
use braid_control::{Cluster, ControlPlane, MonitorRole};
use braid_daemons::candidate;
use braid_daemons::supervisor::Tuning;
use braid_daemons::up::{self, Options, Ready};
use braid_layout::RaidLevel;
use braid_shell::Address;
use braid_terminal::arguments::size;
use braid_terminal::{Common, Signals, tell};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

commands! {
    /// Make an array on several machines, join one with a machine, back up and recover what etcd has of it
    ///
    /// The description of such an array is in etcd, which runs beside it. Each machine has a folder, and runs `braid agent`. See
    /// docs/three-machines.md.
    pub enum Command {
        Init(Init) => init,
        Token(Token) => token,
        Join(Join) => join,
        Remove(Remove) => remove,
        Adopt(Adopt) => adopt,
        Backup(Backup) => backup,
        Recover(Recover) => recover,
    }
}

// Where an array on several machines is. Its text would replace that of the commands.
#[derive(clap::Args)]
struct Places {
    /// A machine, with its name or address in the network, and the first of its ports [default port: 7400]. The first one is this machine
    #[arg(long = "machine", value_name = "NAME=HOST[:PORT]", required = true, value_parser = machine)]
    machines: Vec<(String, String, u16)>,
    /// A further machine, which runs a monitor and no devices: with two machines, it is the third that tells which of them goes on
    #[arg(long = "witness", value_name = "NAME=HOST[:PORT]", value_parser = machine)]
    witnesses: Vec<(String, String, u16)>,
    /// The members of etcd
    #[arg(long, value_name = "URL,…", required = true, value_delimiter = ',')]
    etcd: Vec<String>,
    /// Let processes listen where other machines reach them. Nothing is encrypted, and no caller is identified: the network must be trusted
    #[arg(long)]
    insecure_network: bool,
}

/// Make an array on several machines, on the first of them
///
/// Writes the array into etcd, and cluster.json into the folder that --array names. Then run `braid agent` here, and `braid cluster join` on
/// the other machines. A stripe has one unit on a machine at most, so the array survives the loss of any machine.
///
/// Example:
///   braid cluster init --array braid://lab --machine m1=10.77.0.1 --machine m2=10.77.0.2 --machine m3=10.77.0.3 \
///     --etcd http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379 --insecure-network
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Init {
    #[command(flatten)]
    places: Places,
    /// The number of devices of each machine
    #[arg(long, value_name = "N", default_value_t = DEVICES)]
    devices: u16,
    /// Raw size of each device; files are sparse [default: 8GiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// The layout of volumes [default: RAID 5 over all machines; of two, raid1:2]
    #[arg(long)]
    layout: Option<RaidLevel>,
    /// A volume and its usable size; may be given more than once [default: vol0, with half of the space]
    #[arg(long = "volume", value_name = "NAME:SIZE", value_parser = super::up::named_size)]
    volumes: Vec<(String, u64)>,
    /// Also create a file system. It gets the space that --volume leaves; without --volume, half of the space
    #[arg(long = "fs", value_name = "NAME")]
    file_system: Option<String>,
}

/// Print a token, by which one more machine joins the array
///
/// It has the array's number, a secret, and where the monitors are. It is good for one machine and for an hour. Nothing is encrypted yet: it
/// guards against mistakes, and not against those who read or write in the network.
///
/// Example: `braid cluster token --array braid://lab`, and on the new machine
///   `braid cluster join TOKEN --machine m4=10.77.0.4 --array braid://lab`
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Token {}

/// Make the folder of a machine of an array that another machine has made
///
/// With the address of a monitor, of a machine that the array has: at first, and when its folder is lost. With a token, of a further machine.
/// That one runs a monitor, too, and has no devices yet: `braid device add` there, when `braid agent` runs.
///
/// Examples:
///   braid cluster join 10.77.0.1:7400 --machine m2 --array braid://lab
///   braid cluster join TOKEN --machine m4=10.77.0.4 --array braid://lab
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Join {
    /// The HTTP interface of a monitor, HOST:PORT of a machine whose `braid agent` runs, or what `braid cluster token` prints
    #[arg(value_name = "HOST:PORT|TOKEN")]
    by: String,
    /// The name of this machine; with its name or address in the network if it is new, and the first of its ports [default port: 7400]
    #[arg(long, value_name = "NAME[=HOST[:PORT]]", value_parser = joiner)]
    machine: (String, Option<(String, u16)>),
    /// The new machine runs a monitor and no devices
    #[arg(long)]
    witness: bool,
}

/// Give up the monitor of a machine that comes never again
///
/// The others do not ask it any more before they go on without etcd. Its devices stay members of the array: remove them, or replace their
/// disks. The machine can join again with a token.
///
/// Example: `braid cluster remove m3 --array braid://lab`
#[derive(clap::Args)]
pub struct Remove {
    /// The machine, whose `braid agent` has ended
    machine: String,
}

/// Make an array of one machine one of several
///
/// What its folder says of the array goes into etcd: the description, the monitor's record, the generations. Then array.json gets the name
/// array.adopted.json, so that `braid up` can't start it any more. The array must be down. Its machine is the first one, and keeps all
/// devices; the others have none at first. Then run `braid agent` here, `braid cluster join` and `braid agent` on the others,
/// `braid device add` where their disks are, and `braid volume migrate`: until then, volumes do not survive the loss of the first machine.
///
/// Example:
///   braid cluster adopt /srv/lab --machine m1=10.77.0.1 --machine m2=10.77.0.2 --machine m3=10.77.0.3 \
///     --etcd http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379 --insecure-network
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Adopt {
    /// The folder of the array of one machine, which stays the folder of this machine
    dir: PathBuf,
    #[command(flatten)]
    places: Places,
}

/// Write all that etcd has of the array into a file
///
/// The file has the description, the monitor's record and the generations of hosts, of one moment, with a checksum. It has no data of volumes.
/// `braid cluster recover` uses it if etcd has lost its data, and devices have no copies of the description or older ones: raw disks
/// have none.
///
/// Example: `braid cluster backup /backup/lab-$(date +%F).json --array braid://lab`
#[derive(clap::Args)]
pub struct Backup {
    /// A new file
    file: PathBuf,
}

/// Bring the array back when etcd has lost its data, or was taken back to an earlier state
///
/// The members of etcd run, empty or with the old state. All agents have ended, and so have all other processes of the array. First each of
/// the other machines writes down what its devices know; then one machine, with these files and its own devices, writes the array into etcd.
/// Which devices are up to date is taken from the devices alone. The description is the newest of the copies on devices, the backup and etcd.
/// Nothing else that etcd had promised counts: all hosts are fenced, and the term, the revision and the generations continue 2^20 higher.
///
/// Examples:
///   braid cluster recover --export /tmp/m2.json --array braid://lab         on m2, and likewise on m3; then on m1:
///   braid cluster recover --from-devices m2.json m3.json --array braid://lab
///   braid cluster recover --from lab.json m2.json m3.json --array braid://lab      with a backup
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Recover {
    /// Only write what the devices of this machine know into a new file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from_devices", "exports", "without"])]
    export: Option<PathBuf>,
    /// Use the description in this backup, if devices have no newer copy
    #[arg(long, value_name = "BACKUP")]
    from: Option<PathBuf>,
    /// Use the copies of the description on devices
    #[arg(long, required_unless_present_any = ["from", "export"])]
    from_devices: bool,
    /// The files that `--export` has written on the other machines
    exports: Vec<PathBuf>,
    /// Recover without this device, whose disk is lost, and with it what it alone has; may be given more than once
    #[arg(long, value_name = "DEVICE", value_parser = braid_terminal::arguments::device)]
    without: Vec<u16>,
}

/// Run what an array on several machines has on this one
///
/// Runs the monitor and the devices of this machine, its share of the servers, and an NBD server. Its processes are restarted if they die.
/// Ends with Ctrl-C or SIGTERM.
///
/// Example: `braid agent lab`, which is short for `braid agent --array braid://lab`
#[derive(clap::Args)]
pub struct Agent {
    /// The name of the array, whose folder is /var/lib/braid/NAME [default: --array]
    name: Option<String>,
    /// The port for NBD clients on 127.0.0.1; 0 for any free port. They can also use the Unix socket run/nbd in the folder
    #[arg(long, default_value_t = 10809)]
    port: u16,
    /// Start without devices that can't be started, as far as the others can serve without them
    #[arg(long)]
    degraded: bool,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true, env = braid_bench::CHILD_OF)]
    child_of: Option<u32>,
}

async fn init(arguments: Init, common: &Common) -> Result<ExitCode, Failure> {
    let Init { places, devices, size, layout, volumes, file_system } = arguments;
    let asked = CreateOptions { size, layout, volumes, file_system, ..CreateOptions::default() };
    let control = common.control();
    let (file, description) = places.with(devices, asked).plan()?;
    Cluster::require_none(control.local())?;
    // If etcd can't be reached, nothing is left; what is written there has a name of its own.
    candidate::create(&file, description).await?;
    Cluster::create(control.local(), &file)?;
    let joining = cluster::joining(&file);
    report::print(common.json, json!({"array": file.array, "machine": file.machine, "join": joining}), || {
        let then = joining.iter().map(|join| format!("  {join}\n")).collect::<String>();
        format!("array {} is made; run `braid agent` here, and then on the others:\n{then}", file.array)
    });
    Ok(ExitCode::SUCCESS)
}

impl Places {
    fn with(self, devices: u16, asked: CreateOptions) -> NewCluster {
        let Places { machines, witnesses, etcd, insecure_network } = self;
        let machine = machines[0].0.clone();
        NewCluster { machine, machines, witnesses, etcd, insecure_network, devices, asked }
    }
}

async fn adopt(Adopt { dir, places }: Adopt, common: &Common) -> Result<ExitCode, Failure> {
    let adoption = cluster::Adoption::plan(&dir, &places.with(0, CreateOptions::default())).await?;
    let found = candidate::find(&adoption.file).await?;
    if let Some(head) = found.head.as_ref().filter(|head| head.term > 0) {
        let message = format!("etcd has this array already, and a monitor has led it (term {})", head.term);
        return Err(Failure::failed("array-exists", message).hint("a machine joins it with `braid cluster join`"));
    }
    let head = cluster_recovery::head(&adoption.content.machines, 0);
    candidate::replace(&adoption.file, found, (head, &adoption.content, &adoption.disk)).await?;
    let (file, moved) = adoption.finish()?;
    let joining = cluster::joining(&file);
    let json = json!({"array": file.array, "machine": file.machine, "moved": moved, "join": joining});
    report::done(common.json, json, || {
        let then = joining.iter().map(|join| format!("  {join}\n")).collect::<String>();
        let moved = moved.display();
        format!(
            "array {} is in etcd now, and array.json is {moved}; run `braid agent` here, and then on the others:\n{then}",
            file.array
        )
    })
}

async fn backup(Backup { file: path }: Backup, common: &Common) -> Result<ExitCode, Failure> {
    let control = common.control();
    let found = candidate::find(cluster_of(&control)?.file()?).await?;
    let backup = cluster_recovery::Backup::of(&found)?;
    cluster_recovery::write(&path, "backup", backup.description.array, &backup)?;
    let (revision, term) = (backup.description.revision, backup.term);
    report::done(common.json, json!({"file": path, "revision": revision, "term": term}), || {
        format!("{} has the array as it was in term {term}, with revision {revision}\n", path.display())
    })
}

async fn recover(arguments: Recover, common: &Common) -> Result<ExitCode, Failure> {
    let Recover { export, from, from_devices: _, exports, without } = arguments;
    let control = common.control();
    let cluster = cluster_of(&control)?;
    let (file, folder) = (cluster.file()?, cluster.folder());
    // While it is held, no process of the array runs here.
    let _supervision = folder.supervise()?;
    let backup =
        from.map(|path| cluster_recovery::read::<cluster_recovery::Backup>(&path, "backup", file.array)).transpose()?;
    let monitors = cluster.monitors().await?;
    if let Some((machine, _)) = monitors.iter().find(|(_, role)| **role != MonitorRole::Silent) {
        let message = format!("the monitor of machine {machine} runs");
        return Err(
            Failure::failed("monitor-running", message).hint("end `braid agent` on all machines, and try again")
        );
    }
    let (own, unread) = cluster_recovery::export(folder, file, backup.as_ref().map(|backup| &backup.description))?;
    unread.iter().for_each(|failure| tell!("left out: {failure}"));
    if let Some(path) = export {
        if own.devices.is_empty() && !file.own().witness {
            return Err(Failure::unreachable("no-devices", "no device of this machine can be read")
                .hint("name a backup as well (--from FILE): raw disks have no copies of the description"));
        }
        cluster_recovery::write(&path, "export", file.array, &own)?;
        let devices: Vec<_> = own.devices.iter().map(|device| device.device.0).collect();
        let unread: Vec<_> = unread.iter().map(|failure| failure.message.clone()).collect();
        return report::done(common.json, json!({"file": path, "devices": devices, "unread": unread}), || {
            format!("{} has what {} devices of this machine know\n", path.display(), devices.len())
        });
    }
    let mut all = vec![own];
    for path in &exports {
        let export: cluster_recovery::Export = cluster_recovery::read(path, "export", file.array)?;
        match all.iter().position(|one| one.machine == export.machine) {
            // This machine was read just now.
            Some(0) => {}
            Some(_) => {
                let message = format!("two exports are of machine {}", export.machine);
                return Err(Failure::usage("export-twice", message).hint("name one of each machine"));
            }
            None => all.push(export),
        }
    }
    let found = candidate::find_unled(file).await?;
    let without = without.into_iter().map(DeviceId).collect();
    let recovered = cluster_recovery::recover((folder, file), &all, backup.as_ref(), &found, without)?;
    let head = cluster_recovery::head(&recovered.content.machines, recovered.term);
    candidate::replace(file, found, (head, &recovered.content, &recovered.record.disk_image())).await?;
    let (was, epoch) = (recovered.revision, recovered.record.membership().epoch.0);
    let (now, last, term) = (recovered.content.description.revision, recovered.content.last.0, recovered.term);
    let left_out: Vec<_> = recovered.record.left_out.iter().map(|device| device.0).collect();
    let json = json!({"array": file.array, "from_revision": was, "revision": now, "epoch": epoch, "generations": last,
        "term": term, "left_out": left_out});
    report::done(common.json, json, || {
        let replace =
            left_out.iter().map(|id| format!("then give device {id} another disk: `braid device replace {id}`\n"));
        format!(
            "the array is in etcd again, with the description of revision {was}, now {now}; all hosts up to {last} are fenced\n\
             run `braid agent` on each machine\n{}",
            replace.collect::<String>()
        )
    })
}

fn cluster_of(control: &ControlPlane) -> Result<&Cluster, Failure> {
    let message = || format!("{} is no folder of a machine of an array on several", control.place().display());
    control.cluster().ok_or_else(|| Failure::usage("no-cluster", message()))
}

async fn token(_: Token, common: &Common) -> Result<ExitCode, Failure> {
    let (token, life) = cluster::token(cluster_of(&common.control())?).await?;
    report::done(common.json, json!({"token": token, "seconds": life.as_secs()}), || format!("{token}\n"))
}

async fn join(Join { by, machine: (name, at), witness }: Join, common: &Common) -> Result<ExitCode, Failure> {
    let file = cluster::join(&common.control(), &by, (name.clone(), at, witness)).await?;
    report::done(common.json, json!({"array": file.array, "machine": name}), || {
        format!("this is machine {name} of array {}; run `braid agent` here\n", file.array)
    })
}

async fn remove(Remove { machine }: Remove, common: &Common) -> Result<ExitCode, Failure> {
    cluster::remove(cluster_of(&common.control())?, &machine).await?;
    report::done(common.json, json!({"removed": machine}), || format!("machine {machine} has no monitor any more\n"))
}

/// Runs this machine's part of the array until it is asked to end.
pub async fn agent(Agent { name, port, degraded, child_of }: Agent, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(child_of)?;
    let mut signals = Signals::catch()?;
    let control = name.map_or_else(|| common.control(), |name| ControlPlane::at(Path::new(&format!("braid://{name}"))));
    cluster_of(&control).map_err(|failure| {
        failure
            .hint("make one with `braid cluster init` or `braid cluster join`; `braid up` runs an array of one machine")
    })?;
    let options = Options {
        nodes: up::NODES,
        tuning: Tuning::default(),
        degraded,
        log_in_folder: false,
        listen: Address::loopback(port),
        unavailable: None,
    };
    let ready = |ready: &Ready| {
        report::print(common.json, json_of(ready), || text_of(ready));
        service::tell_ready();
    };
    up::run(control, &CreateOptions::default(), options, ready, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Reads `NAME` or what [`machine`] reads.
fn joiner(text: &str) -> Result<(String, Option<(String, u16)>), String> {
    if !text.contains('=') {
        return Ok((text.to_string(), None));
    }
    machine(text).map(|(name, host, port)| (name, Some((host, port))))
}

/// Reads `NAME=HOST` or `NAME=HOST:PORT`.
fn machine(text: &str) -> Result<(String, String, u16), String> {
    let (name, at) = text.split_once('=').ok_or("write NAME=HOST or NAME=HOST:PORT")?;
    let (host, port) = match at.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| format!("'{port}' is no port"))?),
        None => (at, PORT),
    };
    Ok((name.to_string(), host.to_string(), port))
}
