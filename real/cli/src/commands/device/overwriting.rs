//! Says what a path is before it is overwritten, and asks if it contains something.

use crate::commands::confirmation::confirm as confirm_facts;
use braid_admin::disk_facts::{ANSWER_WAIT, DiskFacts, answer_of};
use braid_admin::failure::Failure;
use std::path::Path;

/// Returns when the path may be overwritten: it contains nothing known, or that was confirmed, by `yes` or at the terminal.
pub fn confirm(path: Option<&Path>, overwrite: bool, yes: bool) -> Result<(), Failure> {
    let Some(path) = path.filter(|_| overwrite) else { return Ok(()) };
    if !answer_of(path, ANSWER_WAIT, Path::exists)? {
        return Ok(());
    }
    let facts = DiskFacts::of(path)?;
    if yes || facts.content.is_none() {
        braid_terminal::tell!("{facts}; it is overwritten");
        return Ok(());
    }
    confirm_facts(&facts.to_string(), "Overwrite it?", "confirm with --yes that its content is not needed")
}
