//! The first bytes of a connection: their form, which never changes, and what two releases agree on.

use crate::golden::{digits, hex};
use crate::limits::*;
use braid_base::Level;
use braid_wire::frame::{VERSION, VERSION_LOWEST};
use braid_wire::hello::{EXTRA_BYTES_MAX, HELLO_BYTES};
use braid_wire::{Disagreement, Hello, WireError};
use proptest::prelude::*;

fn hello(versions: (u16, u16), knows: u16, level: u16) -> Hello {
    let array = ArrayId(std::array::from_fn(|index| 0xa0 + index as u8));
    Hello { array, versions, knows: Level(knows), level: Level(level), release: "9.8.7".to_string() }
}

#[test]
fn a_hello_has_the_bytes_that_are_written_down() {
    let expected = "42524148 0000 1000 1100 0200 0100 0000 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf 392e382e37";
    let encoded = hello((16, 17), 2, 1).encode();
    assert_eq!(digits(&encoded[..37]), digits(&hex(expected)));
    assert_eq!((encoded[37..60].iter().any(|byte| *byte != 0), encoded.len()), (false, HELLO_BYTES));
}

#[test]
fn bytes_that_later_releases_add_are_skipped_and_too_many_are_refused() {
    let sealed = |extra: u16| {
        let mut bytes = hello((16, 17), 2, 1).encode().to_vec();
        bytes[4..6].copy_from_slice(&extra.to_le_bytes());
        let crc = braid_base::checksum::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes.extend(std::iter::repeat_n(7, extra.into()));
        bytes
    };
    let read = Hello::decode(&sealed(40)).expect("it is sound").expect("it is whole");
    assert_eq!(read, (hello((16, 17), 2, 1), HELLO_BYTES + 40));
    assert_eq!(Hello::decode(&sealed(40)[..100]), Ok(None));
    let length = EXTRA_BYTES_MAX + 1;
    assert_eq!(Hello::decode(&sealed(length as u16)), Err(WireError::TooLong { length, max: EXTRA_BYTES_MAX }));
}

#[test]
fn a_release_before_hellos_is_named_by_its_version() {
    assert_eq!(Hello::decode(b"BRAD\x0f\0"), Err(WireError::Version { version: 15, features: 0 }));
    assert_eq!((Hello::decode(b"BRA"), Hello::decode(b"BRAD")), (Ok(None), Ok(None)));
    assert_eq!(Hello::decode(b"GET / HTTP"), Err(WireError::NotBraid));
}

#[test]
fn both_sides_agree_on_the_highest_version_that_both_know_or_say_why_there_is_none() {
    let ours = Hello { release: String::new(), ..Hello::ours(ArrayId([1; 16]), Level::FIRST) };
    assert_eq!((ours.versions, ours.knows), ((VERSION_LOWEST, VERSION), Level::KNOWN));
    for (ours, theirs, agreed) in [
        (hello((16, 17), 2, 1), hello((16, 17), 2, 1), Some(17)),
        (hello((16, 17), 2, 1), hello((16, 16), 1, 1), Some(16)),
        (hello((16, 17), 2, 1), hello((17, 18), 3, 0), Some(17)),
        (hello((16, 17), 2, 1), hello((18, 19), 3, 1), None),
        (hello((17, 18), 3, 2), hello((16, 17), 2, 2), Some(17)),
        // The array has a level that one of them does not know, and the other side may know that alone.
        (hello((17, 18), 3, 3), hello((16, 17), 2, 2), None),
        (hello((17, 18), 3, 2), hello((16, 17), 2, 3), None),
    ] {
        assert_eq!((ours.agree(&theirs).ok(), theirs.agree(&ours).ok()), (agreed, agreed), "{ours:?} {theirs:?}");
    }
    let (old, new) = (hello((16, 16), 1, 1), hello((16, 17), 2, 2));
    assert_eq!(old.agree(&new), Err(Disagreement::WeAreOld { level: Level(2) }));
    let release = "9.8.7".to_string();
    assert_eq!(new.agree(&old), Err(Disagreement::TheyAreOld { release, knows: Level(1), level: Level(2) }));
}

proptest! {
    #[test]
    fn a_hello_is_read_as_it_was_said_and_damage_is_noticed(
        (versions, knows, level) in any::<((u16, u16), u16, u16)>(),
        release in "[ -~é]{0,40}",
        (at, flip) in (0..HELLO_BYTES, 1..=255_u8),
        cut in 0..HELLO_BYTES,
    ) {
        let said = Hello { release, ..hello(versions, knows, level) };
        let mut bytes = said.encode().to_vec();
        let (read, length) = Hello::decode(&bytes).expect("it is sound").expect("it is whole");
        prop_assert!(said.release.starts_with(&read.release) && read.release.len() <= said.release.len());
        prop_assert_eq!((Hello { release: said.release.clone(), ..read }, length), (said, HELLO_BYTES));
        prop_assert_eq!(Hello::decode(&bytes[..cut]), Ok(None));
        bytes[at] ^= flip;
        prop_assert!(Hello::decode(&bytes).is_err(), "byte {}", at);
    }
}
