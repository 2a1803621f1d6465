//! `cargo xtask posix`: tests of POSIX on mounts of a file system, on a real array.
//!
//! The tests are programs that others wrote for any file system. Each runs on one mount, and on two mounts at once: then a preloaded library
//! (`real/two-mounts`) gives every other call to the second mount, whose host is another one. Each outcome that is not a success must be
//! listed in `exceptions.txt`, with the reason; and what is listed there must come out so.

mod exceptions;
mod loads;
mod mounts;
mod outcome;
mod pjdfstest;
mod suites;
mod tools;

use crate::prelude::*;
use exceptions::Exceptions;
use mounts::Mounts;
pub use outcome::name_of;
use outcome::{Case, Kind, Outcome};
use suites::{SUITES, Suite};

/// Test POSIX on mounts of a file system
///
/// Starts an array in a folder, mounts its file system in two folders, and runs there:
///
///   pjdfstest  the rules for each system call, error by error (crates.io)
///   fsx        random writes, reads, truncations and copies of one file, compared with what they must leave (crates.io)
///   stress-ng  system calls of many kinds from several processes at once (Debian)
///   dbench     the calls of a file server, as recorded (Debian)
///
/// each on one mount, and on two at once; and the suites of programs, whose calls are not divided:
///
///   cpython    the tests of Python's modules for files, compared with a local folder (Debian)
///   git        a part of git's tests, compared with a local folder (Debian's source, built here); all of t0, t1, t3 and t5 by `--case`
///   sqlite     writers on two mounts, with kills of a writer and a device, for each kind of rollback journal
///   postgresql pgbench on one mount, with kills of every process below it, and of itself; sums, and pg_amcheck
///
/// The tools are installed if they are missing: into target/posix, and by apt-get. An outcome that
/// xtask/src/posix/exceptions.txt does not list, or lists otherwise, is an error. It must run as root: the tests change owners.
///
/// Examples:
///   cargo xtask posix                                        everything; about an hour
///   cargo xtask posix --quick                                a minute: parts of pjdfstest, a little fsx
///   cargo xtask posix --only pjdfstest --case rename         the cases whose names contain `rename`
///   cargo xtask posix --only fsx --mounts two --seconds 3600 fsx for an hour
///   cargo xtask posix --only fsx --seed 17                   a run that failed, again
///   cargo xtask posix --only git --case t0 --case t1 --case t3 --case t5
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// A folder for the array and its mounts; it must not exist, and is removed at the end
    #[arg(long, default_value = "./braid-posix")]
    dir: PathBuf,
    /// Run only this tool; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<Tool>,
    /// Run only on one mount, or only on two at once
    #[arg(long, value_name = "NUMBER")]
    mounts: Option<Kind>,
    /// Only cases whose names contain this text, or begin with it: of pjdfstest, stress-ng and git; may be given more than once
    #[arg(long, value_name = "TEXT")]
    case: Vec<String>,
    /// Duration of fsx, of dbench, and of each round of sqlite and postgresql, in seconds [default: 30; with --quick 5]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// The first seed of fsx [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// A part that takes a minute
    #[arg(long)]
    quick: bool,
    /// Keep the folder, with the logs of the tools and of the array
    #[arg(long)]
    keep: bool,
    /// Use this program instead of a build of this tree
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
}

/// The tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Tool {
    Pjdfstest,
    Fsx,
    StressNg,
    Dbench,
    Cpython,
    Git,
    Sqlite,
    Postgresql,
}

/// Cases of pjdfstest in the quick part: names of files and directories that appear, move and vanish.
const QUICK_CASES: [&str; 3] = ["rename::", "unlink::", "open::"];
const QUICK_TOOLS: [Tool; 2] = [Tool::Pjdfstest, Tool::Fsx];

impl Tool {
    fn suite(self) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name_of(&self))
    }

    /// True if it runs on so many mounts.
    fn runs_on(self, kind: Kind) -> bool {
        self.suite().is_none_or(|suite| suite.kind == kind)
    }
}

