//! The FUSE front end: mounts a file system, and serves the requests of the Linux kernel for it.
//!
//! ```text
//!     program ── system call ──► kernel ── request ──► /dev/fuse ──► Session ──► HostFiles (the files of an array)
//!             ◄─────────────────        ◄── answer ──            ◄───────────┘
//! ```
//!
//! The codec (`abi`, `decode`, `encode`, `negotiation`) is pure: bytes in, values out, and the reverse. Only `device` joins it to
//! `/dev/fuse`. What is served are the files of an array, [`HostFiles`].
//!
//! | module | what |
//! | --- | --- |
//! | `abi` | the structures and numbers of the kernel's interface |
//! | `decode` | requests |
//! | `encode` | answers and notifications |
//! | `negotiation` | the first request: versions and features |
//! | `device` | `/dev/fuse` |
//! | `interruption` | tells a request that its program was interrupted, or is ending |
//! | `callers` | finds out which programs are ending |
//! | `kernel_cache` | what the kernel keeps of files |
//! | `kernel_size` | what it takes for their sizes |
//! | `revocations` | drops it before other hosts change the files |
//! | `moved` | directories that other hosts have moved |
//! | `terms` | the terms of requests |
//! | `serving` | what each request asks of the file system |
//! | `lock_owners` | the owners that have locked through each open file |
//! | `session` | the loop: requests in flight, interrupts, the end |
//! | `mount` | mounting |
//! | `mount_points` | what is mounted where |
//! | `unmounting` | unmounting |
//! | `fusermount` | mounting and unmounting without privileges |
//! | `files` | the files of an array, and the host that serves them |
//! | `operations` | what programs ask of them |
//! | `errno` | the error numbers of what the array reports |
//! | `fuzz` | the code of a fuzz target |
//! | `tests` | tests of the codec |
//!
//! What is promised to programs: hosts agree. Neither names nor attributes are cached by the kernel, and reads and writes ask the file
//! system. What sendfile and mappings read stays in the kernel's pages, but only while this host has the file's data lock. Files can be
//! mapped privately, for example to execute them; a shared mapping fails with ENODEV.

mod abi;
mod callers;
mod decode;
mod device;
mod encode;
mod errno;
mod files;
mod fusermount;
pub mod fuzz;
mod interruption;
mod kernel_cache;
mod kernel_size;
mod lock_owners;
mod mount;
mod mount_points;
mod moved;
mod negotiation;
mod operations;
mod revocations;
mod serving;
mod session;
mod terms;
#[cfg(test)]
mod tests;
mod unmounting;

pub use files::{FreeInodes, HostFiles, InodeRoom};
use interruption::Interruption;
pub use mount::{Mount, MountError, check, mount};
pub use mount_points::{MountPoint, mount_name, resolve};
pub use session::ServeError;
use terms::{Caller, OpenFile, Result, SpaceStatus, WriteAt};
pub use unmounting::{UnmountError, unmount};
