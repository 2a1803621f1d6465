//! Arguments that `braid bench` and `braid bench orderings` share.

use crate::atomics::Run;
use crate::prelude::*;
use crate::settings::{ArraySettings, name_of};
use crate::test_bed::ArrayChoice;
use braid_admin::array_creation;
use braid_terminal::output;
use clap::ValueEnum;
use std::time::{SystemTime, UNIX_EPOCH};

/// The array to measure, and the layout of its volumes.
#[derive(clap::Args)]
pub struct ArrayArguments {
    /// The folder for scratch arrays; needs three times --size for each volume [default: .]
    #[arg(long, value_name = "DIR", help_heading = "Array")]
    scratch: Option<PathBuf>,
    /// Devices of a scratch array [default: 5]
    #[arg(long, value_name = "N", help_heading = "Array")]
    devices: Option<u16>,
    /// Divide the devices of a scratch array among N nodes, as `braid up --nodes`; clients use them in turn [default: 1; 0 for processes]
    #[arg(long, value_name = "N", alias = "in-process", num_args = 0..=1, default_missing_value = "1", help_heading = "Array")]
    pub nodes: Option<u16>,
    /// raid5:4+1, raid1:2, raid0:5, … [default: the default of `braid up`, or the layout of your array's creation]
    #[arg(long, value_name = "LAYOUT", help_heading = "Array")]
    layout: Option<RaidLevel>,
    /// Stripe unit, 4KiB to 1MiB [default: 64KiB, or the unit of your array's creation]
    #[arg(long, value_parser = size, help_heading = "Array")]
    unit: Option<u64>,
}

/// The scratch array of a bench that needs no more of it.
#[derive(clap::Args)]
pub struct ScratchArguments {
    /// The folder for the scratch array [default: .]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Divide the devices of a scratch array among N nodes, as `braid up --nodes` [default: 1; 0 for processes]
    #[arg(long, value_name = "N", alias = "in-process", num_args = 0..=1, default_missing_value = "1")]
    nodes: Option<u16>,
}

impl ScratchArguments {
    /// The array to measure: an existing one, or one with so many devices, if that matters.
    pub async fn place(&self, common: &Common, devices: Option<u16>) -> Result<BenchArray, Failure> {
        place(common, &self.scratch, devices.filter(|_| !common.array_named), self.nodes).await
    }
}

/// The array to measure, and the layout and stripe unit of the volumes on it.
pub struct BenchArray {
    pub choice: ArrayChoice,
    pub array: ArraySettings,
    pub layout: RaidLevel,
    pub unit: u64,
}

/// The lengths of operations.
#[derive(clap::Args)]
pub struct LengthArguments {
    /// Length of an operation, a multiple of 4 KiB
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "4KiB", help_heading = "Load")]
    pub block: u64,
    /// Length of the longest operation; lengths are then distributed evenly from --block to this [default: --block]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Load")]
    block_max: Option<u64>,
}

/// What comes before each run, and what is random in it.
#[derive(clap::Args)]
pub struct RunArguments {
    /// Warm-up before each run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds, help_heading = "Load")]
    pub warm_up: f64,
    /// Random seed; the same seed repeats the same operations [default: a new one each time]
    #[arg(long, help_heading = "Load")]
    seed: Option<u64>,
}

/// How long clients of a scratch array perform operations, and how many.
#[derive(clap::Args)]
pub struct ClientArguments {
    /// Clients, each with one request in flight
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub clients: u16,
    /// Duration of each measurement, in seconds
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Warm-up before each measurement, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    pub warm_up: f64,
}

/// What to measure, where, and with which load.
#[derive(clap::Args)]
pub struct KindArguments<K: ValueEnum + Send + Sync + 'static> {
    /// The kinds to measure [default: all]
    #[arg(value_enum)]
    kinds: Vec<K>,
    #[command(flatten)]
    pub scratch: ScratchArguments,
    #[command(flatten)]
    pub load: ClientArguments,
}

