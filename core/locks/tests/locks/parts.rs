//! The client of the lock servers, shared by two parts of one owner. Each part receives the events of its own holders
//! only.

use crate::bench::*;
use braid_locks::client::{Acquisition, Ctx, Event, LockClient, LockClientConfig, Part, Retention, Wanted};

const SERVER: LockServerId = LockServerId(0);
const PAGES: Part = Part(1);
const FILES: Part = Part(2);
const NOW: Now = Now { time: Time(1_000_000_000), clock: Clock(0) };

struct Owner {
    client: LockClient,
    settings: Settings,
    last: u64,
    now: Now,
    /// What it sent in the last step.
    sent: Vec<LockCommand>,
}

impl Owner {
    fn new() -> Owner {
        let config = LockClientConfig { host: ONE, servers: vec![SERVER], acquisition: Acquisition::Ordered };
        Owner { client: LockClient::new(config), settings: Settings::default(), last: 0, now: NOW, sent: Vec::new() }
    }

    /// Runs `what` on the client, and returns the locks that it requested.
    fn does(&mut self, what: impl FnOnce(&mut LockClient, &mut Ctx)) -> Vec<u64> {
        let mut out = Effects::default();
        let mut number = || {
            self.last += 1;
            self.last
        };
        what(
            &mut self.client,
            &mut Ctx { now: self.now, settings: &self.settings, number: &mut number, out: &mut out },
        );
        let sent = |effect| match effect {
            Effect::Send { to: NodeId::LockServer(SERVER), message: Message::LockRequest(request) } => {
                Some(request.command)
            }
            _ => None,
        };
        self.sent = out.drain().filter_map(sent).collect();
        let lock_id = |command: &LockCommand| match command {
            LockCommand::Lock { lock_id, .. } => Some(*lock_id),
            _ => None,
        };
        self.sent.iter().filter_map(lock_id).collect()
    }

    fn hears(&mut self, reply: LockReply) -> Vec<u64> {
        let answer = LockAnswer { start: Generation(1), reply };
        self.does(|client, cx| client.on_answer(cx, SERVER, answer))
    }

    fn told(&mut self, part: Part) -> Vec<Event> {
        std::iter::from_fn(|| self.client.of_part(part).pop_event()).collect()
    }
}

fn wanted() -> Wanted {
    let extents = extents(LockMode::Exclusive, &[(0, 8)]);
    Wanted {
        object: OBJECT,
        extents,
        unit_blocks: 8,
        retention: Retention::Cached,
        patience: Patience::InTurn,
        over: Vec::new(),
    }
}

#[test]
fn each_part_gets_events_of_its_own_holders_though_both_use_one_number() {
    let mut owner = Owner::new();
    let asked = owner.does(|client, cx| client.of_part(PAGES).acquire(cx, 7, wanted()));
    let waits = owner.does(|client, cx| client.of_part(FILES).acquire(cx, 7, wanted()));
    assert_eq!(waits, [], "the holder waits for another holder of this host");
    assert_eq!(owner.told(FILES), [Event::Delayed { holder: 7 }]);
    owner.hears(LockReply::Granted { lock_id: asked[0], waited: false });
    assert_eq!(owner.told(FILES), []);
    assert_eq!(owner.told(PAGES), [Event::Granted { holder: 7 }]);
    assert_eq!(owner.client.holders(PAGES).collect::<Vec<_>>(), [(7, true)]);
    assert_eq!(owner.client.holders(FILES).collect::<Vec<_>>(), [(7, false)]);

    owner.does(|client, cx| client.of_part(PAGES).release(cx, 7));
    owner.does(|client, cx| assert!(client.take_turn(cx)));
    assert_eq!(owner.told(PAGES), []);
    assert_eq!(owner.told(FILES), [Event::Granted { holder: 7 }], "granted by the cached lock");
    owner.client.invariants();
}

