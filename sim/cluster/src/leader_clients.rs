//! Processes that ask the leader of several candidates, in runs with those ([`crate::candidates`]): hosts with leases, a process that ends the
//! leases of silent ones, and processes that replace and read the description. Requests and answers are lost and late, and are sent to
//! candidates that lead no more.
//!
//! These hosts have no I/O: what is checked here is what the leader promises about the description, generations and leases.

use crate::candidates::LEASE;
use crate::control::administrator_state::Name;
use crate::failed::{Failed, failed};
use crate::prelude::*;
use braid_control_protocol::{Answer, Tag};
use braid_description::ArrayDescription;
use braid_host_leases::Version;
use braid_registrar::{Content, Outcome, Refused, Reply, Request};
use std::collections::VecDeque;

/// How often each of these processes does something.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// A process that has no answer after this time gives up, or asks again.
pub(crate) const UNANSWERED: Duration = Duration::from_millis(500);
/// A host counts as silent after this time, by the clock of the leader.
const ALLOWED: Duration = LEASE;
/// Clocks differ by less than a tenth.
const SURELY_HEARD: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 9 / 10);
const HOSTS: usize = 3;

/// The processes of a run.
pub(crate) struct LeaderClients {
    rng: Rng,
    pub has_faults: bool,
    open: BTreeMap<u64, OpenRequest>,
    last: u64,
    hosts: Vec<HostClient>,
    /// By which request each generation was taken.
    given: BTreeMap<Generation, u64>,
    /// Leases that are over, and not forgotten.
    over: Vec<Generation>,
    /// Changes of the description that are to be made, in this order.
    pub changes: VecDeque<DescriptionChange>,
    pub counts: BTreeMap<&'static str, u64>,
}

/// A change that is tried until the description has it.
pub(crate) type DescriptionChange = Box<dyn FnMut(&mut ArrayDescription)>;

#[derive(Debug, Default)]
struct HostClient {
    nonce: u64,
    host: Option<Generation>,
    /// When it learned its generation.
    known: Time,
    /// When it sent the last renewal that was answered.
    renewed: Time,
    silent_until: Time,
}

/// A request that has no answer.
struct OpenRequest {
    by: Asker,
    at: Time,
    /// The revision of the description at that time.
    revision: u64,
}

enum Asker {
    /// A host, as long as it has the same nonce.
    Host(usize, u64),
    Sweeper,
    Reader,
    /// It replaces the description. An administrator is told how that went.
    Writer(Box<ArrayDescription>, Option<Administrator>),
}

/// An administrator that has given a command, the tag if it waits for the answer, and the answer if the description is replaced.
pub(crate) type Administrator = (Name, Option<Tag>, Answer);

/// What happens to these processes.
pub(crate) enum ClientEvent {
    /// They do something.
    Tick,
    /// A request arrives at a candidate.
    Request(u64, Request),
    Reply(u64, Outcome),
    GiveUp(u64),
}

/// A request on its way: it arrives after this time, if it does.
pub(crate) struct Sent {
    pub id: u64,
    pub request: Request,
    pub after: Option<Duration>,
}

impl LeaderClients {
    pub fn new(rng: Rng) -> LeaderClients {
        let mut clients = LeaderClients {
            rng,
            has_faults: true,
            open: BTreeMap::new(),
            last: 0,
            hosts: Vec::new(),
            given: BTreeMap::new(),
            over: Vec::new(),
            changes: VecDeque::new(),
            counts: BTreeMap::new(),
        };
        clients.hosts = (0..HOSTS).map(|_| clients.new_host()).collect();
        clients
    }

    /// Which candidate is asked: mostly the one that leads.
    pub fn whom(&mut self, leader: Option<usize>, candidates: usize) -> usize {
        let other = self.rng.below(candidates as u64) as usize;
        leader.filter(|_| self.rng.chance(2, 3)).unwrap_or(other)
    }

    /// How long a request or an answer is on its way; none if it is lost.
    pub fn way(&mut self) -> Option<Duration> {
        let usual = Duration::from_micros(self.rng.below(4_000) + 1);
        match self.rng.below(25) {
            0 if self.has_faults => None,
            1 if self.has_faults => Some(usual + Duration::from_millis(self.rng.below(3_000))),
            _ => Some(usual),
        }
    }

