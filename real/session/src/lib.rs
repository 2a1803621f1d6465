//! A session runs a host in this process: its generation and lease in the array's folder, the host's state machine, its connections to
//! monitor, devices and lock servers, and the volumes that it knows. The command line and the client library use it to run their hosts.
//!
//! | module | what |
//! | --- | --- |
//! | `session` | starts a host, and ends it |
//! | `control_driver` | has it follow the array's description, and renews its lease |
//! | [`addressing`] | where daemons listen, and how their addresses are written in the folder |
//! | `host_view` | lets other tasks read the host's metrics and jobs |
//! | `recording` | what is recorded of a host, and of the machine around it |
//! | `registry` | the volumes that a host knows, and which of them are on hold |
//! | `corruption_events` | records checksum errors and lost ranges in the event log |
//! | `space_events` | records in the event log that requests were refused for want of space |
//! | `mounts` | converts the name of a file system to what its client needs |
//! | `metrics` | counters by name |
//! | `error` | why a host can't be started, or can't continue |

pub mod addressing;
mod control_driver;
mod corruption_events;
mod error;
mod host_view;
mod metrics;
mod mounts;
mod recording;
mod registry;
mod session;
mod space_events;

pub use addressing::{addresses, tell};
pub use control_driver::{ServiceReport, renewal_input};
pub use error::{Loss, SessionError};
pub use host_view::{CLOCK_COUNTER, HostView, Spaces, cpu_micros, of_clock, of_process, of_shell, response_counter};
pub use metrics::{Metrics, ratio};
pub use recording::{HOST_ROLE, MOUNT_ROLE, SessionRecording};
pub use registry::{VolumeRegistry, is_usable, usable};
pub use session::{
    DROPPED_END_WAIT, HEARTBEAT, SCRUB, Service, Session, SessionHost, has_host, hosts_ended, require_up,
};
