//! Requests to attribute volumes. The simulated devices keep written content.

use crate::stage::*;
use braid_base::BlockRange;
use braid_ordering::Atomicity;
use braid_wire::{SetAttribute, Undefined};
use std::collections::BTreeMap;

const NAME: AttributeName = AttributeName::new(1, 7);
const LONG: Duration = Duration::from_secs(600);

/// The content of the devices, by device and block. Missing blocks are holes.
#[derive(Default)]
struct Devices(BTreeMap<(DeviceId, u64), Bytes>);

impl Devices {
    /// Executes commands. A write is visible at once: no test here aborts one.
    fn play(&mut self, stage: &mut Stage, commands: &[(DeviceId, Command)]) {
        for (device, command) in commands {
            let (transaction, _) = subject(command);
            let reply = match command {
                Command::Prewrite { reads, .. } if reads.is_empty() => Reply::Accepted { transaction, waited: false },
                Command::Prewrite { reads: ranges, .. } | Command::Read { extents: ranges, .. } => {
                    let blocks = ranges.iter().flat_map(|range| range.blocks());
                    let pieces = blocks.map(|block| {
                        let held = self.0.get(&(*device, block)).cloned();
                        Piece { range: BlockRange::new(block, 1), content: held.map_or(Content::Hole, Content::Data) }
                    });
                    Reply::Data { transaction, waited: false, pieces: pieces.collect() }
                }
                Command::Write { pieces, .. } => {
                    pieces.iter().for_each(|piece| self.write(*device, piece));
                    Reply::Written { transaction, waited: false }
                }
                Command::Decide { outcome, .. } => Reply::Decided { transaction, outcome: *outcome },
                other => panic!("not simulated here: {other:?}"),
            };
            stage.answer(*device, reply);
        }
    }

    fn write(&mut self, device: DeviceId, piece: &Piece) {
        for (index, block) in piece.range.blocks().enumerate() {
            match &piece.content {
                Content::Data(data) => {
                    self.0.insert((device, block), data.slice(index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES));
                }
                _ => drop(self.0.remove(&(device, block))),
            }
        }
    }

    /// Executes the commands so far. Returns those that the host sends then.
    fn play_sent(&mut self, stage: &mut Stage) -> Vec<(DeviceId, Command)> {
        let commands = stage.commands();
        self.play(stage, &commands);
        stage.commands()
    }

    /// Executes commands until the host sends no more.
    fn play_on(&mut self, stage: &mut Stage) -> usize {
        let mut count = 0;
        loop {
            let commands = stage.commands();
            if commands.is_empty() {
                return count;
            }
            count += commands.len();
            self.play(stage, &commands);
        }
    }

    fn do_all(&mut self, stage: &mut Stage, request: ObjectRequest) -> HostOutcome {
        let op = ask(stage, request);
        self.play_on(stage);
        stage.outcome(op).expect("it is answered")
    }

    fn assert_alike(&self) {
        let of = |device: u16| self.0.iter().filter(move |((held, _), _)| held.0 == device);
        let blocks = |device| of(device).map(|((_, block), data)| (*block, data.clone())).collect::<Vec<_>>();
        assert!(blocks(0) == blocks(1), "the copies are alike");
    }
}

fn attribute_volume() -> Stage {
    Stage::attribute_volume(Ordering::Timestamp, Atomicity::Implied)
}

fn ask(stage: &mut Stage, request: ObjectRequest) -> OpId {
    stage.ask(ObjectsRequest::ExecuteOnVolume { volume: VOLUME, request, patience: LONG })
}

fn command(action: Action) -> ObjectCommand {
    ObjectCommand::new(ObjectId(3), action)
}

fn one(action: Action) -> ObjectRequest {
    ObjectRequest { commands: vec![command(action)] }
}

fn add() -> ObjectRequest {
    one(Action::FetchAndAdd { name: NAME, add: 1, original: true })
}

fn set(page: u32, value: Bytes) -> ObjectRequest {
    let sets = vec![SetAttribute { name: AttributeName { page, ..NAME }, value }];
    ObjectRequest { commands: vec![ObjectCommand { sets, ..command(Action::Nothing) }] }
}

