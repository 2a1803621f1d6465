//! Passes requests to their handlers: new requests, and requests that waited until their stamps were reserved.

use super::Scheduler;
use super::ctx::Ctx;
use super::stamp_reservation::Gate;
use super::waiting::ReadRequest;
use braid_base::{DeviceId, Generation, Stamp};
use braid_blocks::Want;
use braid_machine::Ignored;
use braid_store::Intent;
use braid_wire::{Command, Outcome, Partial};

impl Scheduler {
    /// Executes a host's command on a transaction. True if it was admitted to read or write.
    ///
    /// A request carries the ordering that its host assumes for the object. The device compares it when it first hears
    /// of the transaction. From then on only the object's own ordering counts.
    pub fn on_command(&mut self, cx: &mut Ctx, host: Generation, command: Command) -> bool {
        match self.reservation.admit(cx, &self.order.ledger, host, &command) {
            Gate::Open => {}
            Gate::Shut => return false,
            Gate::NotYet => {
                if !self.reservation.defer(host, command) {
                    cx.ignore(Ignored::InProgress);
                }
                return false;
            }
        }
        if self.is_otherwise_busy(&command) {
            cx.ignore(Ignored::NotForUs);
            return false;
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
            Command::Execute { transaction, stamp, object, participants, linkage, column, .. } => {
                let (epoch, pieces) = (cx.view.epoch(), column.pieces.clone());
                let intent = Intent { transaction, stamp, epoch, participants, linkage, object, pieces };
                self.columns.on_execute(cx, &mut self.order, intent, *column);
                return true;
            }
            Command::Decide { transaction, stamp, outcome } => self.on_decide(cx, host, transaction, stamp, outcome),
            Command::Retract { transaction, stamp } => {
                if self.order.ledger.can_retract(cx, host, transaction) {
                    self.on_decide(cx, host, transaction, stamp, Outcome::Abort);
                }
            }
            Command::Resolve { transaction, stamp } => self.on_resolve(cx, host, transaction, stamp),
            Command::Forget { transaction } => self.on_forget(cx, host, transaction),
            // These belong to no transaction.
            Command::Heartbeat | Command::Manage { .. } | Command::Objects { .. } | Command::Await { .. } => {
                cx.ignore(Ignored::NotForUs);
            }
        }
        false
    }

    /// True if the transaction does something else here. On one device, a transaction either reads, or pre-writes and writes, or executes a
    /// column. A host that keeps to the protocol sends nothing else.
    fn is_otherwise_busy(&self, command: &Command) -> bool {
        let only_reads = |id| self.order.ledger.get(id).is_none() && self.order.is_being_read(id);
        match command {
            Command::Read { transaction: id, .. } => self.columns.has(*id),
            Command::Prewrite { transaction: id, .. } | Command::Write { transaction: id, .. } => {
                self.columns.has(*id) || only_reads(*id)
            }
            Command::Execute { transaction: id, .. } => !self.columns.has(*id) && only_reads(*id),
            _ => false,
        }
    }

    /// Another device has sent its part of a write that both execute.
    pub fn on_partial(&mut self, cx: &mut Ctx, from: DeviceId, partial: Partial) {
        self.columns.on_partial(cx, &mut self.order, from, partial);
        self.resume_waiting(cx);
    }

    /// More stamps are reserved. Returns the commands that waited for that; the device submits them again.
    pub fn on_reserved(&mut self, cx: &mut Ctx) -> Vec<(Generation, Command)> {
        // True if this disk has replaced another one and has yet to accept its first stamp.
        let is_new = self.reservation.is_new() && cx.is_returning();
        let until = self.reservation.reserved(cx.now.time);
        if is_new {
            // The stamps that the previous disk had accepted are unknown here: no stamp from before is accepted any
            // more. The minimum keeps a clock that is wrong once from carrying the floor far ahead.
            self.order.stamps.raise_floor(Stamp::last_of(cx.now.clock.min(until)));
        }
        self.reservation.take_deferred()
    }
}
