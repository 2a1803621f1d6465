//! Tests of the answers to requests for objects: for how long they are kept, and within which bounds for each host.

use crate::protocol::*;
use crate::requests::{command, with_object_in};

const A: Generation = Generation(50);
const B: Generation = Generation(60);
const WORD: AttributeName = AttributeName::new(2, 1);

fn name(host: Generation, sequence: u64) -> TransactionId {
    TransactionId { host, sequence }
}

fn addition() -> ObjectCommand {
    let add = Action::FetchAndAdd { name: AttributeName::new(1, 1), add: 1, original: true };
    command(ObjectId(1), add, Vec::new(), Vec::new())
}

fn looks() -> ObjectCommand {
    command(ObjectId(1), Action::Stat, Vec::new(), Vec::new())
}

/// A swap that fails, with an answer that carries the value of `WORD`.
fn failing_swap() -> ObjectCommand {
    let (compare, swap) = ("other".into(), "mine".into());
    let undefined = Undefined::IsEmpty;
    let swap = Action::CompareAndSwap { name: WORD, compare, swap, undefined, original: true };
    command(ObjectId(1), swap, Vec::new(), Vec::new())
}

/// A store with an object, and with a journal large enough for the maximal room for answers.
fn with_object() -> Bench {
    with_object_in(Bench::with_journal(8 << 20, 1))
}

impl Bench {
    fn begin(&mut self, name: TransactionId, settled: u64, command: ObjectCommand) -> bool {
        self.begin_knowing(name, settled, Vec::new(), command)
    }

    /// Begins a request whose host has abandoned earlier ones.
    fn begin_knowing(
        &mut self,
        name: TransactionId,
        settled: u64,
        abandoned: Vec<(u64, u64)>,
        command: ObjectCommand,
    ) -> bool {
        let request = ObjectRequest { commands: vec![command] };
        self.store.execute(self.now, name, settled, abandoned, request, &mut self.out)
    }

    /// The host declares everything below its mark over, and sends a request.
    fn ask(&mut self, host: Generation, sequence: u64, settled: u64, command: ObjectCommand) -> ObjectAnswer {
        self.store.settle(host, settled);
        assert!(self.begin(name(host, sequence), settled, command), "the host waits for the request");
        self.run();
        // The request may wait until a checkpoint has made room in the journal.
        while self.events.is_empty() && self.wake() {
            self.run();
        }
        match self.events.pop_front() {
            Some(StoreEvent::Executed { name: done, answer, .. }) if done == name(host, sequence) => answer,
            event => panic!("executed {host} {sequence}, but got {event:?}"),
        }
    }

    fn added(&mut self, host: Generation, sequence: u64, settled: u64) -> i64 {
        match self.ask(host, sequence, settled, addition()).expect("there is room")[0].action {
            ActionResult::Added { original: Some(original) } => original,
            ref other => panic!("{other:?}"),
        }
    }

    fn set_word(&mut self, bytes: usize) {
        let set = SetAttribute { name: WORD, value: vec![7; bytes].into() };
        let set = command(ObjectId(1), Action::Nothing, vec![set], Vec::new());
        self.ask(B, 1, 1, set).expect("there is room");
        self.store.settle(B, 2);
    }
}

fn is_busy(answer: &ObjectAnswer) -> bool {
    answer.as_ref().is_err_and(|refusal| refusal.failure == ObjectFailure::Busy)
}

#[test]
fn a_fenced_host_has_no_effect_once_its_answers_are_removed() {
    let mut bench = with_object();
    assert_eq!(bench.added(A, 7, 7), 0);
    let mut membership = Membership::first([DeviceId(1), DeviceId(2)]);
    membership.epoch = Epoch(2);
    membership.fence.also.insert(A);
    bench.store.adopt(1, membership, &mut bench.out);
    // The membership is not durable yet.
    assert!(!bench.begin(name(A, 7), 7, addition()));
    bench.run();
    assert_eq!(bench.events.drain(..).collect::<Vec<_>>(), [StoreEvent::Adopted { ticket: 1, dropped: Vec::new() }]);
    assert_eq!(bench.added(B, 1, 1), 1);
}

