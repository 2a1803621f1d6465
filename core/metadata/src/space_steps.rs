//! What the server does for free blocks: it carries out the actions of [`SpaceRequests`].

use crate::operation::Operation;
use crate::server::{MetadataServer, OwnOperation};
use crate::space_requests::{SpaceAction, SpaceRequests};
use braid_base::{BlockRange, Now, ObjectId};
use braid_machine::{Effects, Ignored};
use braid_wire::{DATA_LOCK, FileCommand, FileError, LockExtent, LockMode};
use std::collections::VecDeque;

/// Conflicts with the lock that each host has which may have an allotment.
const ALLOTMENTS: (ObjectId, LockExtent) = (
    ObjectId(0),
    LockExtent { position: DATA_LOCK, range: BlockRange { start: 0, count: 1 }, mode: LockMode::Exclusive },
);

impl MetadataServer {
    /// Lends the requests for free blocks to `act`, and does what follows.
    pub(crate) fn step_space(
        &mut self,
        now: Now,
        act: impl FnOnce(&mut SpaceRequests, &mut Vec<SpaceAction>),
        out: &mut Effects,
    ) {
        let mut actions = Vec::new();
        act(&mut self.own.space, &mut actions);
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                SpaceAction::Evaluate { name, settled, blocks, is_last } => {
                    let (command, is_full) = (FileCommand::Reserve { blocks }, self.room().is_full());
                    let operation = Operation::of_host(name.host, command, now.clock, is_full);
                    let operation = if is_last { operation } else { operation.unless_short() };
                    if !self.run(now, name, settled, Box::new(operation), out) {
                        self.own.space.end(|other| other == name);
                        out.ignore(Ignored::Settled);
                    }
                }
                SpaceAction::Refuse(name) => self.answer(now, name.host, name.sequence, Err(FileError::Busy), out),
                SpaceAction::Send { to, body } => self.reply_to(now, to, body, out),
                SpaceAction::Log(step) => self.run_own(now, OwnOperation::Space(step), out),
                SpaceAction::Revoke => {
                    let (object, extent) = ALLOTMENTS;
                    let hosts = self.with_locks(now, out, |locks, out| locks.call_on_holders(object, extent, out));
                    let mut follow = Vec::new();
                    self.own.space.on_revoked(now, hosts, &mut follow);
                    actions.extend(follow);
                }
                SpaceAction::Ignore(why) => out.ignore(why),
            }
        }
    }
}
