//! Hosts that are silent for longer than their leases: they are suspended, or their renewals are lost, late or unanswered. Fencers end their
//! leases and have them fenced (`braid_host_leases::Fencer`). A fencer belongs to a host. It dies or is suspended at every step, also within
//! a transition of the leases, and another one continues.

use super::administrators::RETURN_MAX;
use super::leases::Report;
use super::options::SilenceOptions;
use super::{ControlPlane, Event, Purpose};
use crate::cluster::{Cluster, Failed, HostSlot};
use crate::role::Role;
use braid_base::{Generation, NodeId, Rng, Time};
use braid_host_leases::{Answer, Fence, Fencer, LeaseTable, LeaseTime, Question, SweepLimits, Write};
use braid_machine::{ArrayRequest, HostOutcome};
use std::collections::BTreeMap;
use std::time::Duration;

/// A question whose answer is missing for so long counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(500);
/// The longest silence, which ends before the array must be at rest.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// The longest time by which a heartbeat or a question is late.
const LATE_MAX: u64 = 4_000;

/// How much longer than the store can't be written a silence may be that is fenced nevertheless: an outage is noticed at the third heartbeat
/// without any renewal, and the check before it counts.
const OUTAGE_NOTICED: u32 = 4;

/// An outage of the store: it can be read, and not be written.
#[derive(Clone, Copy, Debug)]
struct Outage {
    from: Time,
    until: Time,
    /// Renewals are written in place, which may succeed where no file can be made.
    renewals: bool,
    /// All other writes.
    others: bool,
}

/// The fencers of a run, and what makes hosts silent.
pub(super) struct Fencing {
    options: SilenceOptions,
    /// A source of its own, so that runs without silent hosts are unchanged.
    rng: Rng,
    /// False when everything has healed.
    has_faults: bool,
    fencers: BTreeMap<Generation, Process>,
    /// Counts questions, so that an answer finds the one that it belongs to.
    last_question: u64,
    /// Hosts whose renewals are lost until then.
    mute: BTreeMap<Generation, Time>,
    /// The outages of the store, oldest first; one at a time.
    outages: Vec<Outage>,
}

struct Process {
    fencer: Fencer,
    asked: Option<u64>,
}

/// What happens to a renewal.
pub(super) enum RenewalFate {
    Made,
    /// The host reads its lease, and can't write.
    Unwritable,
    /// It is lost, and the host has no answer.
    Lost,
    /// The same, but the host has looked at its lease, and writes the heartbeat after this time.
    Late {
        by: Duration,
    },
}

impl Fencing {
    pub fn new(options: SilenceOptions, rng: Rng) -> Fencing {
        Fencing {
            options,
            rng,
            has_faults: true,
            fencers: BTreeMap::new(),
            last_question: 0,
            mute: BTreeMap::new(),
            outages: Vec::new(),
        }
    }

    fn outage(&self, now: Time) -> Option<&Outage> {
        self.outages.last().filter(|outage| now < outage.until)
    }

    /// For how long after `since` no host could renew its lease.
    fn without_renewals(&self, since: Time, now: Time) -> Duration {
        let lost = self.outages.iter().filter(|outage| outage.renewals);
        lost.map(|outage| outage.until.min(now).since(outage.from.max(since))).sum()
    }

    fn way(&mut self) -> Duration {
        Duration::from_micros(self.rng.below(5_000) + 1)
    }

    /// True in so many of a thousand cases, while there are faults.
    fn draws(&mut self, of_thousand: u64) -> bool {
        self.has_faults && self.rng.below(1000) < of_thousand
    }

    fn late(&mut self) -> Duration {
        Duration::from_millis(self.rng.below(LATE_MAX) + 1)
    }

    pub fn heal(&mut self, now: Time) {
        self.has_faults = false;
        self.mute.clear();
        self.end_outage(now);
    }

    fn end_outage(&mut self, now: Time) {
        if let Some(outage) = self.outages.last_mut() {
            outage.until = outage.until.min(now);
        }
    }

    /// The store can't be written for a while, or not all of it: the file system is read-only, or takes no new file, or just not what the
    /// hosts write.
    fn begin_outage(&mut self, now: Time, span: Duration) -> &'static str {
        let (renewals, others, name) = match self.rng.below(3) {
            0 => (true, true, "store read-only"),
            1 => (false, true, "store without room"),
            _ => (true, false, "renewals without room"),
        };
        self.outages.push(Outage { from: now, until: now.after(span), renewals, others });
        name
    }
}

