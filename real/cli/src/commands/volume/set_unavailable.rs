//! `braid volume set-unavailable` and `braid fs set-unavailable`: set what requests do while devices are missing that they need.

use crate::report;
use braid_admin::{Array, Failure, file_systems};
use braid_control::WhenUnavailable;
use braid_terminal::Common;
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
    /// The name
    name: String,
    /// The new setting
    #[arg(value_name = "fail|wait|TIME")]
    setting: WhenUnavailable,
}

/// Changes the setting of a volume.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let before = Array::of(common.control()).set_unavailable(&arguments.name, arguments.setting).await?;
    Ok(tell("volume", "connections that are opened", &arguments, before, common))
}

/// Changes the setting of a file system.
pub async fn run_of_file_system(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let before = file_systems::set_unavailable(&common.control(), &arguments.name, arguments.setting).await?;
    Ok(tell("file_system", "mounts that are made", &arguments, before, common))
}

fn tell(kind: &str, what: &str, arguments: &Arguments, before: WhenUnavailable, common: &Common) -> ExitCode {
    let Arguments { name, setting } = arguments;
    let (changed, subject) = (before != *setting, kind.replace('_', " "));
    report::print(
        common.json,
        json!({
            kind: name,
            "unavailable": setting.to_string(),
            "previous_unavailable": before.to_string(),
            "changed": changed,
        }),
        || match changed {
            true => format!("{subject} {name}: {setting} instead of {before}, for {what} from now on\n"),
            false => format!("{subject} {name} already has the setting {setting}\n"),
        },
    );
    ExitCode::SUCCESS
}
