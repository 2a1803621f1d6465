//! All bounds and default settings. A full table refuses with *busy*; it does not grow.

use crate::{Backoff, Callbacks, RangeDivision};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most bytes of data in one storage transaction. Front ends split larger requests.
pub const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// The most bytes of data that one device reads or writes in one storage transaction. It is twice the bound of a transaction because,
/// during a migration, one device may hold both the old and the new location of the same data.
pub const DEVICE_BYTES_MAX: usize = 2 * TRANSACTION_BYTES_MAX;
/// The most bytes of a frame on the wire: one device's data of a transaction, and the description of the message.
pub const FRAME_BYTES_MAX: usize = DEVICE_BYTES_MAX + (64 << 10);
/// The most extents in one request to a device.
pub const EXTENTS_MAX: usize = 2048;
/// The most devices in an array.
pub const DEVICES_MAX: usize = 1024;
/// The most devices that take part in one transaction.
pub const PARTICIPANTS_MAX: usize = DEVICES_MAX;
/// The most objects on a device.
pub const OBJECTS_MAX: usize = 1024;
/// The most bytes in an attribute's value.
pub const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// The most commands in one object request.
pub const OBJECT_COMMANDS_MAX: usize = 64;
/// The most attributes that one command may set, and the most that it may get.
pub const ATTRIBUTES_PER_COMMAND_MAX: usize = 64;
pub const OBJECT_BYTES_MAX: u64 = 1 << 50;
/// The highest number that a request may choose for a new object. The numbers above it are left to the devices, so that requests cannot
/// exhaust the number space.
pub const OBJECT_WISHED_MAX: u64 = (0xff << 56) - 1;
/// The most bytes that one command may read from or write to an object.
pub const OBJECT_IO_BYTES_MAX: usize = 256 << 10;
/// The most bytes of values and data in an object request, and in its answer.
pub const OBJECT_REQUEST_BYTES_MAX: usize = 512 << 10;
/// The most 4 KiB pieces that one truncating request may cut off: 4 MiB.
pub const OBJECT_PIECES_CUT_MAX: usize = 1024;
/// The most objects or attributes in one list.
pub const OBJECT_LIST_MAX: usize = 1024;
/// The most answers to object requests that a device remembers, in case their hosts repeat the requests.
pub const OBJECT_ANSWERS_MAX: usize = 65_536;
/// The most bytes of those answers. The longest ones may take three quarters of it; the rest is reserved for short answers of other
/// hosts.
pub const OBJECT_ANSWER_BYTES_MAX: usize = 2 << 20;
/// The most bytes in a file's name.
pub const FILE_NAME_BYTES_MAX: usize = 255;
/// The most bytes in the target of a symbolic link.
pub const SYMBOLIC_LINK_BYTES_MAX: usize = 4095;
/// The highest number of an inode. It leaves a byte for the file system where both are joined into one number.
pub const INODE_MAX: u64 = (1 << 56) - 1;
/// The most shards of a file system. The number of the shard is in the upper byte of the number of an inode.
pub const SHARDS_MAX: usize = 8;
pub const FILE_BYTES_MAX: u64 = 1 << 50;
/// The most names of an inode, and one more than the most directories in a directory.
pub const LINKS_MAX: u32 = 1 << 20;
/// The most levels above the new parent of a directory that is moved.
pub const DIRECTORY_DEPTH_MAX: usize = 4096;
/// The most commands of a host to a metadata server, counted from the first unanswered one on. Hosts keep later ones back, and servers
/// refuse them.
pub const FILE_REQUESTS_MAX: u64 = 256;
/// The most transactions among metadata servers that one shard coordinates at a time, counted from the first unfinished one on.
pub const SHARD_TRANSACTIONS_MAX: u64 = 256;
/// The most operations in one of these transactions.
pub const SHARD_OPERATIONS_MAX: usize = 64;
/// The most workers of one of these transactions: a rename has at most four servers, one of which coordinates.
pub const WORKERS_MAX: usize = 3;
/// The most entries in one list of a directory.
pub const FILE_ENTRIES_MAX: usize = 1024;
/// The most extents of a file, or runs of blocks, in one command to a metadata server, and in its answer.
pub const FILE_EXTENTS_MAX: usize = 512;
/// The most extents of a file that one command frees.
pub const FILE_EXTENTS_FREED_MAX: usize = 512;
/// The most blocks that a host may reserve by one command: 4 GiB.
pub const RESERVED_BLOCKS_MAX: u64 = 1 << 20;
/// The blocks that a host reserves at first, unless an operation needs more: 1 MiB.
pub const ALLOTMENT_BLOCKS_MIN: u64 = 256;
/// Each further time, a host reserves twice as many blocks as before, up to this bound: 64 MiB.
pub const ALLOTMENT_BLOCKS_MAX: u64 = 16_384;
/// The most bytes that one operation of a host reads from a file or writes to it.
pub const FILE_IO_BYTES_MAX: usize = 64 << 20;
/// The most bytes that a host's operations on files read and write at a time. [`OPERATIONS_MAX`] bounds their number.
pub const FILE_OPERATIONS_BYTES_MAX: usize = 4 * FILE_IO_BYTES_MAX;
/// The most files that a host has open, each counted as often as it is open.
pub const FILE_HANDLES_MAX: usize = 65_536;
/// The most extents of files that a host keeps in memory, but for those that operations under way need.
pub const EXTENTS_CACHED_MAX: usize = 1 << 18;
/// The most advisory locks of programs on a host, held and waiting.
pub const ADVISORY_LOCKS_MAX: usize = 65_536;
/// The most requests that wait on a device for an attribute to change.
pub const WATCHERS_MAX: usize = 4096;
/// The most such requests of one host.
pub const WATCHERS_PER_HOST_MAX: usize = 1024;
/// The most bytes in the values that these requests compare with.
pub const WATCHED_BYTES_MAX: usize = 16 << 20;
/// The most hosts that a device knows at once.
pub const HOSTS_MAX: usize = 1024;
/// The most transactions that a device remembers at once, over all hosts.
pub const DEVICE_TRANSACTIONS_MAX: usize = 65_536;
/// The most requests that wait in a device for other transactions. [`WAITING_BYTES_MAX`] bounds their bytes.
pub const WAITING_MAX: usize = 4096;
/// The most bytes held by those requests. The same bound applies, separately, to requests that wait for space in the store, and to object
/// requests that wait there.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
/// The most bytes of the columns that a device executes, and of the parity that it gathers for them.
pub const EXECUTION_BYTES_MAX: usize = 64 << 20;
/// The most bytes of partials that a device keeps until their columns arrive.
pub const EARLY_BYTES_MAX: usize = 16 << 20;
/// The most user requests in flight in one host.
pub const OPERATIONS_MAX: usize = 4096;
/// The most of these that are patient. The others leave room for the operations that bring devices back.
pub const PATIENT_OPERATIONS_MAX: usize = OPERATIONS_MAX / 2;
/// The most transactions in one host, including those whose commits are not confirmed yet.
pub const HOST_TRANSACTIONS_MAX: usize = 32_768;
/// The most commits that one request may carry.
pub const COMMITS_PER_REQUEST_MAX: usize = 512;
/// The most intervals of abandoned sequence numbers in one object request. A host that has more of them for a device begins no object
/// request there.
pub const ABANDONED_MAX: usize = 256;
/// The most orphans in one answer of a device.
pub const ORPHANS_PER_ANSWER_MAX: usize = 64;
/// The most fenced generations in one request, and the most that a device remembers individually.
pub const FENCED_MAX: usize = 4096;
/// The most fenced hosts that a device reports as having left undecided transactions. A report of this length may be incomplete.
pub const UNDECIDED_HOSTS_MAX: usize = 256;

