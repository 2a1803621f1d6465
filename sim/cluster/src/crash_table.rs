//! The crash matrix, run on all cores, and drawn as a table: a row for each pair of writes, a column for each node that loses power.

use crate::matrix::{ARRAYS, Broken, Case, Point, Who};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What became of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// Which.
    pub case: Case,
    /// For each node, at how many points it lost power, and after how many of these something was wrong.
    pub tried: BTreeMap<Who, (u64, u64)>,
    /// What was.
    pub broken: Vec<Broken>,
}

/// Runs every `every`-th point of `cases`. `on_points` hears how many these are, `on_end` of each that has been run.
pub fn run_matrix(
    cases: Vec<Case>,
    every: usize,
    threads: Option<NonZero<usize>>,
    on_points: impl FnOnce(u64),
    on_end: impl Fn() + Sync,
) -> Vec<CaseResult> {
    let mut results: Vec<CaseResult> =
        cases.into_iter().map(|case| CaseResult { case, tried: BTreeMap::new(), broken: Vec::new() }).collect();
    let found = in_parallel(results.len(), threads, |number| results[number].case.points());
    let mut points: Vec<(usize, Point)> = Vec::new();
    for (number, found) in found.into_iter().enumerate() {
        match found {
            Ok(of_case) => points.extend(of_case.into_iter().map(|point| (number, point))),
            Err(broken) => results[number].broken.push(*broken),
        }
    }
    // Counted over all cases, so that a step that is left out in one is tried in another.
    let points: Vec<_> = points.into_iter().step_by(every.max(1)).collect();
    on_points(points.len() as u64);
    let ended = in_parallel(points.len(), threads, |index| {
        let (number, point) = points[index];
        let ended = results[number].case.run(Some(point), 0);
        on_end();
        ended.err()
    });
    for ((number, point), broken) in points.into_iter().zip(ended) {
        let result = &mut results[number];
        let (tried, failed) = result.tried.entry(point.who).or_default();
        *tried += 1;
        *failed += u64::from(broken.is_some());
        result.broken.extend(broken.map(|broken| *broken));
    }
    results
}

/// What `task` gives for each number below `count`, in their order.
fn in_parallel<T: Send>(count: usize, threads: Option<NonZero<usize>>, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let threads = threads.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZero::get);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let result = task(number);
                    done.lock().expect("tasks catch their panics").insert(number, result);
                }
            });
        }
    });
    done.into_inner().expect("tasks catch their panics").into_values().collect()
}

/// Tables in Markdown, one for each array and ordering.
pub fn tables(results: &[CaseResult]) -> String {
    let mut text = String::new();
    let mut rest = results;
    while let Some(first) = rest.first() {
        let key = |result: &CaseResult| (result.case.array, result.case.ordering, result.case.without);
        let count = rest.iter().take_while(|result| key(result) == key(first)).count();
        let (group, others) = rest.split_at(count);
        rest = others;
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&table(group));
    }
    text
}

/// One table, of cases of the same array.
fn table(results: &[CaseResult]) -> String {
    let case = &results[0].case;
    let (scheme, devices, unit_blocks) = ARRAYS[case.array];
    let without = case.without.map_or_else(String::new, |device| format!(", {device} gone before"));
    let who: BTreeSet<Who> = results.iter().flat_map(|result| result.tried.keys().copied()).collect();
    let names: Vec<String> = who.iter().map(Who::to_string).collect();
    let blocks = if unit_blocks == 1 { "1 block".to_string() } else { format!("{unit_blocks} blocks") };
    let mut text =
        format!("{scheme} on {devices} devices in units of {blocks}, {}{without}:\n\n", case.ordering.name());
    text.push_str(&format!("| writes of A + B | {} |\n", names.join(" | ")));
    text.push_str(&format!("| --- |{}\n", " ---: |".repeat(names.len())));
    for result in results {
        let cells: Vec<String> = who.iter().map(|who| cell(result.tried.get(who))).collect();
        let (a, b) = result.case.writes;
        text.push_str(&format!("| {} + {} | {} |\n", a.name(), b.name(), cells.join(" | ")));
    }
    text
}

fn cell(tried: Option<&(u64, u64)>) -> String {
    match tried {
        None => "".to_string(),
        Some((tried, 0)) => tried.to_string(),
        Some((tried, failed)) => format!("{tried}, **{failed} failed**"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Shape;

    #[test]
    fn a_table_has_a_row_for_each_pair_and_says_what_failed() {
        let case = Case {
            array: 0,
            ordering: braid_wire::Ordering::Timestamp,
            writes: (Shape::Small, Shape::Full),
            without: None,
        };
        let other = Case { writes: (Shape::Full, Shape::Full), ..case.clone() };
        let results = [
            CaseResult { case, tried: [(Who::A, (12, 0)), (Who::B, (9, 2))].into(), broken: Vec::new() },
            CaseResult { case: other, tried: [(Who::A, (7, 0))].into(), broken: Vec::new() },
        ];
        let expected = "\
raid5:2+1 on 3 devices in units of 1 block, timestamp:

| writes of A + B | A | B |
| --- | ---: | ---: |
| small + full | 12 | 9, **2 failed** |
| full + full | 7 |  |
";
        assert_eq!(tables(&results), expected);
    }

    #[test]
    fn tasks_end_in_any_order_and_are_told_in_theirs() {
        assert_eq!(in_parallel(50, NonZero::new(4), |number| number * 2), (0..50).map(|n| n * 2).collect::<Vec<_>>());
        assert!(in_parallel(0, None, |number| number).is_empty());
    }
}
