//! The effects of a new membership: it ends writes that were announced in an earlier epoch, transactions that other
//! devices decided during an absence of this device, and transactions of hosts that are gone.

use super::Scheduler;
use super::ctx::Ctx;
use super::transactions::State;
use braid_base::{Generation, Membership, TransactionId};

impl Scheduler {
    /// The device has adopted a new membership, durably. `dropped`: intents that the store dropped because the device
    /// was out.
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
        // Commits that were kept only for fenced hosts need not be kept any longer.
        self.order.ledger.release_fenced(&membership.fence);
    }

    /// Drops pre-writes without an intent, and all waiting requests: hosts begin them anew in the new epoch. If a
    /// pre-write became an intent of an earlier epoch now, no record of missed writes would contain it. Writes that
    /// take effect on arrival belong to the epoch in which they arrive, so their hosts continue with them.
    fn drop_announced(&mut self, cx: &mut Ctx) {
        self.reservation.take_deferred();
        self.columns.drop_readers(&mut self.order, |_| true);
        let since = cx.devices_since();
        self.columns.drop_early(|_, epoch| epoch < since);
        for id in self.order.waiting.in_order() {
            self.order.waiting.take(id);
        }
        for id in self.order.ledger.in_state(|state| state == State::Prewritten) {
            let object = self.order.ledger.get(id).expect("just listed").object;
            if cx.is_unannounced(object) {
                self.order.put_off(cx, id);
            } else if !self.outlives_epoch(cx, id) {
                self.order.promise_abort(cx, id);
            }
        }
        self.resume_waiting(cx);
    }

    /// Forgets all transactions on redundant objects that this device shares with others. The others decided them while
    /// this device was out.
    fn drop_undecided(&mut self, cx: &mut Ctx, dropped: Vec<TransactionId>) {
        for id in dropped {
            if self.order.ledger.get(id).is_some_and(|held| held.state == State::Prepared) {
                self.order.ledger.advance(cx, id, State::Aborted);
            }
        }
        let decided = |state| matches!(state, State::Committed | State::Aborted | State::Applied);
        for id in self.order.ledger.in_state(decided) {
            let held = self.order.ledger.get(id).expect("just listed");
            let object = held.object;
            if held.state == State::Applied && cx.can_be_suspect(object) {
                // The other participants may lack this write.
                self.order.ledger.suspect(cx, id);
                continue;
            }
            // A transaction that was refused before its blocks were known has no object.
            if self.order.ledger.is_before_return(cx, id) || cx.object(object).is_none() {
                // The store goes by objects that exist, and may still remember it.
                self.order.ledger.forget(cx, id);
            }
        }
    }

    /// A host's lease has expired: its pre-writes are dropped, and its undecided intents are left for other hosts to
    /// resolve.
    pub fn expire(&mut self, cx: &mut Ctx, host: Generation) {
        if let Some(locked) = self.locks.end(host) {
            self.order.stamps.raise_floor(locked);
        }
        self.reservation.drop_deferred_of(host);
        self.columns.drop_readers(&mut self.order, |id| id.host == host);
        self.columns.drop_early(|of, _| of == host);
        for id in self.order.ledger.table().of_host_below(host, u64::MAX) {
            match self.order.ledger.get(id).map(|transaction| transaction.state) {
                Some(State::Prewritten) => self.cut_short(cx, id),
                Some(_) => self.order.ledger.keep_or_forget(cx, id),
                None => {}
            }
        }
        for id in self.order.waiting.of_host_below(host, u64::MAX) {
            self.order.waiting.take(id);
        }
    }

    /// Looks for transactions that have stayed undecided for `patrols` patrols though their hosts live. Intents are left for other hosts to
    /// resolve. Pre-writes for which others wait are dropped; their hosts begin them anew.
    pub fn look_for_undecided(&mut self, cx: &mut Ctx, patrols: u32) {
        for id in self.order.ledger.look_for_undecided(patrols) {
            let waits = self.order.is_being_read(id) || self.locks.is_waiting(id) || self.columns.has(id);
            if !waits {
                self.cut_short(cx, id);
            }
        }
    }

    /// True if the scheduler holds nothing of this host.
    pub fn holds_nothing_of(&self, host: Generation) -> bool {
        self.order.ledger.table().of_host_below(host, u64::MAX).is_empty()
            && self.order.waiting.of_host_below(host, u64::MAX).is_empty()
    }
}
