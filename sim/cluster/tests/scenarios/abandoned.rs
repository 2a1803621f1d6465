//! Scenarios of abandoned object requests: once a later request is answered, an abandoned request has happened or never will.

use crate::story::*;

const HERE: DeviceId = DeviceId(0);
const OBJECT: ObjectId = ObjectId(1);
const LATE: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);

fn array_with_object() -> (Cluster, HostSlot, HostSlot) {
    let (mut array, a, b) = array_by(Ordering::Timestamp);
    array.make_objects(a, HERE, [OBJECT.0]);
    (array, a, b)
}

fn asks(array: &mut Cluster, host: HostSlot, command: ObjectCommand, patience: Duration) -> OpId {
    let request = ObjectRequest { commands: vec![command] };
    array.ask(host, ObjectsRequest::Execute { device: HERE, request, patience })
}

fn counted(array: &mut Cluster, host: HostSlot) -> i64 {
    let op = asks(array, host, get(OBJECT, COUNTER), LONG);
    number_in(&result_of(array.finish(op)))
}

/// The fates of a host's object requests, by the order in which they were issued. All copies of a request have the same fate.
type Fates = Rc<RefCell<Box<dyn Fn(usize) -> Verdict>>>;

fn decide_fates(array: &mut Cluster, node: NodeId) -> Fates {
    let fates: Fates = Rc::new(RefCell::new(Box::new(|_| Verdict::Pass)));
    let (decided, mut seen) = (Rc::clone(&fates), BTreeSet::new());
    array.world.network.set_rule(move |from, _, message| match command_of(message) {
        Some(Command::Objects { sequence, .. }) if from == node => {
            seen.insert(*sequence);
            (decided.borrow())(seen.range(..sequence).count())
        }
        _ => Verdict::Pass,
    });
    fates
}

/// One request is in progress all the time, so that the settled mark does not rise; a device is silent, and far more requests are
/// abandoned, one by one, than a message has room to name.
#[test]
fn the_last_of_many_that_were_given_up_never_happens_once_something_later_was_answered() {
    const MANY: usize = 700;
    let (mut array, a, b) = array_with_object();
    let node = array.node(a);
    let fates = decide_fates(&mut array, node);
    *fates.borrow_mut() = Box::new(|number| if number == MANY { Verdict::Delay(LATE) } else { Verdict::Drop });
    let oldest = asks(&mut array, a, addition(OBJECT), LONG);
    let many: Vec<OpId> = (0..MANY).map(|_| asks(&mut array, a, addition(OBJECT), SHORT)).collect();
    for op in many {
        let outcome = array.finish(op);
        assert!(matches!(outcome, Err(HostError::TimedOut { .. })), "{outcome:?}");
    }
    // The device answers again; only the oldest request does not reach it.
    *fates.borrow_mut() = Box::new(|number| match number {
        0 => Verdict::Drop,
        MANY => Verdict::Delay(LATE),
        _ => Verdict::Pass,
    });
    assert_eq!(counted(&mut array, a), 0);
    array.run_for(LATE + A_WHILE);
    assert_eq!(counted(&mut array, b), 0, "an abandoned request happened too late");
    let outcome = array.finish(oldest);
    assert!(matches!(outcome, Err(HostError::TimedOut { .. })), "{outcome:?}");
    all_is_well(array);
}
