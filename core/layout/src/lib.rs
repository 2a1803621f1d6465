//! RAID arithmetic: where a volume's blocks lie, and the plan (the RAIDmap) of a request.
//!
//! Pure numbers: nothing here knows of messages in flight, stamps or failures; which devices are unavailable is told to a plan
//! ([`Absence`]). Devices are named by their *ring position*, 0 to n-1; a [`VolumeDescription`] says which device stands
//! where.
//!
//! ```text
//!   offset, length ──► ReadPlan / WritePlan ──► per device: blocks to read, blocks to pre-write
//!                                │
//!        what was read (Old) ────┴──► the bytes asked for / the pieces to write, parity included
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `scheme` | the RAID level and its numbers |
//! | `layout` | where the blocks of a volume lie |
//! | `volume` | what is recorded of a volume, and how its devices are ordered into a ring |
//! | `absence` | which devices of a ring are unavailable, as plans see it |
//! | `plan` | what each device reads and writes for one request |

mod absence;
mod layout;
mod plan;
mod scheme;
mod volume;

pub use absence::{Absence, Unavailable};
pub use braid_wire::Atomicity;
pub use layout::{Layout, LayoutError, UnitAddress};
pub use plan::{
    CheckPlan, CrossCheckPlan, Method, Methods, MovePlan, New, Old, Part, ReadPlan, RecomputePlan, ReconstructError,
    ReconstructPlan, RestorePlan, Share, StripeRows, UpdatePlan, WritePlan,
};
pub use scheme::{Scheme, SchemeError};
pub use volume::{Absences, Placement, RingError, VolumeDescription, VolumeError, ring_of};
