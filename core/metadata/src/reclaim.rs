//! Reclaiming: the background job that frees the blocks of removed files, and of hosts that are gone.
//!
//! An inode without names is an *orphan*: it exists until no host has it open. The server then locks it, first against hosts that open it
//! and then against hosts that still use its blocks, frees its extents in steps, and removes it.
//!
//! ```text
//!   removed ─► lock of its existence ─► lock of its data ─► step, step, … ─► gone
//!               waits while it is open    waits for writes
//! ```
//!
//! A file that was truncated may have extents behind its size. Hosts free them in steps; if one has died, the server frees the rest, under
//! the lock of the data alone: the file exists, and may be open.
//!
//! A host that was fenced leaves its allotment behind, which becomes free in steps likewise.
//!
//! The job is lost with the process. The next owner finds orphans and allotments in the map.

use braid_base::{Generation, InodeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most inodes that are locked, or wait for their locks, at a time.
const ACTIVE_MAX: usize = 256;
/// The most steps that are under way at a time.
const STEPS_MAX: usize = 16;

/// What the server is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Lock an inode for the server itself.
    Lock { lock: u64, inode: InodeId, aspect: Aspect },
    /// Release such a lock.
    Unlock { lock: u64 },
    /// Run a step.
    Run(Step),
}

/// What a lock of an inode protects (`docs/metadata.md`). Hosts use the same positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    Data,
    Existence,
}

/// A step, which is logged like an operation of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Some extents of an orphan become free; after the last, the inode is gone.
    Free(InodeId),
    /// Some extents behind the size of a file become free.
    FreeTail(InodeId),
    /// Some runs of a host's allotment become free.
    Drop(Generation),
    /// Finds inodes that need the job, after this one.
    FindInodes(Option<InodeId>),
    /// Finds hosts that have allotments, after this one.
    FindHosts(Option<Generation>),
}

/// What follows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// This step comes next.
    Goes(Step),
    /// There is nothing left to do.
    Done,
}

/// The job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclaim {
    /// All inodes that are known to need the job.
    inodes: BTreeMap<InodeId, Need>,
    /// Those that are not active.
    waiting: VecDeque<InodeId>,
    active: BTreeMap<InodeId, Stage>,
    /// The locks of active inodes, held or requested.
    locks: BTreeMap<u64, InodeId>,
    /// Hosts that may have allotments.
    hosts: BTreeSet<Generation>,
    /// Those that are gone, and whose allotments are being dropped.
    gone: BTreeSet<Generation>,
    steps: VecDeque<Step>,
    running: BTreeSet<Step>,
    /// Steps that were not done for lack of room. They are tried again at the next turn.
    refused: Vec<Step>,
    actions: VecDeque<Action>,
    last_lock: u64,
}

/// What an inode needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is an orphan.
    Removal,
    /// It has extents behind its size.
    Cut,
}

/// The progress of an active inode. The lock of the existence is that of an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// `is_late`: it has waited for a whole turn.
    AwaitsExistence { existence: u64, is_late: bool },
    /// It has the lock of the existence, and waits for that of the data.
    AwaitsData { existence: Option<u64>, data: u64 },
    /// It has all locks, and blocks are being freed.
    Freeing { existence: Option<u64>, data: u64 },
}

impl Reclaim {
    /// Begins with what the owner before has left.
    pub fn start(&mut self) {
        self.steps.extend([Step::FindInodes(None), Step::FindHosts(None)]);
        self.advance();
    }

    /// An inode was found to need something, or has become an orphan.
    pub fn add_inode(&mut self, inode: InodeId, need: Need) {
        let known = self.inodes.get(&inode).copied();
        if known.is_none() {
            self.waiting.push_back(inode);
        }
        if known != Some(Need::Removal) {
            self.inodes.insert(inode, need);
        }
        self.advance();
    }

    /// A host has an allotment, or may have one.
    pub fn add_host(&mut self, host: Generation) {
        self.hosts.insert(host);
    }

    /// Forgets hosts until they are found again. True if there were some.
    pub fn forget_hosts(&mut self, which: impl Fn(Generation) -> bool) -> bool {
        let before = self.hosts.len();
        self.hosts.retain(|host| !which(*host));
        self.hosts.len() < before
    }

    /// Adds a step, unless it is under way.
    pub fn add_step(&mut self, step: Step) {
        if !self.running.contains(&step) && !self.steps.contains(&step) && !self.refused.contains(&step) {
            self.steps.push_back(step);
        }
        self.advance();
    }

    /// Drops the allotments of hosts that are gone.
    pub fn drop_hosts(&mut self, is_gone: impl Fn(Generation) -> bool) {
        let gone: Vec<Generation> = self.hosts.iter().copied().filter(|host| is_gone(*host)).collect();
        for host in gone {
            self.hosts.remove(&host);
            if self.gone.insert(host) {
                self.steps.push_back(Step::Drop(host));
            }
        }
        self.advance();
    }

    /// The hosts whose allotments are being dropped.
    pub fn gone(&self) -> impl Iterator<Item = Generation> {
        self.gone.iter().copied()
    }

