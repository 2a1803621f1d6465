//! `braid device remove`.

use super::with_session;
use braid_admin::failure::Failure;
use braid_admin::slots;
use braid_terminal::Common;
use braid_terminal::output;
use serde_json::json;
use std::process::ExitCode;

/// Remove a device, or a spare, from a running array
///
/// Refused while a volume lies there: `braid volume migrate` moves it away first. Its file stays, and can be removed then. The number is not used
/// again.
///
/// Examples: `braid device remove 5`, or with the name of a spare's disk or its file: `braid device remove spare.braid`
#[derive(clap::Args)]
pub struct Arguments {
    /// A device's number; or a spare: its file, or the name of its disk
    #[arg(value_name = "DEVICE-or-SPARE")]
    which: String,
}

/// Removes it.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let which = arguments.which;
    let path = with_session(common, "device remove", async |session| {
        let folder = session.folder();
        let description = folder.describe()?;
        let absolute = folder.absolute();
        if let Ok(id) = which.parse() {
            let path = slots::find(&description, id)?.path(&absolute);
            slots::remove(session, id).await?;
            return Ok(path);
        }
        let named = |path: std::path::PathBuf| {
            path == absolute.join(&which) || std::path::absolute(&which).is_ok_and(|named| named == path)
        };
        let spare =
            description.spares.iter().find(|spare| spare.disk.to_string() == which || named(spare.path(&absolute)));
        let Some(spare) = spare else {
            return Err(Failure::unreachable(
                "no-such-spare",
                format!("'{which}' is no device's number, and no spare"),
            )
            .hint("`braid device list` shows what there is"));
        };
        slots::remove_spare(session, spare).await?;
        Ok(spare.path(&absolute))
    })
    .await?;
    output::print(
        common.json,
        || json!({"schema": 1, "removed": which, "file": path}),
        || format!("{which} is gone from the array; its file stays: {}\n", path.display()),
    );
    Ok(ExitCode::SUCCESS)
}
