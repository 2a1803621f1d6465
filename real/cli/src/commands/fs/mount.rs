//! `braid fs mount` and `braid fs unmount`: file systems in folders of this machine.

use super::target::{put_name, put_names};
use crate::report;
use braid_admin::Failure;
use braid_base::quoting;
use braid_control::WhenUnavailable;
use braid_daemons::mount::MountDaemon;
use braid_daemons::mounts::{self, StartedMount};
use braid_terminal::{Common, Signals};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Mount a file system in folders of this machine
///
/// Each folder is a mount by a host of its own, with a process of its own, which serves the folder in the background when the command ends.
/// All mounts, on all machines, show the same files at every moment. `braid fs unmount`, `umount` and `braid down` end a mount. Its messages
/// are in the folder `logs` of the array's folder.
///
/// Root can mount without further programs; other users need `fusermount3` (package fuse3), and only they can use their mount.
///
/// Examples:
///   braid fs mount home ./a ./b            two mounts: what is written in one is read in the other
///   braid fs mount home /mnt --foreground  serve until Ctrl-C or SIGTERM, for example in a systemd unit
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Mount {
    /// The name of the file system
    name: String,
    /// Empty folders
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Serve one folder in this process, until Ctrl-C, SIGTERM or the end of the mount
    #[arg(long)]
    foreground: bool,
    /// What reads and writes do while devices are missing that the mount needs: fail, wait, or wait for a time (60s, 5m) and then fail with
    /// EIO [default: as the file system says, which is wait unless `braid fs set-unavailable` has changed it]
    #[arg(long, value_name = "fail|wait|TIME")]
    unavailable: Option<WhenUnavailable>,
    #[command(flatten)]
    recording: crate::commands::recording::Options,
    /// Leave the terminal of the process that started this one
    #[arg(long, hide = true, requires = "foreground")]
    detached: bool,
}

/// Unmount file systems, and wait until their processes have ended
///
/// It is refused while programs use files there, unless it is forced. The folder of a process that was killed can be unmounted, too.
#[derive(clap::Args)]
pub struct Unmount {
    /// The folders
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Unmount also if programs use files there: they may go on for five seconds, and get errors after that
    #[arg(long)]
    force: bool,
}

pub async fn mount(arguments: Mount, common: &Common) -> Result<ExitCode, Failure> {
    let Mount { name, directories, foreground, unavailable, recording, detached } = &arguments;
    let recording = recording.request();
    if recording.is_some() && !foreground {
        return Err(Failure::usage("usage", "--record needs --foreground: it records the host of one process"));
    }
    let control = common.control();
    if *foreground {
        let [directory] = directories.as_slice() else {
            let message = "--foreground serves one folder";
            return Err(Failure::usage("usage", message).hint("run the command once for each folder"));
        };
        if *detached {
            // It fails if the process leads a group already, which then is its own.
            let _ = rustix::process::setsid();
        }
        let mut signals = Signals::catch()?;
        let daemon = MountDaemon::open(&control, name, directory, *unavailable, recording).await?;
        let (directory, generation) = (daemon.directory(), daemon.generation().0);
        let pid = std::process::id();
        let mut said = json!({"ready": true, "file_system": name, "pid": pid, "generation": generation});
        put_name(&mut said, "directory", directory.as_os_str().as_encoded_bytes());
        report::print(common.json, said, || {
            format!("{name} is mounted on {}\nUnmount it with Ctrl-C.\n", shown(directory))
        });
        daemon.serve(signals.asked_to_end()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let started = mounts::start_all(&control, name, directories, *unavailable).await?;
    let as_json = |mount: &StartedMount| {
        let StartedMount { directory, pid, generation, log } = mount;
        let mut said = json!({"file_system": name, "pid": pid, "generation": generation, "log": log});
        put_name(&mut said, "directory", directory.as_os_str().as_encoded_bytes());
        said
    };
    report::done(common.json, json!({"mounts": started.iter().map(as_json).collect::<Vec<_>>()}), || {
        started.iter().map(|mount| format!("{name} is mounted on {}\n", shown(&mount.directory))).collect()
    })
}

fn shown(directory: &Path) -> String {
    quoting::shown(directory.as_os_str().as_encoded_bytes())
}

pub async fn unmount(arguments: Unmount, common: &Common) -> Result<ExitCode, Failure> {
    let mut unmounted = Vec::new();
    for directory in &arguments.directories {
        unmounted.push(mounts::unmount(&common.control(), directory, arguments.force).await?);
    }
    let bytes = unmounted.iter().map(|directory| directory.as_os_str().as_encoded_bytes().to_vec()).collect();
    report::done(common.json, put_names("unmounted", bytes), || {
        unmounted.iter().map(|directory| format!("{} is unmounted\n", shown(directory))).collect()
    })
}
