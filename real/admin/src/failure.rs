//! Failures as reported to users and programs: a code that never changes its meaning, a message, a hint, and an exit status.

use braid_client::{Error as ClientError, FilesError, ObjectFailure};
use braid_control::{ControlError, ControlPlane, Distrust, LockHolder, MonitorRole, shell_word};
use braid_description::{DescriptionError, Refusal};
use braid_layout::{LayoutError, RaidLevelError, RingError, VolumeError};
use braid_leader_client::AskError;
use braid_machine::{DiskError, HostError};
use braid_session::{Loss, SessionError};
use braid_store::StoreError;
use braid_wire::AdminError;
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs; it never changes its meaning.
    pub code: String,
    /// What happened, in a sentence.
    pub message: String,
    pub hint: Option<String>,
    /// The exit status of the command.
    pub exit: Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Failed = 1,
    Usage = 2,
    /// Something does not exist, or is unreachable.
    Unreachable = 3,
    /// Data is lost, or a check found an error.
    DataLost = 4,
    /// The guard's token has changed: nothing was done.
    TooLate = 5,
    /// The lock, ticket or leadership was not acquired in time: the command was not started.
    NotInTime = 124,
    /// The lock, ticket or leadership was lost: the command was ended.
    LostMeanwhile = 125,
    /// The terminal was closed, somebody has pressed Ctrl-C, or sent SIGTERM: 128 and the number of the signal.
    HungUp = 129,
    Interrupted = 130,
    Terminated = 143,
}

/// The code if there is a volume of that name already.
pub(crate) const EXISTS: &str = "volume-exists";
/// The code if the leading monitor may have carried out a request, or may do so later.
pub(crate) const OUTCOME_UNKNOWN: &str = "outcome-unknown";
/// The code of a file or folder that other users could change.
pub const UNTRUSTED: &str = "untrusted";

/// What to do about a file or folder that other users can change.
pub fn make_private(path: &Path) -> String {
    other_folder(path).unwrap_or_else(|| {
        format!("if you trust what is in it, make it private with `chmod -R go-rwx {}`", shell_word(path))
    })
}

/// What to do about a folder that contains no array: nothing, with that folder.
fn other_folder(path: &Path) -> Option<String> {
    // The folder itself, or one in it.
    let is_array = |folder: &Path| folder.join("array.json").exists();
    let is_no_array = path.is_dir() && !is_array(path) && !path.parent().is_some_and(is_array);
    is_no_array
        .then(|| format!("there is no array in it: name another folder, such as a new one in {}", path.display()))
}

/// A file or folder on a path that belongs to this user, who can't use it.
fn closed(path: &Path) -> Option<&Path> {
    let user = rustix::process::geteuid().as_raw();
    path.ancestors().find(|path| {
        let needed = if path.is_dir() { 0o700 } else { 0o600 };
        path.metadata().is_ok_and(|found| found.uid() == user && found.mode() & needed != needed)
    })
}

/// The names that exist instead of one that does not, or what to do about it that there are none.
pub(crate) fn there_are(names: &[String], otherwise: &str) -> String {
    if names.is_empty() { format!("there are none: {otherwise}") } else { format!("there are: {}", names.join(", ")) }
}

/// What to do about a stopped process that holds the lock of the folder.
pub fn release_lock(pid: u32) -> String {
    format!("resume it with `kill -CONT {pid}`, or end it with `kill -9 {pid}`")
}

impl Failure {
    pub fn failed(code: &str, message: impl Into<String>) -> Failure {
        Failure::ended(Exit::Failed, code, message)
    }

    pub fn usage(code: &str, message: impl Into<String>) -> Failure {
        Failure::ended(Exit::Usage, code, message)
    }

    /// Something does not exist, or is unreachable.
    pub fn unreachable(code: &str, message: impl Into<String>) -> Failure {
        Failure::ended(Exit::Unreachable, code, message)
    }

