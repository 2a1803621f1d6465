//! Parts of a range that a program has locked, for its threads and tasks: *childlocks* (range-lock paper, section 3). They are granted in the
//! program itself, without a message and without its host, as long as the whole range is locked.

use crate::error::Error;
use crate::range_lock::RangeLock;
use braid_base::{BlockRange, ObjectId};
use braid_locks::{LockState, LockTable, Locked};
use braid_wire::{LockExtent, LockMode};
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// A lock of a part. It ends when it is dropped. It lasts at most as long as the lock of the whole range: if that is lost, so is this.
#[derive(Debug)]
pub struct RangePart<L: Deref<Target = RangeLock>> {
    whole: L,
    range: Range<u64>,
    number: u64,
}

/// The parts of one lock.
#[derive(Debug, Default)]
pub(crate) struct Parts(Mutex<PartTable>);

#[derive(Debug, Default)]
struct PartTable {
    table: LockTable<u64>,
    last: u64,
    /// Those who wait for a part and have been polled.
    waiting: BTreeMap<u64, Waker>,
}

impl RangeLock {
    /// Locks a part of the range among those who share this lock. Waits until the parts that conflict and were requested before have ended;
    /// if the future is dropped, the request is. It sends nothing: the array does not know parts.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the part is empty, reaches beyond the range, or is to be exclusive where the range is locked shared.
    pub async fn part(&self, range: Range<u64>, mode: LockMode) -> Result<RangePart<&RangeLock>, Error> {
        RangeLock::part_of(self, range, mode).await
    }

    /// Like [`RangeLock::part`], for a lock that is behind a pointer, such as an `Arc` that many tasks have.
    ///
    /// # Errors
    /// Like those of [`RangeLock::part`].
    pub async fn part_of<L: Deref<Target = RangeLock>>(
        whole: L,
        range: Range<u64>,
        mode: LockMode,
    ) -> Result<RangePart<L>, Error> {
        let all = whole.range();
        if range.is_empty() || range.start < all.start || range.end > all.end || !whole.mode().includes(mode) {
            return Err(Error::OutOfRange);
        }
        let number = whole.parts.request(&range, mode);
        let part = RangePart { whole, range, number };
        std::future::poll_fn(|context| part.whole.parts.poll(number, context.waker())).await;
        Ok(part)
    }
}

impl<L: Deref<Target = RangeLock>> RangePart<L> {
    /// The part, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The lock of the whole range.
    pub fn whole(&self) -> &RangeLock {
        &self.whole
    }
}

impl<L: Deref<Target = RangeLock>> Drop for RangePart<L> {
    fn drop(&mut self) {
        self.whole.parts.release(self.number);
    }
}

impl Parts {
    /// All parts belong to one range: so the table has one object.
    const OBJECT: ObjectId = ObjectId(0);

    fn lock(&self) -> MutexGuard<'_, PartTable> {
        self.0.lock().expect("nothing panics with the table")
    }

    /// Requests a part, and returns its number.
    fn request(&self, range: &Range<u64>, mode: LockMode) -> u64 {
        let mut parts = self.lock();
        parts.last += 1;
        let number = parts.last;
        let extent = LockExtent { position: 0, range: BlockRange::between(range.start, range.end), mode };
        let _: Locked<u64> = parts.table.lock(number, Parts::OBJECT, &[extent]);
        number
    }

    fn poll(&self, number: u64, waker: &Waker) -> Poll<()> {
        let mut parts = self.lock();
        match parts.table.state(number).expect("it was requested") {
            LockState::Held => Poll::Ready(()),
            LockState::Waiting => {
                parts.waiting.insert(number, waker.clone());
                Poll::Pending
            }
        }
    }

    fn release(&self, number: u64) {
        let mut granted = Vec::new();
        let mut parts = self.lock();
        parts.waiting.remove(&number);
        parts.table.release(number, &mut granted);
        let wakers: Vec<_> = granted.iter().filter_map(|number| parts.waiting.remove(number)).collect();
        drop(parts);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_held(parts: &Parts, number: u64) -> bool {
        parts.poll(number, Waker::noop()).is_ready()
    }

    #[test]
    fn parts_are_granted_in_the_order_of_their_requests() {
        let parts = Parts::default();
        let [writer, reader, other] = [(0..10, true), (5..8, false), (10..12, true)].map(|(range, exclusive)| {
            parts.request(&range, if exclusive { LockMode::Exclusive } else { LockMode::Shared })
        });
        let second = parts.request(&(0..20), LockMode::Exclusive);
        assert_eq!([writer, reader, other, second].map(|part| is_held(&parts, part)), [true, false, true, false]);
        parts.release(writer);
        assert_eq!([reader, other, second].map(|part| is_held(&parts, part)), [true, true, false]);
        parts.release(second);
        let late = parts.request(&(6..7), LockMode::Shared);
        assert!(is_held(&parts, late), "a request that was given up holds nothing up");
    }

    #[test]
    fn threads_that_wait_for_a_part_are_woken() {
        let (parts, count) = (Parts::default(), Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let number = parts.request(&(0..4), LockMode::Exclusive);
                        crate::wait(std::future::poll_fn(|context| parts.poll(number, context.waker())));
                        *count.try_lock().expect("one thread has the part") += 1;
                        parts.release(number);
                    }
                });
            }
        });
        assert_eq!(count.into_inner().expect("all have ended"), 4_000);
    }
}
