//! Stories: how long each event takes, and single rules that swarm runs don't reach.

use crate::faults::{Fault, Kind};
use crate::world::World;
use braid_base::{Rng, Time};
use braid_leadership::{
    Answer, Candidate, CandidateId, Effect, Head, Input, Message, Nonce, QuestionId, Times, WriteId,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Three candidates with exact clocks, of which one leads.
fn calm() -> (World, usize) {
    let mut world = World::new(Rng::new(1), 3, |_| 0);
    world.run(Duration::from_secs(8));
    let leader = world.granting().expect("there is a first leader");
    (world, leader)
}

/// How long it takes until another one than this candidate may grant leases.
fn until_another(world: &mut World, former: usize) -> Duration {
    let begun = world.now;
    while world.granting().is_none_or(|leader| leader == former) {
        world.run(Duration::from_millis(10));
    }
    world.now.since(begun)
}

/// The longest time for which a device was without a lease.
fn pause(world: &World) -> Option<Duration> {
    world.devices.iter().map(|device| device.pause).max()
}

#[test]
fn leaders_are_followed_after_a_silence_or_at_once_after_an_orderly_end() {
    let (mut world, leader) = calm();
    world.restart(leader, Duration::ZERO, Duration::from_secs(1));
    let died = until_another(&mut world, leader);
    assert!(died > Duration::from_millis(1_200) && died < Duration::from_millis(2_200), "{died:?}");
    let heir = world.leader().expect("another one leads");
    world.input(heir, Input::Resign);
    let ended = until_another(&mut world, heir);
    assert!(ended > Duration::from_millis(1_050), "the doubt of the leader before is over: {ended:?}");
    world.run(Duration::from_secs(5));
    let heir = world.leader().expect("another one leads");
    world.input(heir, Input::Resign);
    let ended = until_another(&mut world, heir);
    assert!(ended < Duration::from_millis(300), "{ended:?}");
    world.run(Duration::from_secs(5));
    assert_eq!(pause(&world), Some(Duration::ZERO));
}

#[test]
fn ten_minutes_without_the_registry_cost_nothing_until_a_candidate_dies() {
    let (mut world, leader) = calm();
    world.fault(Fault::NoQuorum(true));
    world.run(Duration::from_secs(600));
    assert_eq!((world.granting(), pause(&world)), (Some(leader), Some(Duration::ZERO)));
    world.fault(Fault::Crash((leader + 1) % 3));
    world.run(Duration::from_secs(4));
    assert_eq!(world.granting(), None, "a promise is missing");
    world.start((leader + 1) % 3);
    world.run(Duration::from_secs(10));
    assert_eq!(world.granting(), None, "it may have led before its start");
    world.fault(Fault::NoQuorum(false));
    world.run(Duration::from_secs(2));
    assert_eq!(world.granting(), Some(leader));
}

#[test]
fn a_leader_that_is_cut_off_alone_stops_within_its_doubt() {
    let (mut world, leader) = calm();
    world.cut_off(leader, Duration::ZERO, Duration::from_secs(20));
    world.run(Duration::from_millis(1_010));
    assert_eq!(world.granting(), None);
    let passed = until_another(&mut world, leader);
    assert!(passed < Duration::from_millis(1_200), "{passed:?}");
    world.begin(Kind::Full);
    world.run(Duration::from_secs(12));
    assert_eq!(pause(&world), Some(Duration::ZERO), "a full registry can be read");
}

/// A candidate with this number that has read the first head, of these candidates, and what it asks for next.
fn candidate(id: u16, candidates: &BTreeSet<CandidateId>) -> (Candidate, Vec<Effect>, Time) {
    let (start, later) = (Time(0), Time(4_000_000_000));
    let mut candidate = Candidate::new(start, CandidateId(id), Times::default(), Rng::new(7), None);
    let reads = [candidate.step(start, Input::Wake), candidate.step(later, Input::Wake)].concat();
    let [.., Effect::Read { call }] = reads[..] else { panic!("a standby reads: {reads:?}") };
    let found = Answer::Head(Some(Head::first(candidates.clone())));
    let effects = candidate.step(later, Input::Answer { call, answer: found });
    (candidate, effects, later)
}

#[test]
fn a_candidate_that_is_not_in_the_list_takes_no_part() {
    let both = BTreeSet::from([CandidateId(0), CandidateId(1)]);
    assert!(matches!(candidate(1, &both).1[..], [Effect::Swap { .. }]));
    assert_eq!(candidate(2, &both).1, []);
}

#[test]
fn promises_of_both_lists_count_until_another_list_is_durable() {
    let alone = BTreeSet::from([CandidateId(0)]);
    let (mut leader, effects, now) = candidate(0, &alone);
    let [Effect::Swap { call, ref head, .. }] = effects[..] else { panic!("it takes over: {effects:?}") };
    leader.step(now, Input::Answer { call, answer: Answer::Swapped });
    let candidates = Some(BTreeSet::from([CandidateId(0), CandidateId(1)]));
    leader.step(now, Input::Write { write: WriteId(1), candidates });
    let later = now.after(Duration::from_millis(1_500));
    let asks = leader.step(later, Input::Wake);
    let ask = |effect: &Effect| matches!(effect, Effect::Send { to: CandidateId(1), message: Message::Ask { .. } });
    assert!(asks.iter().any(ask), "{asks:?}");
    assert!(!leader.may_grant(later), "one may have joined that has not promised");
    let promise = Message::Promise { nonce: head.nonce, sent: later };
    leader.step(later, Input::Message { from: CandidateId(1), message: promise });
    assert!(leader.may_grant(later) && !leader.may_grant(later.after(Duration::from_secs(3))));
    let foreign = Message::Promise { nonce: Nonce(5), sent: later.after(Duration::from_secs(2)) };
    leader.step(later, Input::Message { from: CandidateId(1), message: foreign });
    assert!(!leader.may_grant(later.after(Duration::from_secs(3))), "a promise to another leader");
}

#[test]
fn questions_are_answered_by_a_read_and_wait_up_to_a_bound() {
    let (mut leader, effects, now) = candidate(0, &BTreeSet::from([CandidateId(0)]));
    let [Effect::Swap { call, ref head, .. }] = effects[..] else { panic!("it takes over: {effects:?}") };
    assert_eq!(leader.step(now, Input::Question(QuestionId(0))), [Effect::RefusedQuestion(QuestionId(0))]);
    leader.step(now, Input::Answer { call, answer: Answer::Swapped });
    let [Effect::Read { call }] = leader.step(now, Input::Question(QuestionId(0)))[..] else { panic!("it reads") };
    assert_eq!(leader.step(now, Input::Question(QuestionId(1))), [], "one read at a time");
    let answer = Answer::Head(Some(head.clone()));
    let answered = leader.step(now, Input::Answer { call, answer });
    let [Effect::Current(QuestionId(0)), Effect::Read { mut call }] = answered[..] else { panic!("{answered:?}") };
    // While a write is repeated, for example because the registry is full, reads answer.
    leader.step(now, Input::Question(QuestionId(2)));
    let now = now.after(Duration::from_millis(250));
    let writing = leader.step(now, Input::Wake);
    assert!(matches!(writing[..], [Effect::Swap { .. }]), "{writing:?}");
    for number in [1, 2] {
        let answered = leader.step(now, Input::Answer { call, answer: Answer::Head(Some(head.clone())) });
        assert!(answered.contains(&Effect::Current(QuestionId(number))), "{answered:?}");
        let next = |effect: &Effect| if let Effect::Read { call } = effect { Some(*call) } else { None };
        call = answered.iter().find_map(next).unwrap_or(call);
    }
    let refused = (3..2_000).filter(|number| {
        leader.step(now, Input::Question(QuestionId(*number))).contains(&Effect::RefusedQuestion(QuestionId(*number)))
    });
    assert_eq!(refused.count(), 1_997 - 1_024);
}
