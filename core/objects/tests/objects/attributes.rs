//! Attributes: compare-and-swap and fetch-and-add as in the device-atomics paper (sections 4 and 5), sets and gets.

use crate::words::*;
use braid_wire::*;

#[test]
fn a_swap_happens_if_the_value_is_the_one_compared_with() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"red")]);
    assert_eq!(objects.acts(swap(LOCK, b"blue", b"green")), compared(false, b"red"));
    assert_eq!(objects.value(LOCK), "red");
    assert_eq!(objects.acts(swap(LOCK, b"red", b"green")), compared(true, b"red"));
    assert_eq!(objects.value(LOCK), "green");
}

#[test]
fn values_of_another_length_are_other_values() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"red")]);
    for other in [&b""[..], b"re", b"red\0"] {
        assert_eq!(objects.acts(swap(LOCK, other, b"green")), compared(false, b"red"));
    }
}

#[test]
fn an_undefined_attribute_has_any_value_that_it_is_compared_with() {
    for compare in [&b""[..], b"anything"] {
        let mut objects = Objects::with_one();
        assert_eq!(objects.acts(swap(LOCK, compare, b"mine")), compared(true, b""));
        assert_eq!(objects.value(LOCK), "mine");
    }
}

#[test]
fn an_undefined_attribute_counts_as_empty_on_request() {
    let mut objects = Objects::with_one();
    assert_eq!(objects.acts(swap_empty(LOCK, b"mine", b"yours")), compared(false, b""));
    assert_eq!(objects.value(LOCK), "");
    assert_eq!(objects.acts(swap_empty(LOCK, b"", b"yours")), compared(true, b""));
    assert_eq!(objects.acts(swap_empty(LOCK, b"", b"theirs")), compared(false, b"yours"));
}

#[test]
fn an_attribute_swapped_or_set_to_nothing_is_undefined() {
    let mut objects = Objects::with_one();
    objects.does([set(LOCK, b"mine").set(NOTE, b"a note")]);
    assert_eq!(objects.acts(swap(LOCK, b"mine", b"")), compared(true, b"mine"));
    objects.does([set(NOTE, b"")]);
    let nothing = ActionResult::Attributes { found: vec![], more: false };
    assert_eq!(objects.acts(Action::ListAttributes { after: None, page: None, most: 9 }), nothing);
    assert_eq!(objects.acts(swap(NOTE, b"anything", b"new")), compared(true, b""));
}

#[test]
fn the_original_value_is_returned_on_request() {
    let mut objects = Objects::with_one();
    let (compare, swap) = (Bytes::new(), Bytes::from_static(b"\0\0\0\0\0\0\0\x01"));
    let quiet = Action::CompareAndSwap { name: COUNT, compare, swap, undefined: Undefined::Matches, original: false };
    assert_eq!(objects.acts(quiet), ActionResult::Compared { swapped: true, original: None });
    let quiet = Action::FetchAndAdd { name: COUNT, add: 1, original: false };
    assert_eq!(objects.acts(quiet), ActionResult::Added { original: None });
    assert_eq!(objects.acts(add(COUNT, 1)), added(2));
}

#[test]
fn tickets_are_given_in_order_from_zero_without_preparation() {
    let mut objects = Objects::with_one();
    for ticket in 0..5 {
        assert_eq!(objects.acts(add(COUNT, 1)), added(ticket));
    }
    assert_eq!(objects.value(COUNT), &5u64.to_be_bytes()[..]);
}

#[test]
fn numbers_are_signed_and_big_endian() {
    let mut objects = Objects::with_one();
    assert_eq!(objects.acts(add(COUNT, -3)), added(0));
    assert_eq!(objects.value(COUNT), &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd][..]);
    assert_eq!(objects.acts(add(COUNT, 259)), added(-3));
    assert_eq!(objects.value(COUNT), &[0, 0, 0, 0, 0, 0, 1, 0][..]);
    // Zero is a value.
    assert_eq!(objects.acts(add(COUNT, -256)), added(256));
    assert_eq!(objects.acts(swap(COUNT, b"", b"x")), compared(false, &[0; 8]));
}