    /// Data is lost, or a check found an error.
    pub fn data_lost(code: &str, message: impl Into<String>) -> Failure {
        Failure::ended(Exit::DataLost, code, message)
    }

    /// That something does not exist has one status, whichever command looks for it.
    fn ended(exit: Exit, code: &str, message: impl Into<String>) -> Failure {
        let exit = if code.starts_with("no-such-") { Exit::Unreachable } else { exit };
        Failure { code: code.to_string(), message: message.into(), hint: None, exit }
    }

    pub fn not_up(control: &ControlPlane) -> Failure {
        Failure::unreachable("not-up", format!("the array in {} is not up", control.place().display()))
    }

    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// The same failure, with its subject before the message.
    pub fn of(self, what: impl std::fmt::Display) -> Failure {
        Failure { message: format!("{what}: {}", self.message), ..self }
    }

    /// The failure for programs.
    pub fn to_json(&self) -> serde_json::Value {
        json!({"schema": 2, "error": {"code": self.code, "message": self.message, "hint": self.hint}})
    }

    /// The failure that another `braid` reported with `--json`, before it ended with `status`.
    pub fn from_json(value: &serde_json::Value, status: Option<i32>) -> Option<Failure> {
        let error = value.get("error")?;
        let text = |key: &str| error.get(key).and_then(|text| text.as_str()).map(str::to_string);
        let exits = [Exit::Failed, Exit::Usage, Exit::Unreachable, Exit::DataLost];
        let exit = exits.into_iter().find(|exit| Some(*exit as i32) == status).unwrap_or(Exit::Failed);
        Some(Failure { code: text("code")?, message: text("message")?, hint: text("hint"), exit })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<&ControlError> for Failure {
    fn from(error: &ControlError) -> Failure {
        let message = error.to_string();
        match error {
            ControlError::NoArray { dir } => Failure::unreachable("no-array", message).hint(format!(
                "name the array's folder with `--array FOLDER` or BRAID_ARRAY; or create an array with `braid up --dir {}`",
                shell_word(dir)
            )),
            ControlError::NotText { dir } => Failure::usage("not-utf8", message).hint(format!(
                "rename it: `mv {} NEW-NAME`; or name another folder",
                shell_word(dir)
            )),
            ControlError::ArrayExists { .. } => Failure::failed("array-exists", message),
            ControlError::NewerSchema { .. } => Failure::failed("newer-format", message),
            ControlError::Damaged { file, .. } | ControlError::Inconsistent { file, .. } => {
                Failure::failed("description-damaged", message).hint(after_damage(file))
            }
            ControlError::GenerationsMissing { file } => Failure::failed("no-generation", message)
                .hint(format!("`braid monitor recover --array {}`", shell_word(file.parent().unwrap_or(file)))),
            ControlError::GenerationsExhausted => Failure::failed("no-generation", message),
            ControlError::Unrenewed { source, .. } => Failure { message, ..Failure::from(&**source) },
            ControlError::Locked { file, holder, .. } => {
                let hint = match holder {
                    Some(LockHolder { pid, is_stopped: true, .. }) => release_lock(*pid),
                    Some(LockHolder { pid, .. }) => {
                        format!("it works, or waits for the disk: try again; if it hangs, end it with `kill {pid}`")
                    }
                    None => {
                        format!(
                            "find the process with `fuser -v {}`: resume it if it is suspended, or end it",
                            shell_word(file)
                        )
                    }
                };
                Failure::failed("locked", message).hint(hint)
            }
            ControlError::Contended { .. } => Failure::failed("locked", message).hint("try again"),
            ControlError::AlreadyUp { dir, .. } => Failure::failed("already-up", message)
                .hint(format!("`braid status --array {0}` shows it, `braid down --array {0}` ends it", shell_word(dir))),
            ControlError::Untrusted { path, distrust } => Failure::failed(UNTRUSTED, message).hint(match distrust {
                Distrust::WritableByOthers { .. } => make_private(path),
                Distrust::OtherOwner { owner, .. } => other_folder(path).unwrap_or_else(|| {
                    let path = shell_word(path);
                    format!(
                        "run the command as user {owner}; or, if you trust what is in it, make it yours with `chown -R $(id -u) {path}`"
                    )
                }),
            }),
            ControlError::LeaseLost { .. } => Failure::failed("lease-lost", message).hint(SHUT_OUT),
            ControlError::NoLeader { monitors, .. } => {
                let any = |wanted| monitors.values().any(|role| *role == wanted);
                let (has_stopped, leads) = (any(MonitorRole::Stopped), any(MonitorRole::Leads));
                let code = if has_stopped { "control-plane-old" } else { "no-leader" };
                Failure::unreachable(code, message).hint(match (has_stopped, leads) {
                    (true, _) => "bring back the data of etcd that the monitors have seen, and start all agents again; or `braid cluster recover`",
                    (_, true) => "what is served goes on while all monitors run; commands need most of etcd's members",
                    _ => "what is served stops soon: bring back most of etcd's members, and the monitors",
                })
            }
            ControlError::Leader(AskError::Unknown { .. }) => {
                Failure::failed(OUTCOME_UNKNOWN, message).hint("look whether it was done: `braid status`")
            }
            ControlError::Leader(_) => Failure::failed("control-plane", message),
            // A folder was to be created, where there is a file.
            ControlError::File { doing: "create", source, .. }
                if source.kind() == std::io::ErrorKind::AlreadyExists =>
            {
                system(&std::io::ErrorKind::NotADirectory.into(), message)
            }
            ControlError::File { path, source, .. } => {
                let failure = system(source, message);
                match closed(path).filter(|_| failure.code == "permission-denied") {
                    Some(path) => {
                        failure.hint(format!("it is yours: give yourself access again with `chmod u+rwX {}`", shell_word(path)))
                    }
                    None => failure,
                }
            }
        }
    }
}

impl From<&SessionError> for Failure {
    fn from(error: &SessionError) -> Failure {
        let message = error.to_string();
        match error {
            SessionError::Control(error) => Failure::from(error),
            SessionError::Host(error) => Failure::from(error.clone()),
            SessionError::NotUp { dir } => Failure::unreachable("not-up", message)
                .hint(format!("start it with `braid up --dir {}`", shell_word(dir))),
            SessionError::NotFollowed { .. } => Failure::unreachable("timed-out", message)
                .hint("the host may be busy, or the array's folder slow: try again"),
            SessionError::OfCopy { .. } => Failure::failed("copied-folder", message).hint(
                "use the folder of the original, or end the original and give the devices of the copy other addresses",
            ),
            SessionError::Recording { .. } => Failure::failed("recording-failed", message)
                .hint("the file of --record must not exist, and its folder must"),
            SessionError::Description(error) => Failure::from(error),
            SessionError::NoSuchFileSystem { others, .. } => Failure::unreachable("no-such-file-system", message)
                .hint(there_are(others, "create one with `braid fs create`")),
            SessionError::FileSystemNotReady { .. } => Failure::failed("file-system-not-ready", message)
                .hint("`braid fs create` with the same arguments completes a creation, `braid fs delete` a deletion"),
        }
    }
}

impl From<&DescriptionError> for Failure {
    fn from(error: &DescriptionError) -> Failure {
        let message = error.to_string();
        match error {
            DescriptionError::NoSuchVolume { others, .. } => Failure::unreachable("no-such-volume", message)
                .hint(there_are(others, "create one with `braid volume create`")),
            DescriptionError::VolumeCreating { name } => Failure::failed("volume-creating", message).hint(format!(
                "remove it with `braid volume delete {name} --yes`; or create it again with the same arguments"
            )),
            DescriptionError::VolumeDeleting { name } => Failure::failed("volume-deleting", message)
                .hint(format!("`braid volume delete {name} --yes` completes the deletion")),
            DescriptionError::OfFileSystem { file_system, .. } => Failure::usage("belongs-to-file-system", message)
                .hint(format!(
                    "use the files: `braid fs --help`; `braid fs delete {file_system}` deletes the file system with its volumes"
                )),
            DescriptionError::Unit { .. } => Failure::usage("bad-unit", message),
            DescriptionError::RaidLevel(_) | DescriptionError::Layout(_) => Failure::usage("bad-layout", message),
            DescriptionError::Volume(_) => Failure::usage("bad-volume", message),
            DescriptionError::Ordering(_)
            | DescriptionError::Atomicity(_)
            | DescriptionError::ParitySite(_) => Failure::failed("description-damaged", message),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let message = refusal.to_string();
        match refusal {
            Refusal::VolumeExists { .. } => Failure::failed(EXISTS, message),
            Refusal::NameOfFileSystem { .. } | Refusal::VolumeInTheWay { .. } => {
                Failure::failed(EXISTS, message).hint("choose another name")
            }
            Refusal::TooManyFileSystems => {
                Failure::usage("too-many-file-systems", message).hint("delete one with `braid fs delete`")
            }
            Refusal::NumbersUsed => Failure::failed("no-number", message),
            Refusal::Description(error) => Failure::from(&error),
        }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let message = error.to_string();
        match error {
            ClientError::Object(ObjectFailure::NoSuchObject) => Failure::unreachable("no-such-object", message).hint(
                "create it with `braid object create DEVICE:NUMBER`; `braid object list DEVICE` lists the objects",
            ),
            ClientError::Object(ObjectFailure::ObjectExists) => Failure::failed("object-exists", message),
            ClientError::Object(ObjectFailure::NotANumber { .. }) => {
                Failure::failed("not-a-number", message).hint("set it to a number first: `braid attr set` with int:0")
            }
            ClientError::Object(ObjectFailure::Overflow) => Failure::failed("overflow", message),
            ClientError::Object(ObjectFailure::ValueTooLong { .. }) => {
                Failure::usage("value-too-long", message).hint("store long values in an object's bytes")
            }
            ClientError::Object(ObjectFailure::ReservedPage { .. }) => Failure::usage("reserved-page", message),
            ClientError::Object(ObjectFailure::NumberTooHigh | ObjectFailure::TooLong) | ClientError::OutOfRange => {
                Failure::usage("out-of-range", message)
            }
            ClientError::Object(ObjectFailure::Malformed | ObjectFailure::NotTogether | ObjectFailure::CutsTooMuch) => {
                Failure::usage("malformed", message)
            }
            ClientError::Object(ObjectFailure::NotInAttributeVolume) => {
                Failure::usage("not-in-attribute-volume", message)
                    .hint("docs/attribute-volumes.md lists what an attribute volume supports")
            }
            ClientError::Object(ObjectFailure::NotAnAttributeVolume) => {
                Failure::failed("not-an-attribute-volume", message).hint(
                    "create one: `braid volume create NAME --attributes --size 64MiB --layout raid1:2 --unit 128KiB`",
                )
            }
            ClientError::IsAnAttributeVolume => Failure::usage("is-an-attribute-volume", message),
            ClientError::NoSpace => Failure::failed("device-full", message).hint("remove objects, or delete a volume"),
            ClientError::Lost => Failure::data_lost("object-lost", message),
            ClientError::Busy => Failure::failed("busy", message),
            ClientError::TimedOut { .. } => Failure::unreachable("timed-out", message)
                .hint("`braid status` shows which devices serve; --timeout sets a longer time limit"),
            ClientError::Fenced => Failure::failed("fenced", message).hint(SHUT_OUT),
            ClientError::NoSuchDevice { .. } => {
                Failure::unreachable("no-such-device", message).hint("`braid device list` lists the devices")
            }
            ClientError::NoSuchVolume => {
                Failure::unreachable("no-such-volume", message).hint("`braid volume list` lists the volumes")
            }
            ClientError::Unavailable { .. } => Failure::unreachable("volume-unavailable", message)
                .hint("no data is lost; `braid status` shows which devices are out, and why"),
            ClientError::Array(error) => Failure::from(&*error),
            ClientError::Host(error) => Failure::from(error),
            _ => Failure::failed("client", message),
        }
    }
}

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Failure {
        let message = error.to_string();
        match error {
            FilesError::NotFound | FilesError::Stale => Failure::unreachable("no-such-file", message),
            FilesError::Exists => Failure::failed("file-exists", message),
            FilesError::NotADirectory => Failure::failed("not-a-directory", message),
            FilesError::IsADirectory => Failure::failed("is-a-directory", message),
            FilesError::NotEmpty => Failure::failed("directory-not-empty", message),
            FilesError::NoSpace | FilesError::DirectoryFull => Failure::failed("file-system-full", message),
            FilesError::NameTooLong
            | FilesError::InvalidName
            | FilesError::InvalidArgument
            | FilesError::IntoItself
            | FilesError::LinkToDirectory => Failure::usage("bad-path", message),
            FilesError::Damaged => Failure::data_lost("file-damaged", message),
            FilesError::Busy => Failure::failed("busy", message),
            FilesError::TimedOut { .. } => Failure::unreachable("timed-out", message)
                .hint("`braid status` shows which devices serve; --timeout sets a longer time limit"),
            FilesError::Unavailable => Failure::unreachable("volume-unavailable", message),
            FilesError::Fenced => Failure::failed("fenced", message).hint(SHUT_OUT),
            FilesError::Array(error) => Failure::from(error),
            _ => Failure::failed("files", message),
        }
    }
}

impl From<Loss> for Failure {
    fn from(loss: Loss) -> Failure {
        let message = loss.to_string();
        match loss {
            Loss::Fenced => Failure::failed("fenced", message).hint(SHUT_OUT),
            Loss::LeaseLost(error) => Failure::from(&*error),
            Loss::Unrenewed(error) => Failure { message, ..Failure::from(&*error) },
            Loss::Unattended => Failure::failed("internal", message),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let message = error.to_string();
        match error {
            StoreError::NotBraid => Failure::failed("not-a-device", message)
                .hint("if it was one, its beginning was overwritten: restore it from a copy"),
            StoreError::NewerFormat { .. } => Failure::failed("newer-format", message),
            StoreError::OlderFormat { .. } => Failure::failed("older-format", message),
            StoreError::OtherArray { .. } => Failure::failed("wrong-array", message)
                .hint("serve it with the folder of its own array, or give this array another file"),
            StoreError::OtherDevice { .. } => Failure::failed("wrong-device", message).hint(EXCHANGED),
            StoreError::TooSmall { .. } => Failure::usage("device-too-small", message),
            StoreError::SuperblockDamaged => Failure::data_lost("superblock-damaged", message),
            StoreError::Truncated { .. } => Failure::data_lost("device-truncated", message)
                .hint("restore the file's full length; do not create a device over the old content"),
            StoreError::Damaged { .. } => Failure::data_lost("device-damaged", message),
            StoreError::Disk(error) => disk_failure(error),
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Failure {
        let message = error.to_string();
        match error {
            HostError::NoSuchVolume => Failure::unreachable("no-such-volume", message),
            HostError::TimedOut { .. } => Failure::unreachable("device-unreachable", message)
                .hint("`braid status` shows which devices serve; `braid up` starts them"),
            HostError::Device { failure: braid_wire::Failure::NoSpace, .. } => {
                Failure::failed("device-full", message).hint("delete a volume, or choose a smaller size")
            }
            HostError::Device { failure: braid_wire::Failure::Lost { .. }, .. } => {
                Failure::data_lost("block-lost", message)
            }
            HostError::LockServerRejected { .. } => Failure::failed("lock-server-rejects", message),
            HostError::LockServerSilent { .. } => Failure::unreachable("lock-server-unreachable", message)
                .hint("`braid status` shows whether it serves; `braid up` or `braid lockd` starts it"),
            HostError::NoLockServer => Failure::failed("no-lock-server", message)
                .hint("choose another ordering, such as timestamp, with `braid volume set-ordering`"),
            HostError::Device { failure: braid_wire::Failure::WrongOrdering, .. } => {
                Failure::failed("wrong-ordering", message)
                    .hint("the volume's ordering was changed: try again; `braid volume info` shows the current one")
            }
            HostError::Unavailable { .. } => Failure::unreachable("volume-unavailable", message)
                .hint("no data is lost; `braid status` shows which devices are out, and why"),
            HostError::Ownership(_) => Failure::failed("ownership-refused", message),
            HostError::AdminError(admin_error) => refused(&admin_error, message),
            HostError::Fenced => Failure::failed("fenced", message).hint(SHUT_OUT),
            HostError::Rejected { .. } => Failure::failed("rejected", message),
            HostError::ClockApart { .. } => Failure::failed("clock-apart", message),
            _ => Failure::failed("host", message),
        }
    }
}

const SHUT_OUT: &str =
    "run it again: it starts as a new host. A host is fenced if it was suspended or unreachable for too long";

/// The hint if the file of one device is in another one's place.
pub const EXCHANGED: &str = "the names of two devices' files may have been exchanged: put each file back in its place; `braid device inspect FILE` shows which device a \
                             file contains";

/// The hint for a file of the array's folder that can't be parsed.
fn after_damage(file: &Path) -> String {
    let dir = shell_word(file.parent().unwrap_or(Path::new(".")));
    let aside = "restore a copy; or move it away, and run";
    match file.file_name().and_then(|name| name.to_str()) {
        Some("array.json") => format!(
            "{aside} `braid monitor recover --array {dir} --from {dir}/device-*.braid`, which recreates it from the copies in device files"
        ),
        Some("generations" | "monitor.state") => {
            format!("{aside} `braid monitor recover --array {dir}`, which recreates it from the state of the devices")
        }
        Some("cluster.json") => "correct it: other machines have the same one, but for `machine`".to_string(),
        _ => "move it away: it will be created again".to_string(),
    }
}

/// The failure for a request that the monitor has refused.
fn refused(admin_error: &AdminError, message: String) -> Failure {
    let free = "choose a disk that is not in use";
    match admin_error {
        AdminError::NoSuchDevice => Failure::unreachable("no-such-device", message),
        AdminError::NeedsOthers { .. } => Failure::failed("other-devices-needed", message)
            .hint("nothing was changed: try again when `braid status` shows them as in"),
        AdminError::NothingGained => Failure::failed("nothing-gained", message),
        AdminError::DiskInUse { .. } => Failure::failed("disk-in-use", message).hint(free),
        AdminError::TooSmall { .. } => {
            Failure::failed("disk-too-small", message).hint("choose one at least as large as the device's disk")
        }
        AdminError::WouldLose { .. } => Failure::failed("would-lose-data", message)
            .hint("use --lose if that data is not needed; otherwise delete or migrate the volume first"),
        AdminError::TooManyChanges | AdminError::TooManySpares | AdminError::TooManyDevices => {
            Failure::failed("too-many", message)
        }
        AdminError::NoSuchSpare => {
            Failure::unreachable("no-such-spare", message).hint("`braid device list` lists the spares")
        }
        AdminError::LevelUnknown { .. } => {
            Failure::failed("older-programs", message).hint("`braid upgrade status` names them; nothing was changed")
        }
        AdminError::DeviceExists { .. } => Failure::failed("device-exists", message),
        AdminError::HoldsVolume { .. } => Failure::failed("holds-volumes", message)
            .hint("migrate the volumes to other devices with `braid volume migrate`"),
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        system(&error, error.to_string())
    }
}

macro_rules! failures_by_reference {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::from(&error)
            }
        }
    )*};
}
failures_by_reference!(ControlError, DescriptionError, SessionError);

macro_rules! usage_failures {
    ($($error:ty => $code:literal),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::usage($code, error.to_string())
            }
        }
    )*};
}
usage_failures!(RaidLevelError => "bad-layout", LayoutError => "bad-layout", RingError => "bad-layout", VolumeError => "bad-volume");

