//! `braid completions`: scripts for completion of the command line in shells.

use super::sim;
use braid_admin::failure::Failure;
use braid_terminal::{outline, output};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a script that completes the command line in a shell
///
/// For bash: `braid completions bash > ~/.local/share/bash-completion/completions/braid`.
/// For zsh, a file `_braid` in a folder of $fpath; for fish, ~/.config/fish/completions/braid.fish.
/// `braid sim` is completed if `braid-sim` is in the same folder as `braid`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: Arguments, command: clap::Command) -> Result<ExitCode, Failure> {
    let mut command = match sim::outline().and_then(|outline| outline::to_command(&outline)) {
        Some(simulator) => command.mut_subcommand(sim::NAME, |ours| match ours.get_about().cloned() {
            Some(about) => simulator.name(sim::NAME).about(about),
            None => simulator.name(sim::NAME),
        }),
        None => command,
    };
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "braid", &mut script);
    output::write(&script);
    Ok(ExitCode::SUCCESS)
}
