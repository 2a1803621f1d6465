//! Chores around the repository, in the language of the repository.

mod compare;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A Debian package, and a file that it brings.
type Package = (&'static str, &'static str);

/// The clients that the tests run.
const CLIENTS: [Package; 7] = [
    ("fio", "/usr/bin/fio"),
    ("qemu-utils", "/usr/bin/qemu-img"),
    ("libnbd-bin", "/usr/bin/nbdinfo"),
    ("nbdfuse", "/usr/bin/nbdfuse"),
    ("python3-libnbd", "/usr/bin/nbdsh"),
    ("fuse3", "/usr/bin/fusermount3"),
    ("e2fsprogs", "/usr/sbin/mkfs.ext4"),
];

const HELP: &str = "\
Chores around the repository.

  cargo xtask test      install the clients that the tests use (Debian packages), then run all tests
  cargo xtask compare   measure Braid beside the raw disk and qemu-nbd; --help says how
  cargo xtask planted   plant known bugs, one after the other, and see the simulator catch each
  cargo xtask ci        everything that .ci/run does";

fn main() -> ExitCode {
    match chore() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn chore() -> Result<()> {
    let task = std::env::args().nth(1).unwrap_or_default();
    match task.as_str() {
        "test" => test(),
        "compare" => compare::run(std::env::args().skip(2)),
        "planted" => planted(),
        "ci" => run(Command::new(root().join(".ci/run"))),
        "" | "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => bail!("there is no task '{other}'\n\n{HELP}"),
    }
}

fn test() -> Result<()> {
    install(&CLIENTS)?;
    // The tests with real processes start this program.
    build_braid()?;
    run(cargo(&["test", "--workspace", "--locked"]))
}

/// Builds the command `braid` as it is meant to be used.
fn build_braid() -> Result<()> {
    run(cargo(&["build", "--release", "--locked", "--package", "braid"]))
}

/// Installs those packages that are missing.
fn install(packages: &[Package]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(", "));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let install = [&["install", "--yes", "--quiet", "--no-install-recommends"], &missing[..]].concat();
    run(apt(&["update", "--quiet"]))
        .and_then(|()| run(apt(&install)))
        .with_context(|| format!("these Debian packages are needed: apt-get install {}", missing.join(" ")))
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

/// Where release builds of this tree lie.
fn release_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("release")
}
