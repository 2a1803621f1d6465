//! Fencers end the leases of silent hosts, and have these fenced (`braid_host_leases::Fencer`). A fencer belongs to a host. It dies or is
//! suspended at every step, also within a transition of the leases, and another one continues.

use super::ControlPlane;
use super::context::{Action, Context, Event, Purpose, Report};
use super::fencing::{FencerProcess, Fencing};
use crate::failed::Failed;
use crate::prelude::*;
use braid_host_leases::{Answer, Fence, Fencer, LeaseTable, LeaseTime, Question, SweepLimits, Write};

/// A question whose answer is missing for so long counts as unanswered.
const UNANSWERED: Duration = Duration::from_millis(500);
/// How much longer than the store can't be written a silence may be that is fenced nevertheless: an outage is noticed at the third heartbeat
/// without any renewal, and the check before it counts.
const OUTAGE_NOTICED: u32 = 4;

impl ControlPlane {
    /// The state of fencers, while one is at work.
    fn fencers(&mut self) -> &mut Fencing {
        self.fencing.as_mut().expect("a fencer is at work")
    }

    /// Begins a fencer if there is none that is at work, and in some cases beside one.
    pub(super) fn look_for_fencer(&mut self, cx: &mut Context) {
        cx.later(cx.lease, Event::LookForFencer);
        let is_at_work = |host: &Generation| cx.is_up(*host) && !cx.is_stalled(*host);
        let Some(fencing) = &mut self.fencing else { return };
        let hosts = self.hosts.keys().copied();
        let free: Vec<Generation> =
            hosts.filter(|host| !fencing.fencers.contains_key(host) && is_at_work(host)).collect();
        let is_needed = !fencing.fencers.keys().any(is_at_work) || fencing.draws(50);
        if free.is_empty() || !is_needed {
            return;
        }
        let own = free[fencing.rng.below(free.len() as u64) as usize];
        let limits = SweepLimits { ended: 3, wait: fencing.options.sweep, listed: 2 };
        let mut fencer = Fencer::new(own, cx.silence_allowed, cx.heartbeat(), limits);
        fencer.start(&cx.lease_time());
        fencing.fencers.insert(own, FencerProcess { fencer, asked: None });
        self.count("fencer begun");
        cx.later(cx.heartbeat(), Event::FencerTick(own));
    }

    /// A fencer begins a round, if the one before is over.
    pub(super) fn on_fencer_tick(&mut self, cx: &mut Context, own: Generation) {
        let Some(fencing) = &mut self.fencing else { return };
        if !cx.is_up(own) {
            fencing.fencers.remove(&own);
            return;
        }
        let process = fencing.fencers.get_mut(&own).filter(|process| process.asked.is_none() && !cx.is_stalled(own));
        if let Some(question) = process.map(|process| process.fencer.begin(cx.lease_time())) {
            self.ask_for_fencer(cx, own, question);
        }
        cx.later(cx.heartbeat(), Event::FencerTick(own));
    }

    /// Sends the question of a fencer; in most cases, its answer comes back.
    fn ask_for_fencer(&mut self, cx: &mut Context, own: Generation, question: Question) {
        let fencing = self.fencers();
        fencing.last_question += 1;
        let number = fencing.last_question;
        fencing.fencers.get_mut(&own).expect("it asks").asked = Some(number);
        let (way, is_lost) = (fencing.way(), fencing.draws(fencing.options.store_faults));
        let is_late = is_lost && fencing.rng.chance(1, 2);
        let arrival = if is_late { way + fencing.late() } else { way };
        if is_lost {
            self.count(if is_late { "question of a fencer late" } else { "answer to a fencer lost" });
            cx.later(UNANSWERED, Event::FencerAnswer { to: own, number, answer: Answer::Unknown });
        }
        cx.later(arrival, Event::FencerQuestion { by: own, number, question });
        self.harm_fencer(cx, own);
    }

    pub(super) fn on_fencer_question(&mut self, cx: &mut Context, by: Generation, number: u64, question: Question) {
        // The fencer executes a transition itself. If it is dead, that does not happen.
        if self.fencing.is_none() || !cx.is_up(by) && !matches!(question, Question::Fence(_)) {
            return;
        }
        let answer = match question {
            Question::Fence(fence) => {
                self.check_fence(&fence);
                if cx.is_up(by) {
                    self.count("silent hosts fenced");
                    let request = ArrayRequest::Fence { below: fence.below, except: fence.except };
                    cx.ask(by, request, Some(Purpose::Fencing(by, number)));
                }
                return;
            }
            Question::Expire { by, now, allowed } => {
                let mut table = self.store.leases.table();
                match table.expire(by, &now, allowed) {
                    Ok((_, writes)) if !writes.is_empty() && self.is_unwritable(cx.now()) => Answer::Unknown,
                    Ok((expired, writes)) => {
                        self.check_ended(cx, &now, &expired.gone);
                        if !self.dies_within(cx, by, &table, &writes) {
                            self.store.leases.make(&table, writes);
                        }
                        let known = cx.host(by).and_then(|host| host.membership().map(|members| members.fence.clone()));
                        Answer::Expired(expired, known)
                    }
                    Err(_) => Answer::Unknown,
                }
            }
            Question::Forget(_) if self.is_unwritable(cx.now()) => Answer::Unknown,
            Question::Forget(gone) => {
                let fencing = self.fencers();
                let dies = fencing.draws(fencing.options.deaths);
                let writes = if dies { fencing.rng.below(2 * gone.len() as u64 + 1) as usize } else { usize::MAX };
                self.forget_leases(cx, &gone, writes);
                if dies {
                    self.count("fencer died within a transition");
                    cx.end(by);
                }
                Answer::Done
            }
        };
        cx.later(self.fencers().way(), Event::FencerAnswer { to: by, number, answer });
    }

