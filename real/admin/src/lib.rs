//! Administration of arrays, for programs: operations, status as data, events as a stream. It prints nothing and parses no arguments.
//!
//! [`Array`] is where to begin; `examples/administer.rs` makes a volume, reads the status and follows the events. Sizes are in bytes. Each error
//! is a [`Failure`], whose `code` never changes its meaning. Progress is told to a function that the caller gives.
//! Operations must be awaited on a tokio `LocalSet`; [`wait`] makes one for programs that have none.
//!
//! | module | what |
//! | --- | --- |
//! | [`array`] | an array: status, events, ending it |
//! | [`volume_operations`] | operations on volumes |
//! | [`device_operations`], [`replacement`] | operations on devices |
//! | [`scrub`], [`check`] | finding checksum errors, and parity that does not match |
//! | [`recover`] | recovering an array whose folder is lost, or the monitor's state |
//! | [`healing_operations`] | how fast devices are resynchronised, and which lack something |
//! | [`status`] | status as data |
//! | [`events`] | events as a stream |
//! | [`creation`] | what an array is created with, and how that may differ from what is asked for later |
//! | [`volumes`] | volumes that are made and deleted with their components |
//! | [`ordering`] | changing a volume's ordering while hosts use it |
//! | [`migration`] | moving a volume to other devices |
//! | [`slots`] | devices and spares that come, go, and get other disks |
//! | [`device_file`] | the file or disk of a device: making it, opening it, checking it |
//! | [`fence`] | keeping dead hosts out |
//! | [`copies`] | the copies of the array's folder that lie on its devices |
//! | [`recovery`] | what devices know of the monitor's state and the folder |
//! | [`snapshot`] | one look at an array |
//! | [`device_condition`], [`health`] | how devices, volumes and the monitor are |
//! | [`failure`] | errors: a code that stays the same, a sentence, a hint, an exit status |

pub mod array;
pub mod check;
pub mod copies;
pub mod creation;
pub mod device_condition;
pub mod device_file;
pub mod device_operations;
pub mod events;
pub mod failure;
pub mod fence;
pub mod healing_operations;
pub mod health;
pub mod migration;
pub mod ordering;
pub mod recover;
pub mod recovery;
pub mod replacement;
pub mod scrub;
pub mod slots;
pub mod snapshot;
pub mod status;
pub mod volume_operations;
pub mod volumes;

pub use array::{Array, wait};
pub use events::{Event, EventKind, Events};
pub use failure::{Exit, Failure};
pub use status::Status;
pub use volume_operations::NewVolume;
