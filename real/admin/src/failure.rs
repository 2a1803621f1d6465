//! Errors as people and programs see them: a code that stays the same, a sentence, a hint, an exit status.

use braid_client::Error as ClientError;
use braid_control::{ArrayFolder, ControlError};
use braid_layout::{LayoutError, RingError, SchemeError, VolumeError};
use braid_machine::HostError;
use braid_session::{Loss, SessionError};
use braid_store::StoreError;
use braid_wire::AdminError;
use serde_json::json;
use std::path::Path;

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For programs; never changes its meaning.
    pub code: String,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// With which status the command ends.
    pub exit: Exit,
}

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It could not be done.
    Failed = 1,
    /// It was asked for in a way that can't be.
    Usage = 2,
    /// Something is not there, or can't be reached.
    Unreachable = 3,
    /// Data is lost, or a check found something wrong.
    DataLost = 4,
    /// A guard found another token than the one that was named: nothing was done.
    TooLate = 5,
    /// What a command was to run under was not to be had in time: the command was not started.
    NotInTime = 124,
    /// What a command ran under was lost: the command was ended.
    LostMeanwhile = 125,
}

impl Failure {
    /// It could not be done.
    pub fn failed(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.to_string(), message: message.into(), hint: None, exit: Exit::Failed }
    }

    /// It was asked for in a way that can't be.
    pub fn usage(code: &str, message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, ..Failure::failed(code, message) }
    }

    /// Something is not there, or can't be reached.
    pub fn unreachable(code: &str, message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Unreachable, ..Failure::failed(code, message) }
    }

    /// Data is lost, or a check found something wrong.
    pub fn data_lost(code: &str, message: impl Into<String>) -> Failure {
        Failure { exit: Exit::DataLost, ..Failure::failed(code, message) }
    }

    /// Nobody runs the array.
    pub fn not_up(folder: &ArrayFolder) -> Failure {
        Failure::unreachable("not-up", format!("the array in {} is not up", folder.dir().display()))
    }

    /// The same, with advice.
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// The same, said of something in particular.
    pub fn of(self, what: impl std::fmt::Display) -> Failure {
        Failure { message: format!("{what}: {}", self.message), ..self }
    }

    /// For programs.
    pub fn to_json(&self) -> serde_json::Value {
        json!({"error": {"code": self.code, "message": self.message, "hint": self.hint}})
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
                "`braid up --dir {}` makes one; --array or BRAID_ARRAY says where another is",
                dir.display()
            )),
            ControlError::ArrayExists { .. } => Failure::failed("array-exists", message),
            ControlError::NewerSchema { .. } => Failure::failed("newer-format", message),
            ControlError::Damaged { file, .. } | ControlError::Inconsistent { file, .. } => {
                Failure::failed("description-damaged", message).hint(after_damage(file))
            }
            ControlError::GenerationsMissing { .. } | ControlError::GenerationsExhausted => {
                Failure::failed("no-generation", message)
            }
            ControlError::Locked { file, holder, .. } => {
                let hint = match holder {
                    Some(pid) => format!("it is suspended, perhaps: `kill -CONT {pid}` lets it go on; or end it"),
                    None => {
                        format!("`fuser -v {}` shows which: let it go on if it is suspended, or end it", file.display())
                    }
                };
                Failure::failed("locked", message).hint(hint)
            }
            ControlError::AlreadyUp { dir, .. } => Failure::failed("already-up", message)
                .hint(format!("`braid status --array {0}` shows it, `braid down --array {0}` ends it", dir.display())),
            ControlError::LeaseLost { .. } => Failure::failed("lease-lost", message).hint(SHUT_OUT),
            ControlError::File { source, .. } => system(source, message),
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        Failure::from(&error)
    }
}

