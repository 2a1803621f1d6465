//! What questions do in the small world, and their answers.

use super::exploration::Asked;
use super::world::*;
use crate::*;
use braid_base::{DeviceId, Generation, VolumeId};
use braid_wire::Task;

impl World {
    pub fn answer(&mut self, own: Generation, question: &Question) -> Answer {
        match question {
            Question::AreIn { .. } => Answer::AllIn(self.epoch),
            Question::MonitorKnows { .. } | Question::LockServersServe => Answer::Yes,
            Question::Store(command) => self.on_command(command),
            Question::Fence(fence) => self.administrators.fence(fence),
            Question::Copy { from } => self.on_copy(*from),
            Question::CopyProgress => {
                let half = self.record.volume.blocks() / 2;
                let pending = &self.administrators.living[&own].pending;
                let from = pending.values().find_map(|asked| match &asked.question {
                    Question::Copy { from } => Some(*from),
                    _ => None,
                });
                if let Some(from) = from.filter(|_| self.record.held_by().is_none()) {
                    self.copy(from, half);
                }
                Answer::Copied { copied_to: half, lost: 0 }
            }
            Question::Manage { .. } if self.administrators.fenced.contains(&own) => Answer::Failed,
            Question::Manage { device, task } => {
                // A task that its host no longer waits for is dropped when the device gets another one of that host.
                let is_older = |(host, asked): &mut (Generation, Asked)| {
                    *host == own && matches!(&asked.question, Question::Manage { device: of, .. } if of == device)
                };
                self.administrators.stray.extract_if(.., is_older).for_each(drop);
                self.on_task(own, *device, task)
            }
            other => unreachable!("devices and file systems are in other worlds: {other:?}"),
        }
    }

    fn on_command(&mut self, command: &Command) -> Answer {
        match command {
            Command::Read => Answer::Record {
                version: self.version,
                record: self.record().cloned().map(Box::new),
                ready_devices: DEVICES.into(),
                next_volume: self.next_volume,
            },
            Command::Replace { after, .. } | Command::Remove { after } | Command::Confirm { version: after }
                if *after != self.version =>
            {
                Answer::Superseded
            }
            Command::Replace { record, .. } => {
                self.version = Version(self.version.0 + 1);
                if !self.is_there {
                    assert_eq!(record.volume.id, self.next_volume, "numbers are not used again");
                    self.next_volume = VolumeId(record.volume.id.0 + 1);
                }
                (self.record, self.is_there) = (record.clone(), true);
                Answer::Replaced { version: self.version }
            }
            Command::Remove { .. } => {
                self.version = Version(self.version.0 + 1);
                self.is_there = false;
                Answer::Replaced { version: self.version }
            }
            Command::Confirm { .. } | Command::Watch => Answer::Yes,
            command => {
                // Other administrators don't use the volume here.
                let uses_volumes = |host| self.hosts.contains_key(&host);
                self.administrators.on_command(command, uses_volumes)
            }
        }
    }

    fn on_copy(&mut self, from: u64) -> Answer {
        if self.record.volume.moving.is_none() {
            return Answer::No;
        }
        let copied_to = self.record.volume.blocks();
        self.copy(from, copied_to);
        Answer::Copied { copied_to, lost: 0 }
    }

    /// The host copies from one block to another. If the migration is not the one that the operation means, what is before may be missing.
    fn copy(&mut self, from: u64, to: u64) {
        let Some(CopyRecord { begun, .. }) = self.record.copied else { return };
        let before = if self.copied.begun == begun { self.copied.copied_to } else { 0 };
        if from <= before {
            self.copied = CopyRecord { begun, copied_to: before.max(to) };
        }
    }

    fn on_task(&mut self, own: Generation, device: DeviceId, task: &Task) -> Answer {
        // Devices change only when nobody uses the volume, and only for the administrator that holds it.
        for (host, state) in self.hosts.iter().filter(|(host, _)| !self.administrators.fenced.contains(host)) {
            assert!(state.operation.is_none(), "{host} uses the volume while {device} is told {task:?}");
        }
        let is_told = !matches!(self.record.state, VolumeState::Ready | VolumeState::Draining { .. });
        let holds = self.record().and_then(VolumeRecord::administrator) == Some(own) && is_told;
        assert!(holds, "{own} tells {device} {task:?}, but the volume is {:?}", self.record.state);
        if matches!(self.record.state, VolumeState::Reordering { to: Change::EndMove, .. }) {
            let all = CopyRecord { copied_to: self.record.volume.blocks(), ..self.record.copied.expect("it moves") };
            assert_eq!(self.copied, all, "a migration ends when everything is copied");
        }
        if self.budget.full == Some(device) {
            self.budget.full = None;
            return Answer::NoSpace;
        }
        match task {
            Task::SetOrdering { ordering, .. } => {
                self.devices.get_mut(&device).expect("it exists").ordering = *ordering
            }
            Task::CreateObject { ordering, blocks, .. } => {
                self.devices.insert(device, Held { ordering: *ordering, blocks: *blocks });
            }
            Task::ResizeObject { range, .. } => {
                self.devices.get_mut(&device).expect("it exists").blocks = range.count;
            }
            Task::RemoveObject { .. } => drop(self.devices.remove(&device)),
            other => panic!("{other:?}"),
        }
        Answer::Yes
    }
}
