//! A device's store: pure logic over disk commands, so that the simulated world can cut the power at any of them.
//!
//! What must hold:
//! 1. *An answered write survives*: `Prepared`, `Applied`, `Committed`, `Aborted` and `Done` are said when durable.
//! 2. *A devwrite is atomic*: after a crash each block is old or new, never torn; data and header agree.
//! 3. *Old content stays until decided*, and there is always room to decide and to overwrite, also on a full disk.
//! 4. *Corruption is noticed*: a damaged block answers `Lost`; a damaged record that had been durable makes the store unusable,
//!    and is never taken for "was not written".
//! 5. *The cost*: a whole chunk is written once; a small write is one journal append, shared with others; headers cost
//!    no I/O; recovery reads the journal and the map, not the data.
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
//! | writes | `write_queue` | writes that wait for room, and those whose whole chunks are on their way |
//! | requests | `request_queue`, with `waiting_requests`, `leaves`, `object_gc` | requests for objects that hold attributes, the leaves they wait for, what removed objects left, acknowledged answers not logged yet |
//! | reads | `read_queue` | reads that wait for the disk |
//! | compaction | `compaction`, with `merging` | the superblock; the checkpoint at work: blocks on their way home, map pages, rounds of the object index |
//! | disk | `disk_queue` | commands in flight, by tag and by place |
//!
//! What they share (`view`: the state, the slots, the journal, the disk queue, what is to be said) is lent to the one at work; they don't
//! know each other. `serving` routes, and tells the others what follows.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `storage`, `api`, `store` | what the device calls and hears; behind it |
//! | `noting`, `queries` | what is put on record at once; what is said at once |
//! | `room` | how much room there is in slots and journal, and what is kept back |
//! | `record`, `request_record` | what the journal says; its form and its group commit are the crate `braid-journal`'s |
//! | `journal_view` | what a journal says of the array, for tools that only look |
//! | `state`, with `transactions`, `claims`, `missed`, `absent` | what the records amount to, live and in replay |
//! | `objects`, `map`, `slots`, `block` | the parts of that, and their form on the disk |
//! | `superblock`, `recovery`, `reader`, `replay` | where to begin, and how |
//!
//! `docs/disk-format.md` draws the format byte by byte.

mod absent;
mod api;
mod block;
mod claims;
mod compaction;
mod disk_queue;
mod journal_view;
mod leaves;
mod map;
mod merging;
mod missed;
mod noting;
mod object_gc;
mod objects;
mod queries;
mod read_queue;
mod reader;
mod record;
mod recovery;
mod replay;
mod request_queue;
mod request_record;
mod room;
mod serving;
mod slots;
mod state;
mod storage;
mod store;
mod superblock;
mod transactions;
mod view;
mod waiting_requests;
mod write_queue;

pub use api::*;
pub use block::CHUNK_BLOCKS;
pub use journal_view::JournalView;
pub use storage::Storage;
pub use store::Store;
pub use superblock::{FORMAT, Geometry, SIZE_MIN, Superblock};
