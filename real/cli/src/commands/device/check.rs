//! `braid device check`: verifies the checksums of all blocks of a device.

use crate::report;
use braid_admin::device_file::DeviceFile;
use braid_admin::failure::{Exit, Failure};
use braid_terminal::{Common, output};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Read every block that a device holds, and verify its checksum
///
/// Opens the device as a start does (with recovery if it was killed), so it must not be in use. Lists damaged blocks by object and
/// block; `braid volume check` shows their effect on a volume. Ends with status 4 if any block is damaged.
#[derive(clap::Args)]
pub struct Arguments {
    /// The file or disk
    file: PathBuf,
}

/// Damaged blocks that are listed.
const NAMED: usize = 16;

/// Reads all blocks, and prints the result.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let device = DeviceFile::open(&arguments.file, Default::default())?;
    let bar = output::progress(0, "blocks");
    let found = device.check(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let named: Vec<_> = found.damaged.iter().take(NAMED).map(|(object, block)| (object.0, *block)).collect();
    report::print(
        common.json,
        json!({
            "file": arguments.file,
            "objects": found.objects,
            "blocks": found.blocks,
            "damaged": found.damaged.len(),
            "first_damaged": named.iter().map(|(o, b)| json!({"object": o, "block": b})).collect::<Vec<_>>(),
            "undecided": found.undecided,
        }),
        || {
            let mut text = format!(
                "{} objects, {} blocks checked, {} damaged; {} writes undecided\n",
                found.objects,
                found.blocks,
                found.damaged.len(),
                found.undecided
            );
            for (object, block) in &named {
                text += &format!("damaged: object {object} block {block}\n");
            }
            text
        },
    );
    Ok(if found.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}
