//! Tests of the lock: scenarios with crashed, late and waiting clients; and every order of two clients' steps.

use crate::bench::*;
use crate::written::{DATA, Log, OBJECT as LOCKS, cut_off, old_copy, seconds, taken, two_in_every_order};
use braid_recipes::fencing_token::{Fence, Unguardable, unguard};
use braid_recipes::lock::{Grant, Lock, LockError, LockOptions, LockStatus, Mode, READERS_MAX};
use braid_wire::{ActionResult, CommandResult, SetAttribute, Undefined, When};

const WORD: AttributeName = AttributeName::new(1, 7);
const TOKEN: AttributeName = AttributeName::new(2, 7);
const ELSEWHERE: AttributeName = AttributeName::new(9, 9);

fn options() -> LockOptions {
    LockOptions { lease: Duration::from_secs(10), patience: Duration::from_secs(60), ..LockOptions::default() }
}

fn lock() -> Lock {
    Lock::new(LOCKS, WORD, options())
}

fn append(text: &str) -> ObjectRequest {
    space::one(DATA, Action::Append { data: Bytes::copy_from_slice(text.as_bytes()) })
}

fn world() -> World<Log> {
    World::new(1, CALM, &[LOCKS, DATA], Log::default())
}

fn text(world: &World<Log>) -> String {
    String::from_utf8(world.space.bytes(DATA).to_vec()).expect("what was written")
}

fn held(taken: Result<Grant, LockError>) -> Grant {
    taken.expect("it is granted")
}

impl Me<Log> {
    /// Makes a request under a grant, and records whether the device accepted it.
    async fn append(&self, grant: &Grant, text: &'static str) {
        let answer = self.ask(grant.guard(append(text)).expect("it can be guarded")).await;
        self.note(format!("{text} {}", if taken(&answer) { "taken" } else { "refused" }));
    }
}

#[test]
fn a_lock_is_taken_and_given_back_in_one_round_trip_each() {
    let mut world = world();
    for round in 1..=3_u64 {
        let before = world.trace().len();
        world.client(async move |me| {
            let grant = held(me.run(lock().acquire("a")).await);
            assert_eq!((grant.token(), grant.mode()), (2 * round - 1, Mode::Exclusive));
            me.append(&grant, "x").await;
            assert_eq!(me.run(grant.release()).await, Ok(()));
        });
        world.run();
        assert_eq!(world.trace().len() - before, 3, "acquire, write, release");
    }
    assert_eq!((text(&world).as_str(), world.space.value(LOCKS, WORD)), ("xxx", Bytes::new()));
}

#[test]
fn the_last_write_releases_and_a_free_lock_costs_one_round_trip_in_all() {
    let mut world = world();
    world.client(async |me| {
        let grant = held(me.run(lock().acquire("a")).await);
        let end = me.run(grant.release_with(append("last")).unwrap()).await;
        assert_eq!(end.unwrap().unwrap()[0].action, ActionResult::Appended { offset: 0 });
    });
    world.run();
    assert_eq!(world.trace().len(), 2);
    world.client(async |me| {
        let end = me.run(lock().once("b", append(" and once")).unwrap()).await;
        assert_eq!(end.unwrap().unwrap()[0].action, ActionResult::Appended { offset: 4 });
    });
    world.run();
    assert_eq!(world.trace().len(), 3);
    assert_eq!((text(&world).as_str(), world.space.value(LOCKS, WORD)), ("last and once", Bytes::new()));
    assert_eq!(world.space.number(LOCKS, TOKEN), 4);
}

#[test]
fn a_renewal_by_way_of_an_old_copy_counts_from_when_it_was_sent() {
    old_copy(|name| lock().acquire(name), options().lease);
}

