//! `braid bench files`: measures names of files, and the bytes of files compared with those of a volume.

use super::arguments::{BenchArray, ScratchArguments};
use super::series::{Comparison, Series, Turn, in_rounds};
use super::settings::{ArraySettings, LoadSettings, Pattern, Settings, Through, VolumeSettings};
use super::test_bed::TestBed;
use crate::prelude::*;
use braid_client::{Array, ArrayOptions, File, Files, FilesError, OpenOptions, Volume};
use braid_session::cpu_micros;
use braid_terminal::output::{self};
use futures_util::{StreamExt, TryStreamExt, stream};

/// Measure files: names created per second, and bytes compared with a volume
///
/// One program mounts a file system and keeps operations in flight, as the options say. Every operation
/// is durable when it is answered. First it creates empty files in one directory, and compares the rate
/// of the last ones with that of the first ones. Then it creates files by opening and closing them.
/// Last, it writes and reads operations of 1 MiB, in turns on a file and on a volume of the same layout;
/// each pair of runs gives one ratio. The bench creates a scratch array and removes it. With --array it
/// measures your running array instead, on a file system and a volume that it creates and deletes.
///
/// Examples:
///   braid bench files
///   braid bench files --names 1000000 --json
///   braid bench files --names 0 --pairs 10 --size 1GiB       bytes only
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    #[command(flatten)]
    scratch: ScratchArguments,
    /// Files to create in one directory
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    names: u64,
    /// How many of the first and of the last names are compared
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    part: u64,
    /// Creations in flight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    creates: u16,
    /// Bytes of the file and of the volume; 0: names only
    #[arg(long, value_parser = size, default_value = "256MiB")]
    size: u64,
    /// Operations of 1 MiB in flight
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,
    /// Pairs of runs on the file and on the volume
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
}

const BLOCK: u64 = 1 << 20;
/// The space of the file system beyond the bytes that are measured,
const SPARE: u64 = 256 << 20;
/// and for each name, so that the metadata volume has room for all.
const SPARE_OF_NAME: u64 = 16 << 10;

struct Names {
    /// Files created per second, all of them.
    rate: f64,
    /// Of the first and of the last ones.
    first: f64,
    last: f64,
    /// Files opened and closed per second, which did not exist.
    opened: f64,
    /// CPU time of this process for a creation, in microseconds.
    cpu_micros: f64,
}

/// The kinds of operations, and for each the mebibytes per second of the file and of the volume.
const KINDS: [&str; 3] = ["new", "overwrite", "read"];
type ByteRates = Series<&'static str, f64>;

/// What bytes are written to and read from.
enum Target {
    File(File),
    Volume(Volume),
}

/// Measures, reports, and removes what was created.
pub async fn run(arguments: Arguments, common: &Common) -> Result<ExitCode, Failure> {
    let BenchArray { choice, array, layout, unit } = arguments.scratch.place(common, None).await?;
    let (mut names, mut bytes) = (None, KINDS.map(|_| Series::new(vec!["file", "volume"])));
    let outcome = crate::on_test_bed(choice, 0, async |test_bed: &mut TestBed| {
        measure_all(test_bed, (array, layout, unit), &arguments, (&mut names, &mut bytes)).await
    })
    .await;
    let runs = usize::from(names.is_some()) + bytes.iter_mut().map(Series::keep_complete).sum::<usize>();
    let json = || as_json(&arguments, &names, &bytes);
    crate::conclude(common, outcome, runs, json, || as_text(&arguments, &names, &bytes))
}

