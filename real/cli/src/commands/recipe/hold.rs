//! `braid recipe lock`, `counter` and `leader`: run a command while a lock, a turn or the lead is held. This program starts itself by hidden
//! commands: as the supervisor of a command, and to become that command.

use super::{In, OnObject, attribute_of_user, lease, own_name};
use crate::report;
use braid_admin::Failure;
use braid_admin::held::HeldOutcome;
use braid_admin::held::active_hold::{ActiveHold, of_counter, of_lead, of_lock};
use braid_admin::held::running::HeldCommand;
use braid_admin::held::supervisor::{self, Itself};
use braid_client::recipes::counter::{CounterOptions, DeliveryCounter};
use braid_client::recipes::failover::{FailOver, FailOverOptions};
use braid_client::recipes::lock::{self, LockOptions, Mode};
use braid_client::{AttributeName, Object};
use braid_terminal::Signals;
use braid_terminal::arguments::span;
use rustix::process::Signal;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Subcommand)]
pub enum Lock {
    /// Run a command while holding the lock
    ///
    /// BRAID_TOKEN contains the fencing token: a number that increases with each holder. The attribute on the next page holds that token
    /// while the lock is held: `--guard` of `braid object` and `braid attr` compares the two. If this program can't renew the lock in
    /// time, the command is ended before others can acquire the lock.
    #[command(after_long_help = STATUS)]
    Run {
        /// Take the lock in shared mode, together with other readers
        #[arg(long)]
        shared: bool,
        #[command(flatten)]
        waiting: Waiting,
        #[command(flatten)]
        run: Holding,
    },
    /// Show the holders of the lock
    Show(StructureArgs),
}

#[derive(clap::Subcommand)]
pub enum Counter {
    /// Draw a ticket, and run a command when its turn comes
    ///
    /// BRAID_TOKEN contains the ticket; during the turn, the attribute two pages further holds it, too. If the holder of a ticket does not
    /// come, or dies during its turn, the ticket is skipped after the lease. If this program can't renew the turn in time, the command is
    /// ended before the ticket is skipped.
    #[command(after_long_help = STATUS)]
    Run {
        #[command(flatten)]
        waiting: Waiting,
        #[command(flatten)]
        run: Holding,
    },
}

#[derive(clap::Subcommand)]
pub enum Leader {
    /// Wait until this process can lead, and run a command while it leads
    ///
    /// Start this program on each machine. One process leads and the others stand by; if the leader makes no progress, another process
    /// takes over. BRAID_TOKEN contains the term; the attribute on the next page holds it while this process leads. If this program can't
    /// show progress in time, the command is ended before others can take over.
    #[command(after_long_help = STATUS)]
    Run {
        /// How long to stand by [default: without limit]
        #[arg(long, value_name = "SPAN", value_parser = span)]
        patience: Option<Duration>,
        #[command(flatten)]
        run: Holding,
    },
    /// Show the leader
    Show(StructureArgs),
}

#[derive(clap::Args)]
pub struct Waiting {
    /// How long to wait for the lock or the turn; 0s: try once
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "1m")]
    patience: Duration,
}

#[derive(clap::Args)]
pub struct Holding {
    #[command(flatten)]
    structure: StructureArgs,
    /// The holder's name as shown to others [default: machine and process]
    #[arg(long)]
    name: Option<String>,
    /// The lease, such as 10s, at least 500ms: a holder that is silent for longer loses its hold. Long leases tolerate pauses; with short
    /// leases others wait less
    #[arg(long, value_name = "SPAN", value_parser = lease, default_value = "10s")]
    lease: Duration,
    /// The command to run, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// A structure in an attribute.
#[derive(clap::Args)]
pub struct StructureArgs {
    #[command(flatten)]
    place: In,
    /// The attribute: PAGE.NUMBER. Attributes of the same number on the following pages belong to the structure, too
    #[arg(value_parser = attribute_of_user)]
    attribute: AttributeName,
}

const STATUS: &str = "\
Exit status: that of the command, or 128 plus the signal that ended it; 126 if it can't be executed, 127 if it is not found.
Braid's own: 124 if the hold was not acquired in time; 125 if it was lost, so that the command was ended; 1 to 3, with an error
message, if it could not be attempted, or if processes of the command may still run. When this program is asked to end (Ctrl-C,
SIGTERM), it ends the command, releases the hold, and ends with 130 or 143. A command has five seconds to end, but no longer than
the lease; then it is killed. When this program is killed, so is the command. Both apply to all processes that the command has
started; but background processes of a command that ended by itself continue.";

impl OnObject for Lock {
    fn place(&self) -> &In {
        match self {
            Lock::Run { run, .. } => &run.structure.place,
            Lock::Show(structure) => &structure.place,
        }
    }

