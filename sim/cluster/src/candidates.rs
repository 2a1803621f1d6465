//! Two or three candidates in place of the one monitor, and the registry between them (`docs/leadership.md`).
//!
//! They are the machines of `core/registrar`. What is simulated is what is around them: the registry, each one's way to it, the network
//! between them, and the file with the mark of what each has seen. Nodes send what they have for the monitor to all candidates, and all that
//! a candidate sends comes from the monitor. The description of the array is in the registry: administrators have it replaced by the leader.
//! Beside them, other processes ask the leader ([`crate::leader_clients`]).
//!
//! The checks here know true time, and when each term was won in the registry. The other checks of the attack apply as with one monitor.

use crate::candidacy::{Candidacy, Said, node_of, number_of};
use crate::control::administrator_state::Name;
use crate::failed::{Failed, failed};
use crate::leader_clients::{Administrator, ClientEvent, DescriptionChange, LeaderClients, Sent, TICK, UNANSWERED};
use crate::prelude::*;
use crate::role::{Role, RoleRequest, leader};
use braid_control_protocol::{Answer as ControlAnswer, Tag};
use braid_description::ArrayDescription;
use braid_leadership::times::longer;
use braid_leadership::{Answer, CandidateId, Head, Mark, Times};
use braid_membership::MonitorConfig;
use braid_registrar::{Change, Content, Found, Input, Key, Keys, Outgoing, Registrar, RequestId};
use braid_world::{Arrived, Operation, Registry, RegistryAnswer, RegistryCall, RegistryPath, Verdict};

/// The leases of an array with several candidates are no shorter.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);
/// The first of the alarms by which calls of the registry and messages between candidates arrive. Those of the control plane are above.
const TOKENS: u64 = 1 << 61;

/// The surroundings of the candidates of a run.
pub(crate) struct Candidates {
    registry: Registry<Head>,
    /// The other keys of the registry, as they are with its head.
    keys: Keys,
    /// The description of each revision that the registry has had.
    history: BTreeMap<u64, ArrayDescription>,
    /// The last generation that was given, according to the registry.
    last_given: Generation,
    clients: LeaderClients,
    /// What the control plane is to be told: the description was replaced, or a command is answered.
    pub told: Vec<Told>,
    places: Vec<Place>,
    events: BTreeMap<u64, Event>,
    last: u64,
    /// When each term was won, and whether the one before it had ended in order.
    wins: BTreeMap<u64, (Time, bool)>,
    rng: Rng,
    pub failed: Option<Failed>,
}

/// One candidate, over all its lives.
#[derive(Default)]
struct Place {
    life: u64,
    /// The file with the mark.
    seen: Option<Mark>,
    /// When each question about an ownership first arrived in this life.
    asked: BTreeMap<(NodeId, u64), Time>,
    /// The last term that it was seen to begin, and when, by its own clock.
    began: Option<(u64, Time)>,
    /// How often it has answered or granted something when another one had won.
    said_late: u64,
}

/// Something that arrives. Answers are for one life of a candidate.
enum Event {
    Call { of: (usize, u64), name: Outgoing, call: RegistryCall<Head> },
    Input { of: (usize, u64), input: Input },
    Message { to: usize, input: Input },
    Client { event: ClientEvent },
}

/// What the control plane is told.
pub(crate) enum Told {
    Description(Box<ArrayDescription>),
    Answer(Name, Tag, ControlAnswer),
}

impl Candidates {
    /// `content`: what the registry has first.
    pub fn new(count: u16, content: &Content, mut rng: Rng, clients: Rng) -> Candidates {
        let ids = (0..count).map(CandidateId).collect();
        let mut keys = Keys::new();
        let changes = content.changes().expect("a new array has few keys");
        changes.into_iter().for_each(|change| change.make(&mut keys));
        Candidates {
            registry: Registry::new(Head::first(ids), count.into(), rng.fork()),
            keys,
            history: [(content.description.revision, content.description.clone())].into(),
            last_given: content.last,
            clients: LeaderClients::new(clients),
            told: Vec::new(),
            places: (0..count).map(|_| Place::default()).collect(),
            events: BTreeMap::new(),
            last: 0,
            wins: BTreeMap::new(),
            rng,
            failed: None,
        }
    }

