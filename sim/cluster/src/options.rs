//! The options of a run. The seed determines all of them, except those that are chosen ([`Choices`]).

use crate::activity_choices::Activities;
use crate::prelude::*;
use braid_check::Promise;
use braid_host::Acquisition;
use braid_store::{Geometry, Medium};
use braid_wire::{Failure, ObjectFailure};
use braid_world::FaultOptions;

/// An array, its clients, and the faults that happen to it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Determines every random choice of the run.
    pub seed: u64,
    /// The layout of the volume.
    pub layout: Layout,
    /// Devices of the array that the volume does not use at first.
    pub other_devices: u16,
    pub ordering: Ordering,
    pub atomicity: Atomicity,
    /// The parity sites of volumes, which hosts take in turn; if there are none, all hosts use the default.
    pub sites: Vec<SitePolicy>,
    /// The number of lock servers; 0 unless the ordering needs them.
    pub lock_servers: u16,
    /// How hosts acquire locks of several lock servers.
    pub acquisition: Acquisition,
    /// The volume's length in stripes; it is small, so that operations collide.
    pub stripes: u64,
    /// The number of hosts at the same time.
    pub hosts: usize,
    /// Clients of each host; each has one operation in progress.
    pub clients: usize,
    /// The longest think time of a client between two operations.
    pub think_max: Duration,
    /// How long clients work and faults happen.
    pub swarm: Duration,
    /// The number of operations after which clients stop.
    pub operations: u64,
    /// The size of a device in bytes.
    pub device_bytes: u64,
    /// The size of its journal in bytes, if not the default; a short journal has a checkpoint every few dozen writes.
    pub journal_bytes: Option<u64>,
    /// The number of chunks for which a device's disk has space until everything heals, if that is limited.
    pub chunks: Option<u64>,
    /// Properties of the devices' disks.
    pub medium: Medium,
    /// What happens beside the usual operations of clients and the faults.
    pub activities: Activities,
    /// Time-outs and leases of the protocol, often much shorter than in production, so that rare paths are taken.
    pub settings: Settings,
    pub faults: FaultOptions,
}

impl Options {
    /// Options of an array without faults, for scripted scenarios.
    pub fn calm(layout: &str, devices: usize, unit_blocks: u64, stripes: u64) -> Options {
        let scheme: RaidLevel = layout.parse().expect("scenarios name layouts that exist");
        let layout = Layout::new(scheme, devices, unit_blocks).expect("scenarios choose layouts that fit");
        Options::calm_on(layout, stripes)
    }

    pub(crate) fn calm_on(layout: Layout, stripes: u64) -> Options {
        Options {
            seed: 1,
            layout,
            other_devices: 0,
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
            sites: Vec::new(),
            lock_servers: 0,
            acquisition: Acquisition::Ordered,
            stripes,
            hosts: 0,
            clients: 0,
            think_max: Duration::ZERO,
            swarm: Duration::ZERO,
            operations: 0,
            device_bytes: 16 << 20,
            journal_bytes: None,
            chunks: None,
            medium: Medium::default(),
            activities: Activities::default(),
            settings: Settings::default(),
            faults: FaultOptions::none(),
        }
    }

    /// A random source of its own for each name: what is drawn for one feature changes nothing of another.
    pub(crate) fn source(&self, name: &str) -> Rng {
        Rng::new(self.seed).named(name)
    }

