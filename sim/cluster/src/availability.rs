//! The availability oracle decides which operations of clients must succeed, and how soon. The promise is in `docs/fault-model.md`.
//!
//! Every fault of a run is recorded with its beginning and its end. An error or a slow answer is excused only by a fault that was
//! active then, or that had ended so recently that its consequences may last. A single failed device excuses a pause, and no error
//! except a time-out within that pause.

use crate::cluster::Cluster;
use crate::options::Options;
use crate::prelude::*;
use crate::role::can_serve;
use braid_leadership::times::longer;

/// After the end of a leader, another one leads within this time.
const NEXT_LEADER: Duration = Duration::from_millis(2_200);
/// For so long a leader grants leases after its last proof.
const DOUBT: Duration = Duration::from_secs(1);

/// What a fault makes unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A device does not answer, or can't be reached by any host or by the monitor.
    Device(DeviceId),
    /// The same, and a host died with it.
    Node(DeviceId),
    /// A host died. Its transactions block others until its lease has expired.
    Host,
    Monitor,
    /// One of several candidates, or their registry, fails. The next leader comes, or the pact holds, before a lease is over.
    Candidate,
    LockServer,
    /// Anything else; nothing is promised before the fault is over.
    Other,
}

impl Cause {
    fn device(self) -> Option<DeviceId> {
        match self {
            Cause::Device(device) | Cause::Node(device) => Some(device),
            _ => None,
        }
    }
}

/// A fault, from its beginning to its end.
#[derive(Clone, Debug)]
struct Interval {
    name: &'static str,
    cause: Cause,
    begun: Time,
    /// When the fault ends, or has ended.
    until: Time,
    /// For a device: when it served again, completely resynchronised.
    whole: Option<Time>,
    /// Another fault was active at the same time, or still had consequences.
    coincides: bool,
}

/// How long consequences last, derived from the settings of a run as in `docs/fault-model.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    lease: Duration,
    /// From the death of a device until all operations continue without it.
    death_pause: Duration,
    /// From the moment a device can't be reached any more until all operations continue without it.
    cut_pause: Duration,
    /// From the return of a device until it answers the requests that waited for it.
    return_pause: Duration,
    /// After a change of the set of devices that are in.
    epoch_pause: Duration,
    /// From the death of a host until none of its transactions and locks blocks others.
    host_pause: Duration,
    /// How long the absence of the monitor has no effect.
    monitor_grace: Duration,

    /// From the return of a lock server until it grants locks again.
    lock_server_pause: Duration,
    /// After faults that coincided, or for which nothing else is promised.
    recovery: Duration,
    /// From the end of a device's last fault until it is resynchronised, at most.
    return_max: Duration,
    /// From the last time a host was told that there is no room for it until it asks again.
    crowded_pause: Duration,
    /// The longest duration of an operation that only other operations delay.
    pub answer: Duration,
}

/// The kinds of answers that a fault may have caused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excuse {
    /// Late answers, and time-outs.
    Pause,
    /// Immediate errors, such as that a device is unavailable.
    Refusal,
}

/// All faults of a run.
#[derive(Debug)]
pub(crate) struct Availability {
    terms: Terms,
    /// How many devices may be missing for the volume with the least redundancy.
    redundancy: usize,
    needs_lock_server: bool,
    intervals: Vec<Interval>,
    /// Faults of devices that are not resynchronised yet.
    open: Vec<usize>,
    /// When the set of devices that are in changed.
    epochs: Vec<Time>,
    members: Vec<(DeviceId, MemberState)>,
    /// When each host was last told that there is no room for it.
    turned_away: BTreeMap<NodeId, Time>,
}

