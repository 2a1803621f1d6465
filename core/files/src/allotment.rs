//! The host's allotment: free blocks that the metadata server has reserved for it. First writes take blocks from here, so that they wait
//! for the server only when it runs low.
//!
//! An operation reserves the number of blocks that it needs before it writes anything. So an operation that fails for lack of space has
//! changed nothing. Which blocks it gets is decided when they are written.

use crate::metadata_link::{Asker, MetadataLink};
use crate::progress::Progress;
use braid_base::{BlockRange, Extents, Time, limits};
use braid_machine::{FilesError, HostError};
use braid_wire::{FileCommand, FileError, FileReply, FileResult};
use std::collections::{BTreeMap, VecDeque};

/// More blocks are reserved in advance when fewer than this part of the next portion are left.
const LOW: u64 = 8;

#[derive(Clone, Debug, Default)]
pub struct Allotment {
    free: Extents,
    free_count: u64,
    /// Blocks that operations have reserved, by operation.
    reserved: BTreeMap<u64, u64>,
    reserved_count: u64,
    /// Operations that wait for blocks, in order.
    waiting: VecDeque<(u64, u64)>,
    /// The server is asked for more.
    is_asking: bool,
    /// The server has lately refused more: it is asked only for what is needed.
    is_scarce: bool,
    /// Whether the host may have an allotment.
    is_mounted: bool,
    /// How many blocks to reserve next. Rises while blocks are used, so that a host that writes little keeps little from others.
    portion: u64,
    /// Unused blocks that the server has called back, and that are being given back.
    giving: Option<Vec<BlockRange>>,
    /// Where the last blocks were taken.
    cursor: u64,
    stripe_blocks: u64,
}

impl Allotment {
    pub fn new(stripe_blocks: u64) -> Allotment {
        Allotment { portion: limits::ALLOTMENT_BLOCKS_MIN, stripe_blocks: stripe_blocks.max(1), ..Default::default() }
    }

    /// From now on the host may have an allotment, or none any more.
    pub fn set_mounted(&mut self, now: Time, link: &mut MetadataLink, is_mounted: bool) {
        self.is_mounted = is_mounted;
        self.ask_for_more(now, link);
    }

    /// Reserves blocks for an operation. False if it has to wait.
    pub fn reserve(&mut self, now: Time, link: &mut MetadataLink, op: u64, blocks: u64) -> bool {
        assert!(blocks > 0 && !self.reserved.contains_key(&op), "an operation reserves once at a time");
        self.waiting.push_back((op, blocks));
        let mut served = Vec::new();
        self.serve(&mut served);
        self.ask_for_more(now, link);
        assert!(served.iter().all(|other| *other == op), "what was served needed no more blocks than were there");
        !served.is_empty()
    }

    /// True if the operation has reserved blocks and need not wait.
    pub fn has_reserved(&self, op: u64) -> bool {
        self.reserved.contains_key(&op)
    }

    /// Takes back what an operation has reserved and not used.
    pub fn cancel(&mut self, op: u64, progress: &mut Vec<Progress>) {
        self.waiting.retain(|(waiting, _)| *waiting != op);
        self.reserved_count -= self.reserved.remove(&op).unwrap_or(0);
        self.serve_all(progress);
    }

    /// Takes blocks that operations have reserved: as few runs as possible, and best one that follows the last.
    pub fn take(&mut self, ops: impl IntoIterator<Item = u64>) -> Vec<BlockRange> {
        let of = |op| self.reserved.remove(&op).expect("blocks are reserved before they are taken");
        let mut count: u64 = ops.into_iter().map(of).sum();
        self.reserved_count -= count;
        let mut runs = Vec::new();
        while count > 0 {
            let run = self.choose(count);
            self.free.remove(run);
            self.free_count -= run.count;
            self.cursor = run.end();
            count -= run.count;
            runs.push(run);
        }
        runs
    }

    /// Blocks that were taken are not used after all.
    pub fn put_back(&mut self, runs: &[BlockRange], progress: &mut Vec<Progress>) {
        runs.iter().for_each(|run| self.free.insert(*run));
        // A server may name blocks that are here already.
        self.free_count = self.free.blocks();
        self.serve_all(progress);
    }

    /// The server has answered `Reserve`.
    pub fn on_reserved(&mut self, now: Time, link: &mut MetadataLink, reply: FileReply, progress: &mut Vec<Progress>) {
        self.is_asking = false;
        let error = match reply {
            Ok(FileResult::Reserved(runs)) if runs.iter().any(|run| !run.is_empty()) => {
                self.is_scarce = false;
                self.put_back(&runs, progress);
                return self.ask_for_more(now, link);
            }
            Ok(_) => FileError::NoSpace,
            Err(error) => error,
        };
        self.is_scarce = true;
        self.portion = limits::ALLOTMENT_BLOCKS_MIN;
        // Later ones may need less.
        if let Some((op, _)) = self.waiting.pop_front() {
            progress.push(Progress::Failed(op, HostError::Files(FilesError::Refused(error))));
        }
        self.serve_all(progress);
        self.ask_for_more(now, link);
    }

