//! Locks, tickets and leaders, while their device is killed and restarted, and commands that hold them are killed for good.

use crate::prelude::*;
use braid_client::recipes::RequestFailure;
use braid_client::recipes::counter::{CounterError, CounterOptions, DeliveryCounter, Turn};
use braid_client::recipes::failover::{FailOver, FailOverError, FailOverOptions, Leadership};
use braid_client::recipes::fencing_token::{Fence, Unguardable};
use braid_client::recipes::lock::{Grant, Lock, LockError, LockOptions};
use braid_client::{Guard, ObjectRequest, now};
use braid_processes::scenario::{DEVICE, LEASE, PROGRESS_MAX, Scenario};

const COUNT: AttributeName = AttributeName::new(5, 1);
const FENCE: AttributeName = AttributeName::new(5, 2);

#[test]
fn a_lock_is_held_by_one_at_a_time_though_its_device_and_its_holders_are_killed() {
    one_at_a_time(Kind::Lock);
}

#[test]
fn tickets_are_served_one_at_a_time_though_their_device_and_holders_are_killed() {
    one_at_a_time(Kind::Counter);
}

#[test]
fn at_most_one_leads_though_its_device_and_the_leaders_are_killed() {
    one_at_a_time(Kind::Leader);
}

#[test]
fn a_leader_whose_device_is_suspended_learns_that_its_lease_expired() {
    let (array, scenario) = Scenario::new();
    wait(async {
        let object = scenario.object(1).await;
        let Held::Lead(leader) = Kind::Leader.take(&object, "leader", LEASE).await.expect("there is no other leader")
        else {
            panic!("it was to lead")
        };
        let pid = array.device_pid(DEVICE);
        signal(pid, Signal::STOP);
        let progress = object.space().run(leader.progress()).await.expect("the device does not refuse it");
        let late = now().since(leader.sure_until());
        signal(pid, Signal::CONT);
        assert_eq!(progress, Err(FailOverError::Uncertain));
        assert!(now() >= leader.sure_until() && late < LEASE / 2, "{late:?}");
        // The host retries from time to time.
        let again = loop {
            match object.space().run(leader.progress()).await.expect("the device does not refuse it") {
                Err(FailOverError::Uncertain) if now().since(leader.sure_until()) < PROGRESS_MAX => {}
                progress => break progress.expect("no other process has taken over"),
            }
        };
        assert_eq!(again.term(), leader.term());
    });
}

fn one_at_a_time(kind: Kind) {
    let (array, scenario) = Scenario::new();
    let script = r#"read -r _ _ _ braid _ < /proc/$PPID/stat
        echo "in x $BRAID_TOKEN $braid" >> $LOG; sleep 0.05; echo "out x $BRAID_TOKEN" >> $LOG"#;
    let lease = format!("{}s", LEASE.as_secs());
    let run = [kind.word(), "run", "1:1", "9.1", "--lease", &lease, "--", "sh", "-c", script];
    let counted = std::thread::scope(|scope| {
        let _ending = scenario.until_dropped();
        for _ in 0..2 {
            scope.spawn(|| {
                while scenario.going() {
                    scenario.command(&run[..]);
                }
            });
        }
        let programs: Vec<_> = (0..2).map(|_| scope.spawn(|| wait(count_under(kind, &scenario)))).collect();
        scenario.progress(2);
        scenario.kill_holder();
        scenario.progress(2);
        println!("the device was unavailable for {:?}", array.kill_device(DEVICE));
        scenario.kill_holder();
        scenario.progress(3);
        scenario.end();
        programs.into_iter().map(|program| program.join().expect("it does not panic")).sum::<i64>()
    });
    wait(async {
        let object = scenario.object(1).await;
        assert_eq!(object.get(COUNT).await.expect("it serves").as_i64(), Some(counted), "no increment is lost");
        assert!(counted > 0, "something was done");
        refuses_the_late(kind, &scenario.object(2).await).await;
    });
    // Each must begin after the previous one has ended or was killed.
    let (log, lost) = (scenario.log(), scenario.lost());
    println!("{} lines, {counted} increments, without {lost:?}", log.len());
    // The first ticket may be 0.
    let mut token: Option<u64> = None;
    let mut inside: Option<u32> = None;
    for words in &log {
        let this: u64 = words[2].parse().expect("a token");
        if words[0] == "in" {
            assert!(token.is_none_or(|token| this > token), "tokens grow: {this} after {token:?}: {log:?}");
            assert!(inside.is_none_or(|pid| lost.contains(&pid)), "{inside:?} is still inside at {words:?}: {log:?}");
            (token, inside) = (Some(this), Some(words[3].parse().expect("a pid")));
        } else {
            assert!(Some(this) == token && inside.take().is_some(), "{words:?} ends what another has begun: {log:?}");
        }
    }
}

/// Reads a number and writes it back incremented; only the guard excludes other programs. Returns how often it has done so.
async fn count_under(kind: Kind, scenario: &Scenario) -> i64 {
    let object = scenario.object(1).await;
    let mut counted = 0;
    while scenario.going() {
        let Some(held) = kind.take(&object, "program", LEASE).await else { continue };
        let seen = object.get(COUNT).await.expect("it serves").as_i64().unwrap_or(0);
        scenario.pause(5);
        match object.request().set(COUNT, seen + 1).guarded(&held).await {
            Ok(_) => counted += 1,
            Err(refused) => assert!(matches!(refused.error, Error::TooLate { .. }), "{refused}"),
        }
        held.give_back(&object).await;
        // Other programs get their turn.
        scenario.pause(40);
    }
    object.space().array().close().await;
    counted
}