#[test]
fn a_sum_that_does_not_fit_is_refused_and_changes_nothing() {
    let mut objects = Objects::with_one();
    for (start, over) in [(i64::MAX, 1), (i64::MIN, -1), (1, i64::MAX), (-2, i64::MIN + 1)] {
        objects.does([set(COUNT, &start.to_be_bytes())]);
        assert_eq!(objects.refuses(command(add(COUNT, over))), ObjectFailure::Overflow, "{start} and {over}");
        assert_eq!(objects.acts(add(COUNT, 0)), added(start));
    }
    objects.does([set(COUNT, &i64::MAX.to_be_bytes())]);
    assert_eq!(objects.acts(add(COUNT, i64::MIN)), added(i64::MAX));
    assert_eq!(objects.acts(add(COUNT, 0)), added(-1));
}

#[test]
fn only_numbers_of_eight_bytes_are_added_to() {
    let mut objects = Objects::with_one();
    for length in [1, 4, 7, 9, 16, 65536] {
        objects.does([set(COUNT, &vec![0; length])]);
        let failure = ObjectFailure::NotANumber { length: length as u32 };
        assert_eq!(objects.refuses(command(add(COUNT, 1))), failure);
    }
}

#[test]
fn pages_of_the_device_are_read_and_never_set() {
    let mut objects = Objects::with_one();
    objects.acts(write(0, b"twelve bytes"));
    assert_eq!(objects.value(AttributeName::OBJECT_LENGTH), &12u64.to_be_bytes()[..]);
    assert_eq!(objects.value(AttributeName::OBJECT_LIFE), &1u64.to_be_bytes()[..]);
    assert_eq!(objects.value(AttributeName::new(AttributeName::OBJECT_PAGE, 3)), "");
    for page in [0xf000_0000, 0xf000_0001, u32::MAX] {
        let name = AttributeName::new(page, 1);
        for refused in [
            set(name, b"x"),
            set(name, b""),
            // Even if nothing would be swapped or set.
            command(swap(name, b"other", b"x")),
            command(swap_empty(name, b"other", b"x")),
            command(add(name, 1)),
            set(name, b"x").sets_when(When::IfNotSwapped),
            set(name, b"x").when(When::IfNotSwapped),
        ] {
            assert_eq!(objects.refuses(refused), ObjectFailure::ReservedPage { page });
        }
    }
    objects.does([set(AttributeName::new(0xefff_ffff, 1), b"the last page of all")]);
}

#[test]
fn the_life_tells_an_object_from_a_later_one_of_that_number() {
    let mut objects = Objects::with_one();
    let before = objects.value(AttributeName::OBJECT_LIFE);
    objects.does([command(Action::Remove), command(Action::Create)]);
    assert_ne!(objects.value(AttributeName::OBJECT_LIFE), before);
}

#[test]
fn a_value_has_64_kib_at_most() {
    let mut objects = Objects::with_one();
    let (longest, longer) = (vec![1; 65536], vec![1; 65537]);
    objects.does([set(NOTE, &longest)]);
    assert_eq!(objects.acts(swap(NOTE, &longest, &[2; 65536])), compared(true, &longest));
    let failure = ObjectFailure::ValueTooLong { length: 65537 };
    for refused in [set(NOTE, &longer), command(swap(NOTE, b"no", &longer)), command(swap(LOCK, &longer, b"x"))] {
        assert_eq!(objects.refuses(refused), failure);
    }
}

