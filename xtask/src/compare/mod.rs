//! `cargo xtask compare`: compares Braid with the raw disk and `qemu-nbd`, interleaved on one file system.

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
mod system;

use crate::prelude::*;
use array::Array;
use braid_base::units::parse_size;
use fio::Fio;
use folder::Folder;
use plan::{Job, Part, Subject};
use progress::Progress;
use qemu::Qemu;
use report::Report;
use rounds::Rounds;

const PACKAGES: [Package; 2] = [("fio", "/usr/bin/fio"), ("qemu-utils", "/usr/bin/qemu-nbd")];

/// Compare Braid with the raw disk and qemu-nbd
///
/// Everything lies on one file system: a raw file, which fio uses with O_DIRECT and io_uring and which `qemu-nbd --cache=none
/// --aio=io_uring` serves, and an array of five devices with a volume of the same size. Raw file and volume are filled
/// first. Braid and qemu-nbd are both used over loopback TCP, with fio's nbd engine; the queue depth is 32, or 1. In each round every
/// subject runs once per load, with the same seed, in an order that changes from round to round.
///
/// Prints the medians of ten runs of 5 s, the median of the ratios of each round, and the 95 % confidence interval of that median.
/// Results are best on an idle machine. All files are removed at the end, also after Ctrl-C.
///
/// Examples:
///   cargo xtask compare                               ten rounds of everything in ./braid-compare; about half an hour
///   cargo xtask compare --quick                       a quick check that it works, two minutes; its results mean little
///   cargo xtask compare --only read-4k --only rest    two parts of it
///   cargo xtask compare --dir /mnt/disk/compare --rounds 20 --json figures.json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// A folder on the disk to be measured; created if it does not exist
    #[arg(long, default_value = "./braid-compare")]
    dir: PathBuf,
    #[command(flatten)]
    rounds: RoundArguments,
    /// Measure only this part; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<Part>,
    /// Size of the raw file and of the volume [default: 10GiB; with --quick 1GiB]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
}

/// Arguments that measurements in rounds share.
#[derive(clap::Args)]
pub struct RoundArguments {
    /// Runs of each subject; from 6 on there are 95 % confidence intervals [default: see above; with --quick one or two]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Duration of each run in seconds [default: see above; with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Run the array in so many nodes; with 0, each device is a process
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nodes: u16,
    /// A few short rounds on little data, to check that it works
    #[arg(long)]
    pub quick: bool,
    /// Also write every result to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Use this program instead of a release build of this tree
    #[arg(long, value_name = "PATH")]
    pub braid: Option<PathBuf>,
}

impl RoundArguments {
    /// The number of rounds, unless it is given.
    pub fn rounds(&self, usual: u32, quick: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { quick } else { usual })
    }

    /// The seconds of a run, unless they are given.
    pub fn seconds(&self, usual: u32) -> u32 {
        self.seconds.unwrap_or(if self.quick { 1 } else { usual })
    }

    /// The program to measure. An unwritable file for the results is reported now rather than after half an hour.
    pub fn program(&self) -> Result<PathBuf> {
        if let Some(file) = &self.json {
            std::fs::write(file, "").with_context(|| format!("can't write {}", file.display()))?;
        }
        crate::release_build(self.braid.as_deref())
    }
}

/// The parameters of the measurement.
pub struct Settings {
    /// Runs of each subject.
    pub rounds: u32,
    /// Duration of each run in seconds.
    pub seconds: u32,
    /// Bytes of the volume and of the raw file.
    pub size: u64,
    /// The nodes in which the array runs; with 0, each device is a process.
    pub nodes: u16,
    pub parts: Vec<Part>,
    /// How long the CPU time of the idle array is measured.
    pub rest: Duration,
}

/// The smallest useful size: a sequential run should not wrap around soon.
const SIZE_MIN: u64 = 256 << 20;
/// How long the array's processes may take to become idle before their CPU time is measured.
const CALM: Duration = Duration::from_secs(10);