#[test]
fn a_part_gets_an_event_when_another_host_waits_for_a_lock_of_its_holder() {
    let mut owner = Owner::new();
    let asked = owner.does(|client, cx| client.of_part(PAGES).acquire(cx, 7, wanted()));
    owner.hears(LockReply::Granted { lock_id: asked[0], waited: false });
    owner.told(PAGES);
    owner.hears(LockReply::Revoke { lock_ids: asked.clone() });
    assert_eq!((owner.told(FILES), owner.told(PAGES)), (vec![], vec![Event::Revoked { holder: 7 }]));
    let again = owner.does(|client, cx| {
        client.of_part(PAGES).release(cx, 7);
        client.of_part(FILES).acquire(cx, 7, wanted());
    });
    assert_eq!(again.len(), 1, "no further holder uses a revoked lock");
}

#[test]
fn a_host_keeps_a_bounded_number_of_ranges_and_drops_the_oldest_that_is_not_in_use() {
    let mut owner = Owner { settings: Settings { lock_extents_max: 64, ..Settings::default() }, ..Owner::new() };
    let lock = |owner: &mut Owner, holder: u64| {
        let range = extents(LockMode::Exclusive, &[(10 * holder, 10)]);
        let wanted = Wanted::new(OBJECT, range.clone(), Retention::CachedInParts { width: 0 });
        owner.does(|client, cx| client.of_part(PAGES).acquire(cx, holder, wanted));
        let lock_id = owner.last;
        if owner.told(PAGES).is_empty() {
            owner.hears(LockReply::GrantedRange { lock_id, extents: range, waited: false });
            owner.told(PAGES);
        }
        lock_id
    };
    lock(&mut owner, 1);
    let numbers: Vec<_> = (2..10)
        .map(|holder| {
            let number = lock(&mut owner, holder);
            owner.does(|client, cx| client.of_part(PAGES).release(cx, holder));
            number
        })
        .collect();
    assert_eq!(owner.client.len(), 4, "the one in use, and the last three");
    assert_eq!(lock(&mut owner, 9), numbers[7], "it is kept");
    let asked = lock(&mut owner, 2);
    assert!(asked > numbers[7], "it was dropped");
    owner.client.invariants();
}

#[test]
fn a_lock_server_is_not_believed_about_the_locks_of_another() {
    let (zero, one) = (LockServerId(0), LockServerId(1));
    let config = LockClientConfig { host: ONE, servers: vec![zero, one], acquisition: Acquisition::Ordered };
    let mut owner = Owner { client: LockClient::new(config), ..Owner::new() };
    let holders = 8;
    for holder in 0..holders {
        let extents = extents(LockMode::Exclusive, &[(holder * 128, 8)]);
        owner.does(|client, cx| client.of_part(PAGES).acquire(cx, holder, Wanted { extents, ..wanted() }));
    }
    let granted = |owner: &Owner| owner.client.holders(PAGES).filter(|(_, has_all)| *has_all).count() as u64;
    let says = |owner: &mut Owner, server, start: u32, grants: bool| {
        for lock_id in 1..=holders {
            let reply = if grants {
                LockReply::Granted { lock_id, waited: false }
            } else {
                LockReply::Heartbeat { sent: Time(0) }
            };
            let answer = LockAnswer { start: Generation(start), reply };
            owner.does(|client, cx| client.on_answer(cx, server, answer));
        }
    };
    says(&mut owner, zero, 1, true);
    assert!(granted(&owner) > 0 && granted(&owner) < holders, "each server has some of them");
    says(&mut owner, one, 1, true);
    assert_eq!(granted(&owner), holders);
    // One server restarts, and the other one says that its locks are known again.
    says(&mut owner, zero, 2, false);
    says(&mut owner, one, 1, true);
    says(&mut owner, zero, 2, true);
    assert_eq!(granted(&owner), holders);
}

