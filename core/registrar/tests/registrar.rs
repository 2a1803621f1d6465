//! Two registrars and one registry, which answers at once. The attack runs them in whole arrays (`sim/cluster`).

use braid_base::{ArrayId, Clock, DeviceId, DiskId, Epoch, Generation, Level, NodeId, Now, Rng, Time};
use braid_description::{ArrayDescription, DeviceEntry, VolumeEntry};
use braid_host_leases::{LOCK_SERVER_ROLE, LeaseEnd, Version};
use braid_leadership::times::longer;
use braid_leadership::{Answer, CandidateId, Head};
use braid_machine::{Effect, Input as MonitorInput, MonitorEffects};
use braid_membership::{DISK_BYTES, MonitorConfig};
use braid_registrar::{
    Change, Content, EntryError, Found, HostLease, Input, Joining, Key, Keys, MachineEntry, Machines, Outcome,
    Outgoing, Refused, Registrar, Reply, Request, RequestId, TOKEN_LIFE, changes, hash_of,
};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

const ARRAY: ArrayId = ArrayId([1; 16]);
const STEP: Duration = Duration::from_millis(10);

struct World {
    now: Now,
    registrars: Vec<Registrar>,
    head: Head,
    keys: Keys,
    /// Calls of this registrar don't arrive.
    cut: Option<usize>,
    /// This registrar gets no answers that are as long as all keys.
    narrow: Option<usize>,
    told: Vec<(usize, NodeId, MonitorReply)>,
    answers: BTreeMap<u64, Outcome>,
    asked: u64,
}

impl World {
    fn new() -> World {
        World::of([ARRAY; 2])
    }

    /// One of the two leads.
    fn led() -> World {
        let mut world = World::new();
        world.pass(Duration::from_secs(10));
        world
    }

    /// Two registrars that take the array for these.
    fn of(arrays: [ArrayId; 2]) -> World {
        let now = Now { time: Time(1 << 40), clock: Clock(0) };
        let config = MonitorConfig {
            array: ARRAY,
            devices: (0..3).map(DeviceId).collect(),
            last_generation: Generation(0),
            term: None,
            settings: Default::default(),
        };
        let ids = [CandidateId(0), CandidateId(1)];
        let start = |id: CandidateId| {
            let config = MonitorConfig { array: arrays[usize::from(id.0)], ..config.clone() };
            Registrar::new(now.time, id, config, Rng::new(id.0.into()), None)
        };
        let registrars = ids.into_iter().map(start).collect();
        let mut keys = Keys::new();
        let first = Content { machines: machines(), ..Content::new(description(), Generation(100)) };
        first
            .replacing(&Keys::new(), &[0; DISK_BYTES as usize])
            .expect("few keys")
            .into_iter()
            .flatten()
            .for_each(|change| change.make(&mut keys));
        let (head, told, answers) = (Head::first(ids.into_iter().collect()), Vec::new(), BTreeMap::new());
        World { now, registrars, head, keys, cut: None, narrow: None, told, answers, asked: 0 }
    }

    /// Lets time pass, in which all devices ask for leases.
    fn pass(&mut self, span: Duration) {
        let end = self.now.time.after(span);
        while self.now.time < end {
            for of in 0..2 {
                (0..3).for_each(|device| self.renew(of, NodeId::Device(DeviceId(device))));
                self.step(of, Input::Monitor(MonitorInput::Wake));
            }
            self.now.time = self.now.time.after(STEP);
        }
    }

    fn renew(&mut self, of: usize, from: NodeId) {
        let NodeId::Device(device) = from else { unreachable!("only devices renew here") };
        let disk = Some(DiskId(device.0.into()));
        let epoch = self.epoch(of).unwrap_or(Epoch(0));
        self.say(
            of,
            from,
            epoch,
            MonitorCommand::Renew {
                sent: self.now.time,
                silent: Vec::new(),
                disk,
                bad_slots: 0,
                failing: false,
                undecided: Vec::new(),
                stamps: Clock(0),
                knows: Level::KNOWN,
                holder: None,
            },
        );
    }

