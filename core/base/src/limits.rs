//! Every bound and every default, in one place. A full table answers *busy*; it does not grow.

use std::time::Duration;

/// The most bytes of data in one storage transaction; front ends cut larger requests.
pub const TRANSACTION_BYTES_MAX: usize = 4 << 20;
/// The most bytes of data that one device reads or writes in one storage transaction: of a volume that is moving, it may hold both
/// what is written where that lay and where it is to lie.
pub const DEVICE_BYTES_MAX: usize = 2 * TRANSACTION_BYTES_MAX;
/// The most bytes of a frame on the wire: a device's part of a transaction and its description.
pub const FRAME_BYTES_MAX: usize = DEVICE_BYTES_MAX + (64 << 10);
/// The most extents in one request to a device.
pub const EXTENTS_MAX: usize = 2048;
/// The most devices in an array.
pub const DEVICES_MAX: usize = 1024;
/// The most devices that take part in one transaction.
pub const PARTICIPANTS_MAX: usize = DEVICES_MAX;
/// The most objects on a device.
pub const OBJECTS_MAX: usize = 1024;
/// The most bytes of an attribute's value.
pub const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// The most commands in one request for objects that hold attributes.
pub const OBJECT_COMMANDS_MAX: usize = 64;
/// The most attributes that one command sets, and the most that it gets.
pub const ATTRIBUTES_PER_COMMAND_MAX: usize = 64;
/// The most bytes that an object may have.
pub const OBJECT_BYTES_MAX: u64 = 1 << 50;
/// The highest number that may be wished for in making an object. Devices choose on above it in the end, so that no wish uses up all
/// numbers.
pub const OBJECT_WISHED_MAX: u64 = (0xff << 56) - 1;
/// The most bytes that one command reads or writes of an object.
pub const OBJECT_IO_BYTES_MAX: usize = 256 << 10;
/// The most bytes of values and data in a request for objects, and in its answer.
pub const OBJECT_REQUEST_BYTES_MAX: usize = 512 << 10;
/// The most pieces of data that one request cuts off by truncating: 4 MiB.
pub const OBJECT_PIECES_CUT_MAX: usize = 1024;
/// The most objects or attributes in one list.
pub const OBJECT_LIST_MAX: usize = 1024;
/// The most answers that a device keeps in mind for hosts which may ask again.
pub const OBJECT_ANSWERS_MAX: usize = 65_536;
/// The most bytes of those. The longest answers may take three quarters; the rest is for the short ones of others.
pub const OBJECT_ANSWER_BYTES_MAX: usize = 2 << 20;
/// The most that wait on a device for attributes to change.
pub const WATCHERS_MAX: usize = 4096;
/// The most of one host among them.
pub const WATCHERS_PER_HOST_MAX: usize = 1024;
/// The most bytes of the values that they know.
pub const WATCHED_BYTES_MAX: usize = 16 << 20;
/// The most hosts that a device keeps in mind at once.
pub const HOSTS_MAX: usize = 1024;
/// The most transactions that a device keeps in mind at once, over all hosts.
pub const DEVICE_TRANSACTIONS_MAX: usize = 65_536;
/// The most requests that wait in a device for other transactions, and the most bytes that they hold.
pub const WAITING_MAX: usize = 4096;
/// See [`WAITING_MAX`]. As many, again, may be held by what waits for room in its store, and by requests for objects that wait there.
pub const WAITING_BYTES_MAX: usize = 64 << 20;
/// The most user requests in flight in one host.
pub const OPERATIONS_MAX: usize = 4096;
/// The most transactions in one host, those included whose commits are not yet confirmed.
pub const HOST_TRANSACTIONS_MAX: usize = 32_768;
/// The most commits that ride on one request.
pub const COMMITS_PER_REQUEST_MAX: usize = 512;
/// The most stretches of requests for objects that one such request names as given up. While a host has more for a device, it begins none.
pub const ABANDONED_MAX: usize = 256;
/// The most orphans that a device names in one answer.
pub const ORPHANS_PER_ANSWER_MAX: usize = 64;
/// The most fenced generations in one request, and the most that a device remembers one by one.
pub const FENCED_MAX: usize = 4096;
/// The most fenced hosts that a device names of which it holds something undecided. One that names so many may hold something of
/// others, too.
pub const UNDECIDED_HOSTS_MAX: usize = 256;

