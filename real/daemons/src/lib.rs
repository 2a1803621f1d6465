//! What the processes of an array run. Nothing here prints or parses arguments.
//!
//! | module | what |
//! | --- | --- |
//! | [`device`] | the daemon of one device |
//! | [`lockd`] | the daemon of one lock server: its state, its lease |
//! | [`monitord`] | the daemon of the monitor: its state, the volumes that it must know |
//! | [`front_end`] | an NBD server and the host behind it |
//! | [`exports`] | the volumes that it shows |
//! | [`supervisor`] | keeps the monitor, devices and lock servers running, each in a process or a task |
//! | [`up`] | a whole array on this machine: what `braid up` runs |
//! | [`daemon`] | what devices, lock servers and the monitor have in common |
//! | [`membership_events`] | what the monitor's reports tell one after the other: events, rates, since when |
//! | [`observed`] | devices and servers that can be looked at while they run |

pub mod daemon;
pub mod device;
pub mod exports;
pub mod front_end;
pub mod lockd;
pub mod membership_events;
pub mod monitord;
pub mod observed;
pub mod supervisor;
pub mod up;
