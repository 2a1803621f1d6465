//! The background jobs of a host restore redundancy, verify content and move volumes while users go on (`docs/healing.md`).
//!
//! | module | contents |
//! | --- | --- |
//! | `healing` | [`Healing`]: all jobs behind one interface |
//! | `ctx` | the interface between a host and its jobs: [`Ctx`], [`Event`] |
//! | `job` | the steps of each kind of job |
//! | `steps` | the steps of all jobs that are under way |
//! | `throttle` | the recovery throttle, which keeps the effect on users small |
//! | `recovery` | resync of a returning device, stage by stage |
//! | `survey` | the first stage: objects that the device lacks, and objects that it should not have |
//! | `rebuild` | the last stage: absent blocks, on a new disk |
//! | `sides`, `portion` | the placements of a volume that moves; the blocks that are restored at once |
//! | `resync` | parity resync after interrupted writes |
//! | `scrub` | the scrubber, which finds and repairs checksum errors |
//! | `migration` | copying a volume to its migration target |
//!
//! A *job* consists of *steps*. A step is one storage transaction, or one task for a device. A job never executes a step itself:
//!
//! ```text
//!   front end, device, timer ──► Healing ──► Event::Ask { step, request } ──► the host executes it
//!                                   ▲                                              │
//!                                   └────────── answered(step, outcome) ◄──────────┘
//! ```
//!
//! The state of jobs is not durable, and need not be: every job can start again from what the devices and the monitor have recorded.

mod ctx;
mod healing;
mod job;
mod migration;
mod portion;
mod rebuild;
mod recovery;
mod resync;
mod scrub;
mod sides;
mod steps;
mod survey;
mod throttle;

pub use ctx::{Ctx, Event, StepId, Volumes};
pub use healing::Healing;
pub use migration::MigrationProgress;
pub use steps::HealingCounters;
