//! Tests of the serializability checker: known bad histories, and small random histories compared with a naive checker that tries
//! every order.

use super::*;
use crate::history::{Client, History, OperationId, Run};
use braid_base::Rng;
use proptest::prelude::*;

fn cells(start: u64, end: u64) -> Cells {
    Cells { start, end }
}

fn run(start: u64, end: u64, tag: u64) -> Run {
    Run { cells: cells(start, end), tag: Tag(tag) }
}

/// A client by its letter; each has a host of its own.
fn client(name: &str) -> Client {
    Client { host: u32::from(name.as_bytes()[0]), number: 0 }
}

/// A history written step by step: `write`, then `done`.
#[derive(Default)]
struct Story {
    history: History,
    clock: u64,
}

impl Story {
    fn now(&mut self) -> Time {
        self.clock += 1_000;
        Time(self.clock)
    }

    fn begin(&mut self, name: &str, start: u64, end: u64, tag: u64) -> OperationId {
        let now = self.now();
        self.history.write(client(name), now, cells(start, end), Tag(tag))
    }

    fn end(&mut self, id: OperationId) {
        let now = self.now();
        self.history.wrote(id, now);
    }

    fn write(&mut self, name: &str, start: u64, end: u64, tag: u64) {
        let id = self.begin(name, start, end, tag);
        self.end(id);
    }

    fn read(&mut self, name: &str, seen: &[Run]) {
        let now = self.now();
        let id = self.history.read(client(name), now);
        let now = self.now();
        self.history.saw(id, now, seen.to_vec());
    }

    fn violation(&self) -> Violation {
        match check(&self.history, Promise::Strict) {
            Verdict::Not(violation) => violation,
            other => panic!("expected a violation: {other:?}"),
        }
    }

    fn is_fine(&self) {
        assert!(
            matches!(check(&self.history, Promise::Strict), Verdict::Serializable { .. }),
            "{:?}",
            check(&self.history, Promise::Strict)
        );
    }
}

/// Client a requests write #1 and disconnects; then write #2 of client `name` is acknowledged.
fn reconnected(name: &str) -> Story {
    let mut story = Story::default();
    let first = story.begin("a", 0, 4, 1);
    let now = story.now();
    story.history.abandon(first, now);
    story.write(name, 0, 4, 2);
    story.read("b", &[run(0, 4, 2)]);
    story
}

#[test]
fn an_abandoned_write_happens_before_what_its_host_is_asked_later_or_never() {
    reconnected("a").is_fine();
    let mut overtaken = reconnected("a");
    overtaken.read("b", &[run(0, 4, 1)]);
    assert_eq!(overtaken.violation().culprit.runs, [run(0, 4, 1)]);
    assert!(matches!(check(&overtaken.history, Promise::Related), Verdict::Not(_)));
    // Another host makes no such promise.
    let mut other = reconnected("c");
    other.read("b", &[run(0, 4, 1)]);
    other.is_fine();
}

#[test]
fn an_abandoned_write_may_be_seen_before_anything_else_is_asked() {
    let mut story = Story::default();
    let first = story.begin("a", 0, 4, 1);
    story.read("b", &[run(0, 4, 0)]);
    let now = story.now();
    story.history.abandon(first, now);
    story.read("b", &[run(0, 4, 1)]);
    // Other blocks of the same host are not affected.
    story.write("a", 1_000, 1_004, 2);
    story.is_fine();
    // A value that was read without the write can't be followed by the write.
    story.read("a", &[run(0, 4, 0)]);
    story.violation();
}

#[test]
fn a_lost_write_is_found_and_reported_in_three_lines() {
    let mut story = Story::default();
    for tag in 1..40 {
        story.write("a", 10, 20, tag);
        story.read("b", &[run(10, 20, tag)]);
    }
    story.write("a", 0, 4, 50);
    story.read("b", &[run(0, 4, 0)]);
    let violation = story.violation();
    assert_eq!(violation.witnesses.len(), 2, "{violation}");
    assert!(violation.to_string().contains("saw   zeros in 0..4  <- the first impossible result"), "{violation}");
}

#[test]
fn writes_of_different_blocks_through_different_hosts_are_bound_by_strictness_alone() {
    let (here, there) = (0, CELLS_PER_BLOCK);
    let mut story = Story::default();
    let now = story.now();
    let open = story.history.read(client("c"), now);
    story.write("a", here, here + 1, 1);
    story.write("b", there, there + 1, 2);
    let now = story.now();
    story.history.saw(open, now, vec![run(here, here + 1, 0), run(there, there + 1, 2)]);
    story.violation();
    assert!(matches!(check(&story.history, Promise::Related), Verdict::Serializable { .. }));
    story.read("a", &[run(here, here + 1, 0)]);
    assert!(matches!(check(&story.history, Promise::Related), Verdict::Not(_)));
}