#[test]
fn requests_settled_by_departed_hosts_do_not_come_back() {
    let mut bench = with_object();
    bench.store.settle(Generation(5), 2);
    for round in 1..4 {
        for host in 0..50 {
            let host = Generation(round * 100 + host);
            bench.added(host, 1, 1);
            if host.0.is_multiple_of(2) {
                bench.added(host, 2, 1);
                bench.store.forget(name(host, 2));
                // The first request is never over.
                assert!(bench.begin(name(host, 1), 1, addition()));
                bench.run();
                bench.events.clear();
            }
            bench.store.settle(host, 3);
        }
        assert_eq!(bench.counter("answers_kept"), 0);
        bench.settle();
        bench = bench.restart().expect("nothing is wrong").0;
        assert_eq!(bench.counter("answers_kept"), 0, "round {round}");
    }
}

/// Acknowledgements are logged within a second, together with all that came meanwhile.
#[test]
fn that_answers_are_known_costs_neither_a_record_for_each_request_nor_a_batch() {
    let costs = |settles: bool, over: bool| {
        let mut bench = with_object();
        bench.settle();
        let count = |bench: &Bench| (bench.counter("journal_batches"), bench.counter("journal_bytes"));
        let before = count(&bench);
        for sequence in 1..=300 {
            bench.added(A, sequence, if settles { sequence } else { 0 });
            if over {
                bench.store.forget(name(A, sequence));
            }
        }
        let after = count(&bench);
        bench.store.settle(A, if settles || over { 301 } else { 0 });
        bench.settle();
        let (at_rest, _) = count(&bench);
        (after.0 - before.0, (after.1 - before.1) / 300, at_rest - after.0)
    };
    let (batches, bytes, marks) = costs(false, false);
    assert_eq!((batches, marks), (300, 1));
    assert_eq!(costs(true, false), (batches, bytes, 1));
    assert_eq!(costs(false, true), (batches, bytes, 1));
}

#[test]
fn one_request_that_is_never_over_keeps_no_others_from_being_forgotten() {
    let mut bench = with_object();
    bench.set_word(16 << 10);
    for sequence in 8..500 {
        let answer = bench.ask(A, sequence, 7, failing_swap());
        assert!(!is_busy(&answer), "{sequence}");
        bench.store.forget(name(A, sequence));
    }
    assert_eq!(bench.counter("answers_kept"), 1, "only the answer of another host");
    assert!(!bench.begin(name(A, 100), 7, failing_swap()), "it is over");
    bench.settle();
    let mut bench = bench.restart().expect("nothing is wrong").0;
    assert!(!bench.begin(name(A, 100), 7, failing_swap()), "it is over");
    assert_eq!(bench.added(A, 7, 7), 0);
}

#[test]
fn a_host_that_does_not_settle_is_refused_alone_and_at_once() {
    let mut bench = with_object();
    bench.set_word(16 << 10);
    let refused = (1..100).find(|sequence| is_busy(&bench.ask(A, *sequence, 0, failing_swap())));
    assert_eq!(refused, Some(64), "one host may have half of all bytes");
    for host in [70, 71] {
        for sequence in 1..16 {
            assert!(!is_busy(&bench.ask(Generation(host), sequence, 0, failing_swap())), "{host} {sequence}");
        }
        assert!(is_busy(&bench.ask(Generation(host), 16, 0, failing_swap())), "{host}");
    }
    for sequence in 2..200 {
        assert!(!is_busy(&bench.ask(B, sequence, sequence, failing_swap())), "{sequence}");
    }
    assert!(!is_busy(&bench.ask(A, 200, 199, failing_swap())), "it has settled");
}

#[test]
fn long_answers_of_some_hosts_stop_no_other_hosts_changes() {
    let mut bench = with_object();
    // With eight values, an answer has half a megabyte.
    bench.set_word(64 << 10);
    let gets = |name: AttributeName| ObjectCommand { gets: vec![name; 7], ..failing_swap() };
    let refused = (100..).find(|host| is_busy(&bench.ask(Generation(*host), 1, 0, gets(WORD))));
    assert_eq!(refused, Some(102), "long answers may have three quarters of all bytes");
    let change = || command(ObjectId(1), Action::Nothing, Vec::new(), Vec::new());
    for host in 200..400 {
        let add = ObjectCommand { action: addition().action, ..change() };
        assert!(!is_busy(&bench.ask(Generation(host), 1, 0, add)), "{host}");
    }
    bench.store.settle(Generation(100), 2);
    assert!(!is_busy(&bench.ask(Generation(102), 2, 0, gets(WORD))), "there is room for another");
}

