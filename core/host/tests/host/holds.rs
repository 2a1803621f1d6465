//! Tests of a volume on hold: the host completes no survey of a returning device until it has adopted the volume.

use crate::stage::*;
use braid_wire::Managed;

/// Answers a whole survey: no device has an object. Returns the tasks that follow within a second, but for heartbeats.
fn survey(stage: &mut Stage) -> Vec<Task> {
    let asked = stage.commands().into_iter().filter_map(|(device, command)| match command {
        Command::Manage { ticket, task: Task::ListObjects } => Some((device, ticket)),
        _ => None,
    });
    let asked: BTreeSet<_> = asked.collect();
    assert_eq!(asked.len(), 5, "each device is asked once, and perhaps again: {asked:?}");
    for (device, ticket) in asked {
        stage.answer(device, Reply::Managed { ticket, result: Ok(Managed::Objects(Vec::new())) });
    }
    stage.pass(Duration::from_millis(501));
    let tasks = stage.sent.iter().filter_map(|(_, request)| match &request.command {
        Command::Manage { task, .. } => Some(task.clone()),
        _ => None,
    });
    tasks.collect()
}

#[test]
fn a_hold_lasts_until_the_volume_is_adopted() {
    for held in [true, false] {
        let mut stage = Stage::with_monitor(Ordering::Timestamp);
        let layout = Layout::new("raid5:4+1".parse().expect("a level"), 5, 1).expect("a layout");
        let volume = VolumeDescription::new(VOLUME, 256 * BLOCK_BYTES as u64, layout, (0..5).map(DeviceId).collect());
        if held {
            stage.ask(ArrayRequest::HoldVolume { volume: VOLUME });
        }
        stage.enter(&[(4, MemberState::Returning { recovery_coordinator: Some(HOST) })]);
        if held {
            let tasks = survey(&mut stage);
            assert!(tasks.iter().all(|task| *task == Task::ListObjects), "{tasks:?}");
            stage.ask(ArrayRequest::AdoptVolume { volume });
        }
        let tasks = survey(&mut stage);
        assert!(tasks.iter().any(|task| matches!(task, Task::CreateObject { .. })), "{tasks:?}");
    }
}
