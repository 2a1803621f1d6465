//! Operations on a volume: each client keeps a number of operations in flight, measures their latencies, and checks their results.

use super::content::Content;
use super::settings::{LoadSettings, Pattern};
use crate::prelude::*;
use braid_base::VolumeId;
use braid_machine::{HostSuccess, Patience, VolumeRequest};
use braid_nbd::{Client, ClientError};
use indicatif::ProgressBar;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::task::JoinSet;

/// How long operations in flight may take to end; longer than hosts and NBD clients retry.
const END_WAIT: Duration = Duration::from_secs(60);
/// The upper bound of an operation's latency, in nanoseconds.
const LATENCY_MAX: u64 = 120_000_000_000;
/// Bytes of each write that fills a volume.
const FILL_BYTES: u64 = 1 << 20;
const FILL_DEPTH: u16 = 8;

/// A client's connection to a volume.
#[derive(Clone)]
pub enum Target {
    /// Through a host in this process.
    Host { client: HostClient, volume: VolumeId },
    /// Through a connection to an NBD server.
    Nbd(Rc<Client>),
}

/// The result of a run.
pub struct Driven {
    pub operations: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// From the start of the first operation to the end of the last.
    pub elapsed: Duration,
    /// Latencies of operations, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Performs operations on a volume for `span`; each client has a target of its own. `seed` determines the operations and their order.
pub async fn drive(
    targets: &[Target],
    settings: &LoadSettings,
    content: &Rc<Content>,
    seed: u64,
    span: Duration,
) -> Result<Driven, Failure> {
    let mut rng = Rng::new(seed);
    let courses = (0..targets.len() as u64).map(|number| Course::Mix {
        settings: settings.clone(),
        bytes: content.bytes(),
        rng: rng.fork(),
        cursor: content.bytes() / targets.len() as u64 * number / settings.block * settings.block,
    });
    let clients = targets.iter().cloned().zip(courses.collect::<Vec<_>>()).collect();
    run(clients, settings.depth, content, Some(span), &ProgressBar::hidden()).await
}

/// Writes every block of a volume once; `progress` counts bytes.
pub async fn fill(target: &Target, content: &Rc<Content>, progress: &ProgressBar) -> Result<(), Failure> {
    let course = Course::Fill { bytes: content.bytes(), cursor: 0 };
    run(vec![(target.clone(), course)], FILL_DEPTH, content, None, progress).await.map(|_| ())
}

/// The operations of a client: what comes next, and what was done.
enum Course {
    Mix { settings: LoadSettings, bytes: u64, rng: Rng, cursor: u64 },
    Fill { bytes: u64, cursor: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    reads: bool,
    offset: u64,
    length: u64,
}

impl Iterator for Course {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        match self {
            Course::Mix { settings, bytes, rng, cursor } => {
                let (block, unit) = (settings.block, BLOCK_BYTES as u64);
                let length = block + rng.below((settings.block_max - block) / unit + 1) * unit;
                let offset = match settings.pattern {
                    Pattern::Random => rng.below((*bytes - length) / block + 1) * block,
                    Pattern::Sequential => {
                        let offset = if *cursor + length > *bytes { 0 } else { *cursor };
                        *cursor = offset + length;
                        offset
                    }
                };
                Some(Operation { reads: rng.chance(settings.reads.into(), 100), offset, length })
            }
            Course::Fill { bytes, cursor } => {
                let (offset, length) = (*cursor, FILL_BYTES.min(*bytes - *cursor));
                *cursor += length;
                (length > 0).then_some(Operation { reads: false, offset, length })
            }
        }
    }
}

/// Keeps `depth` operations of each client in flight, until its operations or the span end, or an operation fails.
async fn run(
    clients: Vec<(Target, Course)>,
    depth: u16,
    content: &Rc<Content>,
    span: Option<Duration>,
    progress: &ProgressBar,
) -> Result<Driven, Failure> {
    let latency = Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("the bounds are in order");
    let driven = Driven { operations: 0, bytes_read: 0, bytes_written: 0, elapsed: Duration::ZERO, latency };
    let driven = Rc::new(RefCell::new(driven));
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for (target, course) in clients {
        let course = Rc::new(RefCell::new(course));
        for _ in 0..depth {
            let (target, course, content) = (target.clone(), course.clone(), content.clone());
            let (driven, progress) = (driven.clone(), progress.clone());
            workers.spawn_local(async move {
                while span.is_none_or(|span| begun.elapsed() < span) {
                    let Some(operation) = course.borrow_mut().next() else { break };
                    let took = target.perform(operation, &content).await?;
                    driven.borrow_mut().note(operation, took);
                    progress.inc(operation.length);
                }
                Ok::<_, Failure>(())
            });
        }
    }
    // The first failure ends the others: dropping the set aborts them.
    let all = async {
        while let Some(ended) = workers.join_next().await {
            ended.map_err(|error| Failure::failed("internal", error.to_string()))??;
        }
        Ok(())
    };
    match span {
        Some(span) => tokio::time::timeout(span + END_WAIT, all).await.unwrap_or_else(|_| {
            let message = format!("operations did not end within {END_WAIT:?}");
            Err(Failure::unreachable("bench-stuck", message).hint("`braid status` shows which devices serve"))
        }),
        // Each operation has a deadline of its own.
        None => all.await,
    }?;
    drop(workers);
    let driven = Rc::try_unwrap(driven).ok().expect("the workers have ended").into_inner();
    Ok(Driven { elapsed: begun.elapsed(), ..driven })
}

impl Driven {
    fn note(&mut self, operation: Operation, took: Duration) {
        self.operations += 1;
        *(if operation.reads { &mut self.bytes_read } else { &mut self.bytes_written }) += operation.length;
        self.latency.saturating_record(took.as_nanos() as u64);
    }
}

impl Target {
    /// Performs an operation, and checks its result. Returns its latency, without the time for generating and checking content.
    async fn perform(&self, operation: Operation, content: &Content) -> Result<Duration, Failure> {
        let Operation { reads, offset, length } = operation;
        if reads {
            let read = content.begin_read(offset, length);
            let begun = Instant::now();
            let brought = self.read(offset, length as usize).await?;
            let took = begun.elapsed();
            content.check(offset, &read, &brought).map_err(|wrong| {
                Failure::data_lost("wrong-data", wrong.to_string())
                    .hint("no metrics are reported, because a read returned wrong data")
            })?;
            return Ok(took);
        }
        let (write, data) = content.begin_write(offset, length);
        let begun = Instant::now();
        self.write(offset, data).await?;
        let took = begun.elapsed();
        content.end_write(offset, &write);
        Ok(took)
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Vec<Bytes>, Failure> {
        match self {
            Target::Host { client, volume } => {
                match client
                    .call(VolumeRequest::Read { volume: *volume, offset, length, patience: Patience::Host })
                    .await?
                {
                    HostSuccess::Data(buffers) => Ok(buffers),
                    other => unreachable!("a host answers a read with data, not {other:?}"),
                }
            }
            Target::Nbd(client) => client.read(offset, length).await.map(|bytes| vec![bytes]).map_err(nbd_failure),
        }
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Failure> {
        match self {
            Target::Host { client, volume } => {
                client.call(VolumeRequest::Write { volume: *volume, offset, data, patience: Patience::Host }).await?;
                Ok(())
            }
            Target::Nbd(client) => client.write(offset, &data).await.map_err(nbd_failure),
        }
    }
}

pub fn nbd_failure(error: ClientError) -> Failure {
    match error {
        ClientError::Refused { .. } | ClientError::NotUnderstood => Failure::failed("nbd", error.to_string()),
        _ => Failure::unreachable("nbd", error.to_string()).hint("`braid status` shows what runs"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Through;
    use super::*;

    const VOLUME: u64 = 1 << 20;

    fn course(pattern: Pattern, reads: u8, block: u64, block_max: u64) -> Course {
        let settings = LoadSettings { reads, block_max, pattern, ..LoadSettings::new(Through::Direct, block) };
        Course::Mix { settings, bytes: VOLUME, rng: Rng::new(7), cursor: 0 }
    }

    #[test]
    fn random_operations_lie_within_the_volume_and_reach_all_of_it() {
        let operations: Vec<_> = course(Pattern::Random, 30, 8192, 65_536).take(20_000).collect();
        for Operation { offset, length, .. } in &operations {
            assert!(offset.is_multiple_of(8192) && length.is_multiple_of(4096));
            assert!((8192..=65_536).contains(length) && offset + length <= VOLUME);
        }
        assert!(operations.iter().any(|operation| operation.offset == 0));
        assert!(operations.iter().any(|operation| operation.offset + operation.length == VOLUME));
        assert!(operations.iter().any(|operation| operation.length == 65_536), "the longest length occurs");
        let reads = operations.iter().filter(|operation| operation.reads).count();
        assert!((5600..6400).contains(&reads), "{reads} of 20000 are not 30 %");
    }

    #[test]
    fn a_share_of_reads_of_one_or_zero_is_exact() {
        assert!(course(Pattern::Random, 100, 4096, 4096).take(1000).all(|operation| operation.reads));
        assert!(!course(Pattern::Random, 0, 4096, 4096).take(1000).any(|operation| operation.reads));
    }

    #[test]
    fn sequential_operations_follow_one_another_and_begin_again() {
        let operations = course(Pattern::Sequential, 100, 300 << 10, 300 << 10).take(5);
        let offsets: Vec<u64> = operations.map(|operation| operation.offset >> 10).collect();
        assert_eq!(offsets, [0, 300, 600, 0, 300]);
    }

    #[test]
    fn filling_reaches_every_byte_once() {
        let mut end = 0;
        for Operation { reads, offset, length } in (Course::Fill { bytes: 5 * FILL_BYTES / 2, cursor: 0 }) {
            assert_eq!((reads, offset), (false, end));
            end += length;
        }
        assert_eq!(end, 5 * FILL_BYTES / 2);
    }
}
