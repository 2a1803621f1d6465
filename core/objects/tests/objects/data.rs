//! Bytes of objects: holes, truncation, extension.

use crate::words::*;
use braid_wire::*;

fn data(bytes: &[u8]) -> ActionResult {
    ActionResult::Data { data: Bytes::copy_from_slice(bytes) }
}

fn append(bytes: &[u8]) -> Action {
    Action::Append { data: Bytes::copy_from_slice(bytes) }
}

fn pieces(objects: &Objects) -> usize {
    objects.map.keys().filter(|key| key.kind == Kind::Piece).count()
}

#[test]
fn an_object_grows_to_a_pebibyte_and_no_further() {
    let mut objects = Objects::with_one();
    let longest = limits::OBJECT_BYTES_MAX;
    assert_eq!(longest, 1 << 50);
    objects.acts(Action::Truncate { length: longest });
    assert_eq!(pieces(&objects), 0);
    objects.acts(write(longest - 1, b"x"));
    assert_eq!(objects.acts(read(longest - 2, 9)), data(b"\0x"));
    for refused in [
        append(b"x"),
        write(longest, b"x"),
        write(longest - 1, b"xx"),
        write(u64::MAX, b"x"),
        write(u64::MAX, b""),
        Action::Truncate { length: longest + 1 },
        Action::Truncate { length: u64::MAX },
    ] {
        assert_eq!(objects.refuses(command(refused)), ObjectFailure::TooLong);
    }
    objects.acts(append(b""));
    objects.acts(Action::Truncate { length: 1 });
    assert_eq!(pieces(&objects), 0);
}

#[test]
fn one_request_cuts_off_4_mib_of_data_at_most() {
    let mut objects = Objects::with_one();
    for part in 0..17 {
        objects.acts(write(part << 18, &vec![1; 256 << 10]));
    }
    let cut = |length| command(Action::Truncate { length });
    let (whole, step) = (17u64 << 18, 4u64 << 20);
    assert_eq!(objects.refuses(cut(0)), ObjectFailure::CutsTooMuch);
    assert_eq!(objects.refuses(cut(whole - step - 4096)), ObjectFailure::CutsTooMuch);
    // The bound applies to several commands together, and a refused request has no effect.
    let refusal = objects.ask([cut(whole - step / 2), cut(whole - step - 4096)]).expect_err("too much");
    assert_eq!(refusal, ObjectRefusal { command: 1, failure: ObjectFailure::CutsTooMuch });
    assert_eq!(pieces(&objects), 17 * 64);
    // The last remaining piece may be cut in part in addition.
    objects.does([cut(whole - step / 2), cut(whole - step - 1)]);
    assert_eq!(pieces(&objects), 64);
    objects.acts(Action::Truncate { length: 0 });
    assert_eq!(pieces(&objects), 0);
    // Pieces that were never written do not count.
    objects.does([cut(1 << 49), cut(0)]);
}

#[test]
fn values_and_pieces_are_kept_without_the_frame_that_they_came_in() {
    let mut objects = Objects::with_one();
    let frame = Bytes::from(vec![5; 100 << 10]);
    let set = SetAttribute { name: NOTE, value: frame.slice(..2000) };
    let write = Action::Write { offset: 0, data: frame.slice(..8192) };
    objects.does([ObjectCommand { sets: vec![set], ..command(write) }]);
    let within = frame.as_ptr_range();
    for (key, value) in &objects.map {
        assert!(!within.contains(&value.as_ptr()), "{key:?}");
    }
    assert!(objects.map.contains_key(&Key::piece(1, 1)));
}
