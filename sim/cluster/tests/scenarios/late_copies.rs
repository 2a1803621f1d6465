//! Scenarios of late copies of object requests: each request is executed once, whenever the device loses power, however late a copy
//! arrives, and whichever hosts have died meanwhile.

use crate::story::*;
use braid_cluster::object_workload::set;
use braid_world::Keeps;

const HERE: DeviceId = DeviceId(0);
const OBJECT: ObjectId = ObjectId(1);
const WORD: AttributeName = AttributeName::new(1, 2);
/// The delay of late copies: long after the host has continued, and before it would abandon the request.
const LATE: Duration = Duration::from_secs(20);

/// An array with an object on its first device, a small journal, and two hosts.
fn array_with_object() -> (Cluster, HostSlot, HostSlot) {
    let options = Options::calm("raid5:4+1", 5, 1, 3);
    let (mut array, a, b) =
        array_of(Options { ordering: Ordering::Timestamp, journal_bytes: Some(1 << 20), ..options });
    array.make_objects(a, HERE, [OBJECT.0]);
    (array, a, b)
}

fn swap(compare: &'static str, swap: &'static str) -> ObjectCommand {
    let undefined = Undefined::IsEmpty;
    let action =
        Action::CompareAndSwap { name: WORD, compare: compare.into(), swap: swap.into(), undefined, original: true };
    command(OBJECT, action)
}

fn result(array: &mut Cluster, op: OpId) -> ActionResult {
    result_of(array.finish(op)).action
}

fn done(array: &mut Cluster, host: HostSlot, command: ObjectCommand) -> ActionResult {
    let op = array.have_done(host, HERE, vec![command]);
    result(array, op)
}

fn word(array: &mut Cluster, host: HostSlot) -> Bytes {
    let op = array.have_done(host, HERE, vec![get(OBJECT, WORD)]);
    result_of(array.finish(op)).values.remove(0)
}

fn is_request(message: &Message) -> bool {
    matches!(command_of(message), Some(Command::Objects { .. }))
}

/// The next request of a host arrives twice: at once, and late.
fn next_request_comes_late_again(array: &mut Cluster, host: HostSlot) {
    let (node, mut copies) = (array.node(host), 0);
    array.world.network.set_rule(move |from, _, message| {
        if from != node || !is_request(message) {
            return Verdict::Pass;
        }
        copies += 1;
        if copies == 1 { Verdict::Delay(LATE) } else { Verdict::Pass }
    });
}

/// Runs until the late copy of the request has arrived. With `restarts` the device crashes just before, so that it has no other
/// message from the host since its restart.
fn late_copy_comes(array: &mut Cluster, host: HostSlot, asked: Time, restarts: bool) {
    let soon = Duration::from_millis(300);
    array.run_for(asked.after(LATE - soon).since(array.world.now()));
    if restarts {
        restart(array, 0);
    }
    let node = array.node(host);
    array.world.network.cut(node, device(0));
    array.run_for(2 * soon);
    array.world.network.heal();
}

/// A counter of the device's store.
fn count(array: &Cluster, what: &str) -> u64 {
    let counters = array.device(HERE).expect("the device is up").store().counters();
    counters.into_iter().find(|(name, _)| *name == what).expect("the counter exists").1
}

/// Answers that a device keeps for hosts that may repeat their requests.
fn answers_kept(array: &Cluster) -> u64 {
    count(array, "answers_kept")
}

/// Writes until the journal wraps around, so that of its earlier records only those that were carried on remain.
fn fill_journal(array: &mut Cluster, host: HostSlot) {
    let before = count(array, "checkpoints");
    for number in 0_u32.. {
        if count(array, "checkpoints") > before {
            return;
        }
        assert!(number < 1_000, "the journal does not wrap around");
        done(array, host, set(OBJECT, AttributeName::new(9, 9), vec![number as u8; 10_000].into()));
    }
}

#[test]
fn an_addition_is_done_once_whenever_its_device_loses_power() {
    with_each([Keeps::Nothing, Keeps::Everything], array_with_object, |array, [a, b], keeps| {
        for at in 1..=12 {
            array.world.disk_mut(device(0)).expect("devices have disks").set_keeps(keeps);
            array.world.crash_before(device(0), at);
            let op = array.have_done(a, HERE, vec![addition(OBJECT)]);
            wait_until(array, "power has failed", |array| !array.world.is_up(device(0)));
            array.restart_device(HERE);
            let originals = (result(array, op), done(array, b, addition(OBJECT)));
            let at = at as i64;
            let added = |original| ActionResult::Added { original: Some(original) };
            assert_eq!(originals, (added(2 * at - 2), added(2 * at - 1)), "{keeps:?}, input {at}");
        }
    });
}