impl ControlPlane {
    /// True if a host does not hear which generation it was given.
    pub(super) fn draws_lost_generation(&mut self) -> bool {
        let lost = self.fencing.as_mut().is_some_and(|fencing| fencing.draws(2 * fencing.options.store_faults));
        if lost {
            self.count("generation without an answer");
        }
        lost
    }

    /// True if the store takes no writes but renewals.
    pub(super) fn is_unwritable(&self, now: Time) -> bool {
        let outage = self.fencing.as_ref().and_then(|fencing| fencing.outage(now));
        outage.is_some_and(|outage| outage.others)
    }

    pub(super) fn takes_no_renewals(&self, now: Time) -> bool {
        let outage = self.fencing.as_ref().and_then(|fencing| fencing.outage(now));
        outage.is_some_and(|outage| outage.renewals)
    }

    pub(super) fn renewal_fate(&mut self, now: Time, host: Generation) -> RenewalFate {
        if self.takes_no_renewals(now) {
            return RenewalFate::Unwritable;
        }
        let Some(fencing) = &mut self.fencing else { return RenewalFate::Made };
        if fencing.mute.get(&host).is_some_and(|until| now < *until) {
            return RenewalFate::Lost;
        }
        if !fencing.draws(fencing.options.store_faults) {
            return RenewalFate::Made;
        }
        if fencing.rng.chance(1, 3) {
            self.count("renewal lost");
            return RenewalFate::Lost;
        }
        let by = fencing.late();
        self.count("renewal late");
        RenewalFate::Late { by }
    }
}

impl Cluster {
    /// How long a host may be silent before it is fenced.
    pub(super) fn silence_allowed(&self) -> Duration {
        let leases = self.options.activity::<SilenceOptions>().map_or(15, |silences| silences.leases);
        self.control_lease() * leases
    }

    fn fencer_heartbeat(&self) -> Duration {
        self.control_lease() / 8
    }

    /// Begins a fencer if there is none that is at work, and in some cases beside one.
    pub(super) fn look_for_fencer(&mut self, control: &mut ControlPlane) {
        let pause = self.control_lease();
        self.schedule(control, pause, Event::LookForFencer);
        let (now, allowed, heartbeat) = (self.lease_time(), self.silence_allowed(), self.fencer_heartbeat());
        let is_at_work =
            |host: &Generation| self.slot_of(*host).is_some() && !self.world.is_stalled(NodeId::Host(*host));
        let Some(fencing) = &mut control.fencing else { return };
        let free: Vec<Generation> = control
            .hosts
            .keys()
            .copied()
            .filter(|host| !fencing.fencers.contains_key(host) && is_at_work(host))
            .collect();
        let is_needed = !fencing.fencers.keys().any(is_at_work) || fencing.draws(50);
        if free.is_empty() || !is_needed {
            return;
        }
        let own = free[fencing.rng.below(free.len() as u64) as usize];
        let sweep = fencing.options.sweep;
        let limits = SweepLimits { ended: 3, wait: sweep, listed: 2 };
        let mut fencer = Fencer::new(own, allowed, heartbeat, limits);
        fencer.start(&now);
        fencing.fencers.insert(own, Process { fencer, asked: None });
        control.count("fencer begun");
        self.schedule(control, heartbeat, Event::FencerTick(own));
    }

    /// A fencer begins a round, if the one before is over.
    pub(super) fn on_fencer_tick(&mut self, control: &mut ControlPlane, own: Generation) {
        let (now, heartbeat) = (self.lease_time(), self.fencer_heartbeat());
        let is_up = self.slot_of(own).is_some();
        let Some(fencing) = &mut control.fencing else { return };
        if !is_up {
            fencing.fencers.remove(&own);
            return;
        }
        let is_suspended = self.world.is_stalled(NodeId::Host(own));
        let process = fencing.fencers.get_mut(&own).filter(|process| process.asked.is_none() && !is_suspended);
        if let Some(question) = process.map(|process| process.fencer.begin(now)) {
            self.ask_for_fencer(control, own, question);
        }
        self.schedule(control, heartbeat, Event::FencerTick(own));
    }

