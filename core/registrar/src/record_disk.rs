//! The disk of a leader's monitor: two keys of the registry, each with a copy of the record.
//!
//! A read is repeated until it is answered: the monitor can do nothing before. A write is the candidate's to repeat; one that the leader can't
//! make never ends, and the monitor waits for it until its term is over. Most of a copy are zeros between the record and the checksum at its
//! end; they are not stored. A new array has empty copies. One that is missing, or makes no sense, is damaged.

use crate::entries::{Change, Key, Keys};
use crate::messages::{Found, ReadId};
use braid_base::Time;
use braid_leadership::times::PATIENCE;
use braid_leadership::{Nonce, WriteId};
use braid_machine::{DiskCommand, DiskResult, DiskTag};
use braid_membership::DISK_BYTES;
use bytes::Bytes;

const COPY_BYTES: usize = DISK_BYTES as usize / 2;
/// The checksum of a copy.
const END_BYTES: usize = 4;

/// The command under way, if there is one. A monitor gives one at a time. Before there is a monitor, all keys are read.
#[derive(Clone, Debug)]
pub(crate) struct RecordDisk(Option<Command>);

#[derive(Clone, Debug)]
enum Command {
    /// For the monitor, if there is one: the tag, and where the range begins and how long it is.
    Read {
        of: Option<(DiskTag, usize, usize)>,
        read: ReadId,
        sent: Option<Time>,
    },
    Write {
        tag: DiskTag,
        write: WriteId,
        change: Change,
    },
}

impl RecordDisk {
    /// A term begins with a read of this number.
    pub fn new(number: u64) -> RecordDisk {
        RecordDisk(Some(Command::Read { of: None, read: ReadId(number), sent: None }))
    }

    /// Takes a command of the monitor. `number` names the read or write that it becomes. True if it is a write.
    pub fn begin(&mut self, tag: DiskTag, command: DiskCommand, number: u64) -> bool {
        assert!(self.0.is_none(), "the monitor gives its disk one command at a time");
        let command = match command {
            DiskCommand::Read { offset, length } => {
                Command::Read { of: Some((tag, offset as usize, length)), read: ReadId(number), sent: None }
            }
            DiskCommand::Write { offset, data, durable: true } => {
                let key = Key::Record((offset as usize / COPY_BYTES) as u8);
                let change = Change { key, value: Some(packed(&data.concat())) };
                Command::Write { tag, write: WriteId(number), change }
            }
            other => panic!("a monitor does not give its disk this command: {other:?}"),
        };
        let is_write = matches!(command, Command::Write { .. });
        self.0 = Some(command);
        is_write
    }

    /// When a read is sent, for the first time or again.
    pub fn deadline(&self) -> Option<Time> {
        match self.0 {
            Some(Command::Read { sent, .. }) => Some(sent.map_or(Time(0), |sent| sent.after(PATIENCE))),
            _ => None,
        }
    }

    /// The read that is to be sent now.
    pub fn due(&mut self, now: Time) -> Option<ReadId> {
        self.deadline().filter(|due| *due <= now)?;
        let Some(Command::Read { read, sent, .. }) = &mut self.0 else { return None };
        *sent = Some(now);
        Some(*read)
    }

    /// What this write puts into the registry.
    pub fn written_by(&self, id: WriteId) -> Option<&Change> {
        match &self.0 {
            Some(Command::Write { write, change, .. }) if *write == id => Some(change),
            _ => None,
        }
    }

    /// A read was answered. What it has found counts if that is of this term, in which no other monitor writes.
    pub fn on_read(&self, id: ReadId, found: Option<Found>, term: Nonce) -> Option<Keys> {
        let found = found.filter(|found| found.head.nonce == term)?;
        matches!(self.0, Some(Command::Read { read, .. }) if read == id).then_some(found.keys)
    }

    /// The keys are these: the read is done. Returns its result if it is for the monitor.
    pub fn answer(&mut self, keys: &Keys) -> Option<(DiskTag, DiskResult)> {
        let Some(Command::Read { of, .. }) = self.0.take_if(|command| matches!(command, Command::Read { .. })) else {
            return None;
        };
        let (tag, offset, length) = of?;
        Some((tag, DiskResult::Read(Ok(image(keys).slice(offset..offset + length)))))
    }

    /// A write is durable.
    pub fn on_write(&mut self, id: WriteId) -> Option<(DiskTag, DiskResult)> {
        self.written_by(id)?;
        let Some(Command::Write { tag, .. }) = self.0.take() else { return None };
        Some((tag, DiskResult::Done(Ok(()))))
    }
}

/// A copy as the registry has it: without the zeros between the record and the checksum.
fn packed(copy: &[u8]) -> Bytes {
    let (body, end) = copy.split_at(COPY_BYTES - END_BYTES);
    let length = body.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    [&body[..length], end].concat().into()
}

/// What puts the copies on a disk with this content into the registry.
pub(crate) fn copies_of(disk: &[u8]) -> impl Iterator<Item = Change> {
    let copies = disk.chunks(COPY_BYTES).zip([0, 1].map(Key::Record));
    copies.map(|(copy, key)| Change { key, value: Some(packed(copy)) })
}

/// The content of a disk with the copies that these keys have.
pub fn image(keys: &Keys) -> Bytes {
    let mut disk = vec![0; DISK_BYTES as usize];
    for (place, key) in disk.chunks_mut(COPY_BYTES).zip([0, 1].map(Key::Record)) {
        let copy = match keys.get(&key.to_string()) {
            Some(copy) if copy.is_empty() => continue,
            Some(copy) if (END_BYTES..=COPY_BYTES).contains(&copy.len()) => copy,
            _ => {
                place.fill(0xff);
                continue;
            }
        };
        let (body, end) = copy.split_at(copy.len() - END_BYTES);
        place[..body.len()].copy_from_slice(body);
        place[COPY_BYTES - END_BYTES..].copy_from_slice(end);
    }
    disk.into()
}
