//! The mounts of an array on this machine: starting their daemons, unmounting, and ending all of them.

use braid_admin::failure::Failure;
use braid_admin::parent_process::this_program;
use braid_base::Generation;
use braid_control::{
    ControlError, ControlPlane, Moment, NotTold, Process, WhenUnavailable, create_private_folder, private_file,
    shell_word,
};
use braid_fuse::UnmountError;
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// How long the daemon of a mount may take until it serves.
const START_WAIT: Duration = Duration::from_secs(60);
/// How long it may take to end.
const END_WAIT: Duration = Duration::from_secs(18);
/// The interval of the check whether it has ended.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// The folder of logs, in the array's folder.
const LOGS: &str = "logs";
/// A longer log is begun anew when its process starts.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// The longest name of a log, without its ending.
const LOG_NAME_MAX: usize = 200;

/// A mount whose daemon runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningMount {
    pub generation: Generation,
    pub process: Process,
    /// The number of the file system.
    pub file_system: u16,
    pub directory: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedMount {
    /// Without symbolic links.
    pub directory: PathBuf,
    pub pid: u32,
    pub generation: u32,
    /// Where its daemon logs.
    pub log: PathBuf,
}

/// The mounts of an array: of one that is on several machines, those of this one.
pub async fn list(control: &ControlPlane) -> Result<Vec<RunningMount>, ControlError> {
    let lease = control.describe().await?.leases().host();
    let hosts = control
        .leases()
        .hosts(Moment::now(), lease)
        .await?
        .into_iter()
        .filter(|host| host.goes_on() && !host.process.has_ended());
    let here = control.cluster().map(|cluster| cluster.file()).transpose()?.map(|file| &file.machine);
    let hosts = hosts.filter(|host| here.is_none() || host.report.machine.as_ref() == here);
    let mounts = hosts.filter_map(|host| {
        let mount = host.report.mount?;
        let (generation, process) = (host.generation, host.process);
        Some(RunningMount { generation, process, file_system: mount.file_system, directory: mount.directory })
    });
    Ok(mounts.collect())
}

/// Mounts a file system in several directories, each with a daemon of its own, which this process does not wait for. If one fails, none
/// remains.
pub async fn start_all(
    control: &ControlPlane,
    name: &str,
    directories: &[PathBuf],
    unavailable: Option<WhenUnavailable>,
) -> Result<Vec<StartedMount>, Failure> {
    let mut started: Vec<StartedMount> = Vec::new();
    for directory in directories {
        match start(control, name, directory, unavailable).await {
            Ok(mount) => started.push(mount),
            Err(failure) => {
                for mount in &started {
                    let _ = unmount(control, &mount.directory, true).await;
                }
                return Err(failure);
            }
        }
    }
    Ok(started)
}

/// Starts the daemon of a mount, and waits until it serves.
async fn start(
    control: &ControlPlane,
    name: &str,
    directory: &Path,
    unavailable: Option<WhenUnavailable>,
) -> Result<StartedMount, Failure> {
    let directory = std::path::absolute(directory)?;
    let (log, file) = open_log(control, &log_name(name, &directory)).await?;
    let mut command = Command::from(this_program());
    command.args(["fs", "mount", "--foreground", "--detached", "--json", "--array"]).arg(control.local().absolute());
    command.args(unavailable.map(|setting| format!("--unavailable={setting}")));
    command.arg("--").arg(name).arg(&directory).env_remove("BRAID_ARRAY");
    // A daemon must not keep the directory busy in which it was started.
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file).kill_on_drop(false);
    let mut child = command.spawn()?;
    match tokio::time::timeout(START_WAIT, announced(&mut child)).await {
        Ok(Ok((pid, generation))) => {
            Ok(StartedMount { directory: braid_fuse::resolve(&directory)?, pid, generation, log })
        }
        Ok(Err(failure)) => Err(match failure.hint {
            None => failure.hint(format!("its messages are in {}", log.display())),
            Some(_) => failure,
        }),
        Err(_) => {
            // It may have ended by itself.
            let _ = child.start_kill();
            let message = format!("the mount on {} did not start within {START_WAIT:?}", directory.display());
            Err(Failure::unreachable("mount-slow", message).hint(format!("its messages are in {}", log.display())))
        }
    }
}

/// The process and the generation that a daemon announces.
async fn announced(child: &mut Child) -> Result<(u32, u32), Failure> {
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is a pipe")).read_line(&mut line).await?;
    let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    let number = |key: &str| said[key].as_u64().and_then(|number| u32::try_from(number).ok());
    if let (Some(pid), Some(generation)) = (number("pid"), number("generation")) {
        return Ok((pid, generation));
    }
    let status = child.wait().await?;
    let ended = || Failure::failed("mount-failed", format!("the daemon of the mount ended before it served: {status}"));
    Err(Failure::from_json(&said, status.code()).unwrap_or_else(ended))
}

