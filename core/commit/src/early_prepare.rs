//! Early prepare (EP): section II-E of the one-phase-commit paper, figure 4. It is presumed commit (`prc`), in which UPDATE also asks the worker
//! to prepare, and UPDATED also says that it has.
//!
//! ```text
//!   coordinator                          worker
//!    STARTED ═
//!    PREPARED ═ ───── UPDATE ────────────► locks, evaluation, PREPARED ═
//!      ◄───────────── UPDATED ───────────┤
//!    COMMITTED ═   locks released, client answered; the record is gone
//!      ├───────────── COMMIT ────────────► COMMITTED ─   locks released       ═ forced   ─ not forced
//! ```
//!
//! A worker that refuses logs that before it says so: a late copy of the request would be prepared otherwise. Then it need not hear of the
//! abort. Several workers are asked one after the other.
//!
//! Recovery: as `prc`, but after PREPARED it is UPDATE that is sent again. A worker that knows nothing of it prepares now.

use crate::coordinator::{Content, Coordinator, Input, Phase};
use crate::worker::{self, Worker};
use crate::{Body, CoordinatorStage, Payload, RecordKind, Step, two_phase};

pub(crate) fn coordinate<P: Payload>(this: &mut Coordinator<P>, input: Input<P>, out: &mut Vec<Step<P>>) {
    match (this.phase, input) {
        (Phase::New, Input::Begin) => this.log_begun(Content::Workers, out),
        (Phase::Beginning, Input::Logged(RecordKind::Begun)) => {
            this.log_prepared(out);
            this.ask_next(out);
        }
        (Phase::Preparing, Input::Logged(RecordKind::Prepared)) => {
            this.is_own_prepared = true;
            commit_if_prepared(this, out);
        }
        (Phase::Preparing, Input::Message(from, Body::Updated { verdicts })) if this.note_verdicts(from, &verdicts) => {
            if this.is_refused() {
                this.log_aborted(true, out);
            } else if !this.ask_next(out) {
                commit_if_prepared(this, out);
            }
        }
        (Phase::Preparing, Input::Silence { is_last: true }) => this.log_aborted(true, out),
        (Phase::Committing, Input::Logged(RecordKind::Committed)) => {
            this.phase = Phase::Over;
            this.release(out);
            this.answer(out);
            this.announce(&Body::Commit, out);
        }
        (Phase::Aborting, Input::Logged(RecordKind::Aborted)) => this.on_aborted(true, out),

        (Phase::Preparing, Input::Silence { .. }) => this.ask_missing(out),
        (_, Input::Found(CoordinatorStage::Prepared)) => {
            this.hold(out);
            this.phase = Phase::Preparing;
            this.ask_anew(out);
        }
        (_, input) => two_phase::abort(this, input, out),
    }
}

fn commit_if_prepared<P: Payload>(this: &mut Coordinator<P>, out: &mut Vec<Step<P>>) {
    if this.is_prepared() {
        this.log_committed(false, out);
    }
}

pub(crate) fn work<P: Payload>(this: &mut Worker<P>, input: worker::Input<P>, out: &mut Vec<Step<P>>) {
    use worker::{Input, Phase};
    match (this.phase, input) {
        (Phase::New, Input::Message(Body::Update { requests })) => this.evaluate(requests, out),
        (Phase::Evaluating, Input::Evaluated(evaluations)) => match this.note_evaluations(evaluations) {
            true => this.log_prepared(out),
            false => this.log_refused(out),
        },
        (Phase::Preparing, Input::Logged(RecordKind::Prepared)) => {
            this.phase = Phase::Prepared;
            this.send_updated(out);
        }
        (Phase::Prepared, Input::Message(Body::Update { .. })) => this.send_updated(out),
        (Phase::Prepared, Input::Message(Body::Commit)) => {
            this.log_committed(false, out);
            this.release(out);
        }
        (Phase::New | Phase::Evaluating | Phase::Preparing | Phase::Prepared, Input::Message(Body::Abort)) => {
            this.log_aborted(out);
        }
        (Phase::Aborting, Input::Logged(RecordKind::Aborted)) => {
            this.phase = Phase::Aborted;
            this.release(out);
            match this.has_verdicts() {
                true => this.send_updated(out),
                false => this.send(Body::Acknowledge, out),
            }
        }

        (Phase::Aborted, Input::Message(Body::Update { .. })) if this.has_verdicts() => this.send_updated(out),
        (_, input) => two_phase::ask(this, input, out),
    }
}
