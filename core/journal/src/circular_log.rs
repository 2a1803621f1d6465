//! The circular log is the space that batches are written to. It determines the position of the next batch, the space in use, and when a snapshot
//! is worthwhile.

#[derive(Clone, Debug)]
pub(crate) struct CircularLog {
    capacity: u64,
    /// Batches begin at multiples of this, so that a batch never shares an atomic unit of the disk with a durable one.
    align: u64,
    /// The offset of the next batch, and the number of bytes in use between the tail and there.
    head: u64,
    used: u64,
    /// The tail after the checkpoint that is under way: the position of the snapshot's first batch.
    snapshot_start: Option<SnapshotStart>,
    /// Bytes written since the last snapshot ended.
    since_snapshot: u64,
    /// True if a record waits for space.
    wanted: bool,
}

#[derive(Clone, Copy, Debug)]
struct SnapshotStart {
    offset: u64,
    sequence: u64,
    /// Bytes in use before it.
    behind: u64,
}

/// A position for a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSpan {
    pub offset: u64,
    end: u64,
    /// Bytes that are left unused at the end of the log, where the batch does not fit.
    wasted: u64,
    /// Bytes that it takes in all.
    taken: u64,
}

impl BatchSpan {
    /// Bytes from where the batch begins to where the next one may.
    pub fn len(&self) -> usize {
        (self.end - self.offset) as usize
    }
}

impl CircularLog {
    pub fn new(capacity: u64, align: u64, tail: u64, head: u64) -> CircularLog {
        let used = (head + capacity - tail) % capacity;
        // In journals of an earlier release a batch may end at any offset.
        let gap = head.next_multiple_of(align) - head;
        let gap = if used + gap < capacity { gap } else { 0 };
        let (head, used) = ((head + gap) % capacity, used + gap);
        CircularLog { capacity, align, head, used, snapshot_start: None, since_snapshot: used, wanted: false }
    }

    /// Adopts a complete snapshot that recovery found.
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

    /// The position for a batch of this length, behind which `left` bytes are left; `None` if there is no space until a snapshot frees some.
    pub fn find(&self, length: u64, left: u64) -> Option<BatchSpan> {
        let wasted = if self.head + length > self.capacity { self.capacity - self.head } else { 0 };
        let offset = if wasted > 0 { 0 } else { self.head };
        let end = (offset + length).next_multiple_of(self.align);
        let taken = wasted + end - offset;
        (self.used + taken + left < self.capacity).then_some(BatchSpan { offset, end, wasted, taken })
    }

    /// Allocates the space of a batch. A batch that only repeats records of the log (`is_news` is false) does not make a snapshot due.
    pub fn take(&mut self, place: BatchSpan, is_news: bool) {
        self.since_snapshot += if is_news { place.taken } else { 0 };
        self.used += place.taken;
        self.head = place.end % self.capacity;
    }

    pub fn has_snapshot(&self) -> bool {
        self.snapshot_start.is_some()
    }

    /// Notes that the batch at `place` is the first one of a snapshot.
    pub fn start_snapshot(&mut self, place: BatchSpan, sequence: u64) {
        let behind = self.used + place.wasted;
        self.snapshot_start = Some(SnapshotStart { offset: place.offset, sequence, behind });
    }

    /// Notes that a snapshot is about to be written.
    pub fn await_snapshot(&mut self) {
        self.snapshot_start = None;
        self.since_snapshot = 0;
        self.wanted = false;
    }

    /// The offset of the last snapshot, and the sequence of its first batch.
    pub fn snapshot_start(&self) -> (u64, u64) {
        let start = self.snapshot_start.expect("a checkpoint writes its snapshot first");
        (start.offset, start.sequence)
    }

    /// Frees the space before the last snapshot: recovery begins there from now on.
    pub fn advance_tail(&mut self) {
        let start = self.snapshot_start.take().expect("a checkpoint writes its snapshot first");
        self.used -= start.behind;
    }

    /// Notes that a record waits for space.
    pub fn want_room(&mut self) {
        self.wanted = true;
    }

    /// True if a snapshot would free space. The mark after the last snapshot, one sector, does not count.
    pub fn has_grown(&self) -> bool {
        self.since_snapshot > 2 * self.align
    }

    /// True if a snapshot is due: the log is half full, and not only with what the last snapshot repeated; or a record waits for space.
    pub fn wants_checkpoint(&self) -> bool {
        let is_half_full = self.used > self.capacity / 2 && self.since_snapshot > self.capacity / 8;
        is_half_full || self.wanted && self.has_grown()
    }

    pub fn invariants(&self) {
        assert!(self.used < self.capacity, "the head of the journal must not reach its tail");
        assert!(self.head < self.capacity);
    }
}