    /// The options of a seed with these choices, without activities. Without choices, half of the seeds use timestamp ordering and the
    /// others use the three kinds of locks; in one seed of eight, writes take effect on arrival.
    pub(crate) fn without_activities(seed: u64, choices: &Choices) -> Options {
        let atomicity = choices.atomicity().unwrap_or(match Rng::new(seed).named("atomicity").below(8) {
            0 => Atomicity::Consistent,
            _ => Atomicity::Implied,
        });
        let options = match atomicity {
            Atomicity::Implied => Options::by_timestamps(seed, choices),
            Atomicity::Consistent => Options::by_timestamps(seed, choices).consistent(),
        };
        let ordering = choices.ordering().unwrap_or(match Rng::new(seed).named("ordering").below(6) {
            0 => Ordering::DeviceLock,
            1 => Ordering::ServerLock,
            2 => Ordering::CallbackLock,
            _ => Ordering::Timestamp,
        });
        let mut options = match ordering {
            Ordering::Timestamp => options,
            other => options.ordered_by(other),
        };
        if choices.also.iter().any(|kind| kind.name() == "disk-error") && atomicity == Atomicity::Implied {
            options.faults.weights.insert(FaultKind::DiskError, 10);
        }
        options
    }

    /// The number of blocks that objects may have on a device's disk.
    pub fn disk_blocks(&self) -> u64 {
        Geometry::room(self.device_bytes).expect("devices are large enough")
    }

    /// The layouts of all volumes.
    pub(crate) fn layouts(&self) -> Vec<Layout> {
        [self.layout].into_iter().chain(self.activities.0.iter().flat_map(|choice| choice.layouts.clone())).collect()
    }

    /// Has clients think so long that their operations are spread over the whole run.
    pub(crate) fn spread_operations(&mut self) {
        self.think_max = 2 * self.swarm * (self.hosts * self.clients) as u32 / self.operations as u32;
    }

    /// None of these faults happen.
    pub(crate) fn without_faults(&mut self, kinds: &[FaultKind]) {
        self.faults.weights.retain(|kind, _| !kinds.contains(kind));
    }

    /// A layout with redundancy on as few devices as possible.
    pub(crate) fn set_redundant_layout(&mut self, data: usize) {
        let scheme = RaidLevel::Raid5 { data };
        let layout = Layout::new(scheme, scheme.width(), self.layout.unit_blocks());
        self.layout = layout.expect("a ring that is wide enough");
    }

    /// The same options with another ordering and the settings that it needs.
    pub fn ordered_by(self, ordering: Ordering) -> Options {
        // A random source of its own, so that the rest of a seed is the same with any ordering.
        let rng = &mut self.source("locks");
        let lock_timeout = Duration::from_millis([5, 50, 500][rng.below(3) as usize]);
        let settings = Settings {
            lock_timeout,
            lock_lease: Duration::from_millis([0, 0, 50, 4_000][rng.below(4) as usize]),
            stripes_per_lock_server: rng.between(1, 2),
            ..self.settings
        };
        let lock_servers = rng.between(1, 3) as u16;
        let acquisition = [Acquisition::Ordered, Acquisition::Timeout][rng.below(2) as usize];
        let lock_servers = if ordering.needs_lock_server() { lock_servers } else { 0 };
        let mut options = Options { ordering, lock_servers, acquisition, settings, ..self };
        options.settings.request_timeout = options.settings.request_timeout.max(options.deadlocks());
        options
    }

    /// Deadlocks among locks that are asked for at once end when they time out, and an operation may meet several.
    pub(crate) fn deadlocks(&self) -> Duration {
        let of_servers = self.lock_servers > 1 && self.acquisition == Acquisition::Timeout;
        let of_activities = self.activities.0.iter().any(|choice| choice.uses_device_locks);
        let meets_some = self.ordering == Ordering::DeviceLock || of_servers || of_activities;
        if meets_some { 8 * self.settings.lock_timeout } else { Duration::ZERO }
    }