pub fn test(arguments: &Arguments) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "the tests change owners and create device files: run them as root");
    let exceptions = Exceptions::listed()?;
    let interrupt = Interrupt::catch()?;
    let selected = Selection::of(arguments);
    let tools = tools::install(&selected.tools)?;
    let braid = crate::program(arguments.braid.as_deref(), "dev", &[])?;
    run(cargo(&["build", "--locked", "--package", "braid-two-mounts"]))?;
    let library = std::path::absolute(target_folder().join("debug/libbraid_two_mounts.so"))?;
    let mounts = Mounts::start(&braid, &library, &arguments.dir, arguments.keep, &interrupt)?;
    let outcomes = selected.run(&mounts, &tools, &interrupt)?;
    report(&outcomes, &exceptions, &selected, &mounts)
}

/// What is to run.
struct Selection {
    tools: Vec<Tool>,
    kinds: Vec<Kind>,
    cases: Vec<String>,
    seconds: u64,
    seed: u64,
}

impl Selection {
    fn of(arguments: &Arguments) -> Selection {
        let tools = match (&arguments.only[..], arguments.quick) {
            ([], true) => QUICK_TOOLS.to_vec(),
            ([], false) => Tool::value_variants().to_vec(),
            (only, _) => only.to_vec(),
        };
        let cases = match (&arguments.case[..], arguments.quick) {
            ([], true) => QUICK_CASES.map(str::to_string).to_vec(),
            (cases, _) => cases.to_vec(),
        };
        let kinds = arguments.mounts.map_or(vec![Kind::One, Kind::Two], |kind| vec![kind]);
        let seconds = arguments.seconds.unwrap_or(if arguments.quick { 5 } else { 30 });
        let any = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| u64::from(since.subsec_nanos()));
        Selection { tools, kinds, cases, seconds, seed: arguments.seed.unwrap_or_else(any) }
    }

    fn has(&self, case: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|text| case.contains(text.as_str()))
    }

    fn run(&self, mounts: &Mounts, tools: &tools::Tools, interrupt: &Interrupt) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for tool in &self.tools {
            for kind in self.kinds.iter().filter(|kind| tool.runs_on(**kind)) {
                let begun = Instant::now();
                let on = mounts.on(*kind)?;
                let mut found = match tool {
                    Tool::Pjdfstest => pjdfstest::run(&on, tools, &self.cases, interrupt)?,
                    Tool::Fsx => loads::fsx(&on, tools, self.seed, self.seconds, interrupt)?,
                    Tool::StressNg => loads::stress_ng(&on, &|case| self.has(case), interrupt)?,
                    Tool::Dbench => loads::dbench(&on, self.seconds, interrupt)?,
                    Tool::Cpython | Tool::Git | Tool::Sqlite | Tool::Postgresql => {
                        let suite = tool.suite().expect("each of these is in the table");
                        suite.run(&on, tools, &self.cases, self.seconds, interrupt)?
                    }
                };
                let ok = found.iter().filter(|outcome| outcome.case == Case::Ok).count();
                let (name, seconds) = (on.title(), begun.elapsed().as_secs());
                println!("{:<10} {name}: {ok} of {} succeed, in {seconds} s", name_of(tool), found.len());
                outcomes.append(&mut found);
            }
        }
        Ok(outcomes)
    }
}

fn report(outcomes: &[Outcome], exceptions: &Exceptions, selected: &Selection, mounts: &Mounts) -> Result<()> {
    let has_run = |tool: &str, kind: Kind| {
        let is_tool = |selected: &&Tool| name_of(*selected) == tool && selected.runs_on(kind);
        selected.kinds.contains(&kind) && selected.tools.iter().any(|selected| is_tool(&selected))
    };
    let unexpected = exceptions.compare(outcomes, has_run, selected.cases.is_empty());
    for line in &unexpected {
        eprintln!("{line}");
    }
    if !unexpected.is_empty() {
        mounts.keep();
        bail!(
            "{} outcomes are not as expected: repair the file system, or list them in xtask/src/posix/exceptions.txt with \
             the reason. The logs are in {}",
            unexpected.len(),
            mounts.logs().display()
        );
    }
    println!("all outcomes are as expected");
    Ok(())
}
