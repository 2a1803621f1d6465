//! The description of the array and the leases of hosts at the registrar that leads, for one term. It reads them from the registry when it
//! begins, and is their only owner: what changes is written before it is told.
//!
//! Requests wait in a queue. A *round* takes all that wait, carries them out one after the other in memory, and writes what has changed with
//! as few writes of the leader as possible, mostly one. If nothing has changed, it is a question to the candidate instead. When that is done,
//! all requests of the round are answered: changes are durable then, and reads are current, because the write or the question began after
//! they had arrived. Then the next round begins.
//!
//! - A renewal costs no write. It is answered at once if it finds a lease that is not over, and the leader may grant leases to devices. So it
//!   is at most the doubt of a leader later than the win of another one, and a new leader takes each lease as renewed after that doubt. A
//!   renewal that finds no lease goes through a round: an earlier leader does not know of later ones.
//! - Silence counts by the clock of this leader, for as long as it was not suspended.
//! - A write that is lost leads to no answer but [`Refused::Unknown`], and to the end of what is in memory here.
//! - The monitor is told of a volume before that is written, and forgets one after that is written.

use crate::entries::{
    Change, Content, Key, LeaseEntry, array_change, changes, divide, lease_change, machines_change, sort,
};
use crate::machines::Machines;
use crate::requests::{HostLease, Outcome, REPORT_BYTES_MAX, ROLE_BYTES_MAX, Refused, Reply, Request, RequestId};
use braid_base::{DeviceId, Generation, Level, Now, Time, VolumeId, limits::HOSTS_MAX};
use braid_description::{ArrayDescription, DescriptionError, VolumeState, describe_widest};
use braid_host_leases::{Heartbeat, LOCK_SERVER_ROLE, Lease, LeaseTable, LeaseTime, Version, Write};
use braid_layout::VolumeDescription;
use braid_leadership::times::longer;
use braid_leadership::{CandidateId, Head, QuestionId, WriteId};
use braid_machine::{ControlOutcome, ControlRequest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// So many requests wait at most.
const WAITING_MAX: usize = 1_024;
/// A leader takes a step at least every 250 ms. If there is none for so long, it was suspended.
const SUSPENDED: Duration = Duration::from_secs(1);
/// So many leases there are at most, those included that are over and not forgotten.
const LEASES_MAX: usize = 4 * HOSTS_MAX;

/// The volumes that the monitor must know.
pub(crate) type Volumes = BTreeMap<VolumeId, VolumeDescription>;

/// Tells the monitor something.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(ControlRequest) -> ControlOutcome;

#[derive(Clone, Debug)]
pub(crate) struct ArrayStore {
    /// Names the term in times of leases.
    term: String,
    description: ArrayDescription,
    /// With the leader, and all candidates.
    members: (Machines, Option<CandidateId>, BTreeSet<CandidateId>),
    table: LeaseTable<String>,
    /// What is kept of each lease of the table.
    leases: BTreeMap<Generation, LeaseEntry>,
    /// What the monitor has been told.
    volumes: Volumes,
    waiting: VecDeque<Waiting>,
    round: Option<Round>,
    /// A write was refused: what is in memory here will not be in the registry.
    is_closed: bool,
    /// The time of the last step.
    seen: Now,
}

/// A request, and when it arrived. Silence is judged for that time: renewals that came later may still wait behind it.
#[derive(Clone, Debug)]
struct Waiting {
    id: RequestId,
    arrived: LeaseTime,
    request: Request,
}

/// What the candidate is to do for a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// If so told, with these candidates from then on.
    Write(WriteId, Option<BTreeSet<CandidateId>>),
    Question(QuestionId),
}

#[derive(Clone, Debug, Default)]
struct Round {
    answers: Vec<(RequestId, Outcome)>,
    /// What is changed beside `array`, before it is divided into parts.
    keys: BTreeMap<Key, Change>,
    /// The generations or the description without its lists are changed.
    changes_array: bool,
    changes_machines: bool,
    /// The description is replaced. That is one transaction, so there is one replacement in a round.
    replaces: bool,
    /// The monitor may have been told of volumes.
    is_about_volumes: bool,
    /// What is still to be written, in this order.
    parts: VecDeque<Vec<Change>>,
    /// The number of the write or the question under way.
    asked: Option<u64>,
}

