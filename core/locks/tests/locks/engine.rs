//! The lock engine alone: calls in, events out. A story is a table of calls, each with the events that follow from it; of equal
//! ones, the first.
//!
//! `a1` is lock 1 of host a, and `own1` one of the process that contains the engine. `X 0 8` is exclusive, on eight blocks from block 0 on;
//! `parts 4` says that it is called back in parts, and may be longer by four blocks; `over a1`, that it is a lock over `a1`; `ahead 20 30`, that
//! as many blocks from block 20 and from block 30 on belong to it, too, if they are free; `lease`, that it is a lease; `impatient`, `passes` and
//! `upgrades`, what it waits for. Hosts a and d are of one node group.

use crate::bench::*;
use braid_base::Callbacks;
use braid_locks::LockEngine;
use braid_locks::engine::{Acceptance, EngineEvent, EngineTimer};
use braid_locks::sessions::{FenceState, LockDetails, LockName};
use braid_stories::{Told, stories};

const HOSTS: [(&str, Generation); 5] =
    [("a", ONE), ("b", TWO), ("c", THREE), ("d", Generation(ONE.0 + 8)), ("own", LockEngine::OWN)];

struct Story {
    engine: LockEngine,
    now: Time,
    /// Locks that are called back in parts.
    in_parts: BTreeSet<LockName>,
}

impl Told for Story {
    /// Of equal events, the first.
    fn call(&mut self, text: &str) -> Vec<String> {
        self.execute(text);
        self.engine.invariants();
        let events: Vec<_> = std::iter::from_fn(|| self.engine.pop_event()).collect();
        let mut found: Vec<_> = events.into_iter().map(|event| shown(self, event)).collect();
        let mut seen = BTreeSet::new();
        found.retain(|event| seen.insert(event.clone()));
        found
    }
}

impl Story {
    fn execute(&mut self, text: &str) {
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["hear", host] => assert!(self.engine.hear(self.now, host_of(host))),
            ["fenced", host] => self.engine.set_fenced(self.now, host_of(host)),
            ["pardon"] => self.engine.restart_eviction_timers(),
            ["live", seconds] => {
                for _ in 0..2 * seconds.parse::<u64>().expect("a time") {
                    HOSTS[..3].iter().for_each(|(host, _)| self.execute(&format!("hear {host}")));
                    self.pass(settings().heartbeat);
                }
            }
            ["pass", ms] => self.pass(Duration::from_millis(ms.parse().expect("a time"))),
            ["shrink", lock, ref rest @ ..] => {
                let rest: Vec<_> = rest.chunks(3).flat_map(extents_of).collect();
                assert!(self.engine.shrink(self.now, name_of(lock), &rest));
            }
            ["used", lock, ref extents @ ..] => {
                self.engine.refuse_impatient(self.now, name_of(lock), &extents_of(extents));
            }
            ["back", lock] => match name_of(lock) {
                LockName { host: LockEngine::OWN, lock_id } => self.engine.unlock_own(self.now, lock_id),
                name => assert!(self.engine.give_back(self.now, name)),
            },
            [lock, mode, start, count, ref term @ ..] => {
                let extents = extents_of(&[mode, start, count]);
                let impatient = words.contains(&"impatient");
                let all = [
                    ("impatient", Patience::Impatient),
                    ("passes", Patience::ForHeld),
                    ("upgrades", Patience::Upgrade),
                ];
                let patience =
                    all.into_iter().find(|(word, _)| words.contains(word)).map_or(Patience::InTurn, |it| it.1);
                let term = match term {
                    ["cached"] | ["parts", ..] => LockTerm::Cached,
                    ["lease"] => LockTerm::Lease,
                    _ => LockTerm::Transaction { impatient },
                };
                let after = |what| words.iter().position(|word| *word == what).map(|at| words[at + 1]);
                let in_parts = words.contains(&"parts");
                let width = after("parts").map_or(0, |width| width.parse().expect("a width"));
                let over = after("over").map(|lock| name_of(lock).lock_id).into_iter().collect();
                let starts = words.iter().skip_while(|word| **word != "ahead").skip(1);
                let ahead = starts.flat_map(|start| extents_of(&[mode, start, count])).collect();
                match name_of(lock) {
                    LockName { host: LockEngine::OWN, lock_id } => {
                        self.engine.lock_own(self.now, lock_id, OBJECT, &extents);
                    }
                    name => {
                        self.in_parts.extend(in_parts.then_some(name));
                        let asked = LockDetails {
                            in_parts,
                            width,
                            ahead,
                            over,
                            patience,
                            ..LockDetails::whole(OBJECT, extents, term)
                        };
                        assert_eq!(self.engine.ask(self.now, name, asked, true), Acceptance::Accepted);
                    }
                }
            }
            _ => panic!("not a call: {text}"),
        }
    }

    fn pass(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some((time, timer)) = self.engine.next_timer().filter(|(time, _)| *time <= end) {
            self.now = time;
            match timer {
                EngineTimer::Patrol => {
                    self.engine.end_all_fenced(time);
                    self.engine.patrol(time, true);
                }
                timer => self.engine.wake(time, timer),
            }
        }
        self.now = end;
    }
}

