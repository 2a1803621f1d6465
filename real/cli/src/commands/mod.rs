//! The commands: the arguments, the help and the output of each.

/// The commands of a group: the arguments of each, and what runs it. Each is a future of its own in memory, because a daemon polls its
/// command at each wake-up.
macro_rules! commands {
    ($(#[$of:meta])* $vis:vis enum $group:ident { $($(#[$doc:meta])* $name:ident($arguments:ty) => $run:expr,)* }) => {
        #[derive(clap::Subcommand)]
        $(#[$of])*
        $vis enum $group {
            $($(#[$doc])* $name($arguments),)*
        }

        impl $group {
            $vis async fn run(
                self,
                common: &braid_terminal::Common,
            ) -> Result<std::process::ExitCode, braid_admin::Failure> {
                match self {
                    $($group::$name(arguments) => Box::pin($run(arguments, common)).await,)*
                }
            }
        }
    };
}

mod attr;
mod background;
mod cluster;
mod confirmation;
mod daemons;
mod device;
mod doctor;
mod down;
mod events;
mod fs;
mod growth;
mod host;
mod interruption;
mod lock;
mod locks;
mod misnomers;
mod monitor;
mod node;
mod object;
mod rebuild;
mod recipe;
mod recording;
mod scrub;
mod service;
mod sim;
mod status;
mod up;
mod upgrade;
mod volume;

use crate::{memory, report};
use braid_admin::{Exit, Failure};
use braid_shell::Budget;
use braid_terminal::Common;
use braid_terminal::arguments::{asks_for_json, sentence};
use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::future::ready;
use std::process::ExitCode;

/// A shared storage array without a controller.
///
/// Storage devices are on the network, and every host that uses them is its own RAID controller. The devices order the requests of
/// concurrent hosts. `braid up` starts a whole array on this machine, with a volume that any NBD client (nbdcopy, qemu, fio, nbdfuse) can
/// use, through any number of servers at once.
#[derive(Parser)]
#[command(name = "braid", version = braid_terminal::VERSION, max_term_width = 100, after_long_help = TOUR)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

commands! {
    enum Command {
        Up(up::Arguments) => up::run,
        Down(down::Arguments) => down::run,
        #[command(subcommand)]
        Cluster(cluster::Command) => cluster::Command::run,
        Agent(cluster::Agent) => cluster::agent,
        Status(status::Arguments) => status::run,
        Doctor(doctor::Arguments) => doctor::run,
        #[command(subcommand)]
        Upgrade(upgrade::Command) => upgrade::run,
        Rebuild(rebuild::Arguments) => rebuild::run,
        Scrub(scrub::Arguments) => scrub::run,
        Events(events::Arguments) => events::run,
        #[command(subcommand)]
        Volume(volume::Command) => volume::Command::run,
        #[command(subcommand)]
        Fs(fs::Command) => fs::Command::run,
        #[command(subcommand)]
        Device(device::Command) => device::Command::run,
        Object(object::Arguments) => object::run,
        #[command(subcommand)]
        Attr(attr::Command) => attr::run,
        #[command(subcommand)]
        Recipe(recipe::Command) => recipe::run,
        #[command(subcommand)]
        Lock(lock::Command) => lock::run,
        Locks(locks::Arguments) => locks::run,
        Nbd(daemons::NbdServer) => daemons::nbd,
        Node(node::Arguments) => node::run,
        #[command(subcommand)]
        Host(host::Command) => host::run,
        #[command(subcommand)]
        Monitor(monitor::Command) => monitor::run,
        Lockd(daemons::LockServer) => daemons::lockd,
        Monitord(daemons::Monitor) => daemons::monitord,
        Mds(daemons::MetadataServer) => daemons::mds,
        Bench(Box<braid_bench::Arguments>) => |arguments: Box<_>, common| braid_bench::run(*arguments, common),
        Sim(sim::Arguments) => |arguments, common| ready(sim::run(arguments, common)),
        Replay(recording::ReplayArgs) => |arguments, common| ready(recording::replay(&arguments, common)),
        Completions(sim::CompletionsArgs) => |arguments, _| ready(sim::completions(arguments, Cli::command())),
    }
}

const TOUR: &str = "\
A first tour:
  braid up                                   five devices, RAID 5, one volume; stop it with Ctrl-C
  nbdinfo nbd://127.0.0.1:10809/vol0         in another terminal: show the volume
  nbdcopy some.img nbd://127.0.0.1:10809/vol0
  braid status                               show its state
  braid doctor                               say what is wrong, and what to do
  braid events --follow                      follow events: devices that go out and return, rebuilds, checksum errors
  braid scrub vol0 --repair                  find checksum errors, and repair them
  braid object create 2                      create an object on device 2, with bytes and atomic attributes
  braid attr add 2:1 1.1 5                   see `braid object --help` and `braid attr --help`
  braid recipe lock run 2:1 2.1 -- ./one-at-a-time.sh   locks, queues, directories … : see `braid recipe --help`
  braid down                                 stop it; `braid up` starts it again

Exit status: 0 done, 1 failed, 2 wrong usage, 3 not found or unreachable, 4 data lost or check failed,
129, 130 and 143 ended by SIGHUP, Ctrl-C and SIGTERM.
Logs go to standard error; RUST_LOG=info or debug shows more.";

pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let cli = match parse(&arguments) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json(&arguments) => {
            let failure = Failure::usage("usage", sentence(&error)).hint("see `--help` after the command");
            return report::failure(&failure, true);
        }
        Err(error) => {
            let printed = error.print();
            if printed.is_err_and(|failed| failed.kind() != std::io::ErrorKind::BrokenPipe) {
                return ExitCode::FAILURE;
            }
            return if error.use_stderr() { ExitCode::from(Exit::Usage as u8) } else { ExitCode::SUCCESS };
        }
    };
    let outcome = braid_admin::wait(dispatch(cli.command, &cli.common));
    outcome.unwrap_or_else(|failure| report::failure(&failure, cli.common.json))
}

fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let commands = Cli::command();
    let parsed = commands.clone().try_get_matches_from(arguments);
    let matches = parsed.map_err(|error| misnomers::correct(error, arguments, &commands))?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.common.note_source(&matches);
    Ok(cli)
}

async fn dispatch(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    if let Some(bytes) = common.memory {
        Budget::set_process(bytes);
    }
    if serves(&command) {
        memory::watch();
    }
    let needs_array =
        matches!(command, Command::Doctor(_) | Command::Down(_) | Command::Rebuild(_) | Command::Monitor(_));
    let (left, control) = (left_by(&command), common.control());
    let outcome = interruption::unless_asked_to_end(command.run(common), left, &control).await;
    outcome.map_err(|failure| match failure.code.as_str() {
        // These commands are of no use for a new array, so the hint does not suggest to create one.
        "no-array" if needs_array => failure.hint("name the array's folder with `--array FOLDER` or BRAID_ARRAY"),
        _ => failure,
    })
}

/// What an interrupted command leaves, and what to do; empty if the array's folder tells.
fn left_by(command: &Command) -> (&'static str, &'static str) {
    match command {
        Command::Device(device::Command::Readmit(_) | device::Command::Fail(_)) => {
            ("if the request was sent, the array carries it out", "`braid status` shows the state of the device")
        }
        Command::Device(_) => ("", ""),
        Command::Rebuild(_) => ("the rebuild continues without this command", "follow it again with `braid rebuild`"),
        Command::Volume(volume::Command::Check(_)) => {
            ("the rest of the volume was not checked", "the same command checks it from the beginning")
        }
        Command::Volume(volume::Command::Migrate(_)) => (
            "the volume stays fully usable, and what was copied is kept",
            "the same command continues the migration, and --abort moves the volume back",
        ),
        Command::Fs(fs::Command::Data(_)) => (
            "a part may be done, and what was copied stays",
            "look before you give the command again: into a folder that is there now, `cp` copies below it",
        ),
        Command::Fs(fs::Command::Check(_)) => ("the file system was not checked", "the same command checks it again"),
        Command::Volume(_) | Command::Fs(_) => (
            "what was begun is completed or reverted by `braid up`",
            "look with `braid status`, or give the command again",
        ),
        Command::Object(_) | Command::Attr(_) | Command::Recipe(_) => {
            ("the last request may have been executed", "look before you give the command again")
        }
        Command::Upgrade(_) => {
            ("if the request was sent, the level is raised all the same", "look with `braid upgrade status`")
        }
        Command::Host(_) => (
            "if the request was sent, the host is fenced all the same",
            "look with `braid host list`, or give the command again",
        ),
        _ => ("nothing was changed", "give the command again"),
    }
}

/// True if the command serves others until it is told to end.
fn serves(command: &Command) -> bool {
    use Command::{Device, Fs, Lockd, Mds, Monitord, Nbd, Node, Up};
    matches!(command, Up(_) | Nbd(_) | Node(_) | Lockd(_) | Monitord(_) | Mds(_))
        || matches!(command, Device(device::Command::Serve(_)) | Fs(fs::Command::Mount(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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
    fn the_rebuild_throttle_applies_to_all_devices() {
        assert!(parse(&words("braid rebuild 2")).is_ok() && parse(&words("braid rebuild pause")).is_ok());
        assert!(parse(&words("braid rebuild 2 --rate 1M")).is_err());
    }

    #[test]
    fn arguments_of_the_simulator_are_passed_unchanged() {
        for (line, told, json) in [
            ("braid sim --help", "--help", false),
            ("braid sim attack --seed 3 --json", "attack --seed 3 --json", false),
            ("braid --json sim run -h", "run -h", true),
            ("braid sim --json list --array x", "list --array x", true),
        ] {
            let cli = parse(&words(line)).unwrap();
            let Command::Sim(arguments) = cli.command else { panic!("{line}") };
            assert_eq!((arguments.words(), cli.common.json), (words(told).as_slice(), json), "{line}");
        }
    }

    #[test]
    fn a_usage_error_names_all_that_is_missing() {
        let error = parse(&words("braid volume create")).err().unwrap();
        assert_eq!(sentence(&error), "the following required arguments were not provided: --size <SIZE> <NAME>");
    }

    #[test]
    fn a_new_size_is_given_once_with_or_without_its_name() {
        for (size, is_right) in [("1G", true), ("--size 1G", true), ("1G --size 1G", false), ("--json", false)] {
            let resizes = |what| parse(&words(&format!("braid {what} resize x {size}"))).is_ok();
            assert_eq!((resizes("volume"), resizes("fs")), (is_right, is_right), "{size}");
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }
}
