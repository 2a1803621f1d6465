//! The recorder: it writes the inputs of one machine to a file, by a thread of its own, until a limit is reached.

use crate::format::{Entry, Header, MAGIC, RecordedInput, RecordedOutcome, VERSION, digest, encode, put_record};
use braid_base::{Level, Now, Time};
use braid_machine::{Effect, EffectsOf, InputOf, Machine};
use braid_shell::{Counters, StoppedRecording};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The most records that wait for the disk. The machine then waits, too.
const WAITING_MAX: usize = 256;

/// Where a run is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingRequest {
    /// The file, which must not exist.
    pub file: PathBuf,
    /// The most bytes of the file.
    pub limit: u64,
}

#[derive(Debug)]
pub struct Recorder {
    /// None once the limit is reached, or the file can't be written.
    records: Option<SyncSender<Vec<u8>>>,
    writer: Option<JoinHandle<()>>,
    file: PathBuf,
    limit: u64,
    written: u64,
    counters: Arc<Counters>,
    scratch: Vec<u8>,
}

impl Recorder {
    /// Begins a recording of a machine that has not started.
    pub fn create(
        request: &RecordingRequest,
        build: &str,
        role: &str,
        config: &impl Serialize,
        counters: Arc<Counters>,
    ) -> io::Result<Recorder> {
        // A recording contains blocks of the array.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&request.file)?;
        let config = encode(config);
        let mut first = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        put_record(&Header { build: build.to_string(), role: role.to_string(), config }, &mut first);
        let (records, received) = sync_channel(WAITING_MAX);
        let writer = {
            let counters = counters.clone();
            std::thread::Builder::new().name("recording".into()).spawn(move || write_all(file, &received, &counters))?
        };
        let (file, limit) = (request.file.clone(), request.limit);
        tracing::info!("recording to {} (which will contain blocks of the array)", file.display());
        let (records, writer, scratch) = (Some(records), Some(writer), Vec::new());
        let mut recorder = Recorder { records, writer, file, limit, written: 0, counters, scratch };
        recorder.append(first);
        Ok(recorder)
    }

    fn put<R: Serialize>(&mut self, entry: &Entry<R>) {
        let mut record = Vec::new();
        put_record(entry, &mut record);
        self.append(record);
    }

    /// True until the recording stops.
    pub(crate) fn is_recording(&self) -> bool {
        self.records.is_some()
    }

    /// Records an input, before its step.
    pub(crate) fn put_input<M: Machine<Request: Clone + Serialize>>(&mut self, now: Now, input: &InputOf<M>) {
        self.put(&Entry::Input { now, input: RecordedInput::of(input) });
    }

    /// Records the effects of a step.
    pub(crate) fn put_effects<M: Machine<Request: Serialize, Outcome: RecordedOutcome>>(
        &mut self,
        effects: &[Effect<M::Outcome, M::Disk>],
    ) {
        if self.records.is_some() {
            let mut scratch = std::mem::take(&mut self.scratch);
            let effects = digest(effects, &mut scratch);
            self.scratch = scratch;
            self.put(&Entry::<M::Request>::Effects(effects));
        }
    }

    fn append(&mut self, record: Vec<u8>) {
        let Some(records) = &self.records else { return };
        self.written += record.len() as u64;
        if self.written > self.limit {
            return self.stop(StoppedRecording::AtLimit);
        }
        if records.send(record).is_err() {
            self.stop(StoppedRecording::Unwritable);
        }
    }

    fn stop(&mut self, why: StoppedRecording) {
        self.records = None;
        self.counters.note_recording_stopped(why);
        tracing::warn!("the recording {} stops: {}", self.file.display(), why.words());
    }
}

impl Drop for Recorder {
    /// Waits until everything is in the file.
    fn drop(&mut self) {
        self.records = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn write_all(mut file: File, records: &Receiver<Vec<u8>>, counters: &Counters) {
    while let Ok(mut batch) = records.recv() {
        // One system call for all that wait.
        while let Ok(next) = records.try_recv() {
            batch.extend_from_slice(&next);
        }
        if let Err(error) = file.write_all(&batch) {
            return tracing::warn!("the recording can't be written: {error}");
        }
        counters.add_recorded(batch.len());
    }
}

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

    fn level(&self) -> Level {
        self.machine.level()
    }

    fn deadline(&self) -> Option<Time> {
        self.machine.deadline()
    }

    fn invariants(&self) {
        self.machine.invariants();
    }
}
