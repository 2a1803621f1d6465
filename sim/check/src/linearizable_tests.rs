//! Tests of the linearizability checker: known bad histories, sequential runs with blurred times, and small random histories compared
//! with a naive checker that tries every order.

use super::*;
use crate::exactly_once::{Miscounted, check_counters};
use crate::history::Client;
use crate::object_history::ObjectOperationId;
use braid_objects::map_access::apply;
use braid_wire::{Action, SetAttribute, Undefined, When};
use proptest::prelude::*;

const HERE: DeviceId = DeviceId(0);
const NAME: AttributeName = AttributeName::new(1, 7);
const COUNT: AttributeName = AttributeName::new(1, 8);

fn command(object: u64, action: Action) -> ObjectCommand {
    ObjectCommand::new(ObjectId(object), action)
}

fn request(commands: &[ObjectCommand]) -> ObjectRequest {
    ObjectRequest { commands: commands.to_vec() }
}

fn set(object: u64, value: &'static str) -> ObjectRequest {
    let sets = vec![SetAttribute { name: NAME, value: value.into() }];
    request(&[ObjectCommand { sets, ..command(object, Action::Nothing) }])
}

fn get(object: u64, name: AttributeName) -> ObjectRequest {
    request(&[ObjectCommand { gets: vec![name], ..command(object, Action::Nothing) }])
}

fn add(object: u64, add: i64) -> ObjectRequest {
    request(&[command(object, Action::FetchAndAdd { name: COUNT, add, original: true })])
}

fn swap(object: u64, from: &'static str, to: &'static str) -> ObjectRequest {
    let (compare, swap) = (from.into(), to.into());
    let undefined = Undefined::IsEmpty;
    request(&[command(object, Action::CompareAndSwap { name: NAME, compare, swap, undefined, original: true })])
}

/// A history written step by step. Unless a test sets an answer, it is the answer of a device that executes the requests one after
/// the other.
struct Story {
    history: ObjectHistory,
    device: Objects,
    clock: u64,
}

impl Story {
    /// Objects 1 and 2 exist from the start.
    fn begin() -> Story {
        let mut device = Objects::new();
        for object in [1, 2] {
            work(&mut device, &request(&[command(object, Action::Create)])).expect("the object does not exist yet");
        }
        let mut history = ObjectHistory::default();
        history.begin_with(HERE, device.clone());
        Story { history, device, clock: 0 }
    }

    fn now(&mut self) -> Time {
        self.clock += 1_000;
        Time(self.clock)
    }

    /// A client, named by its letter, issues a request that the device has not executed yet.
    fn ask(&mut self, who: &str, request: ObjectRequest) -> ObjectOperationId {
        let now = self.now();
        self.history.ask(Client { host: u32::from(who.as_bytes()[0]), number: 0 }, now, HERE, request)
    }

    /// The device executes the request, and the answer arrives.
    fn end(&mut self, id: ObjectOperationId) {
        let answer = work(&mut self.device, &self.history.operation(id).request.clone());
        self.answer(id, answer);
    }

    /// The device executes the request, and the answer is lost.
    fn happens(&mut self, id: ObjectOperationId) {
        work(&mut self.device, &self.history.operation(id).request.clone()).expect("the request is not refused");
    }

    fn answer_to(&self, id: ObjectOperationId) -> ObjectAnswer {
        self.history.operation(id).answer().expect("the request is answered").clone()
    }

    fn answer(&mut self, id: ObjectOperationId, answer: ObjectAnswer) {
        let now = self.now();
        self.history.answered(id, now, answer);
    }

    fn does(&mut self, who: &str, request: ObjectRequest) {
        let id = self.ask(who, request);
        self.end(id);
    }

    /// A client reads a value that differs from the stored one.
    fn sees(&mut self, who: &str, name: AttributeName, value: Bytes) {
        let id = self.ask(who, get(1, name));
        self.answer(id, Ok(vec![CommandResult { action: ActionResult::Done, values: vec![value] }]));
    }

    fn is_fine(&self) {
        let verdict = check_objects(&self.history);
        assert!(matches!(verdict, Linearizability::Linearizable { .. }), "{verdict:?}");
    }

    fn contradiction(&self) -> Contradiction {
        match check_objects(&self.history) {
            Linearizability::Not(contradiction) => contradiction,
            other => panic!("expected a contradiction: {other:?}"),
        }
    }
}

fn work(device: &mut Objects, request: &ObjectRequest) -> ObjectAnswer {
    let evaluation = evaluate(request, device).expect("all of the map is in memory");
    apply(&evaluation.changes, device);
    evaluation.answer
}

