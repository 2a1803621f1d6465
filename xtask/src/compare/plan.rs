//! The comparisons: what is measured, what it is compared with, and which ratios are required.

use crate::posix::name_of;

/// A part of the measurement that `--only` can name, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// 4 KiB random reads
    #[value(name = "read-4k")]
    Read4k,
    /// 4 KiB random writes
    #[value(name = "write-4k")]
    Write4k,
    /// 1 MiB sequential writes
    #[value(name = "write-1m")]
    Write1m,
    /// 1 MiB sequential reads
    #[value(name = "read-1m")]
    Read1m,
    /// 4 KiB random reads, one at a time
    #[value(name = "read-one")]
    ReadOne,
    /// 4 KiB random writes, one at a time
    #[value(name = "write-one")]
    WriteOne,
    /// One node against processes
    Node,
    /// Memory of a device process
    Memory,
    /// CPU time without a client
    Rest,
}

impl Part {
    /// The name on the command line.
    pub fn name(self) -> String {
        name_of(&self)
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Braid,
    /// The same volume, in one node.
    Node,
    /// The raw file with O_DIRECT. Writes may still be in the disk's own cache when they are acknowledged.
    Raw,
    /// The raw file with O_DIRECT and O_DSYNC: as durable as Braid's acknowledgements.
    RawSynced,
    /// The raw file through qemu-nbd. Writes are not durable until a flush, and no flush is sent.
    Qemu,
    /// One TCP connection over loopback, without a disk.
    Loopback,
}

// The names in tables and in JSON.
braid_base::names!(Subject {
    Braid => "braid", Node => "braid --nodes 1", Raw => "raw", RawSynced => "raw O_DSYNC", Qemu => "qemu-nbd",
    Loopback => "loopback TCP"
});

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// fio's name for it.
    pub rw: &'static str,
    /// Bytes of a request.
    pub block: u64,
    /// Requests in flight.
    pub depth: u32,
}

/// Requests in flight, unless they come one at a time.
pub const DEPTH: u32 = 32;

impl Load {
    pub fn writes(&self) -> bool {
        self.rw.ends_with("write")
    }
}

/// A comparison: a row of the report.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// What is measured.
    pub subject: Subject,
    /// The references; the one with the lower median counts.
    pub against: &'static [Subject],
    /// The reference is divided by this: the number of disk accesses, or of bytes, that redundancy costs.
    pub divisor: f64,
    /// The required ratio and the goal; none for information only.
    pub wanted: Option<Wanted>,
}

#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The required value.
    pub floor: f64,
    pub goal: f64,
}

/// A load and its comparisons.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub part: Part,
    pub what: &'static str,
    pub load: Load,
    pub comparisons: &'static [Comparison],
}

impl Job {
    /// All subjects that run this load.
    pub fn subjects(&self) -> Vec<Subject> {
        let mut subjects: Vec<Subject> =
            self.comparisons.iter().flat_map(|row| row.against.iter().chain([&row.subject])).copied().collect();
        subjects.sort();
        subjects.dedup();
        subjects
    }
}

/// Bytes written for each byte of data, with four data units and one parity unit.
const RAID5_FULL: f64 = 1.25;
/// Disk accesses of a small write: read old data and old parity, write new data and new parity.
const RAID5_SMALL: f64 = 4.0;