impl ArrayStore {
    /// That of a term that begins. Until now, former leaders may have renewed leases, and for their doubt they still may.
    pub fn new(now: Now, head: &Head, content: Content, doubt: Duration) -> Result<ArrayStore, DescriptionError> {
        let Content { description, last, leases, machines } = content;
        let (term, volumes) = (format!("{:032x}", head.nonce.0), volumes_of(&description)?);
        let mut table = LeaseTable::new(last);
        let renewed = LeaseTime { boot: term.clone(), elapsed: now.time.after(longer(doubt)).since(Time(0)) };
        for (host, LeaseEntry { is_over, .. }) in &leases {
            let heartbeat = Heartbeat { renewed: Some(renewed.clone()), confirmed: Version(0), report: String::new() };
            table.insert(*host, Lease { is_over: *is_over, is_renewed: false, heartbeat }, None);
        }
        let (members, waiting) = ((machines, head.leader, head.candidates.clone()), VecDeque::new());
        let (round, is_closed, seen) = (None, false, now);
        Ok(ArrayStore { term, description, members, table, leases, volumes, waiting, round, is_closed, seen })
    }

    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub fn revision(&self) -> u64 {
        self.description.revision
    }

    pub fn devices(&self) -> Vec<DeviceId> {
        self.description.devices.iter().map(|entry| DeviceId(entry.id)).collect()
    }

    pub fn last_generation(&self) -> Generation {
        self.table.last()
    }

    /// To be called at each step. A leader that was suspended has not heard hosts meanwhile, so each lease counts as renewed.
    pub fn pass(&mut self, now: Now) {
        if now.time.since(std::mem::replace(&mut self.seen, now).time) > SUSPENDED {
            let time = self.time(now.time);
            for (host, lease) in self.table.clone().leases().filter(|(_, lease)| !lease.is_over) {
                let heartbeat = Heartbeat { renewed: Some(time.clone()), ..lease.heartbeat.clone() };
                self.table.renew(host, heartbeat).expect("it is not over");
            }
        }
    }

    /// Takes a request. Returns the answer if there is one already.
    pub fn take(&mut self, now: Time, may_grant: bool, id: RequestId, request: Request) -> Option<Outcome> {
        if may_grant && let Request::Renew { host, confirmed, report } = &request {
            let renewed = self.renew(&self.time(now), *host, *confirmed, report);
            if let Ok(reply) = renewed {
                return Some(Ok(reply));
            }
        }
        if self.is_closed {
            return Some(Err(Refused::NotLeading));
        }
        if self.waiting.len() >= WAITING_MAX {
            return Some(Err(Refused::Busy));
        }
        self.waiting.push_back(Waiting { id, arrived: self.time(now), request });
        None
    }

    /// Begins the next round, or the next write of this one, if none is under way. `number` names it. `tell` tells the monitor something.
    pub fn begin(&mut self, number: u64, tell: Tell) -> Option<Ask> {
        if self.round.is_none() && !self.waiting.is_empty() {
            self.round = Some(self.carry_out(tell));
        }
        let round = self.round.as_mut().filter(|round| round.asked.is_none())?;
        round.asked = Some(number);
        let candidates = (round.changes_machines && round.parts.len() == 1).then(|| self.members.2.clone());
        Some(match round.parts.is_empty() {
            true => Ask::Question(QuestionId(number)),
            false => Ask::Write(WriteId(number), candidates),
        })
    }

    /// What this write puts into the registry.
    pub fn written_by(&self, WriteId(id): WriteId) -> Option<&[Change]> {
        let round = self.round.as_ref().filter(|round| round.asked == Some(id))?;
        Some(round.parts.front()?)
    }

    /// The write or the question of this number is done. Returns the answers that are due.
    pub fn on_done(&mut self, id: u64, tell: Tell) -> Vec<(RequestId, Outcome)> {
        let Some(mut round) = self.round.take_if(|round| round.asked == Some(id)) else { return Vec::new() };
        round.parts.pop_front();
        if !round.parts.is_empty() {
            round.asked = None;
            self.round = Some(round);
            return Vec::new();
        }
        if round.is_about_volumes {
            let there = volumes_of(&self.description).expect("it was looked at before");
            let _ = self.adopt(&there, tell);
            for volume in self.volumes.keys().filter(|volume| !there.contains_key(volume)) {
                let _ = tell(ControlRequest::DropVolume { volume: *volume });
            }
            self.volumes = there;
        }
        let _ = tell(ControlRequest::NoteGenerations { last: self.table.last() });
        round.answers
    }

    /// The write or the question of this number was refused. Returns the answers to all requests that this concerns.
    pub fn on_refused(&mut self, id: u64) -> Vec<(RequestId, Outcome)> {
        let Some(round) = self.round.take_if(|round| round.asked == Some(id)) else { return Vec::new() };
        if !round.parts.is_empty() {
            self.is_closed = true;
        }
        let waiting = if self.is_closed { std::mem::take(&mut self.waiting) } else { VecDeque::new() };
        unanswered(round, waiting)
    }

    /// The term is over. Returns the answers to all requests.
    pub fn end(self) -> Vec<(RequestId, Outcome)> {
        unanswered(self.round.unwrap_or_default(), self.waiting)
    }