fn number(value: i64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

/// Of two equal requests, the one that may still happen later is not used up for what the other one has done.
#[test]
fn a_request_that_may_happen_for_longer_is_kept_for_later() {
    let mut story = Story::begin();
    let endless = story.ask("a", add(1, 1));
    let abandoned = story.ask("b", add(1, 1));
    story.happens(abandoned);
    story.does("c", add(1, 5));
    let now = story.now();
    story.history.is_over(abandoned, now);
    story.does("c", add(1, 5));
    story.happens(endless);
    story.does("c", add(1, 5));
    story.is_fine();
}

#[test]
fn a_stale_read_is_found_and_reported_with_the_expected_content() {
    let mut story = Story::begin();
    for _ in 0..20 {
        story.does("a", set(1, "old"));
        story.does("b", get(1, NAME));
        story.does("b", get(2, NAME));
    }
    story.does("a", set(1, "new"));
    story.is_fine();
    story.sees("b", NAME, "old".into());
    let contradiction = story.contradiction();
    assert_eq!(contradiction.expected.len(), 1);
    let text = contradiction.to_string();
    assert!(text.contains("got \"old\"  <- the first impossible answer"), "{text}");
    assert!(text.contains("possible answer: done, got \"new\""), "{text}");
    assert!(contradiction.witnesses.iter().filter(|op| op.changed_nothing()).count() == 1, "{text}");
}

#[test]
fn a_lost_addition_is_found() {
    let mut story = Story::begin();
    story.does("a", add(1, 1));
    story.does("b", add(1, 1));
    story.is_fine();
    assert_eq!(check_counters(&story.history), Ok(1));
    story.sees("b", COUNT, number(1));
    story.contradiction();
    assert!(matches!(*check_counters(&story.history).unwrap_err(), Miscounted::Lost { seen: 1, least: 2, .. }));
}

#[test]
fn an_addition_that_happened_twice_is_found() {
    let mut story = Story::begin();
    let unknown = story.ask("a", add(1, 1));
    story.does("b", add(1, 1));
    story.happens(unknown);
    story.does("b", get(1, COUNT));
    story.is_fine();
    story.happens(unknown);
    story.does("b", get(1, COUNT));
    story.contradiction();
    assert!(matches!(*check_counters(&story.history).unwrap_err(), Miscounted::TooMuch { seen: 3, most: 2, .. }));
}

#[test]
fn an_unknown_write_may_happen_late_but_not_twice_and_not_after_a_fence() {
    let mut story = Story::begin();
    let unknown = story.ask("a", set(1, "late"));
    story.sees("b", NAME, Bytes::new());
    story.happens(unknown);
    story.does("b", get(1, NAME));
    story.is_fine();
    let mut kept_out = Story::begin();
    let late = kept_out.ask("a", set(1, "late"));
    let now = kept_out.now();
    kept_out.history.is_over(late, now);
    kept_out.sees("b", NAME, Bytes::new());
    kept_out.is_fine();
    kept_out.sees("b", NAME, "late".into());
    kept_out.contradiction();
    // The request may have happened before.
    let mut before = Story::begin();
    let late = before.ask("a", set(1, "late"));
    let now = before.now();
    before.history.is_over(late, now);
    before.sees("b", NAME, "late".into());
    before.is_fine();
}

#[test]
fn a_value_that_was_never_written_is_not_read() {
    let mut story = Story::begin();
    let refused = story.ask("a", set(1, "refused"));
    story.happens(refused);
    story.history.never(refused);
    story.does("b", get(1, NAME));
    story.contradiction();
}

#[test]
fn attributes_and_bytes_of_a_lasting_object_are_independent_until_a_request_joins_them() {
    let mut story = Story::begin();
    story.does("a", set(1, "x"));
    story.does("a", set(2, "x"));
    story.does("a", add(1, 1));
    story.does("a", request(&[command(1, Action::Append { data: "data".into() })]));
    story.does("a", request(&[command(1, Action::Flush)]));
    assert_eq!(partition(&story.history).len(), 5);
    story.does(
        "b",
        request(&[ObjectCommand { gets: vec![NAME, AttributeName::OBJECT_LENGTH], ..command(1, Action::Nothing) }]),
    );
    assert_eq!(partition(&story.history).len(), 4);
    story.does("b", request(&[command(1, Action::ListAttributes { after: None, page: None, most: 10 })]));
    assert_eq!(partition(&story.history).len(), 3);
    story.is_fine();
}

#[test]
fn a_look_at_something_else_does_not_come_before_what_can_only_have_happened_earlier() {
    let mut story = Story::begin();
    let late = story.ask("u", set(1, "late"));
    let both = ObjectCommand { gets: vec![COUNT, NAME], ..command(1, Action::Nothing) };
    let long = story.ask("q", request(&[both]));
    story.happens(late);
    let now = story.now();
    story.history.is_over(late, now);
    story.does("r", get(1, COUNT));
    story.end(long);
    assert_eq!(story.answer_to(long).expect("it is there")[0].values, [Bytes::new(), "late".into()]);
    story.is_fine();
}

#[test]
fn many_of_unknown_outcome_are_no_trouble_where_answers_tell_which_happened() {
    let mut story = Story::begin();
    let names: Vec<&'static str> = (0..30).map(|number| &*format!("late {number}").leak()).collect();
    let open: Vec<ObjectOperationId> = names.iter().map(|name| story.ask("z", set(1, name))).collect();
    let counts: Vec<ObjectOperationId> = (0..20).map(|_| story.ask("y", add(1, 3))).collect();
    for round in 0..20 {
        story.does("a", set(1, "usual"));
        story.happens(open[(7 * round) % 30]);
        story.does("b", get(1, NAME));
        story.happens(counts[round]);
        story.does("b", add(1, 1));
    }
    story.is_fine();
}

#[test]
fn a_search_without_end_is_given_up_and_that_is_no_success() {
    let mut story = Story::begin();
    // Sums of any of these may have been read; the value is none of them.
    for power in 0..22 {
        story.ask("z", add(1, 1 << (2 * power)));
    }
    story.sees("b", COUNT, number(3));
    let verdict = check_objects(&story.history);
    assert!(matches!(verdict, Linearizability::GaveUp(GaveUp { unknown: 22, .. })), "{verdict:?}");
    assert_eq!(check_counters(&story.history), Ok(1), "this checker can't detect it");
}

/// Random requests: on two attributes and the bytes of one object, and on objects that are created and removed.
fn any_request() -> impl Strategy<Value = ObjectRequest> {
    let value = prop::sample::select(vec!["x", "y", "z"]);
    let one = prop_oneof![
        (value.clone(), value.clone()).prop_map(|(from, to)| swap(1, from, to)),
        value.prop_map(|to| set(1, to)),
        (1_i64..3).prop_map(|by| add(1, by)),
        prop::sample::select(vec![NAME, COUNT]).prop_map(|name| get(1, name)),
        Just(request(&[command(1, Action::Append { data: "ab".into() })])),
        Just(request(&[command(1, Action::Read { offset: 1, length: 4 })])),
        prop::sample::select(vec![0, 5]).prop_map(|object| request(&[command(object, Action::Create)])),
        Just(request(&[command(5, Action::Remove)])),
        Just(request(&[command(0, Action::List { after: ObjectId(0), most: 10 })])),
        Just(request(&[command(5, Action::FetchAndAdd { name: COUNT, add: 1, original: false })])),
    ];
    let conditional = any::<bool>().prop_map(|then| if then { When::IfSwapped } else { When::Always });
    (prop::collection::vec(one, 1..3), conditional).prop_map(|(parts, when)| {
        let mut commands: Vec<ObjectCommand> = parts.into_iter().flat_map(|part| part.commands).collect();
        commands.iter_mut().skip(1).for_each(|command| command.when = when);
        ObjectRequest { commands }
    })
}

/// A step of a random history: a request, how long before its execution it is issued, how long after it is answered, and whether it
/// is.
#[derive(Clone, Debug)]
struct Step {
    request: ObjectRequest,
    early: u64,
    late: Option<u64>,
    happens: bool,
}

fn any_step(jitter: u64) -> impl Strategy<Value = Step> {
    let late = prop::option::weighted(0.85, 0..jitter);
    (any_request(), 1..jitter, late, any::<bool>()).prop_map(|(request, early, late, happens)| Step {
        request,
        early,
        late,
        happens: happens || late.is_some(),
    })
}

/// Executes the requests one after the other, each at its own time; they are invoked and answered around that time.
fn blurred(steps: &[Step]) -> ObjectHistory {
    let mut device = Story::begin().device;
    let mut moments = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let at = 10_000 + 100 * number as u64;
        let answer = if step.happens { work(&mut device, &step.request) } else { Ok(Vec::new()) };
        moments.push((at - step.early, number, None));
        moments.extend(step.late.map(|late| (at + late, number, Some(answer))));
    }
    // If a request is answered at the moment at which another is issued, the answer comes first.
    moments.sort_by_key(|(at, number, answer)| (*at, answer.is_none(), *number));
    let mut history = ObjectHistory::default();
    history.begin_with(HERE, Story::begin().device);
    let mut ids = BTreeMap::new();
    for (at, number, answer) in moments {
        match answer {
            None => {
                let client = Client { host: 1, number };
                ids.insert(number, history.ask(client, Time(at), HERE, steps[number].request.clone()));
            }
            Some(answer) => history.answered(ids[&number], Time(at), answer),
        }
    }
    history
}

