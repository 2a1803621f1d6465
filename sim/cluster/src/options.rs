//! The options of a run. The seed determines all of them, except those that are chosen ([`Choices`]).

use crate::control::{ChangeOptions, SilenceOptions};
use crate::file_options::FileOptions;
use crate::object_workload::ObjectOptions;
use crate::volumes::MoreVolume;
use braid_base::limits::Settings;
use braid_base::{DeviceId, Rng};
use braid_check::Promise;
use braid_host::Acquisition;
use braid_layout::{Layout, RaidLevel, SitePolicy};
use braid_machine::{ClockCause, HostError};
use braid_objects::bucket::BUCKET_BLOCKS;
use braid_ordering::{Atomicity, Ordering};
use braid_store::Medium;
use braid_wire::{Failure, ObjectFailure, Rejection};
use braid_world::{Budget, FaultKind, FaultOptions};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// An array, its clients, and the faults that happen to it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Determines every random choice of the run.
    pub seed: u64,
    /// The layout of the volume.
    pub layout: Layout,
    /// Devices of the array that the volume does not use at first.
    pub other_devices: u16,
    /// If set, the mean time between two losses of the connections to a host.
    pub reconnects: Option<Duration>,
    /// If set, devices are suspended while they read, with this mean time between two.
    pub suspensions: Option<Duration>,
    /// More volumes on the same devices; in the middle of the run the last of them is removed, and another one is created.
    pub more_volumes: Vec<MoreVolume>,
    /// Whether the volume is migrated during the run.
    pub moves: bool,
    /// Devices that die for good during the swarm run, one after the other: no stripe has more of them than redundancy units.
    pub dying: Vec<DeviceId>,
    /// If set, blocks are damaged while a device is out or returning, with this mean time between two.
    pub damage_degraded: Option<Duration>,
    /// If set, records of devices and of the monitor are damaged, with this mean time between two.
    pub record_damage: Option<Duration>,
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
    /// Objects of devices that clients also use, if there are any.
    pub objects: Option<ObjectOptions>,
    /// If set, the volume is an attribute volume, with this workload; clients then read and write no blocks.
    pub attribute_volume: Option<ObjectOptions>,
    /// If set, hosts disconnect gracefully, with this mean time between two, and others take their places.
    pub disconnects: Option<Duration>,
    /// If set, the ordering of the volume changes, or the volume moves, during the run.
    pub changes: Option<ChangeOptions>,
    /// If set, hosts are silent for longer than they may be, and are fenced.
    pub silences: Option<SilenceOptions>,
    /// If set, hosts take file systems over from each other, with this mean time between two requests.
    pub take_overs: Option<Duration>,
    /// If set, hosts have a file system mounted.
    pub files: Option<FileOptions>,
    /// Time-outs and leases of the protocol, often much shorter than in production, so that rare paths are taken.
    pub settings: Settings,
    pub faults: FaultOptions,
}

/// The number of clients of all hosts together, where there are many; each has one operation in progress.
const CLIENTS_AT_ONCE_MAX: usize = 12;
/// The longest delay of a message that is held at a cut.
const HELD_MAX: Duration = Duration::from_secs(1);
/// Bytes of a device for objects, in addition to those for the volume.
const BYTES_FOR_OBJECTS: u64 = 16 << 20;

impl Options {
    /// Options of an array without faults, for scripted scenarios.
    pub fn calm(layout: &str, devices: usize, unit_blocks: u64, stripes: u64) -> Options {
        let scheme: RaidLevel = layout.parse().expect("scenarios name layouts that exist");
        let layout = Layout::new(scheme, devices, unit_blocks).expect("scenarios choose layouts that fit");
        Options::calm_on(layout, stripes)
    }

    fn calm_on(layout: Layout, stripes: u64) -> Options {
        Options {
            seed: 1,
            layout,
            other_devices: 0,
            reconnects: None,
            suspensions: None,
            more_volumes: Vec::new(),
            moves: false,
            dying: Vec::new(),
            damage_degraded: None,
            record_damage: None,
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
            objects: None,
            attribute_volume: None,
            disconnects: None,
            changes: None,
            silences: None,
            take_overs: None,
            files: None,
            settings: Settings::default(),
            faults: FaultOptions::none(),
        }
    }

