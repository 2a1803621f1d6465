//! Says what a path is before it is overwritten, and asks if it contains something.

use crate::commands::confirmation::confirm as confirm_facts;
use braid_admin::device_file::DeviceFile;
use braid_admin::disk_facts::{ANSWER_WAIT, DiskFacts, answer_of};
use braid_admin::failure::Failure;
use braid_base::ArrayId;
use std::path::Path;

/// Returns when the path may be overwritten: it contains nothing known but an old disk of its `own` array, or that was confirmed, by `yes` or
/// at the terminal.
pub fn confirm(path: Option<&Path>, overwrite: bool, yes: bool, own: Option<ArrayId>) -> Result<(), Failure> {
    let Some(path) = path.filter(|_| overwrite) else { return Ok(()) };
    if !answer_of(path, ANSWER_WAIT, Path::exists)? {
        return Ok(());
    }
    let mut facts = DiskFacts::of(path)?;
    if let Ok(array) = DeviceFile::open_to_look(path).map(|disk| disk.superblock().array)
        && own != Some(array)
    {
        facts.content = Some(format!("a disk of array {array}"));
    }
    if yes || facts.content.is_none() {
        braid_terminal::tell!("{facts}; it is overwritten");
        return Ok(());
    }
    confirm_facts(&facts.to_string(), "Overwrite it?", "confirm with --yes that its content is not needed")
}
