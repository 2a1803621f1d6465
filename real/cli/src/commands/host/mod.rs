//! `braid host`: lists and fences the hosts of an array.

mod fence_agent;

use crate::commands::status::pid_text;
use crate::report;
use braid_admin::host_fencing::HostName;
use braid_admin::{Array, Failure};
use braid_base::Generation;
use braid_control::{ArrayDescription, HostEntry};
use braid_daemons::front_end::is_for_nbd;
use braid_session::is_usable;
use braid_terminal::Common;
use braid_terminal::output::titled;
use serde_json::json;
use std::process::ExitCode;

/// List and fence hosts: the servers, mounts and commands that use the array
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the hosts: servers, mounts and commands, with their leases
    List,
    Fence(Arguments),
    FenceAgent(fence_agent::Arguments),
}

/// Fence a host: no device serves it any more, and it can't come back
///
/// Returns when the fence is final: each of its writes has taken effect or never will. Its locks are free then, or a lease after it was heard
/// last. Exit status 0, also if the host was fenced before or has ended; otherwise the command must be repeated. What the host serves ends:
/// `braid nbd` and mounts end with an error, and `braid up` starts its host again.
///
/// Examples: `braid host fence h17`, `braid host fence "nbd 10.0.0.5:10809"`
#[derive(clap::Args)]
pub struct Arguments {
    /// The host: its number, as `braid host list` shows it, or its role
    #[arg(value_name = "HOST")]
    host: String,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    match command {
        Command::List => list(&array, common).await,
        Command::Fence(arguments) => fence(&array, &arguments.host, common).await,
        Command::FenceAgent(arguments) => Ok(fence_agent::run(arguments, common).await),
    }
}

/// The first word of a role.
fn kind(host: &HostEntry) -> &str {
    host.role.split(' ').next().unwrap_or_default()
}

fn lease(host: &HostEntry) -> &'static str {
    if host.live { "live" } else { "expired" }
}

/// The volumes that a host serves by NBD, and the file systems that it serves or has mounted.
fn served<'a>(description: &'a ArrayDescription, host: &HostEntry) -> [Vec<&'a str>; 2] {
    let report = &host.report;
    let volumes = description.volumes.iter().filter(|volume| {
        let is_chosen = |only: &Vec<String>| only.is_empty() || only.contains(&volume.name);
        is_usable(volume) && is_for_nbd(description, volume) && report.exports.as_ref().is_some_and(is_chosen)
    });
    let owned = report.metadata_server.as_ref().map(|server| server.file_system);
    let ids = [owned, report.mount.as_ref().map(|mount| mount.file_system)];
    let is_used = |id: u16| ids.contains(&Some(id));
    let file_systems =
        description.file_systems.iter().filter(|entry| entry.servers().iter().any(|server| is_used(server.0)));
    [volumes.map(|volume| volume.name.as_str()).collect(), file_systems.map(|entry| entry.name.as_str()).collect()]
}

async fn list(array: &Array, common: &Common) -> Result<ExitCode, Failure> {
    let (hosts, description) = (array.hosts().await?, array.control().describe().await?);
    let as_json = |host: &HostEntry| {
        let [volumes, file_systems] = served(&description, host);
        let mut entry = json!({
            "volumes": volumes,
            "file_systems": file_systems,
            "generation": host.generation.0,
            "kind": kind(host),
            "role": host.role,
            "pid": host.process.pid,
            "machine": host.report.machine,
            "lease": lease(host),
            "silent_seconds": host.silent.map(|silent| silent.as_secs_f64()),
            "directory": host.report.mount.as_ref().map(|mount| &mount.directory),
            "waiting_requests": host.report.waiting.as_ref().map_or(0, |waiting| waiting.requests),
        });
        if let Some(bytes) = host.report.mount.as_ref().and_then(|mount| mount.directory_bytes.as_ref()) {
            entry["directory_bytes"] = bytes.as_str().into();
        }
        if host.is_elsewhere() {
            entry["elsewhere"] = true.into();
        }
        entry
    };
    let as_text = || {
        let titles = ["host", "kind", "lease", "last heartbeat", "machine", "pid", "serves", "role"];
        let of_host = |host: &HostEntry| {
            let silent =
                host.silent.map_or("unknown".to_string(), |silent| format!("{:.1} s ago", silent.as_secs_f64()));
            let (name, pid) = (host.generation.to_string(), pid_text(host.process.pid, host.is_elsewhere()));
            let machine = host.report.machine.clone().unwrap_or_else(|| "unknown".to_string());
            let (kind, lease) = (kind(host).to_string(), lease(host).to_string());
            let serves = served(&description, host).concat().join(", ");
            [name, kind, lease, silent, machine, pid, serves, host.role.clone()]
        };
        titled(titles, hosts.iter().map(of_host))
    };
    report::done(common.json, json!({"hosts": hosts.iter().map(as_json).collect::<Vec<_>>()}), as_text)
}

async fn fence(array: &Array, name: &str, common: &Common) -> Result<ExitCode, Failure> {
    let fenced = array.fence_hosts(&HostName::read(name)).await?;
    let names: Vec<String> = fenced.hosts.iter().map(Generation::to_string).collect();
    let generations: Vec<u32> = fenced.hosts.iter().map(|host| host.0).collect();
    let json = json!({"host": name, "generations": generations, "already_fenced": fenced.already, "final": true});
    report::done(common.json, json, || match (fenced.already, names.is_empty()) {
        (_, true) => format!("no host has the role '{name}' now: it has ended, or was fenced before\n"),
        (true, _) => format!("host {name} was fenced before, or has ended\n"),
        (false, _) => format!("fenced for good: {}\n", names.join(", ")),
    })
}
