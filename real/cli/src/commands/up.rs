//! `braid up`: starts a whole array on this machine, and keeps it running.

use super::confirmation::{confirm, is_possible};
use super::{background, service};
use crate::report;
use braid_admin::array_creation::CreateOptions;
use braid_admin::{Failure, parent_process, start_confirmations};
use braid_base::units::{format_size, parse_size};
use braid_base::{Acquisition, Callbacks, DeviceId, RangeDivision};
use braid_control::{ControlPlane, WhenUnavailable, shell_word};
use braid_daemons::front_end::ExportedVolume;
use braid_daemons::supervisor::Tuning;
use braid_daemons::up::{self, Options, Ready};
use braid_layout::RaidLevel;
use braid_session::addressing;
use braid_shell::Address;
use braid_terminal::arguments::size;
use braid_terminal::{Common, Signals};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Start an array on this machine: create or open it, run its monitor and devices, serve its volumes
///
/// The first invocation creates the array: sparse files in a folder, with a volume. Later invocations
/// open it. Their options may be omitted, but must not differ. Its processes are restarted if they
/// die. Stop the array with Ctrl-C, SIGTERM or `braid down`.
///
/// Examples:
///   braid up                                       5 devices of 8 GiB, RAID 5, volume vol0
///   braid up --dir /srv/a --devices 3 --size 100G  3 devices, RAID 5 2+1
///   braid up --fs home                             half of the space for vol0, half for file system home
///   braid up --layout raid1:2 --devices 2 --volume db:4GiB --volume logs:1GiB
///   braid up --port 0 --json                       any free port, one line of JSON once it is ready
///   braid up --background                          return when it is ready; `braid down` ends it
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// The array's folder [default: --array]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The number of devices [default: 5]
    #[arg(long, value_name = "N")]
    devices: Option<u16>,
    /// Raw size of each device; files are sparse [default: 8GiB, or what fits into the free space]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// The layout of volumes: raid5:4+1, raid1:2, raid0:5, … [default: RAID 5 over all devices]
    #[arg(long)]
    layout: Option<RaidLevel>,
    /// Stripe unit, 4KiB to 1MiB [default: 64KiB]
    #[arg(long, value_parser = size, value_name = "SIZE")]
    unit: Option<u64>,
    /// A volume and its usable size; may be given more than once [default: vol0, with half of the space; `braid volume resize` makes it larger]
    #[arg(long = "volume", value_name = "NAME:SIZE", value_parser = named_size)]
    volumes: Vec<(String, u64)>,
    /// Also create a file system. It gets the space that --volume leaves; without --volume, half of the space
    #[arg(long = "fs", value_name = "NAME")]
    file_system: Option<String>,
    /// The number of lock servers, for ranges that programs lock and volumes whose ordering needs them [default: 1]
    #[arg(long, value_name = "N")]
    lock_servers: Option<u16>,
    /// How hosts acquire locks from several lock servers: one after the other, or all at once with a time-out [default: ordered]
    #[arg(long, value_parser = lock_acquisition(), value_name = "HOW")]
    lock_acquisition: Option<Acquisition>,
    /// How several lock servers divide the ranges that programs lock: pieces of each space in turn (round-robin:SIZE), pieces by a hash
    /// (hash:SIZE), or each space at one server (space) [default: round-robin:1MiB]
    #[arg(long, value_name = "HOW")]
    range_division: Option<RangeDivision>,
    /// Which hosts a lock server calls on to give back ranges that another host wants: those that hold them (holder), or all hosts of the node
    /// groups of these (group), as in the range-lock paper [default: holder]
    #[arg(long, value_name = "WHICH")]
    callbacks: Option<Callbacks>,
    /// The lease: how long a device or host may be silent before the others continue without it, 1s to 60s [default: 4s]
    #[arg(long, value_name = "TIME", value_parser = lease)]
    lease: Option<Duration>,
    /// The port for NBD clients on 127.0.0.1; 0 for any free port. They can also use the Unix socket run/nbd in the array's folder
    #[arg(long, default_value_t = 10809)]
    port: u16,
    /// Let monitor, devices and servers listen on ports of 127.0.0.1, which every user of this machine can reach, and not on Unix sockets
    #[arg(long)]
    tcp: bool,
    /// What requests of NBD clients do while devices are missing that they need: fail, wait, or wait for a time and then fail (60s, 5m)
    /// [default: what the volume says, which is 60s unless `braid volume set-unavailable` has changed it]
    #[arg(long, value_name = "fail|wait|TIME")]
    unavailable: Option<WhenUnavailable>,
    /// Start without devices that can't be started, as far as the others can serve without them
    #[arg(long)]
    degraded: bool,
    /// How long a device must be out before a spare fills its slot: 30s, 10m [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = braid_terminal::arguments::span)]
    spare_after: Option<Duration>,
    /// Memory in which each device caches objects' content, 64MiB or more; the rest is read from disk on demand [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = super::device::object_memory)]
    object_memory: Option<u64>,
    /// Run the devices, and the host and NBD server of their clients, in N processes, up to 64, with a port for each: any client can use any
    /// of them. A node needs about half the processor time; its devices fail together if it is killed. With 0, each device has a process
    /// [default: 1]
    #[arg(long, value_name = "N", alias = "in-process", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u16).range(..=64))]
    nodes: Option<u16>,
    /// Run each device in a process of its own, and serve NBD clients by `braid up` itself, as --nodes 0
    #[arg(long, conflicts_with = "nodes")]
    processes: bool,
    /// Return when the array is ready, and leave it running; it logs to logs/up.log in its folder, and `braid down` ends it
    #[arg(long, conflicts_with = "child_of")]
    background: bool,
    /// Don't ask whether to create an array without redundancy, or one that is larger than the free space, or to use a copied folder
    #[arg(long)]
    yes: bool,
    /// Leave the terminal of the process that started this one, and log into the folder
    #[arg(long, hide = true)]
    detached: bool,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true, env = braid_bench::CHILD_OF)]
    child_of: Option<u32>,
}

