//! `braid device create`: creates the file or raw disk of a device.

use super::array_id;
use super::overwriting;
use crate::report;
use braid_admin::disk_facts::{ANSWER_WAIT, answer_of, file_of_array, folder_of_array};
use braid_admin::{Failure, creation, device_file};
use braid_base::units::format_size;
use braid_base::{ArrayId, DeviceId};
use braid_store::StoreConfig;
use braid_terminal::Common;
use braid_terminal::arguments::size;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Create a device: a sparse file, or a raw disk that is overwritten
///
/// Example: `braid device create /srv/d5.braid --size 100GiB --array-id $(uuidgen) --id 5`
#[derive(clap::Args)]
pub struct Arguments {
    /// The file or disk
    file: PathBuf,
    /// Its raw size, including journal and headers
    #[arg(long, value_parser = size)]
    size: u64,
    /// The array that it will belong to
    #[arg(long, value_parser = array_id, value_name = "UUID")]
    array_id: ArrayId,
    /// Its number in that array
    #[arg(long, value_name = "NUMBER", value_parser = braid_terminal::arguments::device)]
    id: u16,
    /// Overwrite an existing file or disk
    #[arg(long)]
    overwrite: bool,
    /// Overwrite it although it has a partition table, a file system, or a disk of another array
    #[arg(long, requires = "overwrite")]
    yes: bool,
}

/// Creates the device.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let Arguments { file, size, array_id: array, id, overwrite, yes } = arguments;
    if let Some(folder) = answer_of(&file, ANSWER_WAIT, folder_of_array)?.filter(|_| overwrite) {
        return Err(file_of_array(&file, &folder));
    }
    overwriting::confirm(Some(&file), overwrite, yes, Some(array))?;
    creation::check_device_size("--size", size)?;
    device_file::create(&file, &StoreConfig { array, device: DeviceId(id), size }, overwrite)?;
    report::done(
        common.json,
        json!({"file": file.to_string_lossy(), "array": array.to_string(), "id": id, "size_bytes": size}),
        || format!("{}: device {} of array {array}, {}\n", file.display(), DeviceId(id), format_size(size)),
    )
}
