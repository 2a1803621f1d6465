//! Hidden commands with which this program starts itself: as the supervisor of a command, and to become that command.

use braid_admin::failure::Failure;
use braid_admin::held::running::HeldCommand;
use braid_admin::held::supervisor::{self, Itself};
use std::ffi::OsString;
use std::process::ExitCode;

/// How this program starts itself.
pub const ITSELF: Itself = Itself { supervise: &["recipe", "supervise"], execute: &["recipe", "become"] };

/// Runs a command for the program that started this process, and ends the command with that program
#[derive(clap::Args)]
pub struct Supervise {
    /// The PID of that program
    #[arg(long)]
    parent: u32,
    /// Run the command in a process group of its own
    #[arg(long)]
    grouped: bool,
    /// The command, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Executes a command that dies with the program that started it
#[derive(clap::Args)]
pub struct Become {
    /// The PID of that program
    #[arg(long)]
    parent: u32,
    /// The command, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Supervise {
    /// Runs the command, and ends with its status.
    pub async fn run(&self) -> Result<ExitCode, Failure> {
        let command = HeldCommand { words: &self.command, itself: ITSELF };
        supervisor::supervise(self.parent, self.grouped, &command).await.map(ExitCode::from)
    }
}

impl Become {
    /// Executes the command. Returns only if that fails.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let (error, status) = supervisor::execute(self.parent, &self.command)?;
        braid_terminal::tell!("error: {}: {error}", self.command[0].to_string_lossy());
        Ok(ExitCode::from(status))
    }
}
