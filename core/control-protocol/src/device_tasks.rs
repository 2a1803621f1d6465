//! The tasks that give devices a volume as it is after a change: one for each device, sent at once, repeated while transactions are under
//! way there.

use crate::interface::{Answer, Question, Tag};
use crate::questions::Questions;
use braid_base::{BlockRange, DeviceId, Time};
use braid_layout::VolumeDescription;
use braid_wire::Task;
use std::collections::{BTreeMap, BTreeSet};

/// The task that turns what a device holds of the volume `before` into what it holds of it `after`; none if there is nothing to tell. There
/// is no volume before its creation, and none after its deletion.
pub fn task_for(
    device: DeviceId,
    before: Option<&VolumeDescription>,
    after: Option<&VolumeDescription>,
) -> Option<Task> {
    let object = after.or(before)?.id.object();
    let held = |volume: Option<&VolumeDescription>| volume?.object_on(device);
    match (held(before), held(after)) {
        (Some(_), Some(_)) if before?.ordering != after?.ordering => {
            Some(Task::SetOrdering { object, ordering: after?.ordering })
        }
        (None, Some(BlockRange { start: first, count: blocks })) => {
            let after = after?;
            let (ordering, atomicity) = (after.ordering, after.atomicity);
            let redundant = after.layout.redundancy_units() > 0;
            Some(Task::CreateObject { object, first, blocks, ordering, redundant, atomicity, absent: 0 })
        }
        (Some(_), None) => Some(Task::RemoveObject { object }),
        // Also where the object is unchanged: the device then says whether it has undecided transactions.
        (Some(_), Some(range)) => Some(Task::ResizeObject { object, range, absent: BlockRange::new(0, 0) }),
        (None, None) => None,
    }
}

/// All devices that hold a part of the volume before or after a change.
pub fn holders<'a>(volumes: impl IntoIterator<Item = &'a VolumeDescription>) -> BTreeSet<DeviceId> {
    volumes.into_iter().flat_map(VolumeDescription::holders).collect()
}

/// The tasks of one change, as far as they are not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceTasks {
    left: BTreeMap<DeviceId, Task>,
    sent: BTreeMap<Tag, DeviceId>,
    failed: Option<TaskFailure>,
    /// Devices that are in use are asked again until then.
    until: Time,
}

/// Why a change could not be completed at the devices. The question's tag leads to the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskFailure {
    pub tag: Tag,
    pub no_space: bool,
}

/// The state of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskProgress {
    /// Answers are still missing.
    Waiting,
    /// Some devices must be asked again, after a pause.
    Again,
    Done,
    Failed(TaskFailure),
}

impl DeviceTasks {
    pub fn new(before: Option<&VolumeDescription>, after: Option<&VolumeDescription>, until: Time) -> DeviceTasks {
        let devices = holders(before.into_iter().chain(after)).into_iter();
        let left = devices.filter_map(|device| Some((device, task_for(device, before, after)?))).collect();
        DeviceTasks { left, sent: BTreeMap::new(), failed: None, until }
    }

    /// Sends each task that is not done.
    pub fn send(&mut self, questions: &mut Questions) {
        assert!(self.sent.is_empty(), "tasks are sent when all earlier ones are answered");
        for (device, task) in &self.left {
            let tag = questions.ask(Question::Manage { device: *device, task: task.clone() });
            self.sent.insert(tag, *device);
        }
    }

    /// Handles an answer. Returns false if it is to another question.
    pub fn on_answer(&mut self, now: Time, tag: Tag, answer: &Answer) -> bool {
        let Some(device) = self.sent.remove(&tag) else { return false };
        match answer {
            Answer::Yes => drop(self.left.remove(&device)),
            Answer::InUse if now < self.until => {}
            answer => {
                let no_space = *answer == Answer::NoSpace;
                self.failed.get_or_insert(TaskFailure { tag, no_space });
            }
        }
        true
    }

    pub fn progress(&self) -> TaskProgress {
        match self.failed {
            _ if !self.sent.is_empty() => TaskProgress::Waiting,
            Some(failure) => TaskProgress::Failed(failure),
            None if self.left.is_empty() => TaskProgress::Done,
            None => TaskProgress::Again,
        }
    }
}