impl From<&SessionError> for Failure {
    fn from(error: &SessionError) -> Failure {
        let message = error.to_string();
        match error {
            SessionError::Control(error) => Failure::from(error),
            SessionError::Host(error) => Failure::from(error.clone()),
            SessionError::NotUp { dir } => Failure::unreachable("not-up", message)
                .hint(format!("start it with `braid up --dir {}`", dir.display())),
            SessionError::NoSuchVolume { others, .. } => {
                let hint = match others.as_slice() {
                    [] => "there are none: `braid volume create` makes one".to_string(),
                    names => format!("there are: {}", names.join(", ")),
                };
                Failure::unreachable("no-such-volume", message).hint(hint)
            }
            SessionError::VolumeCreating { name } => Failure::failed("volume-creating", message).hint(format!(
                "`braid volume delete {name} --yes` removes it; or create it again with the same arguments"
            )),
            SessionError::VolumeDeleting { name } => Failure::failed("volume-deleting", message)
                .hint(format!("`braid volume delete {name} --yes` ends what was begun")),
            SessionError::Unit { .. } => Failure::usage("bad-unit", message),
            SessionError::Scheme(_) | SessionError::Layout(_) => Failure::usage("bad-layout", message),
            SessionError::Volume(_) => Failure::usage("bad-volume", message),
            SessionError::Ordering(_) | SessionError::Atomicity(_) | SessionError::Acquisition { .. } => {
                Failure::failed("description-damaged", message)
            }
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        Failure::from(&error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let message = error.to_string();
        match error {
            ClientError::NoSuchObject => {
                Failure::unreachable("no-such-object", message).hint("`braid object list` shows those that there are")
            }
            ClientError::ObjectExists => Failure::failed("object-exists", message),
            ClientError::NotANumber { .. } => {
                Failure::failed("not-a-number", message).hint("`braid attr set` with int:0 makes it one")
            }
            ClientError::Overflow => Failure::failed("overflow", message),
            ClientError::ValueTooLong { .. } => {
                Failure::usage("value-too-long", message).hint("an object's bytes have room for more")
            }
            ClientError::ReservedPage { .. } => Failure::usage("reserved-page", message),
            ClientError::NumberTooHigh | ClientError::TooLong | ClientError::OutOfRange => {
                Failure::usage("out-of-range", message)
            }
            ClientError::Malformed | ClientError::NotTogether | ClientError::CutsTooMuch => {
                Failure::usage("malformed", message)
            }
            ClientError::NotInAttributeVolume => Failure::usage("not-in-attribute-volume", message)
                .hint("docs/attribute-volumes.md says what an attribute volume can do"),
            ClientError::NotAnAttributeVolume => Failure::failed("not-an-attribute-volume", message)
                .hint("`braid volume create NAME --attributes --size 64MiB --layout raid1:2 --unit 128KiB` makes one"),
            ClientError::IsAnAttributeVolume => Failure::usage("is-an-attribute-volume", message),
            ClientError::NoSpace => Failure::failed("device-full", message).hint("remove objects, or delete a volume"),
            ClientError::Lost => Failure::data_lost("object-lost", message),
            ClientError::Busy => Failure::failed("busy", message),
            ClientError::TimedOut { .. } => Failure::unreachable("timed-out", message)
                .hint("`braid status` shows which devices serve; --timeout has more patience"),
            ClientError::Fenced => Failure::failed("fenced", message).hint(SHUT_OUT),
            ClientError::NoSuchDevice { .. } => {
                Failure::unreachable("no-such-device", message).hint("`braid device list` shows those that there are")
            }
            ClientError::NoSuchVolume => {
                Failure::unreachable("no-such-volume", message).hint("`braid volume list` shows those that there are")
            }
            ClientError::Unavailable { .. } => Failure::unreachable("volume-unavailable", message)
                .hint("`braid status` shows which devices are out, and why; nothing is lost"),
            ClientError::Array(error) => Failure::from(&*error),
            ClientError::Host(error) => Failure::from(error),
            _ => Failure::failed("client", message),
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
                .hint("if there was one, its beginning was written over: bring it back from a copy"),
            StoreError::NewerFormat { .. } => Failure::failed("newer-format", message),
            StoreError::OlderFormat { .. } => Failure::failed("older-format", message),
            StoreError::OtherArray { .. } => Failure::failed("wrong-array", message)
                .hint("serve it with the folder of its own array, or give this array a file of its own"),
            StoreError::OtherDevice { .. } => Failure::failed("wrong-device", message).hint(EXCHANGED),
            StoreError::TooSmall { .. } => Failure::usage("device-too-small", message),
            StoreError::SuperblockDamaged => Failure::data_lost("superblock-damaged", message),
            StoreError::Truncated { .. } => Failure::data_lost("device-truncated", message)
                .hint("bring the file back to its full length; do not recreate it over the old content"),
            StoreError::Damaged { .. } => Failure::data_lost("device-damaged", message),
            StoreError::Disk(error @ braid_machine::DiskError::NoSpace) => disk_full(error.to_string()),
            StoreError::Disk(braid_machine::DiskError::Failed) => Failure::data_lost("disk-failed", message),
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
                Failure::failed("device-full", message).hint("delete a volume, or make this one smaller")
            }
            HostError::Device { failure: braid_wire::Failure::Lost { .. }, .. } => {
                Failure::data_lost("block-lost", message)
            }
            HostError::LockServerRejected { .. } => Failure::failed("lock-server-rejects", message),
            HostError::LockServerSilent { .. } => Failure::unreachable("lock-server-unreachable", message)
                .hint("`braid status` shows whether it serves; `braid up` starts it, and so does `braid lockd`"),
            HostError::NoLockServer => Failure::failed("no-lock-server", message)
                .hint("`braid volume set-ordering` takes another ordering, such as timestamp"),
            HostError::Device { failure: braid_wire::Failure::WrongOrdering, .. } => {
                Failure::failed("wrong-ordering", message)
                    .hint("the volume's ordering was changed: try again; `braid volume info` shows what it is")
            }
            HostError::Unavailable { .. } => Failure::unreachable("volume-unavailable", message)
                .hint("`braid status` shows which devices are out, and why; nothing is lost"),
            HostError::AdminError(admin_error) => refused(&admin_error, message),
            HostError::Fenced => Failure::failed("fenced", message).hint(SHUT_OUT),
            HostError::Rejected { .. } => Failure::failed("rejected", message),
            HostError::ClockApart { .. } => Failure::failed("clock-apart", message),
            _ => Failure::failed("host", message),
        }
    }
}

/// What to do after a host was shut out.
const SHUT_OUT: &str = "run it again: it starts as a new host. A host is shut out if it was suspended, or could not be heard, for too long";

/// What to do where one device's file is in another's place.
pub const EXCHANGED: &str = "put each file back where it was: the names of two devices' files were exchanged, perhaps; `braid device inspect FILE` says which device a \
                             file is";

/// What to do about a file of the array's folder that can't be understood.
fn after_damage(file: &Path) -> String {
    let dir = file.parent().unwrap_or(Path::new(".")).display();
    let aside = "bring back a copy; or move it away, and";
    match file.file_name().and_then(|name| name.to_str()) {
        Some("array.json") => format!(
            "{aside} `braid monitor recover --array {dir} --from {dir}/device-*.braid` makes it anew from the copies that device files have"
        ),
        Some("generations") => {
            format!("{aside} `braid monitor recover --array {dir}` makes it anew from what the devices know")
        }
        _ => "move it away: it is made anew".to_string(),
    }
}

/// What the monitor has refused.
fn refused(admin_error: &AdminError, message: String) -> Failure {
    let free = "take a disk that is not in use";
    match admin_error {
        AdminError::NoSuchDevice => Failure::unreachable("no-such-device", message),
        AdminError::NeedsOthers { .. } => Failure::failed("needs-others", message)
            .hint("nothing has changed: try again when `braid status` shows them as in"),
        AdminError::NothingGained => Failure::failed("nothing-gained", message),
        AdminError::DiskInUse { .. } => Failure::failed("disk-in-use", message).hint(free),
        AdminError::TooSmall { .. } => {
            Failure::failed("disk-too-small", message).hint("take one of the size of the device's disk, or larger")
        }
        AdminError::WouldLose { .. } => Failure::failed("would-lose", message)
            .hint("--lose says that it may go; or delete the volume, or move it away, first"),
        AdminError::TooManyChanges | AdminError::TooManySpares | AdminError::TooManyDevices => {
            Failure::failed("too-many", message)
        }
        AdminError::NoSuchSpare => {
            Failure::unreachable("no-such-spare", message).hint("`braid device list` shows which disks stand by")
        }
        AdminError::DeviceExists { .. } => Failure::failed("device-exists", message),
        AdminError::HoldsVolume { .. } => {
            Failure::failed("holds-volumes", message).hint("`braid volume migrate` moves a volume to other devices")
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        system(&error, error.to_string())
    }
}

macro_rules! usage_failures {
    ($($error:ty => $code:literal),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::usage($code, error.to_string())
            }
        }
    )*};
}
usage_failures!(SchemeError => "bad-layout", LayoutError => "bad-layout", RingError => "bad-layout", VolumeError => "bad-volume");

fn system(source: &std::io::Error, message: String) -> Failure {
    use std::io::ErrorKind;
    match source.kind() {
        ErrorKind::NotFound => Failure::unreachable("no-such-file", message),
        ErrorKind::PermissionDenied => Failure::failed("permission-denied", message),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => disk_full(message),
        ErrorKind::AddrInUse => Failure::failed("port-taken", message)
            .hint("another program listens there: choose another port, or 0 for any free one"),
        ErrorKind::ConnectionRefused | ErrorKind::TimedOut => Failure::unreachable("unreachable", message),
        _ => Failure::failed("system", message),
    }
}

fn disk_full(message: String) -> Failure {
    Failure::failed("disk-full", message).hint("free some space on the file system that holds the devices")
}
