//! The command `braid sim matrix`: two concurrent writes in a tiny array, and a crash of each node at each of its steps.

use crate::failure::{Exit, Failure};
use braid_base::DeviceId;
use braid_cluster::crash_table::{CaseResult, run_matrix, tables};
use braid_cluster::matrix::{ARRAYS, Broken, Case, Point, Shape};
use braid_layout::SitePolicy;
use braid_ordering::Ordering;
use braid_terminal::{Common, output};
use serde_json::{Value, json};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

/// Run two concurrent writes in a tiny array, with a crash of each node at each of its steps
///
/// Two hosts, A and B, write the first of two stripes concurrently. A run without a crash counts the inputs of each node
/// (messages, completions of disk commands, timers). Then, for each input of each node, a run makes power fail at the node
/// in place of that input. For devices this is repeated with everything, nothing or some of the unsynced data left on the
/// disk, and with the device back at once or only after the array has become degraded. Each run ends with the checks of the
/// attack: every write is complete or has no effect, no acknowledged write is lost, parity is right, and no transaction is
/// undecided.
///
/// The command prints a table for each array, with the numbers of crashes of each node, and of crashes that led to an error.
/// Writes: part (half a block), small (one unit), large (all other units), full (a stripe), across (from one stripe to the next).
///
/// Examples:
///   braid sim matrix --every 50                        a quick look, about a minute
///   braid sim matrix --into docs/testing.md            all cases; updates the tables of the page
///   braid sim matrix --on 0 --ordering timestamp --writes small+full --crash d1:12:nothing
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Only the array with this number; see --list
    #[arg(long, value_name = "N")]
    on: Option<usize>,
    /// List the arrays
    #[arg(long)]
    list: bool,
    /// Only this ordering [default: all except none]
    #[arg(long, value_name = "NAME", value_parser = braid_terminal::arguments::ordering())]
    ordering: Option<Ordering>,
    /// Only this parity site: originator or at-parity [default: at-parity as well, where it makes a difference]
    #[arg(long, value_name = "SITE", value_parser = braid_terminal::arguments::parity_site())]
    site: Option<SitePolicy>,
    /// Only this pair of writes, as in small+full
    #[arg(long, value_name = "A+B", value_parser = pair)]
    writes: Option<(Shape, Shape)>,
    /// A device that is down from the start and returns at the end
    #[arg(long, value_name = "DEVICE")]
    without: Option<u16>,
    /// Try only every Nth crash
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Run only this crash, as in A:7, d1:12:nothing or d2:9:long, and show its last events; requires --on, --ordering and --writes
    #[arg(long, value_name = "POINT", value_parser = Point::from_str, requires_all = ["on", "ordering", "writes"])]
    crash: Option<Point>,
    /// With --crash: number of lines to show from the end of the trace
    #[arg(long, value_name = "LINES", default_value_t = 100)]
    trace: usize,
    /// Write the tables into this file, between the two marker lines
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Number of concurrent runs [default: the number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
}

const BEGIN: &str = "<!-- the crash matrix, by `braid sim matrix` -->";
const END: &str = "<!-- end of the crash matrix -->";

pub fn execute(arguments: &Arguments, common: &Common) -> Result<ExitCode, Failure> {
    if arguments.list {
        let rows = || ARRAYS.iter().enumerate().map(|(number, array)| array_row(number, array)).collect::<Vec<_>>();
        output::print(common.json, || json!({"schema": 2, "arrays": rows()}), || output::table(&rows()));
        return Ok(ExitCode::SUCCESS);
    }
    let cases = cases(arguments)?;
    if let Some(point) = arguments.crash {
        return show(&cases[0], point, arguments.trace, common);
    }
    // An unusable file is reported before hours of work, not after.
    let page = arguments.into.as_ref().map(Page::read).transpose()?;
    let bar = output::progress(0, "crashes");
    let results = run_matrix(cases, arguments.every, arguments.threads, |points| bar.set_length(points), || bar.inc(1));
    bar.finish_and_clear();
    let tables = tables(&results);
    if let Some(page) = page {
        page.write(&tables)?;
    }
    let broken: Vec<&Broken> = results.iter().flat_map(|result| &result.broken).collect();
    output::print(
        common.json,
        || to_json(&results, &broken),
        || {
            let failures: String =
                broken.iter().map(|broken| format!("\n{broken}\nreplay:     {}\n", broken.command())).collect();
            format!("{tables}{failures}\n{} crashes, {} failed\n", tried(&results), broken.len())
        },
    );
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(Exit::DataLost as u8) })
}

fn array_row(number: usize, (scheme, devices, unit_blocks): &(&str, usize, u64)) -> Vec<String> {
    vec![number.to_string(), scheme.to_string(), format!("{devices} devices"), format!("units of {unit_blocks} blocks")]
}