/// Tries every order of every choice of the operations that may have happened.
fn naive(history: &ObjectHistory) -> bool {
    let operations: Vec<&ObjectOperation> = history.operations().iter().collect();
    fn go(operations: &[&ObjectOperation], taken: &mut Vec<usize>, device: &Objects) -> bool {
        let left = |number: &usize| !taken.contains(number);
        let all: Vec<usize> = (0..operations.len()).filter(left).collect();
        if all.iter().all(|number| operations[*number].answer().is_none()) {
            return true;
        }
        for number in &all {
            let operation = operations[*number];
            let after = |other: &usize| operations[*other].completed().is_some_and(|end| end < operation.invoked);
            if all.iter().any(after) {
                continue;
            }
            let mut device = device.clone();
            let answer = work(&mut device, &operation.request);
            if operation.answer().is_some_and(|expected| *expected != answer) {
                continue;
            }
            taken.push(*number);
            if go(operations, taken, &device) {
                return true;
            }
            taken.pop();
        }
        false
    }
    go(&operations, &mut Vec::new(), &history.initial(HERE))
}

/// The history with the answers of two requests exchanged.
fn exchanged(history: &ObjectHistory, one: usize, other: usize) -> ObjectHistory {
    let operations = history.operations();
    let answered: Vec<usize> = (0..operations.len()).filter(|number| operations[*number].answer().is_some()).collect();
    if answered.is_empty() {
        return history.clone();
    }
    let (one, other) = (answered[one % answered.len()], answered[other % answered.len()]);
    with_answers(history, |number| {
        let from = if number == one {
            other
        } else if number == other {
            one
        } else {
            number
        };
        operations[from].answer().expect("both are answered").clone()
    })
}

