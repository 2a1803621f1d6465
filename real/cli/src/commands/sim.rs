//! `braid sim`: starts the program `braid-sim`, which lies beside this one. So `braid` itself does not contain the simulator.

use braid_admin::failure::Failure;
use braid_terminal::Common;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Simulate arrays, with the protocol code of real ones: attack them, or run the papers' experiments
///
/// It is a program of its own, `braid-sim`, which lies beside `braid`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// What braid-sim is told; --help says what there is
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Arguments {
    /// What braid-sim is told.
    #[cfg(test)]
    pub fn words(&self) -> &[OsString] {
        &self.arguments
    }
}

/// The program's name.
const PROGRAM: &str = "braid-sim";

/// Becomes that program.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    if !program.exists() {
        let message = format!("{} is not there: the simulator is a program of its own", program.display());
        return Err(Failure::unreachable("no-simulator", message).hint(
            "`cargo build --release -p braid-sim` builds it; it must lie in the same folder as `braid` (`cargo install --path sim/cli` puts it there)",
        ));
    }
    let mut command = Command::new(&program);
    command.args(common.json.then_some("--json"));
    // It replaces this process, so that signals and the exit status are its own. It returns only if that fails.
    let error = command.args(arguments.arguments).exec();
    Err(Failure::from(error).of(program.display()))
}
