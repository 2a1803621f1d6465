//! `braid fs create` and `delete`: file systems on the devices of a running array.

use crate::commands::confirmation::confirm_deletion;
use crate::report;
use braid_admin::shards::{Grouping, Placement, Protocol, ShardChoice, placement_of};
use braid_admin::{Array, Failure, NewFileSystem};
use braid_base::units::format_size;
use braid_layout::RaidLevel;
use braid_terminal::Common;
use braid_terminal::arguments::size;
use serde_json::json;
use std::process::ExitCode;

/// Create a file system on all devices of a running array
///
/// A file system has two volumes: NAME.meta with its metadata, in as many copies as the layout tolerates failures and one more, and
/// NAME.data with the bytes of files. `braid up` starts its metadata server. An array whose first volume is vol0 has little space left:
/// create the array with `braid up --fs NAME`, or delete vol0.
///
/// One metadata server is enough for most: it serves all names. With --servers N, the names and inodes are divided among N of them, each
/// with a volume, a process and a lease of its own; NAME.meta1, NAME.meta2, … are the further volumes. An operation on several of them,
/// such as a rename from one directory to another, takes effect as a whole or not at all: the servers commit it together, which costs
/// more than an operation on one. --placement says how often that happens: with `parent`, a file is where its directory is, and
/// directories are anywhere; with `spread`, nothing is where its directory is, so that the files of one directory use all servers.
///
/// Examples:
///   braid fs create home --size 20GiB
///   braid fs create home --servers 4
///   braid fs create scratch --servers 2 --placement spread --commit-protocol 1pc
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct CreateArgs {
    /// The name of the file system
    name: String,
    /// The space for the bytes of files: 512MiB, 10G [default: the free space except a sixteenth]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// The layout of the bytes of files: raid5:4+1, raid1:2, raid0:5, … [default: the layout of the array's creation]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<RaidLevel>,
    /// How many metadata servers it has, 1 to 8. This can't be changed later
    #[arg(long, value_name = "N", default_value_t = 1)]
    servers: u8,
    /// Where new inodes are: `parent`, files beside their names, or `spread`, in another shard [default: parent]
    #[arg(long, value_parser = placement)]
    placement: Option<Placement>,
    /// How operations on several servers are committed: prn, prc, ep or 1pc. `braid fs set-commit-protocol` changes it, and explains [default: 1pc]
    #[arg(long, value_name = "PROTOCOL", value_parser = super::settings::protocol)]
    commit_protocol: Option<Protocol>,
    /// What operations on several servers share that are committed at the same time: none, log or operations [default: operations]
    #[arg(long, value_parser = super::settings::grouping)]
    grouping: Option<Grouping>,
}

pub async fn create(arguments: CreateArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let CreateArgs { servers, placement, commit_protocol: protocol, grouping, .. } = arguments;
    let shards = ShardChoice { servers, placement, protocol, grouping };
    let new = NewFileSystem { name: arguments.name, bytes: arguments.size, scheme: arguments.layout, shards };
    let created = array.create_file_system(&new).await?;
    let description = array.control().describe().await?;
    let bytes = |volume: &str| description.volume(volume).map_or(0, |volume| volume.bytes);
    let servers = created.servers().len();
    let metadata: u64 = (0..servers).map(|shard| bytes(&created.metadata_volume(shard))).sum();
    let data = bytes(&created.data_volume());
    let json = json!({"file_system": {
        "name": created.name, "id": created.id, "size_bytes": data, "metadata_bytes": metadata,
        "servers": servers,
    }});
    report::done(common.json, json, || {
        let (data, metadata) = (format_size(data), format_size(metadata));
        let served = match servers {
            1 => String::new(),
            servers => format!(", served by {servers} metadata servers"),
        };
        format!("file system {}: {data}, and {metadata} for metadata{served}\n", created.name)
    })
}

fn placement(text: &str) -> Result<Placement, String> {
    placement_of(text).ok_or_else(|| "write parent or spread".to_string())
}

/// Delete a file system with all its files
///
/// It is refused while hosts use the file system, unless it is forced: then they get errors. This can't be undone.
#[derive(clap::Args)]
pub struct DeleteArgs {
    /// The name of the file system
    name: String,
    /// Don't ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Delete it even if hosts use it
    #[arg(long)]
    force: bool,
}

pub async fn delete(arguments: DeleteArgs, common: &Common) -> Result<ExitCode, Failure> {
    let array = Array::of(common.control());
    let DeleteArgs { name, yes, force } = &arguments;
    array.check_file_system_deletable(name, *force).await?;
    if !yes {
        confirm_deletion("file system", "all its files", name)?;
    }
    array.delete_file_system(name, *force).await?;
    report::done(common.json, json!({"deleted": name}), || format!("file system {name} is deleted\n"))
}
