//! `braid host fence-agent`: the interface that cluster managers such as Pacemaker expect of a fence agent (the ClusterLabs fence agent
//! API): options as lines on standard input, and exit statuses. A script that calls it is the agent (`docs/operations.md`).

use braid_admin::host_fencing::HostName;
use braid_admin::{Array, Failure};
use braid_control::ControlPlane;
use braid_terminal::Common;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::ExitCode;

const OPTIONS_BYTES_MAX: u64 = 64 << 10;
/// The exit status of `status` for a host that is off.
const OFF: u8 = 2;

const METADATA: &str = r#"<?xml version="1.0" ?>
<resource-agent name="fence_braid" shortdesc="Fence agent for hosts of a Braid array">
<longdesc>Fences a host of a Braid array: no device serves its requests any more. Nothing is powered off.</longdesc>
<vendor-url></vendor-url>
<parameters>
<parameter name="action" unique="0" required="1">
<getopt mixed="-o, --action=[action]" />
<content type="string" default="reboot" />
<shortdesc lang="en">Fencing action</shortdesc>
</parameter>
<parameter name="port" unique="0" required="1" deprecated="1">
<getopt mixed="-n, --plug=[id]" />
<content type="string" />
<shortdesc lang="en">The host: its role or its number, as braid host list shows them</shortdesc>
</parameter>
<parameter name="plug" unique="0" required="1" obsoletes="port">
<getopt mixed="-n, --plug=[id]" />
<content type="string" />
<shortdesc lang="en">The host: its role or its number, as braid host list shows them</shortdesc>
</parameter>
<parameter name="array" unique="0" required="0">
<getopt mixed="--array=[folder]" />
<content type="string" />
<shortdesc lang="en">The array's folder</shortdesc>
</parameter>
</parameters>
<actions>
<action name="on" automatic="0" />
<action name="off" />
<action name="reboot" />
<action name="status" />
<action name="list" />
<action name="monitor" />
<action name="metadata" />
</actions>
</resource-agent>
"#;

/// Speak with a cluster manager as a fence agent
///
/// Reads lines NAME=VALUE from standard input: action (off, reboot, status, list, monitor, metadata, on), plug (a host's role or number), array
/// (the folder). `reboot` is `off`: the host comes back when its process is started again, with another number. docs/operations.md shows
/// the script that makes an agent of it.
#[derive(clap::Args)]
pub struct Arguments {
    /// The action, if standard input does not name it
    #[arg(long, short = 'o')]
    action: Option<String>,
    /// The host, if standard input does not name it
    #[arg(long, short = 'n')]
    plug: Option<String>,
}

/// Performs an action; the exit status is the answer, and errors are for the cluster manager's log.
pub async fn run(arguments: Arguments, common: &Common) -> ExitCode {
    match perform(arguments, common).await {
        Ok(status) => status,
        Err(failure) => {
            braid_terminal::tell!("fence_braid: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn perform(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let mut options = BTreeMap::new();
    if arguments.action.is_none() {
        let mut text = String::new();
        std::io::stdin().take(OPTIONS_BYTES_MAX).read_to_string(&mut text)?;
        options = read(&text);
    }
    let mut option = |name: &str| options.remove(name);
    let action = arguments.action.or_else(|| option("action").or(option("option"))).unwrap_or("reboot".to_string());
    let plug = arguments.plug.or_else(|| option("plug").or(option("port")));
    let array = Array::of(option("array").map_or_else(|| common.control(), |dir| ControlPlane::at(dir.as_ref())));
    let name = || {
        let missing = || Failure::usage("no-host", "a host must be named: plug=ROLE or plug=NUMBER");
        plug.as_deref().map(HostName::read).ok_or_else(missing)
    };
    match action.as_str() {
        "metadata" | "meta-data" => print!("{METADATA}"),
        "off" | "reboot" => drop(array.fence_hosts(&name()?).await?),
        // A host comes back by itself when it is started again.
        "on" => drop(name()?),
        "status" => {
            let name = name()?;
            if !array.hosts().await?.iter().any(|host| name.means(host)) {
                return Ok(ExitCode::from(OFF));
            }
        }
        "monitor" => drop(braid_session::require_up(array.control()).await?),
        "list" | "list-status" => {
            for host in array.hosts().await? {
                println!("{},{}{}", host.role, host.generation, if action == "list" { "" } else { ",on" });
            }
        }
        other => return Err(Failure::usage("bad-action", format!("'{other}' is no action of this agent"))),
    }
    Ok(ExitCode::SUCCESS)
}

/// The options: a line each. Unknown ones are the cluster manager's own.
fn read(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let options = lines.filter_map(|line| line.split_once('='));
    options.map(|(name, value)| (name.trim().to_string(), value.trim().trim_matches('"').to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_lines_and_comments_are_skipped() {
        let options = read("# from a cluster manager\naction=off\nport=\"nbd 10.0.0.5:10809\"\n\nnodename = b\n");
        let all: Vec<_> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(all, [("action", "off"), ("nodename", "b"), ("port", "nbd 10.0.0.5:10809")]);
    }
}