/// A compare-and-swap that does not match once there is a value.
fn swap() -> ObjectRequest {
    let (compare, swap) = (Bytes::from_static(b"other"), Bytes::from_static(b"mine"));
    one(Action::CompareAndSwap { name: NAME, compare, swap, undefined: Undefined::IsEmpty, original: false })
}

fn added(original: i64) -> HostOutcome {
    let action = ActionResult::Added { original: Some(original) };
    Ok(HostSuccess::Objects(vec![CommandResult { action, values: Vec::new() }]))
}

fn refused(failure: ObjectFailure) -> HostOutcome {
    Err(HostError::Objects(ObjectRefusal { command: 0, failure }))
}

fn written(commands: &[(DeviceId, Command)]) -> Vec<(u16, u64)> {
    let blocks = |(device, command): &(DeviceId, Command)| match command {
        Command::Write { pieces, .. } => (device.0, pieces.iter().map(|piece| piece.range.count).sum()),
        other => panic!("not a write: {other:?}"),
    };
    commands.iter().map(blocks).collect()
}

#[test]
fn a_change_is_one_transaction_of_two_round_trips_in_which_one_copy_is_read() {
    let (mut stage, mut devices) = (attribute_volume(), Devices::default());
    for round in 0..3 {
        let op = ask(&mut stage, add());
        let first = stage.commands();
        let reads =
            first.iter().filter(|(_, command)| matches!(command, Command::Prewrite { reads, .. } if !reads.is_empty()));
        assert_eq!((first.len(), reads.count()), (2, 1), "both copies are pre-written, one is read: {first:?}");
        devices.play(&mut stage, &first);
        let second = stage.commands();
        assert_eq!(written(&second), [(0, 1), (1, 1)], "only the changed blocks of the bucket are written");
        devices.play(&mut stage, &second[..1]);
        assert_eq!(stage.outcome(op), None, "not answered before both have their intent");
        devices.play(&mut stage, &second[1..]);
        assert_eq!(stage.outcome(op), Some(added(round)));
        assert!(stage.sent.is_empty(), "the commit rides on a later request");
    }
    devices.assert_alike();
    let counted: BTreeMap<_, _> = stage.host.counters().list().into_iter().collect();
    assert_eq!((counted["operations"], counted["committed"], counted["aborted"]), (3, 3, 0));
}

#[test]
fn a_request_without_a_change_is_answered_at_once_and_retracts_its_prewrites() {
    let (mut stage, mut devices) = (attribute_volume(), Devices::default());
    devices.do_all(&mut stage, add()).expect("it is done");
    let before = devices.0.clone();
    let overflow = one(Action::FetchAndAdd { name: NAME, add: i64::MAX, original: false });
    let not_swapped = ActionResult::Compared { swapped: false, original: None };
    let not_swapped = HostSuccess::Objects(vec![CommandResult { action: not_swapped, values: Vec::new() }]);
    for (request, expected) in [(swap(), Ok(not_swapped)), (overflow, refused(ObjectFailure::Overflow))] {
        let op = ask(&mut stage, request);
        let aborts = devices.play_sent(&mut stage);
        assert_eq!(stage.outcome(op), Some(expected));
        assert!(aborts.len() == 2 && aborts.iter().all(is_abort), "{aborts:?}");
        devices.play(&mut stage, &aborts);
    }
    assert!(devices.0 == before, "nothing is written");
    stage.pass(Duration::from_millis(3));
    stage.sent.clear();
    for device in [0, 1].map(DeviceId) {
        stage.confirm(device, vec![1]);
    }
    assert!(stage.host.is_idle());
}

