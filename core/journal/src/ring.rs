//! The ring that batches are written to: where the next one goes, how much is in use, and what is worth a snapshot.

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    capacity: u64,
    /// Batches begin at multiples of this, so that none shares what the disk writes at once with one that is durable.
    align: u64,
    /// Where the next batch may go, and how many bytes from the tail to there are in use.
    head: u64,
    used: u64,
    /// The tail to be, when the checkpoint at work ends: the place of the snapshot's first batch.
    snapshot_start: Option<SnapshotStart>,
    /// Bytes written since the last snapshot ended.
    since_snapshot: u64,
    /// Somebody waits for room.
    wanted: bool,
}

#[derive(Clone, Copy, Debug)]
struct SnapshotStart {
    offset: u64,
    sequence: u64,
    /// What is in use before it.
    behind: u64,
}

/// Where a batch can go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSpan {
    pub offset: u64,
    end: u64,
    /// Of the ring's end, where it does not fit.
    wasted: u64,
    /// In all.
    taken: u64,
}

impl Ring {
    pub fn new(capacity: u64, align: u64, tail: u64, head: u64) -> Ring {
        let used = (head + capacity - tail) % capacity;
        // One of an earlier release may end anywhere.
        let gap = head.next_multiple_of(align) - head;
        let gap = if used + gap < capacity { gap } else { 0 };
        let (head, used) = ((head + gap) % capacity, used + gap);
        Ring { capacity, align, head, used, snapshot_start: None, since_snapshot: used, wanted: false }
    }

    /// Takes over a snapshot that recovery found whole.
    pub fn adopt_snapshot(&mut self, tail: u64, offset: u64, sequence: u64) {
        let behind = (offset + self.capacity - tail) % self.capacity;
        self.snapshot_start = Some(SnapshotStart { offset, sequence, behind });
        self.since_snapshot = self.used - behind;
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn align(&self) -> u64 {
        self.align
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    /// Where a batch of this length goes; nowhere if there is no room for it until a snapshot frees some.
    pub fn find(&self, length: u64) -> Option<BatchSpan> {
        let wasted = if self.head + length > self.capacity { self.capacity - self.head } else { 0 };
        let offset = if wasted > 0 { 0 } else { self.head };
        let end = (offset + length).next_multiple_of(self.align);
        let taken = wasted + end - offset;
        (self.used + taken < self.capacity).then_some(BatchSpan { offset, end, wasted, taken })
    }

    /// A batch goes there. One that only repeats what is in the ring already is no reason for a snapshot.
    pub fn take(&mut self, place: BatchSpan, is_news: bool) {
        self.since_snapshot += if is_news { place.taken } else { 0 };
        self.used += place.taken;
        self.head = place.end % self.capacity;
    }

    pub fn has_snapshot(&self) -> bool {
        self.snapshot_start.is_some()
    }

    /// The batch that is going to `place` is a snapshot's first.
    pub fn start_snapshot(&mut self, place: BatchSpan, sequence: u64) {
        let behind = self.used + place.wasted;
        self.snapshot_start = Some(SnapshotStart { offset: place.offset, sequence, behind });
    }

    /// A snapshot is about to be written.
    pub fn await_snapshot(&mut self) {
        self.snapshot_start = None;
        self.since_snapshot = 0;
        self.wanted = false;
    }

    /// Where the last snapshot begins, and the sequence of its first batch.
    pub fn snapshot_start(&self) -> (u64, u64) {
        let start = self.snapshot_start.expect("a checkpoint writes its snapshot first");
        (start.offset, start.sequence)
    }

    /// Frees what is before the last snapshot: recovery begins there now.
    pub fn advance_tail(&mut self) {
        let start = self.snapshot_start.take().expect("a checkpoint writes its snapshot first");
        self.used -= start.behind;
    }

    /// Somebody waits for room.
    pub fn want_room(&mut self) {
        self.wanted = true;
    }

    /// True if a snapshot would gain anything; the mark behind the last one, a sector, is not worth it.
    pub fn has_grown(&self) -> bool {
        self.since_snapshot > 2 * self.align
    }

    /// True if a snapshot is due: the ring is half full, and not of what the last one carried along; or somebody waits for room.
    pub fn wants_snapshot(&self) -> bool {
        let is_half_full = self.used > self.capacity / 2 && self.since_snapshot > self.capacity / 8;
        is_half_full || self.wanted && self.has_grown()
    }

    pub fn invariants(&self) {
        assert!(self.used < self.capacity, "the journal never bites its tail");
        assert!(self.head < self.capacity);
    }
}
