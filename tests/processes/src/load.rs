//! Writers that know the expected content of a volume when hosts and devices fail.
//!
//! The first bytes of the volume are divided into cells, and each worker owns every n-th cell: so different workers write different parts
//! of the same blocks and stripes at the same time, while each cell has one writer that knows its expected content. A worker uses all
//! hosts in turn, and reads through one host what it wrote through another.

use crate::array::Array;
use crate::data::{noise, seed};
use crate::nbd::{Client, Refusal};
use braid_base::Rng;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The parameters of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The NBD servers to use.
    pub hosts: Vec<String>,
    /// The number of writers.
    pub workers: usize,
    /// The total number of cells.
    pub cells: usize,
    /// Bytes of each cell. If that is no multiple of a block, several writers share a block.
    pub cell_bytes: usize,
    /// The offset of the first cell.
    pub begin: u64,
    /// True if servers may fail. A worker then continues with the others, and ends when none is left.
    pub hosts_may_go: bool,
    /// True if each worker uses one server: the first worker the first server, and so on in turn. Then a suspended server stops its own
    /// workers alone.
    pub apart: bool,
    /// Determines the content, the cells and the order of writes.
    pub seed: u64,
}

/// The operations to wait for before a test continues.
const SOME: u64 = 200;
/// The time limit for them.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);

/// A running load.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Vec<Cell>>>,
    plan: Plan,
}

/// The expected content of the cells after the writers have ended.
#[derive(Debug)]
pub struct Record {
    plan: Plan,
    cells: Vec<Vec<Cell>>,
    /// Operations completed.
    pub operations: u64,
}

/// The expected content of one cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The last version that was acknowledged or read; 0 before the first.
    known: u64,
    /// The last version that was sent. Versions above `known` were never acknowledged: each of them may be present instead.
    sent: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// How many wait for progress: then writers do not rest.
    awaited: AtomicU32,
    done: Mutex<Done>,
    progress: Condvar,
}

impl Shared {
    /// What is done so far, also if a test has failed while it looked: a second panic would end all tests.
    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Done {
    operations: u64,
    /// Operations through each server.
    through: Vec<u64>,
    longest: Duration,
    longest_through: Vec<Duration>,
    ended: usize,
}

impl Load {
    /// Starts the writers.
    pub fn start(plan: Plan) -> Load {
        let shared = Arc::new(Shared::default());
        {
            let mut done = shared.done.lock().expect("the lock is free");
            done.through = vec![0; plan.hosts.len()];
            done.longest_through = vec![Duration::ZERO; plan.hosts.len()];
        }
        let workers = (0..plan.workers)
            .map(|number| {
                let (shared, plan) = (shared.clone(), plan.clone());
                std::thread::spawn(move || {
                    // Recorded also when the worker panics, so that waiting tasks notice.
                    let _end = End(&shared);
                    Worker::new(&plan, number).work(&shared)
                })
            })
            .collect();
        Load { shared, workers, plan }
    }

    /// Starts the writers, and waits until they are at work. Pauses count from then on.
    #[track_caller]
    pub fn running(plan: Plan) -> Load {
        let load = Load::start(plan);
        load.pause();
        load
    }

    /// Waits until more operations have been completed. Returns the longest since the last call.
    #[track_caller]
    pub fn pause(&self) -> Duration {
        self.go_on();
        self.take_longest()
    }

    /// As [`Load::pause`], which is printed, and must not be longer than `most`.
    #[track_caller]
    pub fn assert_pause(&self, what: &str, most: Duration) {
        let pause = self.pause();
        println!("{what}: the longest pause of a writer was {pause:?}");
        assert!(pause <= most, "{what}: {pause:?}");
    }

    /// Waits until more operations have been completed.
    #[track_caller]
    pub fn go_on(&self) {
        self.await_more(|done| vec![done.operations]);
    }

    /// Waits until more operations have been completed through one server.
    #[track_caller]
    pub fn go_on_through(&self, host: usize) {
        self.go_on_through_each(&[host]);
    }

    /// Waits until more operations have been completed through each of these servers.
    #[track_caller]
    pub fn go_on_through_each(&self, hosts: &[usize]) {
        self.await_more(|done| hosts.iter().map(|host| done.through[*host]).collect());
    }

    #[track_caller]
    fn await_more(&self, counts: impl Fn(&Done) -> Vec<u64>) {
        self.shared.awaited.fetch_add(1, Ordering::Relaxed);
        let mut done = self.shared.done();
        let (before, begun) = (counts(&done), Instant::now());
        while counts(&done).iter().zip(&before).any(|(now, before)| *now < before + SOME) {
            assert!(done.ended < self.plan.workers, "the writers have ended: their messages are above");
            assert!(begun.elapsed() < PROGRESS_LIMIT, "{SOME} operations took longer than {PROGRESS_LIMIT:?}");
            let waited = self.shared.progress.wait_timeout(done, Duration::from_secs(1));
            done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.shared.awaited.fetch_sub(1, Ordering::Relaxed);
    }

    /// The longest operation since the last call.
    pub fn take_longest(&self) -> Duration {
        std::mem::take(&mut self.shared.done().longest)
    }

    /// The longest operation through this server since the last call.
    pub fn take_longest_through(&self, host: usize) -> Duration {
        std::mem::take(&mut self.shared.done().longest_through[host])
    }

    /// Ends the writers after their current operations.
    pub fn stop(self) -> Record {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.ended()
    }

    /// Ends the writers. What they have written is found through each of these servers, and the first volume is sound.
    #[track_caller]
    pub fn assert_kept(self, array: &Array, uris: &[&str]) {
        let mut record = self.stop();
        uris.iter().for_each(|uri| record.verify(uri));
        array.assert_sound("vol0");
    }

    /// Waits until all writers have ended, because they were told to or have no server left.
    #[track_caller]
    pub fn ended(self) -> Record {
        let joined: Vec<_> = self.workers.into_iter().map(JoinHandle::join).collect();
        let cells = joined.into_iter().map(|cells| cells.expect("a writer has failed: its message is above")).collect();
        let done = self.shared.done();
        Record { plan: self.plan, cells, operations: done.operations }
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.done().ended += 1;
        self.0.progress.notify_all();
    }
}

struct End<'a>(&'a Shared);

struct Worker<'a> {
    plan: &'a Plan,
    number: usize,
    /// With their index in the plan.
    hosts: Vec<(usize, Client)>,
    cells: Vec<Cell>,
    rng: Rng,
}

