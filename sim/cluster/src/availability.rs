//! The availability oracle: which operations of clients must succeed, and how soon. The promise is in `docs/fault-model.md`.
//!
//! Every fault of a run is on record with its beginning and its end. An error, or an answer that took long, is excused only by a fault
//! that was active then, or had ended so short a time before that its consequences may last. What one device does that fails alone excuses
//! a pause, and no error but a time-out within that pause.

use crate::cluster::Cluster;
use crate::options::Options;
use crate::role::Role;
use braid_base::{DeviceId, MemberState, NodeId, Time};
use braid_device::Service;
use braid_machine::HostError;
use braid_wire::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What a fault keeps from working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A device does not answer, or can't be reached by any host, or by the monitor: it is gone.
    Device(DeviceId),
    /// A host died. What it had begun is in the way of others until its lease has expired.
    Host,
    /// The monitor does not answer.
    Monitor,
    /// A lock server does not answer.
    LockServer,
    /// Anything else, of which nothing is promised before it is over.
    Other,
}

/// A fault, from its beginning to its end.
#[derive(Clone, Debug)]
struct Interval {
    name: &'static str,
    cause: Cause,
    begun: Time,
    /// When the fault ends, or has ended.
    until: Time,
    /// Of a device: when it served again, with all that it missed.
    whole: Option<Time>,
    /// Another fault was active at the same time, or had consequences yet.
    coincides: bool,
}

/// How long consequences last, from the settings of a run. `docs/fault-model.md` derives them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// A device's lease.
    lease: Duration,
    /// From a device's death until everybody goes on without it.
    death_pause: Duration,
    /// From when a device can't be reached any more until then.
    cut_pause: Duration,
    /// From when a device is back that was gone until it answers what was asked meanwhile.
    return_pause: Duration,
    /// After the devices that are in have changed.
    epoch_pause: Duration,
    /// From a host's death until nothing of it is in anybody's way.
    host_pause: Duration,
    /// How long nobody notices that the monitor is gone.
    monitor_grace: Duration,
    /// From a lock server's return until it grants again.
    lock_server_pause: Duration,
    /// After faults that coincided, or of which nothing else is promised.
    recovery: Duration,
    /// From the end of a device's last fault until it has caught up, at most.
    return_max: Duration,
    /// From when a host was told last that there is no room for it until it asks again.
    crowded_pause: Duration,
    /// The longest that an operation takes with which nothing interferes but other operations.
    pub answer: Duration,
}

/// Which answers a fault may have a part in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excuse {
    /// Those that are late, and time-outs.
    Pause,
    /// Those that say at once that something is not there.
    Refusal,
}

/// All faults of a run.
#[derive(Debug)]
pub(crate) struct Availability {
    terms: Terms,
    redundant: bool,
    needs_lock_server: bool,
    intervals: Vec<Interval>,
    /// Those of devices that are not whole again.
    open: Vec<usize>,
    /// When the devices that are in changed.
    epochs: Vec<Time>,
    members: Vec<(DeviceId, MemberState)>,
    /// When each host was last told that there is no room for it.
    turned_away: BTreeMap<NodeId, Time>,
}

/// How an answer was judged that is no failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Nothing would have excused anything else.
    InQuiet {
        /// How long it took, from when all was quiet.
        took: Duration,
    },
    /// A fault may have had a part in it.
    Excused,
    /// It was answered in spite of a fault of this name, the only one, so long after that had begun.
    InPause {
        /// What happened.
        name: &'static str,
        /// In thousandths of a lease.
        leases: u64,
    },
}

impl Terms {
    pub fn new(options: &Options) -> Terms {
        let settings = &options.settings;
        let (lease, heartbeat, resend) = (settings.device_lease, settings.heartbeat, settings.resend_max);
        let second = Duration::from_secs(1);
        let longest = settings.host_lease.max(lease);
        // A revocation that overtakes the grant of its lock is dropped, and sent again.
        let again = if options.faults.network.in_order { Duration::ZERO } else { settings.resend_min };
        // Over several devices, device locks deadlock until they time out; how often an operation then begins again has no bound.
        let takes_turns = options.ordering != Ordering::DeviceLock;
        let answer = second + 2 * settings.lock_timeout + again;
        Terms {
            lease,
            // The monitor counts a tenth longer.
            death_pause: lease + lease / 10,
            // Hosts name a device as silent after two heartbeats, to the monitor after a third; it had renewed its lease until then.
            cut_pause: lease + lease / 10 + 4 * heartbeat,
            return_pause: 2 * heartbeat + resend,
            epoch_pause: 2 * heartbeat,
            host_pause: settings.host_lease + 2 * heartbeat,
            monitor_grace: lease.saturating_sub(2 * heartbeat),
            lock_server_pause: settings.host_lease + 2 * heartbeat,
            recovery: 2 * longest + 2 * resend + second,
            crowded_pause: resend,
            return_max: 6 * longest + 4 * resend + 4 * settings.readmission_max,
            answer: if takes_turns { answer } else { settings.request_timeout },
        }
    }
}

