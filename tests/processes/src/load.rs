//! Writers that know what must be on a volume, whatever happens to hosts and devices.
//!
//! The volume's first bytes are cut into cells, and each worker owns every n-th of them: so different workers write
//! different parts of the same blocks and stripes at the same time, while each cell has one writer that knows what
//! it must hold. A worker uses all hosts in turn; what it wrote through one it reads through another.

use crate::data::noise;
use crate::nbd::{Client, Refusal};
use braid_base::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers to use.
    pub hosts: Vec<String>,
    /// How many writers.
    pub workers: usize,
    /// How many cells in all.
    pub cells: usize,
    /// Bytes of each. If that is no multiple of a block, writers meet within blocks.
    pub cell_bytes: usize,
    /// Where the first one begins.
    pub begin: u64,
    /// Whether servers may go away. A worker then goes on with those that are left, and ends without one.
    pub hosts_may_go: bool,
    /// Whether each worker stays with one server: the first with the first, and so on round. So a server that stands still stops
    /// its own workers alone.
    pub apart: bool,
    /// Decides what is written where and when.
    pub seed: u64,
}

/// Many operations; no test gets through with fewer before it goes on.
const SOME: u64 = 200;
/// How long they may take.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);

/// Writers at work.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Vec<Cell>>>,
    plan: Plan,
}

/// What is known of the cells once the writers have ended.
#[derive(Debug)]
pub struct Record {
    plan: Plan,
    cells: Vec<Vec<Cell>>,
    /// Operations that were answered.
    pub operations: u64,
    /// The longest that one took.
    pub longest: Duration,
}

/// What one cell must hold.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The last version that was acknowledged or seen; 0 before the first.
    known: u64,
    /// The last that was sent. Later ones than `known` were never answered: any of them may be there instead.
    sent: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    done: Mutex<Done>,
    progress: Condvar,
}

#[derive(Debug, Default)]
struct Done {
    operations: u64,
    /// Those of each server.
    through: Vec<u64>,
    longest: Duration,
    longest_through: Vec<Duration>,
    ended: usize,
}

impl Load {
    /// Sets them to work.
    pub fn start(plan: Plan) -> Load {
        let shared = Arc::new(Shared::default());
        {
            let mut done = shared.done.lock().expect("nobody has it");
            done.through = vec![0; plan.hosts.len()];
            done.longest_through = vec![Duration::ZERO; plan.hosts.len()];
        }
        let workers = (0..plan.workers)
            .map(|number| {
                let (shared, plan) = (shared.clone(), plan.clone());
                std::thread::spawn(move || {
                    // Told also when the worker panics: nobody waits in vain.
                    let _end = End(&shared);
                    Worker::new(&plan, number).work(&shared)
                })
            })
            .collect();
        Load { shared, workers, plan }
    }

    /// Ends when some more operations were answered.
    #[track_caller]
    pub fn go_on(&self) {
        self.await_more(|done| done.operations);
    }

    /// Ends when one server has answered some more.
    #[track_caller]
    pub fn go_on_through(&self, host: usize) {
        self.await_more(|done| done.through[host]);
    }

    #[track_caller]
    fn await_more(&self, count: impl Fn(&Done) -> u64) {
        let mut done = self.shared.done.lock().expect("no worker panics with it");
        let (wished, begun) = (count(&done) + SOME, Instant::now());
        while count(&done) < wished {
            assert!(done.ended < self.plan.workers, "the writers have ended: their own words are above");
            assert!(begun.elapsed() < PROGRESS_LIMIT, "{SOME} operations took longer than {PROGRESS_LIMIT:?}");
            let waited = self.shared.progress.wait_timeout(done, Duration::from_secs(1));
            done = waited.expect("no worker panics with it").0;
        }
    }

    /// The longest that one operation took since this was asked last.
    pub fn take_longest(&self) -> Duration {
        std::mem::take(&mut self.shared.done.lock().expect("no worker panics with it").longest)
    }

    /// The longest that one took through this server, since that was asked last.
    pub fn take_longest_through(&self, host: usize) -> Duration {
        std::mem::take(&mut self.shared.done.lock().expect("no worker panics with it").longest_through[host])
    }

    /// Lets each end its operation.
    pub fn stop(self) -> Record {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.ended()
    }

    /// Waits until all have ended, because they were told to or have no server left.
    #[track_caller]
    pub fn ended(self) -> Record {
        let joined: Vec<_> = self.workers.into_iter().map(JoinHandle::join).collect();
        let cells =
            joined.into_iter().map(|cells| cells.expect("a writer has failed: its own words are above")).collect();
        let done = self.shared.done.lock().expect("no worker panics with it");
        Record { plan: self.plan, cells, operations: done.operations, longest: done.longest }
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.done.lock().expect("no worker panics with it").ended += 1;
        self.0.progress.notify_all();
    }
}

struct End<'a>(&'a Shared);

struct Worker<'a> {
    plan: &'a Plan,
    number: usize,
    /// By their places in the plan.
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
            let mut done = shared.done.lock().expect("no worker panics with it");
            done.operations += 1;
            done.longest = done.longest.max(took);
            done.through[through] += 1;
            done.longest_through[through] = done.longest_through[through].max(took);
            shared.progress.notify_all();
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
    /// Where a cell of a worker lies, and what a version of it looks like.
    fn cell(&self, worker: usize, index: usize, version: u64) -> (u64, Vec<u8>) {
        let cell = (index * self.workers + worker) as u64;
        let offset = self.begin + cell * self.cell_bytes as u64;
        let data = match version {
            0 => vec![0; self.cell_bytes],
            version => noise(self.seed ^ (cell << 32) ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15), self.cell_bytes),
        };
        (offset, data)
    }

    /// What is known of a cell after it was read.
    fn understand(&self, worker: usize, index: usize, cell: Cell, there: &[u8]) -> Cell {
        let seen = (cell.known..=cell.sent).find(|version| self.cell(worker, index, *version).1 == there);
        let Some(seen) = seen else {
            let older = (0..cell.known).rev().find(|version| self.cell(worker, index, *version).1 == there);
            let what = older.map_or("something that was never written".into(), |older| format!("version {older}"));
            let offset = self.cell(worker, index, 0).0;
            panic!("cell {index} of writer {worker}, at {offset}: {what} is there, not one of {cell:?}");
        };
        // What was seen once stands: nothing older may come back.
        Cell { known: seen, ..cell }
    }
}

impl Record {
    /// Reads every cell through `uri`, and finds what was acknowledged in it; or what was sent and never answered.
    #[track_caller]
    pub fn verify(&mut self, uri: &str) {
        let mut client = Client::open(uri);
        let mut versions = 0;
        for (worker, cells) in self.cells.iter_mut().enumerate() {
            for (index, cell) in cells.iter_mut().enumerate() {
                let (offset, _) = self.plan.cell(worker, index, 0);
                let there = client.read(offset, self.plan.cell_bytes).expect("everything can be read");
                *cell = self.plan.understand(worker, index, *cell, &there);
                versions += cell.known;
            }
        }
        assert!(versions > 0, "something was written");
    }
}
