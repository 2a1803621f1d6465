//! What Ctrl-C, SIGTERM or SIGHUP of a command leave in the array. The command is given up where it is, its host ends and gives its lease
//! back, and one line says what goes on or was left undone, and how to continue. Commands that serve, measure or hold something hear these
//! signals themselves (`braid_terminal::Signals`).

use braid_admin::device_lifecycle::changes_under_way;
use braid_admin::{Exit, Failure};
use braid_control::ControlPlane;
use braid_terminal::signals;
use rustix::process::Signal;
use std::process::ExitCode;

/// Runs a command until it ends, or is asked to end once it has a host. `left` says what it leaves then, and what to do; it is empty if the
/// array's folder tells.
pub async fn unless_asked_to_end(
    command: impl Future<Output = Result<ExitCode, Failure>>,
    left: (&str, &str),
    control: &ControlPlane,
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
        "" if changes_under_way(control).await => {
            ("the array completes what was begun", "`braid status` shows the progress")
        }
        "" => (
            "if the array has heard of it, it completes the change; otherwise nothing was changed",
            "look with `braid device list` before you give the command again",
        ),
        _ => left,
    };
    let exit = match signal {
        Signal::HUP => Exit::HungUp,
        Signal::TERM => Exit::Terminated,
        _ => Exit::Interrupted,
    };
    Err(Failure { exit, ..Failure::failed("interrupted", format!("interrupted: {message}")).hint(hint) })
}
