//! `braid sim`: starts the program `braid-sim` in the folder of this program. Therefore `braid` itself does not contain the simulator.
//! `braid completions`: scripts for completion of the command line in shells, also of that program.

use crate::report;
use braid_admin::Failure;
use braid_terminal::arguments::asks_for_json;
use braid_terminal::{Common, outline, output};
use clap_complete::Shell;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitCode, Stdio};

/// Simulate arrays with the protocol code of real arrays: attack them, or run the papers' experiments
///
/// This starts the separate program `braid-sim` in the same folder as `braid`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// The arguments of braid-sim; --help lists them
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Arguments {
    /// The arguments of braid-sim.
    #[cfg(test)]
    pub fn words(&self) -> &[OsString] {
        &self.arguments
    }
}

pub const NAME: &str = "sim";
const PROGRAM: &str = "braid-sim";

/// The outline of the program's command line; none if the program is not there.
pub fn outline() -> Option<serde_json::Value> {
    let program = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    let output =
        process::Command::new(program).arg("outline").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

/// How to get the program.
const HOW_TO_BUILD: &str = "build it with `cargo build --release -p braid-sim`, in the same folder as `braid`; or install it there with `cargo install --path sim/cli`";

/// A short help if it is requested, or an error: the program is not there.
fn without_program(program: &Path, arguments: &[OsString], as_json: bool) -> ExitCode {
    if arguments.iter().any(|argument| ["help", "-h", "--help"].iter().any(|help| argument == help)) {
        output::write(format!(
            "Usage: braid sim COMMAND\n\nSimulates arrays with the protocol code of real arrays: attacks them, and runs the papers' experiments.\n\n\
             The simulator is a separate program, {PROGRAM}, which is not installed beside `braid`:\n{HOW_TO_BUILD}\n"
        ).as_bytes());
        return ExitCode::SUCCESS;
    }
    let message = format!("{} does not exist: the simulator is a separate program", program.display());
    let failure = Failure::unreachable("no-simulator", message).hint(HOW_TO_BUILD);
    report::failure(&failure, as_json || asks_for_json(arguments))
}

/// Replaces this process by that program.
pub fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    if !program.exists() {
        return Ok(without_program(&program, &arguments.arguments, common.json));
    }
    let mut command = process::Command::new(&program);
    command.args(common.json.then_some("--json"));
    // The program replaces this process, so that signals and the exit status are its own. This returns only if that fails.
    let error = command.args(arguments.arguments).exec();
    Err(Failure::from(error).of(program.display()))
}

/// Print a script that completes the command line in a shell
///
/// For bash: `braid completions bash > ~/.local/share/bash-completion/completions/braid`.
/// For zsh, a file `_braid` in a folder of $fpath; for fish, ~/.config/fish/completions/braid.fish.
/// `braid sim` is completed if `braid-sim` is in the same folder as `braid`.
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub fn completions(arguments: CompletionsArgs, command: clap::Command) -> Result<ExitCode, Failure> {
    let mut command = match self::outline().and_then(|outline| outline::to_command(&outline)) {
        Some(simulator) => command.mut_subcommand(NAME, |ours| match ours.get_about().cloned() {
            Some(about) => simulator.name(NAME).about(about),
            None => simulator.name(NAME),
        }),
        None => command,
    };
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "braid", &mut script);
    output::write(&script);
    Ok(ExitCode::SUCCESS)
}