    /// The same options with writes that take effect on arrival. If a host and a device fail together, data may be lost by design. So
    /// in a run either hosts die and no device is taken out, or devices die and no host is fenced.
    fn consistent(mut self) -> Options {
        let hosts_die = self.source("who dies").below(2) == 0;
        let (dies, lasting) = match hosts_die {
            true => (FaultKind::HostCrash, &mut self.settings.device_lease),
            false => (FaultKind::DeviceCrash, &mut self.settings.host_lease),
        };
        *lasting = NEVER_MISSED;
        // Long delays would make a node silent for as long as a lease, or have a second device taken out.
        self.faults.network.delay = 0;
        self.faults.network.loss = self.faults.network.loss.min(LOSS_WITH_CONSISTENT);
        self.faults.weights.retain(|kind, _| *kind == dies || WITH_CONSISTENT.contains(kind));
        if self.layout.redundancy_units() == 0 {
            // Without redundancy there would be nothing to keep consistent.
            self.set_redundant_layout(2);
        }
        // At most one device may be out at a time, and not again before its interrupted writes are repaired.
        let frail = self.source("frail device").below(self.layout.devices() as u64);
        self.faults.frail = Some(DeviceId(frail as u16));
        // Writes that may have happened in part multiply the orders that the checker has to try.
        Options { atomicity: Atomicity::Consistent, clients: self.clients.min(2), chunks: None, ..self }
    }
}

/// The options of a run that override its seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    pub ordering: Option<Ordering>,
    pub atomicity: Option<Atomicity>,
    /// Only these kinds of faults; faults of messages remain.
    pub only: Vec<Kind>,
    /// These kinds, too, which runs have only on request.
    pub also: Vec<Kind>,
    /// None of these kinds.
    pub without: Vec<Kind>,
}

impl Choices {
    /// True if a run may have this kind.
    pub fn may(&self, kind: &str) -> bool {
        let is_in = |kinds: &[Kind]| kinds.iter().any(|known| known.name() == kind);
        let is_usual = self.only.is_empty() && kind != UNUSUAL.name();
        (is_usual || self.names(kind)) && !is_in(&self.without)
    }

    /// True if the choices ask for this kind.
    pub fn names(&self, kind: &str) -> bool {
        self.only.iter().chain(&self.also).any(|known| known.name() == kind)
    }
}

/// A kind of fault, or of activity, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub(crate) &'static str);

impl Kind {
    pub fn name(self) -> &'static str {
        self.0
    }
}

/// As on the command line, each with a space before it.
impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ordering) = self.ordering {
            write!(f, " --ordering {ordering}")?;
        }
        if let Some(atomicity) = self.atomicity {
            write!(f, " --atomicity {atomicity}")?;
        }
        for (option, kinds) in [("only", &self.only), ("also", &self.also), ("without", &self.without)] {
            if !kinds.is_empty() {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                write!(f, " --{option} {}", names.join(","))?;
            }
        }
        Ok(())
    }
}

/// Faults that exceed the fault model: blocks that a misdirected write did not reach are not detected (`docs/disk-format.md`).
const UNUSUAL: FaultKind = FaultKind::Misdirected;

/// The faults that are possible where writes take effect on arrival, in addition to the death of hosts or devices
/// (`docs/invariants.md`).
const WITH_CONSISTENT: [FaultKind; 4] =
    [FaultKind::ServerCrash, FaultKind::ClockStep, FaultKind::ClockRate, FaultKind::SlowDisk];
/// The largest loss of messages where writes take effect on arrival, in ten-thousandths.
const LOSS_WITH_CONSISTENT: u64 = 100;
/// A lease that is longer than any silence of a living node.
const NEVER_MISSED: Duration = Duration::from_secs(60);

