//! A window of blocks: each of them is in exactly one free run, allotment, extent, or transfer from one shard to another.

use crate::check::finding::{Finding, Report};
use crate::check::scan::{Scan, decode};
use crate::keys;
use crate::records::{decode_extent, decode_run, decode_transfer};
use crate::transfers::in_transit;
use braid_base::BlockRange;
use braid_objects::{Key, Kind, NotHere, Obstacle, View};
use bytes::Bytes;

const WORD_BITS: u64 = u64::BITS as u64;

/// Blocks of the volume, and which of them have been found.
#[derive(Clone, Debug)]
pub struct BlockWindow {
    blocks: BlockRange,
    /// The blocks of the whole volume.
    volume: u64,
    /// A bit for each block.
    found: Vec<u64>,
    kind: Kind,
    scan: Scan,
    /// A transfer of which it is not known yet whether it was received.
    given: Option<(Key, Bytes)>,
}

impl BlockWindow {
    pub fn from(first: u64, most: u64, volume: u64) -> BlockWindow {
        let blocks = BlockRange::new(first, most.min(volume - first));
        let found = vec![0; blocks.count.div_ceil(WORD_BITS) as usize];
        let scan = Scan::over(keys::all(Kind::FreeRun));
        BlockWindow { blocks, volume, found, kind: Kind::FreeRun, scan, given: None }
    }

    /// The window after this one.
    pub fn next(&self, most: u64, volume: u64) -> Option<BlockWindow> {
        let first = self.blocks.end();
        (first < volume).then(|| BlockWindow::from(first, most, volume))
    }

    /// Reads one more key. True if the window is complete.
    pub fn advance(&mut self, view: &mut dyn View, report: &mut Report) -> Result<bool, NotHere> {
        if let Some((key, value)) = self.given.take() {
            self.take_given(key, value, view, report)?;
        }
        if let Some((key, value)) = self.scan.advance(view, report)? {
            if self.kind == Kind::FileSystem {
                self.take_given(key, value, view, report)?;
                return Ok(false);
            }
            // Damage was reported with the first window, and extents were decoded with the inodes.
            let mut unlisted = Report::default();
            let is_new = self.blocks.start == 0 && self.kind != Kind::Extent;
            let to = if is_new { &mut *report } else { &mut unlisted };
            let run = match self.kind {
                Kind::Extent => decode(key, &value, to, decode_extent).map(|extent| extent.blocks),
                _ => decode(key, &value, to, decode_run),
            };
            if let Some(run) = run {
                self.take(run, report);
            }
            return Ok(false);
        }
        let next = match self.kind {
            Kind::FreeRun => Kind::Allotment,
            Kind::Allotment => Kind::Extent,
            Kind::Extent => {
                (self.kind, self.scan) = (Kind::FileSystem, Scan::over(keys::all_given()));
                return Ok(false);
            }
            _ => {
                self.report_missing(report);
                return Ok(true);
            }
        };
        (self.kind, self.scan) = (next, Scan::over(keys::all(next)));
        Ok(false)
    }

    /// Takes the blocks of a transfer that is not received.
    fn take_given(&mut self, key: Key, value: Bytes, view: &mut dyn View, report: &mut Report) -> Result<(), NotHere> {
        let mut unlisted = Report::default();
        let to = if self.blocks.start == 0 { &mut *report } else { &mut unlisted };
        let Some(transfer) = decode(key, &value, to, |_, value| decode_transfer(value)) else { return Ok(()) };
        match in_transit(key, &transfer, view) {
            Ok(runs) => runs.into_iter().for_each(|run| self.take(run, report)),
            Err(Obstacle::NotHere) => {
                self.given = Some((key, value));
                return Err(NotHere);
            }
            Err(Obstacle::Lost) => to.add(Finding::Damaged { key: keys::received_of_given(key) }),
        }
        Ok(())
    }

    fn take(&mut self, run: BlockRange, report: &mut Report) {
        if run.end() > self.volume && self.blocks.start == 0 {
            let blocks = BlockRange::between(run.start.max(self.volume), run.end());
            report.add(Finding::OutsideVolume { blocks });
        }
        let run = run.intersection(self.blocks);
        match self.kind {
            Kind::FreeRun => report.counted.free += run.count,
            Kind::Allotment => report.counted.allotted += run.count,
            _ => {}
        }
        if run.is_empty() {
            return;
        }
        let (mut next, end) = (run.start - self.blocks.start, run.end() - self.blocks.start);
        let mut twice = None;
        while next < end {
            let bits = (WORD_BITS - next % WORD_BITS).min(end - next);
            let mask = (u64::MAX >> (WORD_BITS - bits)) << (next % WORD_BITS);
            let word = &mut self.found[(next / WORD_BITS) as usize];
            if *word & mask != 0 {
                let at = next / WORD_BITS * WORD_BITS + u64::from((*word & mask).trailing_zeros());
                twice.get_or_insert(self.blocks.start + at);
            }
            *word |= mask;
            next += bits;
        }
        if let Some(block) = twice {
            report.add(Finding::UsedTwice { block });
        }
    }

    /// Reports the runs of blocks that were not found.
    fn report_missing(&self, report: &mut Report) {
        let is_found = |at: u64| self.found[(at / WORD_BITS) as usize] >> (at % WORD_BITS) & 1 == 1;
        let mut next = 0;
        while next < self.blocks.count {
            if next % WORD_BITS == 0 && self.found[(next / WORD_BITS) as usize] == u64::MAX {
                next += WORD_BITS;
                continue;
            }
            let start = next;
            while next < self.blocks.count && !is_found(next) {
                next += 1;
            }
            if next > start {
                let blocks = BlockRange::between(self.blocks.start + start, self.blocks.start + next);
                report.add(Finding::Leaked { blocks });
            }
            next = next.max(start + 1);
        }
    }
}