/// The most spares in an array.
pub const SPARES_MAX: usize = 64;
/// The most unrecoverable blocks or runs of blocks whose addresses a host reports.
pub const LOST_RUNS_MAX: usize = 1024;
/// The most file systems in an array that have an owner.
pub const FILE_SYSTEMS_MAX: usize = 64;
/// The most lock servers in an array.
pub const LOCK_SERVERS_MAX: usize = 16;
/// The most locks and lock requests in a lock table, over all hosts.
pub const LOCK_REQUESTS_MAX: usize = 1 << 20;
/// The most extents of these, unless the settings say less. One host has at most as many locks, and as many extents, as are left for the others.
pub const LOCK_EXTENTS_MAX: usize = 4 << 20;

/// How many heartbeats a node sends within the length of a lease. Several may be lost before the lease expires.
pub const HEARTBEATS_PER_LEASE: u32 = 8;

/// Time-outs and other settings. An array may change them; tests do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// How long a device remembers the stamps of a block, at least (T of the shared-array paper).
    pub stamps_kept: Duration,
    /// How far a stamp may be ahead of the device's clock.
    pub stamp_ahead_max: Duration,
    /// How far ahead a device reserves stamps in one durable record.
    pub stamp_reservation: Duration,
    /// How long a device waits for any message from a host before it considers the host dead.
    pub host_lease: Duration,
    /// The longest pause between two messages of a host to a device, and of any node to the monitor.
    pub heartbeat: Duration,
    /// The length of a lease that the monitor grants to a device, counted from when the device sent its request.
    pub device_lease: Duration,
    /// How long a device stays out at least before it is readmitted. The time doubles, up to `readmission_max`, if the device is taken
    /// out again soon.
    pub readmission_min: Duration,
    /// See `readmission_min`.
    pub readmission_max: Duration,
    /// How long a device is out before a spare fills its slot.
    pub spare_after: Duration,
    /// How long a COMMIT waits for a request that can carry it.
    pub commit_linger: Duration,
    /// The first back-off of a host after a refusal. It doubles up to `backoff_max`.
    pub backoff_min: Duration,
    /// See `backoff_min`.
    pub backoff_max: Duration,
    /// The first time-out before an unanswered request is sent again. It doubles up to `resend_max`.
    pub resend_min: Duration,
    /// See `resend_min`.
    pub resend_max: Duration,
    /// How long a user's request is retried through failures before it ends in an error.
    pub request_timeout: Duration,
    /// A read that was refused this often in a row is retried with pre-writes.
    pub reader_patience: u32,
    /// A lock request that waited this long is refused by a device, or by one of several lock servers that were asked at once, because it
    /// may be part of a deadlock.
    pub lock_timeout: Duration,
    /// How long a host keeps a lock that was granted to it (callback locking); after that time it drops the lock as soon as the lock is
    /// idle. Zero: it keeps the lock until it is called back.
    pub lock_lease: Duration,
    /// How long a host that is heard may keep a lock of a file system that other hosts wait for, before it is fenced; none: for ever.
    pub lock_eviction: Option<Duration>,
    /// Bytes of memory in which a device caches the content of its objects. The rest is read from disk on demand.
    pub object_memory: u64,
    /// The most hosts that a device or a lock server knows at once.
    pub hosts_max: usize,
    /// The most transactions that a device remembers at once, over all hosts.
    pub device_transactions_max: usize,
    /// The most extents of locks in a lock table: some 80 bytes each.
    #[serde(default = "lock_extents_max")]
    pub lock_extents_max: usize,
    /// How many consecutive stripes of a volume one lock server is responsible for, if there are several lock servers. The value must be
    /// the same in all hosts and must never change, because it determines which server is asked for a lock.
    pub stripes_per_lock_server: u64,
    /// How several lock servers divide the ranges of a space: likewise.
    #[serde(default)]
    pub range_division: RangeDivision,
    /// Which hosts a lock server calls on to give back ranges.
    #[serde(default)]
    pub callbacks: Callbacks,
}