    /// Processes ask the leader from now on.
    pub fn begin(&mut self, world: &mut World<Role>) {
        self.later(world, world.now().after(TICK), Event::Client { event: ClientEvent::Tick });
    }

    /// The description in the registry.
    pub fn description(&self) -> &ArrayDescription {
        self.history.last_key_value().expect("there is one").1
    }

    /// Has the description changed, by asking for that until it is so.
    pub fn change(&mut self, change: DescriptionChange) {
        self.clients.changes.push_back(change);
    }

    /// True if a change is still to be made.
    pub fn is_changing(&self) -> bool {
        !self.clients.changes.is_empty()
    }

    /// An administrator asks the leader to replace the description.
    pub fn replace(&mut self, world: &mut World<Role>, next: Box<ArrayDescription>, by: Administrator) {
        let sent = self.clients.replace(world.now(), next, Some(by));
        self.later(world, world.now().after(UNANSWERED), Event::Client { event: ClientEvent::GiveUp(sent.id) });
        self.send(world, sent);
    }

    fn send(&mut self, world: &mut World<Role>, Sent { id, request, after }: Sent) {
        if let Some(after) = after {
            let event = ClientEvent::Request(id, request);
            self.later(world, world.now().after(after), Event::Client { event });
        }
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.places.len() as u16).map(node_of)
    }

    /// The way of one candidate to the registry.
    pub fn path(&mut self, candidate: usize) -> &mut RegistryPath {
        &mut self.registry.paths[candidate]
    }

    /// The last term of the registry.
    pub fn term(&self) -> u64 {
        self.registry.value().term
    }

    /// The registry, to be disturbed as a whole.
    pub fn registry(&mut self) -> &mut Registry<Head> {
        &mut self.registry
    }

    /// All faults of the registry end.
    pub fn heal(&mut self) {
        self.registry.paths.fill(RegistryPath::default());
        (self.registry.outages, self.registry.is_full) = (0, false);
    }

    /// All faults of processes that ask the leader end.
    pub fn heal_clients(&mut self) {
        self.clients.has_faults = false;
    }

    /// How many terms there were, and what was said at times when another one had been won.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let ends = self.wins.values().filter(|(_, in_order)| *in_order).count() as u64;
        let late = self.places.iter().map(|place| place.said_late).sum();
        let own = [
            ("term begun", self.wins.len() as u64),
            ("term ended in order", ends),
            ("former leader said something", late),
        ];
        own.into_iter().chain(self.clients.counts.iter().map(|(what, count)| (*what, *count))).collect()
    }

    /// The machine of a candidate that starts.
    pub fn start(&mut self, now: Time, node: NodeId, config: MonitorConfig) -> Candidacy {
        let number = number_of(node).expect("only candidates are started here");
        let place = &mut self.places[number];
        // The file may be lost.
        let seen = place.seen.filter(|_| self.rng.chance(3, 4));
        *place = Place { life: place.life + 1, seen, said_late: place.said_late, ..Place::default() };
        let registrar = Registrar::new(now, CandidateId(number as u16), config, self.rng.fork(), seen);
        Candidacy::new(registrar)
    }

    /// Handles an event of the world. True if it is over with that.
    pub fn on_event(&mut self, world: &mut World<Role>, event: &WorldEvent) -> bool {
        match event {
            WorldEvent::Alarm(token) => match self.events.remove(token) {
                Some(event) => self.arrive(world, event),
                None => return false,
            },
            WorldEvent::Stepped(node) => {
                if let Some(number) = number_of(*node) {
                    self.on_step(world, number);
                }
                return false;
            }
            _ => return false,
        }
        true
    }

    fn later(&mut self, world: &mut World<Role>, at: Time, event: Event) {
        self.last += 1;
        self.events.insert(TOKENS + self.last, event);
        world.alarm(at, TOKENS + self.last);
    }

    /// A candidate has taken a step.
    fn on_step(&mut self, world: &mut World<Role>, number: usize) {
        let (now, node) = (world.now(), node_of(number as u16));
        let local = world.local(node).expect("the node is in the world").time;
        let Some(Role::Candidate(candidacy)) = world.machine_mut(node) else { return };
        let (outgoing, said) = (std::mem::take(&mut candidacy.outgoing), std::mem::take(&mut candidacy.said));
        self.places[number].seen = candidacy.registrar.seen();
        let leads = candidacy.registrar.leads();
        let outcome = check(&mut self.places[number], &self.wins, (now, local), leads, &said);
        self.failed = self.failed.take().or(outcome.err());
        let of = (number, self.places[number].life);
        for name in outgoing {
            let operation = match &name {
                Outgoing::Send { to, message } => {
                    let (to, from) = (usize::from(to.0), CandidateId(number as u16));
                    for flight in world.network.carry(now, node, node_of(to as u16), Verdict::Pass) {
                        let input = Input::Message { from, message: *message };
                        if !flight.damaged {
                            self.later(world, flight.at, Event::Message { to, input });
                        }
                    }
                    continue;
                }
                Outgoing::Reply { id, outcome } => {
                    if let Some(after) = self.clients.way() {
                        let event = ClientEvent::Reply(id.0, outcome.clone());
                        self.later(world, now.after(after), Event::Client { event });
                    }
                    continue;
                }
                Outgoing::Swap { expected, head, .. } => {
                    Operation::Swap { expected: expected.clone(), value: head.clone() }
                }
                Outgoing::Read { .. } | Outgoing::ReadAll { .. } => Operation::Read,
            };
            if let Some((at, call)) = self.registry.send(now, number, operation) {
                self.later(world, at, Event::Call { of, name, call });
            }
        }
    }

    fn arrive(&mut self, world: &mut World<Role>, event: Event) {
        let now = world.now();
        match event {
            Event::Call { of, name, call } => match self.registry.arrive(now, call) {
                Arrived::Later(at, call) => self.later(world, at, Event::Call { of, name, call }),
                Arrived::Answered(answer, at) => {
                    if let (RegistryAnswer::Swapped, Outgoing::Swap { expected, head, changes, .. }) = (&answer, &name)
                    {
                        self.swapped(now, expected, head, changes.clone());
                    }
                    let input = self.answer(name, answer);
                    if let Some(at) = at {
                        self.later(world, at, Event::Input { of, input });
                    }
                }
            },
            Event::Input { of: (number, life), input } if self.places[number].life == life => {
                tell(world, number, input)
            }
            Event::Input { .. } => {}
            Event::Message { to, input } => tell(world, to, input),
            Event::Client { event } => self.on_client_event(world, event),
        }
    }

    fn on_client_event(&mut self, world: &mut World<Role>, event: ClientEvent) {
        let now = world.now();
        match event {
            ClientEvent::Tick => {
                let truth = self.description().clone();
                let all = self.clients.tick(now, &truth);
                all.into_iter().for_each(|sent| self.send(world, sent));
                self.begin(world);
            }
            ClientEvent::Request(id, request) => {
                let leads = leader(world).and_then(|(node, ..)| number_of(node));
                let to = self.clients.whom(leads, self.places.len());
                tell(world, to, Input::Request { id: RequestId(id), request });
            }
            ClientEvent::Reply(id, outcome) => {
                match self.clients.on_reply(now, id, outcome, (&self.history, self.last_given)) {
                    Ok(told) => self.told.extend(told.map(|(by, tag, answer)| Told::Answer(by, tag, answer))),
                    Err(failure) => drop(self.failed.get_or_insert(failure)),
                }
            }
            ClientEvent::GiveUp(id) => {
                let given_up = self.clients.give_up(id);
                self.told.extend(given_up.map(|(by, tag)| Told::Answer(by, tag, ControlAnswer::Unknown)));
            }
        }
    }

    /// A swap has taken effect.
    fn swapped(&mut self, now: Time, expected: &Head, head: &Head, changes: Vec<Change>) {
        if head.term != expected.term {
            self.wins.insert(head.term, (now, expected.leader.is_none()));
        }
        let is_of_array = changes.iter().any(|change| change.key == Key::Array);
        changes.into_iter().for_each(|change| change.make(&mut self.keys));
        if is_of_array {
            let content = Content::of(&self.keys).expect("it was written by a registrar");
            self.last_given = content.last;
            let next = content.description;
            let before = self.description().revision;
            if next.revision > before {
                self.told.push(Told::Description(Box::new(next.clone())));
            }
            if next.revision > before + 1 || next.revision < before {
                let details = format!("revision {} follows {before}", next.revision);
                self.failed.get_or_insert(Failed { check: "description-lost", details });
            }
            self.history.insert(next.revision, next);
        }
    }

    /// What the candidate hears of a call that has taken effect.
    fn answer(&self, name: Outgoing, answer: RegistryAnswer<Head>) -> Input {
        match (name, answer) {
            (Outgoing::ReadAll { read }, RegistryAnswer::Value(head)) => {
                Input::Found { read, found: Some(Found { head, keys: self.keys.clone() }) }
            }
            (Outgoing::ReadAll { read }, _) => Input::Found { read, found: None },
            (Outgoing::Read { call } | Outgoing::Swap { call, .. }, answer) => {
                let answer = match answer {
                    RegistryAnswer::Value(head) => Answer::Head(Some(head)),
                    RegistryAnswer::Swapped => Answer::Swapped,
                    RegistryAnswer::Differs(head) => Answer::Differs(head),
                    RegistryAnswer::Failed => Answer::Failed,
                };
                Input::Answer { call, answer }
            }
            (Outgoing::Send { .. } | Outgoing::Reply { .. }, _) => unreachable!("it is no call"),
        }
    }
}

