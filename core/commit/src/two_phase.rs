//! What the protocols with two phases have in common. Presume-nothing and presume-commit differ only in how they commit (`prn`, `prc`);
//! early prepare asks otherwise, too, and has the same end of an abort and the same doubts (`early_prepare`). The file of each protocol has
//! what it does by itself, and leaves everything else to this one.

use crate::coordinator::{Content, Coordinator, Input, Phase};
use crate::worker::{self, Worker};
use crate::{Body, CoordinatorStage, Payload, Protocol, RecordKind, Step};

/// What the coordinator does, until it commits: it asks the workers, and has both sides prepare.
pub(crate) fn coordinate<P: Payload>(this: &mut Coordinator<P>, input: Input<P>, out: &mut Vec<Step<P>>) {
    match (this.phase, input) {
        (Phase::New, Input::Begin) => this.log_begun(Content::Workers, out),
        (Phase::Beginning, Input::Logged(RecordKind::Begun)) => {
            this.phase = Phase::Updating;
            this.ask_next(out);
        }
        (Phase::Updating, Input::Message(from, Body::Updated { verdicts })) if this.note_verdicts(from, &verdicts) => {
            if this.is_refused() {
                this.log_aborted(true, out);
            } else if !this.ask_next(out) {
                this.log_prepared(out);
                this.tell_all(&Body::Prepare, out);
            }
        }
        (Phase::Preparing, Input::Logged(RecordKind::Prepared)) => {
            this.is_own_prepared = true;
            commit_if_prepared(this, out);
        }
        (Phase::Preparing, Input::Message(from, Body::Prepared { verdicts }))
            if this.note_verdicts(from, &verdicts) =>
        {
            commit_if_prepared(this, out);
        }
        (Phase::Updating | Phase::Preparing, Input::Message(_, Body::NotPrepared)) => this.log_aborted(true, out),
        (Phase::Updating | Phase::Preparing, Input::Silence { is_last: true }) => this.log_aborted(true, out),
        (Phase::Aborting, Input::Logged(RecordKind::Aborted)) => this.on_aborted(false, out),

        (Phase::Updating, Input::Silence { .. }) => this.ask_missing(out),
        (Phase::Preparing, Input::Silence { .. }) => this.tell_missing(&Body::Prepare, out),
        (_, Input::Found(CoordinatorStage::Prepared)) => {
            this.hold(out);
            this.phase = Phase::Preparing;
            this.tell_all(&Body::Prepare, out);
        }
        (_, input) => abort(this, input, out),
    }
}

fn commit_if_prepared<P: Payload>(this: &mut Coordinator<P>, out: &mut Vec<Step<P>>) {
    if this.is_prepared() {
        // A worker that has restarted may have evaluated the requests again, and refused.
        match this.is_refused() {
            true => this.log_aborted(true, out),
            // Who presumes nothing has to tell the workers.
            false => this.log_committed(this.protocol == Protocol::PresumeNothing, out),
        }
    }
}

/// What the coordinator does until all workers know of an abort.
pub(crate) fn abort<P: Payload>(this: &mut Coordinator<P>, input: Input<P>, out: &mut Vec<Step<P>>) {
    match (this.phase, input) {
        (Phase::Aborted, Input::Message(from, Body::Acknowledge)) if this.note_confirmed(from) => this.log_ended(out),
        (Phase::Aborted, Input::Message(from, Body::Ask)) => this.send(from, Body::Abort, out),
        (Phase::Aborted, Input::Silence { .. }) => this.tell_missing(&Body::Abort, out),
        (_, Input::Found(CoordinatorStage::Begun)) => this.log_aborted(true, out),
        (_, Input::Found(CoordinatorStage::Aborted)) => {
            this.phase = Phase::Aborted;
            this.tell_all(&Body::Abort, out);
        }
        _ => {}
    }
}

/// What the worker does, until it commits.
pub(crate) fn work<P: Payload>(this: &mut Worker<P>, input: worker::Input<P>, out: &mut Vec<Step<P>>) {
    use worker::{Input, Phase};
    match (this.phase, input) {
        (Phase::New, Input::Message(Body::Update { requests })) => this.evaluate(requests, out),
        (Phase::Evaluating, Input::Evaluated(evaluations)) => {
            let is_accepted = this.note_evaluations(evaluations);
            this.phase = Phase::Updated;
            this.send_updated(out);
            if !is_accepted {
                // The coordinator aborts. Until then nothing here says so, and nothing has to.
                this.forget(out);
            }
        }
        (Phase::Updated, Input::Message(Body::Update { .. })) => this.send_updated(out),
        (Phase::Updated, Input::Message(Body::Prepare)) => this.log_prepared(out),
        (Phase::Preparing, Input::Logged(RecordKind::Prepared)) => {
            this.phase = Phase::Prepared;
            this.send_prepared(out);
        }
        (Phase::Prepared, Input::Message(Body::Prepare)) => this.send_prepared(out),
        (
            Phase::New | Phase::Evaluating | Phase::Updated | Phase::Preparing | Phase::Prepared,
            Input::Message(Body::Abort),
        ) => this.log_aborted(out),
        (Phase::Aborting, Input::Logged(RecordKind::Aborted)) => {
            this.phase = Phase::Aborted;
            this.release(out);
            this.send(Body::Acknowledge, out);
        }

        (Phase::New, Input::Message(Body::Prepare)) => this.send(Body::NotPrepared, out),
        (Phase::Updated, Input::Silence { is_last: true }) => this.forget(out),
        (_, input) => ask(this, input, out),
    }
}

/// What the worker does while it does not know the outcome, and after an abort.
pub(crate) fn ask<P: Payload>(this: &mut Worker<P>, input: worker::Input<P>, out: &mut Vec<Step<P>>) {
    use worker::{Input, Phase};
    match (this.phase, input) {
        (Phase::Aborted, Input::Message(Body::Abort)) => this.send(Body::Acknowledge, out),
        (Phase::Prepared, Input::Silence { .. }) => this.send(Body::Ask, out),
        (Phase::Prepared, Input::Found) => {
            this.hold(out);
            this.send(Body::Ask, out);
        }
        _ => {}
    }
}
