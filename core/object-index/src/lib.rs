//! The ordered map under a device's objects: from [`braid_objects::Key`] to bytes, on a disk, of which little needs to be in memory.
//! Pure: it says what is to be read and written, and is told what came of it. Slots come from its caller, and go back there.
//!
//! ```text
//!   memory   active ─ freeze ─► frozen        changes since the last checkpoint began; those that the one at work merges
//!              │                  │ merge
//!   disk       │        roots ─► index nodes ─► leaves      each of the latter two in a slot of its own, written once
//!              └────── get, first: the newest that knows counts ──────┘
//! ```
//!
//! Whoever keeps an object index sees to this:
//! 1. Changes are in its journal before anybody hears of them, and stay there until they are merged.
//! 2. A checkpoint freezes, and then works in *rounds*: each gets some free slots, merges what it can into new leaves there, and writes
//!    index nodes that name them. When all that is durable, the new *roots* go into the journal, and once they are durable there, what
//!    they no longer name is free.
//! 3. The journal forgets the frozen changes after the last round's roots are durable.
//!
//! So what the latest durable roots lead to is whole at any time, and never written over. A crash between two rounds leaves roots that are
//! newer than the journal's tail: replay puts changes over them that were merged already. That does no harm, as a change says what a
//! key's value *is*, and not how to change it: when all are replayed, each key that any of them names has the value of the last of them,
//! whatever is in the leaves; and of a key that none of them names, the leaves have what they had at the tail, since rounds merge only
//! what is behind it.
//!
//! A leaf that is damaged loses what it alone knew: its keys answer [`Obstacle::Lost`](braid_objects::Obstacle::Lost). What is merged over
//! it makes a leaf flagged *lost*, which keeps what has been said since, that keys are gone included, and answers as before for
//! the rest.
//!
//! | module | what |
//! | --- | --- |
//! | `object_index` | the map as its user sees it |
//! | `contents` | what it holds: changes in memory (`table`), the index (`index`), leaves (`leaves`); lookups and rounds go over it |
//! | `merge` | rounds: frozen changes go into new leaves, a little at a time |
//! | `packer` | a stream of entries becomes leaves |
//! | `leaf`, `node` | the two forms on the disk |
//! | `opening` | how the index is read at a start |
//! | `cache` | leaves that were used lately |
//! | `negative_cache` | where changes left nothing |
//! | `room` | how many slots merging can come to need |
//! | `types` | small types that all of them share |
//! | `model` | tests against a plain map |

mod cache;
mod contents;
mod index;
mod leaf;
mod leaves;
mod merge;
#[cfg(test)]
mod model;
mod negative_cache;
mod node;
mod object_index;
mod opening;
mod packer;
mod room;
mod table;
mod types;

pub use leaves::Wanted;
pub use merge::{Installed, Step, Write};
pub use object_index::ObjectIndex;
pub use opening::{Damaged, Opening};
pub use room::Needs;
pub use types::{Growth, ROUND_SLOTS_MIN, Root, Settings, SlotRef, Statistics};
