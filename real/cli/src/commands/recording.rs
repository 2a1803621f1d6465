//! The options of daemons that record their machine.

use braid_recording::RecordingRequest;
use std::path::PathBuf;

/// The options.
#[derive(clap::Args)]
pub struct Options {
    /// Record every input of the machine in this new file, for `braid replay`: it contains the blocks that pass through
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Where the recording stops; the daemon goes on
    #[arg(long, value_name = "SIZE", default_value = "1GiB", requires = "record", value_parser = braid_terminal::arguments::limit)]
    record_limit: u64,
}

impl Options {
    /// What they ask for.
    pub fn request(&self) -> Option<RecordingRequest> {
        self.record.clone().map(|file| RecordingRequest { file, limit: self.record_limit })
    }
}
