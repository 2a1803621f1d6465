//! Scenarios of objects with bytes and attributes: requests are executed once and durably, whatever happens to messages, devices and
//! hosts.

use crate::story::*;

const COUNTER: AttributeName = AttributeName::new(1, 1);
const LONG: Duration = Duration::from_secs(30);

fn command(object: u64, action: Action) -> ObjectCommand {
    ObjectCommand::new(ObjectId(object), action)
}

fn request(device: u16, object: u64, action: Action) -> ObjectsRequest {
    let request = ObjectRequest { commands: vec![command(object, action)] };
    ObjectsRequest::Execute { device: DeviceId(device), request, patience: LONG }
}

fn add(object: u64) -> ObjectsRequest {
    request(0, object, Action::FetchAndAdd { name: COUNTER, add: 1, original: true })
}

fn done(array: &mut Cluster, host: HostSlot, request: ObjectsRequest) -> ActionResult {
    let op = array.ask(host, request);
    result(array.finish(op))
}

fn result(outcome: Result<HostSuccess, HostError>) -> ActionResult {
    match outcome {
        Ok(HostSuccess::Objects(mut results)) => results.pop().expect("the request had one command").action,
        other => panic!("the request failed: {other:?}"),
    }
}

fn is_answer(message: &Message) -> bool {
    matches!(message, Message::Answer(answer) if matches!(answer.reply, Reply::Objects { .. }))
}

#[test]
fn an_addition_whose_answer_was_lost_is_not_done_again_not_even_by_a_device_that_crashed() {
    let (mut array, a, b) = array_by(Ordering::Timestamp);
    let made = done(&mut array, a, request(0, 7, Action::Create));
    assert_eq!(made, ActionResult::Created { object: ObjectId(7) });
    for round in 0..5 {
        array.world.network.drop_if(|_, _, message| is_answer(message));
        let op = array.ask(a, add(7));
        array.run_for(Duration::from_millis(700));
        if round % 2 == 0 {
            array.crash(device(0));
            array.run_for(Duration::from_millis(100));
            array.restart_device(DeviceId(0));
        }
        array.world.network.heal();
        assert_eq!(result(array.finish(op)), ActionResult::Added { original: Some(2 * round) });
        assert_eq!(done(&mut array, b, add(7)), ActionResult::Added { original: Some(2 * round + 1) });
    }
}

#[test]
fn a_wait_for_an_attribute_ends_with_its_change() {
    let (mut array, a, b) = array_by(Ordering::Timestamp);
    done(&mut array, a, request(0, 0, Action::Create));
    let wait = |seen: Bytes, patience| ObjectsRequest::Await {
        device: DeviceId(0),
        object: ObjectId(1),
        name: COUNTER,
        seen,
        patience,
    };
    let op = array.ask(a, wait(Bytes::new(), LONG));
    array.run_for(Duration::from_secs(3));
    let swap = |compare: &'static [u8], swap: &'static [u8]| {
        let (compare, swap) = (Bytes::from_static(compare), Bytes::from_static(swap));
        let undefined = Undefined::IsEmpty;
        request(0, 1, Action::CompareAndSwap { name: COUNTER, compare, swap, undefined, original: false })
    };
    done(&mut array, b, swap(b"other", b"x"));
    done(&mut array, b, swap(b"", b"mine"));
    assert_eq!(array.finish(op), Ok(HostSuccess::Value(Bytes::from_static(b"mine"))));
    // The value does not change: the host answers at the time-out.
    let op = array.ask(a, wait(Bytes::from_static(b"mine"), Duration::from_secs(2)));
    assert_eq!(array.finish(op), Ok(HostSuccess::Value(Bytes::from_static(b"mine"))));
}
