//! Scenarios of machines whose disk is a window of a volume: a small record and a whole store keep what they have answered while
//! devices and hosts fail.

use crate::story::*;
use braid_base::{ArrayId, Now};
use braid_control_protocol::HoldingHost;
use braid_host::Host;
use braid_machine::on_volume::{OnVolume, OnVolumeOutcome, OnVolumeRequest, Window};
use braid_machine::{Effects, HostEffects, HostInput, HostRequest, Input, Machine, NoDisk, OneDisk};
use braid_store::{Storage, Store, StoreConfig, StoreEvent};
use braid_two_copy_record::{Progress, StoredRecord, TwoCopyRecord};
use std::collections::VecDeque;

const MIB: u64 = 1 << 20;
/// The volume that requests to the owner of the record name.
const RECORD: VolumeId = VolumeId(70);
/// The device that requests to the store name.
const STORE: DeviceId = DeviceId(200);
const STORE_BYTES: u64 = 16 * MIB;
const OBJECT: ObjectId = ObjectId(1);

/// Keeps a number in a record. It is set by a request to zero at that offset, and read by a flush.
#[derive(Default)]
struct Owner {
    record: StoredRecord<Number>,
    is_ready: bool,
    /// Requests that wait for the disk.
    waiting: VecDeque<(OpId, HostRequest)>,
    writing: Option<OpId>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Number(u64);

impl TwoCopyRecord for Number {
    const MAGIC: [u8; 8] = *b"a number";
    const FORMAT: u32 = 1;
    const COPY_BYTES: usize = 512;

    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.0.to_le_bytes());
    }

    fn take(_format: u32, from: &mut &[u8]) -> Option<Number> {
        let (number, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(Number(u64::from_le_bytes(*number)))
    }
}

impl Owner {
    fn serve(&mut self, out: &mut Effects<HostOutcome>) {
        while self.is_ready
            && self.writing.is_none()
            && let Some((op, request)) = self.waiting.pop_front()
        {
            match request {
                HostRequest::Volume(VolumeRequest::Zero { offset, .. }) if self.record.update(Number(offset), out) => {
                    self.writing = Some(op)
                }
                HostRequest::Volume(VolumeRequest::Zero { .. }) => out.reply(op, Ok(HostSuccess::Done)),
                _ => out.reply(op, Ok(HostSuccess::Allocation(vec![(self.record.durable().0, true)]))),
            }
        }
    }
}

impl Machine for Owner {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, _: Now, input: Input<HostRequest>, out: &mut Effects<HostOutcome>) {
        match input {
            Input::Start => self.record.start(out),
            Input::Request { op, request } => self.waiting.push_back((op, request)),
            Input::DiskDone { result, .. } => {
                match self.record.on_disk_done(result, out).expect("a volume loses nothing") {
                    Progress::Read => self.is_ready = true,
                    Progress::Written => {
                        out.reply(self.writing.take().expect("somebody asked"), Ok(HostSuccess::Done));
                    }
                    Progress::Reading | Progress::Writing => {}
                }
            }
            Input::Message { .. } | Input::Wake => {}
        }
        self.serve(out);
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// A store that executes requests for objects, once each.
struct ObjectStore {
    store: Store,
    host: Generation,
    is_ready: bool,
    next: u64,
    waiting: Vec<(OpId, ObjectRequest)>,
    asked: BTreeMap<u64, OpId>,
}

impl ObjectStore {
    fn new(host: Generation) -> ObjectStore {
        let (store, waiting) = (Store::new(store_config()), Vec::new());
        ObjectStore { store, host, is_ready: false, next: 1, waiting, asked: BTreeMap::new() }
    }

    fn take_events(&mut self, out: &mut Effects<HostOutcome>) {
        while let Some(event) = self.store.pop_event() {
            match event {
                StoreEvent::Ready(_) => self.is_ready = true,
                StoreEvent::Executed { name, answer, .. } => {
                    let op = self.asked.remove(&name.sequence).expect("somebody asked");
                    out.reply(op, answer.map(HostSuccess::Objects).map_err(HostError::Objects));
                }
                StoreEvent::Unusable(error) => panic!("a volume loses nothing: {error}"),
                _ => {}
            }
        }
    }
}

impl Machine for ObjectStore {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input<HostRequest>, out: &mut Effects<HostOutcome>) {
        let mut commands = Effects::new();
        match input {
            Input::Start => self.store.start(&mut commands),
            Input::Request { op, request: HostRequest::Objects(ObjectsRequest::Execute { request, .. }) } => {
                self.waiting.push((op, request));
            }
            Input::DiskDone { tag, result } => self.store.on_disk_done(now, tag, result, &mut commands),
            Input::Wake => self.store.wake(now, &mut commands),
            Input::Message { .. } => {}
            other => panic!("not for a store: {other:?}"),
        }
        self.take_events(out);
        if self.is_ready {
            for (op, request) in std::mem::take(&mut self.waiting) {
                let name = TransactionId { host: self.host, sequence: self.next };
                self.next += 1;
                self.asked.insert(name.sequence, op);
                let settled = *self.asked.keys().next().expect("just inserted");
                assert!(self.store.execute(now, name, settled, Vec::new(), request, &mut commands));
            }
        }
        self.take_events(out);
        out.absorb(&mut commands, |never| match never {}, |command| command);
    }