    /// Carries out what waits, in memory.
    fn carry_out(&mut self, tell: Tell) -> Round {
        let mut round = Round::default();
        while let Some(next) = self.waiting.pop_front() {
            if round.replaces && matches!(next.request, Request::Replace { .. }) {
                self.waiting.push_front(next);
                break;
            }
            let outcome = self.apply(&next.arrived, next.request, &mut round, tell);
            round.answers.push((next.id, outcome));
        }
        self.close(&mut round);
        round
    }

    /// Divides what a round changes into writes.
    fn close(&self, round: &mut Round) {
        if round.changes_array {
            let change = array_change(&self.description, self.table.last()).expect("it has no paths");
            round.keys.insert(change.key, change);
        }
        if round.changes_machines {
            let change = machines_change(&self.members.0).expect("it has no paths");
            round.keys.extend(change.map(|change| (change.key, change)));
        }
        round.parts = divide(std::mem::take(&mut round.keys));
    }

    fn apply(&mut self, now: &LeaseTime, request: Request, round: &mut Round, tell: Tell) -> Outcome {
        let (writes, reply) = match request {
            Request::Describe => return Ok(Reply::Description(Box::new(self.description.clone()))),
            Request::Replace { after, .. } if after != self.description.revision => return Ok(Reply::Superseded),
            Request::Replace { next, .. } => return self.replace(*next, round, tell),
            Request::Take { nonce, role, report } => return self.give(now, (nonce, role, report), round),
            Request::Renew { host, confirmed, report } => return self.renew(now, host, confirmed, &report),
            Request::Hosts { length } => return Ok(Reply::Hosts(self.hosts(now, length))),
            Request::AskToEnd { host } => {
                self.table.require(host)?;
                self.leases.get_mut(&host).expect("a lease of the table").is_asked_to_end = true;
                (vec![Write::Lease(host)], Reply::Done)
            }
            Request::Release { host } => (self.table.release(host).to_vec(), Reply::Done),
            Request::Expire { by, length } => {
                let (expired, writes) = self.table.expire(by, now, length)?;
                (writes, Reply::Expired(expired))
            }
            Request::ExpireOne { host, .. } if host > self.table.last() => return Err(Refused::LeaseLost(host)),
            Request::ExpireOne { host, length } => {
                let may_serve = self.leases.get(&host).is_some_and(|lease| lease.role.starts_with(LOCK_SERVER_ROLE));
                let least = if may_serve { longer(self.description.leases().lease()) } else { Duration::ZERO };
                let (end, writes) = self.table.expire_one(host, now, length.max(least));
                (writes, Reply::Ended(end))
            }
            Request::Machines | Request::Token { .. } | Request::Join(_) | Request::Leave { .. } => {
                round.changes_machines |= self.change_machines(request)?;
                return Ok(Reply::Machines(self.members.0.clone()));
            }
            Request::Forget { gone } => match gone.iter().find(|host| self.table.require(**host).is_ok()) {
                Some(host) => return Err(Refused::Invalid(format!("the lease of host {} is not over", host.0))),
                None => (self.table.forget(&gone), Reply::Done),
            },
        };
        self.record(writes, round);
        Ok(reply)
    }

    /// Carries out one of the requests about machines. True if something has changed.
    fn change_machines(&mut self, request: Request) -> Result<bool, Refused> {
        let (machines, leader, candidates) = &mut self.members;
        let (before, now) = (machines.clone(), self.seen.clock);
        match request {
            Request::Token { hash } => machines.add_token(now, hash).map_err(Refused::Token)?,
            Request::Join(joining) => {
                let joined = machines.join(now, self.description.array, joining);
                candidates.insert(joined.map_err(Refused::Token)?);
            }
            Request::Leave { name } => {
                let left = machines.leave(&name, *leader).map_err(Refused::Invalid)?;
                candidates.remove(&left);
            }
            _ => {}
        }
        Ok(*machines != before)
    }

    fn replace(&mut self, mut next: ArrayDescription, round: &mut Round, tell: Tell) -> Outcome {
        let before = &self.description;
        if next.array != before.array || next.revision != before.revision + 1 {
            return Err(Refused::Invalid("it is not the next description of this array".into()));
        }
        if next.next_volume < before.next_volume
            || next.next_device < before.next_device
            || next.last_file_system < before.last_file_system
            || next.level < before.level
        {
            return Err(Refused::Invalid(
                "numbers that were given would be given again, or its level would fall".into(),
            ));
        }
        if next.schema != next.needed_schema() || next.level > Level::KNOWN {
            return Err(Refused::Invalid("this release can't read it".into()));
        }
        next.check().map_err(Refused::Invalid)?;
        sort(&mut next);
        // With the largest number: `array` is written with the last one of the round.
        let changes = changes(Some(before), &next, Generation(u32::MAX))?;
        round.is_about_volumes = true;
        self.adopt(&volumes_of(&next)?, tell).map_err(Refused::Monitor)?;
        self.description = next;
        round.keys.extend(changes.into_iter().map(|change| (change.key, change)));
        (round.changes_array, round.replaces) = (true, true);
        Ok(Reply::Replaced)
    }

