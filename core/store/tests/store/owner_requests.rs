//! Tests of requests of the owner of a store, with answers that are kept on behalf of hosts.

use crate::protocol::*;
use braid_objects::{Change, Evaluation, Kind, NotHere, Obstacle, Procedure, View};
use braid_store::OnBehalf;
use braid_wire::CommandResult;

const OWNER: Generation = Generation(40);
const KEY: Key = Key { kind: Kind::Transaction, of: 7, index: 7 };

fn of_owner(sequence: u64) -> TransactionId {
    TransactionId { host: OWNER, sequence }
}

/// Requests of three hosts.
fn of_hosts() -> [TransactionId; 3] {
    [(50, 3), (60, 1), (70, 9)].map(|(host, sequence)| TransactionId { host: Generation(host), sequence })
}

fn answer(data: &'static str) -> ObjectAnswer {
    Ok(vec![CommandResult { action: ActionResult::Data { data: data.into() }, values: Vec::new() }])
}

fn on_behalf() -> Vec<OnBehalf> {
    of_hosts().map(|name| OnBehalf { name, settled: name.sequence, answer: answer("done") }).to_vec()
}

/// Sets a value, or looks whether it is set.
#[derive(Clone, Debug)]
struct Value {
    is_set: bool,
}

impl Procedure for Value {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        if self.is_set {
            let changes = vec![Change { key: KEY, value: Some("value".into()) }];
            return Ok(Evaluation { answer: answer("set"), changes, only_asks: false, found: None });
        }
        match map.get(KEY) {
            Ok(value) => {
                let answer = answer(if value.is_some() { "there" } else { "nothing" });
                Ok(Evaluation { answer, changes: Vec::new(), only_asks: true, found: None })
            }
            Err(Obstacle::NotHere) => Err(NotHere),
            Err(Obstacle::Lost) => panic!("nothing is damaged"),
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Value>()
    }
}

impl Bench {
    fn run_mandatory(&mut self, sequence: u64, on_behalf: Vec<OnBehalf>, procedure: Value) {
        let procedure = Box::new(procedure);
        assert!(self.store.run_mandatory(self.now, of_owner(sequence), on_behalf, procedure, &mut self.out));
    }
}

#[test]
fn answers_of_several_hosts_outlive_a_crash_if_the_changes_do() {
    let mut outcomes = [0, 0];
    for ends in 0..4 {
        let mut bench = Bench::new(ends);
        bench.settle();
        bench.run_mandatory(1, on_behalf(), Value { is_set: true });
        bench.perform();
        for _ in 0..ends {
            bench.end_one();
        }
        let (mut bench, _) = bench.restart().expect("it recovers");
        bench.run_mandatory(2, on_behalf(), Value { is_set: false });
        bench.settle();
        let said = format!("{:?}", bench.events.pop_front());
        let is_set = said.contains("there");
        assert!(is_set || said.contains("nothing"), "{said}");
        for name in of_hosts() {
            assert_eq!(bench.store.knows(name), is_set, "{ends}: {name}, and what changes nothing keeps no answer");
        }
        outcomes[usize::from(is_set)] += 1;
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn a_host_that_has_settled_its_request_gets_no_answer_and_the_others_do() {
    let mut bench = Bench::new(1);
    let [first, second, third] = of_hosts();
    bench.run_mandatory(1, on_behalf(), Value { is_set: true });
    bench.settle();
    bench.store.settle(second.host, second.sequence + 1);
    let late = OnBehalf { name: second, settled: 0, answer: answer("late") };
    bench.run_mandatory(2, vec![late], Value { is_set: true });
    bench.settle();
    assert!([first, second, third].iter().all(|name| bench.store.knows(*name)), "a request that is over is known");
    assert!(bench.store.knows(of_owner(2)), "the owner's own name has the record then");
    let (mut bench, _) = bench.restart().expect("it recovers");
    bench.run_mandatory(3, Vec::new(), Value { is_set: false });
    bench.settle();
    assert!(format!("{:?}", bench.events.pop_front()).contains("there"));
}

/// Otherwise a copy of the host's request would be executed as a new one.
#[test]
fn a_request_is_known_while_its_answer_waits_to_be_kept() {
    let mut bench = Bench::power_on_with(Store::new(config()).with_requests_apart(), formatted(JOURNAL), 1);
    bench.settle();
    // The first one is being written, and the second one is the next batch.
    bench.run_mandatory(1, Vec::new(), Value { is_set: true });
    bench.run_mandatory(2, Vec::new(), Value { is_set: true });
    bench.run_mandatory(3, on_behalf(), Value { is_set: true });
    assert!(of_hosts().iter().all(|name| bench.store.knows(*name)));
    bench.run();
    assert!(of_hosts().iter().all(|name| bench.store.knows(*name)));
    let unknown = TransactionId { host: Generation(50), sequence: 4 };
    assert!(!bench.store.knows(unknown));
}

#[test]
fn requests_apart_are_a_batch_each_and_otherwise_share_the_next_one() {
    for (is_apart, batches) in [(false, 2), (true, 6)] {
        let store = Store::new(config());
        let store = if is_apart { store.with_requests_apart() } else { store };
        let mut bench = Bench::power_on_with(store, formatted(JOURNAL), 1);
        bench.settle();
        bench.events.clear();
        let before = bench.counter("journal_batches");
        for sequence in 1..7 {
            bench.run_mandatory(sequence, Vec::new(), Value { is_set: true });
            bench.perform();
        }
        bench.run();
        assert_eq!(bench.events.len(), 6, "all are answered");
        assert_eq!(bench.counter("journal_batches") - before, batches);
    }
}
