//! Chores around the repository, in the language of the repository.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian packages with the clients that the tests run, and a file that each brings.
const CLIENTS: [(&str, &str); 7] = [
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
  cargo xtask planted   plant known bugs, one after the other, and see the simulator catch each
  cargo xtask ci        everything that .ci/run does";

fn main() -> Result<()> {
    let task = std::env::args().nth(1).unwrap_or_default();
    match task.as_str() {
        "test" => test(),
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
    install_clients()?;
    // The tests with real processes start this program.
    run(cargo(&["build", "--release", "--locked", "--package", "braid"]))?;
    run(cargo(&["test", "--workspace", "--locked"]))
}

fn install_clients() -> Result<()> {
    let missing: Vec<&str> =
        CLIENTS.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", missing.join(", "));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let install = [&["install", "--yes", "--quiet", "--no-install-recommends"], &missing[..]].concat();
    run(apt(&["update", "--quiet"]))
        .and_then(|()| run(apt(&install)))
        .with_context(|| format!("the tests need these Debian packages: apt-get install {}", missing.join(" ")))
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
