//! `braid device inspect`: prints the metadata of a device.

use crate::report;
use braid_admin::device_file::DeviceFile;
use braid_admin::failure::Failure;
use braid_base::units::format_size;
use braid_terminal::Common;
use braid_terminal::output::table;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the metadata of a device: its array, its number, and the structure of its store
///
/// The command only reads the disk. The device must not be in use.
#[derive(clap::Args)]
pub struct Arguments {
    /// The file or disk
    file: PathBuf,
}

/// Prints the metadata.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let device = DeviceFile::open_to_look(&arguments.file)?;
    let superblock = device.superblock();
    let geometry = &superblock.geometry;
    report::done(
        common.json,
        json!({
            "file": arguments.file,
            "format": braid_store::FORMAT,
            "array": superblock.array.to_string(),
            "id": superblock.device.0,
            "size_bytes": geometry.size,
            "journal": {"offset": geometry.journal_offset, "length": geometry.journal_length},
            "map": {"offset": geometry.map_offset, "pages": geometry.map_pages},
            "data": {"offset": geometry.data_offset, "slots": geometry.slots},
            "checkpoint": superblock.checkpoint,
        }),
        || {
            let line = |name: &str, value: String| vec![name.to_string(), value];
            table(&[
                line("format", braid_store::FORMAT.to_string()),
                line("array", superblock.array.to_string()),
                line("device", superblock.device.to_string()),
                line("size", format_size(geometry.size)),
                line(
                    "journal",
                    format!("{} at byte {}", format_size(geometry.journal_length), geometry.journal_offset),
                ),
                line("map", format!("2 x {} pages at byte {}", geometry.map_pages, geometry.map_offset)),
                line("data", format!("{} slots of 64 KiB at byte {}", geometry.slots, geometry.data_offset)),
                line("checkpoints", superblock.checkpoint.to_string()),
            ])
        },
    )
}