/// The most disks that stand by for others.
pub const SPARES_MAX: usize = 64;
/// The most blocks or runs of blocks that can't be restored of which a host says where they are.
pub const LOST_RUNS_MAX: usize = 1024;
/// The most lock servers in an array.
pub const LOCK_SERVERS_MAX: usize = 16;
/// The most claims that a lock table keeps in mind, held or waiting, over all hosts.
pub const CLAIMS_MAX: usize = 1 << 20;

/// Everybody speaks up so often within a lease: several messages may be lost before anybody is taken for gone.
pub const HEARTBEATS_PER_LEASE: u32 = 8;

/// Waits and spans. Settings: an array may change them, tests do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How long a device remembers the stamps of a block at least (T of the shared-array paper).
    pub stamps_kept: Duration,
    /// How far ahead of the device's clock a stamp may be.
    pub stamp_ahead_max: Duration,
    /// How far ahead of its needs a device reserves stamps in one durable record.
    pub stamp_reservation: Duration,
    /// A host that a device has not heard for so long is taken for dead by it.
    pub host_lease: Duration,
    /// A host speaks to each device at least this often, and everybody to the monitor.
    pub heartbeat: Duration,
    /// How long a device serves after it asked the monitor for a lease, and got it.
    pub device_lease: Duration,
    /// A device that was taken out comes back after so long at the earliest; doubles up to `readmission_max` if it is taken out
    /// again soon.
    pub readmission_min: Duration,
    /// See `readmission_min`.
    pub readmission_max: Duration,
    /// How long a device is out before a spare takes its slot.
    pub spare_after: Duration,
    /// How long a COMMIT waits for a request to ride on.
    pub commit_linger: Duration,
    /// The first wait before a host retries after a refusal; doubles up to `backoff_max`.
    pub backoff_min: Duration,
    /// See `backoff_min`.
    pub backoff_max: Duration,
    /// The first wait before an unanswered request is sent again; doubles up to `resend_max`.
    pub resend_min: Duration,
    /// See `resend_min`.
    pub resend_max: Duration,
    /// How long a user's request waits through failures before it ends in an error.
    pub request_timeout: Duration,
    /// A reader refused so often in a row reads with pre-writes.
    pub reader_patience: u32,
    /// A lock that can't be had for so long is refused by a device, or by one of several lock servers that are asked at once:
    /// that may be a deadlock.
    pub lock_timeout: Duration,
    /// How long a host keeps a lock after it was granted (callback locking), and then until it is idle. Zero: until it is called
    /// back.
    pub lock_lease: Duration,
    /// Bytes of memory in which a device keeps what its objects hold; the rest is read when it is asked for.
    pub object_memory: u64,
    /// The most hosts that a device or a lock server keeps in mind at once.
    pub hosts_max: usize,
    /// The most transactions that a device keeps in mind at once, over all hosts.
    pub device_transactions_max: usize,
    /// Stripes of a volume that one lock server after the other gets, where there are several. The same for all hosts of an
    /// array, always: it says whom to ask for a lock.
    pub stripes_per_lock_server: u64,
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
            object_memory: 128 << 20,
            hosts_max: HOSTS_MAX,
            device_transactions_max: DEVICE_TRANSACTIONS_MAX,
            stripes_per_lock_server: 16,
        }
    }
}

const _: () = assert!(COMMITS_PER_REQUEST_MAX * 8 < FRAME_BYTES_MAX - DEVICE_BYTES_MAX);
const _: () = assert!(EXTENTS_MAX * 17 < FRAME_BYTES_MAX - DEVICE_BYTES_MAX);
// A membership and the devices that are unavailable: 12 bytes a member, and two sets of fenced hosts.
const _: () = assert!(DEVICES_MAX * (12 + 2) + 2 * FENCED_MAX * 4 < FRAME_BYTES_MAX - DEVICE_BYTES_MAX);
