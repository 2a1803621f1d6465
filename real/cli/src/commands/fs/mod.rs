//! `braid fs`: creates, mounts, shows, checks and deletes file systems.

mod data;
mod lifecycle;
mod listing;
mod mount;
mod settings;
mod status;
mod target;

use super::growth;
use super::volume::settings::{UnavailableArgs, set_unavailable_of_file_system};

commands! {
    /// Create, mount, show, check and delete file systems
    pub enum Command {
        Create(lifecycle::CreateArgs) => lifecycle::create,
        Mount(mount::Mount) => mount::mount,
        #[command(alias = "umount")]
        Unmount(mount::Unmount) => mount::unmount,
        Status(status::StatusArgs) => status::status,
        #[command(flatten)]
        Data(data::Command) => data::run,
        Resize(growth::FileSystemArgs) => growth::of_file_system,
        SetCommitProtocol(settings::CommitmentArgs) => settings::set_commitment,
        SetEviction(settings::EvictionArgs) => settings::set_eviction,
        /// Set what reads and writes on mounts do while devices are missing that they need
        ///
        /// fail:  they fail with EIO within seconds.
        /// wait:  they wait, however long. The default. A program that waits can be killed.
        /// TIME:  they wait for so long (60s, 5m), and then fail with EIO.
        ///
        /// It is for mounts that are made afterwards. `--unavailable` of `braid fs mount` overrides it for one mount.
        ///
        /// Example: `braid fs set-unavailable home 5m`
        #[command(verbatim_doc_comment)]
        SetUnavailable(UnavailableArgs) => set_unavailable_of_file_system,
        Check(status::CheckArgs) => status::check,
        Delete(lifecycle::DeleteArgs) => lifecycle::delete,
    }
}
