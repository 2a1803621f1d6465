//! What a run is made of. A seed decides all of it, but for what is chosen ([`Choices`]).

use crate::object_workload::ObjectOptions;
use crate::volumes::MoreVolume;
use braid_base::limits::Settings;
use braid_base::{DeviceId, Rng};
use braid_check::Promise;
use braid_host::Acquisition;
use braid_layout::{Layout, Scheme};
use braid_machine::{ClockCause, HostError};
use braid_objects::bucket::BUCKET_BLOCKS;
use braid_store::Medium;
use braid_wire::{Atomicity, Failure, ObjectFailure, Ordering, Rejection};
use braid_world::{Budget, FaultKind, FaultOptions};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// An array, its users, and what is to go wrong.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides every die of the run.
    pub seed: u64,
    /// How the volume lies on the devices.
    pub layout: Layout,
    /// Devices of the array that the volume does not lie on, at first.
    pub other_devices: u16,
    /// The mean time between two losses of the connections to a host, if there are any.
    pub reconnects: Option<Duration>,
    /// Other volumes on the same devices; the last of them is removed in the midst of the run, and another one made.
    pub more_volumes: Vec<MoreVolume>,
    /// The volume moves in the midst of the run.
    pub moves: bool,
    /// Devices that die for good during the swarm run, one after the other: no stripe has more of them than redundancy units.
    pub dying: Vec<DeviceId>,
    /// If given, blocks are damaged while a device is out or returning, at this mean time after each other.
    pub damage_degraded: Option<Duration>,
    /// If given, records of devices and of the monitor are damaged, at this mean time after each other.
    pub record_damage: Option<Duration>,
    /// What keeps hosts apart.
    pub ordering: Ordering,
    /// What hostwrites promise.
    pub atomicity: Atomicity,
    /// Lock servers; none unless the ordering needs them.
    pub lock_servers: u16,
    /// How hosts get locks of several lock servers.
    pub acquisition: Acquisition,
    /// The volume's length in stripes: few, so that operations collide.
    pub stripes: u64,
    /// Hosts at the same time.
    pub hosts: usize,
    /// Clients of each host; each has one operation in flight.
    pub clients: usize,
    /// The longest that a client thinks between two operations.
    pub think_max: Duration,
    /// How long clients work and faults happen.
    pub swarm: Duration,
    /// Operations after which clients have had enough.
    pub operations: u64,
    /// Bytes of a device.
    pub device_bytes: u64,
    /// Bytes of its journal, if not the usual: a short one has a checkpoint every few dozen writes.
    pub journal_bytes: Option<u64>,
    /// Chunks that a device's disk has space for until everything heals, if that is limited.
    pub chunks: Option<u64>,
    /// What the devices' disks are like.
    pub medium: Medium,
    /// What clients do besides, if they do: have commands done on objects of devices.
    pub objects: Option<ObjectOptions>,
    /// The volume is an attribute volume, and this is what clients do there; they read and write nothing.
    pub attribute_volume: Option<ObjectOptions>,
    /// If given, hosts end in good order, at this mean time after each other, and others take their places.
    pub leaves: Option<Duration>,
    /// Spans of the protocol, often much shorter than in service, so that rare paths are taken.
    pub settings: Settings,
    /// What goes wrong.
    pub faults: FaultOptions,
}

/// Clients of all hosts together, where there are many; each has one operation in flight.
const CLIENTS_AT_ONCE_MAX: usize = 12;
/// How late a message comes at most that is held at a cut.
const HELD_MAX: Duration = Duration::from_secs(1);
/// Bytes of a device for objects, besides those for the volume.
const BYTES_FOR_OBJECTS: u64 = 16 << 20;

impl Options {
    /// A quiet array of `devices` for scripted scenarios.
    pub fn calm(layout: &str, devices: usize, unit_blocks: u64, stripes: u64) -> Options {
        let scheme: Scheme = layout.parse().expect("scenarios name layouts that exist");
        Options {
            seed: 1,
            layout: Layout::new(scheme, devices, unit_blocks).expect("scenarios choose layouts that fit"),
            other_devices: 0,
            reconnects: None,
            more_volumes: Vec::new(),
            moves: false,
            dying: Vec::new(),
            damage_degraded: None,
            record_damage: None,
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
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
            leaves: None,
            settings: Settings::default(),
            faults: FaultOptions::none(),
        }
    }