    /// Sends the question of a fencer; in most cases, its answer comes back.
    fn ask_for_fencer(&mut self, control: &mut ControlPlane, own: Generation, question: Question) {
        let fencing = control.fencing.as_mut().expect("a fencer asks");
        fencing.last_question += 1;
        let number = fencing.last_question;
        fencing.fencers.get_mut(&own).expect("it asks").asked = Some(number);
        let (way, is_lost) = (fencing.way(), fencing.draws(fencing.options.store_faults));
        let is_late = is_lost && fencing.rng.chance(1, 2);
        let arrival = if is_late { way + fencing.late() } else { way };
        if is_lost {
            control.count(if is_late { "question of a fencer late" } else { "answer to a fencer lost" });
            self.schedule(control, UNANSWERED, Event::FencerAnswer { to: own, number, answer: Answer::Unknown });
        }
        self.schedule(control, arrival, Event::FencerQuestion { by: own, number, question });
        self.harm_fencer(control, own);
    }

    /// A question of a fencer arrives.
    pub(super) fn on_fencer_question(
        &mut self,
        control: &mut ControlPlane,
        by: Generation,
        number: u64,
        question: Question,
    ) {
        if control.fencing.is_none() {
            return;
        }
        let answer = match question {
            Question::Fence(Fence { below, except }) => {
                self.check_fence(control, &Fence { below, except: except.clone() });
                let Some(slot) = self.slot_of(by) else { return };
                control.count("silent hosts fenced");
                let op = self.ask(slot, ArrayRequest::Fence { below, except });
                control.asked.insert(op, Purpose::Fencing(by, number));
                return;
            }
            // The fencer executes a transition itself. If it is dead, that does not happen.
            _ if self.slot_of(by).is_none() => return,
            Question::Expire { by, now, allowed } => {
                let mut table = control.store.leases.table();
                match table.expire(by, &now, allowed) {
                    Ok((_, writes)) if !writes.is_empty() && control.is_unwritable(self.world.now()) => Answer::Unknown,
                    Ok((expired, writes)) => {
                        self.check_ended(control, &now, &expired.gone);
                        if !self.die_within(control, by, &table, &writes) {
                            control.store.leases.make(&table, writes);
                        }
                        let host = self.world.machine(NodeId::Host(by)).and_then(Role::host);
                        let known = host.and_then(|host| host.membership().map(|members| members.fence.clone()));
                        Answer::Expired(expired, known)
                    }
                    Err(_) => Answer::Unknown,
                }
            }
            Question::Forget(_) if control.is_unwritable(self.world.now()) => Answer::Unknown,
            Question::Forget(gone) => {
                let fencing = control.fencing.as_mut().expect("a fencer asks");
                let dies = fencing.draws(fencing.options.deaths);
                let writes = if dies { fencing.rng.below(2 * gone.len() as u64 + 1) as usize } else { usize::MAX };
                self.forget_leases(control, &gone, writes);
                if dies {
                    self.let_fencer_die(control, by, "fencer died within a transition");
                }
                Answer::Done
            }
        };
        let way = control.fencing.as_mut().expect("a fencer asks").way();
        self.schedule(control, way, Event::FencerAnswer { to: by, number, answer });
    }

    /// In some cases, a fencer dies when a part of the writes is made.
    fn die_within(
        &mut self,
        control: &mut ControlPlane,
        by: Generation,
        table: &LeaseTable<Report>,
        writes: &[Write],
    ) -> bool {
        let fencing = control.fencing.as_mut().expect("a fencer asks");
        if writes.is_empty() || !fencing.draws(fencing.options.deaths) {
            return false;
        }
        let made = fencing.rng.below(writes.len() as u64) as usize;
        control.store.leases.make(table, writes[..made].iter().copied());
        self.let_fencer_die(control, by, "fencer died within a transition");
        true
    }

    /// Only silence ends a lease.
    fn check_ended(&self, control: &mut ControlPlane, now: &LeaseTime, gone: &[Generation]) {
        let (table, allowed) = (control.store.leases.table(), self.silence_allowed());
        // While nobody can renew, no time passes.
        let fencing = control.fencing.as_ref().expect("a fencer asks");
        let at = |time: &LeaseTime| Time(time.elapsed.as_nanos() as u64);
        let noticed = self.fencer_heartbeat() * OUTAGE_NOTICED;
        let is_heard = |host: &&Generation| {
            let lease = table.lease(**host).filter(|lease| !lease.is_over);
            let Some(renewed) = lease.and_then(|lease| lease.heartbeat.renewed.as_ref()) else { return false };
            let (silent, lost) =
                (now.since(renewed).unwrap_or_default(), fencing.without_renewals(at(renewed), at(now)));
            silent <= allowed || (!lost.is_zero() && silent <= lost + allowed.saturating_sub(noticed))
        };
        if let Some(host) = gone.iter().find(is_heard) {
            let details = format!("{host} was silent for less than {allowed:?}, and its lease is ended");
            control.failed.get_or_insert(Failed { check: "live-lease-ended", details });
        }
    }