#[test]
fn attributes_are_listed_in_order_page_by_page() {
    let mut objects = Objects::with_one();
    let names = [(0, 0), (0, u32::MAX), (1, 0), (1, 7), (1, u32::MAX), (2, 5), (0xefff_ffff, u32::MAX)];
    for (length, (page, number)) in (1..).zip(names) {
        objects.does([set(AttributeName::new(page, number), &vec![1; length])]);
    }
    let mut list = |after: Option<(u32, u32)>, page, most| {
        let after = after.map(|(page, number)| AttributeName::new(page, number));
        match objects.acts(Action::ListAttributes { after, page, most }) {
            ActionResult::Attributes { found, more } => {
                let short = |(name, length): (AttributeName, u32)| ((name.page, name.number), length);
                (found.into_iter().map(short).collect::<Vec<_>>(), more)
            }
            other => panic!("{other:?}"),
        }
    };
    let all: Vec<_> = names.into_iter().zip(1..).collect();
    assert_eq!(list(None, None, u32::MAX), (all.clone(), false));
    assert_eq!(list(None, None, 7), (all.clone(), false));
    assert_eq!(list(None, None, 6), (all[..6].to_vec(), true));
    assert_eq!(list(None, None, 0), (vec![], true));
    assert_eq!(list(Some((1, 0)), None, 2), (all[3..5].to_vec(), true));
    assert_eq!(list(Some((1, 1)), None, 2), (all[3..5].to_vec(), true));
    assert_eq!(list(None, Some(1), 9), (all[2..5].to_vec(), false));
    assert_eq!(list(None, Some(1), 2), (all[2..4].to_vec(), true));
    assert_eq!(list(Some((1, 7)), Some(1), 9), (all[4..5].to_vec(), false));
    // A position outside of the page.
    assert_eq!(list(Some((0, 3)), Some(1), 9), (all[2..5].to_vec(), false));
    assert_eq!(list(Some((1, u32::MAX)), Some(1), 9), (vec![], false));
    assert_eq!(list(Some((2, 0)), Some(1), 9), (vec![], false));
    assert_eq!(list(Some((u32::MAX, u32::MAX)), None, 9), (vec![], false));
    assert_eq!(list(None, Some(AttributeName::OBJECT_PAGE), 9), (vec![], false));
}

#[test]
fn one_list_has_1024_attributes_at_most() {
    let mut objects = Objects::with_one();
    for page in 0..17 {
        let sets =
            (0..64).fold(command(Action::Nothing), |sets, number| sets.set(AttributeName::new(page, number), b"x"));
        objects.does([sets]);
    }
    let list = objects.acts(Action::ListAttributes { after: None, page: None, most: u32::MAX });
    let ActionResult::Attributes { found, more } = list else { panic!("a list") };
    assert_eq!((found.len(), more), (1024, true));
    let after = found.last().map(|(name, _)| *name);
    let list = objects.acts(Action::ListAttributes { after, page: None, most: u32::MAX });
    let ActionResult::Attributes { found, more } = list else { panic!("a list") };
    assert_eq!((found.len(), more), (64, false));
}

#[test]
fn lists_show_what_the_same_request_has_changed() {
    let mut objects = Objects::with_one();
    for number in 0..6 {
        objects.does([set(AttributeName::new(0, number), b"x")]);
    }
    let name = |number| AttributeName::new(0, number);
    let change =
        command(Action::Nothing).set(name(0), b"").set(name(2), b"").set(name(3), b"longer").set(name(9), b"new");
    let list = command(Action::ListAttributes { after: None, page: None, most: 9 });
    let results = objects.does([change, list.clone()]);
    let found = vec![(name(1), 1), (name(3), 6), (name(4), 1), (name(5), 1), (name(9), 3)];
    assert_eq!(results[1].action, ActionResult::Attributes { found, more: false });
    let rest = [1, 3, 4, 5, 9].into_iter().fold(command(Action::Nothing), |sets, number| sets.set(name(number), b""));
    let results = objects.does([rest, list]);
    assert_eq!(results[1].action, ActionResult::Attributes { found: vec![], more: false });
}
