//! Two-phase commit that presumes a commit (PrC): section II-D of the one-phase-commit paper, figure 3.
//!
//! ```text
//!   coordinator                          worker
//!    STARTED ═
//!      ├───────────── UPDATE ────────────► locks, evaluation
//!      ◄───────────── UPDATED ───────────┤
//!    PREPARED ═ ───── PREPARE ───────────► PREPARED ═
//!      ◄───────────── PREPARED ──────────┤
//!    COMMITTED ═   locks released, client answered; the record is gone
//!      ├───────────── COMMIT ────────────► COMMITTED ─   locks released       ═ forced   ─ not forced
//! ```
//!
//! A worker that asks about a transaction without a record hears COMMIT. So each transaction that did not commit has a record: STARTED is
//! forced before anybody is asked, and after an abort the record stays until every worker has a durable ABORTED. That record keeps a late
//! UPDATE from being prepared: it would ask, and be told COMMIT.
//!
//! Recovery: as `prn`, but COMMITTED is no record, and ASK without a record is answered with COMMIT (`Commits`).

use crate::coordinator::{Coordinator, Input, Phase};
use crate::worker::{self, Worker};
use crate::{Body, Payload, RecordKind, Step, two_phase};

pub(crate) fn coordinate<P: Payload>(this: &mut Coordinator<P>, input: Input<P>, out: &mut Vec<Step<P>>) {
    match (this.phase, input) {
        (Phase::Committing, Input::Logged(RecordKind::Committed)) => {
            this.phase = Phase::Over;
            this.release(out);
            this.answer(out);
            this.announce(&Body::Commit, out);
        }
        (_, input) => two_phase::coordinate(this, input, out),
    }
}

pub(crate) fn work<P: Payload>(this: &mut Worker<P>, input: worker::Input<P>, out: &mut Vec<Step<P>>) {
    use worker::{Input, Phase};
    match (this.phase, input) {
        (Phase::Prepared, Input::Message(Body::Commit)) => {
            this.log_committed(false, out);
            this.release(out);
        }
        (_, input) => two_phase::work(this, input, out),
    }
}
