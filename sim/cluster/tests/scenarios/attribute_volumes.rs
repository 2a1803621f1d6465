//! Scenarios of attribute volumes: each request is executed once or not at all, and survives all failures that volumes survive.

use crate::healing::scrub;
use crate::story::*;
use braid_wire::{ObjectFailure, ObjectRefusal, SetAttribute};
use braid_world::Bound;

const LONG: Duration = Duration::from_secs(30);
/// An object that is spread over the buckets.
const OBJECT: ObjectId = ObjectId(1 << 63);
const COUNTERS: u32 = 3;

/// RAID 1 on a ring of four, so that the eight buckets lie on different pairs of devices.
fn attribute_volume(ordering: Ordering) -> (Cluster, HostSlot, HostSlot) {
    array_of(ordered(ordering, Options::calm("raid1:2", 4, 32, 8)))
}

fn command(action: Action) -> ObjectCommand {
    ObjectCommand::new(OBJECT, action)
}

fn request(array: &Cluster, command: ObjectCommand, patience: Duration) -> ObjectsRequest {
    let volume: VolumeId = array.volume().id;
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
    result_of(array.perform(host, request(array, command, LONG)))
}

fn value(array: &mut Cluster, host: HostSlot, number: u32) -> i64 {
    number_in(&done(array, host, get(vec![counter(number)])))
}

