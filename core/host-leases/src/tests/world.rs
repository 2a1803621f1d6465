//! A small world: the records of leases, hosts, fencers, what devices refuse, and all that may happen next in it.

use crate::*;
use braid_base::{FenceTable, Generation};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const USER: Generation = Generation(1);
const FIRST: Generation = Generation(2);

#[derive(Clone, Debug, Hash)]
pub struct World {
    now: LeaseTime,
    records: LeaseRecords<()>,
    /// Every generation that was given.
    given: BTreeSet<Generation>,
    /// The generations whose leases were ended or released.
    over: BTreeSet<Generation>,
    released: BTreeSet<Generation>,
    /// What devices refuse.
    refused: FenceTable,
    hosts: BTreeMap<Generation, Host>,
    fencers: BTreeMap<Generation, Process>,
    /// What takes effect late; nobody waits for an answer.
    stray: Vec<Stray>,
    budget: Budget,
    pub seen: BTreeSet<&'static str>,
}

/// How often something may still happen.
#[derive(Clone, Debug, Hash)]
pub struct Budget {
    pub lost: u32,
    /// Deaths of fencers, with their hosts.
    pub deaths: u32,
    /// Times that pass, each longer than a host may be silent.
    pub passes: u32,
    /// Fencers that may begin.
    pub fencers: u32,
    /// Hosts that may start.
    pub starts: u32,
    /// Hosts that may disconnect gracefully.
    pub ends: u32,
}

#[derive(Clone, Debug, Hash)]
struct Host {
    renewer: Renewer,
    /// A renewal under way: it has found a lease, and has written the heartbeat or not. Then it looks again.
    renewal: Option<(Heartbeat<()>, bool)>,
}

#[derive(Clone, Debug, Hash)]
struct Process {
    fencer: Fencer,
    asked: Option<Question>,
}

#[derive(Clone, Debug, PartialEq, Hash)]
enum Stray {
    Heartbeat(Generation, Heartbeat<()>),
    Question(Question),
}

#[derive(Clone, Debug)]
pub enum Event {
    Pass,
    /// A host starts. So many of its writes are made, and it hears its generation or not.
    Start {
        writes: usize,
        is_answered: bool,
    },
    Disconnect(Generation),
    Renew(Generation),
    WriteHeartbeat(Generation),
    LookAgain(Generation),
    LoseRenewal(Generation),
    BeginFencer,
    Round(Generation),
    Answer(Generation),
    Lose(Generation),
    /// A fencer dies, and its host with it. So many of the writes of its question are made.
    Die(Generation, usize),
    Stray(usize),
}

fn leases() -> Leases {
    Leases::of_millis(1_000)
}

impl World {
    /// A world with a host, and another one that has a fencer.
    pub fn new(budget: Budget) -> World {
        let records = LeaseRecords::new(Generation(0));
        let mut world = World {
            now: LeaseTime::default(),
            records,
            given: BTreeSet::new(),
            over: BTreeSet::new(),
            released: BTreeSet::new(),
            refused: FenceTable::default(),
            hosts: BTreeMap::new(),
            fencers: BTreeMap::new(),
            stray: Vec::new(),
            budget,
            seen: BTreeSet::new(),
        };
        world.start(2, true);
        world.start(2, true);
        assert_eq!(world.hosts.keys().copied().collect::<Vec<_>>(), [USER, FIRST]);
        world.add_fencer(FIRST);
        world.budget.fencers -= 1;
        world
    }

