//! Two registrars and one registry, which answers at once. The attack runs them in whole arrays (`sim/cluster`).

use braid_base::{ArrayId, Clock, DeviceId, DiskId, Epoch, Generation, Level, NodeId, Now, Rng, Time};
use braid_leadership::{Answer, CandidateId, Head};
use braid_machine::{Effect, Input as MonitorInput, MonitorEffects};
use braid_membership::MonitorConfig;
use braid_registrar::{Copies, Found, Input, Outgoing, Registrar};
use braid_wire::{Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest};
use bytes::Bytes;
use std::time::Duration;

const ARRAY: ArrayId = ArrayId([1; 16]);
const STEP: Duration = Duration::from_millis(10);

struct World {
    now: Now,
    registrars: Vec<Registrar>,
    head: Head,
    copies: Copies,
    /// Calls of this registrar don't arrive.
    cut: Option<usize>,
    told: Vec<(usize, NodeId, MonitorReply)>,
}

impl World {
    fn new() -> World {
        World::of([ARRAY; 2])
    }

    /// Two registrars that take the array for these.
    fn of(arrays: [ArrayId; 2]) -> World {
        let now = Now { time: Time(1 << 40), clock: Clock(0) };
        let config = MonitorConfig {
            array: ARRAY,
            devices: (0..3).map(DeviceId).collect(),
            last_generation: Generation(100),
            term: None,
            settings: Default::default(),
        };
        let ids = [CandidateId(0), CandidateId(1)];
        let start = |id: CandidateId| {
            let config = MonitorConfig { array: arrays[usize::from(id.0)], ..config.clone() };
            Registrar::new(now.time, id, config, Rng::new(id.0.into()), None)
        };
        let registrars = ids.into_iter().map(start).collect();
        let (head, copies) = (Head::first(ids.into_iter().collect()), [Some(Bytes::new()), Some(Bytes::new())]);
        World { now, registrars, head, copies, cut: None, told: Vec::new() }
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
            if self.cut != Some(of) {
                self.carry_out(of, call);
            }
        }
    }

    fn carry_out(&mut self, of: usize, call: Outgoing) {
        let input = match call {
            Outgoing::Read { call } => Input::Answer { call, answer: Answer::Head(Some(self.head.clone())) },
            Outgoing::ReadRecord { read } => {
                Input::Record { read, found: Some(Found { head: self.head.clone(), copies: self.copies.clone() }) }
            }
            Outgoing::Swap { call, expected, head, write } if self.head == expected => {
                self.head = head;
                write.into_iter().for_each(|write| self.copies[write.copy] = Some(write.bytes));
                Input::Answer { call, answer: Answer::Swapped }
            }
            Outgoing::Swap { call, .. } => Input::Answer { call, answer: Answer::Differs(self.head.clone()) },
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

    fn is_answered(&mut self, of: usize, wanted: impl Fn(&MonitorReply) -> bool) -> bool {
        std::mem::take(&mut self.told).iter().any(|(by, _, reply)| *by == of && wanted(reply))
    }
}

fn is_lease(reply: &MonitorReply) -> bool {
    matches!(reply, MonitorReply::Lease { .. })
}

#[test]
fn the_heir_of_a_leader_goes_on_with_its_record() {
    let mut world = World::new();
    world.pass(Duration::from_secs(10));
    let leader = world.leader();
    assert_eq!((world.epoch(leader), world.epoch(1 - leader)), (Some(Epoch(1)), None));
    world.fence(leader, 7);
    world.pass(STEP);
    assert_eq!(world.epoch(leader), Some(Epoch(2)));
    let stored = world.copies.iter().flatten().map(|copy| copy.len()).max();
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
    world.copies = [None, None];
    world.pass(Duration::from_secs(10));
    assert_eq!(world.told, []);
    world.copies[0] = Some(Bytes::new());
    world.pass(Duration::from_secs(20));
    assert_eq!(world.epoch(world.leader()), Some(Epoch(1)), "as if the second copy had never been written");
}

#[test]
fn a_candidate_that_can_not_use_the_record_leaves_it_to_the_other() {
    let mut world = World::new();
    world.pass(Duration::from_secs(10));
    let mut other = World::of([ArrayId([2; 16]), ARRAY]);
    (other.head, other.copies) = (Head { leader: None, ..world.head }, world.copies);
    other.pass(Duration::from_secs(20));
    assert_eq!((other.leader(), other.epoch(1)), (1, Some(Epoch(1))));
}

#[test]
fn a_leader_that_is_to_end_while_it_can_not_write_goes_on() {
    let mut world = World::new();
    world.pass(Duration::from_secs(10));
    let leader = world.leader();
    world.cut = Some(leader);
    world.pass(STEP * 30);
    world.step(leader, Input::Resign);
    world.fence(leader, 7);
    world.told.clear();
    world.pass(STEP * 10);
    assert!(world.is_answered(leader, is_lease));
}
