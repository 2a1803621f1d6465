//! Locks of ranges, for programs that share something: a program locks a range of bytes of a *space*, shared or exclusive, on any host
//! (range-lock paper, section 3; `docs/range-locks.md`). A space is a name; it needs no volume, and what its bytes stand for is up to the
//! programs.

use crate::array::Array;
use crate::error::Error;
use crate::range_part::Parts;
use braid_base::{BLOCK_BYTES, BlockRange, ObjectId};
use braid_machine::{HostSuccess, RangesRequest};
use braid_wire::{LockExtent, LockMode};
use std::ops::Range;
use std::time::Duration;

/// How long a host may take to give up a range that none of its programs uses.
const TRY_WAIT: Duration = Duration::from_secs(1);
/// The end of the last range, in bytes.
const END_MAX: u64 = u64::MAX / BLOCK_BYTES as u64;

/// The ranges of a space. Clones refer to the same space.
#[derive(Clone, Debug)]
pub struct Ranges {
    array: Array,
    object: ObjectId,
    width: u64,
}

/// A lock of a range. It ends when it is dropped, or with [`RangeLock::unlock`]. This host keeps the range until another host wants it: so
/// the next lock of it here needs no message.
///
/// The lock is lost if this host is fenced, or does not hear a lock server for most of a lease: [`RangeLock::recalled`] then fails. Other programs
/// are granted the range soon after, so stop what relies on it first. For effects that may come late, pass [`RangeLock::token`] on.
#[derive(Debug)]
pub struct RangeLock {
    ranges: Ranges,
    range: Range<u64>,
    mode: LockMode,
    lock: u64,
    pub(crate) parts: Parts,
}

impl Array {
    /// The ranges of a space: all programs that use this name share them.
    pub fn ranges(&self, space: &str) -> Ranges {
        self.note_space(space);
        Ranges { array: self.clone(), object: space_object(space), width: 0 }
    }
}

impl Ranges {
    /// The same ranges, of which this host is granted up to `bytes` more than what a program locks, as long as no other host wants them. Good for
    /// programs that lock ranges which follow each other, or have equal lengths and distances: fewer of them need a message.
    pub fn widened(self, bytes: u64) -> Ranges {
        Ranges { width: bytes, ..self }
    }

    /// Locks a range of bytes. Waits for at most the deadline of the array's handle. A lock server grants requests in the order in which they come.
    ///
    /// # Errors
    /// [`Error::RangeTaken`] if others hold some of it until the deadline; [`Error::OutOfRange`] for an empty range, or one that ends at 2^52
    /// or above. [`HostError::LockServerSilent`](braid_machine::HostError::LockServerSilent) if a lock server does not answer, or this process
    /// was suspended and has not heard it since.
    pub async fn lock(&self, range: Range<u64>, mode: LockMode) -> Result<RangeLock, Error> {
        self.array.want_lock_servers().await?;
        Ok(self.clone().acquire(range, mode, None, self.array.deadline()).await?.0)
    }