    fn new_host(&mut self) -> HostClient {
        HostClient { nonce: self.rng.next_u64(), ..HostClient::default() }
    }

    fn send(&mut self, now: Time, by: Asker, revision: u64, request: Request) -> Sent {
        self.last += 1;
        self.open.insert(self.last, OpenRequest { by, at: now, revision });
        Sent { id: self.last, request, after: self.way() }
    }

    /// Something replaces the description.
    pub fn replace(&mut self, now: Time, next: Box<ArrayDescription>, by: Option<Administrator>) -> Sent {
        let after = next.revision - 1;
        self.send(now, Asker::Writer(next.clone(), by), after, Request::Replace { after, next })
    }

    /// What these processes ask now. The registry has this description.
    pub fn tick(&mut self, now: Time, truth: &ArrayDescription) -> Vec<Sent> {
        let mut sent = Vec::new();
        let revision = truth.revision;
        self.open.retain(|_, asked| now.since(asked.at) < Duration::from_secs(30));
        while let Some(change) = self.changes.front_mut() {
            let changed = changed(truth, change);
            if (ArrayDescription { revision, schema: truth.schema, ..changed.clone() }) != *truth {
                sent.push(self.replace(now, Box::new(changed), None));
                break;
            }
            self.changes.pop_front();
        }
        for number in 0..self.hosts.len() {
            sent.extend(self.host_acts(now, number, revision));
        }
        let host = self.hosts[self.rng.below(HOSTS as u64) as usize].host;
        match (self.rng.below(16), host) {
            (0..4, _) => sent.push(self.send(now, Asker::Reader, revision, Request::Describe)),
            (4, Some(by)) => {
                sent.push(self.send(now, Asker::Sweeper, revision, Request::Expire { by, length: ALLOWED }));
            }
            (5, _) => sent.push(self.send(now, Asker::Sweeper, revision, Request::Hosts { length: ALLOWED })),
            (7, _) => {
                let gone = std::mem::take(&mut self.over);
                sent.push(self.send(now, Asker::Sweeper, revision, Request::Forget { gone }));
            }
            (6, _) if self.has_faults => {
                let mark = self.rng.next_u64();
                let next = Box::new(changed(truth, |next| next.creation.size = mark));
                sent.push(self.replace(now, next, None));
            }
            _ => {}
        }
        sent
    }

    fn host_acts(&mut self, now: Time, number: usize, revision: u64) -> Option<Sent> {
        let nonce = self.hosts[number].nonce;
        let silent = Duration::from_millis(self.rng.below(2 * ALLOWED.as_millis() as u64));
        let request = match (self.hosts[number].host, self.rng.below(400)) {
            (None, 0..100) => Request::Take { nonce, role: "client".into(), report: String::new() },
            (Some(host), 0) => {
                self.hosts[number] = self.new_host();
                Request::Release { host }
            }
            (Some(_), 1..3) => {
                self.hosts[number].silent_until = now.after(silent);
                return None;
            }
            (Some(host), 3..100) if self.hosts[number].silent_until <= now => {
                Request::Renew { host, confirmed: Version(revision), report: String::new() }
            }
            _ => return None,
        };
        Some(self.send(now, Asker::Host(number, nonce), revision, request))
    }

