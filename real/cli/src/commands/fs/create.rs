//! `braid fs create`: creates a file system on the devices of a running array.

use braid_admin::{Array, Failure, NewFileSystem};
use braid_base::units::format_size;
use braid_layout::RaidLevel;
use braid_terminal::arguments::size;
use braid_terminal::{Common, output};
use serde_json::json;
use std::process::ExitCode;

/// Create a file system on all devices of a running array
///
/// A file system has two volumes: NAME.meta with its metadata, in as many copies as the layout tolerates failures and one more, and
/// NAME.data with the bytes of files. `braid up` starts its metadata server. An array whose first volume is vol0 has little space left:
/// create the array with `braid up --fs NAME`, or delete vol0.
///
/// Example: `braid fs create home --size 20GiB`
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of the file system
    name: String,
    /// The space for the bytes of files: 512MiB, 10G [default: the free space except a sixteenth]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// The layout of the bytes of files: raid5:4+1, raid1:2, raid0:5, … [default: the layout of the array's creation]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<RaidLevel>,
}

/// Creates the file system.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.folder());
    let new = NewFileSystem { name: arguments.name, bytes: arguments.size, scheme: arguments.layout };
    let created = array.create_file_system(&new).await?;
    let description = array.folder().describe()?;
    let bytes = |volume: &str| description.volume(volume).map_or(0, |volume| volume.bytes);
    let (data, metadata) = (bytes(&created.data_volume()), bytes(&created.metadata_volume()));
    output::print(
        common.json,
        || {
            json!({"schema": 2, "file_system": {
                "name": created.name, "id": created.id, "size_bytes": data, "metadata_bytes": metadata,
            }})
        },
        || {
            let (data, metadata) = (format_size(data), format_size(metadata));
            format!("file system {}: {data}, and {metadata} for metadata\n", created.name)
        },
    );
    Ok(ExitCode::SUCCESS)
}
