//! `braid volume set-unavailable`: sets what requests for a volume do while devices are missing that they need.

use braid_admin::{Array, Failure};
use braid_control::WhenUnavailable;
use braid_terminal::Common;
use braid_terminal::output;
use serde_json::json;
use std::process::ExitCode;

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
pub struct Arguments {
    /// The name of the volume
    name: String,
    /// The new setting
    #[arg(value_name = "fail|wait|TIME")]
    setting: WhenUnavailable,
}

/// Changes the setting.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { name, setting } = arguments;
    let before = Array::of(common.folder()).set_unavailable(&name, setting)?;
    let changed = before != setting;
    output::print(
        common.json,
        || {
            json!({
                "schema": 2,
                "volume": name,
                "unavailable": setting.to_string(),
                "previous_unavailable": before.to_string(),
                "changed": changed,
            })
        },
        || match changed {
            true => {
                format!("volume {name}: {setting} instead of {before}, for connections that are opened from now on\n")
            }
            false => format!("volume {name} already has the setting {setting}\n"),
        },
    );
    Ok(ExitCode::SUCCESS)
}