#[test]
fn readers_share_and_a_waiting_writer_is_next() {
    let mut world = world();
    let reads = |world: &mut World<Log>, name: &'static str, span: u64| {
        world.client(async move |me| {
            let grant = held(me.run(lock().share(name)).await);
            assert_eq!(grant.mode(), Mode::Shared);
            me.note(format!("{name}{}", grant.token()));
            me.sleep(seconds(span)).await;
            assert_eq!(me.run(grant.release()).await, Ok(()));
        });
    };
    reads(&mut world, "r", 4);
    reads(&mut world, "s", 6);
    world.run_for(seconds(1));
    world.client(async |me| {
        let grant = held(me.run(lock().acquire("w")).await);
        me.note(format!("w{}", grant.token()));
        let _ = me.run(grant.release()).await;
    });
    world.run_for(seconds(1));
    // These come while the writer waits, together with one more writer.
    reads(&mut world, "t", 1);
    reads(&mut world, "u", 1);
    world.client(async |me| {
        let LockStatus { mode, holders, waiting, token } = me.run(lock().status()).await.unwrap();
        assert_eq!((mode, holders.len(), waiting, token), (Some(Mode::Shared), 2, Some("w".into()), 1));
    });
    world.run();
    let order: String = world.observed().lines.join(" ");
    assert!(
        ["r1 s1 w3 t5 u5", "s1 r1 w3 t5 u5", "r1 s1 w3 u5 t5", "s1 r1 w3 u5 t5"].contains(&order.as_str()),
        "{order}"
    );
}

#[test]
fn a_full_table_of_readers_admits_no_other_until_one_ends() {
    let mut world = world();
    for _ in 0..READERS_MAX {
        world.client(async |me| {
            let grant = held(me.run(lock().share("r")).await);
            me.sleep(seconds(8)).await;
            let _ = me.run(grant.release()).await;
        });
        world.run_for(Duration::from_millis(50));
    }
    world.client(async |me| {
        assert_eq!(held(me.run(lock().share("one more")).await).token(), 1, "the hold goes on");
        me.note_time("granted");
    });
    world.run();
    assert_eq!(world.observed().lines, ["granted at 8"]);
}

#[test]
fn a_client_that_gives_up_removes_its_mark() {
    let mut world = world();
    world.client(async |me| {
        let grant = held(me.run(lock().share("r")).await);
        me.sleep(seconds(5)).await;
        let _ = me.run(grant.release()).await;
    });
    world.run_for(seconds(1));
    let hasty = Lock::new(LOCKS, WORD, LockOptions { patience: seconds(1), ..options() });
    world.client(async move |me| {
        let grant = me.run(hasty.acquire("w")).await;
        assert_eq!(grant.unwrap_err(), LockError::TimedOut { holder: Some("r".into()) });
        assert_eq!(me.run(lock().status()).await.unwrap().waiting, None);
    });
    world.run();
}

#[test]
fn a_request_that_can_not_be_guarded_is_refused() {
    let fence = Fence { object: LOCKS, name: TOKEN, token: 1 };
    let command = |action| space::command(DATA, action);
    let swap = || {
        let (name, compare, swap) = (ELSEWHERE, Bytes::new(), Bytes::from_static(b"x"));
        command(Action::CompareAndSwap { name, compare, swap, undefined: Undefined::IsEmpty, original: false })
    };
    let mut after = command(Action::Flush);
    let guard = |commands: &[_]| fence.guard(ObjectRequest { commands: commands.to_vec() });
    assert_eq!(guard(&[swap(), after.clone()]), Err(Unguardable::Always(1)));
    after.when = When::IfSwapped;
    assert!(guard(&[swap(), after.clone()]).is_ok());
    after.when = When::IfNotSwapped;
    assert_eq!(guard(&[swap(), after.clone()]), Err(Unguardable::IfNotSwapped(1)));
    let mut setting = swap();
    setting.sets = vec![SetAttribute { name: ELSEWHERE, value: Bytes::new() }];
    assert_eq!(guard(&[setting.clone()]), Err(Unguardable::Always(0)));
    setting.sets_when = When::IfNotSwapped;
    assert_eq!(guard(&[setting]), Err(Unguardable::IfNotSwapped(0)));
    assert_eq!(guard(&vec![command(Action::Flush); 64]), Err(Unguardable::TooMany(64)));
    assert!(unguard(vec![CommandResult { action: ActionResult::Done, values: vec![] }]).is_err());
}