#[test]
fn an_addition_whose_answers_are_lost_is_done_once_though_the_device_crashes_and_its_journal_begins_anew() {
    let (mut array, a, b) = array_with_object();
    for round in 0..3 {
        let node = array.node(a);
        array.world.network.drop_if(move |_, to, message| to == node && are_results(message));
        let op = array.have_done(a, HERE, vec![addition(OBJECT)]);
        array.run_for(Duration::from_millis(100));
        fill_journal(&mut array, b);
        restart(&mut array, 0);
        array.run_for(Duration::from_secs(2));
        array.world.network.heal();
        assert_eq!(result(&mut array, op), ActionResult::Added { original: Some(round) });
    }
    all_is_well(array);
}

#[test]
fn a_late_copy_of_an_addition_does_nothing_though_its_host_has_gone_on_and_its_device_has_crashed() {
    with_each_pair([false, true], [false, true], array_with_object, |array, [a, b], restarts, fills| {
        next_request_comes_late_again(array, a);
        let asked = array.world.now();
        assert_eq!(done(array, a, addition(OBJECT)), ActionResult::Added { original: Some(0) });
        for round in 0..5 {
            done(array, a, addition(OBJECT));
            array.run_for(Duration::from_secs(1 + round % 2));
        }
        if fills {
            fill_journal(array, b);
        }
        late_copy_comes(array, a, asked, restarts);
        assert_eq!(done(array, b, addition(OBJECT)), ActionResult::Added { original: Some(6) }, "{restarts} {fills}");
    });
}

#[test]
fn a_swap_that_failed_fails_for_its_late_copy_too_though_that_finds_what_it_wants() {
    let cases = [(false, false), (true, false), (true, true)];
    with_each(cases, array_with_object, |array, [a, b], (restarts, fills)| {
        done(array, b, set(OBJECT, WORD, "other".into()));
        next_request_comes_late_again(array, a);
        let asked = array.world.now();
        let failed = done(array, a, swap("wanted", "mine"));
        assert_eq!(failed, ActionResult::Compared { swapped: false, original: Some("other".into()) });
        done(array, b, set(OBJECT, WORD, "wanted".into()));
        if fills {
            fill_journal(array, b);
        }
        late_copy_comes(array, a, asked, restarts);
        assert_eq!(word(array, b), "wanted", "{restarts} {fills}");
    });
}

#[test]
fn a_late_swap_of_a_host_that_is_kept_out_does_nothing_whatever_its_device_went_through() {
    with_each([false, true], array_with_object, |array, [a, b], restarts| {
        let node = array.node(a);
        // All copies arrive late; the host has died by then.
        array.world.network.delay_if(LATE, move |from, _, message| from == node && is_request(message));
        array.have_done(a, HERE, vec![swap("", "mine")]);
        array.run_for(Duration::from_millis(100));
        array.crash(node);
        keep_out(array, b, node);
        assert_eq!(word(array, b), "");
        if restarts {
            restart(array, 0);
        }
        array.run_for(LATE + A_WHILE);
        assert_eq!(word(array, b), "", "{restarts}");
    });
}

/// A host has another host fenced, so that unanswered requests of that one will not be executed any more.
fn keep_out(array: &mut Cluster, by: HostSlot, node: NodeId) {
    let NodeId::Host(out) = node else { panic!("only hosts are fenced") };
    fence(array, by, out);
    let now = array.world.now();
    array.objects.is_kept_out(out.0, HERE, now);
}

#[test]
fn answers_for_a_dead_host_are_kept_until_it_is_fenced_and_others_until_acknowledged() {
    let (mut array, a, b) = array_with_object();
    let node = array.node(a);
    array.world.network.drop_if(move |_, to, message| to == node && are_results(message));
    let lost: Vec<OpId> = (0..50).map(|_| array.have_done(a, HERE, vec![addition(OBJECT)])).collect();
    array.run_for(Duration::from_millis(300));
    assert!(answers_kept(&array) >= lost.len() as u64, "the device keeps answers that did not reach their hosts");
    array.crash(node);
    array.world.network.heal();
    for _ in 0..200 {
        done(&mut array, b, addition(OBJECT));
    }
    array.run_for(Duration::from_secs(2));
    assert_eq!(answers_kept(&array), lost.len() as u64, "answers to a living host are not kept for long");
    restart(&mut array, 0);
    array.run_for(Duration::from_secs(2));
    assert!(answers_kept(&array) >= lost.len() as u64);
    keep_out(&mut array, b, node);
    assert_eq!(answers_kept(&array), 0, "a fenced host will not ask again");
    restart(&mut array, 0);
    array.run_for(Duration::from_secs(2));
    assert_eq!(answers_kept(&array), 0);
    assert_eq!(done(&mut array, b, addition(OBJECT)), ActionResult::Added { original: Some(250) });
    all_is_well(array);
}
