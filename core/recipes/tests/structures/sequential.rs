//! Sequential execution: one operation after the other by a single client, so that each result is known.

use crate::bench::*;

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
    pub fn run<P: Procedure>(&mut self, procedure: P) -> P::Output {
        self.drive(procedure, |alone, request| alone.execute(&request))
    }

    /// Runs an operation that does not receive the answer to its first changing request, which was executed or not (`done`). `meanwhile`
    /// runs before its next request.
    pub fn run_losing<P: Procedure>(
        &mut self,
        procedure: P,
        done: bool,
        meanwhile: impl FnOnce(&mut Space),
    ) -> P::Output {
        let (mut meanwhile, began) = (Some(meanwhile), self.now);
        let output = self.drive(procedure, |alone, request| {
            let before = alone.space.clone();
            let answer = alone.execute(&request);
            if alone.space != before
                && let Some(meanwhile) = meanwhile.take()
            {
                if !done {
                    alone.space = before;
                }
                meanwhile(&mut alone.space);
                return Answer::RequestFailure(RequestFailure::Unknown);
            }
            answer
        });
        assert_eq!(self.now, began, "there is nothing to wait for");
        output
    }

    /// Runs an operation whose requests are answered so.
    fn drive<P: Procedure>(
        &mut self,
        mut procedure: P,
        mut answers: impl FnMut(&mut Alone, ObjectRequest) -> Answer,
    ) -> P::Output {
        let mut answer = Answer::None;
        for _ in 0..10_000 {
            answer = match procedure.resume(self.now, &mut self.rng, answer) {
                Next::Done(output) => return output,
                Next::Ask { request, .. } => answers(self, request),
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

    /// Runs an operation, and returns how many round trips it took.
    pub fn count<P: Procedure>(&mut self, procedure: P) -> (P::Output, u64) {
        let before = self.trips;
        let output = self.run(procedure);
        (output, self.trips - before)
    }

    fn execute(&mut self, request: &ObjectRequest) -> Answer {
        self.trips += 1;
        self.space.answer(request)
    }

    pub fn pass(&mut self, span: Duration) {
        self.now = self.now.after(span);
    }
}