    fn say(&mut self, of: usize, from: NodeId, epoch: Epoch, command: MonitorCommand) {
        let message = Message::MonitorRequest(MonitorRequest { epoch, command });
        self.step(of, Input::Monitor(MonitorInput::Message { to: NodeId::Monitor, from, message }));
    }

    fn fence(&mut self, of: usize, host: u32) {
        let (except, also) = (Vec::new(), vec![Generation(host)]);
        let fence = MonitorCommand::Fence { ticket: host.into(), below: Generation(0), except, also };
        self.say(of, NodeId::Host(Generation(50)), Epoch(1), fence);
    }

    fn step(&mut self, of: usize, input: Input) {
        let mut out = MonitorEffects::new();
        let calls = self.registrars[of].step(self.now, input, &mut out);
        self.registrars[of].invariants();
        for effect in out.drain() {
            if let Effect::Send { to, message: Message::MonitorAnswer(MonitorAnswer { reply, .. }) } = effect {
                self.told.push((of, to, reply));
            }
        }
        for call in calls {
            if self.cut != Some(of) || matches!(call, Outgoing::Reply { .. }) {
                self.carry_out(of, call);
            }
        }
    }

    fn carry_out(&mut self, of: usize, call: Outgoing) {
        let input = match call {
            Outgoing::Read { call } => Input::Answer { call, answer: Answer::Head(Some(self.head.clone())) },
            Outgoing::ReadAll { .. } if self.narrow == Some(of) => return,
            Outgoing::ReadAll { read } => {
                Input::Found { read, found: Some(Found { head: self.head.clone(), keys: self.keys.clone() }) }
            }
            Outgoing::Swap { call, expected, head, changes } if self.head == expected => {
                self.head = head;
                changes.into_iter().for_each(|change| change.make(&mut self.keys));
                Input::Answer { call, answer: Answer::Swapped }
            }
            Outgoing::Swap { call, .. } => Input::Answer { call, answer: Answer::Differs(self.head.clone()) },
            Outgoing::Reply { id, outcome } => {
                assert_eq!(self.answers.insert(id.0, outcome), None, "a request has one answer");
                return;
            }
            Outgoing::Send { .. } => return,
        };
        self.step(of, input);
    }

    fn epoch(&self, of: usize) -> Option<Epoch> {
        self.registrars[of].leads().map(|(_, monitor)| monitor.membership().epoch)
    }

    fn leader(&self) -> usize {
        (0..2).find(|of| self.registrars[*of].leads().is_some()).expect("one leads")
    }

    /// Asks something. It is answered when it can be.
    fn ask(&mut self, of: usize, request: Request) -> u64 {
        self.asked += 1;
        self.step(of, Input::Request { id: RequestId(self.asked), request });
        self.asked
    }

    /// Asks the leader something, and lets time pass until it is answered.
    fn answer(&mut self, request: Request) -> Outcome {
        let asked = self.ask(self.leader(), request);
        self.pass(STEP);
        self.answers.remove(&asked).expect("an answer")
    }

    fn describe(&mut self) -> ArrayDescription {
        match self.answer(Request::Describe) {
            Ok(Reply::Description(description)) => *description,
            other => panic!("{other:?}"),
        }
    }

    fn replace(&mut self, change: impl FnOnce(&mut ArrayDescription)) -> Outcome {
        let before = self.describe();
        self.answer(replacement(&before, change))
    }

    /// The generations whose leases are not over, and those whose are.
    fn leases(&mut self) -> (Vec<u32>, Vec<u32>) {
        let Ok(Reply::Hosts(hosts)) = self.answer(Request::Hosts { length: LEASE }) else { panic!("no hosts") };
        let (over, open): (Vec<_>, Vec<_>) = hosts.into_iter().partition(|host| host.lease.is_over);
        let numbers = |hosts: Vec<HostLease>| hosts.iter().map(|host| host.host.0).collect();
        (numbers(open), numbers(over))
    }

    /// Has the other one lead.
    fn change_leader(&mut self) {
        let leader = self.leader();
        self.step(leader, Input::Resign);
        self.pass(Duration::from_secs(2));
        assert_ne!(self.leader(), leader);
    }

