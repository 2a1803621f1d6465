//! Visiting every world that can come about; and administrators in such worlds, with lost answers, late effects and deaths.

use crate::*;
pub use braid_base::{DeviceId, Epoch, Generation, Time, VolumeId};
pub use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
pub use std::time::Duration;

/// A small world.
pub trait Explored: Clone + Debug {
    type Event;

    /// What may happen next.
    fn events(&self) -> Vec<Self::Event>;

    fn happen(&mut self, event: Self::Event);

    /// Takes out how operations have ended: what was seen before does not distinguish worlds.
    fn take_ends(&mut self) -> BTreeSet<String>;
}

/// Visits every world that can come about, and checks those in which nothing can happen any more. Returns how operations ended, and which
/// stages they reached.
pub fn explore<W: Explored>(world: W, at_rest: impl Fn(&W)) -> BTreeSet<String> {
    let look = |world: &W| {
        let mut world = world.clone();
        let ends = world.take_ends();
        let mut hasher = DefaultHasher::new();
        format!("{world:?}").hash(&mut hasher);
        (hasher.finish(), ends)
    };
    let (fingerprint, mut ends) = look(&world);
    let (mut visited, mut next) = (BTreeSet::from([fingerprint]), vec![world]);
    while let Some(world) = next.pop() {
        let events = world.events();
        if events.is_empty() {
            at_rest(&world);
        }
        for event in events {
            let mut after = world.clone();
            after.happen(event);
            let (fingerprint, seen) = look(&after);
            ends.extend(seen);
            if visited.insert(fingerprint) {
                next.push(after);
            }
        }
    }
    println!("{} worlds, {ends:?}", visited.len());
    ends
}

#[track_caller]
pub fn ends_with(ends: &BTreeSet<String>, expected: &[&str]) {
    for end in expected {
        assert!(ends.iter().any(|found| found.contains(end)), "{end} never happened: {ends:?}");
    }
}

/// The administrators of a small world, what they have asked, and the leases of their hosts and of others.
#[derive(Clone, Debug, Default)]
pub struct Administrators {
    pub living: BTreeMap<Generation, Administrator>,
    pub leases: BTreeMap<Generation, Lease>,
    /// Hosts that the rest of the array refuses.
    pub fenced: BTreeSet<Generation>,
    /// Questions that may take effect late; nobody waits for an answer.
    pub stray: Vec<(Generation, Asked)>,
    /// How operations have ended.
    pub ends: BTreeSet<String>,
    /// So many answers may still be lost, so many questions fail, so many administrators die, and so many hosts be silent.
    pub lost: u32,
    pub failures: u32,
    pub deaths: u32,
    pub silences: u32,
}

impl Administrators {
    /// None yet, with so many lost answers, failures of questions, deaths, and silences.
    pub fn with(lost: u32, failures: u32, deaths: u32, silences: u32) -> Administrators {
        Administrators { lost, failures, deaths, silences, ..Default::default() }
    }

    pub fn is_live(&self, host: Generation) -> bool {
        self.leases.get(&host).is_some_and(|lease| !lease.is_silent)
    }

    pub fn silence(&mut self, host: Generation) {
        if let Some(lease) = self.leases.get_mut(&host) {
            lease.is_silent = true;
        }
    }

    pub fn fence(&mut self, Fence { below, except }: &Fence) -> Answer {
        self.fenced.extend((0..below.0).map(Generation).filter(|host| !except.contains(host)));
        Answer::Yes
    }