#[test]
fn an_attribute_that_is_no_lock_is_left_alone() {
    for junk in [&b"x"[..], &[1, 1, 2], &[1, 3, 0, 0], &[1, 1, 0, 0, 0], &[1, 2, 1, 200]] {
        let mut world = world();
        world.space.set(LOCKS, WORD, junk);
        world.client(async |me| {
            assert_eq!(me.run(lock().acquire("a")).await.unwrap_err(), LockError::NoLock);
            assert_eq!(me.run(lock().status()).await, Err(LockError::NoLock));
        });
        world.run();
        assert_eq!(world.space.value(LOCKS, WORD), junk);
    }
    let mut world = world();
    world.client(async |me| {
        let grant = me.run(Lock::new(ObjectId(99), WORD, options()).acquire("a")).await;
        assert!(matches!(grant, Err(LockError::RequestFailure(RequestFailure::Refused(_)))));
    });
    world.run();
}

/// One client, of which every answer may be lost. Returns in how many ways.
fn alone_in_every_way<F: Future<Output = ()> + 'static>(client: impl Fn(Me<Log>) -> F + Copy + 'static) -> u64 {
    let budget = Budget { unknown: 2, deaths: 0, waits: 0 };
    let begin = || (Log::default(), vec![doing(client)]);
    let at_end = |world: &mut World<Log>| assert_eq!(text(world), "x");
    let (runs, ended) = explore(budget, &Space::with(&[LOCKS, DATA]), begin, |_, _| (), at_end);
    assert_eq!(runs, ended);
    runs
}

#[test]
fn without_contenders_every_outcome_is_known_and_the_lock_is_never_reported_as_lost() {
    let ways = alone_in_every_way(async |me| {
        let grant = held(me.run(lock().acquire("a")).await);
        let grant = held(me.run(grant.renew()).await);
        assert_eq!(me.run(grant.release()).await, Ok(()));
        let grant = held(me.run(lock().share("a")).await);
        let end = me.run(grant.release_with(append("x")).unwrap()).await;
        end.expect("no other client has held it since");
    });
    assert!(ways > 50, "{ways}");
    let ways = alone_in_every_way(async |me| {
        me.run(lock().once("a", append("x")).unwrap()).await.expect("no other client has held it");
    });
    assert!(ways > 5, "{ways}");
}

#[test]
fn two_clients_in_every_order() {
    let options = LockOptions {
        lease: Duration::from_millis(1),
        first_pause: Duration::from_micros(600),
        longest_pause: Duration::from_micros(600),
        patience: Duration::from_secs(1),
        idempotency_record: None,
    };
    two_in_every_order(move || Lock::new(LOCKS, WORD, options).acquire("a"), 5);
}

#[test]
fn a_client_that_is_cut_off_learns_that_its_lease_expired() {
    cut_off(|| lock().acquire("a"), options().lease);
}

/// Whatever length the pauses are configured to have: no client sees the same mark for a lease.
#[test]
fn a_short_lease_makes_for_short_pauses() {
    let short = LockOptions { lease: Duration::from_millis(500), longest_pause: seconds(5), ..options() };
    for seed in 0..20 {
        let mut world = World::new(seed, CALM, &[LOCKS, DATA], Log::default());
        let lock = Lock::new(LOCKS, WORD, short);
        let first = lock.share("r");
        world.client(async |me| {
            let mut grant = held(me.run(first).await);
            for _ in 0..100 {
                me.sleep(Duration::from_millis(100)).await;
                grant = held(me.run(grant.renew()).await);
            }
            let _ = me.run(grant.release()).await;
        });
        for (name, acquisition) in [("writer", lock.acquire("w")), ("reader", lock.share("s"))] {
            world.run_for(Duration::from_millis(100));
            world.client(async move |me: Me<Log>| {
                let grant = me.run(acquisition).await;
                me.note(name);
                let _ = me.run(held(grant).release()).await;
            });
        }
        world.run();
        assert_eq!(world.observed().lines, ["writer", "reader"], "seed {seed}: the mark keeps readers out");
    }
}

#[test]
fn a_client_without_patience_tries_once() {
    let mut world = world();
    let hasty = Lock::new(LOCKS, WORD, LockOptions { patience: Duration::ZERO, ..options() });
    world.client(async move |me| {
        let first = held(me.run(hasty.acquire("a")).await);
        let grant = me.run(hasty.acquire("b")).await;
        assert!(matches!(grant, Err(LockError::TimedOut { holder: Some(_) })), "{grant:?}");
        assert_eq!(me.run(first.release()).await, Ok(()));
        held(me.run(hasty.share("c")).await);
        assert_eq!(held(me.run(hasty.share("d")).await).mode(), Mode::Shared, "it joins at once");
    });
    world.run();
}
