//! What a new membership ends: writes that were announced in the epoch before, what was decided in an absence, and hosts that are gone.

use super::Scheduler;
use super::ctx::Ctx;
use super::transactions::State;
use braid_base::{Generation, Membership, TransactionId};

impl Scheduler {
    /// The device lives by a new membership, which is durable. The store has dropped these intents, since the device was out.
    pub fn on_adopted(&mut self, cx: &mut Ctx, before: Option<&Membership>, dropped: Vec<TransactionId>) {
        let own = cx.device;
        let since = |membership: &Membership| membership.member(own).map(|member| member.since);
        let membership = cx.view.membership().expect("just adopted");
        let same_devices = before.is_some_and(|before| before.has_same_devices(membership));
        let was_unavailable = before.is_some_and(|before| since(before) < since(membership));
        if !same_devices {
            self.drop_announced(cx);
        }
        if was_unavailable {
            self.drop_undecided(cx, dropped);
        }
        // Commits that were kept only for hosts that are fenced need not be kept any longer.
        self.ledger.release_fenced(&membership.fence);
    }

    /// Drops what has no intent yet, and all that waits: hosts begin it anew in the new epoch. A write that were still to become an
    /// intent of an earlier epoch would be in no account of what others have missed. Those that take effect on arrival do so in the
    /// epoch of their arrival: their hosts go on with them.
    fn drop_announced(&mut self, cx: &mut Ctx) {
        self.reservation.take_deferred();
        for id in self.waiting.in_order() {
            self.waiting.take(id);
        }
        for id in self.ledger.in_state(|state| state == State::Prewritten) {
            let object = self.ledger.get(id).expect("just listed").object;
            if cx.is_unannounced(object) {
                self.put_off(cx, id);
            } else if !self.outlives_epoch(cx, id) {
                self.promise_abort(cx, id);
            }
        }
        self.resume_waiting(cx);
    }

    /// Forgets all transactions on redundant objects that it shares with others: while this device was out, they have decided them.
    fn drop_undecided(&mut self, cx: &mut Ctx, dropped: Vec<TransactionId>) {
        for id in dropped {
            if self.ledger.get(id).is_some_and(|held| held.state == State::Prepared) {
                self.ledger.advance(cx, id, State::Aborted);
            }
        }
        let decided = |state| matches!(state, State::Committed | State::Aborted | State::Applied);
        for id in self.ledger.in_state(decided) {
            let held = self.ledger.get(id).expect("just listed");
            let object = held.object;
            if held.state == State::Applied && cx.can_be_suspect(object) {
                // The others may lack it.
                self.ledger.suspect(cx, id);
                continue;
            }
            // One that was refused before it was known what it writes is of no object.
            if self.ledger.is_before_return(cx, id) || cx.object(object).is_none() {
                self.ledger.drop_decided(id);
            }
        }
    }

    /// A host's lease has ended: what it only announced is dropped, what it left undecided is for others to resolve.
    pub fn expire(&mut self, cx: &mut Ctx, host: Generation) {
        if let Some(locked) = self.locks.end(host) {
            self.stamps.raise_floor(locked);
        }
        self.reservation.drop_deferred_of(host);
        for id in self.ledger.table().of_host_below(host, u64::MAX) {
            match self.ledger.get(id).map(|transaction| transaction.state) {
                Some(State::Prewritten) => self.cut_short(cx, id),
                Some(_) => self.ledger.keep_or_forget(cx, id),
                None => {}
            }
        }
        for id in self.waiting.of_host_below(host, u64::MAX) {
            self.waiting.take(id);
        }
    }

    /// True if nothing is held of a host.
    pub fn holds_nothing_of(&self, host: Generation) -> bool {
        self.ledger.table().of_host_below(host, u64::MAX).is_empty()
            && self.waiting.of_host_below(host, u64::MAX).is_empty()
    }
}
