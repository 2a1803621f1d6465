//! Retries of operations, and their back-off. An operation whose attempt was refused is retried as a new transaction: the first time at
//! once, since it knows the stamp to beat, and later after a random wait that grows with each refusal. An operation that was refused
//! often waits less again, and takes stamps ahead of its host's clock: otherwise one with a clock behind those of the others, or on many
//! blocks, would be overtaken by new ones each time. Where a table is full, the longest waits remain: each attempt would fill tables more.

use crate::ctx::OperationId;
use crate::operations::Operations;
use braid_base::limits::Settings;
use braid_base::{HEAD_START_MAX, Now, Rng, Time};
use std::time::Duration;

/// The refusal after which waits become shorter again,
const LONGEST_WAIT_AFTER: u32 = 10;
/// until they are as long as after this many refusals.
const SHORT_WAIT_AFTER: u32 = 3;

/// The refusals that an operation has met.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    pub in_a_row: u32,
    /// The last one was for lack of room in a table, not because others came first.
    pub for_lack_of_room: bool,
    /// How far its next stamp is put ahead of the clock.
    pub head_start: Duration,
    /// When a device first refused its stamp as too far ahead, and when one last did.
    pub too_far_ahead: Option<(Time, Time)>,
}

impl Refusals {
    /// Notes by how much the stamp of its attempt was too low. What the host learns of the other clock is less, by the time that the
    /// refusal took: in that time the other host has taken higher stamps.
    ///
    /// Where a lock server grants the blocks, each retry waits in its queue again, and what the host has learned fades meanwhile: such an
    /// operation gets a head start from its second refusal on.
    pub fn on_too_late(&mut self, by: Duration, queues_again: bool) {
        if self.in_a_row >= if queues_again { 1 } else { LONGEST_WAIT_AFTER } {
            self.head_start = (self.head_start + by).min(HEAD_START_MAX);
        }
    }
}

impl Operations {
    /// Schedules a retry after the back-off, because an attempt was refused.
    pub fn try_again(&mut self, now: Now, settings: &Settings, rng: &mut Rng, op: OperationId) {
        let is_abandoned = self.is_abandoned(op);
        let operation = self.of_mut(op);
        operation.attempt = None;
        operation.refusals.in_a_row += 1;
        operation.delayed = true;
        // The first retry knows the stamp to beat, so it need not wait. Later retries back off, so that operations get
        // out of each other's way.
        let wait = match operation.refusals.in_a_row {
            _ if is_abandoned => Duration::ZERO,
            1 => Duration::ZERO,
            more => {
                let fewer = (2 * LONGEST_WAIT_AFTER).saturating_sub(more).max(SHORT_WAIT_AFTER);
                let steps = if operation.refusals.for_lack_of_room { more } else { more.min(fewer) };
                settings.backoff().after(steps).next_random_wait(settings.backoff_min, rng)
            }
        };
        self.retry_at(op, now.time.after(wait));
    }

    /// Schedules a retry at once, because an attempt ended for a reason that is not contention.
    pub fn begin_anew(&mut self, now: Now, op: OperationId) {
        let operation = self.of_mut(op);
        operation.attempt = None;
        operation.delayed = true;
        self.retry_at(op, now.time);
    }
}
