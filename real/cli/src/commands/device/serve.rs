//! `braid device serve`: the device daemon.

use super::file::array_id;
use crate::commands::daemons::listen_at;
use crate::{memory, report};
use braid_admin::device_file::{DeviceFile, Expected};
use braid_admin::{Failure, parent_process};
use braid_base::{ArrayId, DeviceId, NodeId};
use braid_control::ControlPlane;
use braid_daemons::daemon::MonitorAt;
use braid_daemons::device::DeviceDaemon;
use braid_shell::Address;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve a device to the hosts of its array
///
/// The device serves while it has a lease from the array's monitor (`braid monitord`).
/// Prints its address once it serves. Ends with Ctrl-C or SIGTERM; no acknowledged write is lost if it is killed.
/// Every program that can reach the address can read and write the device: restrict it to trusted networks.
///
/// Example: `braid device serve /srv/d5.braid --listen 10.0.0.5:7005 --monitor 10.0.0.5:7200 --peer 0=10.0.0.1:7000`
#[derive(clap::Args)]
pub struct Arguments {
    /// The file or disk
    file: PathBuf,
    /// The address to listen on: HOST:PORT, with port 0 for any free port, or unix:PATH [default: a Unix socket in the
    /// array's folder; with --monitor, a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    listen: Option<Address>,
    /// Fail unless the device belongs to this array
    #[arg(long, value_parser = array_id, value_name = "UUID")]
    array_id: Option<ArrayId>,
    /// Fail unless the device has this number
    #[arg(long, value_name = "NUMBER", value_parser = braid_terminal::arguments::device)]
    id: Option<u16>,
    /// The address of the array's monitor [default: from the array's folder]
    #[arg(long, value_name = "ADDR")]
    monitor: Option<Address>,
    /// With --monitor: the address of another device of the array, once for each. Devices send each other parts of writes. Without these
    /// addresses, writes stall for 1.5 s every 10 s on volumes whose parity devices compute: set their parity site to originator then
    #[arg(long = "peer", value_name = "NUMBER=ADDR", value_parser = peer, requires = "monitor")]
    peers: Vec<(NodeId, Address)>,
    /// Memory in which the device caches objects' content, 64MiB or more; the rest is read from disk on demand [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = super::object_memory)]
    object_memory: Option<u64>,
    #[command(flatten)]
    recording: crate::commands::recording::Options,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true)]
    child_of: Option<u32>,
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(arguments.child_of)?;
    memory::keep();
    let mut signals = Signals::catch()?;
    let expected = Expected { array: arguments.array_id, id: arguments.id.map(DeviceId) };
    let device = DeviceFile::open(&arguments.file, expected)?;
    if device.is_unassigned() {
        return Err(Failure::usage("no-id", "the file was created for any slot, and has not been served yet")
            .hint("choose its device number with --id"));
    }
    let superblock = *device.superblock();
    let serving = |address: &Address| {
        let name = format!("device {} of array {}", superblock.device, superblock.array);
        let more = json!({"array": superblock.array.to_string(), "id": superblock.device.0});
        report::announce(common.json, &name, address, more);
    };
    if arguments.monitor.is_some() && arguments.peers.is_empty() {
        braid_terminal::tell!(
            "warning: no --peer is given: set the parity site of all volumes to originator, or writes will stall"
        );
    }
    let (monitor, listen) = match arguments.monitor {
        Some(address) => {
            let others = [(NodeId::Monitor, address)].into_iter().chain(arguments.peers);
            // The monitor may be on another machine, and there may be no folder.
            (MonitorAt::Addresses(others.collect()), arguments.listen.unwrap_or(Address::loopback(0)))
        }
        None => {
            let control = monitor_at(common, superblock.array).await?;
            let listen = listen_at(arguments.listen, &control, NodeId::Device(superblock.device))?;
            (MonitorAt::Control(control), listen)
        }
    };
    let device = DeviceDaemon::new(device, arguments.object_memory).recorded(arguments.recording.request());
    device.serve(&listen, monitor, true, serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the number and the address of a device.
fn peer(text: &str) -> Result<(NodeId, Address), String> {
    let (number, address) = text.split_once('=').ok_or("expected NUMBER=ADDR, such as 3=10.0.0.3:7003")?;
    let number = number.parse().map_err(|_| format!("'{number}' is not the number of a device"))?;
    let address = address.parse().map_err(|error| format!("{error}"))?;
    Ok((NodeId::Device(DeviceId(number)), address))
}

/// The control plane with the monitor's address.
async fn monitor_at(common: &Common, array: ArrayId) -> Result<ControlPlane, Failure> {
    let control = common.control();
    let found = control.describe().await.map_err(|error| {
        Failure::from(error)
            .of("the address of the array's monitor is unknown")
            .hint("give it with --monitor HOST:PORT, or name the array's folder with --array")
    })?;
    if found.array != array {
        let message = format!(
            "the device belongs to array {array}, but the array in {1} is {0}",
            found.array,
            control.place().display()
        );
        return Err(
            Failure::failed("wrong-array", message).hint("name its array's folder with --array; or use --monitor")
        );
    }
    Ok(control)
}