    /// What a seed stands for.
    pub fn of_seed(seed: u64) -> Options {
        Options::chosen(seed, &Choices::default())
    }

    /// What a seed stands for where nothing is chosen. Half of the seeds are ordered by timestamps, the others by the three kinds
    /// of locks; one in eight has its writes take effect on arrival.
    pub fn chosen(seed: u64, choices: &Choices) -> Options {
        let atomicity = choices.atomicity.unwrap_or(match Rng::new(seed ^ 0xa70).below(8) {
            0 => Atomicity::Consistent,
            _ => Atomicity::Implied,
        });
        let options = match atomicity {
            Atomicity::Implied => Options::by_timestamps(seed, &choices.kinds()),
            Atomicity::Consistent => Options::by_timestamps(seed, &choices.kinds()).consistent(),
        };
        let ordering = choices.ordering.unwrap_or(match Rng::new(seed ^ 0x0de2).below(6) {
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
            .moving(choices)
            .with_objects(choices)
            .with_attribute_volume(choices)
            .with_media(choices)
            .with_fences(choices)
            .calmed(choices)
            .with_reconnects(choices)
            .leaving(choices)
            .with_dead(choices)
            .with_volumes(choices)
            .with_degraded_damage(choices)
            .with_record_damage(choices)
    }

    /// The same, but that the disks of some seeds write 4 KiB at once, and those of some are behind a cache.
    fn with_media(mut self, choices: &Choices) -> Options {
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0x4e6_0512);
        let mut chosen = |kind, one_in| {
            let named = choices.only.contains(&kind) || choices.also.contains(&kind);
            (rng.below(one_in) == 0 || named) && choices.kinds().contains(&kind)
        };
        let errors_are_named = choices.also.contains(&FaultKind::DiskError) && self.atomicity == Atomicity::Implied;
        if errors_are_named {
            self.faults.weights.insert(FaultKind::DiskError, 10);
        }
        if chosen(FaultKind::LargeSectors, 4) {
            self.medium.physical_sector = 4096;
            self.device_bytes = self.device_bytes.max(24 << 20);
            // What is kept for decisions is more.
            self.journal_bytes = self.journal_bytes.map(|bytes| bytes.max(2 << 20));
        }
        if chosen(FaultKind::PageCache, 6) {
            self.medium.cached = true;
            // Else there is nothing to see.
            let may_fail = self.atomicity == Atomicity::Implied && choices.kinds().contains(&FaultKind::DiskError);
            if may_fail {
                self.faults.weights.insert(FaultKind::DiskError, 5);
            }
        }
        self
    }

    /// The same, but that clients of some seeds have commands done on objects, too; of all, where that is asked for by its name.
    fn with_objects(mut self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Objects);
        let named = choices.only.contains(&FaultKind::Objects) || choices.also.contains(&FaultKind::Objects);
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0x0b7ec7);
        if !may || !(rng.below(4) == 0 || named) {
            return self;
        }
        // One device alone has them: what is lost with its disk is lost.
        self.faults.weights.retain(|kind, _| ![FaultKind::Replace, FaultKind::Misdirected].contains(kind));
        // Whoever does each thing once must be cut short in the midst of many.
        let often = rng.below(2) == 0 && self.atomicity == Atomicity::Implied;
        if often && choices.kinds().contains(&FaultKind::DeviceCrash) {
            self.faults.weights.insert(FaultKind::DeviceCrash, 30);
            self.faults.every = self.faults.every.min(Duration::from_millis(200));
            self.faults.span_max = self.faults.span_max.min(Duration::from_millis(500));
        }
        let objects = ObjectOptions::draw(rng, self.settings.request_timeout);
        // Whoever is in haste has given up by the time a cut is healed, and what it had sent comes late.
        if objects.hasty > 0 && self.atomicity == Atomicity::Implied && choices.kinds().contains(&FaultKind::Cut) {
            self.faults.weights.insert(FaultKind::Cut, 20);
            self.faults.every = self.faults.every.min(Duration::from_millis(300));
            (self.faults.network.held, self.faults.network.held_max) = (3_000, HELD_MAX);
        }
        // Where much is put on record, the journal soon begins anew.
        let short = (objects.bulk_bytes_max > 0 && !self.moves).then_some(1 << 20);
        // Devices that are short of space refuse objects: here they are to be taken.
        let device_bytes = self.device_bytes + BYTES_FOR_OBJECTS;
        // What clients do on the volume meanwhile is judged, too, and more of it at once takes long; nor may too much be under way on objects.
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