/// Runs the array until it is asked to end.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    parent_process::die_with(arguments.child_of)?;
    if arguments.detached {
        // It fails if the process leads a group already, which then is its own.
        let _ = rustix::process::setsid();
    }
    let mut signals = Signals::catch()?;
    let control = match &arguments.dir {
        Some(_) if common.array_named => {
            let message = "--dir and --array both name the array's folder";
            return Err(Failure::usage("usage", message).hint("use one of them"));
        }
        Some(dir) => ControlPlane::at(dir),
        None => common.control(),
    };
    if control.cluster().is_some() {
        let (place, word) = (control.place().display(), shell_word(control.place()));
        let message = format!("{place} is the folder of a machine of an array on several");
        return Err(Failure::usage("several-machines", message).hint(format!("run `braid agent --array {word}`")));
    }
    let asked = CreateOptions {
        devices: arguments.devices,
        size: arguments.size,
        layout: arguments.layout,
        unit: arguments.unit,
        volumes: arguments.volumes,
        file_system: arguments.file_system,
        lock_servers: arguments.lock_servers,
        lock_acquisition: arguments.lock_acquisition,
        range_division: arguments.range_division,
        callbacks: arguments.callbacks,
        lease: arguments.lease,
    };
    let asked = start_confirmations::fitting(&control, asked).await;
    let Arguments { spare_after, object_memory, tcp, .. } = arguments;
    let options = Options {
        nodes: arguments.nodes.unwrap_or(if arguments.processes { 0 } else { up::NODES }),
        tuning: Tuning { spare_after, object_memory, tcp },
        degraded: arguments.degraded,
        log_in_folder: arguments.detached,
        listen: Address::loopback(arguments.port),
        unavailable: arguments.unavailable,
    };
    let required = if arguments.yes { Vec::new() } else { start_confirmations::required(&control, &asked).await? };
    if !required.is_empty() {
        let is_serious = required.iter().any(|needed| needed.is_serious);
        let facts = required.into_iter().map(|needed| needed.text).collect::<Vec<_>>().join("; ");
        if is_serious || is_possible() {
            confirm(&facts, "Go on?", "confirm with --yes, or change what you ask for (`braid up --help`)")?;
        } else {
            braid_terminal::tell!("warning: {facts}");
        }
    }
    if arguments.background {
        let said = background::start(common.json, &mut signals).await?;
        report::print(common.json, said.clone(), || background::text_of(&said));
        return Ok(ExitCode::SUCCESS);
    }
    let ready = |ready: &Ready| {
        report::print(common.json, json_of(ready), || text_of(ready));
        service::tell_ready();
    };
    up::run(control, &asked, options, ready, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn json_of(ready: &Ready) -> serde_json::Value {
    let exported = ready.exported();
    let volumes = exported.iter().map(|volume| {
        json!({
            "name": volume.name, "size_bytes": volume.bytes, "nbd": volume.uri, "nbd_unix": volume.unix_uri
        })
    });
    let devices = ready.running.devices.iter().map(|device| {
        let entry = ready.description.devices.iter().find(|entry| entry.id == device.id);
        let file = entry.map(|entry| entry.path(&ready.control.local().absolute()));
        let address = addressing::absolute(ready.control.local(), &device.address);
        json!({"id": device.id, "address": address, "pid": device.pid, "file": file})
    });
    let nodes = ready.running.nodes.iter().map(|node| json!({"id": node.id, "pid": node.pid, "nbd": node.address}));
    json!({
        "ready": true,
        "created": ready.is_new,
        "pid": std::process::id(),
        "log": ready.log,
        "dir": ready.control.local().absolute(),
        "volumes": volumes.collect::<Vec<_>>(),
        "devices": devices.collect::<Vec<_>>(),
        "nodes": nodes.collect::<Vec<_>>(),
        "file_systems": ready.description.file_systems.iter().map(|entry| json!({"name": entry.name})).collect::<Vec<_>>(),
    })
}

pub(super) fn text_of(ready: &Ready) -> String {
    let dir = ready.control.place().display();
    let layout = &ready.description.creation.layout;
    let how = if ready.is_new { "was created, and is up" } else { "was opened, and is up" };
    let mut text = format!("array {} in {dir} {how}: {layout}\n\n", ready.description.array);
    for device in &ready.running.devices {
        let size = ready.description.device(device.id).map_or(String::new(), |entry| format_size(entry.size));
        text += &format!("  device {}  {size}  {}\n", DeviceId(device.id), device.address);
    }
    for node in &ready.running.nodes {
        text += &format!("  node {}  NBD clients at {}\n", node.id, node.address);
    }
    text += "\n";
    let exported = ready.exported();
    for ExportedVolume { name, bytes, uri, unix_uri } in &exported {
        text += &format!("  volume {name}  {}  {uri}\n", format_size(*bytes));
        if let Some(uri) = unix_uri {
            text += &format!("    for programs of this user alone: {uri}\n");
        }
    }
    for entry in &ready.description.file_systems {
        let (name, place) = (&entry.name, shell_word(ready.control.place()));
        text += &format!("  file system {name}  mount it with `braid fs mount {name} FOLDER --array {place}`\n");
    }
    if let Some(volume) = exported.first() {
        text += &what_to_try(&volume.name, &volume.uri, &shell_word(ready.control.place()));
    }
    let again = if ready.control.cluster().is_some() { "agent" } else { "up" };
    text += &format!("\nStop it with Ctrl-C; `braid {again}` starts it again.\n");
    text
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
  mkdir -p /run/braid/{name} /mnt/{name}
  nbdfuse /run/braid/{name} {nbd} &
  until [ -e /run/braid/{name}/nbd ]; do sleep 0.1; done
  mkfs.ext4 /run/braid/{name}/nbd && mount -o loop /run/braid/{name}/nbd /mnt/{name}
  umount /mnt/{name} && umount /run/braid/{name}      # when done
"
    )
}

