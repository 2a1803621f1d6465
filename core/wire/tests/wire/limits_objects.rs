//! The bounds of object requests.

use crate::limits::*;
use braid_base::limits::*;
use braid_wire::*;

fn objects(commands: Vec<ObjectCommand>) -> Message {
    request(Command::Objects { sequence: 1, abandoned: Vec::new(), request: ObjectRequest { commands } })
}

/// What becomes of an empty request of this number.
fn numbered(sequence: u64, abandoned: Vec<(u64, u64)>) -> Result<(), WireError> {
    decoded(request(Command::Objects { sequence, abandoned, request: ObjectRequest::default() }))
}

fn command(action: Action, sets: usize, gets: usize) -> ObjectCommand {
    let name = AttributeName::new(0, 0);
    let (when, set) = (When::Always, SetAttribute { name, value: Bytes::new() });
    ObjectCommand { object: OBJECT, when, action, sets: vec![set; sets], sets_when: when, gets: vec![name; gets] }
}

fn done(results: Vec<CommandResult>) -> Message {
    answer(Reply::Objects { sequence: 1, answer: Ok(results) })
}

fn value(length: usize) -> Message {
    answer(Reply::Changed { ticket: 1, value: Ok(Bytes::from(vec![7; length])) })
}

#[test]
fn short_values_lie_in_the_description_and_long_ones_aside() {
    for (length, aside) in [(0, 0), (1, 0), (1023, 0), (1024, 1024), (65536, 65536)] {
        let encoded = frame(value(length)).encode();
        let payload: usize = encoded.payload.iter().map(Bytes::len).sum();
        assert_eq!(payload, aside, "{length}");
        assert_eq!(encoded.len(), frame(value(0)).encode().len() + length);
    }
}

#[test]
fn a_long_value_is_shared_with_its_frame_and_a_short_one_is_not() {
    for (length, shared) in [(1023, false), (1024, true)] {
        let bytes = frame(value(length)).encode().to_bytes();
        let Message::Answer(Answer { reply: Reply::Changed { value: Ok(value), .. }, .. }) =
            Frame::decode(bytes.clone()).expect("a frame").message
        else {
            panic!("another message came back");
        };
        assert_eq!(bytes.as_ptr_range().contains(&value.as_ptr()), shared, "{length}");
    }
}

#[test]
fn a_value_that_claims_more_than_there_is_is_refused() {
    let description = |length: usize| frame(value(length)).encode().head[64..].to_vec();
    // The length of an empty value ends the description.
    let at = description(0).len() - 4;
    for (length, declared, payload, expected) in [
        (3, 3, 0, Ok(())),
        (3, 4, 0, Err(WireError::Truncated)),
        (3, 2, 0, Err(WireError::Trailing)),
        (1024, 1024, 1024, Ok(())),
        (1024, 1025, 1024, Err(WireError::Truncated)),
        (1024, 1024, 1025, Err(WireError::Trailing)),
        (1024, u32::MAX, 1024, Err(WireError::Truncated)),
        // A short value must not be in the payload, nor a long one in the description.
        (1024, 3, 3, Err(WireError::Truncated)),
        (1023, 1024, 0, Err(WireError::Truncated)),
    ] {
        let mut description = description(length);
        description[at..at + 4].copy_from_slice(&declared.to_le_bytes());
        let decoded = Frame::decode(seal(&description, &vec![7; payload])).map(|_| ());
        assert_eq!(decoded, expected, "{length} {declared} {payload}");
    }
}

#[test]
fn the_highest_sequence_is_refused() {
    let of = |sequence| numbered(sequence, Vec::new());
    assert_eq!(of(u64::MAX - 1), Ok(()));
    assert_eq!(of(u64::MAX), Err(WireError::BadValue { what: "sequence" }));
}

#[test]
fn intervals_that_are_not_in_order_are_refused() {
    for (abandoned, is_taken) in [
        (vec![(1, 2), (3, 4)], true),
        (vec![(1, 2), (2, 4)], false),
        (vec![(3, 4), (1, 2)], false),
        (vec![(1, 1)], false),
        (vec![(2, 1)], false),
    ] {
        let refused = Err(WireError::BadValue { what: "intervals" });
        assert_eq!(numbered(9, abandoned), if is_taken { Ok(()) } else { refused });
    }
}

#[test]
fn the_largest_request_that_a_device_takes_fits_into_a_frame() {
    let value = Bytes::from(vec![7; ATTRIBUTE_BYTES_MAX]);
    let mut full = command(Action::Stat, ATTRIBUTES_PER_COMMAND_MAX, ATTRIBUTES_PER_COMMAND_MAX);
    let mut commands = vec![full.clone(); OBJECT_COMMANDS_MAX - 1];
    for set in &mut full.sets[..OBJECT_REQUEST_BYTES_MAX / ATTRIBUTE_BYTES_MAX] {
        set.value = value.clone();
    }
    commands.push(full);
    let request = ObjectRequest { commands };
    assert_eq!(request.check(), Ok(()));
    let abandoned = (0..ABANDONED_MAX as u64).map(|nth| (2 * nth, 2 * nth + 1)).collect();
    let largest = frame(self::request(Command::Objects { sequence: 1000, abandoned, request }));
    let bytes = largest.encode().to_bytes();
    assert!(bytes.len() < OBJECT_REQUEST_BYTES_MAX + (128 << 10), "{} bytes", bytes.len());
    assert_eq!(Frame::decode(bytes), Ok(largest));
}

#[test]
fn a_checked_request_never_makes_a_frame_too_long() {
    let most = FRAME_BYTES_MAX / ATTRIBUTE_BYTES_MAX + 1;
    let data = Bytes::from(vec![7; 64 * BLOCK_BYTES]);
    let commands = (0..most).map(|_| command(Action::Append { data: data.clone() }, 0, 0)).collect();
    let refusal = ObjectRequest { commands }.check();
    assert_eq!(refusal, Err(ObjectRefusal { command: 2, failure: ObjectFailure::Malformed }));
}

/// A peer must not make others note requests without end.
#[test]
fn only_answers_of_a_block_or_more_are_a_demand() {
    let read = |length| command(Action::Read { offset: 0, length }, 0, 0);
    for (commands, bytes) in [
        (vec![], None),
        (vec![command(Action::Stat, 0, 0); 3], None),
        (vec![read(4095)], None),
        (vec![read(4096), read(0)], Some(4096)),
        (vec![read(u32::MAX); 2], Some(OBJECT_REQUEST_BYTES_MAX)),
        (vec![command(Action::Stat, 0, 1)], Some(ATTRIBUTE_BYTES_MAX)),
    ] {
        assert_eq!(objects(commands.clone()).demand().map(|demand| demand.bytes), bytes, "{commands:?}");
    }
    assert_eq!(done(Vec::new()).demand(), None);
}