/// The history with other answers to those operations that were answered.
fn with_answers(history: &ObjectHistory, answer: impl Fn(usize) -> ObjectAnswer) -> ObjectHistory {
    let mut changed = ObjectHistory::default();
    changed.begin_with(HERE, history.initial(HERE));
    let mut moments: Vec<(u64, usize, bool)> = Vec::new();
    for (number, operation) in history.operations().iter().enumerate() {
        moments.push((operation.invoked.number, number, false));
        moments.extend(operation.completed().map(|at| (at.number, number, true)));
    }
    moments.sort_unstable();
    let mut ids = BTreeMap::new();
    for (at, number, ends) in moments {
        let operation = &history.operations()[number];
        if ends {
            changed.answered(ids[&number], Time(at), answer(number));
        } else {
            ids.insert(number, changed.ask(operation.client, Time(at), HERE, operation.request.clone()));
        }
    }
    changed
}

fn told(history: &ObjectHistory) -> String {
    history.operations().iter().map(|operation| format!("{operation}\n")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_sequential_history_passes_however_its_times_are_blurred(
        steps in prop::collection::vec(any_step(400), 1..60),
    ) {
        let history = blurred(&steps);
        let verdict = check_objects(&history);
        prop_assert!(matches!(verdict, Linearizability::Linearizable { .. }), "{verdict:?}\n{}", told(&history));
        prop_assert!(check_counters(&history).is_ok());
    }

    #[test]
    fn small_histories_are_judged_as_by_trying_every_order(
        steps in prop::collection::vec(any_step(300), 1..7),
        one in 0_usize..8,
        other in 0_usize..8,
    ) {
        let history = exchanged(&blurred(&steps), one, other);
        let fine = matches!(check_objects(&history), Linearizability::Linearizable { .. });
        prop_assert_eq!(fine, naive(&history), "{}", told(&history));
    }

    #[test]
    fn additions_that_are_answered_wrongly_are_found(
        late in prop::collection::vec((1_u64..600, 0_u64..600), 2..120),
        which in 0_usize..120,
        by in prop::sample::select(vec![-1_i64, 1]),
    ) {
        let step = |(early, late): &(u64, u64)| Step { request: add(1, 1), early: *early, late: Some(*late), happens: true };
        let history = blurred(&late.iter().map(step).collect::<Vec<_>>());
        prop_assert_eq!(check_counters(&history), Ok(1));
        let found = |number: usize| match history.operations()[number].answer() {
            Some(Ok(results)) => match results[0].action {
                ActionResult::Added { original: Some(original) } => original,
                _ => unreachable!("all requests are additions"),
            },
            _ => unreachable!("all requests are answered"),
        };
        let wrong = which % late.len();
        let changed = with_answers(&history, |number| {
            let original = Some(found(number) + if number == wrong { by } else { 0 });
            Ok(vec![CommandResult { action: ActionResult::Added { original }, values: Vec::new() }])
        });
        prop_assert!(matches!(check_objects(&changed), Linearizability::Not(_)), "{}", told(&changed));
        let is_in_the_way = (0..late.len() as i64).contains(&(found(wrong) + by));
        prop_assert_eq!(check_counters(&changed).is_err(), is_in_the_way);
    }
}
