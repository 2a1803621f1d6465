//! One-phase commit (1PC): section III of the one-phase-commit paper, figure 5. The only worker commits as soon as it has done what it is
//! asked for, and that decides. The coordinator can commit whatever happens: its redo record is durable before the worker is asked.
//!
//! ```text
//!   coordinator                          worker
//!    STARTED and redo ═
//!      ├───────────── UPDATE ────────────► locks, evaluation, COMMITTED ═   locks released
//!      ◄───────────── UPDATED ───────────┤
//!    locks released, client answered
//!    COMMITTED ═ ──── ACKNOWLEDGE ───────► ENDED ─                            ═ forced   ─ not forced
//! ```
//!
//! Recovery (section III-C), and why no coordinator fences a silent worker or reads its log: `docs/commit-protocols.md`.
//!
//! A refusal is logged by the worker before it is said, and by the coordinator before the client hears it.

use crate::coordinator::{Content, Coordinator, Input, Phase};
use crate::worker::{self, Worker};
use crate::{Body, CoordinatorStage, Payload, RecordKind, Step};

pub(crate) fn coordinate<P: Payload>(this: &mut Coordinator<P>, input: Input<P>, out: &mut Vec<Step<P>>) {
    match (this.phase, input) {
        (Phase::New, Input::Begin) => this.log_begun(Content::Operations, out),
        (Phase::Beginning, Input::Logged(RecordKind::Begun)) => {
            this.phase = Phase::Updating;
            this.ask_next(out);
        }
        (Phase::Updating, Input::Message(from, Body::Updated { verdicts })) if this.note_verdicts(from, &verdicts) => {
            if this.is_refused() {
                this.log_aborted(false, out);
            } else {
                this.log_committed(false, out);
                this.release(out);
                this.answer(out);
            }
        }
        (Phase::Committing, Input::Logged(RecordKind::Committed)) => {
            this.phase = Phase::Over;
            this.announce(&Body::Acknowledge, out);
        }
        (Phase::Aborting, Input::Logged(RecordKind::Aborted)) => {
            this.phase = Phase::Over;
            this.release(out);
            this.answer(out);
            this.announce(&Body::Acknowledge, out);
        }

        (Phase::Updating, Input::Silence { .. }) => this.ask_missing(out),

        (_, Input::Found(CoordinatorStage::Begun)) => {
            this.hold(out);
            this.phase = Phase::Updating;
            this.ask_anew(out);
        }
        _ => {}
    }
}

pub(crate) fn work<P: Payload>(this: &mut Worker<P>, input: worker::Input<P>, out: &mut Vec<Step<P>>) {
    use worker::{Input, Phase};
    match (this.phase, input) {
        (Phase::New, Input::Message(Body::Update { requests })) => this.evaluate(requests, out),
        (Phase::Evaluating, Input::Evaluated(evaluations)) => match this.note_evaluations(evaluations) {
            true => this.log_committed(true, out),
            false => this.log_refused(out),
        },
        (Phase::Committing, Input::Logged(RecordKind::Committed)) => {
            this.phase = Phase::Committed;
            this.release(out);
            this.send_updated(out);
        }
        (Phase::Committed, Input::Message(Body::Acknowledge)) => this.log_ended(out),
        (Phase::Aborting, Input::Logged(RecordKind::Aborted)) => {
            this.phase = Phase::Aborted;
            this.release(out);
            this.send_updated(out);
        }

        (Phase::Committed | Phase::Aborted, Input::Message(Body::Update { .. })) => this.send_updated(out),
        (Phase::Committed, Input::Silence { .. } | Input::Found) => this.send_updated(out),
        _ => {}
    }
}