    /// A random source of its own for each name: what is drawn for one feature changes nothing of another.
    pub(crate) fn source(&self, name: &str) -> Rng {
        Rng::new(self.seed).named(name)
    }

    /// The options of a seed.
    pub fn of_seed(seed: u64) -> Options {
        Options::chosen(seed, &Choices::default())
    }

    /// The options of a seed with these choices. Without choices, half of the seeds use timestamp ordering and the others use the
    /// three kinds of locks; in one seed of eight, writes take effect on arrival.
    pub fn chosen(seed: u64, choices: &Choices) -> Options {
        let atomicity = choices.atomicity().unwrap_or(match Rng::new(seed).named("atomicity").below(8) {
            0 => Atomicity::Consistent,
            _ => Atomicity::Implied,
        });
        let options = match atomicity {
            Atomicity::Implied => Options::by_timestamps(seed, &choices.kinds()),
            Atomicity::Consistent => Options::by_timestamps(seed, &choices.kinds()).consistent(),
        };
        let ordering = choices.ordering().unwrap_or(match Rng::new(seed).named("ordering").below(6) {
            0 => Ordering::DeviceLock,
            1 => Ordering::ServerLock,
            2 => Ordering::CallbackLock,
            _ => Ordering::Timestamp,
        });
        let options = match ordering {
            Ordering::Timestamp => options,
            other => options.ordered_by(other),
        };
        options
            .with_sites(choices)
            .moving(choices)
            .with_objects(choices)
            .with_attribute_volume(choices)
            .with_media(choices)
            .with_fences(choices)
            .calmed(choices)
            .with_reconnects(choices)
            .with_take_overs(choices)
            .with_disconnects(choices)
            .with_dead(choices)
            .with_volumes(choices)
            .with_degraded_damage(choices)
            .with_record_damage(choices)
            .with_files(choices)
            .with_changes(choices)
            .with_silences(choices)
            .with_suspensions(choices)
    }

    /// In some seeds, gives disks physical sectors of 4 KiB, or a page cache.
    fn with_media(mut self, choices: &Choices) -> Options {
        let chosen = |kind: FaultKind, one_in| {
            let named = choices.only.contains(&kind) || choices.also.contains(&kind);
            (self.source(kind.name()).below(one_in) == 0 || named) && choices.kinds().contains(&kind)
        };
        let (large, cached) = (chosen(FaultKind::LargeSectors, 4), chosen(FaultKind::PageCache, 6));
        let errors_are_named = choices.also.contains(&FaultKind::DiskError) && self.atomicity == Atomicity::Implied;
        if errors_are_named {
            self.faults.weights.insert(FaultKind::DiskError, 10);
        }
        if large {
            self.medium.physical_sector = 4096;
            self.device_bytes = self.device_bytes.max(24 << 20);
            // The journal then keeps more space for decisions.
            self.journal_bytes = self.journal_bytes.map(|bytes| bytes.max(2 << 20));
        }
        if cached {
            self.medium.cached = true;
            // Without failing writes, a page cache has no effect.
            let may_fail = self.atomicity == Atomicity::Implied && choices.kinds().contains(&FaultKind::DiskError);
            if may_fail {
                self.faults.weights.insert(FaultKind::DiskError, 5);
            }
        }
        self
    }