    /// Takes out some unused blocks, to give them back; none when all are out.
    pub fn drain(&mut self) -> Vec<BlockRange> {
        self.take_out(self.free_count)
    }

    /// Other hosts need blocks: gives back those that no operation needs, and says so if there are none.
    pub fn call_back(&mut self, now: Time, link: &mut MetadataLink) {
        if !self.is_mounted || self.giving.is_some() {
            return;
        }
        // From now on only what is needed is asked for.
        self.is_scarce = true;
        self.portion = limits::ALLOTMENT_BLOCKS_MIN;
        let unused = if self.waiting.is_empty() { self.free_count - self.reserved_count } else { 0 };
        let runs = self.take_out(unused);
        self.giving = Some(runs.clone());
        link.send(now, Asker::CalledBack, FileCommand::GiveBack { runs });
    }

    /// The server has answered what [`Allotment::call_back`] has sent. What it refuses is kept.
    pub fn on_given_back(&mut self, reply: &FileReply, progress: &mut Vec<Progress>) {
        let runs = self.giving.take().expect("blocks are given back once at a time");
        if reply.is_err() {
            self.put_back(&runs, progress);
        }
    }

    /// True if the server is asked for nothing.
    pub fn is_idle(&self) -> bool {
        !self.is_asking && self.giving.is_none()
    }

    /// Unused blocks, reserved ones included, for inspection.
    pub fn free(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.free.from(0)
    }

    pub fn invariants(&self) {
        assert!(self.reserved_count <= self.free_count, "reserved blocks are there");
        assert_eq!(self.reserved_count, self.reserved.values().sum::<u64>());
        assert!(
            self.waiting.is_empty() || self.is_asking || !self.is_mounted,
            "blocks that operations wait for are requested"
        );
    }

    /// Takes out so many blocks, or what fits into a command.
    fn take_out(&mut self, mut most: u64) -> Vec<BlockRange> {
        let mut runs = Vec::new();
        for run in self.free.from(0).take(limits::FILE_EXTENTS_MAX) {
            let run = BlockRange::new(run.start, run.count.min(most));
            most -= run.count;
            runs.extend(Some(run).filter(|run| !run.is_empty()));
        }
        for run in &runs {
            self.free.remove(*run);
            self.free_count -= run.count;
        }
        runs
    }

    /// Serves those who wait, in order.
    fn serve(&mut self, served: &mut Vec<u64>) {
        while let Some((op, blocks)) = self.waiting.front().copied()
            && blocks <= self.free_count - self.reserved_count
        {
            self.waiting.pop_front();
            self.reserved.insert(op, blocks);
            self.reserved_count += blocks;
            served.push(op);
        }
    }

    fn serve_all(&mut self, progress: &mut Vec<Progress>) {
        let mut served = Vec::new();
        self.serve(&mut served);
        progress.extend(served.into_iter().map(Progress::Ready));
    }

    fn ask_for_more(&mut self, now: Time, link: &mut MetadataLink) {
        let unused = self.free_count - self.reserved_count;
        let needed = self.waiting.front().map_or(0, |(_, blocks)| blocks - unused.min(*blocks));
        // The last portion is nearly used.
        let is_low = self.portion > limits::ALLOTMENT_BLOCKS_MIN && unused < self.portion / LOW && !self.is_scarce;
        if self.is_asking || !self.is_mounted || (needed == 0 && !is_low) {
            return;
        }
        self.is_asking = true;
        let least = if self.is_scarce { 1 } else { self.portion };
        self.portion = (self.portion * 2).min(limits::ALLOTMENT_BLOCKS_MAX);
        let blocks = needed.max(least).min(limits::RESERVED_BLOCKS_MAX);
        link.send(now, Asker::Reserve, FileCommand::Reserve { blocks });
    }

