//! One file for each command: its arguments, its help, what it does.

mod attr;
mod bench;
mod completions;
mod device;
mod down;
mod events;
mod guard;
mod lockd;
mod monitor;
mod monitord;
mod nbd;
mod object;
mod rebuild;
mod recipe;
mod scrub;
mod sim;
mod status;
mod up;
mod volume;

use crate::failure::{Exit, Failure};
use braid_control::ArrayFolder;
use braid_session::{HEARTBEAT, Session};
use braid_wire::{Atomicity, Ordering};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::LocalSet;

/// A shared storage array without a controller.
///
/// Storage devices sit on the network, and every host that uses them is its own RAID controller; the devices keep
/// concurrent hosts apart. `braid up` brings up a whole array on this machine, with a volume that any NBD client
/// (nbdcopy, qemu, fio, nbdfuse) can use, through as many servers at once as you like.
#[derive(Parser)]
#[command(name = "braid", version, max_term_width = 100, after_long_help = TOUR)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args)]
pub struct Common {
    /// The array: its folder, or the file array.json in it
    #[arg(long, global = true, env = "BRAID_ARRAY", default_value = "./braid-data", value_name = "DIR-or-FILE")]
    pub array: PathBuf,

    /// Whether the command line says so, and not the environment or nobody.
    #[arg(skip)]
    pub array_named: bool,

    /// Print one JSON object instead of text; errors too
    #[arg(long, global = true)]
    pub json: bool,
}

impl Common {
    /// The folder of the array in question.
    pub fn folder(&self) -> ArrayFolder {
        ArrayFolder::at(&self.array)
    }
}

#[derive(Subcommand)]
enum Command {
    Up(up::Arguments),
    Down(down::Arguments),
    Status(status::Arguments),
    Rebuild(rebuild::Arguments),
    Scrub(scrub::Arguments),
    Events(events::Arguments),
    #[command(subcommand)]
    Volume(volume::Command),
    #[command(subcommand)]
    Device(device::Command),
    #[command(subcommand)]
    Object(object::Command),
    #[command(subcommand)]
    Attr(attr::Command),
    #[command(subcommand)]
    Recipe(recipe::Command),
    Nbd(nbd::Arguments),
    #[command(subcommand)]
    Monitor(monitor::Command),
    Lockd(lockd::Arguments),
    Monitord(monitord::Arguments),
    Bench(Box<bench::Arguments>),
    #[command(subcommand)]
    Sim(sim::Command),
    Completions(completions::Arguments),
}

const TOUR: &str = "\
A first tour:
  braid up                                   five devices, RAID 5, one volume; Ctrl-C ends it
  nbdinfo nbd://127.0.0.1:10809/vol0         in another terminal: look at the volume
  nbdcopy some.img nbd://127.0.0.1:10809/vol0
  braid status                               what runs, and how it is
  braid events --follow                      what happens to it: devices that go and come, rebuilds, rot
  braid scrub vol0 --repair                  look for what has rotted, and mend it
  braid object create 2                      an object on device 2, with bytes and attributes that change atomically
  braid attr add 2:1 1.1 5                   `braid object --help` and `braid attr --help` say more
  braid recipe lock run 2:1 2.1 -- ./one-at-a-time.sh   locks, queues, directories … : `braid recipe --help`
  braid down                                 end it; `braid up` opens it again

Exit status: 0 done, 1 failed, 2 wrong usage, 3 not there or not reachable, 4 data lost or check failed.
Logs go to standard error; RUST_LOG=info or debug shows more.";

/// Runs the command that `arguments` ask for.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && arguments.iter().any(|argument| argument == "--json") => {
            return Failure::usage("usage", sentence(&error))
                .hint("`--help` after any command explains it")
                .report(true);
        }
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS };
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(Failure::from).and_then(|runtime| {
        let outcome = LocalSet::new().block_on(&runtime, dispatch(cli.command, &cli.common));
        // Nothing that is still running may keep a command from ending.
        runtime.shutdown_background();
        outcome
    });
    outcome.unwrap_or_else(|failure| failure.report(cli.common.json))
}

fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(arguments)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.common.array_named = matches.value_source("array") == Some(ValueSource::CommandLine);
    Ok(cli)
}

/// What the parser says, in one line, without the usage that it shows to people.
fn sentence(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    lines.join(" ").trim_start_matches("error: ").to_string()
}