fn system(source: &std::io::Error, message: String) -> Failure {
    use std::io::ErrorKind;
    match source.kind() {
        ErrorKind::NotFound => Failure::unreachable("no-such-file", message),
        ErrorKind::NotADirectory => Failure::unreachable("not-a-folder", message).hint(
            "name the array's folder, or the file array.json in it, with `--array FOLDER` (`braid up`: `--dir FOLDER`)",
        ),
        ErrorKind::PermissionDenied => Failure::failed("permission-denied", message)
            .hint("run the command as the user that the array belongs to, or choose a folder that you may write"),
        ErrorKind::ReadOnlyFilesystem => Failure::failed("read-only", message).hint(READ_ONLY),
        // The folder's own words: the system speaks of space.
        ErrorKind::StorageFull if source.get_ref().is_some() => Failure::failed("disk-full", message).hint(NO_INODES),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => disk_full(message),
        ErrorKind::AddrInUse => Failure::failed("port-taken", message)
            .hint("another program listens there: choose another port, or 0 for any free port"),
        ErrorKind::ConnectionRefused | ErrorKind::TimedOut => Failure::unreachable("unreachable", message),
        _ => Failure::failed("system", message),
    }
}

/// A disk that can't be read or written.
pub fn disk_failure(error: DiskError) -> Failure {
    match error {
        DiskError::NoSpace => disk_full(error.to_string()),
        DiskError::Failed => Failure::data_lost("disk-failed", error.to_string())
            .hint("the log says what the system reports of the file, such as a file system that is read-only"),
    }
}