#[test]
fn sequences_and_strides_are_foreseen_until_another_host_wants_some_of_it() {
    let mut owner = Owner::new();
    let mut number = 0;
    // Locks a block, is granted all that it asks for, and unlocks. Returns the number of the request, by how much it may be longer, and the
    // blocks that are foreseen.
    let mut locks = |owner: &mut Owner, start| {
        number += 1;
        let retention = Retention::CachedInParts { width: 20 };
        let wanted = Wanted::new(OBJECT, extents(LockMode::Exclusive, &[(start, 1)]), retention);
        owner.does(|client, cx| client.of_part(FILES).acquire(cx, number, wanted));
        let asked = owner.sent.pop().map(|command| {
            let LockCommand::LockRange { lock_id, mut extents, width, ahead, .. } = command else {
                panic!("{command:?}")
            };
            extents[0].range.count += width;
            let starts: Vec<_> = ahead.iter().map(|extent| extent.range.start).collect();
            owner.hears(LockReply::GrantedRange { lock_id, extents: [extents, ahead].concat(), waited: false });
            (lock_id, width, starts)
        });
        assert_eq!(owner.told(FILES), [Event::Granted { holder: number }], "{start}");
        owner.does(|client, cx| client.of_part(FILES).release(cx, number));
        asked
    };
    let recall = |owner: &mut Owner, lock_id, start| {
        let extents = extents(LockMode::Exclusive, &[(start, 1)]);
        owner.hears(LockReply::Recall { wanted: vec![LockPart { lock_id, extents }], asks: false });
        let [LockCommand::Shrink { rest, .. }] = &owner.sent[..] else { panic!("{:?}", owner.sent) };
        rest[0].extents.iter().map(|extent| (extent.range.start, extent.range.count)).collect::<Vec<_>>()
    };
    let mut widths = Vec::new();
    for start in 10..18 {
        widths.push(locks(&mut owner, start).map(|(_, width, ahead)| {
            assert!(ahead.is_empty());
            width
        }));
    }
    assert_eq!(widths, [Some(0), Some(1), None, Some(3), None, None, None, Some(7)]);
    let last = owner.last;
    locks(&mut owner, 18);
    assert_eq!(recall(&mut owner, last, 22), [(17, 2)], "what no program has used goes, too");
    for start in [30, 31] {
        assert!(locks(&mut owner, start).is_some_and(|(_, width, _)| width == 0), "nothing is foreseen for a while");
    }
    owner.now.time = owner.now.time.after(Duration::from_secs(1));
    assert!(locks(&mut owner, 32).is_some_and(|(_, width, _)| width == 1));
    // A second program proceeds in between.
    for start in [100, 103, 107, 110, 114, 117] {
        assert!(locks(&mut owner, start).is_some_and(|(_, width, ahead)| width == 0 && ahead.is_empty()));
    }
    let (lock_id, _, ahead) = locks(&mut owner, 121).expect("it was not foreseen");
    assert_eq!(ahead, (1..16).map(|index| 121 + 7 * index).collect::<Vec<_>>());
    assert_eq!(locks(&mut owner, 128), None);
    assert_eq!(recall(&mut owner, lock_id, 149), [(121, 1), (128, 1)]);
    owner.hears(LockReply::RecallGroup { object: OBJECT, extents: extents(LockMode::Exclusive, &[(500, 1)]) });
    assert_eq!((owner.client.counters().vain_recalls, &owner.sent[..]), (1, &[][..]), "nothing of it is kept here");
    owner.hears(LockReply::RecallGroup { object: OBJECT, extents: extents(LockMode::Exclusive, &[(107, 1)]) });
    assert_eq!(owner.sent.len(), 1);
}

