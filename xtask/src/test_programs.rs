//! Runs test programs, several at once: many end with one long test, during which a processor would be idle. The output of a program is shown
//! when it ends.

use crate::prelude::*;
use std::sync::Mutex;

/// How many programs run at once; each runs as many of its tests at once as there are processors.
const AT_ONCE: usize = 2;

/// A test program.
struct Program {
    executable: String,
    /// The folder in which it runs, that of its package.
    package: PathBuf,
}

/// Runs the tests of these packages, which `arguments` select, and the examples in their documentation.
pub fn run_all(arguments: &[&str]) -> Result<()> {
    let mut programs = listed(arguments)?;
    // The one that computes longest comes first.
    programs.sort_by_key(|program| !program.executable.contains("/swarms-"));
    let (programs, failed) = (Mutex::new(programs.into_iter()), Mutex::new(Vec::new()));
    let run_programs = || -> Result<()> {
        loop {
            let Some(program) = programs.lock().expect("no thread panics").next() else { return Ok(()) };
            if !program.passes()? {
                failed.lock().expect("no thread panics").push(program.executable);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(run_programs)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let failed = failed.into_inner().expect("no thread panics");
    ensure!(failed.is_empty(), "tests failed in {}", failed.join(", "));
    run(cargo(&[&["test", "--doc"], arguments].concat()))
}

/// Builds the test programs.
fn listed(arguments: &[&str]) -> Result<Vec<Program>> {
    let mut build = cargo(&[&["test", "--no-run", "--message-format=json"], arguments].concat());
    let output = build.stderr(Stdio::inherit()).output().with_context(|| format!("{build:?} could not be started"))?;
    ensure!(output.status.success(), "{build:?} ended with {}", output.status);
    let messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let messages = messages.map(serde_json::from_slice).collect::<Result<Vec<Value>, _>>()?;
    let program = |message: &Value| {
        let is_test = message["profile"]["test"] == true;
        let executable = message["executable"].as_str().filter(|_| is_test)?.to_string();
        let package = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        Some(Program { executable, package })
    };
    Ok(messages.iter().filter_map(program).collect())
}

impl Program {
    /// Runs it, shows what it says, and returns true if all of its tests pass.
    fn passes(&self) -> Result<bool> {
        let mut tests = Command::new(&self.executable);
        tests.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        // Simulations use much memory for a short time. If the allocator keeps it, runs with files take a fifth less processor time.
        tests.env("MIMALLOC_PURGE_DELAY", "-1");
        let begun = Instant::now();
        let ended = tests.output().with_context(|| format!("{tests:?} could not be started"))?;
        let (said, complained) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        println!("\n{} ran for {:.1?}\n{said}{complained}", self.executable, begun.elapsed());
        Ok(ended.status.success())
    }
}
