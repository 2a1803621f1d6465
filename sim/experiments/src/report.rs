//! One HTML page of all results in a folder: plots, tables, parameters, assumptions, and the commands that repeat the runs. The page
//! needs no other files and follows the reader's choice of light or dark.

use crate::assumptions::{self, Assumption};
use crate::catalogue::EXPERIMENTS;
use crate::experiment::Base;
use crate::output::Record;
use braid_benchkit::plot::plots_of;
use braid_benchkit::tables::{Block, Cell, FELL_BEHIND_MEANS, fell_behind, tables};
use std::path::{Path, PathBuf};

/// An error of the report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There are no results.
    #[error("there are no results in {dir}; create some with `braid sim run NAME --out {dir}`")]
    Empty { dir: String },
    /// A file can't be read or written.
    #[error("{path}: {error}")]
    File { path: String, error: std::io::Error },
    /// A file was not written by `braid sim run`.
    #[error("{path} is not a result of `braid sim run`: {error}")]
    NotOurs { path: String, error: serde_json::Error },
}

/// Writes `report.html` into a folder of results; returns its path.
pub fn write(dir: &Path) -> Result<PathBuf, ReportError> {
    let records = read_all(dir)?;
    let path = dir.join("report.html");
    std::fs::write(&path, page(&records))
        .map_err(|error| ReportError::File { path: path.display().to_string(), error })?;
    Ok(path)
}

/// Reads the results of a folder, or of the folders in it, in the order of [`EXPERIMENTS`].
fn read_all(dir: &Path) -> Result<Vec<Record>, ReportError> {
    let mut records = Vec::new();
    for experiment in EXPERIMENTS {
        // `run` makes a folder for each call in the folder of all.
        let folders = [dir.to_path_buf(), dir.join(experiment.name), dir.join("all")];
        let paths = folders.map(|folder| folder.join(format!("{}.json", experiment.name)));
        let Some(path) = paths.into_iter().find(|path| path.exists()) else { continue };
        let shown = path.display().to_string();
        let unreadable = |error| ReportError::File { path: shown.clone(), error };
        let text = std::fs::read_to_string(&path).map_err(unreadable)?;
        records.push(serde_json::from_str(&text).map_err(|error| ReportError::NotOurs { path: shown, error })?);
    }
    if records.is_empty() {
        return Err(ReportError::Empty { dir: dir.display().to_string() });
    }
    Ok(records)
}

fn page(records: &[Record]) -> String {
    let mut body = String::new();
    body.push_str("<header><h1>Ways to keep hosts apart</h1><p class=\"lead\">The experiments of \u{201c}Highly concurrent shared storage\u{201d} (Amiri, Gibson, Golding; ICDCS 2000), of \u{201c}Data structure consistency using atomic operations in storage devices\u{201d} (Devulapalli, Dalessandro, Wyckoff), of \u{201c}One Phase Commit\u{201d} (Congiu, Grawinkel, Narasimhamurthy, Brinkmann) and of \u{201c}A Case Study in Distributed Locking Protocol on Linux Clusters\u{201d} (Hwang, No, Park), run by Braid's own protocol code on modelled hardware, beside the numbers that the papers state.</p></header>\n<nav><ol>");
    for record in records {
        body.push_str(&format!("<li><a href=\"#{0}\">{1}</a></li>", record.name, escape(&record.title)));
    }
    body.push_str("<li><a href=\"#method\">Method</a></li><li><a href=\"#open\">What the papers leave open</a></li><li><a href=\"#parameters\">Parameters</a></li></ol></nav>\n<main>\n");
    for record in records {
        body.push_str(&section(record));
    }
    body.push_str(&method(records));
    body.push_str(&open_assumptions());
    body.push_str(&parameters(records));
    body.push_str("</main>\n");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Braid: the shared-array experiments</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// The section of one experiment.
fn section(record: &Record) -> String {
    let experiment = EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == record.name)
        .expect("the experiment was found by its name");
    let mut html = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n",
        record.name,
        escape(&record.title),
        escape(&record.about)
    );
    if record.quick {
        html.push_str("<p class=\"note\">A quick look (<code>--quick</code>): few operations, two replications.</p>\n");
    }
    let plots = plots_of(experiment.title, experiment.x, experiment.plots, &record.rows);
    if !plots.is_empty() {
        html.push_str("<div class=\"plots\">\n");
        for plot in plots {
            html.push_str(&format!(
                "<figure>{}<figcaption>{}</figcaption></figure>\n",
                themed(&plot.svg),
                escape(&plot.caption)
            ));
        }
        html.push_str("</div>\n");
    }
    let blocks = tables(experiment.metrics, experiment.x.title, &record.rows);
    // A long table is folded; figure 6 is itself a table.
    let folded = !experiment.plots.is_empty();
    if folded {
        html.push_str("<details><summary>All numbers</summary>\n");
    }
    blocks.iter().for_each(|block| html.push_str(&table(block)));
    if fell_behind(&blocks) {
        html.push_str(&format!("<p class=\"note\">{}</p>\n", escape(FELL_BEHIND_MEANS)));
    }
    if folded {
        html.push_str("</details>\n");
    }
    let speed = record.speed;
    html.push_str(&format!(
        "<p class=\"run\"><code>{}</code><br>{} runs, {:.1} million events in {:.1} s on {} threads</p>\n</section>\n",
        escape(&record.command()),
        speed.runs,
        speed.events as f64 / 1e6,
        speed.seconds,
        speed.threads
    ));
    html
}

