//! Scenarios of attribute volumes: each request is executed once or not at all, and survives all failures that volumes survive.

use crate::healing::scrub;
use crate::story::*;
use braid_wire::{ObjectFailure, ObjectRefusal, SetAttribute};
use braid_world::Bound;

const LONG: Duration = Duration::from_secs(30);
/// An object that is spread over the buckets.
const OBJECT: ObjectId = ObjectId(1 << 63);

/// RAID 1 on a ring of four, so that the eight buckets lie on different pairs of devices.
fn attribute_volume() -> (Cluster, HostSlot, HostSlot) {
    array_of(Options::calm("raid1:2", 4, 32, 8))
}

fn command(action: Action) -> ObjectCommand {
    ObjectCommand::new(OBJECT, action)
}

fn request(array: &Cluster, command: ObjectCommand) -> ObjectsRequest {
    let (volume, patience) = (array.volume().id, LONG);
    ObjectsRequest::ExecuteOnVolume { volume, request: ObjectRequest { commands: vec![command] }, patience }
}

fn counter(number: u32) -> AttributeName {
    AttributeName::new(1, number)
}

fn add(number: u32) -> ObjectCommand {
    command(Action::FetchAndAdd { name: counter(number), add: 1, original: true })
}

fn get(names: Vec<AttributeName>) -> ObjectCommand {
    ObjectCommand { gets: names, ..command(Action::Nothing) }
}

fn done(array: &mut Cluster, host: HostSlot, command: ObjectCommand) -> CommandResult {
    result_of(array.perform(host, request(array, command)))
}

fn value(array: &mut Cluster, host: HostSlot, number: u32) -> i64 {
    number_in(&done(array, host, get(vec![counter(number)])))
}

/// Checks at rest that the copies are equal and nothing is in progress.
fn all_is_well(array: &mut Cluster, host: HostSlot) {
    array.world.network.heal();
    array.run_for(A_WHILE);
    let ScrubReport { lost, mismatched, .. } = scrub(array, host, false);
    assert_eq!((lost, mismatched), (0, 0), "the copies differ");
    array.run_for(Duration::from_secs(1));
    let idle = |slot| array.role(slot).and_then(Role::host).is_none_or(|host| host.is_idle());
    assert!(array.slots().all(idle), "an operation is still in progress");
}

/// Each request waits for all earlier ones, on every block of the bucket: a device has hundreds of thousands of such pairs, and must
/// not examine all of them whenever a request ends.
#[test]
fn hundreds_of_requests_about_one_bucket_at_once_are_done_in_their_time() {
    const OF_A_HOST: usize = 192;
    let (mut array, a, b) = array_of(Options::calm("raid1:2", 2, 1, 32));
    let hosts = [a, b, array.add_host(), array.add_host()];
    array.world.bound(Bound { events: 1_000_000, real_time: Duration::from_secs(180) });
    let mut asked = Vec::new();
    for host in hosts {
        asked.extend((0..OF_A_HOST).map(|_| array.ask(host, request(&array, add(0)))));
    }
    all_succeed(&mut array, asked, "an addition");
    all_is_well(&mut array, b);
    assert_eq!(value(&mut array, a, 0), (hosts.len() * OF_A_HOST) as i64);
}

#[test]
fn a_volume_that_holds_something_else_is_left_alone() {
    let (mut array, a, b) = attribute_volume();
    fill(&mut array, a);
    let op = array.ask(b, request(&array, add(0)));
    let refusal = ObjectRefusal { command: 0, failure: ObjectFailure::NotAnAttributeVolume };
    assert_eq!(array.finish(op), Err(HostError::Objects(refusal)));
    crate::story::all_is_well(array);
}

#[test]
fn corruption_in_one_copy_is_repaired_without_an_error() {
    let (mut array, a, b) = attribute_volume();
    let (long, name) = (Bytes::from(vec![0x33; 64 << 10]), AttributeName::new(2, 0));
    let sets = vec![SetAttribute { name, value: long.clone() }];
    done(&mut array, a, ObjectCommand { sets, ..command(Action::Nothing) });
    array.run_for(Duration::from_secs(1));
    // One copy of each of these blocks, on whichever device it is.
    let mut rotten = 0;
    for block in array.volume().component().blocks().filter(|block| block % 32 < 16) {
        rotten += u32::from((0..4).any(|number| array.corrupt(DeviceId(number), block)));
    }
    assert_eq!(rotten, 16, "a whole chunk is in its place");
    assert_eq!(done(&mut array, b, add(0)).action, ActionResult::Added { original: Some(0) });
    assert_eq!(done(&mut array, a, get(vec![name])).values, [long]);
    all_is_well(&mut array, b);
    assert_eq!(value(&mut array, a, 0), 1);
}
