//! The encoding of object requests and of their answers.

use crate::golden::{Golden, OBJECT, TICKET, answer, request};
use braid_base::ObjectId;
use braid_wire::*;
use bytes::Bytes;

/// Page 1, number 258.
const NAME: &str = "01000000 02010000";

/// Every variant of every enum at least once.
pub fn objects() -> Vec<Golden> {
    let (object, name) = (ObjectId(0x21), AttributeName::new(1, 0x102));
    let (short, long) = (Bytes::from_static(b"abc"), Bytes::from(vec![0xb7; 1024]));
    let mut all = Vec::new();

    let set = |value: &Bytes| SetAttribute { name, value: value.clone() };
    let whole = ObjectCommand {
        object,
        when: When::IfNotSwapped,
        action: Action::Nothing,
        // The short value is in the description, the long one in the payload.
        sets: vec![set(&short), set(&long), set(&Bytes::new())],
        sets_when: When::IfSwapped,
        gets: vec![name, AttributeName::OBJECT_LIFE],
    };
    let create = plain(object, Action::Create);
    all.push(request(
        Command::Objects { sequence: 6, abandoned: vec![(2, 4), (5, 6)], request: ObjectRequest { commands: vec![whole, create] } },
        &format!(
            "09 {TICKET} 02000000 0200000000000000 0400000000000000 0500000000000000 0600000000000000 02000000 {OBJECT} 03 01 \
             03000000 {NAME} 03000000 616263 {NAME} 00040000 {NAME} 00000000 02 02000000 {NAME} 010000f0 02000000 \
             {OBJECT} 01 02 00000000 01 00000000"
        ),
    ));
    for (action, hex) in actions(name, &short) {
        let commands = vec![plain(object, action)];
        let hex = format!("09 {TICKET} 00000000 01000000 {OBJECT} 01 {hex} 00000000 01 00000000");
        all.push(request(
            Command::Objects { sequence: 6, abandoned: Vec::new(), request: ObjectRequest { commands } },
            &hex,
        ));
    }
    all.push(request(
        Command::Await { ticket: 6, object, name, seen: short.clone(), patience: 0x1234 },
        &format!("0a {TICKET} {OBJECT} {NAME} 03000000 616263 34120000"),
    ));

    for (action, hex) in results(object, name, &short) {
        let results = vec![CommandResult { action, values: vec![short.clone(), Bytes::new()] }];
        let hex = format!("0d {TICKET} 01 01000000 {hex} 02000000 03000000 616263 00000000");
        all.push(answer(Reply::Objects { sequence: 6, answer: Ok(results) }, &hex));
    }
    for (failure, hex) in [
        (ObjectFailure::NoSuchObject, "01"),
        (ObjectFailure::ObjectExists, "02"),
        (ObjectFailure::NotANumber { length: 7 }, "03 07000000"),
        (ObjectFailure::Overflow, "04"),
        (ObjectFailure::ValueTooLong { length: 0x10001 }, "05 01000100"),
        (ObjectFailure::ReservedPage { page: 0xf000_0001 }, "06 010000f0"),
        (ObjectFailure::TooLong, "07"),
        (ObjectFailure::NoSpace, "08"),
        (ObjectFailure::Lost, "09"),
        (ObjectFailure::Busy, "0a"),
        (ObjectFailure::Malformed, "0b"),
        (ObjectFailure::NotTogether, "0c"),
        (ObjectFailure::CutsTooMuch, "0d"),
        (ObjectFailure::NotInAttributeVolume, "0e"),
        (ObjectFailure::NotAnAttributeVolume, "0f"),
        (ObjectFailure::NumberTooHigh, "10"),
    ] {
        let refusal = Err(ObjectRefusal { command: 2, failure });
        let hex = format!("0d {TICKET} 02 02000000 {hex}");
        all.push(answer(Reply::Objects { sequence: 6, answer: refusal }, &hex));
    }
    all.push(answer(Reply::Changed { ticket: 6, value: Ok(short) }, &format!("0e {TICKET} 01 03000000 616263")));
    all.push(answer(
        Reply::Changed { ticket: 6, value: Err(ObjectFailure::NoSuchObject) },
        &format!("0e {TICKET} 02 01"),
    ));
    all
}