#[test]
fn a_request_that_waits_stays_when_its_server_asks_for_it_and_one_that_is_unknown_is_given_back() {
    let mut owner = Owner::new();
    let range = extents(LockMode::Exclusive, &[(0, 8)]);
    let wanted = Wanted::new(OBJECT, range.clone(), Retention::CachedInParts { width: 0 });
    owner.does(|client, cx| client.of_part(FILES).acquire(cx, 1, wanted));
    let unknown = LockPart { lock_id: 99, extents: Vec::new() };
    let wanted = vec![LockPart { lock_id: owner.last, extents: Vec::new() }, unknown.clone()];
    owner.hears(LockReply::Recall { wanted, asks: false });
    assert_eq!(owner.sent, [LockCommand::Shrink { rest: vec![unknown], in_use: Vec::new() }]);
    owner.hears(LockReply::GrantedRange { lock_id: owner.last, extents: range.clone(), waited: true });
    assert!(owner.told(FILES).contains(&Event::Granted { holder: 1 }));
    // What the host itself keeps is in the way of no lease.
    owner.does(|client, cx| client.of_part(FILES).release(cx, 1));
    assert_eq!(owner.client.held().count(), 1);
    let lease = extents(LockMode::Shared, &[(2, 1)]);
    owner.does(|client, cx| client.of_part(FILES).acquire(cx, 2, Wanted::new(OBJECT, lease, Retention::Leased)));
    assert_eq!(owner.client.held().count(), 0);
}

#[test]
fn late_answers_do_not_prolong_the_time_for_which_a_server_is_trusted() {
    let mut owner = Owner::new();
    let [lock_id] = owner.does(|client, cx| client.of_part(PAGES).acquire(cx, 1, wanted()))[..] else { panic!() };
    owner.now.time = NOW.time.after(Duration::from_secs(3));
    owner.hears(LockReply::Granted { lock_id, waited: false });
    let trusted_from = |owner: &Owner| {
        let doubt = owner.client.in_doubt_at(&owner.settings).expect("a lock server has answered");
        doubt.since(Time(0)) - owner.settings.host_lease * 7 / 8
    };
    assert_eq!(
        trusted_from(&owner),
        Duration::from_secs(1),
        "the server heard what was sent then, perhaps nothing later"
    );
    // The answer to a later heartbeat, that to an earlier one, and one that no server gives.
    for (sent, expected) in [(3, 3), (2, 3), (9, 4)] {
        owner.hears(LockReply::Heartbeat { sent: Time(sent * 1_000_000_000) });
        assert_eq!(trusted_from(&owner), Duration::from_secs(expected));
    }
}

#[test]
fn a_survey_is_sent_until_it_is_answered_or_its_time_is_up_and_no_other_server_answers_it() {
    let mut owner = Owner::new();
    const OTHER: NodeId = NodeId::LockServer(LockServerId(1));
    let from = braid_wire::LockName::default();
    let mut ticket = 0;
    let wait = Duration::from_secs(2);
    owner.does(|client, cx| ticket = client.survey(cx, SERVER, (from, None, true), wait));
    let survey = braid_wire::LockSurvey { locks: Vec::new(), next: None, is_recovered: true };
    let reply = LockReply::Surveyed { ticket, survey: survey.clone() };
    owner.does(|client, cx| {
        // The link to the other server is known.
        client.survey(cx, LockServerId(1), (from, None, true), wait);
        client.on_answer(cx, LockServerId(1), LockAnswer { start: Generation(1), reply: reply.clone() });
    });
    assert_eq!(owner.client.pop_surveyed(), None, "the other server was not asked");
    owner.hears(reply);
    assert_eq!(owner.client.pop_surveyed(), Some((ticket, Some(survey))));
    let mut asked = 0;
    while owner.client.pop_surveyed() != Some((ticket + 1, None)) {
        let (time, mut out) = (owner.client.deadline().expect("it is asked again"), Effects::default());
        assert!(time <= NOW.time.after(wait), "its time is up");
        let (now, mut number) = (Now { time, ..NOW }, || -> u64 { unreachable!("nothing new is asked") });
        owner.client.wake(&mut Ctx { now, settings: &owner.settings, number: &mut number, out: &mut out });
        for effect in out.drain() {
            let Effect::Send { to, message: Message::LockRequest(request) } = effect else { panic!("{effect:?}") };
            asked += u64::from(to == OTHER && matches!(request.command, LockCommand::Survey { .. }));
        }
    }
    assert!(asked >= 1, "it was sent again");
}
