//! The rounds: every subject of a job runs once, in an order that changes from round to round.

use super::Settings;
use super::array::Array;
use super::fio::{Fio, Target};
use super::loopback;
use super::plan::{Job, MEMORY_LOAD, Subject, order};
use super::progress::Progress;
use super::qemu::Qemu;
use super::report::{Report, Run};
use super::system::memory_peak_bytes;
use crate::prelude::*;

/// The seed of warm-up runs; those of rounds begin with 1.
const WARM_UP_SEED: u64 = 0;

/// The subjects and parameters of the rounds.
pub struct Rounds<'a> {
    pub settings: &'a Settings,
    pub fio: &'a Fio<'a>,
    pub interrupt: &'a Interrupt,
    pub raw: &'a Path,
    /// Its NBD server, if it is needed.
    pub qemu: Option<&'a Qemu>,
    pub progress: &'a Progress,
}

impl Rounds<'_> {
    /// Runs all jobs that need no restart of the array.
    pub fn run(&self, jobs: &[Job], array: &mut Array<'_>, report: &mut Report) -> Result<()> {
        let runs: usize = jobs.iter().map(|job| job.subjects().len()).sum();
        self.progress.expect(runs * self.settings.rounds as usize);
        for round in 0..self.settings.rounds {
            for job in jobs {
                for subject in order(&job.subjects(), round) {
                    let run = self.once(job, subject, round, array)?;
                    report.runs.push(run);
                }
            }
            array.check()?;
        }
        Ok(())
    }

    /// Runs the job that compares the placements of devices: the same array, restarted before each run.
    pub fn placements(&self, job: &Job, array: &mut Array<'_>, report: &mut Report) -> Result<()> {
        self.progress.expect(job.subjects().len() * self.settings.rounds as usize);
        for round in 0..self.settings.rounds {
            for subject in order(&job.subjects(), round) {
                array.stop()?;
                array.start((subject == Subject::Node).into())?;
                // The first run after a start is not counted, because connections are still being made.
                self.fio.run(&Target::Nbd(array.uri()?), job.load, WARM_UP_SEED)?;
                let run = self.once(job, subject, round, array)?;
                array.check()?;
                report.runs.push(run);
            }
        }
        Ok(())
    }

    /// The peak memory of any device so far, after one more run of small writes.
    pub fn memory(&self, array: &mut Array<'_>) -> Result<u64> {
        self.progress.say("memory of the devices");
        self.fio.run(&Target::Nbd(array.uri()?), MEMORY_LOAD, u64::from(self.settings.rounds) + 1)?;
        array.check()?;
        let peaks: Vec<u64> = array.devices()?.iter().map(|pid| memory_peak_bytes(*pid)).collect::<Result<_>>()?;
        peaks.into_iter().max().context("the array has no devices")
    }

    fn once(&self, job: &Job, subject: Subject, round: u32, array: &Array<'_>) -> Result<Run> {
        let name = format!("{} {}", job.part.name(), subject.name());
        self.progress.say(&format!("round {} of {}: {name}", round + 1, self.settings.rounds));
        let target = match subject {
            Subject::Raw => Some(Target::File(self.raw.to_path_buf())),
            Subject::RawSynced => Some(Target::SyncedFile(self.raw.to_path_buf())),
            Subject::Qemu => Some(Target::Nbd(self.qemu.context("qemu-nbd is not started")?.uri.clone())),
            Subject::Braid | Subject::Node => Some(Target::Nbd(array.uri()?)),
            Subject::Loopback => None,
        };
        let mut run = Run { job: job.part, subject, round, bytes_per_second: 0.0, fio: None, put_off_bytes: 0 };
        match target {
            Some(target) => {
                let found = self.fio.run(&target, job.load, u64::from(round) + 1).context(name)?;
                run.bytes_per_second = found.bytes_per_second;
                run.fio = Some(found);
            }
            None => {
                let duration = Duration::from_secs(self.settings.seconds.into());
                run.bytes_per_second = loopback::bytes_per_second(duration, self.interrupt)?;
            }
        }
        if job.load.writes() && subject == Subject::Braid {
            // Deferred writes must not slow down the next run.
            run.put_off_bytes = array.settle()?;
        }
        self.progress.step();
        Ok(run)
    }
}
