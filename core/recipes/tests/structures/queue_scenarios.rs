//! Scenarios of the queue, one by one.

use crate::bench::*;
use crate::queue::{LEASE, OBJECT, contents, number, work};
use crate::sequential::Alone;
use braid_recipes::queue::{Claimed, Finished, ITEM_BYTES_MAX, Queue, Renewed, STATES_PAGE, Watch};

fn with(items: u32) -> (Alone, Queue) {
    let (mut alone, queue) = (Alone::with(Space::with(&[OBJECT])), Queue::new(OBJECT, LEASE));
    for number in 0..items {
        alone.run(queue.put(work(number))).unwrap();
    }
    (alone, queue)
}

fn claim(alone: &mut Alone, queue: Queue, consumer: u64) -> Option<Claimed> {
    alone.run(queue.claim(consumer, Watch::default(), Duration::ZERO)).result.unwrap()
}

#[test]
fn putting_and_finishing_take_one_round_trip_and_claiming_two() {
    let (mut alone, queue) = with(0);
    assert_eq!(alone.count(queue.put(work(1))).1, 1);
    let (end, trips) = alone.count(queue.claim(1, Watch::default(), Duration::ZERO));
    let claimed = end.result.unwrap().unwrap();
    assert_eq!((trips, claimed.token, number(&claimed.work)), (2, 1, 1));
    let (renewed, trips) = alone.count(queue.renew(claimed));
    let Ok(Renewed::Kept(claimed)) = renewed else { panic!("{renewed:?}") };
    assert_eq!(trips, 1);
    assert_eq!(alone.count(queue.finish(claimed, Vec::new())), (Ok(Finished::Finished), 1));
    let (end, trips) = alone.count(queue.claim(1, Watch::default(), Duration::ZERO));
    assert_eq!((end.result, trips), (Ok(None), 1));
}

/// A consumer waits for an item, and gets one as soon as another client, half a lease later, makes this request.
fn is_claimed_at_once<P: Procedure + 'static>(space: Space, queue: Queue, frees: P) {
    let mut world = World::new(1, CALM, &[], Vec::new());
    world.space = space;
    world.client(async move |me| {
        let end = me.run(queue.claim(1, Watch::default(), LEASE * 100)).await;
        assert!(end.result.unwrap().is_some());
        me.observed().push(me.true_now());
    });
    world.client(async move |me| {
        me.sleep(LEASE / 2).await;
        me.run(frees).await;
    });
    world.run();
    let waited = world.observed()[0].since(Time(0));
    assert!(LEASE / 2 < waited && waited < LEASE / 2 + Duration::from_millis(20), "{waited:?}");
}

#[test]
fn an_item_put_or_given_back_while_a_consumer_waits_is_claimed_at_once() {
    let (alone, queue) = with(0);
    is_claimed_at_once(alone.space, queue, queue.put(work(1)));
    let (mut alone, queue) = with(1);
    let claimed = claim(&mut alone, queue, 2).unwrap();
    is_claimed_at_once(alone.space, queue, queue.give_back(claimed));
}

#[test]
fn a_claim_that_was_not_made_though_its_answer_is_missing_is_made_again() {
    let (mut alone, queue) = with(1);
    let end = alone.run_losing(queue.claim(1, Watch::default(), Duration::ZERO), false, |_| ());
    assert!(end.result.unwrap().is_some());
}

#[derive(Default)]
struct Tale {
    renewals: u32,
    had: Option<Time>,
}

#[test]
fn a_consumer_that_renews_keeps_its_item_and_a_dead_one_loses_it_after_a_lease() {
    for seed in 0..10 {
        let (alone, queue) = with(1);
        let mut world = World::new(seed, CALM, &[], Tale::default());
        world.space = alone.space;
        // It renews the claim twice in each lease.
        world.client(async move |me| {
            let mut claimed = me.run(queue.claim(1, Watch::default(), LEASE)).await.result.unwrap().unwrap();
            for _ in 0..20 {
                me.sleep(LEASE / 2).await;
                let Ok(Renewed::Kept(renewed)) = me.run(queue.renew(claimed)).await else { panic!("it is kept") };
                claimed = renewed;
                me.observed().renewals += 1;
            }
        });
        world.client(async move |me| {
            me.sleep(LEASE / 4).await;
            let end = me.run(queue.claim(2, Watch::default(), LEASE * 100)).await;
            assert!(end.result.unwrap().is_some());
            me.observed().had = Some(me.true_now());
        });
        world.run();
        assert_eq!(world.observed().renewals, 20);
        let had = world.observed().had.expect("it comes back").since(Time(0));
        // The last renewal was after ten leases; a watching consumer may have seen it one look later.
        assert!(LEASE * 11 <= had && had < LEASE * 12 + LEASE / 2, "{had:?}");
    }
}

#[test]
fn a_consumer_that_is_cut_off_learns_it_within_half_a_lease() {
    let (mut alone, queue) = with(1);
    let claimed = claim(&mut alone, queue, 1).unwrap();
    for gives_back in [false, true] {
        let mut world = World::new(1, CALM, &[], Vec::new());
        world.space = alone.space.clone();
        let claimed = claimed.clone();
        world.client(async move |me| {
            match gives_back {
                false => assert_eq!(me.run(queue.renew(claimed)).await, Err(RequestFailure::Unknown)),
                true => assert_eq!(me.run(queue.give_back(claimed)).await, Err(RequestFailure::Unknown)),
            }
            me.observed().push(me.true_now());
        });
        world.rates = SILENT;
        world.run();
        let waited = world.observed()[0].since(Time(0));
        assert!(waited < LEASE / 2 + Duration::from_millis(10), "{waited:?}");
    }
}

