//! A device's store: pure logic over disk commands, so that the simulated world can cut the power at any of them.
//!
//! What must hold:
//! 1. *An answered write survives*: `Prepared`, `Applied`, `Committed`, `Aborted` and `Done` are said when durable.
//! 2. *A devwrite is atomic*: after a crash each block is old or new, never torn; data and header agree.
//! 3. *Old content stays until decided*, and there is always room to decide and to overwrite, also on a full disk.
//! 4. *Rot is noticed*: a damaged block answers `Lost`; a damaged record that had been durable makes the store unusable,
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
//! | file | what it knows |
//! | --- | --- |
//! | `storage`, `api`, `store` | what the device calls and hears; behind it |
//! | `serving` | the store at work: commands in flight, events, decisions |
//! | `reading`, `writing` | the way out and the way in |
//! | `executing`, `answers`, `settling` | requests for objects that hold attributes, what was answered, and how long that is kept |
//! | `leaves`, `merging` | the catalogue of what they hold: what is read of it, and what goes into it |
//! | `journal_view` | what a journal says of the array, for tools that only look |
//! | `journal`, `batch`, `record`, `request_record` | group commit and the ring; one write of it; what it says |
//! | `state` | what the records amount to, live and in replay |
//! | `missed` | what devices that are out have missed of it |
//! | `absent` | what is not here yet of objects that others hold |
//! | `extents` | runs of blocks, for both |
//! | `objects`, `map`, `slots`, `block` | the parts of that, and their form on the disk |
//! | `checkpoint` | making room in the journal |
//! | `superblock`, `recovery` | where to begin, and how |
//!
//! `docs/disk-format.md` draws the format byte by byte.

mod absent;
mod api;
mod block;
mod compaction;
mod disk_queue;
mod journal_view;
mod leaves;
mod map;
mod merging;
mod missed;
mod noting;
mod objects;
mod queries;
mod read_queue;
mod record;
mod recovery;
mod request_queue;
mod request_record;
mod room;
mod serving;
mod slots;
mod state;
mod storage;
mod store;
mod superblock;
mod sweeping;
mod view;
mod waiting_requests;
mod write_queue;

pub use api::*;
pub use block::CHUNK_BLOCKS;
pub use journal_view::JournalView;
pub use storage::Storage;
pub use store::Store;
pub use superblock::{FORMAT, Geometry, SIZE_MIN, Superblock};
