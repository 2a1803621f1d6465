//! `braid volume set-ordering`, `set-parity-site` and `set-unavailable`, and `braid fs set-unavailable`: settings that are changed while hosts use
//! the volume.

use crate::report;
use braid_admin::volume_operations::{OrderingChange, ParitySiteChange};
use braid_admin::{Array, Failure, file_systems};
use braid_control::WhenUnavailable;
use braid_layout::SitePolicy;
use braid_ordering::Ordering;
use braid_terminal::{Common, arguments, output};
use serde_json::json;
use std::process::ExitCode;

/// Change the ordering of a volume, while hosts use it
///
/// The ordering serializes the requests of concurrent hosts. All hosts end their operations, the devices get the new ordering, and the hosts
/// continue: clients see a pause of about half a second, and no error. If the command is interrupted, `braid up` completes or reverts the
/// change. docs/orderings.md compares the orderings.
///
/// Example: `braid volume set-ordering vol0 device-lock`
#[derive(clap::Args)]
pub struct OrderingArgs {
    /// The name of the volume
    name: String,
    /// The new ordering
    #[arg(value_parser = braid_terminal::arguments::ordering())]
    ordering: Ordering,
}

pub async fn set_ordering(arguments: OrderingArgs, common: &Common) -> Result<ExitCode, Failure> {
    let OrderingArgs { name, ordering } = arguments;
    let bar = output::waiting();
    let array = Array::of(common.control());
    let OrderingChange { before, changed } =
        array.set_ordering(&name, ordering, |what| bar.set_message(what.to_string())).await?;
    drop(bar);
    let json = json!({"volume": name, "ordering": ordering.name(), "previous_ordering": before, "changed": changed});
    report::done(common.json, json, || match changed {
        true => format!("volume {name}: {ordering} instead of {before}\n"),
        false => format!("volume {name} already has the ordering {ordering}\n"),
    })
}

/// Change where the parity of a volume is computed, while hosts use it
///
/// originator: the host that writes reads the old content, computes the parity, and writes: two round trips.
/// at-parity:  each device gets one message; devices with data send the changes to the one with the parity.
/// adaptive:   as at-parity, except for large writes, which would make devices exchange too much.
///
/// Running hosts (`braid up`, `braid nbd`) follow within a second, without a pause: writes of different
/// sites mix freely. The setting has an effect on layouts with parity, with ordering `timestamp` and
/// atomicity `implied`. `braid volume map` shows what it means for a write; docs/parallel-raid.md
/// compares the costs.
///
/// Example: `braid volume set-parity-site vol0 at-parity`
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct ParitySiteArgs {
    /// The name of the volume
    name: String,
    /// The new parity site
    #[arg(value_parser = arguments::parity_site())]
    site: SitePolicy,
}

pub async fn set_parity_site(arguments: ParitySiteArgs, common: &Common) -> Result<ExitCode, Failure> {
    let ParitySiteArgs { name, site } = arguments;
    let change = Array::of(common.control()).set_parity_site(&name, site).await?;
    let ParitySiteChange { before, changed, without_effect, pending_hosts } = change;
    if site != SitePolicy::Originator {
        super::note_without_effect(without_effect);
    }
    let json = json!({
        "volume": name,
        "parity_site": site.name(),
        "previous_parity_site": before,
        "changed": changed,
        "has_effect": without_effect.is_none(),
        "pending_hosts": pending_hosts.iter().map(|host| host.generation.0).collect::<Vec<_>>(),
    });
    report::done(common.json, json, || {
        let mut text = match changed {
            true => format!("volume {name}: {site} instead of {before}\n"),
            false => format!("volume {name} already has the parity site {site}\n"),
        };
        for host in &pending_hosts {
            let (generation, role, process) = (host.generation, &host.role, &host.process);
            text += &format!("host {generation} ({role}, {process}) has not adopted it yet, and will when it runs\n");
        }
        text
    })
}

/// Set what requests for a volume do while devices are missing that they need
///
/// fail:  they fail at once (EIO). Most file systems then turn read-only.
/// wait:  they wait, however long.
/// TIME:  they wait for so long (60s, 5m), and then fail. The default is 60s.
///
/// NBD servers follow for connections that are opened afterwards. `--unavailable` of `braid nbd` and
/// `braid up` overrides the setting for one server.
///
/// Example: `braid volume set-unavailable vol0 5m`
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct UnavailableArgs {
    /// The name
    name: String,
    /// The new setting
    #[arg(value_name = "fail|wait|TIME")]
    setting: WhenUnavailable,
}

pub async fn set_unavailable(arguments: UnavailableArgs, common: &Common) -> Result<ExitCode, Failure> {
    let before = Array::of(common.control()).set_unavailable(&arguments.name, arguments.setting).await?;
    tell_unavailable("volume", "connections that are opened", &arguments, before, common)
}

pub async fn set_unavailable_of_file_system(arguments: UnavailableArgs, common: &Common) -> Result<ExitCode, Failure> {
    let before = file_systems::set_unavailable(&common.control(), &arguments.name, arguments.setting).await?;
    tell_unavailable("file_system", "mounts that are made", &arguments, before, common)
}

fn tell_unavailable(
    kind: &str,
    what: &str,
    arguments: &UnavailableArgs,
    before: WhenUnavailable,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let UnavailableArgs { name, setting } = arguments;
    let (changed, subject) = (before != *setting, kind.replace('_', " "));
    let json = json!({
        kind: name,
        "unavailable": setting.to_string(),
        "previous_unavailable": before.to_string(),
        "changed": changed,
    });
    report::done(common.json, json, || match changed {
        true => format!("{subject} {name}: {setting} instead of {before}, for {what} from now on\n"),
        false => format!("{subject} {name} already has the setting {setting}\n"),
    })
}