#[test]
fn a_long_value_beside_is_read_and_not_written_again() {
    let (mut stage, mut devices) = (attribute_volume(), Devices::default());
    devices.do_all(&mut stage, set(2, vec![7; 64 << 10].into())).expect("it fits");
    devices.do_all(&mut stage, add()).expect("it is done");
    let op = ask(&mut stage, add());
    let second = devices.play_sent(&mut stage);
    assert_eq!(written(&second), [(0, 1), (1, 1)]);
    devices.play(&mut stage, &second);
    assert_eq!(stage.outcome(op), Some(added(1)));
    devices.assert_alike();
    assert_eq!(devices.0.len(), 2 * 17);
    // Blocks that are not used any more become holes.
    devices.do_all(&mut stage, set(2, Bytes::new())).expect("it is done");
    assert_eq!(devices.0.len(), 2);
    assert_eq!(devices.do_all(&mut stage, add()), added(2));
}

#[test]
fn an_attribute_volume_refuses_invalid_requests_without_a_message() {
    let mut stage = attribute_volume();
    let op = ask(&mut stage, one(Action::Write { offset: 0, data: Bytes::from_static(b"x") }));
    assert_eq!(stage.outcome(op), Some(refused(ObjectFailure::NotInAttributeVolume)));
    let unsafe_ones = [(Ordering::None, Atomicity::Implied), (Ordering::Timestamp, Atomicity::Consistent)];
    for (ordering, atomicity) in unsafe_ones {
        let mut stage = Stage::attribute_volume(ordering, atomicity);
        let op = ask(&mut stage, add());
        let refused = Some(refused(ObjectFailure::NotAnAttributeVolume));
        assert_eq!(stage.outcome(op), refused, "{ordering:?}, {atomicity:?}");
        assert_eq!(stage.commands(), []);
    }
    assert_eq!(stage.commands(), []);
}

#[test]
fn a_request_whose_outcome_no_device_knows_is_not_repeated() {
    let (mut stage, mut devices) = (attribute_volume(), Devices::default());
    let op = ask(&mut stage, add());
    devices.play_sent(&mut stage);
    stage.enter(&[(0, MemberState::Out)]);
    stage.enter(&[(0, MemberState::In)]);
    stage.commands();
    assert_eq!(stage.outcome(op), None);
    // Only device 1 could have found it committed, and it is out.
    stage.enter(&[(1, MemberState::Out)]);
    let devices = [0, 1].map(DeviceId).to_vec();
    assert_eq!(stage.outcome(op), Some(Err(HostError::Unavailable { devices })));
    stage.pass(Duration::from_millis(100));
    assert!(stage.commands().iter().all(|(_, command)| !matches!(command, Command::Prewrite { .. })));
}

#[test]
fn a_request_without_space_fails_once_it_is_known_to_have_had_no_effect() {
    let failed = |votes: [Vote; 2]| {
        let (mut stage, mut devices) = (attribute_volume(), Devices::default());
        let op = ask(&mut stage, add());
        let second = devices.play_sent(&mut stage);
        let (transaction, _) = subject(&second[0].1);
        devices.play(&mut stage, &second[..1]);
        let reply = Reply::Failed { transaction, step: Step::Write, failure: Failure::NoSpace };
        stage.answer(second[1].0, reply);
        assert_eq!(stage.outcome(op), None, "the other device has its intent");
        let asked = stage.commands();
        assert_eq!(asked.len(), 2, "{asked:?}");
        assert!(asked.iter().all(is_retract), "{asked:?}");
        // Another host has heard that the first device is prepared, so that the devices' votes decide.
        stage.answer(asked[0].0, Reply::Vote { transaction, vote: Vote::Prepared });
        let asked = stage.commands();
        for ((device, command), vote) in asked.iter().zip(votes) {
            assert!(matches!(command, Command::Resolve { .. }), "{command:?}");
            stage.answer(*device, Reply::Vote { transaction, vote });
        }
        devices.play_on(&mut stage);
        stage.pass(Duration::from_millis(100));
        assert_eq!(stage.commands(), [], "it is not tried again");
        stage.outcome(op).expect("it is answered")
    };
    let device = DeviceId(1);
    let no_room = Err(HostError::Device { device, failure: Failure::NoSpace });
    assert_eq!(failed([Vote::Prepared, Vote::NeverPrepared]), no_room);
    // A late copy may have been accepted after all.
    assert_eq!(failed([Vote::Prepared, Vote::Prepared]), added(0));
}
