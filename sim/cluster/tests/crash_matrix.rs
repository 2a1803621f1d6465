//! Tests of a part of the crash matrix; `braid sim matrix` runs all of it.

use braid_base::DeviceId;
use braid_cluster::crash_table::{run_matrix, tables};
use braid_cluster::matrix::{ARRAYS, Case, MatrixNode, Point, Shape};
use braid_layout::SitePolicy;
use braid_ordering::Ordering;

/// Simulation allocates millions of times: with this allocator it takes a fifth less time than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Every 67th point of every case, which covers each kind of power loss in turn: half a minute on one core.
const EVERY: usize = 67;

fn try_all(cases: Vec<Case>) -> u64 {
    let results = run_matrix(cases, EVERY, None, |_| (), || ());
    if let Some(broken) = results.iter().flat_map(|result| &result.broken).next() {
        panic!("{broken}\n{}", broken.command());
    }
    println!("{}", tables(&results));
    results.iter().flat_map(|result| result.tried.values()).map(|(tried, _)| tried).sum()
}

fn cases(array: usize, without: Option<DeviceId>) -> impl Iterator<Item = Case> {
    let keep_apart = Ordering::ALL.into_iter().filter(|ordering| *ordering != Ordering::None);
    keep_apart.flat_map(move |ordering| Case::all(array, ordering, without))
}

#[test]
fn a_crash_at_any_step_of_two_writes_leaves_everything_right() {
    let tried = try_all((0..ARRAYS.len()).flat_map(|array| cases(array, None)).collect());
    assert!(tried > 600, "only {tried} points were tried");
}

#[test]
fn crashes_while_a_device_is_gone_lose_nothing() {
    let tried = try_all((0..3).flat_map(|device| cases(0, Some(DeviceId(device)))).collect());
    assert!(tried > 180, "only {tried} points were tried");
}

#[test]
fn a_case_is_one_run_and_a_point_is_one_moment_of_it() {
    let (ordering, site) = (Ordering::Timestamp, SitePolicy::Originator);
    let case = Case { array: 0, ordering, site, writes: (Shape::Small, Shape::Full), without: None };
    let quiet = case.run(None, 0).unwrap();
    assert_eq!(quiet, case.run(None, 0).unwrap());
    assert!(quiet[&MatrixNode::A] >= 8 && quiet.values().all(|count| *count >= 4), "{quiet:?}");
    let points = case.points().unwrap();
    assert_eq!(points.iter().filter(|point| point.node == MatrixNode::A).count() as u64, quiet[&MatrixNode::A]);
    for text in ["A:3", "B:1", "d2:14:nothing", "l0:5:everything", "d0:2:long", "monitor:1:nothing:long"] {
        assert_eq!(text.parse::<Point>().unwrap().to_string(), text);
    }
    for wrong in ["", "A", "C:1", "d:1", "A:x", "d1:2:some"] {
        assert!(wrong.parse::<Point>().is_err(), "{wrong}");
    }
}

/// Without an ordering two concurrent writes break parity: the matrix must find this.
#[test]
fn the_matrix_sees_what_unprotected_writes_break() {
    let cases = Case::all(1, Ordering::None, None);
    let results = run_matrix(cases, EVERY, None, |_| (), || ());
    assert!(results.iter().any(|result| !result.broken.is_empty()));
}
