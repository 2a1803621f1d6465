//! Requests of clients on objects that ended with an unknown outcome: when it is decided whether they have happened.

use crate::prelude::*;
use braid_check::{Moment, ObjectHistory, ObjectOperationId};
use braid_objects::BucketAddress;
use braid_wire::ObjectFailure;

/// Requests of unknown outcome.
#[derive(Clone, Debug, Default)]
pub(crate) struct UndecidedRequests {
    /// Requests to the attribute volume: the host, the bucket, when they ended, and the request.
    pub open: Vec<(u32, BucketAddress, Time, ObjectOperationId)>,
    /// Abandoned requests to devices, which may still happen: the host, the device, when the client was told, and the request.
    abandoned: Vec<(u32, DeviceId, Moment, ObjectOperationId)>,
}

impl UndecidedRequests {
    /// Ends the open requests of this host to a bucket that ended with an unknown outcome before it issued a request that was
    /// answered.
    pub fn close(
        &mut self,
        history: &mut ObjectHistory,
        now: Time,
        (host, place): (u32, BucketAddress),
        asked: Moment,
    ) {
        let is_over = |(of, at, ended, _): &(u32, BucketAddress, Time, ObjectOperationId)| {
            *of == host && *at == place && *ended <= asked.time
        };
        for (.., id) in self.open.extract_if(.., |open| is_over(open)) {
            history.is_over(id, now);
        }
    }

    /// An abandoned request has happened once the same host gets an answer of that device to a later request, or it never will
    /// (`docs/objects.md`).
    pub fn hold_to_what_was_abandoned(
        &mut self,
        history: &mut ObjectHistory,
        now: Time,
        id: ObjectOperationId,
        outcome: &HostOutcome,
    ) {
        let operation = history.operation(id);
        let (host, device, asked) = (operation.client.host, operation.device, operation.invoked);
        let is_answer = match outcome {
            Ok(_) => true,
            // This does not hold for errors that the host finds by itself.
            Err(HostError::Objects(refusal)) => {
                refusal.failure != ObjectFailure::Busy && operation.request.check().is_ok()
            }
            _ => false,
        };
        if is_answer {
            let is_over = |(of, at, ended, _): &mut (u32, DeviceId, Moment, ObjectOperationId)| {
                *of == host && *at == device && ended.number < asked.number
            };
            for (.., id) in self.abandoned.extract_if(.., is_over) {
                history.is_over(id, now);
            }
        } else if matches!(outcome, Err(HostError::TimedOut { .. })) && !operation.request.only_asks() {
            let ended = history.moment(now);
            self.abandoned.push((host, device, ended, id));
        }
    }
}