/// The judgement of an answer that is not a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// No fault would have excused another answer.
    InQuiet {
        /// The duration, counted from the moment when no fault had consequences any more.
        took: Duration,
    },
    /// A fault may have affected it.
    Excused,
    /// It was answered in spite of a fault, the only one.
    InPause {
        /// The name of the fault.
        name: &'static str,
        /// The time from the beginning of the fault to the answer, in thousandths of a lease.
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
        // Where operations meet deadlocks, the number of their retries is not bounded.
        let takes_turns = options.deadlocks() == Duration::ZERO;
        let answer = second + 2 * settings.lock_timeout + again;
        Terms {
            lease,
            // The monitor waits a tenth longer than the lease.
            death_pause: lease + lease / 10,
            // Hosts consider a device silent after two heartbeats, and report it to the monitor after a third; the device may have
            // renewed its lease until then.
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
            // All volumes are judged by the one with the least redundancy.
            redundancy: options.layouts().iter().map(Layout::redundancy_units).min().unwrap_or(0),
            needs_lock_server: options.lock_servers > 0,
            intervals: Vec::new(),
            open: Vec::new(),
            epochs: Vec::new(),
            members: Vec::new(),
            turned_away: BTreeMap::new(),
        }
    }

    /// Records that a fault begins and lasts for `span`.
    pub fn begin(&mut self, now: Time, name: &'static str, cause: Cause, span: Duration) {
        self.begin_together(now, name, &[cause], span);
    }

    /// Records that one fault begins that has all these causes.
    pub fn begin_together(&mut self, now: Time, name: &'static str, causes: &[Cause], span: Duration) {
        let devices: Vec<DeviceId> = causes.iter().filter_map(|cause| cause.device()).collect();
        let is_same = |other: &Interval| other.cause.device().is_some_and(|device| devices.contains(&device));
        let lasts = |other: &Interval| {
            let last = |excuse| self.excuses_until(other, excuse, now);
            self.end_of(other).max(last(Excuse::Pause).max(last(Excuse::Refusal)).unwrap_or(Time(0))) >= now
        };
        let met: Vec<usize> = (0..self.intervals.len())
            .filter(|other| !is_same(&self.intervals[*other]) && lasts(&self.intervals[*other]))
            .collect();
        met.iter().for_each(|other| self.intervals[*other].coincides = true);
        // Devices that have died for good may have taken all redundancy.
        let missing = self.members.iter().filter(|(_, member_state)| *member_state != MemberState::In).count();
        let are_too_many = !devices.is_empty() && missing + devices.len() > self.redundancy;
        for cause in causes.iter().copied() {
            if cause.device().is_some() {
                self.open.push(self.intervals.len());
            }
            let coincides = !met.is_empty() || are_too_many;
            self.intervals.push(Interval { name, cause, begun: now, until: now.after(span), whole: None, coincides });
        }
    }

    /// Records that all faults with this name end now.
    pub fn end(&mut self, now: Time, name: &'static str) {
        let ending = self.intervals.iter_mut().filter(|fault| fault.name == name);
        ending.for_each(|fault| fault.until = fault.until.min(now));
    }

    /// Records that everything heals, except faults that end on their own.
    pub fn end_all_but(&mut self, now: Time, lasting: &[&str]) {
        let ending = self.intervals.iter_mut().filter(|fault| !lasting.contains(&fault.name));
        ending.for_each(|fault| fault.until = fault.until.min(now));
    }

    /// Observes which devices are in, and which are resynchronised.
    pub fn observe(&mut self, cluster: &Cluster) {
        let now = cluster.world.now();
        self.turned_away.extend(cluster.sniffer.borrow_mut().take_turned_away().into_iter().map(|host| (host, now)));
        if let Some(decided) = cluster.membership().filter(|decided| !decided.members.is_empty()) {
            let members = || decided.members.iter().map(|member| (member.device, member.member_state));
            if !members().eq(self.members.iter().copied()) {
                self.members = members().collect();
                self.epochs.push(now);
            }
        }
        let (members, terms, intervals) = (&self.members, &self.terms, &mut self.intervals);
        self.open.retain(|index| {
            let fault = &mut intervals[*index];
            let device = fault.cause.device().expect("only these are watched");
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

    /// True if no fault is active, and none has consequences.
    pub fn is_quiet(&self, now: Time) -> bool {
        self.open.is_empty() && self.nothing_since(now) <= now
    }

    /// The moment from which on no fault that has begun by `now` excuses anything.
    pub fn nothing_since(&self, now: Time) -> Time {
        self.quiet_since(Excuse::Pause, now).max(self.quiet_since(Excuse::Refusal, now))
    }

    /// Judges an operation by its host, its start, its end and its outcome.
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
            // The faults of the whole run excuse it, or nothing does.
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

    /// The moment from which on no fault that has begun by `now` excuses such an answer.
    fn quiet_since(&self, excuse: Excuse, now: Time) -> Time {
        let begun = self.intervals.iter().filter(|fault| fault.begun <= now);
        let faults = begun.filter_map(|fault| self.excuses_until(fault, excuse, now)).max().unwrap_or(Time(0));
        let epoch = self.epochs.iter().rfind(|epoch| **epoch <= now).filter(|_| excuse == Excuse::Pause);
        epoch.map_or(Time(0), |epoch| epoch.after(self.terms.epoch_pause)).max(faults)
    }

    /// When a fault has ended; for a device, when it is resynchronised.
    fn end_of(&self, fault: &Interval) -> Time {
        match fault.cause {
            Cause::Device(_) | Cause::Node(_) => fault.whole.map_or(Time(u64::MAX), |whole| whole.max(fault.until)),
            // Until a leader has come and takes no device for leased any more, another fault may be felt for longer.
            Cause::Candidate => fault.until.after(NEXT_LEADER + longer(DOUBT + self.terms.lease)),
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
            Cause::Device(_) | Cause::Node(_) if self.redundancy == 0 => Some(end.after(recovery)),
            Cause::Device(_) | Cause::Node(_) => {
                let is_cut = fault.name.starts_with("cut");
                let pause = if is_cut { cut_pause } else { death_pause };
                // A device that returns sooner must get a lease first; then it gets the requests again.
                let back = fault.until.after(return_pause);
                let device = if now < fault.until { fault.begun.after(pause).min(back) } else { back };
                let has_host = matches!(fault.cause, Cause::Node(_));
                is_pause.then_some(if has_host { device.max(fault.begun.after(host_pause)) } else { device })
            }
            Cause::Candidate => None,
            Cause::Host => is_pause.then_some(fault.begun.after(host_pause)),
            Cause::Monitor if fault.until.since(fault.begun) < monitor_grace => None,
            // Without leases, requests wait; no host is told that a device is unavailable before the monitor has heard the devices.
            Cause::Monitor => is_pause.then_some(end.after(recovery)),
            Cause::LockServer if !self.needs_lock_server => None,
            Cause::LockServer => is_pause.then_some(end.after(lock_server_pause)),
            Cause::Other => Some(end.after(recovery)),
        }
    }
}

/// True if a device executes requests.
fn serves(cluster: &Cluster, device: DeviceId) -> bool {
    let node = NodeId::Device(device);
    let now = cluster.world.local(node).expect("the node is in the world").time;
    let has_lease = cluster.device(device).is_some_and(|machine| machine.has_lease(now));
    !cluster.world.is_stalled(node) && can_serve(&cluster.world, device) && has_lease
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an error soon after such a fault is excused, and how long an operation may take then.
    fn excused(layout: &str, devices: usize, causes: &[Cause]) -> (bool, Duration) {
        let options = Options::calm(layout, devices, 1, 2);
        let mut availability = Availability::new(&options);
        let (now, host) = (Time(0).after(Duration::from_secs(9)), NodeId::Host(Generation(1)));
        availability.begin_together(now, "crash", causes, Duration::from_secs(60));
        let judge = |after, error: Option<&HostError>| availability.judge(host, now, now.after(after), error);
        let error = HostError::Unavailable { devices: vec![DeviceId(0)] };
        let is_excused = judge(Duration::from_millis(100), Some(&error)).is_ok();
        let longest = (0..300).map(|tenths| Duration::from_millis(100 * tenths));
        (is_excused, longest.take_while(|after| judge(*after, None).is_ok()).last().expect("the first is fine"))
    }

    #[test]
    fn a_host_and_a_device_that_die_together_excuse_a_pause_and_devices_beyond_the_redundancy_an_error() {
        let node = |device| Cause::Node(DeviceId(device));
        let alone = |cause| excused("raid5:2+1", 3, &[cause]);
        let (host, device, both) = (alone(Cause::Host), alone(Cause::Device(DeviceId(0))), alone(node(0)));
        assert_eq!([host.0, device.0, both.0], [false; 3]);
        assert_eq!(both.1, host.1.max(device.1));
        assert!(excused("raid5:2+1", 3, &[node(0), node(1)]).0 && excused("raid0:3", 3, &[node(0)]).0);
        assert_eq!(excused("raid1:3", 3, &[node(0), node(1)]), both);
    }
}