    pub fn on_granted(&mut self, lock: u64) {
        let Some(inode) = self.locks.get(&lock).copied() else { return };
        let stage = self.active.get_mut(&inode).expect("locks belong to active inodes");
        match *stage {
            Stage::AwaitsExistence { existence, .. } => self.lock_data(inode, Some(existence)),
            Stage::AwaitsData { existence, data } => {
                *stage = Stage::Freeing { existence, data };
                self.steps.push_back(if existence.is_some() { Step::Free(inode) } else { Step::FreeTail(inode) });
            }
            Stage::Freeing { .. } => {}
        }
        self.advance();
    }

    /// A step is durable; or it was not done, and is tried again later.
    pub fn on_step(&mut self, step: Step, progress: Option<Progress>) {
        assert!(self.running.remove(&step), "a step ends once: {step:?}");
        match (step, progress) {
            (_, None) => self.refused.push(step),
            (_, Some(Progress::Goes(next))) => self.steps.push_back(next),
            (Step::Free(inode) | Step::FreeTail(inode), Some(Progress::Done)) => self.end(inode),
            (Step::Drop(host), Some(Progress::Done)) => {
                self.gone.remove(&host);
            }
            (Step::FindInodes(_) | Step::FindHosts(_), Some(Progress::Done)) => {}
        }
        self.advance();
    }

    /// True if something waits for the next [turn](Reclaim::turn).
    pub fn awaits_turn(&self) -> bool {
        !self.refused.is_empty() || self.active.values().any(|stage| matches!(stage, Stage::AwaitsExistence { .. }))
    }

    /// Time has passed: refused steps are tried again, and locks that are not granted are requested anew, so that they are not in the way
    /// of hosts for long, and open orphans give way to others.
    pub fn turn(&mut self) {
        self.steps.extend(std::mem::take(&mut self.refused));
        let mut late = Vec::new();
        for (inode, stage) in &mut self.active {
            match stage {
                Stage::AwaitsExistence { existence, is_late: true } => late.push((*inode, *existence)),
                Stage::AwaitsExistence { is_late, .. } => *is_late = true,
                Stage::AwaitsData { .. } | Stage::Freeing { .. } => {}
            }
        }
        for (inode, lock) in late {
            self.active.remove(&inode);
            self.locks.remove(&lock);
            self.actions.push_back(Action::Unlock { lock });
            self.waiting.push_back(inode);
        }
        self.advance();
    }

    /// The next thing to do.
    pub fn pop_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The number of orphans that are not gone yet, as far as they are known.
    pub fn unlinked_inodes(&self) -> usize {
        self.inodes.values().filter(|need| **need == Need::Removal).count()
    }

    fn lock_data(&mut self, inode: InodeId, existence: Option<u64>) {
        self.last_lock += 1;
        let data = self.last_lock;
        self.active.insert(inode, Stage::AwaitsData { existence, data });
        self.locks.insert(data, inode);
        self.actions.push_back(Action::Lock { lock: data, inode, aspect: Aspect::Data });
    }

    fn end(&mut self, inode: InodeId) {
        let Some(Stage::Freeing { existence, data }) = self.active.remove(&inode) else {
            panic!("an inode whose extents are being freed is active");
        };
        if existence.is_none() && self.inodes[&inode] == Need::Removal {
            // It has lost its last name meanwhile.
            self.waiting.push_back(inode);
        } else {
            self.inodes.remove(&inode);
        }
        for lock in [data].into_iter().chain(existence) {
            self.locks.remove(&lock);
            self.actions.push_back(Action::Unlock { lock });
        }
    }

    fn advance(&mut self) {
        while self.active.len() < ACTIVE_MAX
            && let Some(inode) = self.waiting.pop_front()
        {
            if self.inodes[&inode] == Need::Cut {
                self.lock_data(inode, None);
                continue;
            }
            self.last_lock += 1;
            let existence = self.last_lock;
            self.active.insert(inode, Stage::AwaitsExistence { existence, is_late: false });
            self.locks.insert(existence, inode);
            self.actions.push_back(Action::Lock { lock: existence, inode, aspect: Aspect::Existence });
        }
        while self.running.len() < STEPS_MAX
            && let Some(step) = self.steps.pop_front()
        {
            self.running.insert(step);
            self.actions.push_back(Action::Run(step));
        }
    }

    /// Asserts that every active inode has its locks.
    pub fn invariants(&self) {
        assert!(self.active.len() <= ACTIVE_MAX && self.running.len() <= STEPS_MAX);
        let locks = |stage: &Stage| match stage {
            Stage::AwaitsExistence { .. } => 1,
            Stage::AwaitsData { existence, .. } | Stage::Freeing { existence, .. } => 1 + existence.iter().count(),
        };
        let locks: usize = self.active.values().map(locks).sum();
        assert_eq!(locks, self.locks.len(), "every lock belongs to an active inode");
        assert_eq!(self.inodes.len(), self.waiting.len() + self.active.len(), "an inode waits or is active");
    }
}
