//! Scenarios of objects with bytes and attributes: requests are executed once and durably, whatever happens to messages, devices and
//! hosts.

use crate::story::*;

const LONG: Duration = Duration::from_secs(30);

fn request(command: ObjectCommand) -> ObjectsRequest {
    let request = ObjectRequest { commands: vec![command] };
    ObjectsRequest::Execute { device: DeviceId(0), request, patience: LONG }
}

fn done(array: &mut Cluster, host: HostSlot, command: ObjectCommand) -> ActionResult {
    result_of(array.perform(host, request(command))).action
}

#[test]
fn an_addition_whose_answer_was_lost_is_not_done_again_not_even_by_a_device_that_crashed() {
    let (mut array, a, b) = array_by(Ordering::Timestamp);
    let made = done(&mut array, a, command(ObjectId(7), Action::Create));
    assert_eq!(made, ActionResult::Created { object: ObjectId(7) });
    for round in 0..5 {
        array.world.network.drop_if(|_, _, message| are_results(message));
        let op = array.ask(a, request(addition(ObjectId(7))));
        array.run_for(Duration::from_millis(700));
        if round % 2 == 0 {
            array.crash(device(0));
            array.run_for(Duration::from_millis(100));
            array.restart_device(DeviceId(0));
        }
        array.world.network.heal();
        assert_eq!(result_of(array.finish(op)).action, ActionResult::Added { original: Some(2 * round) });
        assert_eq!(done(&mut array, b, addition(ObjectId(7))), ActionResult::Added { original: Some(2 * round + 1) });
    }
}

#[test]
fn a_wait_for_an_attribute_ends_with_its_change() {
    let (mut array, a, b) = array_by(Ordering::Timestamp);
    done(&mut array, a, command(ObjectId(0), Action::Create));
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
        command(ObjectId(1), Action::CompareAndSwap { name: COUNTER, compare, swap, undefined, original: false })
    };
    done(&mut array, b, swap(b"other", b"x"));
    done(&mut array, b, swap(b"", b"mine"));
    assert_eq!(array.finish(op), Ok(HostSuccess::Value(Bytes::from_static(b"mine"))));
    // The value does not change: the host answers at the time-out.
    assert_eq!(
        array.perform(a, wait(Bytes::from_static(b"mine"), Duration::from_secs(2))),
        Ok(HostSuccess::Value(Bytes::from_static(b"mine")))
    );
}
