//! The end of a mount, as part of a graceful disconnect. In order: operations end, files are closed, locks on data are given back, the
//! allotment is given back, the server is told that it may forget all answers, and the other locks are given back. Then the host itself
//! disconnects.

use crate::files::Files;
use crate::metadata_link::{Asker, MetadataLink};
use crate::range_locks::{MOUNT, RangeLocks};
use braid_base::{Now, Time};
use braid_wire::FileCommand;

#[derive(Clone, Debug)]
pub struct Unmounting {
    /// When the host disconnects even if the server is silent.
    pub until: Time,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Operations are under way.
    Draining,
    /// Files are being closed.
    Closing,
    /// The allotment is being given back. `is_asking`: an answer is missing.
    GivingBack { is_asking: bool },
    /// The server is told to forget.
    Parting,
    /// Locks are being given back.
    Releasing,
}

impl Unmounting {
    pub fn new(until: Time) -> Unmounting {
        Unmounting { until, step: Step::Draining }
    }

    /// The server has answered one of this part's commands. A refusal changes nothing: what can't be given back is taken when the host is
    /// fenced.
    pub fn on_reply(&mut self, now: Now, locks: &mut RangeLocks) {
        match self.step {
            Step::GivingBack { .. } => self.step = Step::GivingBack { is_asking: false },
            Step::Parting => {
                locks.release(now, MOUNT, 0);
                locks.release_cached(now);
                self.step = Step::Releasing;
            }
            _ => {}
        }
    }

    /// Goes on as far as possible. True if everything is given back, or the time is up.
    pub fn go_on(&mut self, now: Now, files: &mut Files, link: &mut MetadataLink, locks: &mut RangeLocks) -> bool {
        while let Some(next) = self.next(now, files, link, locks) {
            self.step = next;
        }
        (self.step == Step::Releasing && locks.is_empty()) || now.time >= self.until
    }

    /// Begins the next step, if the present one has ended.
    fn next(&mut self, now: Now, files: &mut Files, link: &mut MetadataLink, locks: &mut RangeLocks) -> Option<Step> {
        match self.step {
            Step::Draining if files.operations.is_empty() => {
                let (operations, mut parts) = files.lend(now, link, locks);
                operations.close_all(&mut parts);
                Some(Step::Closing)
            }
            Step::Closing if files.is_idle() => {
                files.allotment.set_mounted(now.time, link, false);
                Some(Step::GivingBack { is_asking: false })
            }
            Step::GivingBack { is_asking: false } if files.allotment.is_idle() => {
                let runs = files.allotment.drain();
                if runs.is_empty() {
                    link.send(now.time, Asker::Farewell, FileCommand::Nothing);
                    return Some(Step::Parting);
                }
                link.send(now.time, Asker::GiveBack, FileCommand::GiveBack { runs });
                Some(Step::GivingBack { is_asking: true })
            }
            _ => None,
        }
    }
}
