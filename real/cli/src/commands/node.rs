//! `braid node`: some devices of this machine, a host and its NBD server in one process.

use crate::{memory, report};
use braid_admin::{Failure, parent_process};
use braid_base::DeviceId;
use braid_control::WhenUnavailable;
use braid_daemons::node::{self, NodeOptions, Told};
use braid_daemons::supervisor::{HOST_ENDED, Share, Tuning, say_not_serving, say_of_device};
use braid_shell::Address;
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::process::ExitCode;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

/// Serve devices, and volumes to NBD clients, in one process
///
/// A node runs the daemons of some devices, a host, and an NBD server. Messages between them need no system call, so a write takes about
/// half the processor time that it takes with a process for each. Any NBD client can use any volume at any node. A device whose disk fails
/// ends alone; if the process is killed, its devices are gone together until it is started again, and those of other nodes continue.
///
/// `braid up --nodes N` starts nodes automatically, and restarts them if they die. This command runs devices that have a fixed address
/// (`address` in `array.json`), which `braid up` does not start; the node listens for them at their addresses. Ends with Ctrl-C or SIGTERM.
///
/// Example: `braid node --device 5 --device 6 --listen 127.0.0.1:10815`
#[derive(clap::Args)]
pub struct Arguments {
    /// A device to run, which has a fixed address; may be given more than once
    #[arg(long = "device", value_name = "NUMBER", value_parser = braid_terminal::arguments::device, required_unless_present = "share")]
    devices: Vec<u16>,
    /// Of the devices that `braid up` runs, the share I of N
    #[arg(long, hide = true, value_name = "I/N", conflicts_with = "devices")]
    share: Option<Share>,
    /// The address for NBD clients: HOST:PORT, with port 0 for any free port, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: Address,
    /// What requests of NBD clients do while devices are missing that they need: fail, wait, or wait for a time and then fail (60s, 5m)
    /// [default: what the volume says]
    #[arg(long, value_name = "fail|wait|TIME")]
    unavailable: Option<WhenUnavailable>,
    /// Memory in which each device caches objects' content, 64MiB or more; the rest is read from disk on demand [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = super::device::object_memory)]
    object_memory: Option<u64>,
    /// Let devices listen on ports of 127.0.0.1, and not on Unix sockets
    #[arg(long, hide = true)]
    tcp: bool,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true)]
    child_of: Option<u32>,
}

pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(arguments.child_of)?;
    memory::keep();
    let mut signals = Signals::catch()?;
    let Arguments { devices, share, listen, unavailable, object_memory, tcp, child_of } = arguments;
    let share = share.unwrap_or_else(|| Share::These(devices.into_iter().map(DeviceId).collect()));
    let tuning = Tuning { spare_after: None, object_memory, tcp };
    let tell = |told: Told| match told {
        Told::Device(device, state) => report::print(common.json, say_of_device(device, state), || match state {
            Ok(running) => format!("device {device} serves at {}\n", running.address),
            Err(failure) => format!("device {device} is down, and is started again: {failure}\n"),
        }),
        Told::Serving(address) => report::announce(common.json, "the NBD server", address, json!({})),
        Told::NotServing(failure) if child_of.is_some() => {
            report::print(common.json, say_not_serving(failure), String::new)
        }
        // The log has it.
        Told::NotServing(_) => {}
        Told::HostEnded => report::print(common.json, json!({HOST_ENDED: true}), String::new),
    };
    let options = NodeOptions { share, listen, unavailable, tuning };
    let release = async {
        if child_of.is_some() {
            released().await;
        }
    };
    node::run(&common.control(), options, tell, signals.asked_to_end(), release).await?;
    Ok(ExitCode::SUCCESS)
}

/// Returns when the supervisor has closed standard input: then the hosts of all nodes have ended.
async fn released() {
    let stdin = std::io::stdin();
    let receiver = stdin.as_fd().try_clone_to_owned().ok().filter(|_| !stdin.is_terminal());
    if let Some(mut receiver) = receiver.and_then(|pipe| pipe::Receiver::from_owned_fd(pipe).ok()) {
        let _ = receiver.read(&mut [0; 8]).await;
    }
}
