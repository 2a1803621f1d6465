//! Requests come in, and those again that waited for their stamps to be reserved.

use super::Scheduler;
use super::ctx::Ctx;
use super::reservation::Gate;
use super::waiting::ReadRequest;
use braid_base::{Generation, Stamp};
use braid_machine::Ignored;
use braid_store::Intent;
use braid_wire::{Command, Want};

impl Scheduler {
    /// Does what a host asks of a transaction. True if that was let read or write.
    ///
    /// A request says how its host takes the object to be ordered. That is compared when the device first hears of a transaction; what is done
    /// goes by the object alone.
    pub fn on_command(&mut self, cx: &mut Ctx, host: Generation, command: Command) -> bool {
        match self.reservation.admit(cx, &self.ledger, host, &command) {
            Gate::Open => {}
            Gate::Shut => return false,
            Gate::NotYet => {
                if !self.reservation.defer(host, command) {
                    cx.ignore(Ignored::InProgress);
                }
                return false;
            }
        }
        match command {
            Command::Read { transaction, stamp, object, extents, want, .. } => {
                let read = ReadRequest { object, extents, want, waited: false };
                self.on_read(cx, transaction, stamp, read);
                return true;
            }
            Command::Prewrite { transaction, stamp, object, prewrites, reads, .. } => {
                let reads = ReadRequest { object, extents: reads, want: Want::Data, waited: false };
                self.on_prewrite(cx, transaction, stamp, prewrites, reads);
                return true;
            }
            Command::Write { transaction, stamp, object, ordering, participants, linkage, mode, pieces } => {
                let epoch = cx.view.epoch();
                let intent = Intent { transaction, stamp, epoch, participants, linkage, object, pieces };
                self.on_write(cx, intent, ordering, mode);
                return true;
            }
            Command::Decide { transaction, stamp, outcome } => self.on_decide(cx, host, transaction, stamp, outcome),
            Command::Resolve { transaction, stamp } => self.on_resolve(cx, host, transaction, stamp),
            Command::Forget { transaction } => self.on_forget(cx, host, transaction),
            // Of no transaction.
            Command::Heartbeat | Command::Manage { .. } | Command::Objects { .. } | Command::Await { .. } => {
                cx.ignore(Ignored::NotForUs);
            }
        }
        false
    }

    /// More stamps are reserved. Tells what waited for that: it is to come again.
    pub fn on_reserved(&mut self, cx: &mut Ctx) -> Vec<(Generation, Command)> {
        // True if this disk has taken the place of another, and has yet to accept its first stamp.
        let is_new = self.reservation.is_new() && cx.is_returning();
        let until = self.reservation.reserved(cx.now.time);
        if is_new {
            // What the disk before it had accepted is not known here: nothing from before is taken any more. Here, too, a clock that
            // is wrong once is not followed far.
            self.stamps.raise_floor(Stamp::last_of(cx.now.clock.min(until)));
        }
        self.reservation.take_deferred()
    }
}