const JOBS: [Job; 7] = [
    Job {
        part: Part::Read4k,
        what: "4 KiB random read",
        load: Load { rw: "randread", block: 4 << 10, depth: DEPTH },
        comparisons: &[versus(&[Subject::Raw], 1.0, 0.4, 0.6), versus(&[Subject::Qemu], 1.0, 0.7, 1.0)],
    },
    Job {
        part: Part::Write4k,
        what: "4 KiB random write, durable",
        load: Load { rw: "randwrite", block: 4 << 10, depth: DEPTH },
        comparisons: &[
            versus(&[Subject::Raw], RAID5_SMALL, 0.5, 0.85),
            beside(&[Subject::RawSynced], RAID5_SMALL),
            beside(&[Subject::Qemu], 1.0),
        ],
    },
    Job {
        part: Part::Write1m,
        what: "1 MiB sequential write, durable",
        load: Load { rw: "write", block: 1 << 20, depth: DEPTH },
        comparisons: &[
            versus(&[Subject::Raw], RAID5_FULL, 0.3, 0.5),
            beside(&[Subject::RawSynced], RAID5_FULL),
            beside(&[Subject::Qemu], 1.0),
        ],
    },
    Job {
        part: Part::Read1m,
        what: "1 MiB sequential read",
        load: Load { rw: "read", block: 1 << 20, depth: DEPTH },
        comparisons: &[versus(&[Subject::Raw, Subject::Loopback], 1.0, 0.5, 0.8), beside(&[Subject::Qemu], 1.0)],
    },
    Job {
        part: Part::ReadOne,
        what: "4 KiB random read, one at a time",
        load: Load { rw: "randread", block: 4 << 10, depth: 1 },
        comparisons: &[beside(&[Subject::Raw], 1.0), beside(&[Subject::Qemu], 1.0)],
    },
    Job {
        part: Part::WriteOne,
        what: "4 KiB random write, durable, one at a time",
        load: Load { rw: "randwrite", block: 4 << 10, depth: 1 },
        comparisons: &[beside(&[Subject::RawSynced], 1.0), beside(&[Subject::Qemu], 1.0)],
    },
    Job {
        part: Part::Node,
        what: "4 KiB random read, one node",
        load: Load { rw: "randread", block: 4 << 10, depth: DEPTH },
        comparisons: &[Comparison { subject: Subject::Node, ..versus(&[Subject::Braid], 1.0, 1.3, 1.3) }],
    },
];

/// The limit of a device process's memory, in bytes.
pub const MEMORY: Wanted = Wanted { floor: (100 << 20) as f64, goal: (50 << 20) as f64 };
/// The limit of the idle array's CPU usage, as a share of one core.
pub const REST: Wanted = Wanted { floor: 0.01, goal: 0.01 };

/// The load before memory is measured, with which a device uses the most memory.
pub const MEMORY_LOAD: Load = Load { rw: "randwrite", block: 4 << 10, depth: DEPTH };

const fn versus(against: &'static [Subject], divisor: f64, floor: f64, goal: f64) -> Comparison {
    Comparison { subject: Subject::Braid, against, divisor, wanted: Some(Wanted { floor, goal }) }
}

const fn beside(against: &'static [Subject], divisor: f64) -> Comparison {
    Comparison { subject: Subject::Braid, against, divisor, wanted: None }
}

pub fn jobs(parts: &[Part]) -> Vec<Job> {
    JOBS.into_iter().filter(|job| parts.contains(&job.part)).collect()
}

/// The order of subjects in a round: rotated by one every other round, and reversed in the rounds between, so that no subject always
/// runs first, or always after the same other one.
pub fn order<T: Copy>(subjects: &[T], round: u32) -> Vec<T> {
    let mut order = subjects.to_vec();
    order.rotate_left((round as usize / 2) % subjects.len().max(1));
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_subjects_go_there_and_back() {
        let rounds: String = (0..4).flat_map(|round| order(&['a', 'b'], round)).collect();
        assert_eq!(rounds, "abbabaab");
    }

    #[test]
    fn over_enough_rounds_each_subject_takes_each_place_as_often() {
        for subjects in 1..6usize {
            let all: Vec<usize> = (0..subjects).collect();
            let mut places = vec![vec![0; subjects]; subjects];
            for round in 0..2 * subjects as u32 {
                for (place, subject) in order(&all, round).into_iter().enumerate() {
                    places[subject][place] += 1;
                }
            }
            assert!(places.iter().flatten().all(|count| *count == 2), "{subjects}: {places:?}");
        }
    }

    #[test]
    fn a_job_runs_every_subject_of_its_rows_once() {
        let job = jobs(&[Part::Read1m])[0];
        assert_eq!(job.subjects(), [Subject::Braid, Subject::Raw, Subject::Qemu, Subject::Loopback]);
    }
}
