//! Tests of the test bench: it injects the faults that it is configured for, and a seed determines a run.

use crate::bench::*;

const OBJECT: ObjectId = ObjectId(1);
const COUNTER: AttributeName = AttributeName::new(1, 1);

fn add() -> ObjectRequest {
    space::one(OBJECT, Action::FetchAndAdd { name: COUNTER, add: 1, original: false })
}

#[test]
fn an_unknown_request_may_be_executed_before_a_later_request_but_not_after_it() {
    let (mut after, mut before, mut never) = (0, 0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed, CALM, &[OBJECT], ());
        world.client(async |me| {
            assert_eq!(me.ask(add()).await, Answer::RequestFailure(RequestFailure::Unknown));
            me.sleep(Duration::from_secs(1)).await;
            me.ask(space::one(OBJECT, Action::Stat)).await;
        });
        world.rates = FaultRates { unknown: 1000, delay: Duration::from_secs(4), ..CALM };
        world.run_for(Duration::from_millis(10));
        world.rates = CALM;
        let mut counted = |seconds| {
            world.run_for(Duration::from_secs(seconds));
            world.space.number(OBJECT, COUNTER)
        };
        let (heard, asked, end) = (counted(2), counted(2), counted(10));
        assert_eq!(asked, end, "a later request has been done");
        match (heard, asked) {
            (0, 1) => after += 1,
            (1, 1) => before += 1,
            _ => never += 1,
        }
    }
    assert!(after > 0 && before > 0 && never > 0, "{after} {before} {never}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let mut world = World::new(seed, ROUGH, &[OBJECT], ());
        for _ in 0..4 {
            world.client(async |me| {
                for _ in 0..20 {
                    me.ask(add()).await;
                    me.sleep(Duration::from_millis(1)).await;
                }
            });
        }
        world.run();
        world.trace().to_vec()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn every_order_is_every_order() {
    let two = || {
        let twice = async |me: Me<()>| {
            me.ask(add()).await;
            me.ask(add()).await;
        };
        ((), vec![doing(twice), doing(twice)])
    };
    let space = Space::with(&[OBJECT]);
    let nothing = Budget { unknown: 0, deaths: 0, waits: 0 };
    let all = explore(nothing, &space, two, |_, _| (), |world| assert_eq!(world.space.number(OBJECT, COUNTER), 4));
    assert_eq!(all, (6, 6), "four steps, of which two are the first client's");
    let lossy = Budget { unknown: 1, ..nothing };
    let all = explore(lossy, &space, two, |_, _| (), |world| assert!(world.space.number(OBJECT, COUNTER) >= 3));
    // In each order of the four requests, one of them: executed before or after each of the other client's requests up to its own client's
    // next one, or never.
    assert_eq!(all, (6 + 2 * (10 + 11 + 11), 70), "one of the four answers may be lost");
}
