//! Runs seed after seed until one fails or time is up.

use braid_cluster::{Options, Report, run};
use braid_wire::{Atomicity, Ordering};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: attack [--seed S] [--runs N] [--time-limit SECONDS] [--ordering NAME] [--atomicity NAME]
              [--trace LINES] [--keep-going]
  --seed S          the first seed (0 unless told otherwise)
  --runs N          how many seeds from there (1 if a seed is given, else 1000)
  --time-limit SEC  begin no further run after so many seconds
  --ordering NAME   keep hosts apart in this way, whatever the seeds say
  --atomicity NAME  what becomes of what is cut short, whatever the seeds say
  --trace LINES     on failure, print so many of the last events
  --keep-going      go on after failures, and count them";

struct Arguments {
    seed: u64,
    runs: u64,
    time_limit: Option<Duration>,
    ordering: Option<Ordering>,
    atomicity: Option<Atomicity>,
    trace: usize,
    keep_going: bool,
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    let mut last_word = begun;
    let (mut sum, mut failures) = (Report::default(), 0);
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.runs) {
        if arguments.time_limit.is_some_and(|limit| begun.elapsed() > limit) {
            break;
        }
        let options = Options::of_seed(seed);
        let options = match arguments.ordering {
            Some(ordering) => options.ordered_by(ordering),
            None => options,
        };
        let options = match arguments.atomicity {
            Some(atomicity) => options.with_atomicity(atomicity),
            None => options,
        };
        if arguments.runs == 1 {
            println!("{options}");
        }
        match run(options.clone(), arguments.trace) {
            Ok(report) => sum.add(&report),
            Err(failure) => {
                failures += 1;
                if arguments.runs > 1 {
                    println!("{options}");
                }
                println!("{failure}");
                if !arguments.keep_going {
                    return ExitCode::FAILURE;
                }
            }
        }
        if last_word.elapsed() > Duration::from_secs(5) {
            last_word = Instant::now();
            eprintln!("seed {seed}: {} runs in {:.0} s, {failures} failed", sum.runs, begun.elapsed().as_secs_f64());
        }
    }
    println!("{sum}");
    println!("  took {:.1} s, {failures} failed", begun.elapsed().as_secs_f64());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut seed, mut runs) = (None, None);
    let mut arguments =
        Arguments { seed: 0, runs: 0, time_limit: None, ordering: None, atomicity: None, trace: 0, keep_going: false };
    while let Some(word) = words.next() {
        if word == "--ordering" {
            let name = words.next().ok_or("--ordering needs a name")?;
            arguments.ordering = Some(name.parse().map_err(|error| format!("{error}"))?);
            continue;
        }
        if word == "--atomicity" {
            let name = words.next().ok_or("--atomicity needs a name")?;
            arguments.atomicity = Some(name.parse().map_err(|error| format!("{error}"))?);
            continue;
        }
        let mut number = || {
            let value = words.next().ok_or(format!("{word} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("{word} needs a number, not '{value}'"))
        };
        match word.as_str() {
            "--seed" => seed = Some(number()?),
            "--runs" => runs = Some(number()?),
            "--time-limit" => arguments.time_limit = Some(Duration::from_secs(number()?)),
            "--trace" => arguments.trace = number()? as usize,
            "--keep-going" => arguments.keep_going = true,
            _ => return Err(format!("there is no option '{word}'")),
        }
    }
    arguments.seed = seed.unwrap_or(0);
    arguments.runs = runs.unwrap_or(if seed.is_some() && arguments.time_limit.is_none() { 1 } else { 1_000 });
    if runs.is_none() && arguments.time_limit.is_some() {
        arguments.runs = u64::MAX;
    }
    Ok(arguments)
}