    /// Locks a range of bytes if that is possible at once. None if others hold some of it and do not give it up within a second.
    ///
    /// # Errors
    /// Like those of [`Ranges::lock`].
    pub async fn try_lock(&self, range: Range<u64>, mode: LockMode) -> Result<Option<RangeLock>, Error> {
        self.array.want_lock_servers().await?;
        match self.clone().acquire(range, mode, None, TRY_WAIT).await {
            Ok((lock, _)) => Ok(Some(lock)),
            Err(Error::RangeTaken { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a lease of a range of bytes: for as long as it is valid, no other program, on this host or another one, has a lock of the range that is
    /// exclusive. So what was read of what the range stands for may be kept. None if another program has or
    /// awaits an exclusive lock, or a host keeps one: then read under a shared lock, after which a lease is likely to be given.
    ///
    /// # Errors
    /// Like those of [`Ranges::lock`].
    pub async fn lease(&self, range: Range<u64>) -> Result<Option<RangeLease>, Error> {
        self.array.want_lock_servers().await?;
        let extents = extents(&range, LockMode::Shared)?;
        let request = RangesRequest::Lease { object: self.object, extents, wait: self.array.deadline() };
        match self.clone().take(request, range, LockMode::Shared).await {
            Ok((lock, _)) => Ok(Some(RangeLease { lock })),
            Err(Error::RangeTaken { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// If the caller does not wait any more, the lock ends as soon as it is granted.
    async fn acquire(
        self,
        range: Range<u64>,
        mode: LockMode,
        over: Option<u64>,
        wait: Duration,
    ) -> Result<(RangeLock, bool), Error> {
        let (object, width, extents) = (self.object, self.width, extents(&range, mode)?);
        self.take(RangesRequest::Lock { object, extents, over, width, wait: Some(wait) }, range, mode).await
    }

    async fn take(self, request: RangesRequest, range: Range<u64>, mode: LockMode) -> Result<(RangeLock, bool), Error> {
        let array = self.array.clone();
        let lock = async move {
            let locked = self.array.call(request).await?;
            let HostSuccess::RangeLocked { lock, kept } = locked else { return Err(Error::ProtocolError) };
            Ok((RangeLock { ranges: self, range, mode, lock, parts: Parts::default() }, kept))
        };
        array.on_thread(lock).await
    }
}

impl RangeLock {
    /// The range, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// How the range is locked.
    pub fn mode(&self) -> LockMode {
        self.mode
    }

    /// The same lock. Requests about it have another deadline.
    pub fn within(mut self, deadline: Duration) -> RangeLock {
        self.ranges.array = self.ranges.array.within(deadline);
        self
    }

    /// A fencing token: a number that is higher than the tokens of all locks that had to end before this one was granted, on any host. It protects
    /// what refuses lower tokens than the highest that it has seen, for instance objects with a
    /// [`Fence`](crate::recipes::fencing_token::Fence). Ask for it once: it is a new one each time.
    ///
    /// # Errors
    /// [`Error::Fenced`], [`Error::LockLost`]: the lock is lost. [`Error::TimedOut`] after the deadline of the array's handle.
    pub async fn token(&self) -> Result<u32, Error> {
        let token = self.ranges.array.unused_generation().await?;
        // A token of a lock that was lost before could be higher than that of the next holder.
        self.confirm().await.map(|()| token)
    }

    /// Asks the host whether the lock is lost.
    async fn confirm(&self) -> Result<(), Error> {
        self.ranges.array.call(RangesRequest::Confirm { lock: self.lock }).await.map(drop).map_err(Error::from)
    }

    /// Locks the same range in another mode. A weaker mode is granted at once. A stronger one is waited for, while the lock is kept. True if no
    /// other program had the range in between; false if it had to be given to one that wanted it before, so that what this program knew of it may
    /// have changed. If the future is dropped, the lock may be over.
    ///
    /// # Errors
    /// Like those of [`Ranges::lock`]. The lock is as it was, unless it was given to another one meanwhile: then it is over.
    pub async fn convert(&mut self, mode: LockMode) -> Result<bool, Error> {
        let (ranges, wait) = (self.ranges.clone(), self.ranges.array.deadline());
        let (mut new, kept) = ranges.acquire(self.range.clone(), mode, Some(self.lock), wait).await?;
        std::mem::swap(&mut self.lock, &mut new.lock);
        self.mode = mode;
        Ok(kept)
    }

    /// Ends when another program, on this host or another one, wants some of the range. The lock stays until it is unlocked.
    ///
    /// # Errors
    /// [`Error::Fenced`], [`Error::LockLost`]: the lock is lost.
    pub async fn recalled(&self) -> Result<(), Error> {
        self.ranges.array.call(RangesRequest::AwaitRecall { lock: self.lock }).await.map(drop).map_err(Error::from)
    }

    /// Ends the lock.
    ///
    /// # Errors
    /// [`Error::Fenced`], [`Error::LockLost`]: the lock was lost before.
    pub async fn unlock(self) -> Result<(), Error> {
        self.ranges.array.call(RangesRequest::Unlock { lock: self.lock }).await.map(drop).map_err(Error::from)
    }
}

/// A lease of a range: no other program has an exclusive lock of it. It ends when it is dropped; without warning, as soon as another program wants
/// such a lock; and when this host has not heard a lock server for most of a lease. A holder that is suspended delays others for a lease of
/// its host at most, and is not fenced for it. It is never given again by itself: take another one.
#[derive(Debug)]
pub struct RangeLease {
    lock: RangeLock,
}

impl RangeLease {
    /// The range, in bytes.
    pub fn range(&self) -> Range<u64> {
        self.lock.range()
    }

    /// Whether the lease was still there when the host answered, which takes no message. What was read under the lease may be used until then.
    pub async fn is_valid(&self) -> bool {
        self.lock.confirm().await.is_ok()
    }

    /// Ends when the lease has ended.
    pub async fn ended(&self) {
        while self.lock.recalled().await.is_ok() {}
    }
}

/// The extents of a lock of a range.
fn extents(range: &Range<u64>, mode: LockMode) -> Result<Vec<LockExtent>, Error> {
    if range.is_empty() || range.end > END_MAX {
        return Err(Error::OutOfRange);
    }
    Ok(vec![LockExtent { position: 0, range: BlockRange::between(range.start, range.end), mode }])
}

/// The object whose ranges are those of a space. Two names have the same object with a probability of 2⁻⁶³: then they delay each other.
pub fn space_object(space: &str) -> ObjectId {
    // FNV-1a: the same on every host, in every release.
    let hash = space
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // Volumes have lower numbers.
    ObjectId(hash | 1 << 63)
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        let (array, lock) = (self.ranges.array.clone(), self.lock);
        self.ranges.array.in_background(async move {
            // If it is unlocked already, there is no such lock.
            let _ = array.call(RangesRequest::Unlock { lock }).await;
        });
    }
}
