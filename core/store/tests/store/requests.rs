//! Requests for objects that hold bytes and attributes, with a model of the answers: the same commands on a plain map, in the order of
//! the answers. That is the order of the calls, provided that all unanswered requests are sent again, in order, after a crash.

use crate::protocol::*;
use braid_objects::{evaluate, map_access};
use braid_wire::When;

/// A host of its own, so that its sequences differ from those of transactions.
const HOST: Generation = Generation(5);
const OBJECTS: u64 = 3;
const NAMES: u64 = 80;

#[derive(Default)]
pub struct Requests {
    model: BTreeMap<Key, Bytes>,
    next: u64,
    unanswered: BTreeMap<u64, ObjectRequest>,
    answered: BTreeMap<u64, (ObjectRequest, ObjectAnswer)>,
    /// The device may answer that it is full.
    pub may_be_full: bool,
    pub count: u64,
    pub refused: u64,
}

impl Requests {
    /// Sends a request, or repeats one, or settles some.
    pub fn step(&mut self, bench: &mut Bench, rng: &mut Rng) {
        match rng.below(8) {
            0 => self.ask_again(bench, rng),
            1 => self.forget(bench, rng),
            _ => self.ask(bench, some_request(rng)),
        }
    }

    /// All requests below the mark are answered.
    fn mark(&self) -> u64 {
        self.unanswered.keys().next().copied().unwrap_or(self.next + 1)
    }

    pub fn ask(&mut self, bench: &mut Bench, request: ObjectRequest) {
        self.next += 1;
        self.unanswered.insert(self.next, request.clone());
        assert!(self.send(bench, self.next, request), "the host waits for the request");
    }

    fn send(&self, bench: &mut Bench, sequence: u64, request: ObjectRequest) -> bool {
        let name = TransactionId { host: HOST, sequence };
        bench.store.execute(bench.now, name, self.mark(), Vec::new(), request, &mut bench.out)
    }

    /// Repeats an answered request: it is answered again, and not executed again.
    fn ask_again(&mut self, bench: &mut Bench, rng: &mut Rng) {
        if self.answered.is_empty() {
            return;
        }
        let nth = rng.below(self.answered.len() as u64) as usize;
        let (sequence, (request, _)) = self.answered.iter().nth(nth).expect("there are so many");
        // A request that only reads is executed again, and may have another answer.
        if !request.only_asks() {
            self.send(bench, *sequence, request.clone());
        }
    }

    /// The host knows all answers below its mark.
    fn forget(&mut self, bench: &mut Bench, rng: &mut Rng) {
        if rng.chance(1, 3) {
            let mark = self.mark();
            bench.store.settle(HOST, mark);
            self.answered = self.answered.split_off(&mark);
        }
    }

    pub fn on_executed(&mut self, name: TransactionId, answer: ObjectAnswer) {
        let Some(request) = self.unanswered.remove(&name.sequence) else {
            if let Some((_, before)) = self.answered.get(&name.sequence) {
                assert_eq!(&answer, before, "{name} has another answer the second time");
            }
            return;
        };
        self.count += 1;
        match answer {
            Err(ObjectRefusal { failure: ObjectFailure::Busy, .. }) => {
                self.refused += 1;
                return;
            }
            Err(ObjectRefusal { failure: ObjectFailure::NoSpace, .. }) if self.may_be_full => self.refused += 1,
            _ => {
                let expected = evaluate(&request, &mut self.model).expect("all of the model is in memory");
                assert!(answer == expected.answer, "{name}: the answer differs from the model");
                map_access::apply(&expected.changes, &mut self.model);
            }
        }
        self.answered.insert(name.sequence, (request, answer));
    }

    /// After a crash: sends all unanswered requests again, in order. Requests that only read are dropped, because they might see the
    /// effects of later ones.
    pub fn ask_all_again(&mut self, bench: &mut Bench) {
        self.unanswered.retain(|_, request| !request.only_asks());
        for (sequence, request) in &self.unanswered {
            assert!(self.send(bench, *sequence, request.clone()), "it was never answered");
        }
    }

    /// Sends requests that read everything.
    pub fn ask_for_everything(&mut self, bench: &mut Bench) {
        let ask = |action, object, gets| command(object, action, Vec::new(), gets);
        let list = |after| Action::ListAttributes { after, page: None, most: 1000 };
        let mut commands = vec![ask(Action::List { after: ObjectId(0), most: 100 }, ObjectId(1), Vec::new())];
        commands.extend((1..=OBJECTS).map(|object| ask(list(None), ObjectId(object), Vec::new())));
        commands.into_iter().for_each(|command| self.ask(bench, ObjectRequest { commands: vec![command] }));
        for object in 1..=OBJECTS {
            for first in (0..NAMES).step_by(16) {
                let gets = (first..first + 16).map(name).collect();
                let commands = vec![ask(Action::Stat, ObjectId(object), gets)];
                self.ask(bench, ObjectRequest { commands });
            }
            let read = Action::Read { offset: 0, length: 200_000 };
            self.ask(bench, ObjectRequest { commands: vec![ask(read, ObjectId(object), Vec::new())] });
        }
    }

    pub fn assert_answered(&self) {
        let open: Vec<&u64> = self.unanswered.keys().collect();
        assert!(open.is_empty(), "no answer to {open:?}");
    }
}