    fn is_answered(&mut self, of: usize, wanted: impl Fn(&MonitorReply) -> bool) -> bool {
        std::mem::take(&mut self.told).iter().any(|(by, _, reply)| *by == of && wanted(reply))
    }
}

const LEASE: Duration = Duration::from_secs(10);

fn description() -> ArrayDescription {
    let devices = (0..3).map(|id| DeviceEntry::new(id, 1 << 30)).collect();
    ArrayDescription { created: true, ..ArrayDescription::new(ARRAY, devices, Default::default()) }
}

/// Where the two are.
fn machines() -> Machines {
    let entry = |candidate| {
        let (host, witness, gone, port) = (format!("m{candidate}.lan"), false, false, 7400);
        (format!("m{candidate}"), MachineEntry { candidate, host, witness, gone, port })
    };
    Machines::new([0, 1].map(entry).into())
}

fn token(secret: u128) -> Request {
    Request::Token { hash: hash_of(ARRAY, secret) }
}

fn join(secret: u128, nonce: u64, name: &str, at: Option<(&str, u16)>) -> Request {
    let at = at.map(|(host, port)| (host.to_string(), port));
    Request::Join(Joining { array: ARRAY, secret, nonce, name: name.into(), at, witness: false })
}

fn volume(id: u64) -> VolumeEntry {
    let text = format!(
        r#"{{"name": "v{id}", "id": {id}, "bytes": 65536, "layout": "raid1:2", "unit": 4096, "devices": [0, 1],
            "ordering": "timestamp", "state": "ready"}}"#
    );
    serde_json::from_str(&text).expect("an entry")
}

fn with_volume(next: &mut ArrayDescription) {
    next.volumes.push(volume(next.next_volume));
    next.next_volume += 1;
}

fn replacement(before: &ArrayDescription, change: impl FnOnce(&mut ArrayDescription)) -> Request {
    let changed = before.changed(|next| {
        change(next);
        Ok::<_, ()>(())
    });
    Request::Replace { after: before.revision, next: Box::new(changed.expect("it does not fail").1) }
}

fn take(nonce: u64) -> Request {
    Request::Take { nonce, role: "test".into(), report: "here".into() }
}

fn renew(host: u32) -> Request {
    Request::Renew { host: Generation(host), confirmed: Version(1), report: String::new() }
}

fn is_lease(reply: &MonitorReply) -> bool {
    matches!(reply, MonitorReply::Lease { .. })
}

#[test]
fn the_heir_of_a_leader_goes_on_with_its_record() {
    let mut world = World::led();
    let leader = world.leader();
    assert_eq!((world.epoch(leader), world.epoch(1 - leader)), (Some(Epoch(1)), None));
    world.fence(leader, 7);
    world.pass(STEP);
    assert_eq!(world.epoch(leader), Some(Epoch(2)));
    let stored = ["record/0", "record/1"].map(|copy| world.keys[copy].len()).into_iter().max();
    assert!(stored < Some(1_000), "a copy is stored without its zeros: {stored:?} bytes");
    world.step(leader, Input::Resign);
    world.pass(Duration::from_secs(1));
    assert_eq!((world.epoch(leader), world.epoch(1 - leader)), (None, Some(Epoch(2))));
    world.told.clear();
    world.pass(STEP);
    assert!(world.is_answered(1 - leader, is_lease), "it follows, so it grants at once");
}

#[test]
fn a_record_that_is_missing_is_not_taken_for_that_of_a_new_array() {
    let mut world = World::new();
    (0..2).for_each(|copy| Change { key: Key::Record(copy), value: None }.make(&mut world.keys));
    world.pass(Duration::from_secs(10));
    assert_eq!(world.told, []);
    Change { key: Key::Record(0), value: Some(Bytes::new()) }.make(&mut world.keys);
    world.pass(Duration::from_secs(20));
    assert_eq!(world.epoch(world.leader()), Some(Epoch(1)), "as if the second copy had never been written");
}

