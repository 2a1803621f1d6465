//! Clients and requests in time. Clients are procedures and not machines, so they use the simulator's event queue, but not its loop.
//!
//! A seed determines everything: the delays of requests and answers, which of them are lost, and which clients crash.
//!
//! ```text
//!   client ──Ask──▶ (late, or never) ──▶ executed atomically, or refused: Busy ──▶ answer (late, or lost: Unknown)
//! ```
//!
//! A request for which a client was told [`RequestFailure::Unknown`] may still be executed, until a later request of the client is. The
//! request of a crashed client may be executed much later. Clients' clocks show different times, and run slightly fast or slow.

use super::doing::{Doing, Me, Running, Wants, doing};
use super::space::Space;
use braid_base::{ObjectId, Rng, Time};
use braid_recipes::{Answer, Next, RequestFailure};
use braid_wire::{AttributeName, ObjectFailure, ObjectRequest};
use braid_world::EventQueue;
use bytes::Bytes;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::time::Duration;

/// The rates of faults, per thousand where nothing else is said.
#[derive(Clone, Copy, Debug)]
pub struct FaultRates {
    /// The longest delay of a request, and of its answer.
    pub delay: Duration,
    /// A request, an answer or a wait takes up to `straggle` instead.
    pub straggling: u64,
    /// The longest delay of those.
    pub straggle: Duration,
    /// The answer to a request is lost; the request was executed or not.
    pub unknown: u64,
    /// When a client is told that an answer is lost.
    pub unknown_after: Duration,
    /// A request is refused as if the device were busy.
    pub busy: u64,
    /// A wait for an attribute is refused, forgotten until its end, or ended early.
    pub awaits: u64,
    /// A client crashes, at each of its steps.
    pub death: u64,
    /// The largest deviation of a clock's rate, in millionths.
    pub drift: u64,
}

/// No faults.
pub const CALM: FaultRates = FaultRates {
    delay: Duration::from_millis(1),
    straggling: 0,
    straggle: Duration::from_secs(0),
    unknown: 0,
    unknown_after: Duration::from_secs(2),
    busy: 0,
    awaits: 0,
    death: 0,
    drift: 0,
};

/// All kinds of faults.
pub const ROUGH: FaultRates = FaultRates {
    delay: Duration::from_millis(20),
    straggling: 30,
    straggle: Duration::from_secs(20),
    unknown: 50,
    unknown_after: Duration::from_secs(2),
    busy: 50,
    awaits: 100,
    death: 10,
    drift: 20_000,
};

/// The device is cut off, and clients are willing to wait long for an answer.
pub const SILENT: FaultRates = FaultRates { unknown: 1000, unknown_after: Duration::from_secs(3600), ..CALM };

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Alive,
    /// It has finished.
    Through,
    Dead,
}

pub struct World<L> {
    pub space: Space,
    observed: Rc<RefCell<L>>,
    /// True time, which no client sees.
    pub now: Time,
    /// The present rates of faults.
    pub rates: FaultRates,
    /// The rates at the beginning.
    began: FaultRates,
    seed: u64,
    pub(super) rng: Rng,
    pub(super) clients: Vec<Client>,
    events: EventQueue<Event>,
    watchers: Vec<Watcher>,
    after_each: Option<Look<L>>,
    trace: Vec<Line>,
}

/// An event of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    at: Time,
    client: usize,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Done(ObjectRequest, Answer),
    Lost(ObjectRequest),
    Dies,
}

type Look<L> = Box<dyn FnMut(&mut L, &Space)>;

pub(super) struct Client {
    /// None once it has crashed.
    program: Option<Running>,
    pub(super) fate: Fate,
    pub(super) immortal: bool,
    offset: u64,
    drift: i64,
    /// Counts the client's steps: events for an earlier step are dropped.
    pub(super) step: u64,
    /// The step of the last executed request: no request of an earlier step is executed after it.
    done: u64,
}

enum Event {
    Do { client: usize, step: u64, request: ObjectRequest, answer: bool },
    Tell { client: usize, step: u64, answer: Answer },
}

struct Watcher {
    client: usize,
    step: u64,
    object: ObjectId,
    name: AttributeName,
    seen: Bytes,
    deaf: bool,
}

impl<L> World<L> {
    /// A world with this seed and these objects.
    pub fn new(seed: u64, rates: FaultRates, objects: &[ObjectId], observed: L) -> World<L> {
        World {
            space: Space::with(objects),
            observed: Rc::new(RefCell::new(observed)),
            now: Time(0),
            rates,
            began: rates,
            seed,
            rng: Rng::new(seed),
            clients: Vec::new(),
            events: EventQueue::default(),
            watchers: Vec::new(),
            after_each: None,
            trace: Vec::new(),
        }
    }

