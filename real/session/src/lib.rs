//! A host in a process: its generation and lease in the array's folder, the machine, its connections to monitor, devices and lock
//! servers, and the volumes that it knows. The command line and the client library run their hosts with it.
//!
//! | module | what |
//! | --- | --- |
//! | `session` | the host: started, looked after, ended |
//! | `observed` | the machine, so that it can be looked at while it runs, and begins nothing on volumes that are on hold |
//! | `registry` | the volumes that a host serves, and their being on hold |
//! | `corruption_reporter` | what a host puts on the log of events |
//! | `volumes` | volumes from their entries to what a host needs |
//! | `metrics` | counters by their names |
//! | `error` | why a host can't be started, or can't go on |

mod corruption_reporter;
mod error;
mod metrics;
mod observed;
mod registry;
mod session;
mod volumes;

pub use error::{Loss, SessionError};
pub use metrics::{Metrics, ratio};
pub use observed::{Holds, HostView, ObservedHost, cpu_micros, of_process, of_shell};
pub use registry::{VolumeRegistry, is_usable, usable};
pub use session::{HEARTBEAT, SCRUB, Session, addresses, blocking, require_up, tell};
pub use volumes::{describe, describe_widest, find, layout};