impl Availability {
    pub fn new(options: &Options) -> Availability {
        Availability {
            terms: Terms::new(options),
            // All are held to what the volume promises that can do without the least.
            redundant: options.layouts().all(|layout| layout.redundancy_units() > 0),
            needs_lock_server: options.lock_servers > 0,
            intervals: Vec::new(),
            open: Vec::new(),
            epochs: Vec::new(),
            members: Vec::new(),
            turned_away: BTreeMap::new(),
        }
    }

    /// A fault begins, which lasts so long.
    pub fn begin(&mut self, now: Time, name: &'static str, cause: Cause, span: Duration) {
        let is_same = |other: &Interval| matches!(cause, Cause::Device(_)) && other.cause == cause;
        let lasts = |other: &Interval| {
            let last = |excuse| self.excuses_until(other, excuse, now);
            self.end_of(other).max(last(Excuse::Pause).max(last(Excuse::Refusal)).unwrap_or(Time(0))) >= now
        };
        let met: Vec<usize> = (0..self.intervals.len())
            .filter(|other| !is_same(&self.intervals[*other]) && lasts(&self.intervals[*other]))
            .collect();
        met.iter().for_each(|other| self.intervals[*other].coincides = true);
        let coincides = !met.is_empty();
        if matches!(cause, Cause::Device(_)) {
            self.open.push(self.intervals.len());
        }
        self.intervals.push(Interval { name, cause, begun: now, until: now.after(span), whole: None, coincides });
    }

    /// All faults of this name end now.
    pub fn end(&mut self, now: Time, name: &'static str) {
        self.intervals
            .iter_mut()
            .filter(|fault| fault.name == name)
            .for_each(|fault| fault.until = fault.until.min(now));
    }

    /// Everything heals, but for what ends on its own.
    pub fn end_all_but(&mut self, now: Time, lasting: &[&str]) {
        let ending = self.intervals.iter_mut().filter(|fault| !lasting.contains(&fault.name));
        ending.for_each(|fault| fault.until = fault.until.min(now));
    }

    /// Sees which devices are in, and which are whole.
    pub fn observe(&mut self, cluster: &Cluster) {
        let now = cluster.world.now();
        self.turned_away.extend(cluster.turned_away().into_iter().map(|host| (host, now)));
        if let Some(decided) = cluster.membership().filter(|decided| !decided.members.is_empty()) {
            let is_same = decided.members.len() == self.members.len()
                && decided
                    .members
                    .iter()
                    .zip(&self.members)
                    .all(|(now, before)| (now.device, now.member_state) == *before);
            if !is_same {
                self.members = decided.members.iter().map(|member| (member.device, member.member_state)).collect();
                self.epochs.push(now);
            }
        }
        let (members, terms, intervals) = (&self.members, &self.terms, &mut self.intervals);
        self.open.retain(|index| {
            let fault = &mut intervals[*index];
            let Cause::Device(device) = fault.cause else { unreachable!("only these are watched") };
            if now < fault.until {
                return true;
            }
            let is_in = members.contains(&(device, MemberState::In));
            let is_late = now > fault.until.after(terms.return_max);
            if is_late || (is_in && serves(cluster, device)) {
                fault.whole = Some(now);
            }
            fault.whole.is_none()
        });
    }

    /// True if no fault is active, and none has any consequences.
    pub fn is_quiet(&self, now: Time) -> bool {
        self.open.is_empty() && self.quiet_since(Excuse::Pause, now).max(self.quiet_since(Excuse::Refusal, now)) <= now
    }