impl Options {
    /// The order in time that histories must keep. Locks of lock servers are held until every node sees the writes under them,
    /// whatever clocks say. The same holds for locks of devices, unless they are lost with the memory of a device or the lease of a
    /// living host. Stamps of different hosts need not be in the order of time if clocks differ, or if devices restart (and accept
    /// only stamps above those that they had reserved ahead of the clock).
    ///
    /// Possible faults count only if they happened: a device has `restarted`, a clock has `turned` from its course.
    pub fn promise(&self, ordering: Ordering, restarted: bool, turned: bool) -> Promise {
        let has = |kinds: &[FaultKind]| kinds.iter().any(|kind| self.faults.has(*kind));
        let restart =
            [FaultKind::DeviceCrash, FaultKind::Blackout, FaultKind::Flap, FaultKind::Replace, FaultKind::Fence];
        let restarts = restarted && (has(&restart) || self.activities.has("nodes")) || self.activities.has("dead");
        let silence = has(&[FaultKind::Stall, FaultKind::SlowNode, FaultKind::Cut])
            || self.faults.network.delay > 0
            || self.activities.has_any(&["silent-hosts", "suspend", "nodes"]);
        let locks_last = match ordering {
            Ordering::ServerLock | Ordering::CallbackLock => true,
            Ordering::DeviceLock => !silence && !restarts,
            Ordering::None | Ordering::Timestamp => false,
        };
        if locks_last {
            return Promise::Strict;
        }
        let turned = turned && has(&[FaultKind::ClockRate, FaultKind::ClockLeap, FaultKind::CommonLeap]);
        let agree = self.faults.skew_max == 0 && self.faults.drift_ppm_max == 0 && !turned && !restarts;
        if agree { Promise::Strict } else { Promise::Related }
    }

    /// Errors that the faults of a run excuse; any other error is a failure.
    pub fn excuses(&self, error: &HostError) -> bool {
        let has = |kind| self.faults.has(kind);
        let by_fault = match error {
            HostError::TimedOut { .. } | HostError::Contended { .. } | HostError::Unavailable { .. } => true,
            // Lock servers fence a host that was silent for too long.
            HostError::LockServerSilent { .. } => self.lock_servers > 0,
            HostError::Fenced => self.lock_servers > 0 || has(FaultKind::Fence),
            // The journal of the device is full for a while, because other requests wait for the device, too.
            HostError::Objects(refusal) => refusal.failure == ObjectFailure::Busy,
            // A clock that is ahead by too much leaves stamps behind that are, too.
            HostError::ClockApart { .. } => {
                // Two clocks that have the largest difference and run at different rates will differ by more.
                let drifts = self.faults.drift_ppm_max > 0 || has(FaultKind::ClockRate);
                let apart = self.faults.skew_max > 0 && drifts;
                has(FaultKind::ClockLeap) || has(FaultKind::CommonLeap) || apart
            }
            HostError::Device { failure: Failure::NoSpace, .. } => has(FaultKind::FullDisk),
            // Redundancy can't replace the block just then: hosts report the loss, and never return other content.
            HostError::Device { failure: Failure::Lost { .. }, .. } => {
                [FaultKind::Corruption, FaultKind::Unreadable, FaultKind::Misdirected].into_iter().any(has)
            }
            // A write that fails goes to another place on the disk, or the device stops.
            _ => false,
        };
        by_fault || self.activities.0.iter().any(|choice| (choice.excuses)(error))
    }
}

impl fmt::Display for Options {
    /// All options, so that a run can be judged without repeating it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { layout, settings, faults, .. } = self;
        writeln!(
            f,
            "seed {}: {} ({}; {} lock servers, {:?}); {} on {} of {} devices, {} stripes in units of {} blocks; \
             {} hosts with {} clients each, thinking up to {:?}; \
             {} operations within {:?}; journals of {:?} bytes, space for {:?} chunks; {:?}",
            self.seed,
            self.ordering,
            self.atomicity,
            self.lock_servers,
            self.acquisition,
            layout.scheme(),
            layout.devices(),
            layout.devices() + usize::from(self.other_devices),
            self.stripes,
            layout.unit_blocks(),
            self.hosts,
            self.clients,
            self.think_max,
            self.operations,
            self.swarm,
            self.journal_bytes,
            self.chunks,
            self.medium
        )?;
        if !self.sites.is_empty() {
            let sites: Vec<&str> = self.sites.iter().map(|site| site.name()).collect();
            writeln!(f, "  parity sites of hosts, in turn: {}", sites.join(", "))?;
        }
        for choice in &self.activities.0 {
            writeln!(f, "  {:?}", choice.activity)?;
        }
        writeln!(f, "  {settings:?}")?;
        write!(f, "  {faults:?}")
    }
}