/// Makes messages get lost, duplicated and late.
fn disturb(array: &mut Cluster, seed: u64) {
    let mut rng = Rng::new(seed);
    array.world.network.set_rule(move |_, _, _| match rng.below(40) {
        0 => Verdict::Drop,
        1 => Verdict::Double,
        2 => Verdict::Delay(Duration::from_millis(rng.below(900))),
        _ => Verdict::Pass,
    });
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

/// The outcomes of the additions to each counter.
#[derive(Default)]
struct Tally {
    /// The previous values that acknowledged additions returned.
    originals: [BTreeSet<i64>; COUNTERS as usize],
    unknown: [i64; COUNTERS as usize],
}

impl Tally {
    fn note(&mut self, number: u32, outcome: HostOutcome) {
        match outcome {
            Ok(HostSuccess::Objects(results)) => match results[0].action {
                ActionResult::Added { original: Some(original) } => {
                    let is_new = self.originals[number as usize].insert(original);
                    assert!(is_new, "two additions were told that counter {number} was {original}");
                }
                ref other => panic!("not an answer to an addition: {other:?}"),
            },
            Ok(other) => panic!("not an answer to an object request: {other:?}"),
            // The request has not happened, so it may not have any effect.
            Err(HostError::Objects(refusal)) => panic!("{refusal}"),
            Err(_) => self.unknown[number as usize] += 1,
        }
    }

    fn check(&self, array: &mut Cluster, host: HostSlot) {
        for number in 0..COUNTERS {
            let (originals, unknown) = (&self.originals[number as usize], self.unknown[number as usize]);
            let (found, acknowledged) = (value(array, host, number), originals.len() as i64);
            let may_be = acknowledged..=acknowledged + unknown;
            assert!(may_be.contains(&found), "counter {number} is {found}, which is not in {may_be:?}");
            assert!(originals.iter().all(|original| (0..found).contains(original)), "{originals:?} of {found}");
        }
    }

    fn acknowledged(&self) -> usize {
        self.originals.iter().map(BTreeSet::len).sum()
    }
}

/// Hosts that add to counters, all at once, repeatedly.
struct Crowd {
    hosts: Vec<HostSlot>,
    rng: Rng,
    tally: Tally,
}

impl Crowd {
    fn new(array: &mut Cluster, a: HostSlot, b: HostSlot, seed: u64) -> Crowd {
        Crowd { hosts: vec![a, b, array.add_host()], rng: Rng::new(seed), tally: Tally::default() }
    }

    /// All hosts start an addition; their time-outs differ.
    fn begin(&mut self, array: &mut Cluster) -> Vec<(u32, OpId)> {
        let mut asked = Vec::new();
        for host in self.hosts.repeat(2) {
            let number = self.rng.below(COUNTERS.into()) as u32;
            let patience = Duration::from_secs(self.rng.between(2, 20));
            asked.push((number, array.ask(host, request(array, add(number), patience))));
        }
        asked
    }

    fn end(&mut self, array: &mut Cluster, asked: Vec<(u32, OpId)>) {
        for (number, op) in asked {
            let outcome = array.finish(op);
            self.tally.note(number, outcome);
        }
    }

    fn rounds(&mut self, array: &mut Cluster, count: usize) {
        for _ in 0..count {
            let asked = self.begin(array);
            self.end(array, asked);
        }
    }

    /// Makes a device lose power while all hosts are adding.
    fn lose_a_device(&mut self, array: &mut Cluster, number: u16) {
        let asked = self.begin(array);
        array.run_for(Duration::from_micros(self.rng.below(2_000)));
        array.crash(device(number));
        self.end(array, asked);
    }

    /// Makes one of the hosts die at any moment of an addition; another host takes its slot.
    fn lose_a_host(&mut self, array: &mut Cluster) {
        let host = self.hosts[2];
        for number in 0..COUNTERS {
            let request = request(array, add(number), LONG);
            array.ask(host, request);
            self.tally.unknown[number as usize] += 1;
        }
        array.run_for(Duration::from_micros(self.rng.below(1_500)));
        replace_host(array, host);
    }
}

#[test]
fn every_addition_is_done_once_whatever_is_lost_and_a_device_for_good() {
    for ordering in KEPT_APART {
        for seed in 0..2 {
            let (mut array, a, b) = attribute_volume(ordering);
            let mut crowd = Crowd::new(&mut array, a, b, seed);
            disturb(&mut array, seed);
            crowd.rounds(&mut array, 8);
            crowd.lose_a_device(&mut array, seed as u16);
            crowd.rounds(&mut array, 8);
            crowd.lose_a_host(&mut array);
            crowd.rounds(&mut array, 8);
            array.world.network.heal();
            array.run_for(A_WHILE);
            assert_eq!(member_state(&array, seed as u16), Some(MemberState::Out), "the device is out");
            assert!(crowd.tally.acknowledged() > 60, "{ordering:?}: only {}", crowd.tally.acknowledged());
            crowd.tally.check(&mut array, a);
            // All operations continue without the device, and all hosts read the same values.
            crowd.rounds(&mut array, 1);
            crowd.tally.check(&mut array, b);
        }
    }
}

#[test]
fn a_device_that_returns_has_what_it_missed_and_can_stand_in_for_the_other() {
    for ordering in KEPT_APART {
        let (mut array, a, b) = attribute_volume(ordering);
        let mut crowd = Crowd::new(&mut array, a, b, 5);
        crowd.rounds(&mut array, 3);
        for number in [0, 1, 2, 3] {
            crowd.lose_a_device(&mut array, number);
            wait_out(&mut array, number);
            crowd.rounds(&mut array, 3);
            welcome(&mut array, number);
            crowd.rounds(&mut array, 1);
            wait_in(&mut array, number);
            crowd.tally.check(&mut array, b);
        }
        all_is_well(&mut array, a);
    }
}

#[test]
fn power_that_fails_at_devices_costs_no_addition() {
    let (mut array, a, b) = attribute_volume(Ordering::Timestamp);
    let mut crowd = Crowd::new(&mut array, a, b, 9);
    for round in 0..12 {
        let number = round % 4;
        let op = array.ask(a, request(&array, add(0), LONG));
        array.run_for(Duration::from_micros(u64::from(round) * 130));
        restart(&mut array, number);
        let outcome = array.finish(op);
        crowd.tally.note(0, outcome);
        crowd.rounds(&mut array, 1);
    }
    all_is_well(&mut array, b);
    crowd.tally.check(&mut array, b);
}

/// A request that swaps a counter from `was` to the next number.
fn swap(was: i64) -> ObjectCommand {
    let bytes = |number: i64| match number {
        0 => Bytes::new(),
        number => Bytes::copy_from_slice(&number.to_be_bytes()),
    };
    let (compare, swap, undefined) = (bytes(was), bytes(was + 1), Undefined::IsEmpty);
    command(Action::CompareAndSwap { name: counter(0), compare, swap, undefined, original: false })
}

#[test]
fn of_concurrent_swaps_of_the_same_value_one_succeeds() {
    for ordering in KEPT_APART {
        let (mut array, a, b) = attribute_volume(ordering);
        let hosts = [a, b, array.add_host(), array.add_host()];
        disturb(&mut array, 3);
        for was in 0..12 {
            let asked = hosts.map(|host| array.ask(host, request(&array, swap(was), LONG)));
            let swapped = asked.map(|op| result_of(array.finish(op)).action);
            let won = ActionResult::Compared { swapped: true, original: None };
            assert_eq!(swapped.iter().filter(|action| **action == won).count(), 1, "{ordering:?}: {swapped:?}");
        }
        all_is_well(&mut array, a);
        assert_eq!(value(&mut array, b, 0), 12);
    }
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
        asked.extend((0..OF_A_HOST).map(|_| array.ask(host, request(&array, add(0), LONG))));
    }
    all_succeed(&mut array, asked, "an addition");
    all_is_well(&mut array, b);
    assert_eq!(value(&mut array, a, 0), (hosts.len() * OF_A_HOST) as i64);
}