    /// The answer to a command about leases.
    pub fn on_command(&mut self, command: &Command, uses_volumes: impl Fn(Generation) -> bool) -> Answer {
        match command {
            Command::ListHosts => {
                let as_seen = |(host, lease): (&Generation, &Lease)| HostLease {
                    host: *host,
                    is_live: !lease.is_silent,
                    uses_volumes: uses_volumes(*host),
                    confirmed: lease.confirmed,
                };
                Answer::Hosts(self.leases.iter().map(as_seen).collect())
            }
            Command::EndLease { host } if self.is_live(*host) => Answer::Lease(LeaseEnd::Lives),
            Command::EndLease { host } => {
                let except = self.leases.keys().copied().filter(|other| other < host).collect();
                // The process can't renew its lease; it may go on, and ask devices.
                if let Some(lease) = self.leases.get_mut(host) {
                    lease.is_over = true;
                }
                Answer::Lease(LeaseEnd::Ended(Fence { below: Generation(host.0 + 1), except }))
            }
            Command::ForgetLease { host } => {
                assert!(self.fenced.contains(host), "{host} is forgotten when it is fenced");
                self.leases.remove(host);
                Answer::Yes
            }
            other => panic!("not a command about leases: {other:?}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Administrator {
    pub operation: Operation,
    pub pending: BTreeMap<Tag, Asked>,
    now: Time,
}

#[derive(Clone, Debug)]
pub struct Asked {
    pub question: Question,
    /// See [`Administered::ticket`].
    pub ticket: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Lease {
    pub confirmed: Version,
    /// Others take it for overdue, whether or not its process goes on.
    pub is_silent: bool,
    /// It can't be renewed any more.
    pub is_over: bool,
}

/// What may happen next in a world with administrators.
#[derive(Clone, Copy, Debug)]
pub enum Event<E> {
    Answer(Generation, Tag),
    Lose(Generation, Tag),
    Fail(Generation, Tag),
    Stray(usize),
    Wake(Generation),
    Die(Generation),
    Silence(Generation),
    Other(E),
}

/// The administrators of a world that has them in a field of this name.
macro_rules! has_administrators {
    () => {
        fn administrators(&self) -> &Administrators {
            &self.administrators
        }

        fn administrators_mut(&mut self) -> &mut Administrators {
            &mut self.administrators
        }
    };
}
pub(super) use has_administrators;

/// A small world with administrators. It says what questions do, and what else happens.
pub trait Administered: Clone + Debug {
    type Event;

    /// True if the stages that operations reach count as ends.
    const NOTES_STAGES: bool = false;

    fn administrators(&self) -> &Administrators;

    fn administrators_mut(&mut self) -> &mut Administrators;

    /// What may happen besides.
    fn other_events(&self) -> Vec<Self::Event>;

    fn other_happens(&mut self, event: Self::Event);

    /// What a question does, and its answer.
    fn perform(&mut self, own: Generation, asked: &Asked) -> Answer;

    /// True if the answer to the question may be lost: it changes something, so that it matters when it takes effect.
    fn may_be_lost(question: &Question) -> bool;

    /// True if the question may fail, without an effect.
    fn may_fail(_question: &Question) -> bool {
        true
    }

    /// True if the question may take effect after the death of whoever asked it.
    fn outlives(_question: &Question) -> bool {
        true
    }

    /// The number of a question, where the world needs one.
    fn ticket(&mut self, _question: &Question) -> u64 {
        0
    }

    fn may_wake(&self, _own: Generation) -> bool {
        true
    }

    /// By how much an administrator that waits wakes after its deadline. None: no time passes, it only looks again.
    fn passes(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn woken(&mut self, _own: Generation) {}

    fn died(&mut self) {}

    fn ended(&mut self, _own: Generation, _administrator: Administrator, _result: &Result<Done, Error>) {}

    /// True if the question can be answered now.
    fn has_answer(&self, _question: &Question) -> bool {
        true
    }

    /// Asserts what must hold at every moment.
    fn check(&self) {}

    fn begin(&mut self, own: Generation, operation: impl Into<Operation>) {
        let administrator = Administrator { operation: operation.into(), pending: BTreeMap::new(), now: Time(0) };
        let administrators = self.administrators_mut();
        administrators.leases.entry(own).or_default();
        administrators.living.insert(own, administrator);
        self.give(own, Input::Start);
    }

    fn living(&mut self, own: Generation) -> &mut Administrator {
        self.administrators_mut().living.get_mut(&own).expect("it lives")
    }

    fn give(&mut self, own: Generation, input: Input) {
        let Administrator { operation, now, .. } = self.living(own);
        let mut ended = None;
        for effect in operation.step(*now, input) {
            match effect {
                Effect::Ask { tag, question } => {
                    let ticket = self.ticket(&question);
                    self.living(own).pending.insert(tag, Asked { question, ticket });
                }
                Effect::Began(stage) if Self::NOTES_STAGES => {
                    self.administrators_mut().ends.insert(format!("{stage:?}"));
                }
                Effect::Began(_) => {}
                Effect::Ended(result) => ended = Some(result),
            }
        }
        if let Some(result) = ended {
            let administrator = self.administrators_mut().living.remove(&own).expect("it lives");
            self.ended(own, administrator, &result);
            self.administrators_mut().ends.insert(format!("{result:?}"));
        } else {
            let Administrator { operation, pending, .. } = self.living(own);
            assert!(!pending.is_empty() || operation.deadline().is_some(), "it neither asks nor waits: {operation:?}");
        }
    }
}

impl<W: Administered> Explored for W {
    type Event = Event<W::Event>;

    fn events(&self) -> Vec<Self::Event> {
        let Administrators { living, leases, stray, lost, failures, deaths, silences, .. } = self.administrators();
        let mut events: Vec<_> = self.other_events().into_iter().map(Event::Other).collect();
        for (own, administrator) in living {
            for (tag, asked) in &administrator.pending {
                if self.has_answer(&asked.question) {
                    events.push(Event::Answer(*own, *tag));
                }
                if *lost > 0 && W::may_be_lost(&asked.question) {
                    events.push(Event::Lose(*own, *tag));
                }
                if *failures > 0 && W::may_fail(&asked.question) {
                    events.push(Event::Fail(*own, *tag));
                }
            }
            if administrator.operation.deadline().is_some() && self.may_wake(*own) {
                events.push(Event::Wake(*own));
            }
            if *deaths > 0 {
                events.push(Event::Die(*own));
            }
        }
        events.extend((0..stray.len()).map(Event::Stray));
        let heard = leases.iter().filter(|(_, lease)| *silences > 0 && !lease.is_silent);
        events.extend(heard.map(|(host, _)| Event::Silence(*host)));
        events
    }

    fn happen(&mut self, event: Self::Event) {
        match event {
            Event::Answer(own, tag) => {
                let asked = self.living(own).pending.remove(&tag).expect("it was asked");
                let answer = self.perform(own, &asked);
                self.give(own, Input::Answer { tag, answer });
            }
            Event::Lose(own, tag) => {
                let asked = self.living(own).pending.remove(&tag).expect("it was asked");
                let administrators = self.administrators_mut();
                administrators.lost -= 1;
                administrators.stray.push((own, asked));
                self.give(own, Input::Answer { tag, answer: Answer::Unknown });
            }
            Event::Fail(own, tag) => {
                self.administrators_mut().failures -= 1;
                self.living(own).pending.remove(&tag);
                self.give(own, Input::Answer { tag, answer: Answer::Failed });
            }
            Event::Stray(number) => {
                let (own, asked) = self.administrators_mut().stray.remove(number);
                self.perform(own, &asked);
            }
            Event::Wake(own) => {
                self.woken(own);
                let passes = self.passes();
                let Administrator { operation, now, .. } = self.living(own);
                let deadline = operation.deadline().expect("it waits");
                *now = (*now).max(deadline.after(passes.unwrap_or_default()));
                self.give(own, Input::Wake);
                if passes.is_none()
                    && let Some(administrator) = self.administrators_mut().living.get_mut(&own)
                {
                    administrator.now = Time(0);
                }
            }
            Event::Die(own) => {
                let administrators = self.administrators_mut();
                administrators.deaths -= 1;
                let left = administrators.living.remove(&own).expect("it lives").pending.into_values();
                let left = left.filter(|asked| W::outlives(&asked.question));
                administrators.stray.extend(left.map(|asked| (own, asked)));
                administrators.silence(own);
                self.died();
            }
            Event::Silence(host) => {
                let administrators = self.administrators_mut();
                administrators.silences -= 1;
                administrators.silence(host);
            }
            Event::Other(event) => self.other_happens(event),
        }
        self.check();
    }

    fn take_ends(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.administrators_mut().ends)
    }
}
