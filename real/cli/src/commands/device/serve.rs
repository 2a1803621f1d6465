//! `braid device serve`: the daemon of one device.

use super::array_id;
use crate::commands::Common;
use crate::device::{DeviceFile, Expected};
use crate::failure::Failure;
use crate::output;
use crate::signals::{self, Signals};
use braid_base::{ArrayId, DeviceId};
use braid_shell::Address;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve a device to the hosts of its array
///
/// Prints where it listens once it serves. Ends with Ctrl-C or SIGTERM; being killed loses nothing that was acknowledged.
/// Whoever can reach the address can read and write the device: keep it to networks that you trust.
///
/// Example: `braid device serve /srv/d5.braid --listen 10.0.0.5:7005`
#[derive(clap::Args)]
pub struct Arguments {
    /// The file or disk
    file: PathBuf,
    /// Where to listen: HOST:PORT, port 0 for any free one, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: Address,
    /// Refuse it unless it belongs to this array
    #[arg(long, value_parser = array_id, value_name = "UUID")]
    array_id: Option<ArrayId>,
    /// Refuse it unless it is this device of its array
    #[arg(long, value_name = "NUMBER")]
    id: Option<u16>,
    /// Die with this process, which must be the parent
    #[arg(long, hide = true)]
    child_of: Option<u32>,
}

/// Serves until it is asked to end.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    if let Some(parent) = arguments.child_of {
        signals::die_with(parent)?;
    }
    let mut signals = Signals::catch()?;
    let expected = Expected { array: arguments.array_id, id: arguments.id.map(DeviceId) };
    let device = DeviceFile::open(&arguments.file, expected)?;
    let superblock = *device.superblock();
    let serving = |address: &Address| {
        output::print(
            common.json,
            || {
                json!({
                    "schema": 1,
                    "ready": true,
                    "address": address.to_string(),
                    "array": superblock.array.to_string(),
                    "id": superblock.device.0,
                    "pid": std::process::id(),
                })
            },
            || format!("device {} of array {} serves at {address}\n", superblock.device, superblock.array),
        );
    };
    device.serve(&arguments.listen, true, serving, signals.asked_to_end()).await?;
    Ok(ExitCode::SUCCESS)
}
