//! A machine whose steps are recorded.

use crate::format::RecordedOutcome;
use crate::recorder::Recorder;
use braid_base::{Now, Time};
use braid_machine::{EffectsOf, InputOf, Machine};
use serde::Serialize;

/// A machine whose steps are recorded, if there is a recorder. The recording ends with it.
pub struct Recorded<M> {
    machine: M,
    recorder: Option<Recorder>,
}

impl<M> Recorded<M> {
    pub fn new(machine: M, recorder: Option<Recorder>) -> Recorded<M> {
        Recorded { machine, recorder }
    }
}

impl<M: Machine<Request: Clone + Serialize, Outcome: RecordedOutcome>> Machine for Recorded<M> {
    type Request = M::Request;
    type Outcome = M::Outcome;
    type Disk = M::Disk;

    fn step(&mut self, now: Now, input: InputOf<M>, out: &mut EffectsOf<M>) {
        let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_recording()) else {
            return self.machine.step(now, input, out);
        };
        recorder.put_input::<M>(now, &input);
        let before = out.as_slice().len();
        self.machine.step(now, input, out);
        recorder.put_effects::<M>(&out.as_slice()[before..]);
    }

    fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    fn invariants(&self) {
        self.machine.invariants();
    }
}