async fn measure_all(
    test_bed: &mut TestBed,
    (array, layout, unit): (ArraySettings, RaidLevel, u64),
    arguments: &Arguments,
    (names, bytes): (&mut Option<Names>, &mut [ByteRates; 3]),
) -> Result<(), Failure> {
    let whole = arguments.size / BLOCK * BLOCK;
    let space = (2 * whole + SPARE + arguments.names * SPARE_OF_NAME).next_multiple_of(BLOCK);
    test_bed.bring_up(&array, space + whole + SPARE).await?;
    let name = test_bed.make_file_system(layout, space, &[]).await?;
    let options = ArrayOptions::at(test_bed.control().place()).name("bench");
    let files = Files::mount(options.clone(), &name).await?;
    if arguments.names > 0 {
        *names = Some(measure_names(&files, arguments).await?);
    }
    if whole > 0 {
        let (parity_site, pattern) = (SitePolicy::OF_NEW_VOLUMES, Pattern::Sequential);
        let volume = VolumeSettings { parity_site, ..VolumeSettings::new(layout, unit, whole) };
        let load = LoadSettings { pattern, depth: arguments.depth, ..LoadSettings::new(Through::Direct, BLOCK) };
        let (site, _) = test_bed.make_volume(&Settings { array, volume, load }).await?;
        let connection = Array::connect(options).await?;
        let volume = connection.volume(test_bed.name(site)).await?;
        let measured = measure_bytes(&files, Target::Volume(volume), whole, arguments, bytes).await;
        connection.close().await;
        measured?;
    }
    files.close().await;
    Ok(())
}

async fn measure_names(files: &Files, arguments: &Arguments) -> Result<Names, Failure> {
    files.create_dir("/names").await?;
    files.create_dir("/opened").await?;
    let progress = output::progress(arguments.names, "files created");
    let part = arguments.part.clamp(1, arguments.names);
    let cpu = cpu_micros();
    let mut rates = Vec::new();
    let begun = Instant::now();
    let behind = (arguments.names - part).max(part);
    for numbers in [0..part, part..behind, behind..arguments.names] {
        let (from, count) = (Instant::now(), numbers.end - numbers.start);
        let create = async |number: u64| files.create_file(format!("/names/file-{number:08}")).await.map(|_| ());
        repeat(numbers, arguments.creates, create, &progress).await?;
        if rates.is_empty() {
            // Files that are opened take about twice as long, and there are as many as in this part.
            let parts = (arguments.names - part).div_ceil(part) + 2;
            crate::announce("the other names", parts as usize, from.elapsed(), "");
        }
        if count > 0 {
            rates.push(count as f64 / from.elapsed().as_secs_f64());
        }
    }
    let rate = arguments.names as f64 / begun.elapsed().as_secs_f64();
    let cpu = (cpu_micros() - cpu) as f64 / arguments.names as f64;
    let open = async |number: u64| {
        let options = OpenOptions::new().write(true).create_new(true);
        files.open(format!("/opened/file-{number:08}"), options).await?.close().await
    };
    let from = Instant::now();
    repeat(0..part, arguments.creates, open, &indicatif::ProgressBar::hidden()).await?;
    let opened = part as f64 / from.elapsed().as_secs_f64();
    let (first, last) = (rates[0], rates[rates.len() - 1]);
    Ok(Names { rate, first, last, opened, cpu_micros: cpu })
}