/// Parses how locks are acquired, with completion in shells.
fn lock_acquisition() -> impl TypedValueParser<Value = Acquisition> {
    let value = |how: Acquisition| {
        let help = match how {
            Acquisition::Ordered => "One server after the other",
            Acquisition::Timeout => {
                "All at once; if some are not granted in time, all are released and requested again"
            }
        };
        PossibleValue::new(how.name()).help(help)
    };
    PossibleValuesParser::new(Acquisition::ALL.map(value))
        .map(|name| Acquisition::from_name(&name).expect("only these names are possible"))
}

/// Parses a lease; its limits are checked when the array is created.
fn lease(text: &str) -> Result<Duration, String> {
    match text.strip_suffix("ms").map(str::parse) {
        Some(Ok(millis)) => Ok(Duration::from_millis(millis)),
        _ => {
            braid_terminal::arguments::span(text).map_err(|_| "a lease is 1s to 60s: write 4s, for example".to_string())
        }
    }
}

pub(super) fn named_size(text: &str) -> Result<(String, u64), String> {
    let (name, size) = text.split_once(':').ok_or_else(|| format!("'{text}' is not NAME:SIZE, such as vol1:10GiB"))?;
    Ok((name.to_string(), parse_size(size).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_for_the_superuser_use_no_folder_that_others_can_prepare() {
        let text = what_to_try("vol0", "nbd://127.0.0.1:10809/vol0", "braid-data");
        assert!(text.contains("as root") && !text.contains("/tmp"), "{text}");
    }
}
