//! Runs `braid` and other programs, with a time limit, and captures their output.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit status and output of a program.
#[derive(Debug)]
pub struct Outcome {
    /// The command line, for messages.
    pub line: String,
    /// Its exit status; none if a signal ended it.
    pub status: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// The time limit of a command, in seconds.
const LIMIT_SECONDS: &str = "150";
/// The exit status of `timeout` when the time limit was reached.
const TIMED_OUT: i32 = 124;

/// The program under test: `$BRAID_BIN`, or the build of this workspace.
pub fn braid_bin() -> PathBuf {
    let built = || {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
        target.join("debug/braid")
    };
    let path = std::env::var_os("BRAID_BIN").map_or_else(built, PathBuf::from);
    assert!(
        path.exists(),
        "{} does not exist: `cargo xtask test` builds it and runs the tests; or use `cargo build`",
        path.display()
    );
    path
}

/// Runs `braid` until it ends.
pub fn braid(arguments: &[&str]) -> Outcome {
    run(braid_bin().to_str().expect("our paths are plain"), arguments)
}

/// Runs any program until it ends.
pub fn run(program: &str, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT_SECONDS, program]).args(arguments).env_remove("BRAID_ARRAY");
    // nbdsh starts python3, and only the system's own python3 has libnbd.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("/usr/bin:{path}:/usr/sbin:/sbin"));
    let output = command.output().expect("timeout is part of every Debian");
    let line = format!("{program} {}", arguments.join(" "));
    let outcome = Outcome {
        line,
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(outcome.status != Some(127), "{program} is missing: `cargo xtask test` installs what the tests need");
    assert!(outcome.status != Some(TIMED_OUT), "took longer than {LIMIT_SECONDS} s: {outcome}");
    outcome
}

/// Runs a program, which must succeed, and returns its output.
pub fn tool(program: &str, arguments: &[&str]) -> String {
    let outcome = run(program, arguments).done();
    outcome.stdout + &outcome.stderr
}

impl Outcome {
    /// Checks that the command succeeded.
    #[track_caller]
    pub fn done(self) -> Outcome {
        assert!(self.status == Some(0), "{self}");
        self
    }

    /// The output with `--json`: one object, with a schema number.
    #[track_caller]
    pub fn json(&self) -> Value {
        let value: Value = match serde_json::from_str(self.stdout.trim()) {
            Ok(value) => value,
            Err(error) => panic!("not one JSON object ({error}): {self}"),
        };
        assert!(value["schema"] == 2 || value.get("error").is_some(), "no schema number: {self}");
        value
    }

    /// The output of a check that found something: exit status 1, and a report.
    #[track_caller]
    pub fn failed_check(&self) -> Value {
        assert!(self.status == Some(1), "expected exit status 1: {self}");
        let report = self.json();
        assert!(report.get("error").is_none(), "a report was expected: {self}");
        report
    }

    /// Checks that the command failed with this exit status, and with an error that has this code, a message, and a hint or null. Returns
    /// message and hint.
    #[track_caller]
    pub fn refused(&self, status: i32, code: &str) -> String {
        assert!(self.status == Some(status), "expected exit status {status}: {self}");
        let error = &self.json()["error"];
        assert!(error["code"] == code, "expected the code {code}: {self}");
        let hint = error.get("hint").expect("an error has a hint, or says that there is none");
        assert!(hint.is_null() || hint.as_str().is_some_and(|hint| !hint.is_empty()), "{self}");
        let message = error["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "an error says what is wrong: {self}");
        format!("{message}\n{}", hint.as_str().unwrap_or_default())
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { line, status, stdout, stderr } = self;
        write!(f, "{line}\nended with status {status:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}