#[test]
fn a_candidate_that_can_not_use_the_record_leaves_it_to_the_other() {
    let world = World::led();
    let mut other = World::of([ArrayId([2; 16]), ARRAY]);
    (other.head, other.keys) = (Head { leader: None, ..world.head }, world.keys);
    other.pass(Duration::from_secs(20));
    assert_eq!((other.leader(), other.epoch(1)), (1, Some(Epoch(1))));
}

#[test]
fn a_leader_that_is_to_end_while_it_can_not_write_goes_on() {
    let mut world = World::led();
    let leader = world.leader();
    world.cut = Some(leader);
    world.pass(STEP * 30);
    world.step(leader, Input::Resign);
    world.fence(leader, 7);
    world.told.clear();
    world.pass(STEP * 10);
    assert!(world.is_answered(leader, is_lease));
}

#[test]
fn a_changed_description_is_written_entry_by_entry_and_read_again() {
    let mut keys = Keys::new();
    let before = Content::new(description(), Generation(7));
    before.changes().expect("few keys").into_iter().for_each(|change| change.make(&mut keys));
    let mut next = before.description.clone();
    (0..3).for_each(|_| with_volume(&mut next));
    let texts = |changes: &[Change]| changes.iter().map(|change| change.key.to_string()).collect::<Vec<_>>();
    let first = changes(Some(&before.description), &next, Generation(8)).expect("few keys");
    assert_eq!(texts(&first), ["array", "volume/1", "volume/2", "volume/3"]);
    let mut last = next.clone();
    last.volumes.remove(0);
    last.volumes[1].bytes += 4096;
    let second = changes(Some(&next), &last, Generation(9)).expect("few keys");
    assert_eq!(texts(&second), ["array", "volume/3", "volume/1"]);
    assert!(second[2].value.is_none());
    first.into_iter().chain(second).for_each(|change| change.make(&mut keys));
    let read = Content::of(&keys).expect("it can be read");
    assert_eq!((&read.description, read.last), (&last, Generation(9)));
    // More than a transaction takes.
    (0..127).for_each(|_| with_volume(&mut last));
    let refused = changes(Some(&read.description), &last, Generation(9));
    assert!(matches!(refused, Err(EntryError::TooLarge { changes: 128, .. })), "{refused:?}");
}

#[test]
fn a_key_has_one_text_and_one_that_can_not_be_read_is_named() {
    let keys = ["machines", "array", "device/7", "volume/18446744073709551615", "file-system/3", "record/1", "lease/9"];
    for text in keys.into_iter().chain(["spare/00000000000000ff"]) {
        assert_eq!(text.parse::<Key>().map(|key| key.to_string()), Ok(text.to_string()));
    }
    for text in ["", "array/", "device/07", "device/65536", "volume/-1", "record/2", "spare/ff", "lease", "x/1"] {
        assert_eq!(text.parse::<Key>(), Err(EntryError::UnknownKey { key: text.into() }));
    }
    let mut keys = Keys::new();
    Content::new(description(), Generation(7)).changes().expect("few").into_iter().for_each(|it| it.make(&mut keys));
    let strange = |text: &str, change: &dyn Fn(&str) -> Option<String>| {
        let mut keys = keys.clone();
        let value = String::from_utf8(keys.remove(text).expect("there").to_vec()).expect("JSON");
        keys.extend(change(&value).map(|value| (text.to_string(), value.into())));
        Content::of(&keys).expect_err("it is strange").to_string()
    };
    let more = |value: &str| Some(value.replace("\"domain\"", "\"rack\":1,\"domain\""));
    assert!(strange("device/1", &more).contains("device/1"));
    assert!(strange("device/1", &|value| Some(value.replace("\"id\":1", "\"id\":2"))).contains("device/2"));
    assert!(strange("device/1", &|value| Some(value.replace("\"schema\":2", "\"schema\":99"))).contains("99"));
    assert!(strange("array", &|_| None).contains("no key array"));
}