    /// No host whose lease is not over may be refused.
    fn check_fence(&self, control: &mut ControlPlane, fence: &Fence) {
        let table = control.store.leases.table();
        if let Some((host, _)) = table.leases().find(|(host, lease)| !lease.is_over && fence.refuses(*host)) {
            let details = format!("{host} has a lease, and is to be refused by {fence:?}");
            control.failed.get_or_insert(Failed { check: "live-host-fenced", details });
        }
    }

    pub(super) fn on_fence_outcome(
        &mut self,
        control: &mut ControlPlane,
        (own, number): (Generation, u64),
        outcome: &HostOutcome,
    ) {
        // A fence without an answer may still happen.
        let answer = if outcome.is_ok() { Answer::Done } else { Answer::Unknown };
        self.answer_fencer(control, own, number, answer);
    }

    pub(super) fn answer_fencer(&mut self, control: &mut ControlPlane, own: Generation, number: u64, answer: Answer) {
        let now = self.lease_time();
        let Some(fencing) = &mut control.fencing else { return };
        let waits = |process: &Process| process.asked == Some(number);
        if self.slot_of(own).is_none() || !fencing.fencers.get(&own).is_some_and(waits) {
            return;
        }
        if self.world.is_stalled(NodeId::Host(own)) {
            let pause = self.fencer_heartbeat();
            return self.schedule(control, pause, Event::FencerAnswer { to: own, number, answer });
        }
        let process = fencing.fencers.get_mut(&own).expect("it waits");
        process.asked = None;
        if let Answer::Expired(expired, _) = &answer
            && !expired.gone.is_empty()
        {
            *control.counts.entry("silent host found").or_default() += 1;
        }
        match process.fencer.on_answer(&now, answer) {
            Some(question) => self.ask_for_fencer(control, own, question),
            None => self.harm_fencer(control, own),
        }
    }

    /// A fencer dies, or is suspended, at any of its steps.
    fn harm_fencer(&mut self, control: &mut ControlPlane, own: Generation) {
        let longest = 3 * self.silence_allowed().as_millis() as u64;
        let fencing = control.fencing.as_mut().expect("a fencer is harmed");
        if fencing.draws(fencing.options.deaths) {
            self.let_fencer_die(control, own, "fencer died");
        } else if fencing.draws(fencing.options.pauses) {
            let span = Duration::from_millis(fencing.rng.below(longest) + 1).min(SILENCE_MAX);
            control.count("fencer suspended");
            self.files.disturb(self.time().after(span));
            self.world.stall(NodeId::Host(own), span);
        }
    }

    fn let_fencer_die(&mut self, control: &mut ControlPlane, own: Generation, name: &'static str) {
        control.count(name);
        self.files.disturb(self.time().after(RETURN_MAX));
        control.killed.push(NodeId::Host(own));
        self.crash(NodeId::Host(own));
    }

    /// Makes a host silent, for longer or shorter than it may be.
    pub(super) fn silence(&mut self, slot: HostSlot) {
        let (own, now) = (self.generation(slot), self.world.now());
        let longest = 3 * self.silence_allowed().as_millis() as u64;
        self.with_control(|cluster, control| {
            let fencing = control.fencing.as_mut().expect("a run with silent hosts has fencers");
            let span = Duration::from_millis(fencing.rng.below(longest) + 1).min(SILENCE_MAX);
            cluster.files.disturb(now.after(span));
            let outages = fencing.options.outages;
            if outages > 0 && fencing.outage(now).is_none() && fencing.rng.below(outages) == 0 {
                let name = fencing.begin_outage(now, span);
                control.count(name);
            } else if fencing.rng.chance(1, 2) {
                control.count("host suspended");
                cluster.world.stall(NodeId::Host(own), span);
            } else {
                fencing.mute.insert(own, now.after(span));
                control.count("host without renewals");
            }
        });
    }

    /// Ends the fencers: nodes that only check the array at rest have no leases.
    pub(crate) fn end_fencers(&mut self) {
        if let Some(control) = &mut self.control {
            control.fencing = None;
        }
    }

    /// True if the leases show that every silent host has been found, or nobody looks for them.
    pub(crate) fn has_fenced_the_silent(&self) -> bool {
        match &self.control {
            Some(control) if control.fencing.is_some() => self.has_only_living_leases(control),
            _ => true,
        }
    }

    /// True if fencers look for silent hosts.
    pub(crate) fn has_fencers(&self) -> bool {
        self.options.activities.has("silent-hosts")
    }
}