    /// The same, but that the volume of some seeds is an attribute volume; of all in which it can be, where that is asked for by its name.
    fn with_attribute_volume(self, choices: &Choices) -> Options {
        // What is there in part would be worth nothing.
        let may = choices.kinds().contains(&FaultKind::AttributeVolumes)
            && self.atomicity == Atomicity::Implied
            && self.ordering != Ordering::None;
        let named =
            choices.only.contains(&FaultKind::AttributeVolumes) || choices.also.contains(&FaultKind::AttributeVolumes);
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0x311202);
        if !may || !(rng.below(10) == 0 || named) {
            return self;
        }
        let attribute_volume = ObjectOptions::draw_for_attribute_volume(rng, self.settings.request_timeout);
        let stripes = (rng.between(1, 3) * BUCKET_BLOCKS as u64).div_ceil(self.layout.stripe_blocks());
        // What one step of a rebuild writes must fit into a batch of the journal.
        let is_short = stripes * self.layout.unit_blocks() <= BUCKET_BLOCKS as u64;
        let journal_bytes = self.journal_bytes.filter(|_| is_short);
        Options { attribute_volume: Some(attribute_volume), stripes, journal_bytes, ..self }
    }

    /// The same, but that clients of some seeds lose their connections and come back; of all, where that is asked for by its name.
    fn with_reconnects(self, choices: &Choices) -> Options {
        let kind = FaultKind::Reconnect;
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0x4ec0);
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

    /// The same, but that hosts of some seeds end in good order in the midst of the run; of all in which they may, where that is asked for
    /// by its name. There tables have room for little more than the hosts that live.
    fn leaving(self, choices: &Choices) -> Options {
        // Where writes take effect on arrival, a host may not end while a device is unavailable.
        // In calm runs nobody is to be turned away.
        let is_calm = self.faults.has(FaultKind::Calm);
        let may = choices.kinds().contains(&FaultKind::Leave) && self.atomicity == Atomicity::Implied && !is_calm;
        let named = choices.only.contains(&FaultKind::Leave) || choices.also.contains(&FaultKind::Leave);
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0x1ea4e);
        if !may || !(rng.below(4) == 0 || named) {
            return self;
        }
        let settings = Settings {
            hosts_max: self.hosts + rng.between(2, 4) as usize,
            device_transactions_max: rng.between(128, 512) as usize,
            ..self.settings
        };
        let leaves = Duration::from_millis([100, 500, 2_000][rng.below(3) as usize]);
        Options { leaves: Some(leaves), settings, ..self }
    }

    /// The same, but that hosts of some seeds are kept out by others; of all in which it can be, where that is asked for by its name.
    fn with_fences(mut self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Fence) && self.atomicity == Atomicity::Implied;
        let named = choices.only.contains(&FaultKind::Fence) || choices.also.contains(&FaultKind::Fence);
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0xfe7ce);
        if !may || !(rng.below(8) == 0 || named) {
            return self;
        }
        self.faults.weights.insert(FaultKind::Fence, rng.between(5, 20));
        self.faults.every = self.faults.every.min(Duration::from_millis(rng.between(100, 1_000)));
        // Somebody has to see to it.
        Options { hosts: self.hosts.max(2), ..self }
    }

    /// The same, but that devices of some seeds die for good; of all, where that is asked for by its name.
    fn with_dead(mut self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Dead) && self.atomicity == Atomicity::Implied && !self.moves;
        let named = choices.only.contains(&FaultKind::Dead) || choices.also.contains(&FaultKind::Dead);
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0xdead);
        // What objects of one device are lost with it, and what else is damaged would be one loss too many.
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
        // Three copies are what can lose two, and groups, where each may lose some.
        let layout = match rng.below(4) {
            0 => Some(("raid1:3", [3, 4, 6][rng.below(3) as usize])),
            1 => Some(("raid5:2+1", 6)),
            _ => None,
        };
        if let Some((scheme, devices)) = layout.filter(|_| self.attribute_volume.is_none()) {
            let scheme: Scheme = scheme.parse().expect("a scheme that there is");
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
        // Nothing lies on this one.
        if self.other_devices > 0 && rng.below(2) == 0 {
            self.dying.insert(0, DeviceId(ring as u16));
        }
        self.dying.dedup();
        // One host more looks at how all goes on without the dead.
        if self.leaves.is_some() {
            self.settings.hosts_max += 1;
        }
        self
    }

    /// The same, but that the volume of some seeds moves; of all, where that is asked for by its name.
    fn moving(self, choices: &Choices) -> Options {
        let may = choices.kinds().contains(&FaultKind::Migrate)
            && self.atomicity == Atomicity::Implied
            && self.ordering != Ordering::None;
        let named = choices.only.contains(&FaultKind::Migrate) || choices.also.contains(&FaultKind::Migrate);
        // A random source of its own, so that all other seeds are as they are.
        let rng = &mut Rng::new(self.seed ^ 0x30e7);
        if !may || !(rng.below(12) == 0 || named) {
            return self;
        }
        // With twice as much to write, the space for it is not to be short.
        // Several lock servers share the locks by where stripes lie, and volumes don't move under these.
        let lock_servers = self.lock_servers.min(1);
        // What is written on both sides must fit into a batch of the journal.
        let (chunks, journal_bytes) = (None, None);
        Options { moves: true, other_devices: rng.below(4) as u16, chunks, journal_bytes, lock_servers, ..self }
    }

    /// The same with another ordering, and with what belongs to that.
    pub fn ordered_by(self, ordering: Ordering) -> Options {
        // A random source of its own, so that the rest of a seed is the same by any ordering.
        let rng = &mut Rng::new(self.seed ^ 0x10c5);
        let settings = Settings {
            lock_timeout: Duration::from_millis([5, 50, 500][rng.below(3) as usize]),
            lock_lease: Duration::from_millis([0, 0, 50, 4_000][rng.below(4) as usize]),
            stripes_per_lock_server: rng.between(1, 2),
            ..self.settings
        };
        let lock_servers = rng.between(1, 3) as u16;
        let acquisition = [Acquisition::Ordered, Acquisition::Timeout][rng.below(2) as usize];
        let lock_servers = if ordering.needs_lock_server() { lock_servers } else { 0 };
        Options { ordering, lock_servers, acquisition, settings, ..self }
    }

    /// The same with writes that take effect on arrival. Where a host and a device fail together, something may be lost, by design: so in
    /// a run either hosts die, and devices are missed by nobody, or devices do, and hosts are.
    fn consistent(mut self) -> Options {
        let hosts_die = Rng::new(self.seed ^ 0xa71).below(2) == 0;
        let (dies, lasting) = match hosts_die {
            true => (FaultKind::HostCrash, &mut self.settings.device_lease),
            false => (FaultKind::DeviceCrash, &mut self.settings.host_lease),
        };
        *lasting = NEVER_MISSED;
        // Else somebody would be silent for as long, or a second device taken out.
        self.faults.network.delay = 0;
        self.faults.network.loss = self.faults.network.loss.min(LOSS_WITH_CONSISTENT);
        self.faults.weights.retain(|kind, _| *kind == dies || WITH_CONSISTENT.contains(kind));
        if self.layout.redundancy_units() == 0 {
            // There would be nothing to keep consistent.
            let scheme: Scheme = "raid5:2+1".parse().expect("a scheme that there is");
            self.layout = Layout::new(scheme, 3, self.layout.unit_blocks()).expect("a ring that is wide enough");
        }
        // Nor may two devices be missed at once, or one after the other or twice, before what has been left behind is repaired.
        let frail = Rng::new(self.seed ^ 0xa72).below(self.layout.devices() as u64);
        self.faults.frail = Some(DeviceId(frail as u16));
        // What may have happened in part multiplies what the checker has to try.
        Options { atomicity: Atomicity::Consistent, clients: self.clients.min(2), chunks: None, ..self }
    }

    fn by_timestamps(seed: u64, kinds: &BTreeSet<FaultKind>) -> Options {
        let rng = &mut Rng::new(seed);
        // Sixteen blocks are what a store writes directly, past its journal.
        let unit_blocks = [1, 1, 2, 2, 4, 4, 16][rng.below(7) as usize];
        let layout = topology(rng, unit_blocks);
        let settings = settings(rng);
        let budget = budget(&settings, kinds.clone());
        let tight = [None, None, Some(rng.between(1, 8))][rng.below(3) as usize];
        let options = Options {
            seed,
            layout,
            other_devices: 0,
            reconnects: None,
            more_volumes: Vec::new(),
            moves: false,
            dying: Vec::new(),
            damage_degraded: None,
            record_damage: None,
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
            lock_servers: 0,
            acquisition: Acquisition::Ordered,
            stripes: rng.between(1, if unit_blocks > 4 { 2 } else { 6 }),
            hosts: rng.between(1, 4) as usize,
            clients: rng.between(1, 4) as usize,
            think_max: Duration::from_micros([100, 2_000, 30_000][rng.below(3) as usize]),
            swarm: Duration::from_secs(rng.between(2, 20)),
            operations: rng.between(100, 700),
            device_bytes: 16 << 20,
            journal_bytes: [None, Some(1 << 20), Some(2 << 20)][rng.below(3) as usize],
            chunks: None,
            medium: Medium::default(),
            objects: None,
            attribute_volume: None,
            leaves: None,
            faults: FaultOptions::draw(rng, &budget),
            settings,
        };
        // Space is set aside so far ahead that a disk that fills up later is hardly noticed.
        let chunks = tight.filter(|_| options.faults.has(FaultKind::FullDisk));
        Options { chunks, ..options }
    }
}

