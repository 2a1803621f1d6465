//! The options of runs in which the ordering of the volume changes, the volume moves, or volumes are created and deleted, while clients use
//! them, and administrators die or are suspended at every step; and of runs with silent hosts.

use crate::options::{Choices, Options};
use braid_base::limits::Settings;
use braid_ordering::{Atomicity, Ordering};
use braid_world::FaultKind;
use std::time::Duration;

/// Faults that take no device out for long.
const WITH_ALL_DEVICES: [FaultKind; 9] = [
    FaultKind::HostCrash,
    FaultKind::ServerCrash,
    FaultKind::ClockStep,
    FaultKind::ClockRate,
    FaultKind::SlowDisk,
    FaultKind::SlowNode,
    FaultKind::Chore,
    FaultKind::Corruption,
    FaultKind::Disconnect,
];

/// How often hosts are silent, and what happens to those that fence them.
#[derive(Clone, Debug)]
pub struct SilenceOptions {
    /// The mean time between two silences.
    pub every: Duration,
    /// A host may be silent for so many leases.
    pub leases: u32,
    /// Hosts that have ended are fenced after this time, though none was silent.
    pub sweep: Duration,
    /// At so many of a thousand steps, a fencer dies.
    pub deaths: u64,
    /// At so many of a thousand steps, a fencer is suspended.
    pub pauses: u64,
    /// So many of a thousand renewals, and of the questions of fencers, are lost, late or unanswered.
    pub store_faults: u64,
    /// The store can't be written for a while, one of so many times instead of a silent host; 0: never.
    pub outages: u64,
}

/// How often a host changes the volume, and what happens to those that do.
#[derive(Clone, Debug)]
pub struct ChangeOptions {
    /// The mean time between two changes.
    pub every: Duration,
    /// The ordering changes.
    pub orderings: bool,
    /// The volume moves.
    pub moves: bool,
    /// If set, volumes are created and deleted, with this mean time between two.
    pub lives: Option<Duration>,
    /// If set, devices are added and removed, with this mean time between two.
    pub comings: Option<Duration>,
    /// The volume grows, too.
    pub grows: bool,
    /// The most bytes of it that a host copies in a second; 0: as many as it can.
    pub copy_rate: u64,
    /// At so many of a thousand steps, an administrator dies.
    pub deaths: u64,
    /// At so many of a thousand steps, an administrator is suspended, up to a few leases.
    pub pauses: u64,
    /// So many of a thousand answers of the store are lost; as many commands are lost, and as many are late.
    pub store_faults: u64,
}

impl Options {
    /// In some seeds, the ordering of the volume changes during the run; if the choices name it, in all seeds in which it may. Those in
    /// which the volume moves are chosen before (`moving`).
    pub(crate) fn with_changes(self, choices: &Choices) -> Options {
        let kind = FaultKind::Reorder;
        // Changes need all devices, and one volume; clients that reconnect would abandon requests that wait.
        let is_plain = self.is_plain() && self.ordering != Ordering::None;
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("changes");
        let orderings = choices.kinds().contains(&kind) && is_plain && (rng.below(10) == 0 || named);
        let moves = self.moves;
        let lives = self.draws_lives(choices, is_plain);
        let comings = self.draws_comings(choices, is_plain);
        if !orderings && !moves && lives.is_none() && comings.is_none() {
            return self;
        }
        let changes = ChangeOptions {
            every: Duration::from_millis([50, 300, 1_000][rng.below(3) as usize]),
            orderings,
            moves,
            lives,
            comings,
            deaths: [0, 3, 15][rng.below(3) as usize],
            pauses: [0, 3, 30][rng.below(3) as usize],
            store_faults: [0, 5, 30][rng.below(3) as usize],
            copy_rate: [0, 1 << 16, 1 << 18][rng.below(3) as usize],
            grows: rng.below(4) == 0,
        };
        let mut faults = self.faults;
        if lives.is_some() {
            // Such damage is placed for one volume only.
            faults.weights.remove(&FaultKind::Misdirected);
        }
        if rng.chance(2, 3) {
            // While a device is out, no change begins.
            faults.weights.retain(|kind, _| WITH_ALL_DEVICES.contains(kind));
        }
        let (hosts, swarm) = (self.hosts.max(2), self.swarm.max(Duration::from_secs(10)));
        let more_hosts = hosts - self.hosts;
        let by_lock_servers = orderings || self.ordering.needs_lock_server();
        let options = Options {
            changes: Some(changes),
            reconnects: None,
            hosts,
            lock_servers: self.lock_servers.max(by_lock_servers.into()),
            swarm,
            // The operations are spread over the whole run.
            chunks: None,
            think_max: 2 * swarm * (hosts * self.clients) as u32 / self.operations as u32,
            faults,
            ..self
        };
        let settings = Settings {
            request_timeout: options.settings.request_timeout.max(8 * options.settings.lock_timeout),
            hosts_max: options.settings.hosts_max + more_hosts,
            ..options.settings
        };
        Options { settings, ..options }
    }