#[test]
fn a_change_is_answered_when_it_is_durable_and_the_next_leader_has_it() {
    let mut world = World::led();
    assert_eq!(world.replace(with_volume), Ok(Reply::Replaced));
    assert_eq!(world.answer(take(1)), Ok(Reply::Taken(Generation(101))));
    assert_eq!(world.answer(take(2)), Ok(Reply::Taken(Generation(102))));
    assert_eq!(world.answer(take(1)), Ok(Reply::Taken(Generation(101))), "it was repeated");
    let end = Request::ExpireOne { host: Generation(101), length: Duration::ZERO };
    world.pass(STEP);
    assert!(matches!(world.answer(end), Ok(Reply::Ended(LeaseEnd::Ended(_)))));
    let before = world.describe();
    world.change_leader();
    assert_eq!((world.describe(), world.leases()), (before.clone(), (vec![102], vec![101])));
    assert_eq!(world.answer(renew(101)), Err(Refused::LeaseLost(Generation(101))));
    assert_eq!(world.answer(take(3)), Ok(Reply::Taken(Generation(103))));
    assert_eq!(world.answer(Request::Forget { gone: vec![Generation(101)] }), Ok(Reply::Done));
    assert_eq!(world.leases(), (vec![102, 103], vec![]));
    // A change that is not durable is not told, and one that can't be written any more is lost.
    let former = world.leader();
    world.cut = Some(former);
    let asked = [replacement(&before, with_volume), take(4), Request::Describe, renew(999)];
    let asked = asked.map(|request| world.ask(former, request));
    let renewed = world.ask(former, renew(102));
    assert_eq!(world.answers.remove(&renewed), Some(Ok(Reply::Renewed { is_asked_to_end: false })));
    world.pass(Duration::from_secs(3));
    assert!(world.answers.is_empty(), "{:?}", world.answers);
    world.cut = None;
    world.pass(STEP);
    let outcomes = asked.map(|asked| world.answers.remove(&asked).expect("an answer").expect_err("it leads no more"));
    assert_eq!(outcomes, [Refused::Unknown, Refused::NotLeading, Refused::NotLeading, Refused::NotLeading]);
    assert_eq!((world.describe(), world.leases().0), (before, vec![102, 103]));
}

#[test]
fn a_new_leader_expires_no_host_for_being_unheard() {
    let mut world = World::led();
    for nonce in 0..2 {
        world.answer(take(nonce)).expect("taken");
    }
    world.pass(LEASE / 2);
    assert_eq!(world.answer(renew(101)), Ok(Reply::Renewed { is_asked_to_end: false }));
    world.change_leader();
    world.pass(LEASE * 9 / 10);
    let expire = || Request::Expire { by: Generation(101), length: LEASE };
    let gone = |outcome| match outcome {
        Ok(Reply::Expired(expired)) => expired.gone,
        other => panic!("{other:?}"),
    };
    assert_eq!(gone(world.answer(expire())), []);
    world.answer(Request::AskToEnd { host: Generation(101) }).expect("it is there");
    assert_eq!(world.answer(renew(101)), Ok(Reply::Renewed { is_asked_to_end: true }));
    // It was suspended for as long as a lease, and hears nothing else first.
    world.now.time = world.now.time.after(LEASE);
    assert_eq!(gone(world.answer(expire())), []);
    world.pass(LEASE / 2);
    assert_eq!(world.answer(renew(101)), Ok(Reply::Renewed { is_asked_to_end: true }));
    world.pass(LEASE * 6 / 10);
    assert_eq!(gone(world.answer(expire())), [Generation(102)]);
}

#[test]
fn a_lock_server_loses_its_lease_when_it_can_not_serve_any_more_whoever_leads() {
    let mut world = World::led();
    let role = format!("{LOCK_SERVER_ROLE}0");
    world.answer(Request::Take { nonce: 1, role, report: String::new() }).expect("taken");
    let mut lives = || world.answer(Request::ExpireOne { host: Generation(101), length: Duration::ZERO });
    assert_eq!(lives(), Ok(Reply::Ended(LeaseEnd::Lives)));
    world.pass(Duration::from_secs(4));
    let changed = world.now.time;
    world.change_leader();
    let end = || Request::ExpireOne { host: Generation(101), length: Duration::ZERO };
    let mut ended = world.answer(end());
    while ended == Ok(Reply::Ended(LeaseEnd::Lives)) {
        world.pass(STEP);
        ended = world.answer(end());
    }
    assert!(matches!(ended, Ok(Reply::Ended(LeaseEnd::Ended(_)))), "{ended:?}");
    // The former leader may have renewed it for the last time a second after the next one won.
    let (took, serves) = (world.now.time.since(changed), Duration::from_secs(1) + description().leases().lease());
    assert!(took > longer(serves) && took < longer(serves) + Duration::from_secs(1), "{took:?}");
}