fn table(block: &Block) -> String {
    let mut html = format!("<div class=\"scroll\"><table><caption>{}</caption><thead><tr>", escape(&block.title));
    for head in &block.heads {
        html.push_str(&format!("<th>{}</th>", escape(head)));
    }
    html.push_str("</tr></thead><tbody>\n");
    for line in &block.lines {
        html.push_str("<tr>");
        for cell in line {
            html.push_str(&match cell {
                Cell::Head(head) => format!("<th>{}</th>", escape(head)),
                Cell::Empty => "<td></td>".to_string(),
                Cell::Number { ours, paper: None } => format!("<td>{}</td>", escape(ours)),
                Cell::Number { ours, paper: Some((paper, difference)) } => {
                    format!(
                        "<td>{}<span class=\"paper\">paper {} {}</span></td>",
                        escape(ours),
                        escape(paper),
                        escape(difference)
                    )
                }
            });
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>\n"
}

fn method(records: &[Record]) -> String {
    let of = |key: &str| {
        let mut all = records.iter().flat_map(|record| &record.parameters);
        all.find(|(name, _)| name == key).map_or("\u{2013}", |(_, value)| value.as_str())
    };
    format!(
        "<section id=\"method\">\n<h2>Method</h2>\n<p>Hosts, devices and lock servers are the machines that real arrays run, and their messages are the real ones. Disks, links, processors and clocks are modelled; disks, links and processors are first-come, first-served queues. Payloads cost time but are not copied. No message is lost and no node fails: another simulator attacks the same machines.</p>\n<p>Each point is the mean of {} independent replications, each of {} operations after a warm-up of {}, or of as many locks or files as the parameters say; \u{b1} is half of the 95 % confidence interval (Student's t). A replication has the same seed at every point, so that differences between protocols do not come from the random source; the seed determines every run. The peak load (<code>peak_ops</code>) is the throughput at the largest even number of hosts at which 99 % of the offered load is served and latency does not grow steadily. Hollow circles and the small figures in tables are the paper's own numbers; of most of its plots the text states only the ends of the axes.</p>\n</section>\n",
        of("run.replications"),
        of("run.operations"),
        of("run.warm_up_operations"),
    )
}

fn open_assumptions() -> String {
    let mut html = "<section id=\"open\">\n<h2>What the papers leave open</h2>\n<p>Each of these can be read in several ways; the first reading is the baseline. The experiments <code>shared-array-assumptions</code>, <code>device-atomics-assumptions</code>, <code>one-phase-commit-assumptions</code> and <code>range-locks-assumptions</code> show the effect of each.</p>\n".to_string();
    for (title, base) in [
        ("Table 1 of the shared-array paper", Base::SharedArray),
        ("Section 8 of the device-atomics paper", Base::DeviceAtomics),
        ("Section IV of the one-phase-commit paper", Base::OnePhaseCommit),
        ("Section 4 of the range-lock paper", Base::RangeLocks),
    ] {
        html.push_str(&format!("<h3>{title}</h3>\n<dl>\n"));
        assumptions::open(base).iter().for_each(|assumption| html.push_str(&open_assumption(assumption)));
        html.push_str("</dl>\n");
    }
    html + "</section>\n"
}

fn open_assumption(assumption: &Assumption) -> String {
    let reading = |(index, (label, _)): (usize, &(String, String))| {
        if index == 0 { format!("<strong>{}</strong>", escape(label)) } else { escape(label) }
    };
    let readings: Vec<String> = assumption.readings.iter().enumerate().map(reading).collect();
    format!("<dt>{}</dt><dd>{}</dd>\n", escape(&assumption.name), readings.join(" \u{b7} "))
}

fn parameters(records: &[Record]) -> String {
    let mut html = "<section id=\"parameters\">\n<h2>Parameters</h2>\n".to_string();
    for base in Base::ALL {
        if records.iter().any(|record| record.base == base.file()) {
            html.push_str(&format!(
                "<details><summary><code>{}</code></summary><pre>{}</pre></details>\n",
                base.file(),
                escape(base.text())
            ));
        }
    }
    html + "<p>Each parameter can be set: <code>braid sim run NAME --set network.bandwidth_mb_s=100</code>, unless the experiment sets it itself.</p>\n</section>\n"
}

/// Replaces the colours of a plot by those of the page.
fn themed(svg: &str) -> String {
    svg.replace("#FFFFFF", "var(--paper)").replace("#000000", "var(--ink)").replace("#E0E0E0", "var(--grid)")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const STYLE: &str = include_str!("report.css");
