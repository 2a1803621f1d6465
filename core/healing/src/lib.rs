//! The background jobs of a host restore redundancy, verify content and move volumes while users continue (`docs/healing.md`).
//!
//! | module | contents |
//! | --- | --- |
//! | `healing` | [`Healing`]: all jobs behind one interface |
//! | `ctx` | the interface between a host and its jobs: [`Ctx`], [`Event`] |
//! | `job` | the steps of each kind of job |
//! | `steps` | the steps of all jobs that are under way |
//! | `throttle` | the recovery throttle, which keeps the effect on users small |
//! | `recovery_stages` | the recovery of a returning device, from its first stage to its last |
//! | `who_answers` | which devices each stage asks, and which of them may be missing |
//! | `object_survey` | the first stage: objects that the device lacks, and objects that it should not have |
//! | `rebuild` | the last stage: absent blocks, on a new disk |
//! | `rebuild_worker` | a part in a rebuild that another host coordinates |
//! | `placements`, `stripe_run` | the placements of a volume that moves; the stripes that are restored at once |
//! | `parity_resync` | parity resync after interrupted writes |
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
mod object_survey;
mod parity_resync;
mod placements;
mod rebuild;
mod rebuild_worker;
mod recovery_stages;
mod scrub;
mod steps;
mod stripe_run;
mod throttle;
mod who_answers;

pub use ctx::{Ctx, Event, StepId, Volumes};
pub use healing::Healing;
pub use migration::MigrationProgress;
pub use steps::HealingCounters;