#[test]
fn hundreds_of_concurrent_operations_are_decided_quickly() {
    let mut rng = Rng::new(4);
    let mut story = Story::default();
    let mut state = [0u64; 64];
    let mut open: Vec<(OperationId, Option<Vec<Run>>)> = Vec::new();
    for tag in 1..3_000u64 {
        let (start, length) = (rng.below(60), rng.between(1, 4));
        let now = story.now();
        if rng.chance(1, 2) {
            let id = story.history.write(client("w"), now, cells(start, start + length), Tag(tag));
            state[start as usize..(start + length) as usize].fill(tag);
            // One operation in fifty keeps an unknown outcome.
            if !rng.chance(1, 50) {
                open.push((id, None));
            }
        } else {
            let id = story.history.read(client("r"), now);
            let seen = (start..start + length).map(|cell| run(cell, cell + 1, state[cell as usize])).collect();
            open.push((id, Some(seen)));
        }
        if open.len() > 24 {
            let (id, seen) = open.swap_remove(rng.below(25) as usize);
            let now = story.now();
            match seen {
                Some(seen) => story.history.saw(id, now, seen),
                None => story.history.wrote(id, now),
            }
        }
    }
    let Verdict::Serializable { steps } = check(&story.history, Promise::Strict) else {
        panic!("the operations happened in this order")
    };
    assert!(steps < 100_000, "{steps}");
}

/// The last cell of a block: small histories use this cell and the next two.
const FIRST: u64 = CELLS_PER_BLOCK - 1;

/// Tries every subset of the operations that may not have happened, in every order.
fn some_order_explains(operations: &[Operation], promise: Promise) -> bool {
    fn extend(operations: &[Operation], promise: Promise, taken: &mut Vec<usize>, state: &[u64; 3]) -> bool {
        let left: Vec<usize> = (0..operations.len()).filter(|at| !taken.contains(at)).collect();
        if left.iter().all(|at| operations[*at].completed.is_none()) {
            return true;
        }
        left.iter().any(|at| {
            let op = &operations[*at];
            let too_early = left.iter().any(|other| {
                let other = &operations[*other];
                let bound = promise == Promise::Strict || related(other, op);
                bound && other.completed.is_some_and(|end| end < op.invoked)
            });
            let mut after = *state;
            let mut agrees = true;
            for piece in &op.runs {
                for cell in piece.cells.start..piece.cells.end {
                    match op.action {
                        Action::Read => agrees &= state[(cell - FIRST) as usize] == piece.tag.0,
                        Action::Write => after[(cell - FIRST) as usize] = piece.tag.0,
                    }
                }
            }
            if too_early || (op.action == Action::Read && (op.completed.is_none() || !agrees)) {
                return false;
            }
            taken.push(*at);
            let found = extend(operations, promise, taken, &after);
            taken.pop();
            found
        })
    }
    extend(operations, promise, &mut Vec::new(), &[0; 3])
}

/// Up to six overlapping operations on three cells in two blocks; reads see plausible values, right or wrong.
fn small_history() -> impl Strategy<Value = History> {
    let operation = (any::<bool>(), 0u64..3, 1u64..4, prop::collection::vec(0u64..5, 3), 0u64..14, 1u64..10, 0u8..8);
    prop::collection::vec(operation, 1..7).prop_map(|list| {
        let mut events: Vec<(u64, usize, bool)> = Vec::new();
        for (at, (_, _, _, _, start, length, _)) in list.iter().enumerate() {
            events.extend([(*start, at, false), (start + length, at, true)]);
        }
        events.sort();
        let mut history = History::default();
        let mut ids: BTreeMap<usize, OperationId> = BTreeMap::new();
        for (time, at, ends) in events {
            let (writes, first, count, values, _, _, luck) = &list[at];
            let range = cells(FIRST + first, FIRST + (first + count).min(3));
            let who = Client { host: u32::from(*luck % 3), number: at };
            // Tags are unique to writes, except zeros, which one write in eight has.
            let tag = if *luck == 0 { Tag::ZEROS } else { Tag(at as u64 + 1) };
            match (ends, writes) {
                (false, true) => drop(ids.insert(at, history.write(who, Time(time), range, tag))),
                (false, false) => drop(ids.insert(at, history.read(who, Time(time)))),
                (true, _) if *luck == 7 => {}
                (true, true) => history.wrote(ids[&at], Time(time)),
                (true, false) => {
                    let seen =
                        (range.start..range.end).map(|cell| run(cell, cell + 1, values[(cell - FIRST) as usize]));
                    history.saw(ids[&at], Time(time), seen.collect());
                }
            }
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]
    #[test]
    fn decides_as_the_checker_that_tries_every_order(history in small_history()) {
        for promise in [Promise::Strict, Promise::Related] {
            let found = matches!(check(&history, promise), Verdict::Serializable { .. });
            prop_assert_eq!(found, some_order_explains(history.operations(), promise), "{:?}", promise);
        }
    }
}
