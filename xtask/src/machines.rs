//! Runs the acceptance tests of arrays on three machines (`tests/machines`), which are network namespaces here.

use crate::prelude::*;

/// The checks that `cargo xtask test` makes, too: they take less than a minute.
pub const SHORT: [&str; 2] = ["a_volume_is_served_on_three_machines", "the_leading_monitor_is_killed"];

/// Check what an array on three machines promises when processes, machines and etcd fail: all checks, or those named
///
/// The machines are network namespaces, so it needs root. Ends with status 0 only if each check holds.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only list the checks
    #[arg(long)]
    list: bool,
    #[arg(value_name = "CHECK")]
    checks: Vec<String>,
}

pub fn run(Arguments { list, checks }: &Arguments) -> Result<()> {
    let known = known()?;
    if *list {
        known.iter().for_each(|check| println!("{check}"));
        return Ok(());
    }
    if let Some(unknown) = checks.iter().find(|check| !known.contains(check)) {
        bail!("there is no check {unknown}: `cargo xtask machines --list` lists them");
    }
    packages::install(&packages::CLIENTS, "the checks need")?;
    crate::run(cargo(&["build", "--workspace", "--bin", "braid", "--locked"]))?;
    let mut tests = tests(&checks.iter().map(String::as_str).collect::<Vec<_>>());
    // None is skipped.
    tests.env("BRAID_MACHINES", "1");
    crate::run(tests)
}

/// Makes these checks, or all if none is named, where the system permits them. The program must be there.
pub fn tests(names: &[&str]) -> Command {
    let all = ["test", "--workspace", "--test", "machines", "--locked", "--", "--nocapture", "--exact"];
    cargo(&[&all, names].concat())
}

/// The names of all checks.
fn known() -> Result<Vec<String>> {
    let mut listing = tests(&["--list"]);
    let output =
        listing.stderr(Stdio::inherit()).output().with_context(|| format!("{listing:?} could not be started"))?;
    if !output.status.success() {
        bail!("{listing:?} ended with {}", output.status);
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(String::from).collect())
}