    fn deadline(&self) -> Option<Time> {
        self.store.deadline()
    }

    fn invariants(&self) {
        self.store.invariants();
    }
}

/// Either, as a guest of one host.
struct Guest(Box<dyn Machine<Request = HostRequest, Outcome = HostOutcome, Disk = OneDisk>>);

impl Machine for Guest {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input<HostRequest>, out: &mut Effects<HostOutcome>) {
        self.0.step(now, input, out);
    }

    fn deadline(&self) -> Option<Time> {
        self.0.deadline()
    }

    fn invariants(&self) {
        self.0.invariants();
    }
}

/// The host with both guests; requests of the tests say by a name for whom they are.
struct Node(OnVolume<Guest, HoldingHost<Host>>);

impl Machine for Node {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: HostInput, out: &mut HostEffects) {
        let mut effects = Effects::new();
        self.0.step(now, input.convert(addressed, |never| never), &mut effects);
        let outcome = |outcome| match outcome {
            OnVolumeOutcome::Host(outcome) | OnVolumeOutcome::Guest(Ok(outcome)) => outcome,
            OnVolumeOutcome::Guest(Err(error)) => Err(error),
        };
        out.absorb(&mut effects, outcome, |never| never);
    }

    fn deadline(&self) -> Option<Time> {
        self.0.deadline()
    }

    fn invariants(&self) {
        self.0.invariants();
    }
}

fn addressed(request: HostRequest) -> OnVolumeRequest<HostRequest> {
    match request {
        HostRequest::Objects(ObjectsRequest::Execute { device: STORE, .. }) => {
            OnVolumeRequest::Guest { guest: 1, request }
        }
        HostRequest::Volume(VolumeRequest::Flush { volume: RECORD } | VolumeRequest::Zero { volume: RECORD, .. }) => {
            OnVolumeRequest::Guest { guest: 0, request }
        }
        request => OnVolumeRequest::Host(request),
    }
}

fn store_config() -> StoreConfig {
    StoreConfig { array: ArrayId([7; 16]), device: STORE, size: STORE_BYTES }
}

/// A mirror of two devices with room for both guests; a host formats the store.
fn formatted_array(seed: u64) -> (Cluster, HostSlot) {
    let options = Options { device_bytes: 64 * MIB, seed, ..Options::calm("raid1:2", 2, 256, 18) };
    let (mut array, a, _) = array_of(options);
    let volume = array.volume().id;
    for (at, data) in Store::format_with(&store_config(), DiskId(1), 77, Some(512 << 10)).expect("it is large enough") {
        let write = VolumeRequest::Write { volume, offset: MIB + at, data, patience: Patience::Host };
        assert_eq!(array.perform(a, write), DONE);
    }
    (array, a)
}

/// Starts both guests on a new host.
fn start(array: &mut Cluster) -> HostSlot {
    let volume = array.volume().id;
    let number = Generation(array.slots().count() as u32 + 1_000);
    array.add_composite(|host: HoldingHost<Host>| {
        let record = Window { volume, offset: 0, length: 4096 };
        let store = Window { volume, offset: MIB, length: STORE_BYTES };
        let name = |number| NodeId::MetadataServer(FileSystemId(number));
        let objects = Guest(Box::new(ObjectStore::new(number)));
        let guests = vec![(name(1), record, Guest(Box::new(Owner::default()))), (name(2), store, objects)];
        Box::new(Node(OnVolume::new(host, guests)))
    })
}

fn keep_out(array: &mut Cluster, by: HostSlot, of: HostSlot) {
    fence(array, by, array.generation(of));
}

fn set_number(array: &mut Cluster, host: HostSlot, number: u64) -> OpId {
    let zero = VolumeRequest::Zero { volume: RECORD, offset: number, length: 0, patience: Patience::Endless };
    array.ask(host, zero)
}

fn ask_objects(array: &mut Cluster, host: HostSlot, commands: Vec<braid_wire::ObjectCommand>) -> OpId {
    let (request, patience) = (ObjectRequest { commands }, Duration::from_secs(30));
    array.ask(host, ObjectsRequest::Execute { device: STORE, request, patience })
}

fn read_number(array: &mut Cluster, host: HostSlot) -> u64 {
    match array.perform(host, VolumeRequest::Flush { volume: RECORD }) {
        Ok(HostSuccess::Allocation(runs)) => runs[0].0,
        other => panic!("{other:?}"),
    }
}

fn read_count(array: &mut Cluster, host: HostSlot) -> u64 {
    let asked = ask_objects(array, host, vec![get(OBJECT, COUNTER)]);
    number_in(&result_of(array.finish(asked))) as u64
}