fn host_of(text: &str) -> Generation {
    HOSTS.iter().find(|(name, _)| *name == text).expect("a host").1
}

fn extents_of(words: &[&str]) -> Vec<LockExtent> {
    let [mode, start, count] = words else { panic!("no extent: {words:?}") };
    let mode = if *mode == "X" { Exclusive } else { Shared };
    extents(mode, &[(start.parse().expect("a block"), count.parse().expect("a count"))])
}

fn extents_shown(extents: &[LockExtent]) -> String {
    let mode = |extent: &LockExtent| if extent.mode == Exclusive { "X" } else { "S" };
    let shown = extents.iter().map(|extent| format!("{} {} {}", mode(extent), extent.range.start, extent.range.count));
    shown.collect::<Vec<_>>().join(" ")
}

fn name_of(text: &str) -> LockName {
    let (host, lock_id) = text.split_at(text.len() - 1);
    LockName { host: host_of(host), lock_id: lock_id.parse().expect("a number") }
}

fn shown(told: &Story, event: EngineEvent) -> String {
    let host = |host| HOSTS.iter().find(|(_, generation)| *generation == host).expect("a host").0;
    let name = |name: LockName| format!("{}{}", host(name.host), name.lock_id);
    match event {
        EngineEvent::Granted { name: lock, waited } => {
            let (_, extents) = told.engine.extents(lock).expect("it is granted");
            let extents =
                if told.in_parts.contains(&lock) { format!(" {}", extents_shown(extents)) } else { String::new() };
            format!("{}{extents}{}", name(lock), if waited { " at last" } else { "" })
        }
        EngineEvent::OwnGranted(lock_id) => format!("own{lock_id}"),
        EngineEvent::Waits(lock) => format!("{} waits", name(lock)),
        EngineEvent::TimedOut(lock) => format!("{} is refused", name(lock)),
        EngineEvent::Revoke { host: of, lock_ids } => format!("revoke {}{lock_ids:?}", host(of)),
        EngineEvent::Recall { host: of, wanted, asks } => {
            let part = |part: &LockPart| format!("{}{}: {}", host(of), part.lock_id, extents_shown(&part.extents));
            let asked = if asks { "recall and ask" } else { "recall" };
            format!("{asked} {}", wanted.iter().map(part).collect::<Vec<_>>().join(", "))
        }
        EngineEvent::RecallGroup { host: of, extents, .. } => {
            format!("recall {}: {}", host(of), extents_shown(&extents))
        }
        EngineEvent::Doom { host: of, cause } => format!("doom {} {cause:?}", host(of)),
        EngineEvent::Listed => "list".into(),
    }
}

/// Tells a story in which three hosts are known and listed.
fn tell(story: &[(&str, &str)]) {
    tell_among(3, LockEngine::new(settings(), false, settings().lock_eviction), story);
}

/// The same, of an engine of volumes.
fn of_volumes(story: &[(&str, &str)]) {
    tell_among(3, LockEngine::new(settings(), true, settings().lock_eviction), story);
}

/// The same of four hosts, with callbacks to groups of hosts.
fn in_groups(story: &[(&str, &str)]) {
    let settings = Settings { callbacks: Callbacks::Group, ..settings() };
    tell_among(4, LockEngine::new(settings, false, None), story);
}

/// The same, of this engine and the first hosts.
fn tell_among(hosts: usize, engine: LockEngine, story: &[(&str, &str)]) {
    let mut told = Story { engine, now: Time(1_000_000_000), in_parts: BTreeSet::new() };
    for (host, generation) in &HOSTS[..hosts] {
        told.execute(&format!("hear {host}"));
        told.execute(&format!("{host}9 S 90 1"));
        told.engine.ask_deferred(told.now, |_| true);
        told.engine.give_back(told.now, LockName { host: *generation, lock_id: 9 });
    }
    while told.engine.pop_event().is_some() {}
    told.goes_on(story);
}

