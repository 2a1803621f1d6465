//! Frames that are damaged, truncated, random or of another release are refused without a panic.

use crate::any;
use crate::golden::goldens;
use crate::limits::*;
use braid_wire::frame::{MAGIC, VERSION};
use braid_wire::fuzzing::{reseal, wire_frame, wire_message};
use braid_wire::*;
use proptest::prelude::*;
use proptest::sample::Index;

#[test]
fn a_frame_with_any_one_bit_flipped_is_refused() {
    for golden in goldens() {
        let frame = golden.frame();
        for bit in 0..frame.len() * 8 {
            let mut bytes = frame.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = Frame::decode(bytes.into()).expect_err("a damaged frame");
            let at = bit / 8;
            match at {
                0..4 => assert_eq!(error, WireError::NotBraid),
                4..8 => assert!(matches!(error, WireError::Version { .. }), "{error:?}"),
                8..16 => assert!(
                    matches!(error, WireError::Truncated | WireError::Trailing | WireError::FrameTooLong { .. }),
                    "{error:?}"
                ),
                _ => assert_eq!(error, WireError::Checksum, "byte {at}"),
            }
        }
    }
}

proptest! {
    #[test]
    fn a_longer_frame_with_any_one_bit_flipped_is_refused(frame in any::frame(), bits in vec(any::<Index>(), 32)) {
        let bytes = frame.encode().to_bytes();
        for bit in bits {
            let bit = bit.index(bytes.len() * 8);
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::decode(bytes.into()).is_err(), "bit {}", bit);
        }
    }

    #[test]
    fn a_frame_cut_at_any_length_is_refused(frame in any::frame()) {
        let bytes = frame.encode().to_bytes();
        for length in 0..bytes.len() {
            prop_assert_eq!(Frame::decode(bytes.slice(..length)), Err(WireError::Truncated));
        }
    }

    #[test]
    fn a_frame_with_a_byte_too_many_is_refused(frame in any::frame()) {
        let bytes = [&frame.encode().to_bytes()[..], &[0]].concat();
        prop_assert_eq!(Frame::decode(bytes.into()), Err(WireError::Trailing));
    }

    /// The frame around the message is valid, so that the message itself is examined.
    #[test]
    fn a_message_cut_at_any_length_or_prolonged_is_refused(frame in any::frame()) {
        let encoded = frame.encode();
        let (description, payload) = (&encoded.head[64..], encoded.payload.concat());
        for length in 0..description.len() {
            let cut = Frame::decode(seal(&description[..length], &payload));
            prop_assert_eq!(cut, Err(WireError::Truncated), "at {}", length);
        }
        if !payload.is_empty() {
            let cut = Frame::decode(seal(description, &payload[..payload.len() - 1]));
            prop_assert_eq!(cut, Err(WireError::Truncated));
        }
        let longer = [description, &[0]].concat();
        prop_assert_eq!(Frame::decode(seal(&longer, &payload)), Err(WireError::Trailing));
        prop_assert_eq!(Frame::decode(seal(description, &[&payload[..], &[0]].concat())), Err(WireError::Trailing));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes_are_decoded_without_a_panic(noise in vec(any::<u8>(), 0..200), magic in any::<bool>()) {
        let start = [&MAGIC[..], &VERSION.to_le_bytes(), &[0; 2]].concat();
        wire_frame(&[if magic { &start[..] } else { &[] }, &noise].concat());
    }

    #[test]
    fn any_description_in_a_good_frame_is_decoded_without_a_panic(noise in vec(small_byte(), 0..200)) {
        wire_message(&noise);
    }

    /// Valid messages with a few bytes changed: these get far into the decoder.
    #[test]
    fn a_message_with_some_bytes_changed_is_decoded_without_a_panic(
        frame in any::frame(),
        changes in vec((any::<Index>(), small_byte()), 1..4),
    ) {
        let encoded = frame.encode();
        let mut description = encoded.head[64..].to_vec();
        for (at, byte) in &changes {
            let at = at.index(description.len());
            description[at] = *byte;
        }
        let payload_bytes: usize = encoded.payload.iter().map(Bytes::len).sum();
        wire_message(&[&(payload_bytes as u16).to_le_bytes(), &description[..]].concat());

        let mut bytes = encoded.to_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        wire_frame(&reseal(bytes));
    }
}

proptest! {
    /// The journal protects stored answers by checksums; nevertheless, invalid ones are refused.
    #[test]
    fn a_kept_answer_that_is_cut_or_prolonged_is_refused(answer in any::object_answer()) {
        let bytes = Bytes::from(encode_answer(&answer));
        prop_assert_eq!(decode_answer(&bytes), Ok(answer));
        for length in 0..bytes.len() {
            prop_assert!(decode_answer(&bytes.slice(..length)).is_err(), "at {}", length);
        }
        prop_assert_eq!(decode_answer(&[&bytes[..], &[0]].concat().into()), Err(WireError::Trailing));
    }

    #[test]
    fn a_kept_answer_with_some_bytes_changed_is_decoded_without_a_panic(
        answer in any::object_answer(),
        changes in vec((any::<Index>(), small_byte()), 1..4),
    ) {
        let mut bytes = encode_answer(&answer);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(decoded) = decode_answer(&bytes.clone().into()) {
            prop_assert_eq!(encode_answer(&decoded), bytes, "an answer has only one encoding");
        }
    }
}

/// Bytes as they are frequent in messages: variants and small numbers, and sometimes a large one.
fn small_byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0..16u8, 4 => Just(0), 1 => any::<u8>(), 1 => Just(255)]
}

#[test]
fn another_version_or_an_unknown_feature_is_refused_with_advice() {
    let frame = goldens()[0].frame();
    for (at, byte, version, features) in [(4, 15, 15, 0), (5, 2, 0x210, 0), (6, 2, 16, 2), (7, 2, 16, 0x200)] {
        let mut bytes = frame.to_vec();
        bytes[at] = byte;
        let error = Frame::decode(reseal(bytes)).expect_err("a frame of another release");
        assert_eq!(error, WireError::Version { version, features });
    }
    assert_eq!(
        WireError::Version { version: 5, features: 4 }.to_string(),
        "the peer speaks version 5 of the protocol with features 0x4; this one speaks version 16: bring both to the same release"
    );
}

#[test]
fn a_node_of_no_kind_and_a_device_beyond_all_numbers_are_refused() {
    let frame = goldens()[0].frame();
    // There is one monitor, and its number is zero.
    for (at, byte) in [(32, 0), (32, 4), (32, 6), (40, 0), (40, 4), (40, 6), (46, 1), (47, 1)] {
        let mut bytes = frame.to_vec();
        bytes[at] = byte;
        assert_eq!(Frame::decode(reseal(bytes)), Err(WireError::BadValue { what: "node" }), "byte {at}");
    }
}

/// Reserved bytes: an older release ignores what newer ones write there.
#[test]
fn bytes_kept_for_later_are_not_looked_at() {
    let frame = goldens()[0].frame();
    let message = Frame::decode(frame.clone());
    for at in (33..36).chain(41..44).chain(48..56).chain(60..64) {
        let mut bytes = frame.to_vec();
        bytes[at] = 1;
        assert_eq!(Frame::decode(reseal(bytes)), message, "byte {at}");
    }
}
