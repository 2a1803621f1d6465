//! The background jobs of a host: everything that makes an array whole again, or moves it, while users go on (`docs/healing.md`).
//!
//! | module | what |
//! | --- | --- |
//! | `healing` | [`Healing`]: all jobs behind one interface |
//! | `ctx` | what the host lends to its jobs, and what they tell it: [`Ctx`], [`Event`] |
//! | `job` | what each step of a job does |
//! | `steps` | the steps of all jobs that are under way |
//! | `throttle` | how fast jobs may go, so that users hardly notice |
//! | `recovery` | resynchronisation of a returning device: stage after stage |
//! | `survey` | its first stage: which objects the device lacks or has too many |
//! | `rebuild` | its last stage: what the device lacks altogether, on a new disk |
//! | `sides`, `portion` | where volumes lie, and where they move to; what is restored at once |
//! | `resync` | parity resync after interrupted writes |
//! | `scrub` | reading everything, to find and repair checksum errors |
//! | `migration` | copying a volume to where it moves to |
//!
//! A *job* consists of *steps*: each is one storage transaction, or one task for a device. A job never executes a step itself:
//!
//! ```text
//!   front end, device, timer ──► Healing ──► Event::Ask { step, request } ──► the host executes it
//!                                   ▲                                              │
//!                                   └────────── answered(step, outcome) ◄──────────┘
//! ```
//!
//! Nothing here survives the host, and nothing has to: every job begins again from what the devices and the monitor have on record.

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
