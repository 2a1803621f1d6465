//! A recording is a file with every input of a machine, from its start on, and a checksum of the effects of each step. Machines are
//! deterministic: a new machine of the same build, given the same inputs, has the same effects. So a failure of a real array can be
//! attached to a report, and looked at again. `docs/record-and-replay.md` describes the format.
//!
//! **A recording contains the blocks that pass through the machine**, and nobody but its owner can read the file.
//!
//! | module | what |
//! | --- | --- |
//! | `format` | the records of the file, and the checksum of effects |
//! | `recorder` | a machine whose steps are recorded, and what writes the recording |
//! | `replay` | runs a machine again |

mod format;
mod recorder;
mod replay;

pub use format::{Header, HeaderError, RecordedOutcome, VERSION, decode, encode};
pub use recorder::{Recorded, Recorder, RecordingRequest};
pub use replay::{Difference, End, Opened, Replayed, replay};