/// Restarts the devices that are down, and waits until they are in.
fn restart_all(array: &mut Cluster, down: &mut Vec<u16>) {
    for number in std::mem::take(down) {
        array.restart_device(DeviceId(number));
    }
    (0..2).for_each(|number| wait_in(array, number));
}

/// The outcome, if the operation has ended.
fn ended(array: &mut Cluster, op: OpId) -> Option<HostOutcome> {
    (!array.requests.is_open(op)).then(|| array.finish(op))
}

#[test]
fn answers_of_guests_survive_deaths_of_devices_and_hosts() {
    let mut seen = (0, 0, 0);
    for seed in 1..=6 {
        let mut rng = Rng::new(seed);
        let (mut array, a) = formatted_array(seed);
        let mut host = start(&mut array);
        let asked = ask_objects(&mut array, host, vec![command(OBJECT, Action::Create)]);
        assert!(array.finish(asked).is_ok());
        let mut down: Vec<u16> = Vec::new();
        // What was answered at least, and what was asked for at most.
        let (mut number, mut count) = (0..=0, 0..=0);
        for round in 0..40 {
            let record = set_number(&mut array, host, number.end() + 1);
            number = *number.start()..=number.end() + 1;
            let additions: Vec<_> =
                (0..rng.between(1, 5)).map(|_| ask_objects(&mut array, host, vec![addition(OBJECT)])).collect();
            count = *count.start()..=count.end() + additions.len() as u64;
            array.run_for(Duration::from_micros(rng.below(4_000)));
            match rng.below(6) {
                0 | 1 if down.len() < 2 => {
                    let one = [0, 1].into_iter().find(|one| !down.contains(one)).expect("one is up");
                    let one = if down.is_empty() { rng.below(2) as u16 } else { one };
                    array.crash(device(one));
                    down.push(one);
                    array.run_for(Duration::from_secs(rng.below(40)));
                }
                2 => {
                    // The next generation begins when the last one can have no further effect.
                    let (old, crashes) = (host, rng.chance(1, 2));
                    for op in additions.into_iter().chain([record]) {
                        match ended(&mut array, op) {
                            None => {}
                            Some(outcome) if op == record => {
                                assert_eq!(outcome, DONE);
                                number = *number.end()..=*number.end();
                            }
                            Some(outcome) => {
                                assert!(outcome.is_ok());
                                count = count.start() + 1..=*count.end();
                            }
                        }
                    }
                    if crashes {
                        array.crash(array.node(old));
                    }
                    restart_all(&mut array, &mut down);
                    keep_out(&mut array, a, old);
                    host = start(&mut array);
                    let (found, total) = (read_number(&mut array, host), read_count(&mut array, host));
                    assert!(number.contains(&found), "seed {seed}, round {round}: {found}, not in {number:?}");
                    assert!(count.contains(&total), "seed {seed}, round {round}: {total}, not in {count:?}");
                    (number, count) = (found..=found, total..=total);
                    if !crashes {
                        let late = set_number(&mut array, old, 1 << 40);
                        assert_eq!(array.finish(late), Err(HostError::Fenced), "the old one knows");
                        array.crash(array.node(old));
                    }
                    seen.0 += 1;
                    continue;
                }
                3 => restart_all(&mut array, &mut down),
                _ => {}
            }
            if down.len() == 2 {
                array.run_for(Duration::from_secs(100));
                let open = array.requests.asked().count();
                seen.1 += open;
                restart_all(&mut array, &mut down);
            }
            all_succeed(&mut array, additions, format!("seed {seed}, round {round}"));
            assert_eq!(array.finish(record), DONE, "seed {seed}, round {round}");
            (number, count) = (*number.end()..=*number.end(), *count.end()..=*count.end());
            seen.2 += 1;
        }
        assert_eq!((read_number(&mut array, host), read_count(&mut array, host)), (*number.start(), *count.start()));
    }
    assert!(seen.0 > 10 && seen.1 > 10 && seen.2 > 100, "restarts, waits, rounds: {seen:?}");
}

#[test]
fn a_guest_of_a_fenced_host_ends_and_its_other_requests_are_answered() {
    let (mut array, a) = formatted_array(1);
    let host = start(&mut array);
    let asked = set_number(&mut array, host, 5);
    assert_eq!(array.finish(asked), DONE);
    array.crash(device(0));
    array.crash(device(1));
    array.run_for(Duration::from_secs(1));
    let waits = set_number(&mut array, host, 6);
    array.run_for(Duration::from_secs(200));
    assert_eq!(ended(&mut array, waits), None);
    restart_all(&mut array, &mut vec![0, 1]);
    assert_eq!(array.finish(waits), DONE);
    keep_out(&mut array, a, host);
    assert_eq!(outcome_of_read(&mut array, host, 0), Err(HostError::Fenced), "the host itself answers");
    let next = start(&mut array);
    assert_eq!(read_number(&mut array, next), 6);
}