/// What to do about a file system that is read-only.
pub const READ_ONLY: &str = "the file system of the array's folder is read-only, which may follow an error of its disk (`dmesg`): end the array with `braid down`, check the file \
                             system, mount it for writing, and run `braid up`; or name a folder on another file system";

/// What to do about a file system without inodes.
pub const NO_INODES: &str = "remove files on the file system of the array's folder: each takes an inode";

fn disk_full(message: String) -> Failure {
    Failure::failed("disk-full", message).hint("free some space on the file system that holds the devices")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn absent_things_have_one_exit_status_whichever_command_looks_for_them() {
        for what in ["volume", "file-system", "device", "host", "spare", "shard", "lock-server", "file", "object"] {
            let code = format!("no-such-{what}");
            let all: [fn(&str, &'static str) -> Failure; 4] =
                [Failure::failed, Failure::usage, Failure::unreachable, Failure::data_lost];
            assert_eq!(all.map(|failure| failure(&code, "").exit), [Exit::Unreachable; 4], "{what}");
        }
        let (failed, usage) = (Failure::failed("busy", ""), Failure::usage("bad-size", ""));
        assert_eq!((failed.exit, usage.exit), (Exit::Failed, Exit::Usage));
    }

    #[test]
    fn a_folder_of_the_array_that_is_closed_to_its_owner_gets_the_command_that_opens_it() {
        let dir = std::env::temp_dir().join(format!("braid-closed-{}", std::process::id()));
        let path = dir.join("run");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(dir.join("array.json"), "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        assert!(make_private(&path).contains("chmod -R go-rwx"), "its folder contains an array");
        let source = || std::io::ErrorKind::PermissionDenied.into();
        let failure = Failure::from(ControlError::File { doing: "list", path, source: source() });
        assert!(failure.hint.is_some_and(|hint| hint.contains("chmod u+rwX") && hint.ends_with("run`")));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
