//! Tasks around the repository: `cargo xtask help` lists them.

mod atomics;
mod compare;
mod etcd;
mod guests;
mod healing;
mod instructions;
mod link;
mod machines;
mod packages;
mod posix;
mod prelude;
mod process_tests;
mod test_programs;

use crate::prelude::*;
use clap::Parser;
use std::process::ExitCode;

/// Tasks around the repository
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 130, bin_name = "cargo xtask", arg_required_else_help = true)]
enum Task {
    /// Install the clients that the tests use (Debian packages), then run all tests
    Test,
    /// Run the long forms of the tests with real processes, a million hostile messages to each machine, and 20,000 runs of the simulated
    /// attack; takes hours
    Soak,
    /// Attack every socket of an array with hostile peers while clients work: five minutes, or as long as named
    Hostile {
        #[arg(default_value = "300")]
        seconds: String,
    },
    Machines(machines::Arguments),
    /// Build the etcd that `cargo xtask machines` runs on into target/etcd, from the proxy for Go modules
    Etcd,
    Compare(compare::Arguments),
    Healing(healing::Arguments),
    Link(link::Arguments),
    Posix(posix::Arguments),
    Guests(guests::Arguments),
    Atomics(atomics::Arguments),
    /// Plant known bugs one after the other (bugs/NAME.patch; all, if none is named), and check that the simulator finds each
    Planted {
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    Instructions(instructions::Arguments),
    /// Do everything that .ci/run does
    Ci,
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Test => test(),
        Task::Soak => soak(),
        Task::Hostile { seconds } => hostile(&seconds),
        Task::Machines(arguments) => machines::run(&arguments),
        Task::Etcd => etcd::build().map(|folder| println!("{}", folder.display())),
        Task::Compare(arguments) => compare::run(&arguments),
        Task::Healing(arguments) => healing::run(&arguments),
        Task::Link(arguments) => link::measure_link(&arguments),
        Task::Posix(arguments) => posix::test(&arguments),
        Task::Guests(arguments) => guests::test(&arguments),
        Task::Atomics(arguments) => atomics::run(&arguments),
        Task::Planted { names } => planted(&names),
        Task::Instructions(arguments) => instructions::instructions(&arguments),
        Task::Ci => run(Command::new(root().join(".ci/run"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn test() -> Result<()> {
    packages::install(&packages::CLIENTS, "the tests need")?;
    // All at once, and always for the whole workspace: for some of its packages, cargo would build others with fewer features. The tests with
    // real processes start the programs.
    run(cargo(&["build", "--workspace", "--lib", "--bins", "--tests", "--examples", "--locked"]))?;
    build_next()?;
    test_programs::run_all(&[
        "--workspace",
        "--exclude",
        "braid-processes",
        "--exclude",
        "braid-machines",
        "--locked",
    ])?;
    // Beside tests that compute they miss deadlines, even if those have the lowest scheduling class.
    process_tests::run_all()?;
    run(machines::tests(&machines::SHORT))
}

/// Builds the release that array upgrades are tested with.
fn build_next() -> Result<()> {
    run(cargo(&["build", "--workspace", "--bin", "braid-next", "--features", "braid/next-level", "--locked"]))
}

/// Tests that take too long for every change.
fn soak() -> Result<()> {
    packages::install(&packages::CLIENTS, "the tests need")?;
    run(cargo(&["build", "--locked", "--package", "braid", "--package", "braid-sim"]))?;
    let tests: [&[&str]; 3] =
        [&["braid-processes"], &["braid-hostile"], &["braid-cluster", "--test", "swarms", "--test", "metadata_matrix"]];
    for selected in tests {
        let mut tests = cargo(&[&["test", "--locked", "--package"], selected].concat());
        tests.env("BRAID_SOAK", "1");
        run(tests)?;
    }
    run(cargo(&["run", "--locked", "--package", "braid-sim", "--", "attack", "--runs", "20000", "--keep-going"]))
}

/// The long form of one test with real processes.
fn hostile(seconds: &str) -> Result<()> {
    run(cargo(&["build", "--locked", "--package", "braid"]))?;
    let test = "hostile::clients_work_on_while_every_socket_is_attacked";
    let mut tests = cargo(&["test", "--locked", "--package", "braid-processes", "--test", "processes", "--", test]);
    tests.args(["--nocapture", "--exact"]).env("BRAID_SOAK", "1").env("BRAID_HOSTILE_SECONDS", seconds);
    run(tests)
}

/// A release build of `braid`: the program that is `named`, or one that is built now.
fn release_build(named: Option<&Path>) -> Result<PathBuf> {
    let program = program(named, "dist", &[])?;
    if !program.exists() {
        bail!("{} does not exist: give --braid the path of a release build", program.display());
    }
    Ok(program)
}

/// The program `braid` that is `named`, or one that is built now in this profile, together with other packages.
fn program(named: Option<&Path>, profile: &str, packages: &[&str]) -> Result<PathBuf> {
    if let Some(program) = named {
        return Ok(std::path::absolute(program)?);
    }
    let mut build = cargo(&["build", "--profile", profile, "--locked", "--package", "braid"]);
    build.args(packages.iter().flat_map(|package| ["--package", package]));
    run(build)?;
    Ok(target_folder().join(if profile == "dev" { "debug" } else { profile }).join("braid"))
}

fn planted(names: &[String]) -> Result<()> {
    // The whole workspace is selected, as for the tests: so most crates are built already.
    run(cargo(&["build", "--locked", "--workspace", "--bin", "planted"]))?;
    let mut planted = Command::new(target_folder().join("debug/planted"));
    planted.args(names).current_dir(root());
    run(planted)
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

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