fn name(index: u64) -> AttributeName {
    AttributeName::new(1 + (index % 2) as u32, index as u32)
}

pub fn command(object: ObjectId, action: Action, sets: Vec<SetAttribute>, gets: Vec<AttributeName>) -> ObjectCommand {
    ObjectCommand { object, when: When::Always, action, sets, sets_when: When::Always, gets }
}

fn some_value(rng: &mut Rng) -> Bytes {
    let length = match rng.below(16) {
        0 | 1 => 0,
        2 => rng.below(30_000),
        3..=5 => rng.below(3000),
        _ => rng.below(40),
    };
    vec![rng.below(255) as u8; length as usize].into()
}

fn some_sets(rng: &mut Rng) -> Vec<SetAttribute> {
    let first = rng.below(NAMES);
    let count = if rng.chance(1, 5) { rng.between(2, 12) } else { rng.below(2) };
    (first..(first + count).min(NAMES))
        .map(|index| SetAttribute { name: name(index), value: some_value(rng) })
        .collect()
}

fn some_request(rng: &mut Rng) -> ObjectRequest {
    let count = if rng.chance(1, 4) { rng.between(2, 4) } else { 1 };
    ObjectRequest { commands: (0..count).map(|_| some_command(rng)).collect() }
}

fn some_command(rng: &mut Rng) -> ObjectCommand {
    let object = ObjectId(rng.between(1, OBJECTS));
    let which = name(rng.below(NAMES));
    let action = match rng.below(24) {
        0..=2 => Action::Create,
        3 if rng.chance(1, 4) => Action::Remove,
        4..=5 => {
            let data = vec![rng.below(255) as u8; rng.below(9000) as usize].into();
            Action::Write { offset: rng.below(80_000), data }
        }
        6 => Action::Append { data: vec![7; rng.below(3000) as usize].into() },
        7 => Action::Truncate { length: rng.below(80_000) },
        8 => Action::Read { offset: rng.below(80_000), length: rng.below(20_000) as u32 },
        9..=12 => Action::CompareAndSwap {
            name: which,
            compare: some_value(rng),
            swap: some_value(rng),
            undefined: Undefined::Matches,
            original: rng.chance(1, 2),
        },
        13..=14 => Action::FetchAndAdd { name: AttributeName::new(3, 1), add: 3, original: true },
        15 => Action::ListAttributes { after: None, page: None, most: rng.below(100) as u32 },
        16 => Action::List { after: ObjectId(0), most: 10 },
        _ => Action::Nothing,
    };
    let takes_none = matches!(action, Action::Remove | Action::List { .. });
    let sets = if takes_none { Vec::new() } else { some_sets(rng) };
    let gets = if takes_none { Vec::new() } else { (0..rng.below(3)).map(|_| name(rng.below(NAMES))).collect() };
    command(object, action, sets, gets)
}

/// A store with object number 1.
pub fn with_object() -> Bench {
    with_object_in(Bench::new(1))
}

/// Creates object number 1 in this store.
pub fn with_object_in(mut bench: Bench) -> Bench {
    create(&mut bench, 1, 1);
    bench
}

pub fn create(bench: &mut Bench, sequence: u64, object: u64) {
    let object = ObjectId(object);
    let created = ask(bench, sequence, command(object, Action::Create, Vec::new(), Vec::new()));
    assert_eq!(created.map(|results| results[0].action.clone()), Ok(ActionResult::Created { object }));
}

pub fn removal(object: u64) -> ObjectCommand {
    command(ObjectId(object), Action::Remove, Vec::new(), Vec::new())
}

/// Sets an attribute of an object.
pub fn setting(object: u64, index: u64, value: Vec<u8>) -> ObjectCommand {
    let set = SetAttribute { name: AttributeName::new(1, index as u32), value: value.into() };
    command(ObjectId(object), Action::Nothing, vec![set], Vec::new())
}

/// Begins a request.
pub fn send(bench: &mut Bench, sequence: u64, commands: Vec<ObjectCommand>) -> TransactionId {
    let name = TransactionId { host: HOST, sequence };
    bench.store.execute(bench.now, name, 0, Vec::new(), ObjectRequest { commands }, &mut bench.out);
    name
}

/// Executes one command, and waits for its answer.
pub fn ask(bench: &mut Bench, sequence: u64, command: ObjectCommand) -> ObjectAnswer {
    let name = send(bench, sequence, vec![command]);
    for _ in 0..1000 {
        bench.run();
        match bench.events.pop_front() {
            Some(braid_store::StoreEvent::Executed { name: done, answer, .. }) if done == name => return answer,
            None => assert!(bench.wake(), "the request is not answered"),
            event => panic!("executed {name}, but got {event:?}"),
        }
    }
    panic!("the request is not answered");
}

/// Sets an attribute of object 1.
pub fn set(bench: &mut Bench, sequence: u64, index: u64, value: Vec<u8>) -> ObjectAnswer {
    ask(bench, sequence, setting(1, index, value))
}

/// Gets an attribute of object 1.
pub fn get(bench: &mut Bench, sequence: u64, index: u64) -> Result<Bytes, ObjectFailure> {
    let gets = vec![AttributeName::new(1, index as u32)];
    let answer = ask(bench, sequence, command(ObjectId(1), Action::Nothing, Vec::new(), gets));
    answer.map(|mut results| results.remove(0).values.remove(0)).map_err(|refusal| refusal.failure)
}