    fn add_fencer(&mut self, own: Generation) {
        let fencer = Fencer::new(own, leases().host(), leases().heartbeat(), SweepLimits::default());
        self.fencers.insert(own, Process { fencer, asked: None });
    }

    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let table = self.records.table();
        if self.budget.passes > 0 {
            events.push(Event::Pass);
        }
        if self.budget.starts > 0 {
            events.extend(
                [(1, false), (2, false), (2, true)].map(|(writes, is_answered)| Event::Start { writes, is_answered }),
            );
        }
        for (host, state) in &self.hosts {
            match &state.renewal {
                None => {
                    let heartbeat = table.lease(*host).map(|lease| &lease.heartbeat);
                    if heartbeat.is_none_or(|heartbeat| heartbeat.renewed.as_ref() != Some(&self.now)) {
                        events.push(Event::Renew(*host));
                    }
                    if self.budget.ends > 0 && !self.fencers.contains_key(host) {
                        events.push(Event::Disconnect(*host));
                    }
                }
                Some((_, false)) => events.push(Event::WriteHeartbeat(*host)),
                Some((_, true)) => events.push(Event::LookAgain(*host)),
            }
            if state.renewal.is_some() && self.budget.lost > 0 {
                events.push(Event::LoseRenewal(*host));
            }
        }
        if self.budget.fencers > 0 && self.hosts.keys().any(|host| !self.fencers.contains_key(host)) {
            events.push(Event::BeginFencer);
        }
        let is_silent = |host| !table.is_live(host, &self.now, leases().host());
        let work = table.leases().any(|(host, lease)| lease.is_over || is_silent(host));
        for (own, process) in &self.fencers {
            match &process.asked {
                None if work => events.push(Event::Round(*own)),
                None => {}
                Some(question) => {
                    events.push(Event::Answer(*own));
                    if self.budget.lost > 0 {
                        events.push(Event::Lose(*own));
                    }
                    if self.budget.deaths > 0 {
                        let writes = self.writes_of(question).len();
                        events.extend((0..=writes).map(|writes| Event::Die(*own, writes)));
                    }
                }
            }
        }
        events.extend((0..self.stray.len()).map(Event::Stray));
        events
    }

    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Pass => {
                self.budget.passes -= 1;
                self.now.elapsed += leases().host() + Duration::from_secs(1);
            }
            Event::Start { writes, is_answered } => {
                self.budget.starts -= 1;
                self.start(writes, is_answered);
                self.seen.insert(if is_answered { "started" } else { "start without an answer" });
            }
            Event::Disconnect(host) => {
                self.budget.ends -= 1;
                self.hosts.remove(&host);
                let mut table = self.records.table();
                let writes = table.release(host);
                self.write(&table, writes);
                self.over.insert(host);
                self.released.insert(host);
                self.seen.insert("released");
            }
            Event::Renew(host) => {
                let has_lease = self.records.table().require(host).is_ok();
                let now = self.now.clone();
                let state = self.hosts.get_mut(&host).unwrap();
                let step = state.renewer.step(&now, RenewerInput::Wake { is_fenced: false });
                assert_eq!(step, RenewerStep::Renew);
                if has_lease {
                    state.renewal = Some((Heartbeat { renewed: Some(now), confirmed: Version(0), report: () }, false));
                } else {
                    self.refuse(host);
                }
            }
            Event::WriteHeartbeat(host) => {
                let renewal = self.hosts.get_mut(&host).unwrap().renewal.as_mut().unwrap();
                renewal.1 = true;
                self.records.write_heartbeat(host, renewal.0.clone());
            }
            Event::LookAgain(host) => {
                let state = self.hosts.get_mut(&host).unwrap();
                state.renewal = None;
                if self.records.table().require(host).is_ok() {
                    assert!(!self.over.contains(&host), "{host} is told that its lease is renewed: {self:#?}");
                    state.renewer.step(&self.now, RenewerInput::Renewed);
                    self.seen.insert("renewed");
                } else {
                    self.records.make(&self.records.table(), Write::RemoveHeartbeat(host));
                    self.refuse(host);
                }
            }
            Event::LoseRenewal(host) => {
                self.budget.lost -= 1;
                let state = self.hosts.get_mut(&host).unwrap();
                if let Some((heartbeat, false)) = state.renewal.take() {
                    self.stray.push(Stray::Heartbeat(host, heartbeat));
                }
                if let RenewerStep::Stop(_) = state.renewer.step(&self.now, RenewerInput::Unknown) {
                    self.stop(host);
                }
            }
            Event::BeginFencer => {
                self.budget.fencers -= 1;
                let own = self.hosts.keys().copied().rfind(|host| !self.fencers.contains_key(host));
                self.add_fencer(own.unwrap());
            }
            Event::Round(own) => {
                let process = self.fencers.get_mut(&own).unwrap();
                process.asked = Some(process.fencer.begin(self.now.clone()));
            }
            Event::Answer(own) => {
                let question = self.fencers.get_mut(&own).unwrap().asked.take().unwrap();
                let answer = self.perform(&question);
                self.give(own, answer);
            }
            Event::Lose(own) => {
                self.budget.lost -= 1;
                let question = self.fencers.get_mut(&own).unwrap().asked.take().unwrap();
                self.stray.push(Stray::Question(question));
                self.seen.insert("without an answer");
                self.give(own, Answer::Unknown);
            }
            Event::Die(own, writes) => {
                self.budget.deaths -= 1;
                self.seen.insert("died");
                let question = self.fencers.remove(&own).unwrap().asked.unwrap();
                self.hosts.remove(&own);
                let all = self.writes_of(&question);
                if let Question::Fence(_) = question {
                    self.stray.push(Stray::Question(question));
                } else if let Some((table, made)) = self.transition(&question).filter(|_| writes > 0) {
                    self.note_over(&question);
                    self.write(&table, made.into_iter().take(writes));
                    if writes < all.len() {
                        self.seen.insert("died within a transition");
                    }
                }
            }
            Event::Stray(number) => {
                self.seen.insert("late");
                match self.stray.remove(number) {
                    Stray::Heartbeat(host, heartbeat) => self.records.write_heartbeat(host, heartbeat),
                    Stray::Question(question) => drop(self.perform(&question)),
                }
            }
        }
        self.check();
    }

    fn start(&mut self, writes: usize, is_answered: bool) {
        let mut table = self.records.table();
        let (host, all) = table.take(&self.now, ()).unwrap();
        self.write(&table, all.into_iter().take(writes));
        assert!(self.given.insert(host), "{host} is given twice: {self:#?}");
        if is_answered {
            let renewer = Renewer::new(self.now.clone(), leases().host());
            self.hosts.insert(host, Host { renewer, renewal: None });
        }
    }

    fn refuse(&mut self, host: Generation) {
        self.seen.insert("refused");
        let step = self.hosts.get_mut(&host).unwrap().renewer.step(&self.now, RenewerInput::Refused);
        assert_eq!(step, RenewerStep::Stop(StopReason::LeaseLost));
        self.stop(host);
    }

    /// Its process ends, and a fencer with it.
    fn stop(&mut self, host: Generation) {
        self.hosts.remove(&host);
        if let Some(Question::Fence(fence)) = self.fencers.remove(&host).and_then(|process| process.asked) {
            self.stray.push(Stray::Question(Question::Fence(fence)));
        }
    }

    fn give(&mut self, own: Generation, answer: Answer) {
        let process = self.fencers.get_mut(&own).unwrap();
        process.asked = process.fencer.on_answer(&self.now, answer);
    }

    /// The table after a question, and the writes that lead there; none if it changes no leases.
    fn transition(&self, question: &Question) -> Option<(LeaseTable<()>, Vec<Write>)> {
        let mut table = self.records.table();
        match question {
            Question::Expire { by, now, allowed } => {
                let (_, writes) = table.expire(*by, now, *allowed).ok()?;
                Some((table, writes))
            }
            Question::Fence(_) => None,
            Question::Forget(gone) => {
                let writes = table.forget(gone);
                Some((table, writes))
            }
        }
    }

    fn writes_of(&self, question: &Question) -> Vec<Write> {
        self.transition(question).map(|(_, writes)| writes).unwrap_or_default()
    }

    fn write(&mut self, table: &LeaseTable<()>, writes: impl IntoIterator<Item = Write>) {
        writes.into_iter().for_each(|write| self.records.make(table, write));
    }

    fn perform(&mut self, question: &Question) -> Answer {
        match question {
            Question::Expire { by, now, allowed } => {
                let mut table = self.records.table();
                match table.expire(*by, now, *allowed) {
                    Ok((expired, writes)) => {
                        self.write(&table, writes);
                        self.over.extend(&expired.gone);
                        Answer::Expired(expired, Some(self.refused.clone()))
                    }
                    Err(_) => {
                        self.seen.insert("fencer refused");
                        Answer::Unknown
                    }
                }
            }
            Question::Fence(Fence { below, except }) => {
                self.seen.insert("fenced");
                self.refused.add(*below, &except.iter().copied().collect(), &BTreeSet::new());
                Answer::Done
            }
            Question::Forget(gone) => {
                for host in gone {
                    assert!(self.refused.refuses(*host), "{host} is forgotten before it is fenced: {self:#?}");
                }
                let mut table = self.records.table();
                let writes = table.forget(gone);
                self.write(&table, writes);
                self.seen.insert("forgotten");
                Answer::Done
            }
        }
    }

    /// The fencer has died within a transition: the leases whose records it has written are over.
    fn note_over(&mut self, question: &Question) {
        if let Question::Forget(gone) = question {
            assert!(gone.iter().all(|host| self.refused.refuses(*host)), "forgotten before they are fenced: {self:#?}");
        }
    }

    /// What must hold at every moment.
    fn check(&mut self) {
        let table = self.records.table();
        let ended = table.leases().filter(|(_, lease)| lease.is_over).map(|(host, _)| host);
        self.over.extend(ended);
        for host in &self.over {
            assert!(table.require(*host).is_err(), "the lease of {host} was over: {self:#?}");
        }
        for (host, lease) in table.leases() {
            assert!(lease.is_over || !self.refused.refuses(host), "{host} has a lease, and is refused: {self:#?}");
        }
    }

    /// When nothing can happen any more, and there is a fencer, every host that is not alive is refused.
    pub fn check_at_rest(&self) {
        if self.fencers.is_empty() {
            return;
        }
        let table = self.records.table();
        for (host, lease) in table.leases() {
            assert!(!lease.is_over, "the lease of {host} is left: {self:#?}");
        }
        for host in self.over.iter().filter(|host| !self.released.contains(host)) {
            assert!(self.refused.refuses(*host), "{host} is not refused: {self:#?}");
        }
        for host in self.hosts.keys() {
            assert!(table.require(*host).is_ok(), "{host} goes on without a lease: {self:#?}");
        }
    }
}