    async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        match self {
            Lock::Run { shared, waiting, run } => {
                let options = LockOptions { lease: run.lease, patience: waiting.patience, ..LockOptions::default() };
                let lock = lock::Lock::new(object.id(), run.structure.attribute, options);
                let name = run.name();
                let acquire = if *shared { lock.share(name.as_str()) } else { lock.acquire(name.as_str()) };
                let grant = object.space().run(acquire).await?.map_err(of_lock)?;
                run.hold(object, ActiveHold::Lock(grant)).await
            }
            Lock::Show(structure) => {
                let lock = lock::Lock::new(object.id(), structure.attribute, LockOptions::default());
                let status = object.space().run(lock.status()).await?.map_err(of_lock)?;
                let mode = match status.mode {
                    None => "free",
                    Some(Mode::Exclusive) => "exclusive",
                    Some(Mode::Shared) => "shared",
                };
                // A space before the names, if there are any.
                let space = if status.holders.is_empty() { "" } else { " " };
                let holders: Vec<String> = status.holders.iter().map(ToString::to_string).collect();
                let waiting = status.waiting.map(|name| name.to_string());
                let of_waiting = waiting.as_ref().map_or(String::new(), |name| format!("; {name} waits to write"));
                let token = status.token;
                let json = json!({"mode": mode, "holders": holders, "waiting": waiting, "token": token});
                report::done(as_json, json, || {
                    format!("{mode}{space}{}{of_waiting}; last token {token}\n", holders.join(", "))
                })
            }
        }
    }
}

impl OnObject for Counter {
    fn place(&self) -> &In {
        let Counter::Run { run, .. } = self;
        &run.structure.place
    }

    async fn execute(&self, object: &Object, _as_json: bool) -> Result<ExitCode, Failure> {
        let Counter::Run { waiting, run } = self;
        let options = CounterOptions { lease: run.lease, patience: waiting.patience, ..CounterOptions::default() };
        let counter = DeliveryCounter::new(object.id(), run.structure.attribute, options);
        let turn = object.space().run(counter.enter(run.name().as_str())).await?.map_err(of_counter)?;
        run.hold(object, ActiveHold::Turn(turn)).await
    }
}

impl OnObject for Leader {
    fn place(&self) -> &In {
        match self {
            Leader::Run { run, .. } => &run.structure.place,
            Leader::Show(structure) => &structure.place,
        }
    }

    async fn execute(&self, object: &Object, as_json: bool) -> Result<ExitCode, Failure> {
        match self {
            Leader::Run { patience, run } => {
                let patience = patience.unwrap_or(Duration::MAX);
                let options = FailOverOptions { lease: run.lease, patience, ..FailOverOptions::default() };
                let fail_over = FailOver::new(object.id(), run.structure.attribute, options);
                let campaign = fail_over.campaign(run.name().as_str());
                let leadership = object.space().run(campaign).await?.map_err(of_lead)?;
                run.hold(object, ActiveHold::Lead(leadership)).await
            }
            Leader::Show(structure) => {
                let fail_over = FailOver::new(object.id(), structure.attribute, FailOverOptions::default());
                let status = object.space().run(fail_over.leader()).await?.map_err(of_lead)?;
                let leader = status.leader.map(|(name, progress)| (name.to_string(), progress));
                let (name, progress) = leader.clone().unzip();
                report::done(as_json, json!({"term": status.term, "leader": name, "progress": progress}), || {
                    match &leader {
                        Some((name, progress)) => {
                            format!("{name} leads in term {}; it has shown progress {progress} times\n", status.term)
                        }
                        None => format!("there is no leader; the last term was {}\n", status.term),
                    }
                })
            }
        }
    }
}

impl Holding {
    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(own_name)
    }

    async fn hold(&self, object: &Object, hold: ActiveHold) -> Result<ExitCode, Failure> {
        let mut signals = Signals::catch()?;
        let command = HeldCommand { words: &self.command, itself: ITSELF };
        let outcome = hold.run(object.space(), &command, &mut async || signals.which().await).await?;
        Ok(status_of_held(outcome))
    }
}

/// The exit status of a program that has run a command while it held something.
pub fn status_of_held(outcome: HeldOutcome) -> ExitCode {
    match outcome {
        // The supervisor has reported it.
        HeldOutcome::Ended(status) => ExitCode::from(status.code().unwrap_or(1) as u8),
        HeldOutcome::AskedToEnd(signal) => status_of_signal(signal),
    }
}

/// The exit status of a program that ends because of this signal.
pub fn status_of_signal(signal: Signal) -> ExitCode {
    ExitCode::from(128 + signal.as_raw() as u8)
}

/// How this program starts itself.
pub const ITSELF: Itself = Itself { supervise: &["recipe", "supervise"], execute: &["recipe", "become"] };

/// Runs a command for the program that started this process, and ends the command with that program
#[derive(clap::Args)]
pub struct Supervise {
    /// The PID of that program
    #[arg(long)]
    parent: u32,
    /// Run the command in a process group of its own
    #[arg(long)]
    grouped: bool,
    /// The command, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Executes a command that dies with the program that started it
#[derive(clap::Args)]
pub struct Become {
    /// The PID of that program
    #[arg(long)]
    parent: u32,
    /// The command, after `--`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Supervise {
    /// Runs the command, and ends with its status.
    pub async fn run(&self) -> Result<ExitCode, Failure> {
        let command = HeldCommand { words: &self.command, itself: ITSELF };
        supervisor::supervise(self.parent, self.grouped, &command).await.map(ExitCode::from)
    }
}

impl Become {
    /// Executes the command. Returns only if that fails.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let (error, status) = supervisor::execute(self.parent, &self.command)?;
        braid_terminal::tell!("error: {}: {error}", self.command[0].to_string_lossy());
        Ok(ExitCode::from(status))
    }
}
