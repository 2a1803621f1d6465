//! A host in a process: its generation and lease in the array's folder, the machine, its connections to monitor, devices and lock
//! servers, and the volumes that it knows. The command line and the client library run their hosts with it.
//!
//! | module | what |
//! | --- | --- |
//! | `session` | the host: started, looked after, ended |
//! | `observed` | the machine, so that it can be looked at while it runs, and begins nothing on volumes that are on hold |
//! | `shelf` | the volumes that a host serves, and their being on hold |
//! | `telltale` | what a host puts on the log of events |
//! | `volumes` | volumes from their entries to what a host needs |
//! | `counts` | counters by their names |
//! | `error` | why a host can't be started, or can't go on |

mod counts;
mod error;
mod observed;
mod session;
mod shelf;
mod telltale;
mod volumes;

pub use counts::{Counts, ratio};
pub use error::{Loss, SessionError};
pub use observed::{Holds, HostView, ObservedHost, cpu_micros, of_process, of_shell};
pub use session::{HEARTBEAT, SCRUB, Session, addresses, blocking, require_up, tell};
pub use shelf::{Shelf, is_usable, usable};
pub use volumes::{describe, describe_widest, find, layout};