#[test]
fn silence_is_judged_for_the_time_at_which_a_request_arrives() {
    let mut world = World::led();
    (0..2).for_each(|nonce| drop(world.answer(take(nonce)).expect("taken")));
    // A former leader may have renewed them within its doubt.
    world.pass(Duration::from_secs(2));
    let leader = world.leader();
    (101..103).for_each(|host| drop(world.answer(renew(host)).expect("it has a lease")));
    world.cut = Some(leader);
    world.ask(leader, Request::Describe);
    let expire = Request::Expire { by: Generation(101), length: Duration::from_millis(500) };
    let asked = world.ask(leader, expire);
    world.pass(Duration::from_millis(800));
    world.cut = None;
    world.pass(Duration::from_millis(600));
    assert!(matches!(&world.answers[&asked], Ok(Reply::Expired(expired)) if expired.gone.is_empty()));
}

#[test]
fn a_change_that_is_too_large_or_contradicts_itself_is_refused() {
    let mut world = World::led();
    let many = |next: &mut ArrayDescription| (0..127).for_each(|_| with_volume(next));
    assert!(matches!(world.replace(many), Err(Refused::Entries(EntryError::TooLarge { .. }))));
    let twice = |next: &mut ArrayDescription| next.volumes = vec![volume(0), volume(0)];
    assert!(matches!(world.replace(twice), Err(Refused::Invalid(_))));
    let nowhere = |next: &mut ArrayDescription| {
        with_volume(next);
        next.devices.push(DeviceEntry::new(9, 1 << 30));
        next.volumes[0].devices[1] = 9;
    };
    assert!(matches!(world.replace(nowhere), Err(Refused::Monitor(_))), "the monitor has no such device");
    let newer = ArrayDescription { schema: 99, revision: 1, ..description() };
    let newer = world.answer(Request::Replace { after: 0, next: Box::new(newer) });
    assert!(matches!(newer, Err(Refused::Invalid(_))), "no leader could read it");
    let stale = replacement(&description(), with_volume);
    assert_eq!(world.replace(with_volume), Ok(Reply::Replaced));
    assert_eq!(world.answer(stale), Ok(Reply::Superseded));
    let again = |next: &mut ArrayDescription| (next.next_volume, next.volumes) = (1, Vec::new());
    assert!(matches!(world.replace(again), Err(Refused::Invalid(_))), "a number is never given again");
    // Leases of any number end, in several writes.
    for nonce in 0..300 {
        world.answer(take(nonce)).expect("taken");
    }
    world.pass(LEASE * 2);
    world.answer(renew(101)).expect("it has a lease");
    let expire = Request::Expire { by: Generation(101), length: LEASE };
    let Ok(Reply::Expired(expired)) = world.answer(expire) else { panic!("it has a lease") };
    assert_eq!((expired.gone.len(), world.leases().0), (299, vec![101]));
}

#[test]
fn a_candidate_that_can_not_read_the_registry_leaves_it_to_others() {
    let mut world = World::new();
    world.keys.insert("later/1".into(), Bytes::new());
    world.pass(Duration::from_secs(10));
    assert!((0..2).all(|of| world.registrars[of].leads().is_none()) && world.head.term > 2);
    assert!(world.registrars.iter().any(|it| it.unusable().is_some_and(|why| why.to_string().contains("later/1"))));
    assert!(matches!(world.ask(0, Request::Describe), asked if world.answers[&asked] == Err(Refused::NotLeading)));
    world.keys.remove("later/1");
    world.pass(Duration::from_secs(10));
    world.leader();
}