#[derive(Clone, Copy)]
pub struct Span {
    pub warm_up: Duration,
    pub counted: Duration,
}

impl ArrayArguments {
    /// The array to measure, and the layout of its volumes.
    pub async fn place(&self, common: &Common) -> Result<BenchArray, Failure> {
        let place = place(common, &self.scratch, self.devices, self.nodes).await?;
        Ok(BenchArray { layout: self.layout.unwrap_or(place.layout), unit: self.unit.unwrap_or(place.unit), ..place })
    }
}

impl<K: ValueEnum + Send + Sync + 'static> KindArguments<K> {
    pub fn kinds(&self) -> &[K] {
        if self.kinds.is_empty() { K::value_variants() } else { &self.kinds }
    }

    /// Measures the kinds, one after the other.
    pub async fn measure_each(
        &self,
        runs: &mut Vec<Run>,
        mut measure: impl AsyncFnMut(K) -> Result<Run, Failure>,
    ) -> Result<(), Failure> {
        let kinds = self.kinds();
        let each = Duration::from_secs_f64(self.load.warm_up + self.load.seconds);
        crate::announce(&format!("{} kinds", kinds.len()), kinds.len(), each, "");
        let progress = output::steps(kinds.len() as u64);
        for kind in kinds {
            progress.set_message(format!("measuring {}", name_of(kind.clone())));
            runs.push(measure(kind.clone()).await?);
            progress.inc(1);
        }
        Ok(())
    }
}

impl LengthArguments {
    /// The length of the longest operation.
    pub fn longest(&self) -> u64 {
        self.block_max.unwrap_or(self.block)
    }
}

impl RunArguments {
    /// The seed: a new one unless it is given.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(seed_of_now)
    }

    /// The duration of a run that counts for so many seconds.
    pub fn span(&self, seconds: f64) -> Span {
        Span { warm_up: Duration::from_secs_f64(self.warm_up), counted: Duration::from_secs_f64(seconds) }
    }
}

/// The array to measure, and the defaults of its volumes.
async fn place(
    common: &Common,
    scratch: &Option<PathBuf>,
    devices: Option<u16>,
    nodes: Option<u16>,
) -> Result<BenchArray, Failure> {
    if common.array_named {
        let own = [("--scratch", scratch.is_some()), ("--devices", devices.is_some()), ("--nodes", nodes.is_some())];
        if let Some((option, _)) = own.iter().find(|(_, given)| *given) {
            let message = format!("{option} applies to scratch arrays, not to an existing array");
            return Err(Failure::usage("usage", message));
        }
        let control = common.control();
        let description = control.describe().await?;
        let running = control.running().await?.filter(|running| running.ready);
        let running = running.ok_or_else(|| Failure::not_up(&control).hint("start it with `braid up`"))?;
        let (devices, nodes) = (description.devices.len() as u16, running.nodes.len() as u16);
        let array = ArraySettings { binary: None, devices, nodes };
        let layout = description.creation.layout.parse()?;
        Ok(BenchArray { choice: ArrayChoice::Given(control), array, layout, unit: description.creation.unit })
    } else {
        let dir = scratch.clone().unwrap_or_else(|| ".".into()).join(format!("braid-bench-{}", std::process::id()));
        if dir.exists() {
            return Err(Failure::failed("file-exists", format!("{} already exists", dir.display()))
                .hint("it may have been left by a bench that was killed: remove it"));
        }
        let created = array_creation::CreateOptions { devices, ..Default::default() }.creation()?;
        let nodes = nodes.unwrap_or(1);
        let array = ArraySettings { binary: None, devices: created.devices, nodes };
        let layout = created.layout.parse()?;
        Ok(BenchArray { choice: ArrayChoice::Scratch(dir), array, layout, unit: created.unit })
    }
}

/// A seed that differs from start to start.
pub fn seed_of_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Short enough to be typed.
    Rng::new(now.as_nanos() as u64).below(1 << 32)
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if (0.0..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("choose 0 to 86400 seconds".to_string()) }
}
