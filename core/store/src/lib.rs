//! The store is the durable part of a device. It is pure logic over disk commands, so that the simulated world can cut the power at any
//! command.
//!
//! Guarantees:
//! 1. *An answered write survives*: `Prepared`, `Applied`, `Committed`, `Aborted` and `Done` are sent when the change is durable.
//! 2. *A devwrite is atomic*: after a crash each block is old or new, never torn, and data and header agree.
//! 3. *Old content stays until the write is decided*, and there is always room to decide and to overwrite, also on a full disk.
//! 4. *Corruption is detected*: a read of a damaged block answers `Lost`. A damaged record that had been durable makes the store
//!    unusable, and is never mistaken for a record that was not written.
//! 5. *Cost*: a whole chunk is written once; a small write is one journal append, shared with other writes; headers cost no I/O;
//!    recovery reads the journal and the map, not the data.
//!
//! ```text
//!   0      8K         journal                       map A     map B     data
//!   ┌──────┬──────────────────────────────────────┬─────────┬─────────┬────────┬────────┬────────┬───
//!   │ S  S │ …old │ snapshot, batch, batch, → free │  pages  │  pages  │ slot 0 │ slot 1 │ slot 2 │ …
//!   └──────┴──────────────────────────────────────┴─────────┴─────────┴────────┴────────┴────────┴───
//!     │         ▲                                     (object, chunk) → slot,      16 × (4096 data
//!     └─ tail ──┘                                     and 16 bits: block or hole    + 512 header)
//! ```
//!
//! | queue | file | state that it owns |
//! | --- | --- | --- |
//! | writes | `write_queue` | writes that wait for room, and writes whose whole chunks are being written |
//! | requests | `request_queue`, with `waiting_requests`, `leaves`, `object_gc` | requests for objects that hold attributes, the leaves they wait for, the garbage of removed objects, acknowledged answers not logged yet |
//! | reads | `read_queue` | reads that wait for the disk |
//! | checkpoint | `checkpoint`, with `index_merge` | the superblock; the checkpoint under way: dirty blocks, map pages, rounds of the object index |
//! | disk | `disk_queue` | commands in flight, by tag and by place |
//!
//! The queues share the state, the slots, the journal, the disk queue and the outbox. These are lent (`ctx`) to one queue at a time, and the
//! queues don't know each other. `serving` passes each call and each disk completion to its queue, and tells the other queues what follows.
//!
//! | file | contents |
//! | --- | --- |
//! | `storage`, `api`, `store` | the interface that the device calls, its types, and the implementation |
//! | `logged_calls`, `queries` | calls that are logged at once; calls that are answered at once |
//! | `free_space` | the free room in slots and journal, and the part of it that is kept back |
//! | `journal_format` | the format of the journal's records; batches and group commit are in the crate `braid-journal` |
//! | `journal_view` | a read-only view of a journal, for tools |
//! | `state`, with `transactions`, `chunk_reservations`, `missed`, `absent` | the state that follows from the records, live and in replay |
//! | `objects`, `map`, `free_slots`, `block` | parts of that state, and their form on the disk |
//! | `superblock`, `crash_recovery`, `reader`, `replay` | where recovery begins, and its steps |
//!
//! `docs/disk-format.md` draws the format byte by byte.

mod absent;
mod api;
mod block;
mod checkpoint;
mod chunk_reservations;
mod crash_recovery;
mod ctx;
mod disk_queue;
mod free_slots;
mod free_space;
mod index_merge;
mod journal_format;
mod journal_view;
mod leaves;
mod logged_calls;
mod map;
mod missed;
mod object_gc;
mod objects;
mod queries;
mod read_queue;
mod reader;
mod replay;
mod request_queue;
mod serving;
mod state;
mod storage;
mod store;
mod superblock;
mod transactions;
mod waiting_requests;
mod write_queue;

pub use api::*;
pub use block::CHUNK_BLOCKS;
pub use journal_view::JournalView;
pub use storage::{CloneStorage, Storage};
pub use store::Store;
pub use superblock::{FORMAT, Geometry, SIZE_MIN, Superblock};
pub use waiting_requests::OnBehalf;
