//! `braid completions`: scripts for completion of the command line in shells.

use braid_admin::failure::Failure;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a script that completes the command line in a shell
///
/// For bash: `braid completions bash > ~/.local/share/bash-completion/completions/braid`.
/// For zsh, a file `_braid` in a folder of $fpath; for fish, ~/.config/fish/completions/braid.fish.
#[derive(clap::Args)]
pub struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: Arguments, mut command: clap::Command) -> Result<ExitCode, Failure> {
    clap_complete::generate(arguments.shell, &mut command, "braid", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