#[test]
fn a_consumer_that_watches_all_claims_looks_once() {
    let (mut alone, queue) = with(1);
    claim(&mut alone, queue, 1).unwrap();
    let watch = alone.run(queue.claim(2, Watch::default(), Duration::ZERO)).watch;
    // The search begins on either side of the item.
    for seed in 0..20 {
        alone.rng = Rng::new(seed);
        let (end, trips) = alone.count(queue.claim(2, watch.clone(), Duration::ZERO));
        assert_eq!((end.result, end.watch, trips), (Ok(None), watch.clone(), 1));
    }
}

#[test]
fn the_dead_s_items_come_back_though_there_is_always_something_fresh() {
    let (mut alone, queue) = with(1);
    let dead = claim(&mut alone, queue, 1).unwrap();
    let mut watch = Watch::default();
    for number in 10..200 {
        alone.run(queue.put(work(number))).unwrap();
        alone.run(queue.put(work(number + 1000))).unwrap();
        let end = alone.run(queue.claim(2, watch, Duration::ZERO));
        watch = end.watch;
        let claimed = end.result.unwrap().unwrap();
        let item = claimed.item;
        alone.run(queue.finish(claimed, Vec::new())).unwrap();
        if item == dead.item {
            return;
        }
        alone.pass(LEASE / 10);
    }
    panic!("it was never taken over");
}

#[test]
fn consumers_do_not_all_go_for_the_same_item() {
    let (alone, queue) = with(500);
    let firsts: BTreeSet<u32> = (0..100)
        .map(|seed| {
            let mut alone = Alone { rng: Rng::new(seed), ..Alone::with(alone.space.clone()) };
            claim(&mut alone, queue, seed).unwrap().item.0
        })
        .collect();
    assert!(firsts.len() > 80, "{} different items for 100 consumers and 500 items", firsts.len());
}

#[test]
fn a_long_queue_is_gone_round() {
    let (mut alone, queue) = with(300);
    let mut had = BTreeSet::new();
    for _ in 0..300 {
        had.insert(number(&claim(&mut alone, queue, 1).expect("something is free").work));
    }
    assert_eq!(had.len(), 300);
    assert_eq!(claim(&mut alone, queue, 1), None, "all are claimed");
}

#[test]
fn items_that_are_too_long_are_refused_and_damage_is_an_error() {
    let (mut alone, queue) = with(0);
    let long = Bytes::from(vec![0; ITEM_BYTES_MAX + 1]);
    let refused = Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX });
    assert_eq!(alone.run(queue.put(long)), refused);
    let longest = Bytes::from(vec![7; ITEM_BYTES_MAX]);
    alone.run(queue.put(longest.clone())).unwrap();
    let claimed = claim(&mut alone, queue, 1).unwrap();
    assert_eq!(claimed.work, longest);
    alone.run(queue.finish(claimed, Vec::new())).unwrap();
    alone.space.set(OBJECT, AttributeName::new(STATES_PAGE, 5), b"what is this?");
    assert_eq!(claim(&mut alone, queue, 1), None, "that is no item");
    alone.run(queue.put(longest.clone())).unwrap();
    assert_eq!(claim(&mut alone, queue, 1).expect("it does not obstruct other items").work, longest);
}

#[test]
fn a_queue_that_is_full_can_be_worked_off() {
    for (room, idempotency_record) in
        (2000..2080).step_by(7).flat_map(|room| [(room, None), (room, Some(IdempotencyRecord(1)))])
    {
        let (mut alone, queue) = with(1);
        let queue = Queue { idempotency_record, ..queue };
        // A consumer with an idempotency record has used it before.
        let claimed = claim(&mut alone, queue, 1).unwrap();
        alone.run(queue.finish(claimed, Vec::new())).unwrap();
        alone.space.leave_room_for(room);
        let full = Err(RequestFailure::Refused(ObjectFailure::NoSpace));
        let put = (0..).take_while(|_| alone.run(queue.put(Bytes::from(vec![7; 20]))) != full).count();
        assert!(put > 10);
        alone.space.leave_room_for(0);
        for number in 0..put {
            let claimed = claim(&mut alone, queue, 1).expect("an item that was put in can be claimed");
            let Ok(Renewed::Kept(claimed)) = alone.run(queue.renew(claimed)) else { panic!("the claim holds") };
            // One of three crashes.
            if number % 3 > 0 {
                assert_eq!(alone.run(queue.finish(claimed, Vec::new())), Ok(Finished::Finished));
            }
        }
        let mut watch = Watch::default();
        loop {
            let end = alone.run(queue.claim(2, watch, LEASE * 2));
            watch = end.watch;
            let Some(claimed) = end.result.unwrap() else { break };
            assert_eq!(alone.run(queue.finish(claimed, Vec::new())), Ok(Finished::Finished));
        }
        assert_eq!(contents(&alone.space).items.len(), 0);
    }
}
