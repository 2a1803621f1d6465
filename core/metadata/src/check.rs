//! The check of a whole file system, by a process that owns the file system and does not serve it: so the map does not change meanwhile.
//! The check reads some keys at a time through the store, like any other reader.

use braid_namespace::check::{Check, Finding, Windows};
use braid_objects::{Evaluation, NotHere, Procedure, View};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The keys that one part of a check reads.
const KEYS_AT_ONCE: usize = 256;

/// A check, and whether a part of it is under way.
#[derive(Debug)]
pub(crate) struct CheckRun {
    progress: Progress,
    is_asked: bool,
}

/// What the parts of a check share: each continues where the last one ended. A part that is evaluated again, because keys were not in
/// memory, continues, too.
#[derive(Clone, Debug)]
struct Progress(Arc<Mutex<(Check, bool)>>);

/// A part of a check, as a procedure of the store.
#[derive(Debug)]
struct CheckPart(Progress);

impl CheckRun {
    pub fn new() -> CheckRun {
        let check = Check::new(Windows::default());
        CheckRun { progress: Progress(Arc::new(Mutex::new((check, false)))), is_asked: false }
    }

    /// The next part, unless one is under way or the check is complete.
    pub fn next_part(&mut self) -> Option<Box<dyn Procedure>> {
        if self.is_asked || self.is_complete() {
            return None;
        }
        self.is_asked = true;
        Some(Box::new(CheckPart(self.progress.clone())))
    }

    /// A part has ended, or the store had no room for it.
    pub fn on_part_done(&mut self) {
        self.is_asked = false;
    }

    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    pub fn is_complete(&self) -> bool {
        self.progress.lock().1
    }

    /// What was found, and how much more was found than is listed.
    pub fn findings(&self) -> (Vec<Finding>, u64) {
        let progress = self.progress.lock();
        let (findings, omitted) = progress.0.findings();
        (findings.to_vec(), omitted)
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, (Check, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Procedure for CheckPart {
    fn evaluate(&self, map: &mut dyn View) -> Result<Evaluation, NotHere> {
        let (check, is_complete) = &mut *self.0.lock();
        *is_complete = check.step(map, KEYS_AT_ONCE)?;
        Ok(Evaluation { answer: Ok(Vec::new()), changes: Vec::new(), only_asks: true })
    }

    fn memory_bytes(&self) -> usize {
        size_of::<CheckPart>()
    }
}