/// What of a run is not left to its seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// What keeps hosts apart.
    pub ordering: Option<Ordering>,
    /// What hostwrites promise.
    pub atomicity: Option<Atomicity>,
    /// Only these kinds of faults; messages have theirs all the same.
    pub only: Vec<FaultKind>,
    /// These kinds besides, which a run does not have unless told to.
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

/// As on the command line, with a space before each.
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

/// Faults that go beyond the budget: nobody notices a place that a write did not reach (`docs/disk-format.md`).
pub const UNUSUAL: [FaultKind; 1] = [FaultKind::Misdirected];

/// What may go wrong where writes take effect on arrival, besides hosts or devices that die (`docs/invariants.md`).
const WITH_CONSISTENT: [FaultKind; 4] =
    [FaultKind::ServerCrash, FaultKind::ClockStep, FaultKind::ClockRate, FaultKind::SlowDisk];
/// Of ten thousand messages, how many are lost at most where writes take effect on arrival.
const LOSS_WITH_CONSISTENT: u64 = 100;
/// A lease that lasts longer than anybody is silent who lives.
const NEVER_MISSED: Duration = Duration::from_secs(60);

/// What a swarm run may not exceed. `docs/fault-model.md` gives the reasons.
fn budget(settings: &Settings, kinds: BTreeSet<FaultKind>) -> Budget {
    Budget {
        kinds,
        // Two clocks are as far apart as devices tolerate. Floors that were reserved ahead of the faster one are further ahead of the
        // slower, which hears of them.
        skew_max: settings.stamp_ahead_max.as_nanos() as u64 / 2,
        // The rates of two clocks differ by less than a tenth, as leases have it.
        rate_ppm_max: 45_000,
        span_max: Duration::from_secs(9),
    }
}