#[test]
fn of_many_extents_that_are_wanted_those_of_requests_that_do_not_wait_are_named_first() {
    let mut engine = LockEngine::new(settings(), false, None);
    engine.recover(Time(0), HOSTS[..3].iter().map(|(_, host)| (*host, FenceState::Served)));
    HOSTS[..3].iter().for_each(|(_, host)| assert!(engine.complete(*host)));
    let mut ask = |host, lock_id, range, patience| {
        let asked = LockDetails::whole(OBJECT, extents(Exclusive, &[range]), LockTerm::Cached);
        let asked = LockDetails { in_parts: true, patience, ..asked };
        assert_eq!(engine.ask(Time(0), LockName { host, lock_id }, asked, true), Acceptance::Accepted);
        std::iter::from_fn(|| engine.pop_event()).last()
    };
    ask(ONE, 1, (0, 200), Patience::InTurn);
    (0..70).for_each(|block| drop(ask(TWO, block, (block, 1), Patience::InTurn)));
    match ask(THREE, 1, (150, 1), Patience::Impatient) {
        Some(EngineEvent::Recall { wanted, asks: true, .. }) => assert_eq!(wanted[0].extents[0].range.start, 150),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_survey_lists_who_holds_what_and_who_waits_for_whom_page_by_page() {
    let engine = LockEngine::new(settings(), false, None);
    let mut told = Story { engine, now: Time(1_000_000_000), in_parts: BTreeSet::new() };
    for host in ["a", "b", "c"] {
        told.execute(&format!("hear {host}"));
        told.execute(&format!("{host}9 S 90 1"));
    }
    told.engine.ask_deferred(told.now, |_| true);
    told.execute("a1 X 0 8 cached");
    told.execute("pass 500");
    told.execute("b1 X 4 8 cached");
    told.execute("c1 S 0 6 cached");
    told.execute("pass 250");
    let shown = |told: &Story, waiting| {
        let (locks, next) = told.engine.survey(told.now, LockName::default(), Some(OBJECT), waiting);
        assert_eq!(next, None);
        let hosts = |behind: &[Generation]| behind.iter().map(|host| host.0.to_string()).collect::<Vec<_>>().join(" ");
        let line = |lock: &braid_wire::SurveyedLock| {
            let (host, extents) = (lock.name.host.0, extents_shown(&lock.extents));
            format!("{host}: {extents}, {} ms, behind [{}]", lock.millis, hosts(&lock.behind))
        };
        locks.iter().filter(|lock| lock.name.lock_id == 1).map(line).collect::<Vec<_>>()
    };
    let (one, two, three) = (ONE.0, TWO.0, THREE.0);
    let waiting =
        [format!("{two}: X 4 8, 250 ms, behind [{one}]"), format!("{three}: S 0 6, 250 ms, behind [{one} {two}]")];
    assert_eq!(shown(&told, false), [&[format!("{one}: X 0 8, 750 ms, behind []")], &waiting[..]].concat());
    assert_eq!(shown(&told, true), waiting);
    told.execute("back a1");
    told.execute("pass 100");
    assert_eq!(shown(&told, false)[0], format!("{two}: X 4 8, 100 ms, behind []"), "held since it was granted");
    // Many locks: each is listed once.
    for lock_id in 100..300 {
        let asked = LockDetails::whole(OBJECT, extents(Shared, &[(1000 + lock_id, 1)]), LockTerm::Cached);
        told.engine.ask(told.now, LockName { host: TWO, lock_id }, asked, true);
    }
    let (mut all, mut from) = (Vec::new(), Some(LockName::default()));
    while let Some(first) = from {
        let (locks, next) = told.engine.survey(told.now, first, None, false);
        assert!(locks.len() <= braid_wire::LOCKS_SURVEYED_MAX && next != from);
        all.extend(locks.iter().map(|lock| lock.name));
        from = next;
    }
    assert_eq!(all, told.engine.lock_ids().map(|(name, _)| name).collect::<Vec<_>>());
    assert_eq!(told.engine.survey(told.now, LockName::default(), Some(ObjectId(99)), false), (Vec::new(), None));
}

stories! {
    tell;

    fn leases_never_wait_and_end_when_others_want_what_conflicts():
        "a1 S 0 8 lease" => "a1";
        "b1 S 4 8 lease" => "b1";
        "c1 X 20 4 parts 0" => "c1 X 20 4";
        "a2 S 20 1 lease" => "a2 is refused";
        "c2 X 4 4" => "c2 waits, revoke a[1], revoke b[1]";
        "a3 S 7 1 lease" => "a3 is refused";
        "a4 S 30 1 lease" => "a4";
        "back a1";
        "back b1" => "c2 at last";
        // Those of a fenced host stay until it can't rely on them any more.
        "fenced a";
        "own1 X 30 1";
        "pass 4000";
        "pass 1000" => "own1, list";

    fn leases_of_a_silent_host_lapse_and_it_is_not_fenced():
        "a1 S 0 8 lease" => "a1";
        "a2 X 40 8 parts 0" => "a2 X 40 8";
        "b1 X 8 8 parts 0" => "b1 X 8 8";
        "pass 3500";
        "hear c";
        "c1 X 0 1" => "c1 waits, revoke a[1]";
        "pass 500" => "revoke a[1]";
        "hear c";
        "pass 500" => "c1 at last";
        // What is no lease costs its host the fence.
        "c2 X 8 1" => "c2 waits, recall b1: X 8 1";
        "pass 500" => "doom b Silent";

    fn silent_hosts_are_forgotten_if_they_hold_nothing_and_else_doomed_after_ten_leases():
        "a1 X 0 8" => "a1";
        "b1 X 0 16" => "b1 waits";
        "b2 X 8 8" => "b2 waits";
        "a2 X 12 2" => "a2 waits";
        "pass 3900" => "revoke a[1]";
        "hear a";
        // None of the requests of b is granted by the end of the other.
        "pass 700" => "revoke a[1], a2 at last, list";
        "pass 39300";
        "pass 500" => "doom a Silent";
        "fenced a" => "list";

    fn a_silent_host_is_doomed_if_its_locks_are_in_the_way_and_loses_the_cached_ones_last():
        "a1 X 0 8 cached" => "a1";
        "a2 X 8 8" => "a2";
        "b1 X 8 8" => "b1 waits";
        "b2 X 0 8" => "b2 waits, revoke a[1]";
        "pass 3900" => "revoke a[1, 2]";
        "hear b";
        "hear c";
        "pass 700" => "revoke a[1, 2], doom a Silent";
        "c1 X 0 8 impatient" => "c1 waits";
        "pass 1000" => "c1 is refused";
        "fenced a" => "b2 at last, b1 at last, list";

    fn hosts_that_keep_cached_locks_which_others_want_are_doomed_unless_they_are_pardoned():
        "a1 X 0 8 cached" => "a1";
        "b1 X 0 8 cached" => "b1 waits, revoke a[1]";
        "live 58" => "revoke a[1]";
        "back a1" => "b1 at last";
        "a2 X 0 8 cached" => "a2 waits, revoke b[1]";
        "live 58" => "revoke b[1]";
        "back b1" => "a2 at last";
        // Only the process itself wants it, and the other one is not cached.
        "own1 X 0 8" => "revoke a[2]";
        "a3 X 20 8" => "a3";
        "b2 X 20 8" => "b2 waits";
        "live 120" => "revoke a[2, 3]";
        "c1 X 0 8 cached" => "c1 waits";
        "live 58" => "revoke a[2, 3]";
        "pardon";
        "live 58" => "revoke a[2, 3]";
        "pardon";
        "live 62" => "revoke a[2, 3], doom a KeepsLocks";

    fn an_impatient_lock_of_ranges_passes_those_that_wait_and_is_refused_for_what_is_in_use():
        "a1 S 0 8 parts 0" => "a1 S 0 8";
        "b1 S 7 4 parts 0" => "b1 S 7 4";
        "c1 X 0 2 parts 0" => "c1 waits, recall a1: X 0 2";
        "a2 X 0 7 parts 0 impatient over a1" => "a2 X 0 7, recall a2: X 0 2";
        "a3 X 7 1 parts 0 impatient over a1" => "a3 waits, recall and ask b1: X 7 1";
        "used b1 X 7 1" => "a3 is refused";
        // What is only kept is given back. That something else is in use changes nothing.
        "a4 X 7 1 parts 0 impatient over a1" => "a4 waits, recall and ask b1: X 7 1";
        "used b1 S 7 1";
        "shrink b1 S 8 3" => "a4 X 7 1 at last";
        // Each impatient request is told of, though others wait for the same.
        "b2 X 7 1 parts 0" => "b2 waits, recall a1: X 7 1 X 0 2, a4: X 7 1";
        "c2 X 7 1 parts 0 impatient" => "c2 waits, recall and ask a1: X 7 1 X 0 2 X 7 1, a4: X 7 1 X 7 1";
        "used a4 X 7 1" => "c2 is refused";
        "back b2";
        "c3 S 7 1 parts 0 impatient" => "c3 waits, recall and ask a4: S 7 1";
        "pass 500" => "recall and ask a1: X 0 2, a2: X 0 2, a4: S 7 1";
        "pass 49";
        "pass 1" => "c3 is refused";

    fn an_owner_that_has_locks_passes_those_that_wait_and_the_second_of_two_upgrades_is_refused():
        "a1 X 0 2 parts 0" => "a1 X 0 2";
        "c1 X 6 2 parts 0" => "c1 X 6 2";
        "b1 X 0 8 parts 0" => "b1 waits, recall a1: X 0 8, recall c1: X 0 8";
        "c2 X 4 1 parts 0" => "c2 waits";
        // It is granted, or has to wait for what is held alone.
        "a2 X 2 2 parts 0 passes" => "a2 X 2 2, recall a2: X 0 8";
        "a3 S 7 1 parts 0 passes" => "a3 waits";
        "back c1" => "a3 S 7 1 at last, recall a3: X 0 8";
        "back a1";
        "back a2";
        "back a3" => "b1 X 0 8 at last, recall b1: X 4 1";
        // Two hosts would wait for each other; a third one only waits for one of them.
        "a5 S 20 4 parts 0" => "a5 S 20 4";
        "b5 S 20 8 parts 0" => "b5 S 20 8";
        "a6 X 20 4 parts 0 upgrades over a5" => "a6 waits, recall b5: X 20 4";
        "b6 X 22 4 parts 0 upgrades over b5" => "b6 waits, b6 is refused";
        "c6 X 26 2 parts 0 upgrades" => "c6 waits, recall b5: X 20 4 X 26 2";
        "shrink b5 S 24 4" => "a6 X 20 4 at last";

    fn locks_of_ranges_are_widened_recalled_in_parts_and_promoted_while_they_are_held():
        "a1 X 100 10 parts 8" => "a1 X 100 18";
        "b1 S 120 10 parts 8" => "b1 S 120 18";
        "b3 S 94 2 parts 80" => "b3 S 94 6";
        // Only what is wanted goes; an exclusive lock that others share is kept shared.
        "b2 S 104 4 parts 8" => "b2 waits, recall a1: S 104 4";
        "shrink a1 X 100 4 S 104 4 X 108 10" => "b2 S 104 4 at last";
        "c1 X 110 2 parts 0" => "c1 waits, recall a1: X 110 2";
        // Another part is wanted at once, and both are called back again.
        "c2 X 114 2 parts 0" => "c2 waits, recall a1: X 110 2 X 114 2";
        "pass 500" => "recall a1: X 110 2 X 114 2";
        "shrink a1 X 100 4 S 104 4 X 108 2" => "c1 X 110 2 at last, c2 X 114 2 at last";
        // What waits is granted as it was requested.
        "a2 X 100 8 parts 8 over a1" => "a2 waits, recall b2: X 100 8";
        "shrink b2" => "a2 X 100 8 at last";
        "back a1";
        // What is wanted ahead is granted as far as it is free, and nothing of it if the lock has to wait.
        "c3 X 140 4 parts 0 ahead 146 98 152 130" => "c3 X 140 4 X 146 4 X 152 4";
        "c4 X 100 1 parts 0 ahead 300" => "c4 waits, recall a2: X 100 1";
        "shrink a2 X 101 7" => "c4 X 100 1 at last";
        "back b3";
        // Two hosts promote: the one that comes second gives back what it has, and has its turn. The first one keeps what it has until then.
        "a3 S 200 4 parts 0" => "a3 S 200 4";
        "b3 S 200 4 parts 0" => "b3 S 200 4";
        "a4 X 200 4 parts 0 over a3" => "a4 waits, recall b3: X 200 4";
        "b4 X 200 4 parts 0 over b3" => "b4 waits";
        "pass 499";
        "pass 1" => "recall a4: , recall b3: X 200 4";
        "shrink b3" => "a4 X 200 4 at last, recall a4: X 200 4";
        "pass 500" => "recall a3: X 200 4, a4: X 200 4";
        "shrink a3";
        "shrink a4" => "b4 X 200 4 at last";
        // A lock that gives up to promote blocks no other lock any more; what it has does.
        "a5 S 300 4 parts 0" => "a5 S 300 4";
        "b5 S 300 4 parts 0" => "b5 S 300 4";
        "a6 X 300 4 parts 0 over a5" => "a6 waits, recall b5: X 300 4";
        "c5 X 300 4 parts 0" => "c5 waits";
        "back a6";
        "pass 500" => "recall a5: X 300 4, recall b5: X 300 4";

    fn a_request_that_waits_in_the_way_is_named_to_its_host_which_may_not_know_it():
        "a1 X 0 8 parts 0" => "a1 X 0 8";
        "b1 X 0 8 parts 0" => "b1 waits, recall a1: X 0 8";
        "pass 500" => "recall a1: X 0 8";
        "c1 X 4 1 parts 0" => "c1 waits";
        "pass 500" => "recall a1: X 0 8 X 4 1, recall b1: ";
        "back b1";
        "shrink a1" => "c1 X 4 1 at last";
        // One that upgrades is in the way of others before they wait.
        "a2 S 20 8 parts 0" => "a2 S 20 8";
        "b2 S 20 8 parts 0" => "b2 S 20 8";
        "b3 X 20 8 parts 0 upgrades over b2" => "b3 waits, recall a2: X 20 8";
        "pass 500" => "recall a2: X 20 8, recall b3: ";
}

stories! {
    of_volumes;

    fn ranges_of_a_fenced_host_of_volumes_go_to_others_a_lease_after_it_was_heard_and_its_other_locks_at_once():
        "a1 X 0 8 parts 0" => "a1 X 0 8";
        "a2 X 8 8 cached" => "a2";
        "b1 X 0 8" => "b1 waits, recall a1: X 0 8";
        "b2 X 8 8" => "b2 waits, revoke a[2]";
        "fenced a" => "b2 at last";
        "pass 3900";
        "hear b";
        "hear c";
        "pass 700" => "b1 at last, list";
        "c1 X 20 8 cached" => "c1";
        "fenced c" => "list";
}

stories! {
    in_groups;

    fn in_group_mode_all_hosts_of_the_holders_groups_are_called_on_and_later_the_holder_by_name():
        "a1 X 0 8 parts 0" => "a1 X 0 8";
        "b1 X 4 2 parts 0" => "b1 waits, recall a: X 4 2, recall d: X 4 2";
        "pass 500" => "recall a1: X 4 2";
        "shrink a1 X 0 4 X 6 2" => "b1 X 4 2 at last";
        // A host is not called on for what it wants itself, and one that holds something is, though it wants it, too.
        "c1 S 20 4 parts 0" => "c1 S 20 4";
        "d1 S 20 4 parts 0" => "d1 S 20 4";
        "a2 X 20 4 parts 0" => "a2 waits, recall c: X 20 4, recall d: X 20 4";
        "d2 X 20 5 parts 0 over d1" => "d2 waits, recall c: X 20 4 X 20 5";
        "c2 X 20 6 parts 0 over c1" => "c2 waits";
        "shrink c1";
        "shrink d1" => "a2 X 20 4 at last, recall a: X 20 5 X 20 6, recall d: X 20 6";
        "shrink a2" => "d2 X 20 5 at last, recall a: X 20 6, recall d: X 20 6";
        // The first that promotes keeps what it has, though another host of those that are called on gives it up.
        "a4 S 60 4 parts 0" => "a4 S 60 4";
        "b2 S 60 4 parts 0" => "b2 S 60 4";
        "c4 S 60 4 parts 0" => "c4 S 60 4";
        "b3 X 60 4 parts 0 over b2" => "b3 waits, recall a: X 60 4, recall c: X 60 4, recall d: X 60 4";
        "c5 X 60 5 parts 0 over c4" => "c5 waits, recall a: X 60 4 X 60 5, recall d: X 60 4 X 60 5";
        // Locks that are not called back in parts are revoked by their names.
        "a3 X 40 8 cached" => "a3";
        "c3 X 40 8 cached" => "c3 waits, revoke a[3]";
}
