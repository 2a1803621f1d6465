//! Tests of overload: every waiting request is answered, and no checkpoint is made in vain.

use crate::protocol::*;
use crate::requests::{command, send, with_object};

const WRITES: u64 = 60;

/// A store with more undecided intents than the journal carries, and its events so far.
fn flooded() -> (Bench, Vec<StoreEvent>) {
    let mut bench = Bench::with_object(1024);
    for sequence in 1..=WRITES {
        bench.store.prepare(bench.now, intent(sequence, vec![data(sequence * 2, 1, sequence)]), &mut bench.out);
        bench.run();
    }
    let events = bench.events.drain(..).collect();
    (bench, events)
}

#[test]
fn a_write_that_finds_no_room_among_the_undecided_is_refused_in_time() {
    let (mut bench, prepared) = flooded();
    assert!(!prepared.is_empty() && prepared.len() < WRITES as usize, "some wait: {}", prepared.len());
    bench.settle();
    let busy = |event: &StoreEvent| matches!(event, StoreEvent::Prepared { result: Err(Failure::Busy), .. });
    assert_eq!(bench.events.iter().filter(|event| busy(event)).count(), WRITES as usize - prepared.len());
    // When one of the prepared intents is decided, there is room for another.
    bench.events.clear();
    bench.store.commit(bench.now, transaction(1), &mut bench.out);
    bench.store.prepare(bench.now, intent(100, vec![data(500, 1, 9)]), &mut bench.out);
    bench.settle();
    let expected = StoreEvent::Prepared { transaction: transaction(100), result: Ok(()) };
    assert!(bench.events.contains(&expected), "{:?}", bench.events);
}

#[test]
fn no_checkpoint_is_made_for_room_that_only_decisions_can_give() {
    let (mut bench, _) = flooded();
    let before = bench.counter("checkpoints");
    let end = bench.now.time.after(Duration::from_millis(900));
    while bench.store.deadline().is_some_and(|deadline| deadline < end) {
        bench.wake();
        bench.run();
    }
    let useless = bench.counter("checkpoints") - before;
    assert!(useless <= 1, "{useless} useless checkpoints");
}

#[test]
fn requests_that_wait_hold_no_more_than_they_may() {
    let mut bench = with_object();
    let data = Bytes::from(vec![1; limits::OBJECT_IO_BYTES_MAX]);
    let write = |object| command(ObjectId(object), Action::Write { offset: 0, data: data.clone() }, vec![], vec![]);
    let most = limits::WAITING_BYTES_MAX / limits::OBJECT_REQUEST_BYTES_MAX;
    // The disk does nothing: one batch's worth of requests is noted, the others wait.
    for sequence in 1..2 * most as u64 {
        send(&mut bench, sequence, vec![write(1), write(1)]);
        bench.perform();
    }
    let busy = Err(ObjectRefusal { command: 0, failure: ObjectFailure::Busy });
    let refused = |event: &StoreEvent| matches!(event, StoreEvent::Executed { answer, .. } if *answer == busy);
    let count = bench.events.iter().filter(|event| refused(event)).count();
    assert!((most - 5..=most).contains(&count), "{count} of {} are refused", 2 * most);
    // The bytes of refused and executed requests are not counted any more.
    bench.settle();
    bench.events.clear();
    let name = TransactionId { host: Generation(5), sequence: 10_000 };
    let stat = ObjectRequest { commands: vec![command(ObjectId(1), Action::Stat, vec![], vec![])] };
    for _ in 0..2 {
        bench.store.execute(bench.now, name, 10_000, Vec::new(), stat.clone(), &mut bench.out);
        bench.settle();
        assert!(matches!(bench.events.pop_front(), Some(StoreEvent::Executed { answer: Ok(_), .. })));
    }
}

#[test]
fn one_host_leaves_room_in_the_journal_for_the_intents_of_others() {
    let (mut bench, prepared) = flooded();
    let prepares = |bench: &mut Bench, host: u32, sequence: u64| {
        let name = TransactionId { host: Generation(host), sequence };
        let other = Intent { transaction: name, ..intent(sequence, vec![data(600 + sequence * 2, 1, sequence)]) };
        bench.store.prepare(bench.now, other, &mut bench.out);
        bench.run();
        let own = bench
            .events
            .iter()
            .position(|event| matches!(event, StoreEvent::Prepared { transaction, .. } if *transaction == name));
        own.and_then(|at| bench.events.remove(at))
    };
    // The writes of the first host that wait do not hold up those of others, which have about as much together.
    let others = (1..=40).filter(|sequence| {
        let host = 10 + *sequence as u32 % 4;
        matches!(prepares(&mut bench, host, *sequence), Some(StoreEvent::Prepared { result: Ok(()), .. }))
    });
    let others = others.count();
    assert!(others * 10 > prepared.len() * 6, "{others} of other hosts, beside {}", prepared.len());
}