/// From now on, `count` devwrites of a host arrive, and no commit.
fn let_through(array: &mut Cluster, host: NodeId, mut count: usize) {
    array.world.network.set_rule(move |from, _, message| {
        if from != host || !(is_write(message) || carries_commits(message)) {
            return Verdict::Pass;
        }
        let passes = is_write(message) && count > 0;
        count = count.saturating_sub(1);
        if passes { Verdict::Pass } else { Verdict::Drop }
    });
}

#[test]
fn of_a_host_that_dies_on_its_way_all_is_there_or_nothing() {
    // Values of several blocks, on two pages.
    let names = [AttributeName::new(1, 5), AttributeName::new(2, 5)];
    let set = |fill: u8| {
        let sets = names.map(|name| SetAttribute { name, value: vec![fill; 9_000].into() });
        ObjectCommand { sets: sets.to_vec(), ..command(Action::Nothing) }
    };
    for (arrive, expected) in [(0, 1), (1, 1), (2, 2)] {
        let (mut array, a, b) = attribute_volume(Ordering::Timestamp);
        done(&mut array, a, set(1));
        array.run_for(Duration::from_secs(1));
        let node = array.node(a);
        let_through(&mut array, node, arrive);
        array.ask(a, request(&array, set(2), LONG));
        array.run_for(Duration::from_millis(50));
        array.crash(node);
        array.world.network.heal();
        let found = done(&mut array, b, get(names.to_vec())).values;
        assert!(found.iter().all(|value| *value == vec![expected; 9_000]), "after {arrive} writes");
        all_is_well(&mut array, b);
    }
}

#[test]
fn a_volume_that_holds_something_else_is_left_alone() {
    let (mut array, a, b) = attribute_volume(Ordering::Timestamp);
    fill(&mut array, a);
    let op = array.ask(b, request(&array, add(0), LONG));
    let refusal = ObjectRefusal { command: 0, failure: ObjectFailure::NotAnAttributeVolume };
    assert_eq!(array.finish(op), Err(HostError::Objects(refusal)));
    crate::story::all_is_well(array);
}

#[test]
fn corruption_in_one_copy_is_repaired_without_an_error() {
    let (mut array, a, b) = attribute_volume(Ordering::Timestamp);
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
