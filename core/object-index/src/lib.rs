//! The object index is the ordered map on a device's disk from [`braid_objects::Key`] to bytes. Only its index nodes need to be in memory.
//! The crate is pure: it returns what to read and write, and its caller passes on the results. The caller also provides the slots, and gets
//! them back.
//!
//! ```text
//!   memory   active ─ freeze ─► frozen        changes since the last checkpoint began; changes that the present one merges
//!              │                  │ merge
//!   disk       │        roots ─► index nodes ─► leaves      each index node and leaf in a slot of its own, written once
//!              └────── get, first: the newest entry counts ───────────┘
//! ```
//!
//! The caller must guarantee:
//! 1. Changes are in its journal before their effects are visible to anything else, and stay there until they are merged.
//! 2. A checkpoint freezes the changes, and then works in *rounds*. A round gets some free slots, merges what it can into new leaves there,
//!    and writes index nodes that name them. When all of these are durable, the new *roots* go into the journal. Once the roots are durable,
//!    slots that they no longer lead to are free.
//! 3. The journal forgets the frozen changes after the last round's roots are durable.
//!
//! So the leaves that the latest durable roots lead to are whole at any time, and are never overwritten. A crash between two rounds leaves
//! roots that are newer than the journal's tail: replay applies changes that were merged already. That does no harm, because a change says
//! what a key's value *is*, and not how to modify it. After replay, each key that a change names has the value of the last such change,
//! whatever is in the leaves. Each other key has its value from the leaves. That is its value at the tail, because rounds merge only later
//! changes.
//!
//! If a leaf is damaged, the values that it alone held are lost: lookups of its keys answer
//! [`Obstacle::Lost`](braid_objects::Obstacle::Lost). When changes are merged over it, the new leaf is flagged *lost*. Such a leaf records
//! the later changes, removals included; lookups of its other keys answer `Lost` as before.
//!
//! | module | contents |
//! | --- | --- |
//! | `object_index` | the map: lookups and changes |
//! | `contents` | its parts: changes in memory (`table`), the index (`index`), leaves (`leaves`) |
//! | `merge` | rounds of merging: frozen changes go into new leaves, in small steps |
//! | `packer` | packs a stream of entries into leaves |
//! | `leaf`, `node` | the two forms on the disk |
//! | `opening` | opening: how the index nodes are read |
//! | `cache` | recently used leaves |
//! | `negative_cache` | ranges of keys without values |
//! | `merge_needs` | how many slots merging may need |
//! | `types` | small types that all modules share |
//! | `model` | tests against a plain map |

mod cache;
mod contents;
mod index;
mod leaf;
mod leaves;
mod merge;
mod merge_needs;
#[cfg(test)]
mod model;
mod negative_cache;
mod node;
mod object_index;
mod opening;
mod packer;
mod table;
mod types;

pub use leaves::Wanted;
pub use merge::{Installed, Step, Write};
pub use merge_needs::Needs;
pub use object_index::ObjectIndex;
pub use opening::{Damaged, Opening};
pub use types::{Growth, ROUND_SLOTS_MIN, Root, Settings, SlotRef, Statistics};