async fn dispatch(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Up(arguments) => up::run(arguments, common).await,
        Command::Down(arguments) => down::run(arguments, common).await,
        Command::Status(arguments) => status::run(arguments, common).await,
        Command::Rebuild(arguments) => rebuild::run(arguments, common).await,
        Command::Scrub(arguments) => scrub::run(arguments, common).await,
        Command::Events(arguments) => events::run(arguments, common).await,
        Command::Volume(command) => volume::run(command, common).await,
        Command::Device(command) => device::run(command, common).await,
        Command::Object(command) => object::run(command, common).await,
        Command::Attr(command) => attr::run(command, common).await,
        Command::Recipe(command) => recipe::run(command, common).await,
        Command::Monitor(command) => monitor::run(command, common).await,
        Command::Lockd(arguments) => lockd::run(arguments, common).await,
        Command::Monitord(arguments) => monitord::run(arguments, common).await,
        Command::Nbd(arguments) => nbd::run(arguments, common).await,
        Command::Bench(arguments) => bench::run(*arguments, common).await,
        Command::Sim(command) => sim::execute(command, common),
        Command::Completions(arguments) => completions::run(arguments, Cli::command()),
    }
}

/// Reads an atomicity for an argument; shells complete it.
fn atomicity() -> impl TypedValueParser<Value = Atomicity> {
    PossibleValuesParser::new(Atomicity::ALL.map(Atomicity::name))
        .map(|name| name.parse().expect("only names of atomicities are possible"))
}

/// Reads an ordering for an argument; shells complete it.
fn ordering() -> impl TypedValueParser<Value = Ordering> {
    PossibleValuesParser::new(Ordering::ALL.map(Ordering::name))
        .map(|name| name.parse().expect("only names of orderings are possible"))
}

/// Reads a rate for an argument, in bytes a second; zero is none.
fn rate(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        _ => match size(text.strip_suffix("/s").unwrap_or(text))? {
            0 => Err("a rate is more than nothing: `none` is no limit, and `braid rebuild pause` stops it".to_string()),
            rate => Ok(rate),
        },
    }
}

/// Reads a size for an argument.
fn size(text: &str) -> Result<u64, String> {
    braid_base::units::parse_size(text).map_err(|error| error.to_string())
}

/// Reads a span such as 90s, 5m or 1h; a number alone is seconds.
/// What a command has come to; or that its host was shut out, if that is why nobody has answered.
async fn outcome_of<T>(session: &Session, outcome: Result<T, Failure>) -> Result<T, Failure> {
    match &outcome {
        // It looks at its lease twice a second.
        Err(failure) if failure.exit == Exit::Unreachable => {
            let lost = tokio::time::timeout(HEARTBEAT * 2, session.lost()).await;
            lost.map_or(outcome, |loss| Err(loss.into()))
        }
        _ => outcome,
    }
}

fn span(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        other => return Err(format!("'{other}' is no unit of time: use s, m or h")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is no span: write 90s, 5m or 1h"))?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(|| "that is too long".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_array_may_be_named_before_or_after_the_command() {
        for line in ["braid --array /x volume list", "braid volume list --array /x"] {
            let cli = parse(&words(line)).unwrap();
            assert_eq!(cli.common.array, PathBuf::from("/x"));
            assert!(cli.common.array_named);
        }
        assert!(!parse(&words("braid volume list")).unwrap().common.array_named);
    }

    #[test]
    fn rates_are_read_with_and_without_their_second() {
        assert_eq!((rate("50MiB/s"), rate("1G"), rate("none")), (Ok(50 << 20), Ok(1 << 30), Ok(0)));
        assert!(rate("0").is_err() && rate("fast").is_err() && rate("1/min").is_err());
        assert!(parse(&words("braid rebuild 2")).is_ok() && parse(&words("braid rebuild pause")).is_ok());
        assert!(parse(&words("braid rebuild 2 --rate 1M")).is_err(), "the pace is one for all");
    }

    #[test]
    fn a_usage_error_names_all_that_is_missing() {
        let error = parse(&words("braid volume create")).err().unwrap();
        assert_eq!(sentence(&error), "the following required arguments were not provided: --size <SIZE> <NAME>");
    }

    #[test]
    fn spans_are_seconds_minutes_or_hours() {
        assert_eq!(["7", "90s", "5m", "1h"].map(|text| span(text).unwrap().as_secs()), [7, 90, 300, 3_600]);
        for wrong in ["", "m", "5d", "1.5h", "-3s", "99999999999999999h"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }
}