    /// In some cases, a fencer dies when a part of the writes is made.
    fn dies_within(&mut self, cx: &mut Context, by: Generation, table: &LeaseTable<Report>, writes: &[Write]) -> bool {
        let fencing = self.fencers();
        if writes.is_empty() || !fencing.draws(fencing.options.deaths) {
            return false;
        }
        let made = fencing.rng.below(writes.len() as u64) as usize;
        self.store.leases.make(table, writes[..made].iter().copied());
        self.count("fencer died within a transition");
        cx.end(by);
        true
    }

    /// Only silence ends a lease.
    fn check_ended(&mut self, cx: &Context, now: &LeaseTime, gone: &[Generation]) {
        let (table, allowed) = (self.store.leases.table(), cx.silence_allowed);
        // While nobody can renew, no time passes.
        let fencing = self.fencing.as_ref().expect("a fencer asks");
        let at = |time: &LeaseTime| Time(time.elapsed.as_nanos() as u64);
        let noticed = cx.heartbeat() * OUTAGE_NOTICED;
        let is_heard = |host: &&Generation| {
            let lease = table.lease(**host).filter(|lease| !lease.is_over);
            let Some(renewed) = lease.and_then(|lease| lease.heartbeat.renewed.as_ref()) else { return false };
            let (silent, lost) =
                (now.since(renewed).unwrap_or_default(), fencing.without_renewals(at(renewed), at(now)));
            silent <= allowed || (!lost.is_zero() && silent <= lost + allowed.saturating_sub(noticed))
        };
        if let Some(host) = gone.iter().find(is_heard) {
            let details = format!("{host} was silent for less than {allowed:?}, and its lease is ended");
            self.failed.get_or_insert(Failed { check: "live-lease-ended", details });
        }
    }

    /// No host whose lease is not over may be refused.
    fn check_fence(&mut self, fence: &Fence) {
        let table = self.store.leases.table();
        if let Some((host, _)) = table.leases().find(|(host, lease)| !lease.is_over && fence.refuses(*host)) {
            let details = format!("{host} has a lease, and is to be refused by {fence:?}");
            self.failed.get_or_insert(Failed { check: "live-host-fenced", details });
        }
    }

    pub(super) fn answer_fencer(&mut self, cx: &mut Context, own: Generation, number: u64, answer: Answer) {
        let Some(fencing) = &mut self.fencing else { return };
        let process = fencing.fencers.get_mut(&own).filter(|process| process.asked == Some(number));
        let Some(process) = process.filter(|_| cx.is_up(own)) else { return };
        if cx.is_stalled(own) {
            return cx.later(cx.heartbeat(), Event::FencerAnswer { to: own, number, answer });
        }
        process.asked = None;
        let has_found = matches!(&answer, Answer::Expired(expired, _) if !expired.gone.is_empty());
        let next = process.fencer.on_answer(&cx.lease_time(), answer);
        if has_found {
            self.count("silent host found");
        }
        match next {
            Some(question) => self.ask_for_fencer(cx, own, question),
            None => self.harm_fencer(cx, own),
        }
    }

    /// A fencer dies, or is suspended, at any of its steps.
    fn harm_fencer(&mut self, cx: &mut Context, own: Generation) {
        let fencing = self.fencers();
        if fencing.draws(fencing.options.deaths) {
            self.count("fencer died");
            cx.end(own);
        } else if fencing.draws(fencing.options.pauses) {
            let span = fencing.draw_silence(cx.silence_allowed);
            self.count("fencer suspended");
            cx.suspend(own, span);
        }
    }

    /// Makes a host silent, for longer or shorter than it may be.
    pub(super) fn silence(&mut self, cx: &mut Context, own: Generation) {
        let (now, allowed) = (cx.now(), cx.silence_allowed);
        let fencing = self.fencing.as_mut().expect("a run with silent hosts has fencers");
        let span = fencing.draw_silence(allowed);
        let outages = fencing.options.outages;
        let name = if outages > 0 && fencing.outage(now).is_none() && fencing.rng.below(outages) == 0 {
            fencing.begin_outage(now, span)
        } else if fencing.rng.chance(1, 2) {
            cx.suspend(own, span);
            "host suspended"
        } else {
            fencing.mute.insert(own, now.after(span));
            "host without renewals"
        };
        cx.actions.push(Action::Disturb(span));
        self.count(name);
    }

    /// Ends the faults.
    pub(crate) fn heal(&mut self, now: Time) {
        self.faults = None;
        if let Some(fencing) = &mut self.fencing {
            fencing.heal(now);
        }
    }

    /// Ends the fencers: nodes that only check the array at rest have no leases.
    pub(crate) fn end_fencers(&mut self) {
        self.fencing = None;
    }

    /// True if the leases show that every silent host has been found, or nobody looks for them: the living hosts have leases, and no other
    /// host has.
    pub(crate) fn has_fenced_the_silent(&self, is_up: impl Fn(Generation) -> bool) -> bool {
        let table = self.store.leases.table();
        self.fencing.is_none()
            || table.leases().all(|(host, lease)| !lease.is_over && is_up(host))
                && self.hosts.keys().all(|host| table.require(*host).is_ok() || !is_up(*host))
    }
}
