//! Tests of the world with a toy machine: a counter on disk that others increment by messages.

use braid_base::{ArrayId, DeviceId, Epoch, Generation, NodeId, Now, Rng, Time};
use braid_machine::{
    DiskCommand, DiskResult, DiskTag, Effects, HostOutcome, HostRequest, HostSuccess, Input, Machine, OneDisk, OpId,
    VolumeRequest,
};
use braid_wire::{Answer, Command, Message, Reply, Request};
use braid_world::{
    Bound, CrashPoint, Disk, DiskOptions, LocalClock, NetworkOptions, Trace, Verdict, World, WorldEvent,
};
use std::time::Duration;

const HOST: NodeId = NodeId::Host(Generation(1));
const DEVICE: NodeId = NodeId::Device(DeviceId(0));

/// As a host, it repeats its request every 10 ms until the device has answered, and then replies (the number of the request is sent as
/// `settled` and `confirmed`, since a toy has no messages of its own). As a device, it counts heartbeats durably, and answers once the
/// count is durable.
#[derive(Default)]
struct Toy {
    waiting: Option<OpId>,
    ask_again: Option<Time>,
    count: u64,
    tag: u64,
    asked_by: Vec<(NodeId, u64)>,
    busy: bool,
}

impl Toy {
    fn ask(&mut self, now: Now, out: &mut Effects<HostOutcome>) {
        self.ask_again = Some(now.time.after(Duration::from_millis(10)));
        out.send(
            DEVICE,
            Message::Request(Request {
                host: Generation(1),
                epoch: Epoch(0),
                settled: self.waiting.map_or(0, |op| op.number),
                over: Vec::new(),
                commits: Vec::new(),
                command: Command::Heartbeat,
            }),
        );
    }

    fn disk(&mut self, command: DiskCommand, out: &mut Effects<HostOutcome>) {
        self.tag += 1;
        out.disk(DiskTag(self.tag), command);
    }

    fn count_up(&mut self, out: &mut Effects<HostOutcome>) {
        self.busy = true;
        self.count += 1;
        let mut sector = vec![0; 512];
        sector[..8].copy_from_slice(&self.count.to_le_bytes());
        self.disk(DiskCommand::Write { offset: 0, data: vec![sector.into()], durable: false }, out);
    }
}

impl Machine for Toy {
    type Request = HostRequest;
    type Outcome = HostOutcome;
    type Disk = OneDisk;

