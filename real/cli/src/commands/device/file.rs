//! `braid device create`, `inspect` and `check`: the file or raw disk of a device that is not in use. Before a path is overwritten, the commands
//! say what it is, and ask if it contains something.

use crate::commands::confirmation::confirm;
use crate::report;
use braid_admin::device_file::DeviceFile;
use braid_admin::disk_facts::{ANSWER_WAIT, DiskFacts, answer_of, file_of_array, folder_of_array};
use braid_admin::{Exit, Failure, array_creation, device_file};
use braid_base::units::format_size;
use braid_base::{ArrayId, DeviceId};
use braid_store::StoreConfig;
use braid_terminal::Common;
use braid_terminal::arguments::size;
use braid_terminal::output::{self, named};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Create a device: a sparse file, or a raw disk that is overwritten
///
/// Example: `braid device create /srv/d5.braid --size 100GiB --array-id $(uuidgen) --id 5`
#[derive(clap::Args)]
pub struct CreateArgs {
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

pub fn create(arguments: CreateArgs, common: &Common) -> Result<ExitCode, Failure> {
    let CreateArgs { file, size, array_id: array, id, overwrite, yes } = arguments;
    if let Some(folder) = answer_of(&file, ANSWER_WAIT, folder_of_array)?.filter(|_| overwrite) {
        return Err(file_of_array(&file, &folder));
    }
    confirm_overwriting(Some(&file), overwrite, yes, Some(array))?;
    array_creation::check_device_size("--size", size)?;
    device_file::create(&file, &StoreConfig { array, device: DeviceId(id), size }, overwrite)?;
    let json = json!({"file": file.to_string_lossy(), "array": array.to_string(), "id": id, "size_bytes": size});
    report::done(common.json, json, || {
        format!("{}: device {} of array {array}, {}\n", file.display(), DeviceId(id), format_size(size))
    })
}

/// Show the metadata of a device: its array, its number, and the structure of its store
///
/// The command only reads the disk. The device must not be in use.
#[derive(clap::Args)]
pub struct InspectArgs {
    /// The file or disk
    file: PathBuf,
}

pub fn inspect(arguments: InspectArgs, common: &Common) -> Result<ExitCode, Failure> {
    let device = DeviceFile::open_to_look(&arguments.file)?;
    let superblock = device.superblock();
    let geometry = &superblock.geometry;
    let json = json!({
        "file": arguments.file,
        "format": braid_store::FORMAT,
        "array": superblock.array.to_string(),
        "id": superblock.device.0,
        "size_bytes": geometry.size,
        "journal": {"offset": geometry.journal_offset, "length": geometry.journal_length},
        "map": {"offset": geometry.map_offset, "pages": geometry.map_pages},
        "data": {"offset": geometry.data_offset, "slots": geometry.slots},
        "checkpoint": superblock.checkpoint,
    });
    report::done(common.json, json, || {
        named([
            ("format", braid_store::FORMAT.to_string()),
            ("array", superblock.array.to_string()),
            ("device", superblock.device.to_string()),
            ("size", format_size(geometry.size)),
            ("journal", format!("{} at byte {}", format_size(geometry.journal_length), geometry.journal_offset)),
            ("map", format!("2 x {} pages at byte {}", geometry.map_pages, geometry.map_offset)),
            ("data", format!("{} slots of 64 KiB at byte {}", geometry.slots, geometry.data_offset)),
            ("checkpoints", superblock.checkpoint.to_string()),
        ])
    })
}

/// Read every block that a device holds, and verify its checksum
///
/// Opens the device as a start does (with recovery if it was killed), so it must not be in use. Lists damaged blocks by object and
/// block; `braid volume check` shows their effect on a volume. Ends with status 4 if any block is damaged.
#[derive(clap::Args)]
pub struct CheckArgs {
    /// The file or disk
    file: PathBuf,
}

/// Damaged blocks that are listed.
const NAMED: usize = 16;

pub fn check(arguments: CheckArgs, common: &Common) -> Result<ExitCode, Failure> {
    let device = DeviceFile::open(&arguments.file, Default::default())?;
    let bar = output::progress(0, "blocks");
    let found = device.check(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    let named: Vec<_> = found.damaged.iter().take(NAMED).map(|(object, block)| (object.0, *block)).collect();
    let json = json!({
        "file": arguments.file,
        "objects": found.objects,
        "blocks": found.blocks,
        "damaged": found.damaged.len(),
        "first_damaged": named.iter().map(|(o, b)| json!({"object": o, "block": b})).collect::<Vec<_>>(),
        "undecided": found.undecided,
    });
    report::print(common.json, json, || {
        let (objects, blocks, damaged, undecided) = (found.objects, found.blocks, found.damaged.len(), found.undecided);
        let mut text =
            format!("{objects} objects, {blocks} blocks checked, {damaged} damaged; {undecided} writes undecided\n");
        for (object, block) in &named {
            text += &format!("damaged: object {object} block {block}\n");
        }
        text
    });
    Ok(if found.damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}

pub fn array_id(text: &str) -> Result<ArrayId, String> {
    braid_control::parse_array_id(text)
        .ok_or_else(|| format!("'{text}' is not a UUID; `braid status` shows that of the array"))
}

/// Returns when the path may be overwritten: it contains nothing but an old disk of its `own` array, or that was confirmed, by `yes` or
/// at the terminal.
pub fn confirm_overwriting(
    path: Option<&Path>,
    overwrite: bool,
    yes: bool,
    own: Option<ArrayId>,
) -> Result<(), Failure> {
    let Some(path) = path.filter(|_| overwrite) else { return Ok(()) };
    if !answer_of(path, ANSWER_WAIT, Path::exists)? {
        return Ok(());
    }
    let mut facts = DiskFacts::of(path)?;
    match DeviceFile::open_to_look(path).map(|disk| disk.superblock().array) {
        Ok(array) => facts.content = (own != Some(array)).then(|| format!("a disk of array {array}")),
        // It is not overwritten in any case.
        Err(failure) if failure.code == "device-in-use" => return Ok(()),
        Err(_) => {}
    }
    if yes || facts.content.is_none() {
        braid_terminal::tell!("{facts}; it is overwritten");
        return Ok(());
    }
    confirm(&facts.to_string(), "Overwrite it?", "confirm with --yes that its content is not needed")
}
