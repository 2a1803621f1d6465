//! The bounds of requests and of their results.

use crate::words::*;
use braid_objects::evaluate::{ANSWER_BYTES_MAX, CHANGED_BYTES_MAX, CHANGES_MAX};
use braid_wire::*;

/// 256 KiB of data and four values of 64 KiB.
fn full() -> Objects {
    let mut objects = Objects::with_one();
    objects.acts(write(0, &vec![1; 256 << 10]));
    for number in 0..4 {
        objects.does([set(AttributeName::new(3, number), &vec![2; 64 << 10])]);
    }
    objects
}

fn refused(answer: ObjectAnswer) -> (u32, ObjectFailure) {
    let ObjectRefusal { command, failure } = answer.expect_err("a refusal");
    (command, failure)
}

#[test]
fn a_request_has_64_commands_at_most() {
    let mut objects = Objects::with_one();
    let nothing = || command(Action::Nothing);
    objects.does((0..64).map(|_| nothing()));
    let answer = objects.ask((0..65).map(|_| nothing()));
    assert_eq!(refused(answer), (64, ObjectFailure::Malformed));
}

#[test]
fn a_command_has_64_sets_and_64_gets_at_most() {
    let mut objects = Objects::with_one();
    let most = (0..64).fold(command(Action::Nothing), |most, number| {
        most.set(AttributeName::new(0, number), b"x").get(AttributeName::new(0, number))
    });
    objects.does([most.clone()]);
    for more in [most.clone().set(NOTE, b""), most.get(NOTE)] {
        assert_eq!(objects.refuses(more.clone()), ObjectFailure::Malformed);
        // Whether the command would be executed or not.
        assert_eq!(objects.refuses(more.when(When::IfNotSwapped)), ObjectFailure::Malformed);
    }
}

#[test]
fn a_remove_or_list_of_objects_carries_no_attributes() {
    let mut objects = Objects::with_one();
    for action in [Action::Remove, Action::List { after: ObjectId(0), most: 1 }] {
        assert_eq!(objects.refuses(command(action.clone()).get(NOTE)), ObjectFailure::Malformed);
        assert_eq!(objects.refuses(command(action).set(NOTE, b"x")), ObjectFailure::Malformed);
    }
}

#[test]
fn a_request_brings_512_kib_at_most() {
    let mut objects = Objects::with_one();
    let half = || command(write(0, &vec![1; 256 << 10]));
    objects.does([half(), half()]);
    for more in
        [set(NOTE, b"x"), command(swap(LOCK, b"", b"x")), command(swap(LOCK, b"x", b"")), command(write(0, b"x"))]
    {
        let answer = objects.ask([half(), half(), more]);
        assert_eq!(refused(answer), (2, ObjectFailure::Malformed));
    }
}

#[test]
fn an_answer_brings_512_kib_at_most() {
    let mut objects = full();
    objects.does([set(LOCK, b"x")]);
    let read = || command(read(0, 256 << 10));
    let gets = (0..4).fold(command(Action::Nothing), |gets, number| gets.get(AttributeName::new(3, number)));
    objects.does([read(), gets.clone()]);
    objects.does([gets.clone(), read()]);
    let list = Action::List { after: ObjectId(0), most: 1 };
    let attributes = Action::ListAttributes { after: None, page: None, most: 1 };
    for more in [
        command(Action::Nothing).get(LOCK),
        command(swap(LOCK, b"", b"x")),
        command(list),
        command(attributes),
        command(crate::words::read(0, 1)),
    ] {
        let before = objects.map.clone();
        let answer = objects.ask([set(NOTE, b"changed"), read(), gets.clone(), more]);
        assert_eq!(refused(answer), (3, ObjectFailure::Malformed));
        assert_eq!(objects.map, before);
    }
}

fn evaluated(objects: &mut Objects, commands: impl IntoIterator<Item = ObjectCommand>) -> Evaluation {
    let request = ObjectRequest { commands: commands.into_iter().collect() };
    let evaluation = evaluate(&request, &mut objects.map).expect("all of it is here");
    assert!(evaluation.answer.is_ok(), "{:?}", evaluation.answer);
    evaluation
}

fn changed_bytes(evaluation: &Evaluation) -> usize {
    evaluation.changes.iter().filter_map(|change| change.value.as_ref()).map(Bytes::len).sum()
}

#[test]
fn small_writes_all_over_change_no_more_than_a_request_may() {
    let mut objects = Objects::with_one();
    // Each write crosses the border of two pieces that are full already.
    for part in 0..4 {
        objects.acts(write(part << 18, &vec![1; 256 << 10]));
    }
    let across = |at: u64| command(write((2 * at + 1) * 4096 - 1, &[2; 2]));
    let evaluation = evaluated(&mut objects, (0..64).map(across));
    assert_eq!(evaluation.changes.len(), 128);
    assert!((512 << 10..CHANGED_BYTES_MAX).contains(&changed_bytes(&evaluation)));
}

#[test]
fn the_most_sets_in_new_objects_change_no_more_than_a_request_may() {
    let mut objects = Objects::default();
    let value = vec![1; (512 << 10) / 4096];
    let sets =
        || (0..64).fold(command(Action::Create).of(0), |sets, number| sets.set(AttributeName::new(0, number), &value));
    let evaluation = evaluated(&mut objects, (0..64).map(|_| sets()));
    assert_eq!(evaluation.changes.len(), 64 * 65 + 1);
    assert!(evaluation.changes.len() < CHANGES_MAX);
    assert!(changed_bytes(&evaluation) < CHANGED_BYTES_MAX);
}

#[test]
fn the_longest_answers_fit_into_what_is_kept_of_them() {
    let mut objects = full();
    let gets = (0..64).fold(command(Action::Create).of(0), |gets, number| gets.get(AttributeName::new(0, number)));
    let reads = [
        command(read(0, 256 << 10)),
        (0..4).fold(command(Action::Nothing), |gets, number| gets.get(AttributeName::new(3, number))),
    ];
    let evaluation = evaluated(&mut objects, reads.into_iter().chain((0..62).map(|_| gets.clone())));
    let bytes = encode_answer(&evaluation.answer).len();
    assert!((512 << 10..=ANSWER_BYTES_MAX).contains(&bytes), "{bytes} bytes");
}

const _: () = assert!(ANSWER_BYTES_MAX <= limits::OBJECT_ANSWER_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES_MAX <= limits::FRAME_BYTES_MAX);
