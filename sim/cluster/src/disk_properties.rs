//! Properties of disks that some runs have: physical sectors of 4 KiB, of which a loss of power may damage a whole one; and a page cache, which
//! shows readers the content of failed writes.

use crate::activity::{Activity, Draw, Feature, Options};
use crate::prelude::*;

#[derive(Clone, Debug)]
pub(crate) struct LargeSectors;

impl Activity for LargeSectors {}

impl Feature for LargeSectors {
    const NAME: &'static str = "large-sectors";
    const ONE_IN: u64 = 4;
    const NEEDS_ATOMICITY: bool = false;

    fn draw(options: &mut Options, _: &mut Draw) -> Option<LargeSectors> {
        options.medium.physical_sector = 4096;
        options.device_bytes = options.device_bytes.max(24 << 20);
        // The journal then keeps more space for decisions.
        options.journal_bytes = options.journal_bytes.map(|bytes| bytes.max(2 << 20));
        Some(LargeSectors)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PageCache;

impl Activity for PageCache {}

impl Feature for PageCache {
    const NAME: &'static str = "page-cache";
    const ONE_IN: u64 = 6;
    const NEEDS_ATOMICITY: bool = false;

    fn draw(options: &mut Options, draw: &mut Draw) -> Option<PageCache> {
        options.medium.cached = true;
        // Without failing writes, a page cache has no effect.
        if options.atomicity == Atomicity::Implied && draw.choices.may(FaultKind::DiskError.name()) {
            options.faults.weights.insert(FaultKind::DiskError, 5);
        }
        Some(PageCache)
    }
}
