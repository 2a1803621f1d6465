//! Tests of a start from a journal whose snapshot already holds what later records repeat, and from a journal that is full.

use crate::protocol::*;
use crate::requests::{command, with_object};
use braid_ordering::Ordering;

/// Resizes an object to so many blocks.
fn resize(bench: &mut Bench, blocks: u64) {
    let (range, absent) = (BlockRange::new(0, blocks), BlockRange::new(0, 0));
    bench.store.log(1, Logged::Resized { object: OBJECT, range, absent }, &mut bench.out);
}

#[test]
fn a_growth_that_was_taken_back_is_replayed_over_a_snapshot_without_it() {
    let mut bench = Bench::with_object(160);
    let mut snapshots = 0;
    for round in 0..400 {
        bench.store.log(1, Logged::StampsReserved(Clock(1)), &mut bench.out);
        bench.perform();
        // These records wait for the batch in flight. When it ends, a snapshot may begin.
        resize(&mut bench, 320);
        resize(&mut bench, 160);
        let other = ObjectId(100 + round);
        let description = ObjectDescription::new(other, 160);
        bench.store.log(1, Logged::Created { description, absent: 0 }, &mut bench.out);
        bench.run();
        if bench.counter("checkpoints") > snapshots {
            snapshots = bench.counter("checkpoints");
            let (again, _) = Bench::start(bench.disk.clone(), round).expect("nothing is damaged");
            assert_eq!(again.store.objects(), bench.store.objects());
            again.store.audit();
        }
        bench.store.log(1, Logged::Removed(other), &mut bench.out);
        bench.run();
    }
    assert!(snapshots > 1, "{snapshots}");
}

#[test]
fn a_checkpoint_can_end_however_many_calls_are_logged_meanwhile() {
    let mut bench = with_object();
    let description = ObjectDescription::new(OBJECT, 1024);
    bench.store.log(1, Logged::Created { description, absent: 0 }, &mut bench.out);
    bench.settle();
    bench.disk.hold_writes_from = bench.disk.geometry().data_offset;
    let checkpoint = |bench: &Bench| !bench.disk.is_idle();
    for sequence in 1..1000 {
        let name = TransactionId { host: Generation(5), sequence };
        let write = Action::Write { offset: 0, data: Bytes::from(vec![sequence as u8; 100]) };
        let request = ObjectRequest { commands: vec![command(ObjectId(1), write, vec![], vec![])] };
        bench.store.execute(bench.now, name, sequence, Vec::new(), request, &mut bench.out);
        bench.store.prepare(bench.now, intent(sequence, vec![data(sequence % 60, 1, sequence)]), &mut bench.out);
        bench.run();
        bench.store.commit(bench.now, transaction(sequence), &mut bench.out);
        bench.run();
        bench.wake();
        bench.run();
        if checkpoint(&bench) {
            break;
        }
    }
    assert!(checkpoint(&bench), "blocks are being written to their slots");
    let mut tickets = 0..;
    let reordered = Logged::Reordered { object: OBJECT, ordering: Ordering::ServerLock };
    for change in [Logged::Nothing, reordered] {
        // The second kind is logged, and ends when the journal is full.
        for ticket in tickets.by_ref().take(5000) {
            bench.store.log(ticket, change.clone(), &mut bench.out);
            bench.run();
            if !bench.events.contains(&StoreEvent::Done { ticket, result: Ok(()) }) {
                break;
            }
            bench.events.clear();
        }
    }
    assert!((5_100..9_900).contains(&tickets.start), "{}", tickets.start);
    assert_eq!(bench.counter("checkpoints"), 0);
    // A restart finds room to begin, and to end the checkpoint; and so does the store when its writes end.
    let mut disk = bench.disk.clone();
    disk.crash_hard();
    let (again, _) = Bench::start(disk, 3).expect("nothing is damaged");
    for mut bench in [again, bench] {
        bench.disk.hold_writes_from = u64::MAX;
        bench.settle();
        assert!(bench.counter("checkpoints") > 0);
        bench.events.clear();
        assert_eq!(bench.prepare(intent(2000, vec![data(3, 1, 3)])), Ok(()));
    }
}
