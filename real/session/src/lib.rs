//! A session runs a host in this process: its generation and lease in the array's folder, the host's state machine, its connections to
//! monitor, devices and lock servers, and the volumes that it knows. The command line and the client library use it to run their hosts.
//!
//! | module | what |
//! | --- | --- |
//! | `session` | starts a host, renews its lease, ends it |
//! | `observed` | wraps the host's state machine: lets other tasks read its state, and starts no operation on volumes that are on hold |
//! | `registry` | the volumes that a host knows, and which of them are on hold |
//! | `corruption_events` | records checksum errors and lost ranges in the event log |
//! | `volumes` | converts entries of the description to the descriptions that a host needs |
//! | `metrics` | counters by name |
//! | `error` | why a host can't be started, or can't continue |

mod corruption_events;
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
