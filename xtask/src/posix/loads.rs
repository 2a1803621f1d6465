//! Loads: fsx, stress-ng and dbench.

use super::mounts::On;
use super::outcome::{Case, Outcome};
use super::tools::Tools;
use crate::compare::process::line_of;
use crate::prelude::*;
use std::process::ExitStatus;

/// Shared mappings are not supported, nor are holes punched. A small file with small operations, and a larger one.
const FSX: [(&str, u64, u64); 2] = [("small", 70_000, 20_000), ("large", 4 << 20, 300_000)];
/// Operations of one run, after which the next seed follows.
const FSX_OPERATIONS: u64 = 200;
/// How long a run of a tool may take beyond what it is told.
const PATIENCE: Duration = Duration::from_secs(300);

/// The kinds of system calls that stress-ng is to use, in processes that disturb each other. Those for links and symbolic links are left out:
/// they end only after thousands of them.
const STRESSORS: &str = "\
    access chdir chmod chown copy-file dentry dir dirdeep dirmany dup fcntl filename flock fstat getdent hdd \
    io iomix locka lockf lockofd mknod open rename seek touch utime xattr";
/// Statuses of stress-ng that mean that the kernel, the machine or the file system has not what it would use.
const NOT_AVAILABLE: [i32; 2] = [3, 4];

/// Runs with one seed after the other until the time is over.
pub fn fsx(on: &On, tools: &Tools, seed: u64, seconds: u64, interrupt: &Interrupt) -> Result<Vec<Outcome>> {
    let begun = Instant::now();
    let directory = on.directory("fsx")?;
    let mut outcomes = Vec::new();
    for seed in seed.. {
        let (name, length, operation) = FSX[(seed % 2) as usize];
        let configuration = on.local().join(format!("fsx-{name}.toml"));
        std::fs::write(&configuration, fsx_configuration(length, operation))?;
        let file = directory.join(format!("file-{seed}"));
        let mut command = on.command(tools.fsx());
        command.arg("-f").arg(&configuration).args(["-S", &seed.to_string(), "-N", &FSX_OPERATIONS.to_string()]);
        command.arg("-P").arg(on.local()).arg(&file);
        let status = ended(&mut command, on, &format!("fsx-{seed}"), PATIENCE, interrupt)?;
        outcomes.push(outcome("fsx", on, format!("seed {seed}"), status, &command));
        if status.success() {
            std::fs::remove_file(&file)?;
        }
        if begun.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    println!("fsx: seeds from {seed}, {} runs of {FSX_OPERATIONS} operations", outcomes.len());
    Ok(outcomes)
}

fn fsx_configuration(length: u64, operation: u64) -> String {
    format!(
        "flen = {length}\n[opsize]\nmax = {operation}\n[weights]\nclose_open = 5\nread = 20\nwrite = 20\nmapread = 0\nmapwrite = 0\n\
         truncate = 10\ninvalidate = 0\nfsync = 2\nfdatasync = 2\nposix_fallocate = 2\npunch_hole = 0\nsendfile = 3\n\
         posix_fadvise = 1\ncopy_file_range = 3\n"
    )
}

pub fn stress_ng(on: &On, has: &dyn Fn(&str) -> bool, interrupt: &Interrupt) -> Result<Vec<Outcome>> {
    let directory = on.directory("stress-ng")?;
    let mut outcomes = Vec::new();
    for stressor in STRESSORS.split_whitespace().filter(|stressor| has(stressor)) {
        let mut command = on.command("stress-ng");
        command.arg("--temp-path").arg(&directory).args([&format!("--{stressor}"), "2", "--timeout", "2", "--verify"]);
        let status = ended(&mut command, on, &format!("stress-ng-{stressor}"), PATIENCE, interrupt)?;
        outcomes.push(outcome("stress-ng", on, stressor.to_string(), status, &command));
    }
    Ok(outcomes)
}

pub fn dbench(on: &On, seconds: u64, interrupt: &Interrupt) -> Result<Vec<Outcome>> {
    let mut command = on.command("dbench");
    command.arg("-D").arg(on.directory("dbench")?).args(["--timelimit", &seconds.to_string(), "2"]);
    let status = ended(&mut command, on, "dbench", PATIENCE + Duration::from_secs(seconds * 2), interrupt)?;
    Ok(vec![outcome("dbench", on, "clients".to_string(), status, &command)])
}

fn outcome(tool: &'static str, on: &On, name: String, status: ExitStatus, command: &Command) -> Outcome {
    let case = match status.code() {
        Some(0) => Case::Ok,
        Some(code) if tool == "stress-ng" && NOT_AVAILABLE.contains(&code) => Case::Skipped,
        _ => Case::Failed,
    };
    Outcome { tool, kind: on.kind, name, case, text: format!("{status}: {}", line_of(command)) }
}

/// Runs a tool to its end.
fn ended(command: &mut Command, on: &On, name: &str, most: Duration, interrupt: &Interrupt) -> Result<ExitStatus> {
    Process::start(command, &on.log(name))?.status(most, interrupt)
}