fn lock_extents_max() -> usize {
    LOCK_EXTENTS_MAX
}

impl Settings {
    /// The back-off of a host after refusals.
    pub fn backoff(&self) -> Backoff {
        Backoff::new(self.backoff_min, self.backoff_max)
    }

    /// The time-outs before an unanswered request is sent again.
    pub fn resend(&self) -> Backoff {
        Backoff::new(self.resend_min, self.resend_max)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            stamps_kept: Duration::from_secs(10),
            stamp_ahead_max: Duration::from_secs(5),
            stamp_reservation: Duration::from_secs(1),
            host_lease: Duration::from_secs(4),
            heartbeat: Duration::from_millis(500),
            device_lease: Duration::from_secs(4),
            readmission_min: Duration::from_secs(1),
            readmission_max: Duration::from_secs(60),
            spare_after: Duration::from_secs(600),
            commit_linger: Duration::from_millis(2),
            backoff_min: Duration::from_millis(1),
            backoff_max: Duration::from_millis(64),
            resend_min: Duration::from_millis(500),
            resend_max: Duration::from_secs(1),
            request_timeout: Duration::from_secs(30),
            reader_patience: 4,
            lock_timeout: Duration::from_millis(50),
            lock_lease: Duration::from_secs(4),
            lock_eviction: Some(Duration::from_secs(60)),
            object_memory: 128 << 20,
            hosts_max: HOSTS_MAX,
            device_transactions_max: DEVICE_TRANSACTIONS_MAX,
            lock_extents_max: LOCK_EXTENTS_MAX,
            stripes_per_lock_server: 16,
            range_division: RangeDivision::default(),
            callbacks: Callbacks::default(),
        }
    }
}

const _: () = assert!(COMMITS_PER_REQUEST_MAX * 8 < FRAME_BYTES_MAX - DEVICE_BYTES_MAX);
const _: () = assert!(EXTENTS_MAX * 17 < FRAME_BYTES_MAX - DEVICE_BYTES_MAX);
// A membership and the list of unavailable devices: 12 bytes a member, and two sets of fenced hosts.
const _: () = assert!(DEVICES_MAX * (12 + 2) + 2 * FENCED_MAX * 4 < FRAME_BYTES_MAX - DEVICE_BYTES_MAX);
