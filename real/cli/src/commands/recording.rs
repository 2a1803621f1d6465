//! Recordings of machines: the options of daemons that record theirs, and `braid replay`, which runs the machine of a recording again.

use crate::report;
use braid_admin::{Exit, Failure};
use braid_daemons::recording::{ReplayedFile, replay_file};
use braid_recording::{Difference, End, RecordingRequest};
use braid_terminal::Common;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

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

/// Run a recorded machine again, and compare its effects
///
/// A daemon that was started with --record has written every input of its machine, and a checksum of the effects of each step. This command
/// constructs the machine again, without an array, gives it the same inputs, and compares. It stops at the first step that has other
/// effects. A recording that was cut by the end of its process is complete up to there. Exit status 4: the effects differ, or the file is
/// damaged.
///
/// Recordings are read by the build that has written them: another one may rightly have other effects.
///
/// Example: `braid replay /var/tmp/device2.rec`
#[derive(clap::Args)]
pub struct ReplayArgs {
    /// The recording
    file: PathBuf,
}

pub fn replay(arguments: &ReplayArgs, common: &Common) -> Result<ExitCode, Failure> {
    let file = replay_file(&arguments.file)?;
    report::print(common.json, to_json(&file), || to_text(&file));
    Ok(match file.replayed.end {
        End::Complete | End::Truncated => ExitCode::SUCCESS,
        End::Damaged | End::Differs(_) => ExitCode::from(Exit::DataLost as u8),
    })
}

fn to_json(file: &ReplayedFile) -> serde_json::Value {
    let (end, difference) = match &file.replayed.end {
        End::Complete => ("complete", None),
        End::Truncated => ("truncated", None),
        End::Damaged => ("damaged", None),
        End::Differs(difference) => ("differs", Some(difference)),
    };
    let difference = difference.map(|difference| {
        json!({
            "step": difference.step,
            "time": difference.now.time.0,
            "clock": difference.now.clock.0,
            "input": difference.input,
            "recorded_effects": difference.recorded,
            "effects": difference.effects,
        })
    });
    json!({
        "role": file.role,
        "build": file.build,
        "steps": file.replayed.steps,
        "adjustments": 0,
        "end": end,
        "difference": difference,
    })
}

fn to_text(file: &ReplayedFile) -> String {
    let (role, steps) = (&file.role, file.replayed.steps);
    match &file.replayed.end {
        End::Complete => format!("{role}: {steps} steps, the same effects\n"),
        End::Truncated => format!("{role}: {steps} steps, the same effects; the last record is incomplete\n"),
        End::Damaged => format!("{role}: {steps} steps with the same effects, then a damaged record\n"),
        End::Differs(difference) => to_text_of_difference(role, difference),
    }
}

fn to_text_of_difference(role: &str, difference: &Difference) -> String {
    let Difference { step, now, input, recorded, effects } = difference;
    let mut text = format!("{role}: step {step} has other effects\n  at {} ns\n  input: {input}\n", now.time.0);
    text += &format!("  recorded: {recorded} effects\n  now: {} effects\n", effects.len());
    effects.iter().for_each(|effect| text += &format!("    {effect}\n"));
    text
}
