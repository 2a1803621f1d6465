//! The program `braid-sim` simulates arrays with the protocol code of real arrays. `braid sim` starts it.
//!
//! | module | what |
//! | --- | --- |
//! | `attack` | runs arrays under faults, one seed after another |
//! | `replay` | shows one run of the attack, event by event |
//! | `matrix` | crashes each node of a tiny array at each of its steps |
//! | `experiments` | lists, runs and reports the papers' experiments on modelled hardware |
//! | `history` | writes histories of file systems to a file |
//! | `failure` | the errors of commands |

mod attack;
mod experiments;
mod failure;
mod history;
mod matrix;
mod replay;

use braid_terminal::Common;
use braid_terminal::arguments::{asks_for_json, sentence};
use braid_terminal::outline;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::{Exit, Failure};
use std::ffi::OsString;
use std::process::ExitCode;

/// Simulation allocates millions of times: with this allocator it takes a fifth less time than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulate arrays with the protocol code of real arrays: attack them, or run the papers' experiments
///
/// `attack` runs whole arrays under all kinds of faults, and checks that no data is lost and the order of operations is
/// right. `replay` shows one such run step by step. `matrix` crashes every node of a tiny array at each of its steps.
/// docs/fault-model.md describes the faults, docs/testing.md the checks.
///
/// `run` measures on modelled hardware. Each experiment prints its results beside the paper's, and writes NAME.csv,
/// NAME.json and a plot for each part of the figure; `report` makes one page of all results. The seed determines a run completely.
/// docs/simulator.md describes the models and their assumptions.
///
/// Examples:
///   braid sim attack --time 5m
///   braid sim replay 8127
///   braid sim list
///   braid sim run shared-array-fig6
///   braid sim run shared-array-fig10-left --set workload.read_fraction=0.5 --out half-reads
///   braid sim run --all --quick --out first-look && braid sim report first-look
#[derive(Parser)]
#[command(name = "braid-sim", bin_name = "braid sim", version = braid_terminal::VERSION, max_term_width = 100, verbatim_doc_comment)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments, or the parameters with --parameters
    List(experiments::List),
    /// Run experiments
    Run(experiments::Run),
    /// Make one HTML page from a folder of results
    Report(experiments::Report),
    Attack(attack::Arguments),
    Replay(replay::Arguments),
    Matrix(matrix::Arguments),
    /// Print the outline of the command line, which `braid completions` reads
    #[command(hide = true)]
    Outline,
}

fn main() -> ExitCode {
    braid_terminal::log_to_stderr();
    braid_terminal::output::finish(run(&std::env::args_os().collect::<Vec<_>>()))
}

fn run(arguments: &[OsString]) -> ExitCode {
    let matches = Cli::command().try_get_matches_from(arguments);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json(arguments) => {
            let failure = Failure::usage("usage", sentence(&error));
            return failure.hint("`--help` after any command explains it").report(true);
        }
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS };
        }
    };
    execute(cli.command, &cli.common).unwrap_or_else(|failure| failure.report(cli.common.json))
}

fn execute(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::List(arguments) => experiments::list(&arguments, common),
        Command::Run(arguments) => experiments::execute_run(&arguments, common),
        Command::Report(arguments) => experiments::execute_report(&arguments, common),
        Command::Attack(arguments) => attack::execute(arguments, common),
        Command::Replay(arguments) => replay::execute(arguments, common),
        Command::Matrix(arguments) => matrix::execute(&arguments, common),
        Command::Outline => {
            braid_terminal::output::print(true, || outline::of(&Cli::command()), String::new);
            Ok(ExitCode::SUCCESS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
