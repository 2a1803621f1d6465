//! What Ctrl-C, SIGTERM or SIGHUP of a command leave in the array. The command is given up where it is, its host ends and gives its lease
//! back, and one line says what goes on or was left undone, and how to continue. Commands that serve, measure or hold something hear these
//! signals themselves (`braid_terminal::Signals`).

use super::{Command, device, fs, volume};
use braid_admin::device_lifecycle::changes_under_way;
use braid_admin::failure::{Exit, Failure};
use braid_control::ArrayFolder;
use braid_terminal::signals;
use rustix::process::Signal;
use std::process::ExitCode;

/// Runs a command until it ends, or is asked to end once it has a host.
pub async fn unless_asked_to_end(
    command: impl Future<Output = Result<ExitCode, Failure>>,
    left: (&str, &str),
    folder: &ArrayFolder,
) -> Result<ExitCode, Failure> {
    let asked = async {
        // Until then there is nothing to give back, and the signals end the program.
        braid_session::has_host().await;
        signals::unheard().await
    };
    let signal = tokio::select! {
        outcome = command => return outcome,
        signal = asked => signal,
    };
    let (message, hint) = match left.0 {
        "" if changes_under_way(folder) => ("the array completes what was begun", "`braid status` shows the progress"),
        "" => {
            ("the array has nothing to complete", "the same command begins again, with the disk that it has prepared")
        }
        _ => left,
    };
    let exit = match signal {
        Signal::HUP => Exit::HungUp,
        Signal::TERM => Exit::Terminated,
        _ => Exit::Interrupted,
    };
    Err(Failure { exit, ..Failure::failed("interrupted", format!("interrupted: {message}")).hint(hint) })
}

/// What an interrupted command leaves, and what to do; empty if the array's folder tells.
pub fn left_by(command: &Command) -> (&'static str, &'static str) {
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
        Command::Fs(fs::Command::Data(_)) => {
            ("a part may be done, and what was copied stays", "the same command does the whole again")
        }
        Command::Fs(fs::Command::Check(_)) => ("the file system was not checked", "the same command checks it again"),
        Command::Volume(_) | Command::Fs(_) => (
            "what was begun is completed or reverted by `braid up`",
            "look with `braid status`, or give the command again",
        ),
        Command::Object(_) | Command::Attr(_) | Command::Recipe(_) => {
            ("the last request may have been executed", "look before you give the command again")
        }
        _ => ("nothing was changed", "give the command again"),
    }
}