async fn measure_bytes(
    files: &Files,
    volume: Target,
    whole: u64,
    arguments: &Arguments,
    kinds: &mut [ByteRates; 3],
) -> Result<(), Failure> {
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = Target::File(files.open("/bytes", options).await?);
    let hidden = indicatif::ProgressBar::hidden();
    let rate = async |writes: bool, side: usize| [&file, &volume][side].once(writes, whole, arguments.depth).await;
    let begun = Instant::now();
    // The volume's blocks are allocated by its first write, as the file's are.
    let (first, others) = kinds.split_at_mut(1);
    in_rounds(first, 1, &hidden, async |Turn { index, .. }: Turn<'_, _>| rate(true, index).await).await?;
    let runs = 2 * usize::from(arguments.pairs);
    crate::announce(&format!("{runs} pairs of runs"), runs, begun.elapsed(), "");
    let measure = async |Turn { series, index, .. }: Turn<'_, _>| rate(series == 0, index).await;
    in_rounds(others, arguments.pairs.into(), &hidden, measure).await
}

impl Target {
    /// Writes or reads everything once, and returns the mebibytes per second.
    async fn once(&self, writes: bool, whole: u64, depth: u16) -> Result<f64, Failure> {
        let data = Bytes::from(vec![0x5a; BLOCK as usize]);
        let begun = Instant::now();
        let operation = async |number: u64| {
            let (data, offset) = (data.clone(), number * BLOCK);
            let read = match (self, writes) {
                (Target::File(file), true) => return file.write_at(offset, data).await,
                (Target::Volume(volume), true) => return Ok(volume.write(offset, data).await?),
                (Target::File(file), false) => file.read_at(offset, BLOCK as usize).await?,
                (Target::Volume(volume), false) => volume.read(offset, BLOCK as usize).await?,
            };
            if read == data { Ok(()) } else { Err(FilesError::Damaged) }
        };
        repeat(0..whole / BLOCK, depth, operation, &indicatif::ProgressBar::hidden()).await?;
        Ok((whole / BLOCK) as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Performs the operations of these numbers, with `depth` in flight.
async fn repeat(
    numbers: std::ops::Range<u64>,
    depth: u16,
    operation: impl AsyncFn(u64) -> Result<(), FilesError>,
    progress: &indicatif::ProgressBar,
) -> Result<(), Failure> {
    let operation = async |number: u64| operation(number).await.map(|()| progress.inc(1));
    Ok(stream::iter(numbers).map(Ok).try_for_each_concurrent(usize::from(depth), operation).await?)
}

/// The kinds that were measured, with the file compared with the volume.
fn compared(bytes: &[ByteRates]) -> impl Iterator<Item = (&'static str, Comparison)> {
    let found = KINDS.into_iter().zip(bytes);
    found.filter_map(|(kind, rates)| Some((kind, rates.compare(0, 1, |rate| Some(*rate))?)))
}

fn as_json(arguments: &Arguments, names: &Option<Names>, bytes: &[ByteRates]) -> Value {
    let names = names.as_ref().map(|names| {
        json!({
            "count": arguments.names,
            "in_flight": arguments.creates,
            "per_second": names.rate,
            "first_per_second": names.first,
            "last_per_second": names.last,
            "opened_per_second": names.opened,
            "client_cpu_us": names.cpu_micros,
        })
    });
    let bytes = compared(bytes).map(|(kind, Comparison { own, other, ratio })| {
        json!({
            "kind": kind,
            "file_mib_per_second": own,
            "volume_mib_per_second": other,
            "ratio": ratio.median.unwrap_or(0.0),
            "pairs": ratio.rounds,
        })
    });
    json!({"schema": 2, "names": names, "bytes": bytes.collect::<Vec<_>>()})
}

fn as_text(arguments: &Arguments, names: &Option<Names>, bytes: &[ByteRates]) -> String {
    let mut text = String::new();
    if let Some(names) = names {
        let part = arguments.part.min(arguments.names);
        text += &format!(
            "names: {:.0} files created per second, {} in flight, {:.0} µs of CPU time in this process for each\n",
            names.rate, arguments.creates, names.cpu_micros
        );
        let ratio = names.last / names.first;
        text += &format!(
            "       the first {part}: {:.0} per second; the last {part} of {}: {:.0}, {ratio:.2} of that\n",
            names.first, arguments.names, names.last
        );
        text += &format!("       {:.0} files per second created by opening and closing them\n", names.opened);
    }
    let of_kind = |(kind, Comparison { own, other, ratio }): (&str, Comparison)| {
        let ratio = ratio.median.unwrap_or(0.0);
        [kind.to_string(), format!("{own:.0}"), format!("{other:.0}"), format!("{ratio:.2}")]
    };
    let rows: Vec<_> = compared(bytes).map(of_kind).collect();
    if !rows.is_empty() {
        text += &titled(["1 MiB", "file MiB/s", "volume MiB/s", "ratio"], rows);
    }
    text
}
