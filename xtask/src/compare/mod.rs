//! `cargo xtask compare`: Braid beside the raw disk and `qemu-nbd`, interleaved on one file system.

pub mod array;
pub mod fio;
pub mod folder;
pub mod interrupt;
mod loopback;
pub mod plan;
pub mod process;
pub mod progress;
mod qemu;
mod report;
mod rest;
mod rounds;
pub mod statistics;
mod system;
pub mod table;

use crate::packages::{self, Package};
use anyhow::{Context, Result};
use array::{Array, Placement};
use braid_base::units::{format_size, parse_size};
use clap::Parser;
use fio::Fio;
use folder::Folder;
use interrupt::Interrupt;
use plan::{Job, Part, Subject};
use progress::Progress;
use qemu::Qemu;
use report::Report;
use rounds::Rounds;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PACKAGES: [Package; 2] = [("fio", "/usr/bin/fio"), ("qemu-utils", "/usr/bin/qemu-nbd")];

/// Measure Braid beside the raw disk and qemu-nbd
///
/// Everything lies on one file system: a raw file, which fio uses with O_DIRECT and io_uring and which `qemu-nbd --cache=none
/// --aio=io_uring` serves, and an array of five device processes with a volume of the same size. Raw file and volume are
/// written full first. Braid and qemu-nbd are both reached over loopback TCP, with fio's nbd engine; all load is at queue depth 32.
/// In each round every subject runs once per load, with the same seed, in an order that turns from round to round.
///
/// Prints the medians, the median of the ratios of each round, and the 95 % interval of that median. Quiet machines measure best.
/// All files are removed in the end, also after Ctrl-C.
///
/// Examples:
///   cargo xtask compare                               ten rounds of everything in ./braid-compare; about half an hour
///   cargo xtask compare --quick                       does it work at all? about two minutes; its figures mean little
///   cargo xtask compare --only read-4k --only rest    two parts of it
///   cargo xtask compare --dir /mnt/disk/compare --rounds 20 --json figures.json
#[derive(Parser)]
#[command(name = "cargo xtask compare", verbatim_doc_comment, max_term_width = 130)]
struct Arguments {
    /// A folder on the disk in question; made if it is not there
    #[arg(long, default_value = "./braid-compare")]
    dir: PathBuf,
    /// How often each subject runs; from 6 on there are 95 % intervals [default: 10; with --quick 2]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How long each run takes [default: 5; with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Only these parts; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<Part>,
    /// Bytes of the raw file and of the volume [default: 10GiB; with --quick 1GiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// A few short rounds on little data, to see that it works
    #[arg(long)]
    quick: bool,
    /// Also write every single run, with latencies and command lines, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Take this program instead of a release build of this tree
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
}

/// How much, and of what.
pub struct Settings {
    /// How often each subject runs.
    pub rounds: u32,
    /// How long each run takes.
    pub seconds: u32,
    /// Bytes of the volume and of the raw file.
    pub size: u64,
    /// What is measured.
    pub parts: Vec<Part>,
    /// How long the array is watched at rest.
    pub rest: Duration,
}

/// The least size that makes sense: a sequential run should not wrap around at once.
const SIZE_MIN: u64 = 256 << 20;
/// The array's processes may need so long to become quiet before they are watched at rest.
const CALM: Duration = Duration::from_secs(10);

/// Measures, and prints what was found.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<()> {
    let arguments = Arguments::parse_from(std::iter::once("cargo xtask compare".to_string()).chain(arguments));
    let settings = Settings::of(&arguments);
    packages::install(&PACKAGES, "the comparison needs")?;
    let program = crate::release_build(arguments.braid.as_deref())?;

    if let Some(file) = &arguments.json {
        // Better now than after half an hour.
        std::fs::write(file, "").with_context(|| format!("can't write {}", file.display()))?;
    }

    let interrupt = Interrupt::catch()?;
    let folder = Folder::make(&arguments.dir, &settings)?;
    let mut report = Report::new(&settings, &program, folder.path());
    let outcome = measure(&settings, &folder, &program, &interrupt, &mut report);
    // What was measured until then is worth showing in any case.
    if !report.is_empty() {
        print!("{}", report.text());
        if let Some(file) = &arguments.json {
            let text = format!("{:#}\n", report.json());
            std::fs::write(file, text).with_context(|| format!("can't write {}", file.display()))?;
        }
    }
    let removed = folder.remove();
    outcome.and(removed)
}

/// Sets the subjects up, lets them run in turn, and takes them down.
fn measure(
    settings: &Settings,
    folder: &Folder,
    program: &Path,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let jobs = plan::jobs(&settings.parts);
    let (moving, staying): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.part == Part::InProcess);
    let needed: Vec<Subject> = staying.iter().flat_map(Job::subjects).collect();
    let progress = Progress::new()?;

    let fio = Fio::new(folder.path(), settings, interrupt);
    let raw = folder.path().join("raw.img");
    if !needed.is_empty() {
        progress.say(&format!("writing the raw file full: {}", format_size(settings.size)));
        fio.fill(&fio::Target::File(raw.clone()))?;
    }
    let qemu = match needed.contains(&Subject::Qemu) {
        true => Some(Qemu::start(&raw, folder.path(), interrupt)?),
        false => None,
    };
    let mut array = Array::new(program, folder.path(), settings.size, interrupt);
    array.start(Placement::Processes)?;
    progress.say(&format!("writing the volume full: {}", format_size(settings.size)));
    fio.fill(&fio::Target::Nbd(array.uri()?))?;
    array.settle()?;

    let rounds = Rounds { settings, fio: &fio, interrupt, raw: &raw, qemu: qemu.as_ref(), progress: &progress };
    rounds.run(&staying, &mut array, report)?;
    if settings.parts.contains(&Part::Memory) {
        report.memory = Some(rounds.memory(&mut array)?);
    }
    if settings.parts.contains(&Part::Rest) {
        progress.say(&format!("CPU time at rest, for {:?}", settings.rest));
        interrupt.pause(CALM)?;
        report.rest = Some(rest::cpu_share(&array, settings.rest, interrupt)?);
    }
    for job in &moving {
        rounds.placements(job, &mut array, report)?;
    }
    array.stop()
}

impl Settings {
    fn of(arguments: &Arguments) -> Settings {
        let quick = arguments.quick;
        let mut parts: Vec<Part> = Part::ALL.to_vec();
        parts.retain(|part| arguments.only.is_empty() || arguments.only.contains(part));
        Settings {
            rounds: arguments.rounds.unwrap_or(if quick { 2 } else { 10 }),
            seconds: arguments.seconds.unwrap_or(if quick { 1 } else { 5 }),
            size: arguments.size.unwrap_or(if quick { 1 << 30 } else { 10 << 30 }),
            parts,
            rest: Duration::from_secs(if quick { 5 } else { 30 }),
        }
    }
}

/// Bytes of a volume, as they are typed.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < SIZE_MIN || !bytes.is_multiple_of(1 << 20) {
        return Err(format!("take whole MiB, and at least {}", format_size(SIZE_MIN)));
    }
    Ok(bytes)
}
