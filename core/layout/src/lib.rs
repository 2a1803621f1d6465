//! A layout is the RAID arithmetic of a volume: the location of its blocks, and the plan (the RAIDmap of the parallel-RAID paper) of a
//! request.
//!
//! This crate is pure computation: it knows nothing of messages in flight, stamps or failures. The unavailable devices are an argument of
//! a plan ([`Absence`]). Devices are identified by their *ring position*, 0 to n-1; a [`VolumeDescription`] maps positions to devices.
//!
//! ```text
//!   offset, length ──► ReadPlan / WritePlan ──► per device: blocks to read, blocks to pre-write
//!                                │
//!        what was read (Old) ────┴──► the bytes asked for / the pieces to write, including parity
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `raid_level` | the RAID level and its parameters |
//! | `layout` | the location of a volume's blocks |
//! | `site_policy` | where the parity of a volume is computed |
//! | `volume` | the description of a volume, and the order of its devices on the ring |
//! | `absence` | the unavailable devices of a ring |
//! | `plan` | what each device reads and writes for one request |

mod absence;
mod layout;
mod plan;
mod raid_level;
mod site_policy;
mod volume;

pub use absence::{Absence, Unavailable};
pub use braid_ordering::Atomicity;
pub use layout::{Layout, LayoutError, UnitAddress};
pub use plan::{
    CheckPlan, CrossCheckPlan, Method, Methods, MovePlan, New, Old, ParitySite, Part, PlannedBand, RaidMap, ReadPlan,
    RecomputePlan, ReconstructError, ReconstructPlan, RestorePlan, Share, StripeRows, UpdatePlan, WritePlan,
};
pub use raid_level::{RaidLevel, RaidLevelError};
pub use site_policy::{SitePolicy, UnknownSitePolicy};
pub use volume::{Absences, Placement, RingError, VolumeDescription, VolumeError, pieces, ring_of};