/// The first holder is suspended, a second one replaces it, and the first one resumes as if nothing had happened.
async fn refuses_the_late(kind: Kind, object: &Object) {
    let lease = Duration::from_millis(500);
    let first = kind.take(object, "first", lease).await.expect("it is free");
    object.request().set(COUNT, 1).guarded(&first).await.expect("it is the first one's");
    let second = kind.take(object, "second", lease).await.expect("the first one is silent");
    let late = object.request().set(COUNT, 9).guarded(&first).await.expect_err("it is the second one's");
    assert!(matches!(late.error, Error::TooLate { .. }), "{late}");
    assert_eq!(object.get(COUNT).await.expect("it serves").as_i64(), Some(1), "nothing was changed");
    object.request().set(COUNT, 2).guarded(&second).await.expect("it is the second one's");
    // On another device as well, once the second holder has been there.
    let elsewhere = object.space().array().device(DEVICE as u16 + 1).create().await.expect("there is room");
    let fences = [&first, &second].map(|held| held.fence_at(&elsewhere));
    elsewhere.request().append("one, ").guarded(&fences[0]).await.expect_err("it was never raised");
    for (fence, raised) in [(&fences[0], true), (&fences[1], true), (&fences[0], false)] {
        let outcome = elsewhere.space().run(fence.raise()).await.expect("it serves");
        assert_eq!(outcome.is_ok(), raised, "{outcome:?}");
    }
    let late = elsewhere.request().append("late, ").guarded(&fences[0]).await.expect_err("the second one was here");
    assert!(matches!(late.error, Error::TooLate { .. }), "{late}");
    elsewhere.request().append("two").guarded(&fences[1]).await.expect("it is the second one's");
    assert_eq!(elsewhere.read(0, 100).await.expect("it serves"), "two");
    second.give_back(object).await;
}

#[derive(Clone, Copy)]
enum Kind {
    Lock,
    Counter,
    Leader,
}

enum Held {
    Lock(Grant),
    Turn(Turn),
    Lead(Leadership),
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Counter => "counter",
            Kind::Leader => "leader",
        }
    }

    /// None if its turn was skipped because it came too late.
    async fn take(self, object: &Object, name: &str, lease: Duration) -> Option<Held> {
        let (space, id, patience, at) = (object.space(), object.id(), PROGRESS_MAX, AttributeName::new(9, 1));
        let failure = "the device does not refuse it";
        match self {
            Kind::Lock => {
                let lock = Lock::new(id, at, LockOptions { lease, patience, ..LockOptions::default() });
                Some(Held::Lock(space.run(lock.acquire(name)).await.expect(failure).expect("it is to be had")))
            }
            Kind::Counter => {
                let options = CounterOptions { lease, patience, ..CounterOptions::default() };
                match space.run(DeliveryCounter::new(id, at, options).enter(name)).await.expect(failure) {
                    Err(CounterError::Skipped { .. }) => None,
                    turn => Some(Held::Turn(turn.expect("it is served"))),
                }
            }
            Kind::Leader => {
                let options = FailOverOptions { lease, patience, ..FailOverOptions::default() };
                let campaign = FailOver::new(id, at, options).campaign(name);
                Some(Held::Lead(space.run(campaign).await.expect(failure).expect("it leads in the end")))
            }
        }
    }
}

impl Held {
    fn fence_at(&self, object: &Object) -> Fence {
        match self {
            Held::Lock(grant) => grant.fence_at(object.id(), FENCE),
            Held::Turn(turn) => turn.fence_at(object.id(), FENCE),
            Held::Lead(lead) => lead.fence_at(object.id(), FENCE),
        }
    }

    async fn give_back(self, object: &Object) {
        let space = object.space();
        let is_fine = match self {
            Held::Lock(grant) => {
                let given = space.run(grant.release()).await.expect("the device does not refuse it");
                matches!(given, Ok(_) | Err(LockError::Lost | LockError::RequestFailure(RequestFailure::Unknown)))
            }
            Held::Turn(turn) => {
                let given = space.run(turn.leave()).await.expect("the device does not refuse it");
                matches!(
                    given,
                    Ok(_) | Err(CounterError::Skipped { .. } | CounterError::RequestFailure(RequestFailure::Unknown))
                )
            }
            Held::Lead(lead) => {
                let given = space.run(lead.resign()).await.expect("the device does not refuse it");
                matches!(
                    given,
                    Ok(_) | Err(FailOverError::Deposed { .. } | FailOverError::RequestFailure(RequestFailure::Unknown))
                )
            }
        };
        assert!(is_fine, "it is released, or was lost, or the device was unavailable for a lease");
    }
}

impl Guard for Held {
    fn guard(&self, request: ObjectRequest) -> Result<ObjectRequest, Unguardable> {
        match self {
            Held::Lock(grant) => grant.guard(request),
            Held::Turn(turn) => turn.guard(request),
            Held::Lead(lead) => lead.guard(request),
        }
    }
}