    /// True if the run has one volume whose writes are atomic, and no faults that the control plane of the simulation does not cover.
    fn is_plain(&self) -> bool {
        self.atomicity == Atomicity::Implied
            && self.attribute_volume.is_none()
            && self.more_volumes.is_empty()
            && self.dying.is_empty()
            && self.damage_degraded.is_none()
            && self.record_damage.is_none()
            && self.files.is_none()
            && !self.faults.has(FaultKind::Calm)
    }

    /// In some seeds, hosts are silent for longer than they may be, and fencers look for them; if the choices name this, in all seeds in which
    /// it can be.
    pub(crate) fn with_silences(self, choices: &Choices) -> Options {
        let kind = FaultKind::SilentHosts;
        // The leases are those of hosts that use one volume; clients that reconnect would abandon requests that wait.
        let is_plain = self.is_plain();
        let is_named = |kind| choices.only.contains(&kind) || choices.also.contains(&kind);
        let outage = FaultKind::StoreOutage;
        let named = is_named(kind) || is_named(outage);
        let rng = &mut self.source("silent-hosts");
        let may = choices.kinds().contains(&kind) || is_named(outage);
        if !may || !is_plain || !(rng.below(10) == 0 || named) {
            return self;
        }
        let outages = if is_named(outage) && choices.kinds().contains(&outage) { 4 } else { 0 };
        let silences = SilenceOptions {
            every: Duration::from_millis([300, 1_000, 3_000][rng.below(3) as usize]),
            leases: rng.between(1, 2) as u32,
            sweep: Duration::from_millis([200, 2_000][rng.below(2) as usize]),
            deaths: [0, 5, 30][rng.below(3) as usize],
            pauses: [0, 5, 30][rng.below(3) as usize],
            store_faults: [0, 10, 50][rng.below(3) as usize],
            outages,
        };
        let hosts = self.hosts.max(3);
        let more_hosts = hosts - self.hosts;
        let settings = Settings { hosts_max: self.settings.hosts_max + more_hosts, ..self.settings };
        let swarm = self.swarm.max(Duration::from_secs(10));
        Options {
            silences: Some(silences),
            reconnects: None,
            hosts,
            swarm,
            // The operations are spread over the whole run.
            think_max: 2 * swarm * (hosts * self.clients) as u32 / self.operations as u32,
            settings,
            ..self
        }
    }

    /// In some seeds, volumes are created and deleted; if the choices name that, in all seeds in which it may be. All of them have
    /// redundancy: the others prevent their devices from being taken out.
    fn draws_lives(&self, choices: &Choices, is_plain: bool) -> Option<Duration> {
        let kind = FaultKind::CreateDelete;
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("create-delete");
        let may = choices.kinds().contains(&kind) && is_plain && self.layout.redundancy_units() > 0;
        let is_chosen = may && (rng.below(12) == 0 || named);
        is_chosen.then(|| Duration::from_millis([50, 300, 1_000][rng.below(3) as usize]))
    }

    /// In some seeds, devices are added and removed; if the choices name that, in all seeds in which it may be.
    fn draws_comings(&self, choices: &Choices, is_plain: bool) -> Option<Duration> {
        let kind = FaultKind::AddRemove;
        let named = choices.only.contains(&kind) || choices.also.contains(&kind);
        let rng = &mut self.source("add-remove");
        let is_chosen = choices.kinds().contains(&kind) && is_plain && (rng.below(12) == 0 || named);
        is_chosen.then(|| Duration::from_millis([200, 500, 1_000][rng.below(3) as usize]))
    }
}