    fn step(&mut self, now: Now, input: Input<HostRequest>, out: &mut Effects<HostOutcome>) {
        match input {
            Input::Start => {}
            Input::Request { op, .. } => {
                self.waiting = Some(op);
                self.ask(now, out);
            }
            Input::Wake => {
                assert!(self.ask_again.is_some_and(|at| at <= now.time), "woken before it had asked to be");
                self.ask(now, out);
            }
            Input::Message { from, message: Message::Request(request), .. } => {
                self.asked_by.push((from, request.settled));
                if !self.busy {
                    self.count_up(out);
                }
            }
            Input::Message { message: Message::Answer(answer), .. } => {
                if let Some(op) = self.waiting.take_if(|op| answer.confirmed == [op.number]) {
                    self.ask_again = None;
                    out.reply(op, Ok(HostSuccess::Done));
                }
            }
            Input::Message { .. } => panic!("a toy has no locks"),
            Input::DiskDone { result: DiskResult::Done(Ok(())), .. } if self.busy => {
                self.busy = false;
                self.disk(DiskCommand::Sync, out);
            }
            Input::DiskDone { .. } => {
                for (to, op) in self.asked_by.drain(..) {
                    let reply = Reply::Heartbeat { orphans: Vec::new(), suspects: Vec::new(), busy: false };
                    out.send(to, Message::Answer(Answer { epoch: Epoch(0), confirmed: vec![op], reply }));
                }
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.ask_again
    }

    fn invariants(&self) {}
}

fn world(seed: u64, network: NetworkOptions) -> World<Toy> {
    let mut world = World::new(ArrayId([7; 16]), seed, network, Trace::keeping(50));
    world.add(HOST, Toy::default(), None, LocalClock::exact(Time(5_000)).drifting(-150));
    let disk = Disk::new(DiskOptions::default(), Rng::new(seed));
    world.add(DEVICE, Toy::default(), Some(disk), LocalClock::exact(Time(0)).drifting(200));
    world
}

fn ask(world: &mut World<Toy>, op: u64) -> Option<WorldEvent> {
    world.request(HOST, OpId::front_end(op), VolumeRequest::Flush { volume: braid_base::VolumeId(1) });
    world.next(Time(world.now().0 + 10_000_000_000))
}

fn answered(op: u64) -> Option<WorldEvent> {
    Some(WorldEvent::Reply { node: HOST, op: OpId::front_end(op), outcome: Ok(HostSuccess::Done) })
}

fn count_on_disk(world: &World<Toy>) -> u64 {
    u64::from_le_bytes(world.disk(DEVICE).unwrap().peek(0, 512)[..8].try_into().unwrap())
}

#[test]
fn a_bad_network_costs_time_and_nothing_else() {
    let bad = NetworkOptions {
        in_order: false,
        loss: 4_000,
        double: 3_000,
        damage: 1_000,
        delay: 1_000,
        delay_max: Duration::from_millis(50),
        ..NetworkOptions::clean()
    };
    let mut world = world(3, bad);
    for op in 0..200 {
        assert_eq!(ask(&mut world, op), answered(op));
    }
    let counts = world.network.counts();
    assert!(counts.lost > 0 && counts.doubled > 0 && counts.damaged > 0 && counts.delayed > 0, "{counts:?}");
}

#[test]
fn one_seed_is_one_run() {
    let digest = |seed| {
        let mut world = world(seed, NetworkOptions { loss: 2_000, double: 2_000, ..NetworkOptions::clean() });
        (0..50).for_each(|op| drop(ask(&mut world, op)));
        (world.trace.digest(), world.trace.events(), world.now())
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn answered_writes_are_on_the_disk_after_a_crash_at_any_command() {
    for point in (1..20).flat_map(|n| [CrashPoint::Write(n), CrashPoint::Sync(n)]) {
        let mut world = world(9, NetworkOptions::clean());
        world.disk_mut(DEVICE).unwrap().crash_at(point);
        let mut acknowledged = 0;
        loop {
            match ask(&mut world, acknowledged + 1) {
                Some(WorldEvent::PowerFailed(DEVICE)) => break,
                reply => assert_eq!(reply, answered(acknowledged + 1)),
            }
            acknowledged += 1;
        }
        assert!(count_on_disk(&world) >= acknowledged, "{point:?}: {acknowledged}");
    }
}

#[test]
fn cuts_and_rules_stop_messages_until_they_are_lifted() {
    let mut world = world(1, NetworkOptions::clean());
    world.network.cut(DEVICE, HOST);
    assert_eq!(ask(&mut world, 1), None);
    world.network.join(DEVICE, HOST);
    assert_eq!(world.next(Time(world.now().0 + 1_000_000_000)), answered(1));
    world.network.set_rule(|_, to, _| if to == DEVICE { Verdict::Drop } else { Verdict::Pass });
    assert_eq!(ask(&mut world, 2), None);
    world.network.heal();
    assert_eq!(world.next(Time(world.now().0 + 1_000_000_000)), answered(2));
}

#[test]
fn a_stalled_node_finds_its_messages_afterwards_and_a_dead_one_does_not() {
    let mut world = world(1, NetworkOptions::clean());
    world.stall(DEVICE, Duration::from_secs(1));
    let asked_at = world.now();
    assert_eq!(ask(&mut world, 1), answered(1));
    assert!(world.now().since(asked_at) >= Duration::from_secs(1));
    world.crash(DEVICE);
    assert_eq!(ask(&mut world, 2), None);
    world.start(DEVICE, Toy::default());
    assert_eq!(world.next(Time(world.now().0 + 1_000_000_000)), answered(2));
}

#[test]
fn nodes_at_one_place_have_its_clocks_stall_and_lose_power_together() {
    const NEXT: NodeId = NodeId::Host(Generation(2));
    let mut world = world(1, NetworkOptions::clean());
    world.step_clock(DEVICE, 500);
    world.share_place(HOST, DEVICE);
    world.step_clock(HOST, 200);
    world.set_clock_rate(HOST, 50);
    assert_eq!([HOST, DEVICE].map(|node| (world.skew(node), world.clock_rate(node))), [(700, 50); 2]);
    world.stall(DEVICE, Duration::from_secs(1));
    assert!(world.is_stalled(HOST) && world.is_stalled(DEVICE));
    world.crash_before(DEVICE, 2);
    assert_eq!(ask(&mut world, 1), Some(WorldEvent::PowerFailed(DEVICE)));
    assert_eq!((world.next(Time(world.now().0)), world.up()), (Some(WorldEvent::PowerFailed(HOST)), vec![]));
    world.add(NEXT, Toy::default(), None, LocalClock::exact(Time(0)));
    world.succeed(NEXT, HOST);
    world.start(DEVICE, Toy::default());
    world.crash_alone(DEVICE);
    assert_eq!((world.up(), world.crash(DEVICE)), (vec![NEXT], vec![NEXT]), "one may end alone");
}

#[test]
#[should_panic(expected = "the run does not terminate: more than 500 events")]
fn a_run_with_too_many_events_panics() {
    let mut world = world(3, NetworkOptions::clean());
    world.network.cut(HOST, DEVICE);
    world.bound(Bound { events: 500, real_time: Duration::MAX });
    world.request(HOST, OpId::front_end(1), VolumeRequest::Flush { volume: braid_base::VolumeId(1) });
    world.next(Time(u64::MAX));
}

#[test]
#[should_panic(expected = "of real time for 1 events")]
fn a_run_that_takes_too_much_real_time_ends() {
    let mut world = world(3, NetworkOptions::clean());
    world.bound(Bound { events: u64::MAX, real_time: Duration::ZERO });
    world.next(Time(u64::MAX));
}

#[test]
fn alarms_come_at_their_time() {
    let mut world = world(1, NetworkOptions::clean());
    world.alarm(Time(500), 2);
    world.alarm(Time(300), 1);
    assert_eq!(world.next(Time(400)), Some(WorldEvent::Alarm(1)));
    assert_eq!(world.next(Time(400)), None);
    assert_eq!((world.next(Time(900)), world.now()), (Some(WorldEvent::Alarm(2)), Time(500)));
}

#[test]
fn power_fails_before_the_chosen_input_and_what_was_under_way_goes_on() {
    let mut world = world(1, NetworkOptions::clean());
    assert_eq!(ask(&mut world, 1), answered(1));
    let taken = world.inputs(DEVICE);
    world.crash_before(DEVICE, 2);
    assert_eq!(ask(&mut world, 2), Some(WorldEvent::PowerFailed(DEVICE)));
    assert_eq!(world.inputs(DEVICE), taken + 1, "the request was taken, the end of its write was not");
    world.start(DEVICE, Toy::default());
    assert_eq!(world.next(Time(world.now().0 + 1_000_000_000)), answered(2), "once");
}

#[test]
fn a_slow_node_takes_its_time_for_each_input() {
    let mut world = world(1, NetworkOptions::clean());
    world.slow_down(DEVICE, Duration::from_millis(3));
    let asked_at = world.now();
    assert_eq!(ask(&mut world, 1), answered(1));
    assert!(world.now().since(asked_at) >= Duration::from_millis(6), "a message and the end of a write come first");
    world.slow_down(DEVICE, Duration::ZERO);
    let (asked_at, free) = (world.now(), Duration::from_millis(3));
    assert_eq!(ask(&mut world, 2), answered(2));
    assert!(world.now().since(asked_at) < free + Duration::from_millis(2));
}

#[test]
fn a_timer_on_a_slow_clock_fires_later() {
    let waited = |ppm: i64| {
        let mut world = world(1, NetworkOptions::clean());
        world.crash(DEVICE);
        world.set_clock_rate(HOST, 0);
        world.request(HOST, OpId::front_end(1), VolumeRequest::Flush { volume: braid_base::VolumeId(1) });
        world.next(Time(1_000_000));
        // The deadline is armed already, by the clock's old rate.
        world.set_clock_rate(HOST, ppm);
        let sent = world.network.counts().sent;
        while world.network.counts().sent == sent {
            let soon = Time(world.now().0 + 10_000);
            world.next(soon);
        }
        world.now().0
    };
    let (slow, exact, fast) = (waited(-45_000), waited(0), waited(45_000));
    assert!(fast + 300_000 < exact && exact + 300_000 < slow, "{fast} {exact} {slow}");
}
