//! A machine whose steps are recorded, and the handle by which other code records how it changes this machine by other means than inputs.

use crate::format::{RecordedOutcome, encode};
use crate::recorder::Recorder;
use braid_base::{Now, Time};
use braid_machine::{EffectsOf, InputOf, Machine};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

/// A recording under way. Clones share it.
#[derive(Clone, Debug)]
pub struct Recording(Arc<Mutex<Option<Recorder>>>);

impl Recording {
    pub fn new(recorder: Recorder) -> Recording {
        Recording(Arc::new(Mutex::new(Some(recorder))))
    }

    /// Records a change of the machine that is not an input. To be called in the thread of the machine, together with the change: no step
    /// may come in between.
    pub fn put_adjustment(&self, adjustment: &impl Serialize) {
        self.with(|recorder| recorder.put_adjustment(encode(adjustment)));
    }

    /// Ends the recording: waits until everything is in the file.
    fn end(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn with(&self, act: impl FnOnce(&mut Recorder)) {
        if let Some(recorder) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            act(recorder);
        }
    }
}

/// A machine whose steps are recorded, if there is a recording. The recording ends with it.
pub struct Recorded<M> {
    machine: M,
    recording: Option<Recording>,
}

impl<M> Recorded<M> {
    pub fn new(machine: M, recording: Option<Recording>) -> Recorded<M> {
        Recorded { machine, recording }
    }
}

impl<M: Machine<Request: Clone + Serialize, Outcome: RecordedOutcome>> Machine for Recorded<M> {
    type Request = M::Request;
    type Outcome = M::Outcome;
    type Disk = M::Disk;

    fn step(&mut self, now: Now, input: InputOf<M>, out: &mut EffectsOf<M>) {
        let Some(recording) = &self.recording else { return self.machine.step(now, input, out) };
        recording.with(|recorder| recorder.put_input::<M>(now, &input));
        let before = out.as_slice().len();
        self.machine.step(now, input, out);
        recording.with(|recorder| recorder.put_effects::<M>(&out.as_slice()[before..]));
    }

    fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    fn invariants(&self) {
        self.machine.invariants();
    }
}

impl<M> Drop for Recorded<M> {
    fn drop(&mut self) {
        if let Some(recording) = &self.recording {
            recording.end();
        }
    }
}