fn plain(object: ObjectId, action: Action) -> ObjectCommand {
    ObjectCommand { object, when: When::Always, action, sets: vec![], sets_when: When::Always, gets: vec![] }
}

fn actions(name: AttributeName, value: &Bytes) -> Vec<(Action, String)> {
    let swap = |undefined, original| {
        let (compare, swap) = (value.clone(), Bytes::new());
        Action::CompareAndSwap { name, compare, swap, undefined, original }
    };
    let add = |add, original| Action::FetchAndAdd { name, add, original };
    vec![
        (Action::Remove, "03".into()),
        (Action::Read { offset: 6, length: 0x1234 }, format!("04 {TICKET} 34120000")),
        (Action::Write { offset: 6, data: value.clone() }, format!("05 {TICKET} 03000000 616263")),
        (Action::Append { data: value.clone() }, "06 03000000 616263".into()),
        (Action::Truncate { length: 6 }, format!("07 {TICKET}")),
        (Action::Flush, "08".into()),
        (Action::Stat, "09".into()),
        (swap(Undefined::Matches, true), format!("0a {NAME} 03000000 616263 00000000 01 01")),
        (swap(Undefined::IsEmpty, false), format!("0a {NAME} 03000000 616263 00000000 02 00")),
        (add(6, true), format!("0b {NAME} {TICKET} 01")),
        (add(-2, false), format!("0b {NAME} feffffffffffffff 00")),
        (Action::ListAttributes { after: None, page: None, most: 0x1234 }, "0c 00 00 34120000".into()),
        (
            Action::ListAttributes { after: Some(name), page: Some(3), most: 0x1234 },
            format!("0c 01 {NAME} 01 03000000 34120000"),
        ),
        (Action::List { after: ObjectId(6), most: 0x1234 }, format!("0d {TICKET} 34120000")),
    ]
}

fn results(object: ObjectId, name: AttributeName, value: &Bytes) -> Vec<(ActionResult, String)> {
    let original = Some(value.clone());
    vec![
        (ActionResult::Skipped, "01".into()),
        (ActionResult::Done, "02".into()),
        (ActionResult::Created { object }, format!("03 {OBJECT}")),
        (ActionResult::Data { data: value.clone() }, "04 03000000 616263".into()),
        (ActionResult::Appended { offset: 6 }, format!("05 {TICKET}")),
        (ActionResult::Stat { length: 6, incarnation: 0x21 }, format!("06 {TICKET} {OBJECT}")),
        (ActionResult::Compared { swapped: true, original }, "07 01 01 03000000 616263".into()),
        (ActionResult::Compared { swapped: false, original: None }, "07 00 00".into()),
        (ActionResult::Added { original: Some(-2) }, "08 01 feffffffffffffff".into()),
        (ActionResult::Added { original: None }, "08 00".into()),
        (
            ActionResult::Attributes { found: vec![(name, 0x1234)], more: true },
            format!("09 01000000 {NAME} 34120000 01"),
        ),
        (ActionResult::Objects { found: vec![object], more: false }, format!("0a 01000000 {OBJECT} 00")),
    ]
}

/// The encoding of a stored answer: the length of its description, the description, the payload.
#[test]
fn a_kept_answer_has_the_bytes_that_are_written_down() {
    let long = Bytes::from(vec![0xb7; 1024]);
    let action = ActionResult::Data { data: long.clone() };
    let answer = Ok(vec![CommandResult { action, values: vec![Bytes::from_static(b"abc")] }]);
    let description = crate::golden::hex("01 01000000 04 00040000 01000000 03000000 616263");
    let bytes = [&[0x15, 0, 0, 0][..], &description, &long].concat();
    assert_eq!(encode_answer(&answer), bytes);
    assert_eq!(decode_answer(&bytes.into()), Ok(answer));
}
