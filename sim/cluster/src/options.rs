//! What a run is made of. A seed decides all of it.

use braid_base::Rng;
use braid_base::limits::Settings;
use braid_check::Promise;
use braid_host::Acquisition;
use braid_layout::{Layout, Scheme};
use braid_wire::{Atomicity, Ordering};
use braid_world::FaultOptions;
use std::fmt;
use std::time::Duration;

/// An array, its users, and what is to go wrong.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides every die of the run.
    pub seed: u64,
    /// How the volume lies on the devices.
    pub layout: Layout,
    /// What keeps hosts apart.
    pub ordering: Ordering,
    /// What becomes of hostwrites that are cut short.
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
    pub storm: Duration,
    /// Operations after which clients have had enough.
    pub operations: u64,
    /// Bytes of a device.
    pub device_bytes: u64,
    /// Bytes of its journal, if not the usual: a short one has a checkpoint every few dozen writes.
    pub journal_bytes: Option<u64>,
    /// Spans of the protocol, often much shorter than in service, so that rare paths are taken.
    pub settings: Settings,
    /// What goes wrong.
    pub faults: FaultOptions,
}

impl Options {
    /// A quiet array of `devices` for scripted scenarios.
    pub fn calm(layout: &str, devices: usize, unit_blocks: u64, stripes: u64) -> Options {
        let scheme: Scheme = layout.parse().expect("scenarios name layouts that exist");
        Options {
            seed: 1,
            layout: Layout::new(scheme, devices, unit_blocks).expect("scenarios choose layouts that fit"),
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
            lock_servers: 0,
            acquisition: Acquisition::Ordered,
            stripes,
            hosts: 0,
            clients: 0,
            think_max: Duration::ZERO,
            storm: Duration::ZERO,
            operations: 0,
            device_bytes: 16 << 20,
            journal_bytes: None,
            settings: Settings::default(),
            faults: FaultOptions::none(),
        }
    }

    /// What a seed stands for. Half of the seeds are ordered by timestamps, the others by the three kinds of locks; one in eight
    /// has its writes take effect on arrival.
    pub fn of_seed(seed: u64) -> Options {
        let options = Options::by_timestamps(seed);
        let options = match Rng::new(seed ^ 0x0de2).below(6) {
            0 => options.ordered_by(Ordering::DeviceLock),
            1 => options.ordered_by(Ordering::ServerLock),
            2 => options.ordered_by(Ordering::CallbackLock),
            _ => options,
        };
        match Rng::new(seed ^ 0xa70).below(8) {
            0 => options.with_atomicity(Atomicity::Consistent),
            _ => options,
        }
    }

    /// The same with another ordering, and with what belongs to that.
    pub fn ordered_by(self, ordering: Ordering) -> Options {
        // Dice of its own, so that the rest of a seed is the same by any ordering.
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

    /// The same with another atomicity. Where writes take effect on arrival, what a host that dies has left behind is lost together
    /// with a device, by design: so devices stay up, and are not cut off for as long as their leases run.
    pub fn with_atomicity(self, atomicity: Atomicity) -> Options {
        if atomicity == Atomicity::Implied {
            return Options { atomicity, ..self };
        }
        let faults = FaultOptions { device_crash: 0, stall_devices: false, cut: 0, ..self.faults };
        // Without redundancy there would be nothing to keep consistent.
        let scheme: Scheme = "raid5:2+1".parse().expect("it exists");
        let layout = match self.layout.redundancy_units() {
            0 => Layout::new(scheme, 3, self.layout.unit_blocks()).expect("it fits"),
            _ => self.layout,
        };
        // What may have happened in part multiplies what the checker has to try.
        Options { atomicity, layout, faults, clients: self.clients.min(2), ..self }
    }

    fn by_timestamps(seed: u64) -> Options {
        let rng = &mut Rng::new(seed);
        let schemes = [
            ("raid5:4+1", 5),
            ("raid5:4+1", 5),
            ("raid5:2+1", 3),
            ("raid5:2+1", 4),
            ("raid5:3+1", 7),
            ("raid1:2", 2),
            ("raid1:2", 3),
            ("raid1:3", 3),
            ("raid0:3", 3),
        ];
        let (scheme, devices) = schemes[rng.below(schemes.len() as u64) as usize];
        let scheme: Scheme = scheme.parse().expect("a scheme of the list");
        // Sixteen blocks are what a store writes directly, past its journal.
        let unit_blocks = [1, 1, 2, 2, 4, 4, 16][rng.below(7) as usize];
        let settings = settings(rng);
        // Two clocks apart, and floors that were reserved ahead of the faster one, stay within what devices tolerate.
        let skew_max = settings.stamp_ahead_max.as_nanos() as u64 / 6;
        Options {
            seed,
            layout: Layout::new(scheme, devices, unit_blocks).expect("a layout of the list fits"),
            ordering: Ordering::Timestamp,
            atomicity: Atomicity::Implied,
            lock_servers: 0,
            acquisition: Acquisition::Ordered,
            stripes: rng.between(1, if unit_blocks > 4 { 2 } else { 6 }),
            hosts: rng.between(1, 4) as usize,
            clients: rng.between(1, 4) as usize,
            think_max: Duration::from_micros([100, 2_000, 30_000][rng.below(3) as usize]),
            storm: Duration::from_secs(rng.between(2, 20)),
            operations: rng.between(100, 700),
            device_bytes: 16 << 20,
            journal_bytes: [None, Some(1 << 20), Some(2 << 20)][rng.below(3) as usize],
            faults: FaultOptions::draw(rng, skew_max),
            settings,
        }
    }
}

impl Options {
    /// What histories must keep to. Locks of lock servers are held until everybody sees what was written under them, whatever
    /// clocks say; so are those of devices unless they are lost, with a device's memory or a live host's lease. Where stamps
    /// decide: where clocks are apart, or devices restart (and take only stamps above what they had reserved ahead of the
    /// clock), stamps of different hosts are not in the order of time.
    pub fn promise(&self) -> Promise {
        let faults = &self.faults;
        let leases_last = faults.stall == 0 && faults.cut == 0 && faults.network.delay == 0;
        let locks_last = match self.ordering {
            Ordering::ServerLock | Ordering::CallbackLock => true,
            Ordering::DeviceLock => leases_last && faults.device_crash == 0,
            Ordering::None | Ordering::Timestamp => false,
        };
        if locks_last {
            return Promise::Strict;
        }
        let agree = faults.skew_max == 0 && faults.drift_ppm_max == 0 && faults.device_crash == 0;
        if agree { Promise::Strict } else { Promise::Related }
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
            "seed {}: {}, {} ({} lock servers, {:?}); {} on {} devices, {} stripes in units of {} blocks; \
             {} hosts with {} clients each, thinking up to {:?}; \
             {} operations within {:?}; journals of {:?} bytes",
            self.seed,
            self.ordering,
            self.atomicity,
            self.lock_servers,
            self.acquisition,
            layout.scheme(),
            layout.devices(),
            self.stripes,
            layout.unit_blocks(),
            self.hosts,
            self.clients,
            self.think_max,
            self.operations,
            self.storm,
            self.journal_bytes
        )?;
        writeln!(f, "  {settings:?}")?;
        write!(f, "  {faults:?}")
    }
}