/// Unmounts a file system of an array, and waits until the daemon has ended. `force`: also if programs use it. Then they may go on for some
/// seconds.
pub async fn unmount(control: &ControlPlane, directory: &Path, force: bool) -> Result<PathBuf, Failure> {
    // Without its array, a mount can be unmounted all the same. A directory of that name elsewhere is another one.
    let at = async |resolved: &Path| {
        let all = list(control).await.unwrap_or_default().into_iter();
        let shown = resolved.to_string_lossy().into_owned();
        all.filter(move |mount| mount.directory == shown)
    };
    let of = async |resolved: &Path| at(resolved).await.find(|mount| mount.process.is_here());
    if force
        && let Ok(resolved) = braid_fuse::resolve(directory)
        && let Some(mount) = of(&resolved).await
    {
        end(control, &mount).await;
        if of(&resolved).await.is_none() {
            return Ok(resolved);
        }
    }
    let resolved = match braid_fuse::unmount(directory, force) {
        Ok(resolved) => resolved,
        Err(error) => {
            let is_mounted = !matches!(error, UnmountError::NotMounted { .. });
            let failure = unmount_failure(error);
            let resolved = braid_fuse::resolve(directory).unwrap_or_else(|_| directory.to_path_buf());
            let elsewhere = at(&resolved).await.find(|mount| !is_mounted && !mount.process.is_here());
            return Err(match elsewhere {
                None => failure,
                Some(mount) => failure.hint(format!(
                    "{} has mounted it in a directory of that name: unmount it there, or end it with the array by `braid down`",
                    mount.process
                )),
            });
        }
    };
    if let Some(mount) = of(&resolved).await {
        await_end(control, &mount).await;
    }
    Ok(resolved)
}

/// Ends all mounts of an array, as far as [`list`] has them. Returns those that have not ended in time.
pub async fn end_all(control: &ControlPlane) -> Result<Vec<RunningMount>, ControlError> {
    let mounts = list(control).await?;
    let ended = futures_util::future::join_all(mounts.iter().map(|mount| end(control, mount))).await;
    Ok(mounts.into_iter().zip(ended).filter_map(|(mount, ended)| (!ended).then_some(mount)).collect())
}

/// Asks a daemon to unmount and to end: by a signal if it runs here, and by its host in the folder otherwise. False if it has not ended in
/// time.
async fn end(control: &ControlPlane, mount: &RunningMount) -> bool {
    match mount.process.signal(Signal::TERM) {
        Ok(()) => {}
        Err(NotTold::Ended) => return true,
        Err(NotTold::Elsewhere | NotTold::Refused) => {
            if let Err(error) = control.leases().ask_to_end(mount.generation).await {
                tracing::warn!("can't ask {} to end: {error}", mount.process);
            }
        }
    }
    await_end(control, mount).await
}

/// Waits until the daemon of a mount has ended. False if that takes too long.
async fn await_end(control: &ControlPlane, mount: &RunningMount) -> bool {
    let begun = Instant::now();
    while is_running(control, mount).await {
        if begun.elapsed() > END_WAIT {
            return false;
        }
        control.changed(LOOK_PAUSE).await;
    }
    true
}

/// True if the daemon runs, perhaps with another host than before.
async fn is_running(control: &ControlPlane, mount: &RunningMount) -> bool {
    let is_it = |other: &RunningMount| other.process == mount.process && other.directory == mount.directory;
    list(control).await.is_ok_and(|mounts| mounts.iter().any(is_it))
}

/// Opens a log in the array's folder.
pub async fn open_log(control: &ControlPlane, name: &str) -> Result<(PathBuf, File), Failure> {
    let logs = control.local().absolute().join(LOGS);
    // Without an array there is no folder for it.
    control.describe().await?;
    let path = logs.join(format!("{name}.log"));
    let open = || {
        create_private_folder(&logs)?;
        let is_long = std::fs::metadata(&path).is_ok_and(|found| found.len() > LOG_BYTES_MAX);
        private_file().create(true).write(true).append(!is_long).truncate(is_long).open(&path)
    };
    match open() {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(ControlError::File { doing: "open", path, source }.into()),
    }
}

fn log_name(name: &str, directory: &Path) -> String {
    let plain = |sign: char| if sign.is_ascii_alphanumeric() || "._-".contains(sign) { sign } else { '-' };
    let directory: String = directory.to_string_lossy().trim_matches('/').chars().map(plain).collect();
    format!("mount-{name}-{directory}").chars().take(LOG_NAME_MAX).collect()
}

fn unmount_failure(error: UnmountError) -> Failure {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    let message = format!("{error}{source}");
    match error {
        UnmountError::NotMounted { .. } => {
            Failure::unreachable("not-mounted", message).hint("`braid status` lists the mounts of an array")
        }
        UnmountError::InUse { directory } => Failure::failed("mount-in-use", message).hint(format!(
            "end these programs (`fuser -vm {}` lists them), or use --force: then they get errors",
            shell_word(directory)
        )),
        UnmountError::NotPermitted { .. } => Failure::failed("mount-not-permitted", message),
        UnmountError::Io { .. } => Failure::failed("unmount-failed", message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_named_after_its_directory() {
        assert_eq!(log_name("home", Path::new("/srv/my files/a")), "mount-home-srv-my-files-a");
        assert_eq!(log_name("home", Path::new(&"/a".repeat(500))).len(), LOG_NAME_MAX);
    }
}
