//! Runs the crash matrix on all cores, and draws it as a table: a row for each pair of writes, a column for each node that loses
//! power.

use crate::matrix::{ARRAYS, Broken, Case, MatrixNode, Point};
use crate::prelude::*;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::num::NonZero;

/// The result of a case.
#[derive(Clone, Debug)]
pub struct CaseResult {
    pub case: Case,
    /// For each node, the number of points at which it lost power, and the number of these after which a check failed.
    pub tried: BTreeMap<MatrixNode, (u64, u64)>,
    /// The failures.
    pub broken: Vec<Broken>,
}

/// Runs every `every`-th point of `cases`. `on_points` is called with the number of these points, `on_end` after each of them.
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
    // Counted over all cases, so that a step that is skipped in one case is tried in another.
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
        let (tried, failed) = result.tried.entry(point.node).or_default();
        *tried += 1;
        *failed += u64::from(broken.is_some());
        result.broken.extend(broken.map(|broken| *broken));
    }
    results
}

/// The results of `task` for each number below `count`, in order. By default, there is a thread for each core.
fn in_parallel<T: Send>(count: usize, threads: Option<NonZero<usize>>, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let pool = ThreadPoolBuilder::new().num_threads(threads.map_or(0, NonZero::get)).build();
    pool.expect("threads can be started").install(|| (0..count).into_par_iter().with_max_len(1).map(&task).collect())
}

/// Tables in Markdown, one for each array and parity site, with or without all of its devices; the points of all orderings are added up.
pub fn tables(results: &[CaseResult]) -> String {
    let key = |result: &CaseResult| {
        (result.case.without.is_some(), result.case.array, result.case.site != SitePolicy::Originator)
    };
    let groups: BTreeSet<_> = results.iter().map(key).collect();
    let of = |group| results.iter().filter(|result| key(result) == group).collect::<Vec<_>>();
    groups.into_iter().map(|group| table(&of(group))).collect::<Vec<_>>().join("\n")
}

/// One table, of cases of the same array.
fn table(results: &[&CaseResult]) -> String {
    let (scheme, devices, unit_blocks) = ARRAYS[results[0].case.array];
    let names = |all: BTreeSet<&'static str>| all.into_iter().collect::<Vec<_>>().join(", ");
    let orderings = names(results.iter().map(|result| result.case.ordering.name()).collect());
    let without: BTreeSet<String> =
        results.iter().filter_map(|result| Some(result.case.without?.to_string())).collect();
    let without = match without.len() {
        0 => String::new(),
        _ => format!(", without {} from the start", without.into_iter().collect::<Vec<_>>().join(" or ")),
    };
    let site = match results[0].case.site {
        SitePolicy::Originator => String::new(),
        site => format!(", parity site {site}"),
    };
    let nodes: BTreeSet<MatrixNode> = results.iter().flat_map(|result| result.tried.keys().copied()).collect();
    let blocks = if unit_blocks == 1 { "1 block".to_string() } else { format!("{unit_blocks} blocks") };
    let mut text = format!("{scheme} on {devices} devices in units of {blocks}{without}{site} ({orderings}):\n\n");
    let headings: Vec<String> = nodes.iter().map(MatrixNode::to_string).collect();
    text.push_str(&format!("| A + B | {} |\n| --- |{}\n", headings.join(" | "), " ---: |".repeat(nodes.len())));
    for writes in results.iter().map(|result| result.case.writes).collect::<BTreeSet<_>>() {
        let row = || results.iter().filter(|result| result.case.writes == writes);
        let sum = |node: &MatrixNode| {
            let tried = row().filter_map(|result| result.tried.get(node));
            tried.copied().reduce(|(tried, failed), (more, worse)| (tried + more, failed + worse))
        };
        let cells: Vec<String> = nodes.iter().map(|node| cell(sum(node))).collect();
        text.push_str(&format!("| {} + {} | {} |\n", writes.0.name(), writes.1.name(), cells.join(" | ")));
    }
    text
}

fn cell(tried: Option<(u64, u64)>) -> String {
    match tried {
        None => String::new(),
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
        let ordering = braid_ordering::Ordering::Timestamp;
        let site = SitePolicy::Originator;
        let case = Case { array: 0, ordering, site, writes: (Shape::Small, Shape::Full), without: None };
        let ordering = braid_ordering::Ordering::DeviceLock;
        let other = Case { ordering, ..case.clone() };
        let third = Case { writes: (Shape::Full, Shape::Full), ..case.clone() };
        let result = |case, tried: &[(MatrixNode, (u64, u64))]| CaseResult {
            case,
            tried: tried.iter().copied().collect(),
            broken: Vec::new(),
        };
        let results = [
            result(case, &[(MatrixNode::A, (12, 0)), (MatrixNode::B, (9, 2))]),
            result(other, &[(MatrixNode::A, (3, 0)), (MatrixNode::B, (1, 0))]),
            result(third, &[(MatrixNode::A, (7, 0))]),
        ];
        let expected = "\
raid5:2+1 on 3 devices in units of 1 block (device-lock, timestamp):

| A + B | A | B |
| --- | ---: | ---: |
| small + full | 15 | 10, **2 failed** |
| full + full | 7 |  |
";
        assert_eq!(tables(&results), expected);
    }

    #[test]
    fn tasks_end_in_any_order_and_are_reported_in_theirs() {
        assert_eq!(in_parallel(50, NonZero::new(4), |number| number * 2), (0..50).map(|n| n * 2).collect::<Vec<_>>());
        assert!(in_parallel(0, None, |number| number).is_empty());
    }
}
