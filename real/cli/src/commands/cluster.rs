//! `braid cluster` and `braid agent`: an array on several machines.

use super::service;
use super::up::{json_of, text_of};
use crate::report;
use braid_admin::array_creation::CreateOptions;
use braid_admin::cluster::{self, DEVICES, NewCluster, PORT};
use braid_admin::{Failure, parent_process};
use braid_control::{Cluster, ControlPlane};
use braid_daemons::candidate;
use braid_daemons::supervisor::Tuning;
use braid_daemons::up::{self, Options, Ready};
use braid_layout::RaidLevel;
use braid_shell::Address;
use braid_terminal::arguments::size;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

commands! {
    /// Make an array on several machines, or join one with a machine
    ///
    /// The description of such an array is in etcd, which runs beside it. Each machine has a folder, and runs `braid agent`. See
    /// docs/three-machines.md.
    pub enum Command {
        Init(Init) => init,
        Join(Join) => join,
    }
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

/// Make the folder of a machine of an array that another machine has made
///
/// Example: `braid cluster join 10.77.0.1:7400 --machine m2 --array braid://lab`
#[derive(clap::Args)]
pub struct Join {
    /// The HTTP interface of a monitor: HOST:PORT of a machine whose `braid agent` runs
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// The name of this machine
    #[arg(long, value_name = "NAME")]
    machine: String,
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
    let Init { machines, witnesses, etcd, insecure_network, devices, size, layout, volumes, file_system } = arguments;
    let asked = CreateOptions { size, layout, volumes, file_system, ..CreateOptions::default() };
    let machine = machines[0].0.clone();
    let control = common.control();
    let (file, description) =
        NewCluster { machine, machines, witnesses, etcd, insecure_network, devices, asked }.plan()?;
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

async fn join(Join { address, machine }: Join, common: &Common) -> Result<ExitCode, Failure> {
    let file = cluster::join(&common.control(), &address, &machine).await?;
    report::print(common.json, json!({"array": file.array, "machine": file.machine}), || {
        format!("this is machine {machine} of array {}; run `braid agent` here\n", file.array)
    });
    Ok(ExitCode::SUCCESS)
}

/// Runs this machine's part of the array until it is asked to end.
pub async fn agent(Agent { name, port, degraded, child_of }: Agent, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(child_of)?;
    let mut signals = Signals::catch()?;
    let control = name.map_or_else(|| common.control(), |name| ControlPlane::at(Path::new(&format!("braid://{name}"))));
    if control.cluster().is_none() {
        let message = format!("{} is no folder of a machine of an array on several", control.place().display());
        return Err(Failure::usage("no-cluster", message).hint(
            "make one with `braid cluster init` or `braid cluster join`; `braid up` runs an array of one machine",
        ));
    }
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

/// Reads `NAME=HOST` or `NAME=HOST:PORT`.
fn machine(text: &str) -> Result<(String, String, u16), String> {
    let (name, at) = text.split_once('=').ok_or("write NAME=HOST or NAME=HOST:PORT")?;
    let (host, port) = match at.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| format!("'{port}' is no port"))?),
        None => (at, PORT),
    };
    Ok((name.to_string(), host.to_string(), port))
}