    /// In some seeds, clients also use objects; if the choices name this, in all seeds.
    fn with_objects(mut self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Objects);
        let named = choices.only.contains(&FaultKind::Objects) || choices.also.contains(&FaultKind::Objects);
        let rng = &mut self.source("objects");
        if !may || !(rng.below(4) == 0 || named) {
            return self;
        }
        // An object lies on one device: a lost disk would lose it.
        self.faults.weights.retain(|kind, _| ![FaultKind::Replace, FaultKind::Misdirected].contains(kind));
        // Tests of exactly-once execution need many requests that are interrupted.
        let often = rng.below(2) == 0 && self.atomicity == Atomicity::Implied;
        if often && choices.kinds().contains(&FaultKind::DeviceCrash) {
            self.faults.weights.insert(FaultKind::DeviceCrash, 30);
            self.faults.every = self.faults.every.min(Duration::from_millis(200));
            self.faults.span_max = self.faults.span_max.min(Duration::from_millis(500));
        }
        let objects = ObjectOptions::draw(rng, self.settings.request_timeout);
        // By the time a cut is healed, impatient requests are abandoned, and their messages arrive late.
        if objects.hasty > 0 && self.atomicity == Atomicity::Implied && choices.kinds().contains(&FaultKind::Cut) {
            self.faults.weights.insert(FaultKind::Cut, 20);
            self.faults.every = self.faults.every.min(Duration::from_millis(300));
            (self.faults.network.held, self.faults.network.held_max) = (3_000, HELD_MAX);
        }
        // Where much is written to the journal, the journal wraps around soon.
        let short = (objects.bulk_bytes_max > 0 && !self.moves).then_some(1 << 20);
        // Devices without space refuse objects: here they must accept them.
        let device_bytes = self.device_bytes + BYTES_FOR_OBJECTS;
        // The operations on the volume are checked, too; many of them at once take long to check. And not too many object requests
        // may be in progress.
        let is_alone = objects.share > 90 && self.atomicity == Atomicity::Implied;
        let crowded = objects.crowd.min(CLIENTS_AT_ONCE_MAX / self.hosts);
        let clients = if is_alone { self.clients.max(crowded) } else { self.clients };
        Options {
            objects: Some(objects),
            clients,
            journal_bytes: short.or(self.journal_bytes),
            chunks: None,
            device_bytes,
            ..self
        }
    }

    /// Makes the volume an attribute volume in some seeds; if the choices name this, in all seeds in which it can be.
    fn with_attribute_volume(self, choices: &Choices) -> Options {
        // An attribute volume needs complete writes.
        let may = choices.kinds().contains(&FaultKind::AttributeVolumes)
            && self.atomicity == Atomicity::Implied
            && self.ordering != Ordering::None;
        let named =
            choices.only.contains(&FaultKind::AttributeVolumes) || choices.also.contains(&FaultKind::AttributeVolumes);
        let rng = &mut self.source("attribute-volumes");
        if !may || !(rng.below(10) == 0 || named) {
            return self;
        }
        let attribute_volume = ObjectOptions::draw_for_attribute_volume(rng, self.settings.request_timeout);
        let stripes = (rng.between(1, 3) * BUCKET_BLOCKS as u64).div_ceil(self.layout.stripe_blocks());
        // The blocks that one step of a rebuild writes must fit into a batch of the journal.
        let is_short = stripes * self.layout.unit_blocks() <= BUCKET_BLOCKS as u64;
        let journal_bytes = self.journal_bytes.filter(|_| is_short);
        Options { attribute_volume: Some(attribute_volume), stripes, journal_bytes, ..self }
    }

    /// In some seeds, clients lose their connections and reconnect; if the choices name this, in all seeds.
    fn with_reconnects(self, choices: &Choices) -> Options {
        let kind = FaultKind::Reconnect;
        let rng = &mut self.source("reconnect");
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        // In calm runs every operation must succeed.
        let may =
            choices.kinds().contains(&kind) && self.attribute_volume.is_none() && !self.faults.has(FaultKind::Calm);
        if !may || !(rng.below(4) == 0 || named) {
            return self;
        }
        let reconnects = Some(Duration::from_millis([20, 200, 1_000][rng.below(3) as usize]));
        Options { reconnects, ..self }
    }

    /// In some seeds, hosts disconnect gracefully in the middle of the run; if the choices name this, in all seeds in which they may.
    /// Session tables then have room for little more than the living hosts.
    fn with_disconnects(self, choices: &Choices) -> Options {
        // Where writes take effect on arrival, a host may not end while a device is unavailable.
        // In calm runs no host may be refused for lack of room.
        let is_calm = self.faults.has(FaultKind::Calm);
        let may = choices.kinds().contains(&FaultKind::Disconnect) && self.atomicity == Atomicity::Implied && !is_calm;
        let named = choices.only.contains(&FaultKind::Disconnect) || choices.also.contains(&FaultKind::Disconnect);
        let rng = &mut self.source("disconnect");
        if !may || !(rng.below(4) == 0 || named) {
            return self;
        }
        let settings = Settings {
            hosts_max: self.hosts + rng.between(2, 4) as usize,
            device_transactions_max: rng.between(128, 512) as usize,
            ..self.settings
        };
        let every = Duration::from_millis([100, 500, 2_000][rng.below(3) as usize]);
        Options { disconnects: Some(every), settings, ..self }
    }

    /// In some seeds, hosts are fenced by others; if the choices name this, in all seeds in which it can be.
    fn with_fences(mut self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Fence) && self.atomicity == Atomicity::Implied;
        let named = choices.only.contains(&FaultKind::Fence) || choices.also.contains(&FaultKind::Fence);
        let rng = &mut self.source("fence");
        if !may || !(rng.below(8) == 0 || named) {
            return self;
        }
        self.faults.weights.insert(FaultKind::Fence, rng.between(5, 20));
        self.faults.every = self.faults.every.min(Duration::from_millis(rng.between(100, 1_000)));
        // Another host must request the fence.
        Options { hosts: self.hosts.max(2), ..self }
    }

    /// In some seeds, devices die for good; if the choices name this, in all seeds.
    fn with_dead(mut self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Dead) && self.atomicity == Atomicity::Implied && !self.moves;
        let named = choices.only.contains(&FaultKind::Dead) || choices.also.contains(&FaultKind::Dead);
        let rng = &mut self.source("dead");
        // The objects of a device are lost with it, and together with other damage the loss would exceed the redundancy.
        let is_calm = self.faults.has(FaultKind::Calm);
        if !may || is_calm || self.objects.is_some() || !(rng.below(10) == 0 || named) {
            return self;
        }
        let damage = [
            FaultKind::Corruption,
            FaultKind::Unreadable,
            FaultKind::Replace,
            FaultKind::Misdirected,
            FaultKind::DiskError,
        ];
        self.reconnects = None;
        self.faults.weights.retain(|kind, _| !damage.contains(kind));
        // Three copies can lose two devices, and so can groups, where each group may lose some.
        let layout = match rng.below(4) {
            0 => Some(("raid1:3", [3, 4, 6][rng.below(3) as usize])),
            1 => Some(("raid5:2+1", 6)),
            _ => None,
        };
        if let Some((scheme, devices)) = layout.filter(|_| self.attribute_volume.is_none()) {
            let scheme: RaidLevel = scheme.parse().expect("a scheme that there is");
            self.layout = Layout::new(scheme, devices, self.layout.unit_blocks()).expect("a ring that is wide enough");
        }
        self.other_devices = rng.below(2) as u16;
        let ring = self.layout.devices() as u64;
        for _ in 0..rng.between(1, 3) {
            let dies = DeviceId(rng.below(ring) as u16);
            let with_it =
                |place: &usize| *place == usize::from(dies.0) || self.dying.contains(&DeviceId(*place as u16));
            let too_many = |dead: usize| dead > self.layout.redundancy_units();
            if !self.layout.stripes_of_the_ring().any(|stripe| too_many(stripe.filter(with_it).count())) {
                self.dying.push(dies);
            }
        }
        // This device is not used by the volume.
        if self.other_devices > 0 && rng.below(2) == 0 {
            self.dying.insert(0, DeviceId(ring as u16));
        }
        self.dying.dedup();
        // One more host is used to check the array without the dead devices, and others come and go.
        if self.disconnects.is_some() {
            self.settings.hosts_max += 2;
        }
        self
    }

    /// In some seeds, the volume is migrated; if the choices name this, in all seeds.
    fn moving(self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Migrate)
            && self.atomicity == Atomicity::Implied
            && self.ordering != Ordering::None;
        let named = choices.only.contains(&FaultKind::Migrate) || choices.also.contains(&FaultKind::Migrate);
        let rng = &mut self.source("migrate");
        if !may || !(rng.below(12) == 0 || named) {
            return self;
        }
        // During a migration twice as much is written, so space must not be short. Several lock servers divide the locks by the place
        // of stripes, and then volumes are not migrated.
        let lock_servers = self.lock_servers.min(1);
        // The blocks written to both layouts must fit into a batch of the journal.
        let (chunks, journal_bytes) = (None, None);
        Options { moves: true, other_devices: rng.below(4) as u16, chunks, journal_bytes, lock_servers, ..self }
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
        let meets_some = self.ordering == Ordering::DeviceLock || of_servers;
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
            let scheme: RaidLevel = "raid5:2+1".parse().expect("a scheme that there is");
            self.layout = Layout::new(scheme, 3, self.layout.unit_blocks()).expect("a ring that is wide enough");
        }
        // At most one device may be out at a time, and not again before its interrupted writes are repaired.
        let frail = self.source("frail device").below(self.layout.devices() as u64);
        self.faults.frail = Some(DeviceId(frail as u16));
        // Writes that may have happened in part multiply the orders that the checker has to try.
        Options { atomicity: Atomicity::Consistent, clients: self.clients.min(2), chunks: None, ..self }
    }

    fn by_timestamps(seed: u64, kinds: &BTreeSet<FaultKind>) -> Options {
        let rng = &mut Rng::new(seed);
        // Units of sixteen blocks, because a store writes whole chunks directly to their place, past its journal.
        let unit_blocks = [1, 1, 2, 2, 4, 4, 16][rng.below(7) as usize];
        let layout = topology(rng, unit_blocks);
        let settings = settings(rng);
        let budget = budget(&settings, kinds.clone());
        let tight = [None, None, Some(rng.between(1, 8))][rng.below(3) as usize];
        let options = Options {
            seed,
            stripes: rng.between(1, if unit_blocks > 4 { 2 } else { 6 }),
            hosts: rng.between(1, 4) as usize,
            clients: rng.between(1, 4) as usize,
            think_max: Duration::from_micros([100, 2_000, 30_000][rng.below(3) as usize]),
            swarm: Duration::from_secs(rng.between(2, 20)),
            operations: rng.between(100, 700),
            journal_bytes: [None, Some(1 << 20), Some(2 << 20)][rng.below(3) as usize],
            faults: FaultOptions::draw(rng, &budget),
            settings,
            ..Options::calm_on(layout, 0)
        };
        // Space is reserved so far ahead that a disk that fills up later has hardly any effect.
        let chunks = tight.filter(|_| options.faults.has(FaultKind::FullDisk));
        Options { chunks, ..options }
    }
}