/// Checks what a candidate has said in a step. `wins`: when each term was won in the registry.
fn check(
    place: &mut Place,
    wins: &BTreeMap<u64, (Time, bool)>,
    (now, local): (Time, Time),
    leads: Option<(&Head, &Monitor)>,
    said: &[(u64, Said)],
) -> Result<(), Failed> {
    if let Some((head, _)) = leads.filter(|(head, _)| place.began.is_none_or(|(term, _)| term != head.term)) {
        place.began = Some((head.term, local));
    }
    for (term, said) in said {
        let next = wins.range(term + 1..).next().filter(|_| *term > 0);
        place.said_late += u64::from(next.is_some());
        match (*said, next) {
            (Said::Question(host, ticket), _) => drop(place.asked.entry((host, ticket)).or_insert(now)),
            (Said::Answered(host, ticket), next) => {
                let asked = place.asked.remove(&(host, ticket));
                if let (Some(asked), Some((next, (won, _)))) = (asked, next)
                    && asked >= *won
                {
                    let details = format!("{host} asked at {asked:?}, term {term} answers; {next} won at {won:?}");
                    return failed("answered-by-a-former-leader", details);
                }
            }
            (Said::Granted, next) => {
                // The doubt is measured by the clock of the leader.
                let doubt = longer(Times::default().doubt);
                let last = |(won, in_order): (Time, bool)| won.after(if in_order { Duration::ZERO } else { doubt });
                if let Some((next, won)) = next.filter(|(_, won)| now > last(**won)) {
                    return failed("granted-by-a-former-leader", format!("term {term}; {next} won: {won:?}"));
                }
                let is_new = place.began.is_some_and(|(_, began)| local < began.after(4 * HEARTBEAT));
                let may_wait = |monitor: &Monitor| {
                    let follows = monitor.term().is_some_and(|term| term.follows);
                    is_new && !follows && monitor.leases().any(|lease| lease.heard.is_none())
                };
                if leads.is_some_and(|(_, monitor)| may_wait(monitor)) {
                    return failed("granted-before-all-were-heard", format!("by term {term}"));
                }
            }
        }
    }
    Ok(())
}

/// A candidate takes this input, if it is up.
fn tell(world: &mut World<Role>, number: usize, input: Input) {
    world.request(node_of(number as u16), OpId::front_end(0), RoleRequest::Registrar(Box::new(input)));
}
