//! Attributes: compare-and-swap and fetch-and-add as in the device-atomics paper (sections 4 and 5), sets and gets.

use crate::words::*;
use braid_wire::*;

/// Examples; random requests are compared with a model (`random.rs`).
#[test]
fn values_are_swapped_and_added_to() {
    let mut objects = Objects::with_one();
    for (action, result, value) in [
        // An undefined attribute has any value that it is compared with, or counts as empty on request.
        (swap(LOCK, b"any", b"red"), compared(true, b""), &b"red"[..]),
        (swap(LOCK, b"re", b"green"), compared(false, b"red"), b"red"),
        (swap(LOCK, b"red", b""), compared(true, b"red"), b""),
        (swap_empty(LOCK, b"any", b"green"), compared(false, b""), b""),
        (swap_empty(LOCK, b"", b"green"), compared(true, b""), b"green"),
        // Numbers are signed and big-endian; zero is a value.
        (add(COUNT, -3), added(0), &(-3_i64).to_be_bytes()),
        (add(COUNT, 3), added(-3), &[0; 8]),
        (swap(COUNT, b"", b"x"), compared(false, &[0; 8]), &[0; 8]),
    ] {
        let name = if value.len() == 8 { COUNT } else { LOCK };
        assert_eq!((objects.acts(action), objects.value(name)), (result, Bytes::copy_from_slice(value)));
    }
}

#[test]
fn pages_of_the_device_are_read() {
    let mut objects = Objects::with_one();
    objects.acts(write(0, b"twelve bytes"));
    assert_eq!(objects.value(AttributeName::OBJECT_LENGTH), &12u64.to_be_bytes()[..]);
    assert_eq!(objects.value(AttributeName::OBJECT_LIFE), &1u64.to_be_bytes()[..]);
    assert_eq!(objects.value(AttributeName::new(AttributeName::OBJECT_PAGE, 3)), "");
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
