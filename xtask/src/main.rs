//! Chores around the repository, in the language of the repository.

mod instructions;
mod packages;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const HELP: &str = "\
Chores around the repository.

  cargo xtask test      install the clients that the tests use (Debian packages), then run all tests
  cargo xtask planted   plant known bugs, one after the other, and see the simulator catch each
  cargo xtask instructions [--write] [NAME…]
                        count the instructions of the hot pieces (installs valgrind), and compare them with
                        benches/instructions.json, or write them there; NAME: only pieces whose names begin so
  cargo xtask ci        everything that .ci/run does";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let task = arguments.first().map_or("", String::as_str);
    match task {
        "test" => test(),
        "planted" => planted(),
        "instructions" => instructions::instructions(&arguments[1..]),
        "ci" => run(Command::new(root().join(".ci/run"))),
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("there is no task '{other}'\n\n{HELP}"),
    }
}

fn test() -> Result<()> {
    packages::install(&packages::CLIENTS, "the tests need")?;
    // The tests with real processes start this program.
    run(cargo(&["build", "--release", "--locked", "--package", "braid"]))?;
    run(cargo(&["test", "--workspace", "--locked"]))
}

fn planted() -> Result<()> {
    run(cargo(&["run", "--release", "--locked", "--package", "braid-cluster", "--bin", "planted"]))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

fn run(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?} could not be started"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_path_buf()
}