#[test]
fn a_leader_that_gets_no_long_answers_leaves_the_array_to_the_other() {
    for narrow in 0..2 {
        let mut world = World::new();
        world.narrow = Some(narrow);
        world.pass(Duration::from_secs(30));
        assert_eq!(world.leader(), 1 - narrow);
    }
}

#[test]
fn a_machine_joins_by_a_token_becomes_a_candidate_and_is_known_to_the_next_leader() {
    let mut world = World::led();
    let refuses = |world: &mut World, request: Request, why: &str| {
        let before = (world.head.candidates.clone(), world.keys.clone());
        let refused = world.answer(request).expect_err("it is refused").to_string();
        assert!(refused.contains(why), "{refused}");
        assert_eq!((&world.head.candidates, &world.keys), (&before.0, &before.1), "{why}");
    };
    assert!(world.answer(token(7)).is_ok());
    let at = Some(("m2.lan", 7400));
    refuses(&mut world, join(8, 1, "m2", at), "it is not known");
    refuses(&mut world, join(7, 1, "m2", None), "the array has no machine m2");
    refuses(&mut world, join(7, 1, "m1", at), "has a machine m1 already, at m1.lan:7400");
    refuses(&mut world, join(7, 1, "m2", Some(("m1.lan", 7500))), "have common ports");
    let Request::Join(foreign) = join(7, 1, "m2", at) else { unreachable!("it is one") };
    refuses(&mut world, Request::Join(Joining { array: ArrayId([2; 16]), ..foreign }), "it is one of array");
    // Two at once.
    let [one, other] = [("m2", 1), ("m3", 2)]
        .map(|(name, nonce)| world.ask(world.leader(), join(7, nonce, name, Some((&format!("{name}.lan"), 7400)))));
    world.pass(STEP * 2);
    assert!(matches!(&world.answers[&one], Ok(Reply::Machines(now)) if now.machines["m2"].candidate == 2));
    let refused = world.answers[&other].as_ref().expect_err("the token was used");
    assert_eq!(refused.to_string(), "the token is refused: machine m2 has used it");
    assert_eq!(world.head.candidates, [0, 1, 2].map(CandidateId).into());
    world.change_leader();
    let Ok(Reply::Machines(known)) = world.answer(Request::Machines) else { panic!("no machines") };
    assert_eq!(known.machines.len(), 3);
    assert_eq!(world.answer(join(7, 1, "m2", at)), Ok(Reply::Machines(known)), "an answer may be lost");
    refuses(&mut world, join(7, 3, "m2", at), "machine m2 has used it");
    // One that is gone comes back under another number.
    let own = format!("m{}", world.leader());
    refuses(&mut world, Request::Leave { name: own.clone() }, &format!("the monitor of machine {own} leads"));
    assert!(world.answer(Request::Leave { name: "m2".into() }).is_ok());
    refuses(&mut world, join(7, 1, "m2", at), "machine m2 has used it");
    assert_eq!(world.head.candidates, [0, 1].map(CandidateId).into());
    assert!(world.answer(token(9)).is_ok() && world.answer(join(9, 4, "m2", None)).is_ok());
    assert_eq!(world.head.candidates, [0, 1, 3].map(CandidateId).into());
}

#[test]
fn a_token_is_good_for_an_hour() {
    let mut world = World::led();
    (0..70).for_each(|secret| assert!(world.answer(token(secret)).is_ok()));
    let join = |world: &mut World, secret| world.answer(join(secret, 1, "m2", Some(("m2.lan", 7400))));
    assert!(matches!(join(&mut world, 5), Err(Refused::Token(why)) if why.starts_with("it is not known")));
    world.now.clock = world.now.clock.ahead(TOKEN_LIFE - STEP);
    assert!(join(&mut world, 6).is_ok());
    world.now.clock = world.now.clock.ahead(STEP);
    assert!(matches!(join(&mut world, 7), Err(Refused::Token(why)) if why.starts_with("it has ended")));
}
