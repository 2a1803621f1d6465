//! A workload is a small piece of work that is measured in rounds. Each round has a preparation, which is not measured, and a
//! measured part.

use std::hint::black_box;

/// The most rounds that can be prepared at once, so that their transactions do not conflict.
pub const ROUNDS_MAX: usize = 256;

pub struct Workload {
    /// `subject/piece`
    pub name: &'static str,
    /// The bytes of data in one round; zero if it has none.
    pub bytes: usize,
    begin: Box<dyn Fn() -> Box<dyn Rounds>>,
}

/// A workload that was set up.
pub trait Rounds {
    /// Prepares `count` rounds, at most [`ROUNDS_MAX`]. This is not measured.
    fn prepare(&mut self, count: usize);

    /// Executes the prepared rounds. This is measured.
    fn run(&mut self);
}

impl Workload {
    /// A workload on a state made by `begin`. In every round `prepare` makes an input, and `run`, which is measured, takes it.
    /// Several inputs may be made before the first is taken.
    pub fn new<S: 'static, I: 'static, O>(
        name: &'static str,
        begin: impl Fn() -> S + 'static,
        prepare: impl Fn(&mut S) -> I + Copy + 'static,
        run: impl Fn(&mut S, I) -> O + Copy + 'static,
    ) -> Workload {
        let begin =
            move || -> Box<dyn Rounds> { Box::new(Prepared { state: begin(), prepare, run, inputs: Vec::new() }) };
        Workload { name, bytes: 0, begin: Box::new(begin) }
    }

    /// A workload whose rounds are all the same and do not change the state.
    pub fn same<S: 'static, O>(
        name: &'static str,
        begin: impl Fn() -> S + 'static,
        run: impl Fn(&S) -> O + Copy + 'static,
    ) -> Workload {
        Workload::new(name, begin, |_| (), move |state, ()| run(black_box(state)))
    }

    /// Sets the bytes of data in a round.
    pub fn of_bytes(self, bytes: usize) -> Workload {
        Workload { bytes, ..self }
    }

    /// Sets up the workload.
    pub fn begin(&self) -> Box<dyn Rounds> {
        (self.begin)()
    }
}

struct Prepared<S, I, P, R> {
    state: S,
    prepare: P,
    run: R,
    inputs: Vec<I>,
}

impl<S, I, O, P: Fn(&mut S) -> I, R: Fn(&mut S, I) -> O> Rounds for Prepared<S, I, P, R> {
    fn prepare(&mut self, count: usize) {
        assert!(count <= ROUNDS_MAX && self.inputs.is_empty());
        self.inputs.extend((0..count).map(|_| (self.prepare)(&mut self.state)));
    }

    fn run(&mut self) {
        for input in self.inputs.drain(..) {
            black_box((self.run)(&mut self.state, black_box(input)));
        }
    }
}