/// The options of a run that override its seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    pub ordering: Option<Ordering>,
    pub atomicity: Option<Atomicity>,
    /// Only these kinds of faults; faults of messages remain.
    pub only: Vec<FaultKind>,
    /// These kinds, too, which runs have only on request.
    pub also: Vec<FaultKind>,
    /// None of these kinds.
    pub without: Vec<FaultKind>,
}

impl Choices {
    /// The kinds of faults that a run may have.
    pub fn kinds(&self) -> BTreeSet<FaultKind> {
        let usual = FaultKind::ALL.into_iter().filter(|kind| !UNUSUAL.contains(kind));
        let mut kinds: BTreeSet<FaultKind> =
            if self.only.is_empty() { usual.collect() } else { self.only.iter().copied().collect() };
        kinds.extend(&self.also);
        kinds.retain(|kind| !self.without.contains(kind));
        kinds
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
pub const UNUSUAL: [FaultKind; 1] = [FaultKind::Misdirected];

/// The faults that are possible where writes take effect on arrival, in addition to the death of hosts or devices
/// (`docs/invariants.md`).
const WITH_CONSISTENT: [FaultKind; 4] =
    [FaultKind::ServerCrash, FaultKind::ClockStep, FaultKind::ClockRate, FaultKind::SlowDisk];
/// The largest loss of messages where writes take effect on arrival, in ten-thousandths.
const LOSS_WITH_CONSISTENT: u64 = 100;
/// A lease that is longer than any silence of a living node.
const NEVER_MISSED: Duration = Duration::from_secs(60);

/// The budget of a swarm run. `docs/fault-model.md` gives the reasons.
fn budget(settings: &Settings, kinds: BTreeSet<FaultKind>) -> Budget {
    Budget {
        kinds,
        // Two clocks are at most as far apart as devices tolerate. Floors that were reserved ahead of the faster clock are even
        // further ahead of the slower clock, whose node learns of them.
        skew_max: settings.stamp_ahead_max.as_nanos() as u64 / 2,
        // The rates of two clocks differ by less than a tenth, as leases require.
        rate_ppm_max: 45_000,
        span_max: Duration::from_secs(9),
    }
}

/// Draws a scheme and a ring: as many devices as a stripe has units, a few more, or groups.
fn topology(rng: &mut Rng, unit_blocks: u64) -> Layout {
    let scheme = match rng.below(10) {
        0 => format!("raid0:{}", rng.between(1, 4)),
        1..4 => format!("raid1:{}", rng.between(2, 3)),
        _ => format!("raid5:{}+1", rng.between(2, 5)),
    };
    let scheme: RaidLevel = scheme.parse().expect("a scheme that there is");
    let width = scheme.width() as u64;
    let devices = match rng.below(4) {
        0 => width + rng.between(1, 3),
        1 => 2 * width,
        _ => width,
    };
    Layout::new(scheme, devices as usize, unit_blocks).expect("a ring that is wide enough")
}

impl Options {
    /// The order in time that histories must keep. Locks of lock servers are held until every node sees the writes under them,
    /// whatever clocks say. The same holds for locks of devices, unless they are lost with the memory of a device or the lease of a
    /// living host. Stamps of different hosts need not be in the order of time if clocks differ, or if devices restart (and accept
    /// only stamps above those that they had reserved ahead of the clock).
    ///
    /// Possible faults count only if they happened: a device has `restarted`, a clock has `turned` from its course.
    pub fn promise(&self, ordering: Ordering, restarted: bool, turned: bool) -> Promise {
        let has = |kinds: &[FaultKind]| kinds.iter().any(|kind| self.faults.has(*kind));
        let restarts = restarted
            && has(&[
                FaultKind::DeviceCrash,
                FaultKind::Blackout,
                FaultKind::Flap,
                FaultKind::Replace,
                FaultKind::Fence,
            ])
            || !self.dying.is_empty();
        let silence = has(&[FaultKind::Stall, FaultKind::SlowNode, FaultKind::Cut])
            || self.faults.network.delay > 0
            || self.silences.is_some()
            || self.suspensions.is_some();
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
        match error {
            HostError::TimedOut { .. } | HostError::Contended { .. } | HostError::Unavailable { .. } => true,
            // Lock servers fence a host that was silent for too long.
            HostError::LockServerSilent { .. } => self.lock_servers > 0,
            // So do metadata servers.
            HostError::Fenced => {
                let by_host = has(FaultKind::Fence)
                    || self.take_overs.is_some()
                    || self.changes.is_some()
                    || self.silences.is_some();
                self.lock_servers > 0 || by_host || self.files.is_some()
            }
            // Session tables are full until devices have forgotten hosts that have ended.
            HostError::Rejected { rejection: Rejection::TooManyHosts, .. }
            | HostError::LockServerRejected { rejection: Rejection::TooManyHosts, .. } => self.disconnects.is_some(),
            // The journal of the device is full for a while, because other requests wait for the device, too.
            HostError::Objects(refusal) => refusal.failure == ObjectFailure::Busy,
            HostError::Abandoned => self.reconnects.is_some(),
            // The request was sent to a host that was about to disconnect.
            HostError::Disconnecting => self.disconnects.is_some(),
            HostError::ClockApart { cause, .. } => {
                // Two clocks that have the largest difference and run at different rates will differ by more.
                let drifts = self.faults.drift_ppm_max > 0 || has(FaultKind::ClockRate);
                let apart = self.faults.skew_max > 0 && drifts && *cause == ClockCause::Host;
                has(FaultKind::ClockLeap) || has(FaultKind::CommonLeap) || apart
            }
            HostError::Device { failure: Failure::NoSpace, .. } => has(FaultKind::FullDisk),
            // Redundancy can't replace the block just then: hosts report the loss, and never return other content.
            HostError::Device { failure: Failure::Lost { .. }, .. } => {
                let kinds = [FaultKind::Corruption, FaultKind::Unreadable, FaultKind::Misdirected];
                kinds.into_iter().any(has) || self.damage_degraded.is_some()
            }
            // A write that fails goes to another place on the disk, or the device stops.
            _ => false,
        }
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let host_lease = Duration::from_millis([300, 1_000, 4_000][rng.below(3) as usize]);
    Settings {
        stamps_kept: Duration::from_millis([50, 1_000, 10_000][rng.below(3) as usize]),
        host_lease,
        device_lease: host_lease,
        readmission_min: host_lease / 8,
        readmission_max: 2 * host_lease,
        heartbeat: host_lease / 8,
        commit_linger: Duration::from_micros([500, 2_000, 20_000][rng.below(3) as usize]),
        resend_min: Duration::from_millis([5, 50, 500][rng.below(3) as usize]),
        resend_max: Duration::from_millis(rng.between(500, 4_000)),
        request_timeout: Duration::from_secs(rng.between(1, 30)),
        reader_patience: rng.between(1, 4) as u32,
        ..Settings::default()
    }
}

impl fmt::Display for Options {
    /// All options, so that a run can be judged without repeating it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { layout, settings, faults, .. } = self;
        writeln!(
            f,
            "seed {}: {} ({}; {} lock servers, {:?}); {} on {} of {} devices{}, {} stripes in units of {} blocks; \
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
            match (self.moves, &self.dying[..]) {
                (true, _) => ", and moves".to_string(),
                (_, []) => String::new(),
                (_, dying) => format!(", of which {dying:?} die"),
            },
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
        for volume in &self.more_volumes {
            writeln!(f, "  besides {volume:?}")?;
        }
        if let Some(objects) = &self.objects {
            writeln!(f, "  {objects:?}")?;
        }
        if let Some(every) = self.reconnects {
            writeln!(f, "  clients lose their connections every {every:?} or so")?;
        }
        if let Some(every) = self.suspensions {
            writeln!(f, "  devices are suspended while they read, one every {every:?} or so")?;
        }
        if let Some(every) = self.damage_degraded {
            writeln!(f, "  while a device is out or returning, a block is damaged every {every:?} or so")?;
        }
        if let Some(every) = self.record_damage {
            writeln!(f, "  records of devices and of the monitor are damaged, one every {every:?} or so")?;
        }
        if let Some(every) = &self.disconnects {
            writeln!(f, "  hosts disconnect gracefully, one every {every:?}")?;
        }
        if let Some(changes) = &self.changes {
            writeln!(f, "  the volume changes: {changes:?}")?;
        }
        if let Some(silences) = &self.silences {
            writeln!(f, "  hosts are silent: {silences:?}")?;
        }
        if let Some(every) = &self.take_overs {
            writeln!(f, "  hosts contend for file systems, one every {every:?}")?;
        }
        if let Some(files) = &self.files {
            writeln!(f, "  hosts have a file system mounted: {files:?}")?;
        }
        if let Some(attribute_volume) = &self.attribute_volume {
            writeln!(f, "  the volume is an attribute volume: {attribute_volume:?}")?;
        }
        writeln!(f, "  {settings:?}")?;
        write!(f, "  {faults:?}")
    }
}