    /// Judges an operation by which host was asked and when, and when and how it was answered.
    pub fn judge(
        &self,
        host: NodeId,
        asked: Time,
        answered: Time,
        error: Option<&HostError>,
    ) -> Result<Judged, String> {
        let excuse = match error {
            None
            | Some(HostError::TimedOut { .. } | HostError::Contended { .. } | HostError::LockServerSilent { .. }) => {
                Excuse::Pause
            }
            Some(HostError::Unavailable { .. } | HostError::Fenced) => Excuse::Refusal,
            // The faults of the whole run excuse them, or nothing does.
            Some(_) => return Ok(Judged::Excused),
        };
        let turned_away = self.turned_away.get(&host).filter(|_| excuse == Excuse::Pause);
        let crowded = turned_away.map_or(Time(0), |told| told.after(self.terms.crowded_pause));
        let quiet = self.quiet_since(excuse, answered).max(crowded.min(answered));
        let took = answered.since(asked.max(quiet));
        if took > self.terms.answer || (error.is_some() && asked >= quiet) {
            let faults: Vec<String> = self.intervals.iter().map(ToString::to_string).collect();
            let outcome = error.map_or("done".to_string(), ToString::to_string);
            return Err(format!(
                "asked {}, answered {} ({outcome}), and nothing excuses that since {}; it may take {:?}; {:?}\nepochs {:?}\n{}",
                seconds(asked),
                seconds(answered),
                seconds(quiet),
                self.terms.answer,
                self.terms,
                self.epochs,
                faults.join("\n")
            ));
        }
        let of_one = |fault: &&Interval| {
            !fault.coincides && fault.cause != Cause::Other && asked < fault.until && fault.begun <= answered
        };
        Ok(match self.intervals.iter().rfind(of_one) {
            _ if asked >= quiet => Judged::InQuiet { took },
            Some(fault) if error.is_none() => {
                let leases = answered.since(asked.max(fault.begun)).as_nanos() * 1_000 / self.terms.lease.as_nanos();
                Judged::InPause { name: fault.name, leases: leases as u64 }
            }
            _ => Judged::Excused,
        })
    }

    /// The moment after which no fault that has begun by `now` excuses such an answer.
    fn quiet_since(&self, excuse: Excuse, now: Time) -> Time {
        let begun = self.intervals.iter().filter(|fault| fault.begun <= now);
        let faults = begun.filter_map(|fault| self.excuses_until(fault, excuse, now)).max().unwrap_or(Time(0));
        let epoch = self.epochs.iter().rfind(|epoch| **epoch <= now).filter(|_| excuse == Excuse::Pause);
        epoch.map_or(Time(0), |epoch| epoch.after(self.terms.epoch_pause)).max(faults)
    }

    /// When a fault has ended; of a device, when it is whole again.
    fn end_of(&self, fault: &Interval) -> Time {
        match fault.cause {
            Cause::Device(_) => fault.whole.map_or(Time(u64::MAX), |whole| whole.max(fault.until)),
            _ => fault.until,
        }
    }

    fn excuses_until(&self, fault: &Interval, excuse: Excuse, now: Time) -> Option<Time> {
        let Terms {
            death_pause, cut_pause, return_pause, host_pause, monitor_grace, lock_server_pause, recovery, ..
        } = self.terms;
        let is_pause = excuse == Excuse::Pause;
        let end = self.end_of(fault);
        match fault.cause {
            _ if fault.coincides => Some(end.after(recovery)),
            Cause::Device(_) if !self.redundant => Some(end.after(recovery)),
            Cause::Device(_) => {
                let is_cut = fault.name.starts_with("cut");
                let pause = if is_cut { cut_pause } else { death_pause };
                // One that is back sooner has to get a lease first, and is then asked again.
                let back = fault.until.after(return_pause);
                is_pause.then_some(if now < fault.until { fault.begun.after(pause).min(back) } else { back })
            }
            Cause::Host => is_pause.then_some(fault.begun.after(host_pause)),
            Cause::Monitor if fault.until.since(fault.begun) < monitor_grace => None,
            Cause::Monitor => Some(end.after(recovery)),
            Cause::LockServer if !self.needs_lock_server => None,
            Cause::LockServer => is_pause.then_some(end.after(lock_server_pause)),
            Cause::Other => Some(end.after(recovery)),
        }
    }
}

/// True if a device does what it is asked.
fn serves(cluster: &Cluster, device: DeviceId) -> bool {
    let node = NodeId::Device(device);
    let Some(Role::Device(machine)) = cluster.world.machine(node) else { return false };
    let now = cluster.world.local(node).expect("it is a node").time;
    !cluster.world.is_stalled(node) && *machine.service() == Service::Serving && machine.has_lease(now)
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { name, cause, begun, until, whole, coincides } = self;
        write!(f, "{name} ({cause:?}) from {} to {}", seconds(*begun), seconds(*until))?;
        if let Some(whole) = whole {
            write!(f, ", whole {}", seconds(*whole))?;
        }
        if *coincides { write!(f, ", with others") } else { Ok(()) }
    }
}

fn seconds(time: Time) -> String {
    format!("{:.3}s", time.0 as f64 / 1e9)
}