    /// An answer arrives. The registry has had these descriptions by revision, and has this last generation. Returns what an administrator is told.
    pub fn on_reply(
        &mut self,
        now: Time,
        id: u64,
        outcome: Outcome,
        (history, last): (&BTreeMap<u64, ArrayDescription>, Generation),
    ) -> Result<Option<(Name, Tag, Answer)>, Failed> {
        let Some(OpenRequest { by, at, revision }) = self.open.remove(&id) else { return Ok(None) };
        match (by, outcome) {
            (Asker::Host(..), Ok(Reply::Taken(given))) if given > last => {
                return failed("generation-not-durable", format!("{given:?} is given, and the registry has {last:?}"));
            }
            (Asker::Host(number, nonce), outcome) => self.on_host_reply(now, (number, nonce, at), outcome)?,
            (Asker::Reader, Ok(Reply::Description(found))) => {
                self.count("description read");
                if found.revision < revision || history.get(&found.revision) != Some(&found) {
                    let details = format!("revision {}, asked when {revision} was there", found.revision);
                    return failed("old-description", details);
                }
            }
            (Asker::Writer(next, by), outcome) => {
                let is_done = outcome == Ok(Reply::Replaced);
                if is_done {
                    self.count("description replaced");
                    let next = Content::new(*next, Generation(0)).description;
                    if history.get(&next.revision) != Some(&next) {
                        return failed(
                            "replaced-and-lost",
                            format!("revision {} is not in the registry", next.revision),
                        );
                    }
                }
                let Some((by, Some(tag), answer)) = by else { return Ok(None) };
                let otherwise = if outcome == Ok(Reply::Superseded) { Answer::Superseded } else { Answer::Unknown };
                return Ok(Some((by, tag, if is_done { answer } else { otherwise })));
            }
            (Asker::Sweeper, Ok(Reply::Expired(expired))) => {
                let is_gone = |host: &&HostClient| host.host.is_some_and(|own| expired.gone.contains(&own));
                if let Some(host) = self.hosts.iter().filter(is_gone).find(|host| host.is_surely_heard(now)) {
                    return failed("live-lease-ended", format!("that of {host:?}, which has ended by {now:?}"));
                }
                self.over = expired.gone;
            }
            (Asker::Sweeper, Ok(Reply::Hosts(hosts))) => {
                let is_open = |own| hosts.iter().any(|listed| listed.host == own && !listed.lease.is_over);
                let has_lease = |host: &&HostClient| host.known <= at && host.is_surely_heard(now);
                let is_missing = |host: &&HostClient| host.host.is_some_and(|own| !is_open(own));
                if let Some(host) = self.hosts.iter().filter(has_lease).find(is_missing) {
                    return failed("lease-not-listed", format!("that of {host:?}, asked at {at:?}"));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn on_host_reply(
        &mut self,
        now: Time,
        (number, nonce, at): (usize, u64, Time),
        outcome: Outcome,
    ) -> Result<(), Failed> {
        if let Ok(Reply::Taken(generation)) = outcome {
            self.count("generation taken");
            let by = *self.given.entry(generation).or_insert(nonce);
            if by != nonce {
                return failed("generation-given-twice", format!("{generation:?}, for {by:x} and for {nonce:x}"));
            }
        }
        // Another host is there meanwhile.
        let Some(host) = self.hosts.get_mut(number).filter(|host| host.nonce == nonce) else { return Ok(()) };
        match outcome {
            Ok(Reply::Taken(generation)) => {
                host.known = if host.host == Some(generation) { host.known } else { now };
                (host.host, host.renewed) = (Some(generation), host.renewed.max(at));
            }
            Ok(Reply::Renewed { .. }) => host.renewed = host.renewed.max(at),
            Err(Refused::LeaseLost(lost)) if host.host.is_none_or(|own| own == lost) => {
                if host.is_surely_heard(now) {
                    return failed("live-lease-ended", format!("that of {host:?} has ended by {now:?}"));
                }
                self.hosts[number] = self.new_host();
            }
            _ => {}
        }
        Ok(())
    }

    /// An administrator waits no more for the answer to this request.
    pub fn give_up(&mut self, id: u64) -> Option<(Name, Tag)> {
        let Asker::Writer(_, by @ Some(_)) = &mut self.open.get_mut(&id)?.by else { return None };
        let (by, tag, _) = by.take()?;
        Some((by, tag?))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

impl HostClient {
    /// It has renewed its lease so late that no leader may have ended it yet.
    fn is_surely_heard(&self, now: Time) -> bool {
        self.host.is_some() && now.since(self.renewed) < SURELY_HEARD
    }
}

/// The description after a change.
fn changed(before: &ArrayDescription, change: impl FnOnce(&mut ArrayDescription)) -> ArrayDescription {
    let changed = before.changed(|next| {
        change(next);
        Ok::<_, ()>(())
    });
    changed.expect("it does not fail").1
}