#[test]
fn a_request_that_waits_for_space_is_served_when_a_mark_frees_some() {
    let mut bench = with_object();
    bench.set_word(30_000);
    for host in 100..169 {
        assert!(!is_busy(&bench.ask(Generation(host), 1, 0, failing_swap())), "{host}");
    }
    bench.settle();
    assert!(bench.begin(name(A, 1), 0, failing_swap()));
    for _ in 0..20 {
        bench.run();
        bench.store.wake(bench.now, &mut bench.out);
    }
    bench.perform();
    assert!(bench.events.is_empty(), "there is no room");
    bench.store.settle(Generation(100), 2);
    assert_eq!(bench.store.deadline(), Some(bench.now.time), "the store asks to be woken");
    let asked = bench.now.time;
    while bench.events.is_empty() && bench.wake() {
        bench.run();
    }
    assert_eq!((bench.events.len(), bench.now.time), (1, asked));
}

#[test]
fn a_late_abandoned_request_has_no_effect_once_a_later_one_was_answered() {
    for (settled, restarts, passes) in
        [(5, false, true), (6, false, true), (5, true, true), (6, true, true), (5, true, false), (6, true, false)]
    {
        let mut bench = with_object();
        bench.store.settle(A, settled);
        assert!(bench.begin_knowing(name(A, 6), settled, vec![(5, 6)], looks()));
        bench.perform();
        assert!(bench.events.is_empty(), "a crash could bring it back");
        bench.run();
        assert_eq!(bench.events.len(), 1);
        if passes {
            bench.settle();
        }
        if restarts {
            bench = bench.restart().expect("nothing is wrong").0;
        }
        assert!(!bench.begin(name(A, 5), 5, addition()), "{settled} {restarts} {passes}");
        bench.now.time = bench.now.time.after(Duration::from_secs(60));
        bench.settle();
        assert_eq!(bench.counter("object_requests"), if restarts { 0 } else { 2 });
    }
}

#[test]
fn an_abandoned_request_queued_behind_a_later_one_has_no_effect() {
    let mut bench = with_object();
    // Requests wait in a queue while a leaf is being read, or while there is no room.
    assert!(bench.begin(name(A, 5), 5, addition()));
    bench.run();
    bench.events.clear();
    assert!(bench.begin_knowing(name(A, 8), 5, vec![(7, 8)], looks()));
    assert!(!bench.begin(name(A, 7), 5, addition()), "the request was abandoned before");
    bench.settle();
    assert!(matches!(bench.events.pop_front(), Some(StoreEvent::Executed { name: done, .. }) if done == name(A, 8)));
    assert_eq!(bench.added(A, 9, 5), 1);
}

#[test]
fn an_abandoned_request_is_recorded_once() {
    let mut bench = with_object();
    let batches = |bench: &Bench| bench.counter("journal_bytes");
    assert!(bench.begin_knowing(name(A, 900), 1, vec![(3, 800)], looks()));
    bench.settle();
    let before = batches(&bench);
    for sequence in 901..1_000 {
        assert!(bench.begin_knowing(name(A, sequence), 1, vec![(3, 800)], looks()));
        bench.run();
    }
    bench.settle();
    assert_eq!(batches(&bench), before, "requests that only read are not logged either");
    assert_eq!(bench.events.len(), 100);
}

/// Each request abandons as many intervals as it may, and always different ones, while the disk is busy.
#[test]
fn ever_so_much_that_was_given_up_leaves_room_in_the_journal() {
    let mut bench = with_object_in(Bench::with_journal(1 << 20, 1));
    assert!(bench.begin(name(A, 1), 1, addition()));
    bench.perform();
    for round in 0..2_000 {
        let first = 10 + round % 7;
        let abandoned = (0..256).map(|nth| (first + 20 * nth, first + 20 * nth + 1)).collect();
        let host = Generation(100 + (round % 300) as u32);
        assert!(bench.begin_knowing(name(host, 10_000 + round), 1, abandoned, looks()));
        bench.perform();
    }
    for _ in 0..200_000 {
        if bench.events.len() > 2_000 {
            break;
        }
        bench.run();
        bench.wake();
    }
    assert_eq!(bench.events.len(), 2_001, "every request is answered, some with Busy");
    bench.settle();
    bench.events.clear();
    assert_eq!(bench.added(A, 20_000, 1), 1, "the store still serves");
    let mut bench = bench.restart().expect("nothing is wrong").0;
    assert_eq!(bench.added(A, 20_001, 1), 2);
}
