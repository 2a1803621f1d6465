//! Says what a path is before it is overwritten, and asks if it contains something.

use braid_admin::disk_facts::DiskFacts;
use braid_admin::failure::Failure;
use std::io::IsTerminal;
use std::path::Path;

/// Returns when the path may be overwritten: it contains nothing known, or that was confirmed, by `yes` or at the terminal.
pub fn confirm(path: Option<&Path>, overwrite: bool, yes: bool) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| overwrite && path.exists()) else { return Ok(()) };
    let facts = DiskFacts::of(path)?;
    if yes || facts.content.is_none() {
        braid_terminal::tell!("{facts}; it is overwritten");
        return Ok(());
    }
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        braid_terminal::ask!("{facts}. Overwrite it? [y/N] ");
        let mut answer = String::new();
        // Without an answer, it is not overwritten.
        std::io::stdin().read_line(&mut answer)?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        return Err(Failure::failed("not-confirmed", "nothing was changed"));
    }
    Err(Failure::usage("not-confirmed", facts.to_string()).hint("confirm with --yes that its content is not needed"))
}
