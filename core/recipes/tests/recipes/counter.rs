//! Tests of the delivery counter: scenarios, every order of two clients' steps, and swarm runs.

use crate::bench::*;
use crate::written::{
    DATA, Hold, LOSSY, Log, OBJECT, Record, append, check, check_word, cut_off, is_had_again, old_copy, seconds,
    swarms_of, two_in_every_order,
};
use braid_recipes::counter::{CounterError, CounterOptions, DeliveryCounter, SLOTS, Turn};
use braid_recipes::lock::Mode;

const FIRST: AttributeName = AttributeName::new(10, 3);
const WORD: AttributeName = AttributeName::new(11, 3);

fn options() -> CounterOptions {
    CounterOptions {
        lease: Duration::from_secs(3),
        poll: Duration::from_millis(700),
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(200),
        patience: Duration::from_secs(60),
    }
}

fn counter() -> DeliveryCounter {
    DeliveryCounter::new(OBJECT, FIRST, options())
}

fn world(seed: u64, rates: FaultRates) -> World<Log> {
    let mut world = World::new(seed, rates, &[OBJECT, DATA], Log::default());
    world.after_each(|log, space| {
        check_word(log, space, WORD);
        assert!(log.number <= space.number(OBJECT, FIRST), "only tickets that were drawn are called");
    });
    world
}

/// Enters, records that, stays for a given time, and leaves.
fn visits(world: &mut World<Log>, name: &'static str, stay: Duration) -> usize {
    world.client(async move |me| {
        let turn = me.run(counter().enter(name)).await.expect("it is served");
        me.note(format!("{name}{} {}", turn.ticket(), me.true_now().0 / 1_000_000_000));
        me.sleep(stay).await;
        me.run(turn.leave()).await.expect("it held its turn until the end");
    })
}

#[test]
fn alone_it_takes_two_round_trips_to_enter_and_one_to_leave() {
    let mut world = world(1, CALM);
    for round in 1..=3 {
        visits(&mut world, "a", Duration::ZERO);
        world.run();
        assert_eq!(world.trace().len(), 3 * round);
    }
    assert_eq!(world.observed().lines, ["a0 0", "a1 0", "a2 0"]);
}

#[test]
fn waiters_are_served_in_the_order_of_tickets_without_asking() {
    let mut world = world(1, CALM);
    for name in ["a", "b", "c", "d"] {
        visits(&mut world, name, Duration::from_millis(600));
        world.run_for(Duration::from_millis(50));
    }
    world.run();
    let served: Vec<String> = world.observed().lines.iter().map(|line| line[..2].to_string()).collect();
    assert_eq!(served, ["a0", "b1", "c2", "d3"]);
    // For each client: a ticket, its name written to the slot, the entry after the call, and the exit; the first needs no slot. The last in
    // line looks once more, since it has to wait for longer than two polls.
    let looks = world.trace().len() - 15;
    assert!(looks <= 1, "{looks} looks");
}

#[test]
fn a_slot_that_is_anothers_is_done_without() {
    let mut world = World::new(1, CALM, &[OBJECT], Log::default());
    // As if 65537 tickets had been served, and the late request of a crashed client with ticket 1 had arrived.
    let turn = [&[1][..], &SLOTS.to_be_bytes(), &[0]].concat();
    for (page, value) in [(0, &SLOTS.to_be_bytes()[..]), (1, &turn), (5, b"late")] {
        world.space.set(OBJECT, AttributeName::new(FIRST.page + page, FIRST.number), value);
    }
    visits(&mut world, "a", seconds(2));
    world.run_for(Duration::from_millis(100));
    visits(&mut world, "b", seconds(1));
    world.run();
    assert_eq!(world.observed().lines, ["a65536 0", "b65537 2"]);
    assert_eq!(world.trace().len(), 3 + 4 + 3, "it looks three times");
    assert_eq!(world.space.value(OBJECT, AttributeName::new(FIRST.page + 5, FIRST.number)), Bytes::new());
}

#[test]
fn a_slot_that_goes_to_another_one_is_not_waited_for() {
    let mut world = World::new(1, CALM, &[OBJECT], Log::default());
    visits(&mut world, "a", seconds(2));
    world.run_for(Duration::from_millis(100));
    // As if there were so many tickets between them that the next has the same slot.
    world.space.set(OBJECT, FIRST, &SLOTS.to_be_bytes());
    world.client(async |me| {
        let turn = me.run(counter().enter("far")).await;
        assert!(matches!(turn, Err(CounterError::TimedOut { ticket: SLOTS, .. })));
    });
    world.run();
    let looks = world.trace().len();
    assert!(looks < 100, "it looks now and then, {looks} times in a minute");
}

/// Two clients in every order of steps, with one lost answer or one crash.
#[test]
fn two_clients_in_every_order() {
    let options = CounterOptions {
        lease: Duration::from_millis(2),
        poll: Duration::from_millis(1),
        first_pause: Duration::from_micros(300),
        longest_pause: Duration::from_micros(300),
        patience: Duration::from_secs(1),
    };
    two_in_every_order(move || DeliveryCounter::new(OBJECT, FIRST, options).enter("x"), 2);
}

/// This many turns, each of which may be cut short, too long, or renewed.
async fn lives(me: Me<Log>, rounds: u64) {
    for _ in 0..rounds {
        match me.run(counter().enter("x")).await {
            Ok(turn) => {
                me.note_hold(&turn, Mode::Exclusive);
                me.writes(turn, 2, |turn: &Turn, record: Record| turn.guarded(append(DATA, record))).await;
            }
            Err(error) => {
                assert_ne!(error, CounterError::NoCounter);
                me.note_error::<Turn>(&error);
            }
        }
    }
}

fn swarm(seed: u64, rates: FaultRates) -> Log {
    let mut world = world(seed, rates);
    for _ in 0..5 {
        world.client(|me| lives(me, 10));
    }
    world.run();
    let left = world.space.number(OBJECT, FIRST) - world.observed().number;
    let most = (options().lease + 4 * options().poll + seconds(1)) * (left as u32 + 1);
    let patient = CounterOptions { patience: seconds(1000), ..options() };
    is_had_again(&mut world, DeliveryCounter::new(OBJECT, FIRST, patient).enter("last"), most);
    check(&mut world);
    std::mem::take(&mut *world.observed())
}

#[test]
fn a_client_that_is_cut_off_learns_that_its_lease_expired() {
    cut_off(|| counter().enter("a"), options().lease);
}

#[test]
fn a_renewal_by_way_of_an_old_copy_counts_from_when_it_was_sent() {
    old_copy(|name| counter().enter(name), options().lease);
}

#[test]
fn swarms() {
    swarms_of(200, |seed| swarm(seed, ROUGH));
    (0..50).for_each(|seed| drop(swarm(seed, LOSSY)));
}
