//! `braid volume set-parity-site`: changes where the parity of a volume is computed, while hosts use it.

use crate::report;
use braid_admin::parity_site::ParitySiteChange;
use braid_admin::{Array, Failure};
use braid_layout::SitePolicy;
use braid_terminal::{Common, arguments};
use serde_json::json;
use std::process::ExitCode;

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
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// The new parity site
    #[arg(value_parser = arguments::parity_site())]
    site: SitePolicy,
}

/// Changes the parity site.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, site } = arguments;
    let change = Array::of(common.control()).set_parity_site(&name, site).await?;
    let ParitySiteChange { before, changed, without_effect, pending_hosts } = change;
    if site != SitePolicy::Originator {
        super::note_without_effect(without_effect);
    }
    report::done(
        common.json,
        json!({
            "volume": name,
            "parity_site": site.name(),
            "previous_parity_site": before,
            "changed": changed,
            "has_effect": without_effect.is_none(),
            "pending_hosts": pending_hosts.iter().map(|host| host.generation.0).collect::<Vec<_>>(),
        }),
        || {
            let mut text = match changed {
                true => format!("volume {name}: {site} instead of {before}\n"),
                false => format!("volume {name} already has the parity site {site}\n"),
            };
            for host in &pending_hosts {
                let (generation, role, process) = (host.generation, &host.role, &host.process);
                text +=
                    &format!("host {generation} ({role}, {process}) has not adopted it yet, and will when it runs\n");
            }
            text
        },
    )
}