/// Measures, and prints the results.
pub fn run(arguments: &Arguments) -> Result<()> {
    let settings = Settings::of(arguments);
    packages::install(&PACKAGES, "the comparison needs")?;
    let program = arguments.rounds.program()?;
    let json = arguments.rounds.json.as_deref();
    measure_in(&arguments.dir, space_for(settings.size), json, |folder, interrupt| {
        let mut report = Report::new(&settings, &program, folder);
        let outcome = measure(&settings, folder, &program, interrupt, &mut report);
        (outcome, (!report.is_empty()).then(|| (report.text(), report.json())))
    })
}

/// The bytes that a raw file and an array need on the disk.
pub fn space_for(size: u64) -> u64 {
    size + array::DEVICES * array::device_bytes(size)
}

/// Measures in a folder that is removed afterwards, and prints the results, also of rounds before a failure; and writes them to a file if one
/// is named.
pub fn measure_in(
    dir: &Path,
    bytes: u64,
    json: Option<&Path>,
    measure: impl FnOnce(&Path, &Interrupt) -> (Result<()>, Option<(String, Value)>),
) -> Result<()> {
    let interrupt = Interrupt::catch()?;
    let folder = Folder::make(dir, bytes)?;
    let (outcome, results) = measure(folder.path(), &interrupt);
    if let Some((text, all)) = results {
        print!("{text}");
        if let Some(file) = json {
            std::fs::write(file, format!("{all:#}\n")).with_context(|| format!("can't write {}", file.display()))?;
        }
    }
    let removed = folder.remove();
    outcome.and(removed)
}

/// Sets up the subjects, runs them in turn, and stops them.
fn measure(
    settings: &Settings,
    folder: &Path,
    program: &Path,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let jobs = plan::jobs(&settings.parts);
    let (moving, staying): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.part == Part::Node);
    let needed: Vec<Subject> = staying.iter().flat_map(Job::subjects).collect();
    let progress = Progress::new()?;

    let fio = Fio { folder, seconds: settings.seconds, size: settings.size, interrupt };
    let raw = folder.join("raw.img");
    if !needed.is_empty() {
        progress.say(&format!("filling the raw file: {}", format_size(settings.size)));
        fio.fill(&fio::Target::File(raw.clone()))?;
    }
    let qemu = match needed.contains(&Subject::Qemu) {
        true => Some(Qemu::start(&raw, folder, interrupt)?),
        false => None,
    };
    let mut array = Array::new(program, folder, settings.size, interrupt);
    array.start(settings.nodes)?;
    progress.say(&format!("filling the volume: {}", format_size(settings.size)));
    fio.fill(&fio::Target::Nbd(array.uri()?))?;
    array.settle()?;

    let rounds = Rounds { settings, fio: &fio, interrupt, raw: &raw, qemu: qemu.as_ref(), progress: &progress };
    rounds.run(&staying, &mut array, report)?;
    if settings.parts.contains(&Part::Memory) {
        report.memory = Some(rounds.memory(&mut array)?);
    }
    if settings.parts.contains(&Part::Rest) {
        progress.say(&format!("CPU time of the idle array, for {:?}", settings.rest));
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
        let quick = arguments.rounds.quick;
        let mut parts = Part::value_variants().to_vec();
        parts.retain(|part| arguments.only.is_empty() || arguments.only.contains(part));
        Settings {
            rounds: arguments.rounds.rounds(10, 2),
            seconds: arguments.rounds.seconds(5),
            size: arguments.size.unwrap_or(if quick { 1 << 30 } else { 10 << 30 }),
            nodes: arguments.rounds.nodes,
            parts,
            rest: Duration::from_secs(if quick { 5 } else { 30 }),
        }
    }
}

pub fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < SIZE_MIN || !bytes.is_multiple_of(1 << 20) {
        return Err(format!("give a multiple of 1 MiB, at least {}", format_size(SIZE_MIN)));
    }
    Ok(bytes)
}
