//! Runs the acceptance tests of arrays on three machines (`tests/machines`), which are network namespaces here.

use crate::prelude::*;
use crate::{build_next, etcd};

/// The checks that `cargo xtask test` makes, too: they take less than a minute.
pub const SHORT: [&str; 2] = ["a_volume_is_served_on_three_machines", "the_leading_monitor_is_killed"];

/// The numbers of checks, by which several can be named at once.
const NUMBERS: [(&str, &[&str]); 10] = [
    ("1", &["the_leader_of_etcd_is_killed_and_stopped"]),
    (
        "2",
        &[
            "the_leading_monitor_is_killed",
            "the_leading_monitor_ends_in_order",
            "the_leading_monitor_is_stopped_and_continues",
        ],
    ),
    ("3", &["a_machine_is_cut_off_and_returns", "a_machine_dies_and_returns", "all_machines_die_and_return"]),
    ("4", &["links_are_cut_in_one_and_in_both_directions"]),
    ("5", &["etcd_is_unavailable", "etcd_is_full"]),
    ("6", &["etcd_is_unavailable_and_the_leading_monitor_dies"]),
    ("7", &["etcd_is_restored_from_an_old_snapshot", "etcd_loses_all_data_and_is_recovered"]),
    ("8", &["an_agent_is_started_twice_and_a_machine_is_cloned"]),
    ("11", &["a_program_of_the_next_release_replaces_that_of_each_machine_and_back"]),
    ("13", &["three_bare_roots_serve_a_volume_and_a_folder_within_a_minute"]),
];

/// Check what an array on three machines promises when processes, machines and etcd fail: all checks, or those named
///
/// The machines are network namespaces, so it needs root. Ends with status 0 only if each check holds.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only list the checks
    #[arg(long)]
    list: bool,
    /// Make a hundred cuts, and let each state last: takes hours
    #[arg(long)]
    long: bool,
    /// The numbers of checks, or their names
    #[arg(value_name = "CHECK")]
    checks: Vec<String>,
}

pub fn run(Arguments { list, long, checks }: &Arguments) -> Result<()> {
    let known = known()?;
    let number =
        |check: &str| NUMBERS.iter().find(|(_, names)| names.contains(&check)).map_or("", |(number, _)| number);
    if *list {
        known.iter().for_each(|check| println!("{:>2}  {check}", number(check)));
        return Ok(());
    }
    let named = |check: &String| match NUMBERS.iter().find(|(number, _)| number == check) {
        Some((_, names)) => names.iter().map(ToString::to_string).collect(),
        None => vec![check.clone()],
    };
    let checks: Vec<String> = checks.iter().flat_map(named).collect();
    if let Some(unknown) = checks.iter().find(|check| !known.contains(check)) {
        bail!("there is no check {unknown}: `cargo xtask machines --list` lists them");
    }
    packages::install(&[&packages::CLIENTS[..], &[("nftables", "/usr/sbin/nft")]].concat(), "the checks need")?;
    crate::run(cargo(&["build", "--workspace", "--bin", "braid", "--locked"]))?;
    build_next()?;
    let mut tests = tests(&checks.iter().map(String::as_str).collect::<Vec<_>>());
    // None is skipped.
    tests.env("BRAID_MACHINES", "1").env("BRAID_ETCD", etcd::build()?);
    if *long {
        tests.env("BRAID_SOAK", "1");
    }
    crate::run(tests)
}

/// Makes these checks, or all if none is named, where the system permits them. The program must be there.
pub fn tests(names: &[&str]) -> Command {
    let all = ["test", "--workspace", "--test", "machines", "--test", "acceptance", "--no-fail-fast", "--locked"];
    let all = [&all[..], &["--", "--nocapture", "--exact"]].concat();
    cargo(&[&all[..], names].concat())
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
