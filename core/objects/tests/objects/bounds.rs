//! The bounds of requests, of their results, and of the steps of a garbage collection.

use crate::model::Model;
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

#[test]
fn requests_within_each_bound_are_done_and_one_thing_more_is_refused_as_by_the_model() {
    let never = |command: ObjectCommand| command.when(When::IfNotSwapped);
    let nothing = || command(Action::Nothing);
    let name = |number| AttributeName::new(0, number);
    let most = (0..64).fold(nothing(), |most, number| most.set(name(number), b"x").get(name(number)));
    let (more_sets, more_gets) = (most.clone().set(NOTE, b""), most.clone().get(NOTE));
    let half = || command(write(0, &vec![1; 256 << 10]));
    let (large, longest, longer) = (vec![1; (256 << 10) + 1], vec![1; 64 << 10], vec![1; (64 << 10) + 1]);
    let append = Action::Append { data: large.clone().into() };
    let (list, remove) = (Action::List { after: ObjectId(0), most: 1 }, Action::Remove);
    let (list, remove) = (|| command(list.clone()), || command(remove.clone()));
    let creation = |number| command(Action::Create).of(number);
    let mut bounds = vec![
        (vec![nothing(); 64], vec![nothing()]),
        // Whether the command would be executed or not.
        (vec![most], vec![more_sets.clone(), more_gets.clone(), never(more_sets), never(more_gets)]),
        (vec![list()], vec![list().get(NOTE), list().set(NOTE, b"x"), remove().get(NOTE), remove().set(NOTE, b"x")]),
        (vec![half(), half()], vec![set(NOTE, b"x"), command(write(0, b"x"))]),
        (vec![half(), half()], [swap(LOCK, b"", b"x"), swap(LOCK, b"x", b"")].map(command).to_vec()),
        (vec![command(read(0, 256 << 10))], [write(0, &large), append].map(command).to_vec()),
        (vec![half()], [read(0, (256 << 10) + 1), read(0, u32::MAX)].map(command).to_vec()),
        (vec![command(swap(NOTE, &longest, &longest))], vec![command(swap(NOTE, b"no", &longer))]),
        (vec![set(NOTE, &longest)], vec![set(NOTE, &longer), command(swap(LOCK, &longer, b"x"))]),
        (vec![creation((0xff << 56) - 1)], vec![creation(0xff << 56), creation(u64::MAX)]),
    ];
    for name in [0xf000_0000, 0xf000_0001, u32::MAX].map(|page| AttributeName::new(page, 1)) {
        // Even if nothing would be swapped or set.
        let swaps = [swap(name, b"other", b"x"), swap_empty(name, b"other", b"x"), add(name, 1)].map(command);
        let sets =
            [set(name, b"x"), set(name, b""), set(name, b"x").sets_when(When::IfNotSwapped), never(set(name, b"x"))];
        bounds.push((vec![set(AttributeName::new(0xefff_ffff, 1), b"x")], [&swaps[..], &sets].concat()));
    }
    for (within, more) in bounds {
        Objects::with_one().does(within.clone());
        for more in more {
            let commands: Vec<ObjectCommand> = within.iter().cloned().chain([more]).collect();
            let answer = Objects::with_one().ask(commands.clone());
            assert_eq!(answer.as_ref().map_err(|refusal| refusal.command as usize), Err(within.len()));
            assert_eq!(answer, Model::default().ask(&ObjectRequest { commands }));
        }
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
        assert_eq!(answer, Err(ObjectRefusal { command: 3, failure: ObjectFailure::Malformed }));
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

#[test]
fn a_collection_takes_as_many_keys_as_it_may() {
    // Two pieces, one attribute, and the record of the incarnation.
    for (most, times) in [(1, 4), (2, 2), (3, 2), (4, 1), (100, 1)] {
        let mut objects = Objects::with_one();
        objects.does([command(write(0, &[1; 5000])).set(NOTE, b"x"), command(Action::Remove)]);
        assert_eq!(objects.collect(most), times, "{most} at a time");
        assert_eq!(objects.map.len(), 1);
    }
}

const _: () = assert!(ANSWER_BYTES_MAX <= limits::OBJECT_ANSWER_BYTES_MAX);
const _: () = assert!(ANSWER_BYTES_MAX <= limits::FRAME_BYTES_MAX);