fn cases(arguments: &Arguments) -> Result<Vec<Case>, Failure> {
    if let Some(array) = arguments.on.filter(|array| *array >= ARRAYS.len()) {
        return Err(Failure::usage("no-such-array", format!("there is no array {array}"))
            .hint("`braid sim matrix --list` shows the arrays"));
    }
    let without = arguments.without.map(DeviceId);
    let orderings: Vec<Ordering> = match arguments.ordering {
        Some(ordering) => vec![ordering],
        None => Ordering::ALL.into_iter().filter(|ordering| *ordering != Ordering::None).collect(),
    };
    let arrays: Vec<usize> = arguments.on.map_or_else(|| (0..ARRAYS.len()).collect(), |array| vec![array]);
    let has_it = |array: &usize| without.is_none_or(|device| usize::from(device.0) < ARRAYS[*array].1);
    let all = arrays.into_iter().filter(has_it).flat_map(|array| {
        orderings.iter().flat_map(move |ordering| Case::all(array, *ordering, without)).collect::<Vec<_>>()
    });
    // A crash is one of a single case.
    let site = arguments.site.or(arguments.crash.map(|_| SitePolicy::Originator));
    let is_meant = |case: &Case| {
        arguments.writes.is_none_or(|writes| case.writes == writes) && site.is_none_or(|site| case.site == site)
    };
    let cases: Vec<Case> = all.filter(is_meant).collect();
    if cases.is_empty() {
        return Err(Failure::usage("no-such-case", "there is no such array, device, parity site or pair of writes").hint(
            "the first write of a pair must not come after the second in this list: part, small, large, full, across",
        ));
    }
    Ok(cases)
}

fn show(case: &Case, point: Point, lines: usize, common: &Common) -> Result<ExitCode, Failure> {
    match case.run(Some(point), lines) {
        Ok(_) => {
            output::print(
                common.json,
                || json!({"schema": 2, "broken": null}),
                || "no error found after this crash\n".into(),
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(broken) => {
            let trace: String = broken.trace.iter().map(|line| format!("{line}\n")).collect();
            output::print(common.json, || broken_json(&broken), || format!("{trace}{broken}\n"));
            Ok(ExitCode::from(Exit::DataLost as u8))
        }
    }
}

fn tried(results: &[CaseResult]) -> u64 {
    results.iter().flat_map(|result| result.tried.values()).map(|(tried, _)| tried).sum()
}

fn to_json(results: &[CaseResult], broken: &[&Broken]) -> Value {
    let row = |result: &CaseResult| {
        let nodes = result
            .tried
            .iter()
            .map(|(node, (tried, failed))| json!({"node": node.to_string(), "tried": tried, "failed": failed}));
        let (a, b) = result.case.writes;
        json!({"array": result.case.array, "ordering": result.case.ordering.name(), "site": result.case.site.name(),
               "writes": [a.name(), b.name()],
               "without": result.case.without.map(|device| device.0), "nodes": nodes.collect::<Vec<_>>()})
    };
    json!({"schema": 2, "tried": tried(results), "cases": results.iter().map(row).collect::<Vec<_>>(),
           "failures": broken.iter().map(|broken| broken_json(broken)).collect::<Vec<_>>()})
}

fn broken_json(broken: &Broken) -> Value {
    json!({"schema": 2, "check": broken.failed.check, "details": broken.failed.details, "replay": broken.command(),
           "crash": broken.crash.map(|point| point.to_string()), "trace": broken.trace})
}

/// A file with two marker lines, between which the tables are written.
struct Page<'a> {
    path: &'a PathBuf,
    before: String,
    after: String,
}

impl Page<'_> {
    fn read(path: &PathBuf) -> Result<Page<'_>, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
        let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
        let (before, after) = parts.ok_or_else(|| {
            Failure::usage("no-place", format!("{} has no place for the tables", path.display()))
                .hint(format!("insert these two lines into the file: {BEGIN} and {END}"))
        })?;
        Ok(Page { path, before: before.to_string(), after: after.to_string() })
    }

    fn write(self, tables: &str) -> Result<(), Failure> {
        let text = format!("{}{BEGIN}\n\n{tables}\n{END}{}", self.before, self.after);
        std::fs::write(self.path, text).map_err(|error| Failure::file(self.path, &error))
    }
}

/// Parses a pair of writes.
fn pair(text: &str) -> Result<(Shape, Shape), String> {
    text.split_once('+').and_then(|(a, b)| Some((Shape::from_name(a)?, Shape::from_name(b)?))).ok_or_else(|| {
        format!("'{text}' is not a pair of writes; join two of {} by +", Shape::ALL.map(Shape::name).join(", "))
    })
}
