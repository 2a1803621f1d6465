//! Scenarios of the list, one by one.

use crate::bench::*;
use crate::list::{OBJECT, contents};
use crate::sequential::Alone;
use braid_recipes::list::{Cursor, ITEM_BYTES_MAX, Inserted, List, ListPosition, Node, Removed};

fn with(items: u64) -> (Alone, List) {
    let (mut alone, list) = (Alone::with(Space::with(&[OBJECT])), List::new(OBJECT));
    let mut place = ListPosition::First;
    for number in 0..items {
        let inserted = alone.run(list.insert(place, Bytes::from(format!("{number:03}"))));
        assert_eq!(inserted, Ok(Inserted::Inserted(Node(number + 1))));
        place = ListPosition::Behind(Node(number + 1));
    }
    (alone, list)
}

fn items(alone: &Alone) -> Vec<u64> {
    contents(&alone.space).0.iter().map(|(node, _)| *node).collect()
}

#[test]
fn inserting_and_removing_take_two_round_trips_where_the_place_is_known() {
    let (mut alone, list) = with(3);
    assert_eq!(alone.count(list.insert(ListPosition::First, Bytes::new())).1, 2);
    assert_eq!(alone.count(list.insert(ListPosition::Behind(Node(2)), Bytes::new())).1, 2);
    assert_eq!(alone.count(list.remove(Node(2), Some(Node(1)))), (Ok(Removed::Removed), 2));
    assert_eq!(alone.count(list.remove(Node(2), None)), (Ok(Removed::Gone), 1));
    assert_eq!(items(&alone), [4, 1, 5, 3]);
    let (mut alone, list) = with(40);
    let (removed, trips) = alone.count(list.remove(Node(38), None));
    assert_eq!(removed, Ok(Removed::Removed));
    assert!((4..10).contains(&trips), "{trips}: the node before it has to be found");
    assert_eq!(items(&alone).len(), 39);
}

#[test]
fn a_list_that_is_full_can_be_emptied() {
    for room in (2000..2080).step_by(7) {
        let (mut alone, list) = with(1);
        alone.space.leave_room_for(room);
        let mut nodes = vec![Node(1)];
        while let Ok(Inserted::Inserted(node)) = alone.run(list.insert(ListPosition::First, Bytes::from(vec![7; 20]))) {
            nodes.push(node);
        }
        assert!(nodes.len() > 10);
        alone.space.leave_room_for(0);
        for node in nodes {
            assert_eq!(alone.run(list.remove(node, None)), Ok(Removed::Removed));
        }
        assert_eq!(items(&alone), []);
    }
}

#[test]
fn neighbours_in_number_are_walked_together() {
    let (mut alone, list) = with(100);
    let (walked, trips) = alone.count(list.walk(Cursor::default(), usize::MAX));
    assert_eq!(walked.unwrap().items.len(), 100);
    assert!(trips < 20, "{trips} round trips for 100 nodes");
}

#[test]
fn a_walk_goes_on_where_everything_around_it_was_removed() {
    let (mut alone, list) = with(60);
    let first = alone.run(list.walk(Cursor::default(), 50)).unwrap();
    let told: Vec<u64> = first.items.iter().map(|(node, _)| node.0).collect();
    assert_eq!(told, (1..=50).collect::<Vec<u64>>());
    for node in 2..=55 {
        alone.run(list.remove(Node(node), None)).unwrap();
    }
    let inserted = alone.run(list.insert(ListPosition::Behind(Node(1)), Bytes::from_static(b"new"))).unwrap();
    assert_eq!(inserted, Inserted::Inserted(Node(61)));
    let rest = alone.run(list.walk(first.more.unwrap(), usize::MAX)).unwrap();
    let told: Vec<u64> = rest.items.iter().map(|(node, _)| node.0).collect();
    assert_eq!(told, [61, 56, 57, 58, 59, 60]);
}

#[test]
fn an_item_that_is_too_long_is_refused() {
    let (mut alone, list) = with(0);
    let long = Bytes::from(vec![0; ITEM_BYTES_MAX + 1]);
    let refused = Err(RequestFailure::TooLong { most: ITEM_BYTES_MAX });
    assert_eq!(alone.run(list.insert(ListPosition::First, long)), refused);
}