/// A scheme on a ring: as many devices as a stripe is wide, a few more, or groups.
fn topology(rng: &mut Rng, unit_blocks: u64) -> Layout {
    let scheme = match rng.below(10) {
        0 => format!("raid0:{}", rng.between(1, 4)),
        1..4 => format!("raid1:{}", rng.between(2, 3)),
        _ => format!("raid5:{}+1", rng.between(2, 5)),
    };
    let scheme: Scheme = scheme.parse().expect("a scheme that there is");
    let width = scheme.width() as u64;
    let devices = match rng.below(4) {
        0 => width + rng.between(1, 3),
        1 => 2 * width,
        _ => width,
    };
    Layout::new(scheme, devices as usize, unit_blocks).expect("a ring that is wide enough")
}

impl Options {
    /// What histories must keep to. Locks of lock servers are held until everybody sees what was written under them, whatever
    /// clocks say; so are those of devices unless they are lost, with a device's memory or a live host's lease. Where stamps
    /// decide: where clocks are apart, or devices restart (and take only stamps above what they had reserved ahead of the
    /// clock), stamps of different hosts are not in the order of time.
    ///
    /// Faults that a run may have count only if they came: devices that `restarted`, and clocks that `turned` from their course.
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
        let silence = has(&[FaultKind::Stall, FaultKind::SlowNode, FaultKind::Cut]) || self.faults.network.delay > 0;
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

