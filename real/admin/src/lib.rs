//! Administration of arrays, for programs: operations, status as data, events as a stream. It prints nothing and parses no arguments.
//!
//! | module | what |
//! | --- | --- |
//! | [`creation`] | what an array is created with, and how that may differ from what is asked for later |
//! | [`volumes`] | volumes that are made and deleted with their components |
//! | [`ordering`] | changing a volume's ordering while hosts use it |
//! | [`migration`] | moving a volume to other devices |
//! | [`slots`] | devices and spares that come, go, and get other disks |
//! | [`device_file`] | the file or disk of a device: making it, opening it, checking it |
//! | [`fence`] | keeping dead hosts out |
//! | [`copies`] | the copies of the array's folder that lie on its devices |
//! | [`recovery`] | making the monitor's state and the folder anew from what devices know |
//! | [`look`] | one look at an array |
//! | [`condition`], [`health`] | how devices, volumes and the monitor are |
//! | [`failure`] | errors: a code that stays the same, a sentence, a hint, an exit status |

pub mod condition;
pub mod copies;
pub mod creation;
pub mod device_file;
pub mod failure;
pub mod fence;
pub mod health;
pub mod look;
pub mod migration;
pub mod ordering;
pub mod recovery;
pub mod slots;
pub mod volumes;

pub use failure::{Exit, Failure};