    /// The run to take next: from the cursor on, the first one that is long enough, a whole stripe at its start if possible; otherwise the
    /// longest.
    fn choose(&self, count: u64) -> BlockRange {
        let is_long = |run: &BlockRange| run.count >= count;
        let behind = self.free.from(self.cursor).find(is_long);
        if let Some(run) = behind.or_else(|| self.free.from(0).find(is_long)) {
            let aligned = run.start.next_multiple_of(self.stripe_blocks);
            let is_worth = count >= self.stripe_blocks && aligned + count <= run.end();
            return BlockRange::new(if is_worth { aligned } else { run.start }, count);
        }
        self.free.from(0).max_by_key(|run| run.count).expect("reserved blocks are there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Generation;
    use braid_base::limits::Settings;

    fn bench() -> (Allotment, MetadataLink, Vec<Progress>) {
        let mut link = MetadataLink::new(Generation(1), Settings::default());
        let mut allotment = Allotment::new(16);
        allotment.set_mounted(Time(0), &mut link, true);
        (allotment, link, Vec::new())
    }

    fn asked(link: &mut MetadataLink) -> Vec<u64> {
        let blocks = |command| match command {
            FileCommand::Reserve { blocks } => blocks,
            other => panic!("{other:?}"),
        };
        link.drain().map(|request| blocks(request.command)).collect()
    }

    fn more(runs: &[(u64, u64)]) -> FileReply {
        Ok(FileResult::Reserved(runs.iter().map(|(start, count)| BlockRange::new(*start, *count)).collect()))
    }

    #[test]
    fn more_is_asked_for_before_all_is_used() {
        let (mut allotment, mut link, mut progress) = bench();
        assert!(asked(&mut link).is_empty(), "nothing is needed");
        let min = limits::ALLOTMENT_BLOCKS_MIN;
        assert!(!allotment.reserve(Time(0), &mut link, 1, min - 70));
        assert_eq!(asked(&mut link), [min]);
        allotment.on_reserved(Time(0), &mut link, more(&[(0, min)]), &mut progress);
        assert_eq!(progress, [Progress::Ready(1)]);
        assert_eq!(asked(&mut link), [], "70 blocks are left, more than an eighth of the next portion");
        assert!(allotment.reserve(Time(0), &mut link, 2, 8));
        assert_eq!(asked(&mut link), [2 * min]);
        assert_eq!(allotment.take([2]), [BlockRange::new(0, 8)]);
        assert_eq!(allotment.take([1]), [BlockRange::new(16, min - 70)], "a whole stripe at its start");
        allotment.invariants();
    }

    #[test]
    fn unused_blocks_are_given_back_when_they_are_called_back() {
        let given = |link: &mut MetadataLink| {
            let runs = link.drain().map(|request| request.command);
            let runs = runs.map(|command| match command {
                FileCommand::GiveBack { runs } => runs,
                other => panic!("{other:?}"),
            });
            runs.collect::<Vec<_>>()
        };
        let (mut allotment, mut link, mut progress) = bench();
        allotment.put_back(&[BlockRange::new(0, 8), BlockRange::new(20, 8)], &mut progress);
        assert!(allotment.reserve(Time(0), &mut link, 1, 5));
        allotment.call_back(Time(0), &mut link);
        assert_eq!(
            given(&mut link),
            [[BlockRange::new(0, 8), BlockRange::new(20, 3)]],
            "what an operation needs stays"
        );
        allotment.call_back(Time(0), &mut link);
        assert_eq!(given(&mut link).len(), 0, "they are being given back");
        assert!(!allotment.is_idle());
        allotment.on_given_back(&Ok(FileResult::Done), &mut progress);
        allotment.call_back(Time(0), &mut link);
        assert_eq!(given(&mut link), [[]], "nothing is left, which is an answer, too");
        allotment.on_given_back(&Ok(FileResult::Done), &mut progress);
        allotment.put_back(&[BlockRange::new(40, 3)], &mut progress);
        allotment.call_back(Time(0), &mut link);
        assert_eq!(given(&mut link), [[BlockRange::new(23, 3)]]);
        allotment.on_given_back(&Err(FileError::NoSpace), &mut progress);
        assert!(!allotment.reserve(Time(0), &mut link, 2, 4));
        assert_eq!(asked(&mut link), [1], "refused blocks are kept, and no more than needed is asked for");
        allotment.call_back(Time(0), &mut link);
        assert_eq!(given(&mut link), [[]], "what an operation waits for is not unused");
        allotment.invariants();
    }

    #[test]
    fn a_refusal_fails_the_first_and_later_ones_may_need_less() {
        let (mut allotment, mut link, mut progress) = bench();
        allotment.put_back(&[BlockRange::new(7, 3), BlockRange::new(20, 2)], &mut progress);
        assert!(!allotment.reserve(Time(0), &mut link, 1, 6));
        assert!(!allotment.reserve(Time(0), &mut link, 2, 5));
        allotment.on_reserved(Time(0), &mut link, Err(FileError::NoSpace), &mut progress);
        let full = HostError::Files(FilesError::Refused(FileError::NoSpace));
        assert_eq!(progress, [Progress::Failed(1, full), Progress::Ready(2)]);
        assert_eq!(allotment.take([2]), [BlockRange::new(7, 3), BlockRange::new(20, 2)]);
        allotment.put_back(&[BlockRange::new(7, 3)], &mut progress);
        assert!(allotment.reserve(Time(0), &mut link, 3, 3));
        allotment.cancel(3, &mut progress);
        assert_eq!(allotment.drain(), [BlockRange::new(7, 3)]);
        allotment.invariants();
    }
}
