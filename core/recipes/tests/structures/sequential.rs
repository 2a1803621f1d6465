//! Sequential execution: one operation after the other by a single client, so that each result is known.

use crate::bench::space::Space;
use braid_base::{Rng, Time};
use braid_recipes::{Answer, Next, Procedure, RequestFailure};
use braid_wire::ObjectRequest;
use std::time::Duration;

/// A space of objects, and one client.
pub struct Alone {
    pub space: Space,
    pub now: Time,
    pub rng: Rng,
    /// How many requests were made.
    pub trips: u64,
}

impl Alone {
    pub fn with(space: Space) -> Alone {
        Alone { space, now: Time(0), rng: Rng::new(1), trips: 0 }
    }

    /// Runs an operation to its end.
    pub fn run<P: Procedure>(&mut self, mut procedure: P) -> P::Output {
        let mut answer = Answer::None;
        for _ in 0..10_000 {
            answer = match procedure.resume(self.now, &mut self.rng, answer) {
                Next::Done(output) => return output,
                Next::Ask { request, .. } => {
                    self.trips += 1;
                    self.execute(&request)
                }
                Next::Await { object, name, patience, .. } => {
                    self.pass(patience);
                    Answer::Value(self.space.value(object, name))
                }
                Next::Sleep(span) => {
                    self.pass(span);
                    Answer::None
                }
            };
        }
        panic!("it does not end");
    }

    /// Runs an operation until it makes another request after this many were executed, and leaves it there, as if its client crashed.
    /// Returns that request, unless the operation ended before.
    pub fn run_part<P: Procedure>(&mut self, mut procedure: P, requests: u64) -> Option<ObjectRequest> {
        let mut answer = Answer::None;
        let mut done = 0;
        loop {
            answer = match procedure.resume(self.now, &mut self.rng, answer) {
                Next::Done(_) => return None,
                Next::Ask { request, .. } if done == requests => return Some(request),
                Next::Ask { request, .. } => {
                    done += 1;
                    self.execute(&request)
                }
                Next::Await { object, name, patience, .. } => {
                    self.pass(patience);
                    Answer::Value(self.space.value(object, name))
                }
                Next::Sleep(span) => {
                    self.pass(span);
                    Answer::None
                }
            };
        }
    }

    /// Runs an operation that does not receive the answer to its first changing request, which was executed or not (`done`). `meanwhile`
    /// runs before its next request.
    pub fn run_losing<P: Procedure>(
        &mut self,
        mut procedure: P,
        done: bool,
        meanwhile: impl FnOnce(&mut Space),
    ) -> P::Output {
        let mut meanwhile = Some(meanwhile);
        let mut answer = Answer::None;
        for _ in 0..100 {
            let request = match procedure.resume(self.now, &mut self.rng, answer) {
                Next::Done(output) => return output,
                Next::Ask { request, .. } => request,
                Next::Await { .. } | Next::Sleep(_) => panic!("there is nothing to wait for"),
            };
            let before = self.space.clone();
            answer = self.execute(&request);
            if self.space != before
                && let Some(meanwhile) = meanwhile.take()
            {
                if !done {
                    self.space = before;
                }
                meanwhile(&mut self.space);
                answer = Answer::RequestFailure(RequestFailure::Unknown);
            }
        }
        panic!("it does not end");
    }

    /// Runs an operation, and returns how many round trips it took.
    pub fn count<P: Procedure>(&mut self, procedure: P) -> (P::Output, u64) {
        let before = self.trips;
        let output = self.run(procedure);
        (output, self.trips - before)
    }

    fn execute(&mut self, request: &ObjectRequest) -> Answer {
        match self.space.execute(request) {
            Ok(results) => Answer::Results(results),
            Err(refusal) => Answer::RequestFailure(RequestFailure::Refused(refusal.failure)),
        }
    }

    pub fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }
}