    /// Errors that the faults of a run excuse; any other is a failure.
    pub fn excuses(&self, error: &HostError) -> bool {
        let has = |kind| self.faults.has(kind);
        match error {
            HostError::TimedOut { .. } | HostError::Contended { .. } | HostError::Unavailable { .. } => true,
            // A host that was silent for too long is fenced by lock servers.
            HostError::LockServerSilent { .. } => self.lock_servers > 0,
            HostError::Fenced => self.lock_servers > 0 || has(FaultKind::Fence),
            // Tables that are full until devices have forgotten hosts that have ended.
            HostError::Rejected { rejection: Rejection::TooManyHosts, .. }
            | HostError::LockServerRejected { rejection: Rejection::TooManyHosts, .. } => self.leaves.is_some(),
            // A journal that is full for a while, and everybody waits for its device.
            HostError::Objects(refusal) => refusal.failure == ObjectFailure::Busy,
            HostError::Abandoned => self.reconnects.is_some(),
            // Asked of a host that was about to end.
            HostError::Disconnecting => self.leaves.is_some(),
            HostError::ClockApart { cause, .. } => {
                // Two that are as far apart as may be, and run at different rates, come to be further apart.
                let drifts = self.faults.drift_ppm_max > 0 || has(FaultKind::ClockRate);
                let apart = self.faults.skew_max > 0 && drifts && *cause == ClockCause::Host;
                has(FaultKind::ClockLeap) || has(FaultKind::CommonLeap) || apart
            }
            HostError::Device { failure: Failure::NoSpace, .. } => has(FaultKind::FullDisk),
            // Where redundancy can't stand in for it just then: hosts say that a block is lost, and never show another content.
            HostError::Device { failure: Failure::Lost { .. }, .. } => {
                let kinds = [FaultKind::Corruption, FaultKind::Unreadable, FaultKind::Misdirected];
                kinds.into_iter().any(has) || self.damage_degraded.is_some()
            }
            // What a disk fails to write goes elsewhere on it, or the device stops.
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
    /// Everything, so that a run can be judged without running it again.
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
        for volume in &self.more_volumes {
            writeln!(f, "  besides {volume:?}")?;
        }
        if let Some(objects) = &self.objects {
            writeln!(f, "  {objects:?}")?;
        }
        if let Some(every) = self.reconnects {
            writeln!(f, "  clients lose their connections every {every:?} or so")?;
        }
        if let Some(every) = self.damage_degraded {
            writeln!(f, "  while a device is out or returning, a block is damaged every {every:?} or so")?;
        }
        if let Some(every) = self.record_damage {
            writeln!(f, "  records of devices and of the monitor are damaged, one every {every:?} or so")?;
        }
        if let Some(leaves) = &self.leaves {
            writeln!(f, "  hosts end in good order, one every {leaves:?}")?;
        }
        if let Some(attribute_volume) = &self.attribute_volume {
            writeln!(f, "  the volume is an attribute volume: {attribute_volume:?}")?;
        }
        writeln!(f, "  {settings:?}")?;
        write!(f, "  {faults:?}")
    }
}
