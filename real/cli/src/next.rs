//! The command `braid` of the invented next release, for tests of upgrades.

use std::process::ExitCode;

fn main() -> ExitCode {
    braid_cli::run()
}
