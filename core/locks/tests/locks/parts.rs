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
}

impl Owner {
    fn new() -> Owner {
        let config = LockClientConfig { host: ONE, servers: vec![SERVER], acquisition: Acquisition::Ordered };
        Owner { client: LockClient::new(config), settings: Settings::default(), last: 0, now: NOW }
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
        let asked = |effect| match effect {
            Effect::Send { to: NodeId::LockServer(SERVER), message: Message::LockRequest(request) } => {
                match request.command {
                    LockCommand::Lock { lock_id, .. } => Some(lock_id),
                    _ => None,
                }
            }
            _ => None,
        };
        out.drain().filter_map(asked).collect()
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
        is_impatient: false,
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
fn a_range_that_was_granted_wide_is_locked_in_parts_without_a_message() {
    let mut owner = Owner::new();
    let locks = |owner: &mut Owner, holder, start| {
        let extents = extents(LockMode::Exclusive, &[(start, 1)]);
        let wanted = Wanted::new(OBJECT, extents, Retention::CachedInParts { width: 8 });
        owner.does(|client, cx| client.of_part(FILES).acquire(cx, holder, wanted));
    };
    locks(&mut owner, 1, 10);
    let wide = extents(LockMode::Exclusive, &[(2, 17)]);
    owner.hears(LockReply::GrantedRange { lock_id: 1, extents: wide, waited: false });
    locks(&mut owner, 2, 3);
    locks(&mut owner, 3, 30);
    assert_eq!(owner.told(FILES), [Event::Granted { holder: 1 }, Event::Granted { holder: 2 }]);
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
    let survey = braid_wire::LockSurvey { locks: Vec::new(), next: None, is_recovered: true, leases: Vec::new() };
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