    /// Checks the objects after every executed request.
    pub fn after_each(&mut self, look: impl FnMut(&mut L, &Space) + 'static) {
        self.after_each = Some(Box::new(look));
    }

    /// The record of the test.
    pub fn observed(&self) -> RefMut<'_, L> {
        self.observed.borrow_mut()
    }

    /// Adds a client with this program; returns its number.
    pub fn client<F>(&mut self, program: impl FnOnce(Me<L>) -> F + 'static) -> usize
    where
        F: Future<Output = ()> + 'static,
    {
        self.add(doing(program))
    }

    pub(super) fn add(&mut self, doing: Doing<L>) -> usize {
        let (number, drift) = (self.clients.len(), self.rates.drift as i64);
        let offset = self.rng.below(1 << 40);
        let drift = self.rng.below(2 * drift as u64 + 1) as i64 - drift;
        let program = Some(Running::begin(doing, number, self.rng.fork(), self.observed.clone()));
        self.clients.push(Client { program, fate: Fate::Alive, immortal: false, offset, drift, step: 0, done: 0 });
        self.tell(number, 0, Answer::None);
        number
    }

    /// Adds a client that does not crash at random.
    pub fn immortal<F>(&mut self, program: impl FnOnce(Me<L>) -> F + 'static) -> usize
    where
        F: Future<Output = ()> + 'static,
    {
        let number = self.client(program);
        self.clients[number].immortal = true;
        number
    }

    /// Crashes a client; its last request may still be executed.
    pub fn kill(&mut self, client: usize) {
        self.clients[client].fate = Fate::Dead;
        self.clients[client].program = None;
        self.watchers.retain(|watcher| watcher.client != client);
    }

    /// The state of a client.
    pub fn fate(&self, client: usize) -> Fate {
        self.clients[client].fate
    }

    /// Runs until no client has anything to do, and nothing is on its way. Fails after half a day of virtual time.
    pub fn run(&mut self) {
        let end = self.now.after(Duration::from_secs(43_200));
        while let Some((time, event)) = self.events.pop() {
            assert!(time < end, "clients are still running after half a day");
            self.happen(time, event);
        }
        assert!(
            self.clients.iter().all(|client| client.fate != Fate::Alive),
            "a client waits, and no event will wake it"
        );
    }

    pub fn run_for(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some((time, event)) = self.events.pop_until(end) {
            self.happen(time, event);
        }
        self.now = end;
    }

    /// The trace, one event per line: the same for the same seed.
    pub fn trace(&self) -> &[Line] {
        &self.trace
    }

    fn happen(&mut self, time: Time, event: Event) {
        if let Event::Tell { client, step, .. } = event
            && self.clients[client].step != step
        {
            return;
        }
        self.now = self.now.max(time);
        match event {
            Event::Do { client, step, request, answer } => {
                if step < self.clients[client].done {
                    return;
                }
                let done = if self.rng.chance(self.rates.busy, 1000) {
                    Answer::RequestFailure(RequestFailure::Refused(ObjectFailure::Busy))
                } else {
                    self.clients[client].done = step;
                    self.execute(client, &request)
                };
                self.tell_watchers();
                if answer {
                    self.tell(client, step, done);
                }
            }
            Event::Tell { client, answer, .. } => {
                if self.clients[client].fate == Fate::Alive {
                    self.watchers.retain(|watcher| watcher.client != client);
                    self.advance(client, answer);
                }
            }
        }
    }

    /// Executes a request at once.
    pub(super) fn execute(&mut self, client: usize, request: &ObjectRequest) -> Answer {
        let answer = self.space.answer(request);
        self.note(client, What::Done(request.clone(), answer.clone()));
        if let Some(look) = &mut self.after_each {
            look(&mut self.observed.borrow_mut(), &self.space);
        }
        answer
    }

    fn advance(&mut self, client: usize, answer: Answer) {
        if let Some((wants, delay)) = self.step(client, answer) {
            if !self.clients[client].immortal && self.rng.chance(self.rates.death, 1000) {
                self.die_at(client, wants);
                return;
            }
            self.perform(client, wants, delay);
        }
    }

    /// The client's next step; none if it has finished.
    pub(super) fn step(&mut self, client: usize, answer: Answer) -> Option<Wants> {
        let now = self.clock(client);
        let of = &mut self.clients[client];
        of.step += 1;
        let wants = of.program.as_mut().expect("it lives").step(now, self.now, answer);
        if wants.is_none() {
            of.fate = Fate::Through;
        }
        wants
    }

    /// The client crashes at this step: its request is executed or not, now or much later.
    fn die_at(&mut self, client: usize, wants: Next<()>) {
        self.note(client, What::Dies);
        if let Next::Ask { request, .. } = wants
            && self.rng.chance(1, 2)
        {
            let on_its_way = if self.rng.chance(1, 2) { self.delay() } else { self.straggle() };
            let step = self.clients[client].step;
            self.schedule(on_its_way, Event::Do { client, step, request, answer: false });
        }
        self.kill(client);
    }

    fn perform(&mut self, client: usize, wants: Next<()>, delay: Option<Duration>) {
        let step = self.clients[client].step;
        match wants {
            Next::Ask { request, patience } => {
                let mut on_its_way = delay.unwrap_or_else(|| self.delay());
                let lost = self.rng.chance(self.rates.unknown, 1000);
                let mut gives_up = (patience < Duration::MAX).then(|| self.true_span(client, patience));
                if lost {
                    self.note(client, What::Lost(request.clone()));
                    gives_up = Some(gives_up.map_or(self.rates.unknown_after, |end| end.min(self.rates.unknown_after)));
                    on_its_way = if self.rng.chance(1, 4) { self.straggle() } else { on_its_way };
                }
                if let Some(after) = gives_up {
                    let answer = Answer::RequestFailure(RequestFailure::Unknown);
                    self.schedule(after, Event::Tell { client, step, answer });
                }
                if !lost || self.rng.chance(1, 2) {
                    self.schedule(on_its_way, Event::Do { client, step, request, answer: !lost });
                }
            }
            Next::Sleep(span) => {
                let over = self.true_span(client, span) + self.late();
                self.schedule(over, Event::Tell { client, step, answer: Answer::None });
            }
            Next::Await { object, name, seen, patience } => {
                let failure = self.rng.chance(self.rates.awaits, 1000);
                let kind = self.rng.below(3);
                let refused = |failure| Answer::RequestFailure(RequestFailure::Refused(failure));
                if failure && kind == 0 {
                    return self.tell(client, step, refused(ObjectFailure::Busy));
                }
                if !self.space.objects().contains(&object) {
                    return self.tell(client, step, refused(ObjectFailure::NoSuchObject));
                }
                let value = self.space.value(object, name);
                if value != seen || failure && kind == 1 {
                    return self.tell(client, step, Answer::Value(value));
                }
                // If no event wakes it before, it is told the known value at the end: it has missed changes.
                let over = self.true_span(client, patience) + self.delay();
                self.schedule(over, Event::Tell { client, step, answer: Answer::Value(seen.clone()) });
                self.watchers.push(Watcher { client, step, object, name, seen, deaf: failure });
            }
            Next::Done(()) => unreachable!("the end of a procedure is the beginning of the next"),
        }
    }

    fn tell_watchers(&mut self) {
        let space = &self.space;
        let changed = |watcher: &Watcher| !watcher.deaf && space.value(watcher.object, watcher.name) != watcher.seen;
        let (woken, waiting) = std::mem::take(&mut self.watchers).into_iter().partition(changed);
        self.watchers = waiting;
        for Watcher { client, step, object, name, .. } in woken {
            let answer = Answer::Value(self.space.value(object, name));
            self.tell(client, step, answer);
        }
    }

    fn tell(&mut self, client: usize, step: u64, answer: Answer) {
        let back = self.delay();
        self.schedule(back, Event::Tell { client, step, answer });
    }

    /// The time by the client's clock.
    fn clock(&self, client: usize) -> Time {
        let Client { offset, drift, .. } = self.clients[client];
        let now = i128::from(self.now.0);
        Time(offset + (now + now * i128::from(drift) / 1_000_000) as u64)
    }

    fn true_span(&self, client: usize, span: Duration) -> Duration {
        span.mul_f64(1e6 / (1e6 + self.clients[client].drift as f64))
    }

    fn delay(&mut self) -> Duration {
        if self.rng.chance(self.rates.straggling, 1000) {
            return self.straggle();
        }
        Duration::from_nanos(self.rng.below(self.rates.delay.as_nanos() as u64 + 1))
    }

    fn straggle(&mut self) -> Duration {
        Duration::from_nanos(self.rng.below(self.rates.straggle.as_nanos() as u64 + 1))
    }

    /// The delay of a client's wake-up.
    fn late(&mut self) -> Duration {
        if self.rng.chance(self.rates.straggling, 1000) { self.straggle() } else { Duration::ZERO }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.events.push(self.now.after(after), event);
    }

    fn note(&mut self, client: usize, what: What) {
        self.trace.push(Line { at: self.now, client, what });
    }
}

/// On failure, prints the seed and the last events.
impl<L> Drop for World<L> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.trace.len().saturating_sub(30);
            self.trace[last..].iter().for_each(|line| eprintln!("{line:?}"));
            eprintln!("seed {} in {:?}", self.seed, self.began);
        }
    }
}