    /// Tells the monitor of these volumes, as far as it has not been told.
    fn adopt(&mut self, volumes: &Volumes, tell: Tell) -> ControlOutcome {
        for (id, volume) in volumes {
            if self.volumes.get(id) != Some(volume) {
                tell(ControlRequest::AdoptVolume { volume: volume.clone() })?;
                self.volumes.insert(*id, volume.clone());
            }
        }
        Ok(())
    }

    /// Gives a generation.
    fn give(&mut self, now: &LeaseTime, (nonce, role, report): (u64, String, String), round: &mut Round) -> Outcome {
        if let Some((host, _)) = self.leases.iter().find(|(_, lease)| lease.nonce == nonce) {
            let host = *host;
            return self.renew(now, host, Version(0), &report).map(|_| Reply::Taken(host));
        }
        if role.len() > ROLE_BYTES_MAX || report.len() > REPORT_BYTES_MAX {
            return Err(Refused::Invalid("a role or a report that is too long".into()));
        }
        if self.leases.len() >= LEASES_MAX {
            return Err(Refused::Busy);
        }
        let (host, writes) = self.table.take(now, report).ok_or(Refused::GenerationsExhausted)?;
        self.leases.insert(host, LeaseEntry { role, nonce, is_over: false, is_asked_to_end: false });
        self.record(writes, round);
        Ok(Reply::Taken(host))
    }

    fn renew(&mut self, now: &LeaseTime, host: Generation, confirmed: Version, report: &str) -> Outcome {
        if report.len() > REPORT_BYTES_MAX {
            return Err(Refused::Invalid("a report that is too long".into()));
        }
        let heartbeat = Heartbeat { renewed: Some(now.clone()), confirmed, report: report.to_string() };
        self.table.renew(host, heartbeat)?;
        Ok(Reply::Renewed { is_asked_to_end: self.leases[&host].is_asked_to_end })
    }

    fn hosts(&self, now: &LeaseTime, length: Duration) -> Vec<HostLease> {
        let seen = |(host, lease): (Generation, &Lease<String>)| HostLease {
            host,
            role: self.leases[&host].role.clone(),
            is_live: self.table.is_live(host, now, length),
            silent: self.table.silent(host, now),
            lease: lease.clone(),
        };
        self.table.leases().map(seen).collect()
    }

    /// What these writes of a transition of the table change in the registry. Heartbeats are in memory alone.
    fn record(&mut self, writes: impl IntoIterator<Item = Write>, round: &mut Round) {
        for write in writes {
            let change = match write {
                Write::Counter(_) => {
                    round.changes_array = true;
                    continue;
                }
                Write::Lease(host) => {
                    let entry = self.leases.get_mut(&host).expect("a lease of the table");
                    entry.is_over = self.table.require(host).is_err();
                    lease_change(host, entry).expect("it has no paths")
                }
                Write::RemoveLease(host) if self.leases.remove(&host).is_some() => {
                    Change { key: Key::Lease(host), value: None }
                }
                Write::RemoveLease(_) | Write::Heartbeat(_) | Write::RemoveHeartbeat(_) => continue,
            };
            round.keys.insert(change.key, change);
        }
    }

    /// The time of leases: the clock of this leader, in this term.
    fn time(&self, now: Time) -> LeaseTime {
        LeaseTime { boot: self.term.clone(), elapsed: now.since(Time(0)) }
    }
}

/// The volumes of a description that may have content, each with all devices on which it may have some.
fn volumes_of(description: &ArrayDescription) -> Result<Volumes, DescriptionError> {
    let there = description.volumes.iter().filter(|entry| entry.state != VolumeState::Deleting);
    there.map(|entry| Ok((VolumeId(entry.id), describe_widest(entry)?))).collect()
}

/// The answers to requests of which nothing definite is known.
fn unanswered(round: Round, waiting: VecDeque<Waiting>) -> Vec<(RequestId, Outcome)> {
    let of_round = if round.parts.is_empty() { Refused::NotLeading } else { Refused::Unknown };
    let begun = round.answers.into_iter().map(|(id, _)| (id, Err(of_round.clone())));
    begun.chain(waiting.into_iter().map(|next| (next.id, Err(Refused::NotLeading)))).collect()
}
