//! A host that has no file system mounted, for front ends that do not know: it refuses their operations on files.

use braid_base::Now;
use braid_machine::{
    FilesError, HostEffects, HostError, HostOutcome, HostRequest, Input, Machine, MountRequest, NoDisk,
};

/// The machine: a host, or a machine around it that takes the same requests.
#[derive(Clone, Debug)]
pub struct Unmounted<H>(pub H);

impl<H: Machine<Request = HostRequest, Outcome = HostOutcome, Disk = NoDisk>> Machine for Unmounted<H> {
    type Request = MountRequest;
    type Outcome = HostOutcome;
    type Disk = NoDisk;

    fn step(&mut self, now: Now, input: Input<MountRequest, NoDisk>, out: &mut HostEffects) {
        match input.for_host() {
            Ok(input) => self.0.step(now, input, out),
            Err((op, _)) => out.reply(op, Err(HostError::Files(FilesError::NotMounted))),
        }
    }

    braid_machine::held_machine!(0);
}
