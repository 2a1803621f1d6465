//! Two-phase commit that presumes nothing (PrN): sections II-A to II-C of the one-phase-commit paper, figure 2.
//!
//! ```text
//!   coordinator                          worker
//!    STARTED ═
//!      ├───────────── UPDATE ────────────► locks, evaluation
//!      ◄───────────── UPDATED ───────────┤
//!    PREPARED ═ ───── PREPARE ───────────► PREPARED ═
//!      ◄───────────── PREPARED ──────────┤
//!    COMMITTED ═   locks released
//!      ├───────────── COMMIT ────────────► COMMITTED ═   locks released
//!      ◄──────────── ACKNOWLEDGE ────────┤
//!    ENDED ─   client answered                              ═ forced   ─ not forced
//! ```
//!
//! Recovery (section II-C) is in `docs/commit-protocols.md`.

use crate::coordinator::{Coordinator, Input, Phase};
use crate::worker::{self, Worker};
use crate::{Body, CoordinatorStage, Payload, RecordKind, Step, two_phase};

pub(crate) fn coordinate<P: Payload>(this: &mut Coordinator<P>, input: Input<P>, out: &mut Vec<Step<P>>) {
    match (this.phase, input) {
        (Phase::Committing, Input::Logged(RecordKind::Committed)) => {
            this.phase = Phase::Committed;
            this.release(out);
            this.tell_all(&Body::Commit, out);
        }
        (Phase::Committed, Input::Message(from, Body::Acknowledge)) if this.note_confirmed(from) => {
            this.log_ended(out);
            this.answer(out);
        }

        (Phase::Committed, Input::Message(from, Body::Ask)) => this.send(from, Body::Commit, out),
        (Phase::Committed, Input::Silence { .. }) => this.tell_missing(&Body::Commit, out),
        (_, Input::Found(CoordinatorStage::Committed)) => {
            this.phase = Phase::Committed;
            this.tell_all(&Body::Commit, out);
        }
        (_, input) => two_phase::coordinate(this, input, out),
    }
}

pub(crate) fn work<P: Payload>(this: &mut Worker<P>, input: worker::Input<P>, out: &mut Vec<Step<P>>) {
    use worker::{Input, Phase};
    match (this.phase, input) {
        (Phase::Prepared, Input::Message(Body::Commit)) => this.log_committed(true, out),
        (Phase::Committing, Input::Logged(RecordKind::Committed)) => {
            this.phase = Phase::Committed;
            this.release(out);
            this.send(Body::Acknowledge, out);
        }
        (Phase::New | Phase::Committed, Input::Message(Body::Commit)) => this.send(Body::Acknowledge, out),
        (_, input) => two_phase::work(this, input, out),
    }
}
