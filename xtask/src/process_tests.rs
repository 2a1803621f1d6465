//! Runs the tests with real processes. Several run at once, because they also wait. On a busy machine one of them may miss a deadline
//! that it keeps alone, so those that fail are run once more, one after the other: a test fails if it fails alone, too. Each first failure is
//! reported, because a rare failure may also be a bug.

use crate::prelude::*;
use std::io::{BufRead, BufReader};

/// How many tests run at once: more than a small machine has processors.
const THREADS: &str = "6";
/// With more failures than this, the cause is no missed deadline.
const RETRIED_MAX: usize = 4;

pub fn run_all() -> Result<()> {
    let mut tests = command(&["--test-threads", THREADS]);
    let failed = failures(&mut tests)?;
    if failed.is_empty() {
        return Ok(());
    }
    ensure!(failed.len() <= RETRIED_MAX, "{} tests with real processes failed", failed.len());
    eprintln!("\nwarning: failed among others, and is run again alone: {}", failed.join(", "));
    let names: Vec<&str> = failed.iter().map(String::as_str).collect();
    run(command(&[&["--test-threads", "1", "--exact"], names.as_slice()].concat()))
}

fn command(arguments: &[&str]) -> Command {
    cargo(&[&["test", "--workspace", "--test", "processes", "--locked", "--"], arguments].concat())
}

/// Runs the tests, shows their output, and returns the names of those that failed.
fn failures(tests: &mut Command) -> Result<Vec<String>> {
    let mut child = tests.stdout(Stdio::piped()).spawn().with_context(|| format!("{tests:?} could not be started"))?;
    let output = child.stdout.take().expect("its output is a pipe");
    let mut failed = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        failed.extend(failed_test(&line).map(String::from));
        println!("{line}");
    }
    let status = child.wait()?;
    ensure!(status.success() || !failed.is_empty(), "{tests:?} ended with {status}");
    Ok(failed)
}

/// The name in a line that reports a failure.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_failures_name_their_test() {
        assert_eq!(failed_test("test links::a_cut ... FAILED"), Some("links::a_cut"));
        assert_eq!(failed_test("test links::a_cut ... ok"), None);
        assert_eq!(failed_test("test result: FAILED. 1 passed; 1 failed"), None);
    }
}