impl Worker<'_> {
    fn new(plan: &Plan, number: usize) -> Worker<'_> {
        let own = number % plan.hosts.len();
        let hosts = plan.hosts.iter().enumerate().filter(|(host, _)| !plan.apart || *host == own);
        let hosts = hosts.map(|(host, uri)| (host, Client::open(uri))).collect();
        let count = (plan.cells - number).div_ceil(plan.workers);
        Worker { plan, number, hosts, cells: vec![Cell::default(); count], rng: Rng::new(plan.seed + number as u64) }
    }

    fn work(mut self, shared: &Shared) -> Vec<Cell> {
        while !shared.stop.load(Ordering::Relaxed) && !self.hosts.is_empty() {
            let index = self.rng.below(self.cells.len() as u64) as usize;
            let host = self.rng.below(self.hosts.len() as u64) as usize;
            let begun = Instant::now();
            let through = self.hosts[host].0;
            let outcome = if self.rng.chance(2, 3) { self.write(host, index) } else { self.read(host, index) };
            let took = begun.elapsed();
            match outcome {
                Ok(()) => {}
                Err(Refusal::Gone(_)) if self.plan.hosts_may_go => {
                    self.hosts.remove(host);
                    continue;
                }
                Err(refusal) => panic!("cell {index} of writer {}: {refusal:?} after {took:?}", self.number),
            }
            let mut done = shared.done();
            done.operations += 1;
            done.longest = done.longest.max(took);
            done.through[through] += 1;
            done.longest_through[through] = done.longest_through[through].max(took);
            drop(done);
            shared.progress.notify_all();
            if shared.awaited.load(Ordering::Relaxed) == 0 {
                crate::rest(took);
            }
        }
        self.cells
    }

    fn write(&mut self, host: usize, index: usize) -> Result<(), Refusal> {
        self.cells[index].sent += 1;
        let version = self.cells[index].sent;
        let (offset, data) = self.plan.cell(self.number, index, version);
        self.hosts[host].1.write(offset, &data)?;
        self.cells[index].known = version;
        Ok(())
    }

    fn read(&mut self, host: usize, index: usize) -> Result<(), Refusal> {
        let (offset, _) = self.plan.cell(self.number, index, 0);
        let there = self.hosts[host].1.read(offset, self.plan.cell_bytes)?;
        self.cells[index] = self.plan.understand(self.number, index, self.cells[index], &there);
        Ok(())
    }
}

impl Plan {
    /// The same, but each worker uses one server.
    pub fn apart(hosts: &[impl AsRef<str>]) -> Plan {
        Plan { apart: true, ..Plan::of(hosts) }
    }

    /// Four workers through these servers, none of which may fail. Workers share blocks and stripes.
    pub fn of(hosts: &[impl AsRef<str>]) -> Plan {
        let hosts = hosts.iter().map(|uri| uri.as_ref().to_string()).collect();
        let (hosts_may_go, apart) = (false, false);
        Plan { hosts, workers: 4, cells: 300, cell_bytes: 3000, begin: 100, hosts_may_go, apart, seed: seed() }
    }

    /// The offset of a worker's cell, and the content of a version.
    fn cell(&self, worker: usize, index: usize, version: u64) -> (u64, Vec<u8>) {
        let cell = (index * self.workers + worker) as u64;
        let offset = self.begin + cell * self.cell_bytes as u64;
        let data = match version {
            0 => vec![0; self.cell_bytes],
            version => noise(self.seed ^ (cell << 32) ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15), self.cell_bytes),
        };
        (offset, data)
    }

    /// The expected content of a cell after it was read.
    fn understand(&self, worker: usize, index: usize, cell: Cell, there: &[u8]) -> Cell {
        let seen = (cell.known..=cell.sent).find(|version| self.cell(worker, index, *version).1 == there);
        let Some(seen) = seen else {
            let older = (0..cell.known).rev().find(|version| self.cell(worker, index, *version).1 == there);
            let what = older.map_or("something that was never written".into(), |older| format!("version {older}"));
            let offset = self.cell(worker, index, 0).0;
            panic!("cell {index} of writer {worker}, at {offset}: found {what}, but expected {cell:?}");
        };
        // A version that was read once must not be replaced by an older one.
        Cell { known: seen, ..cell }
    }
}

impl Record {
    /// Reads every cell through `uri`, and checks that it contains the acknowledged version, or a later one that was sent.
    #[track_caller]
    pub fn verify(&mut self, uri: &str) {
        let mut client = Client::open(uri);
        let mut versions = 0;
        for (worker, cells) in self.cells.iter_mut().enumerate() {
            for (index, cell) in cells.iter_mut().enumerate() {
                let (offset, _) = self.plan.cell(worker, index, 0);
                let there = client.read(offset, self.plan.cell_bytes).expect("the whole volume can be read");
                *cell = self.plan.understand(worker, index, *cell, &there);
                versions += cell.known;
            }
        }
        assert!(versions > 0, "something was written");
    }
}
