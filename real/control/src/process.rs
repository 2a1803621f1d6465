//! A process as the array's folder records it: its number, and which process that is. A number alone names another process in another
//! container, on another machine, after a restart of the machine, and when the system has used it again. So the number is believed only
//! where it was given, and a signal goes to a process whose identity was checked after it was opened (`pidfd_open(2)`). A record also names
//! the folder that it was written in: in a copy of the folder it names a process of the original, which the copy has nothing to do with.

use crate::Moment;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

/// A process that the folder names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    pub pid: u32,
    /// None in files of an earlier release.
    origin: Option<Origin>,
    /// True if the record was copied with its folder: the process is one of another array.
    is_of_original: bool,
}

/// Where the number of a process is valid, and which process of that number it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The boot of the machine. No other machine has the same one.
    boot: String,
    /// The PID namespace: the inode of `/proc/self/ns/pid`.
    namespace: u64,
    /// When the process began, in the system's ticks since the boot; none if only its siblings are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began: Option<u64>,
    /// The folder that the record was written in; none if that can't be said, and in files of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<FolderIdentity>,
}

/// Which folder a folder is, under whatever name: a copy is another one, and a folder that was moved within its file system is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FolderIdentity(String);

impl FolderIdentity {
    /// That of the folder at `path`; none if there is none.
    pub(crate) fn of(path: &Path) -> Option<FolderIdentity> {
        let found = std::fs::metadata(path).ok()?;
        // The number of a folder that was removed may be used again.
        let born = found.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        Some(FolderIdentity(format!("{:x}.{:x}.{:x}", found.dev(), found.ino(), born.as_nanos())))
    }
}

/// Why a process is not told anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTold {
    Ended,
    /// It runs elsewhere, or it can't be said which process it is.
    Elsewhere,
    /// The system refuses.
    Refused,
}

static OWN: LazyLock<Option<Origin>> = LazyLock::new(|| {
    let boot = Moment::now().boot.clone();
    let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let began = Stat::read("self").ok()?.began;
    (!boot.is_empty()).then_some(Origin { boot, namespace, began: Some(began), folder: None })
});

impl Origin {
    /// That of this process; none without /proc.
    pub fn own() -> Option<Origin> {
        OWN.clone()
    }

    /// The same, recorded in this folder.
    pub(crate) fn recorded_in(self, folder: &Path) -> Origin {
        Origin { folder: FolderIdentity::of(folder), ..self }
    }

    /// True if it was recorded in another folder, of which this one is a copy.
    pub(crate) fn is_copied(&self, into: &Path) -> bool {
        self.folder.is_some() && self.folder != FolderIdentity::of(into)
    }
}

impl Process {
    pub fn own() -> Process {
        Process::new(std::process::id(), Origin::own())
    }

    pub fn new(pid: u32, origin: Option<Origin>) -> Process {
        Process { pid, origin, is_of_original: false }
    }

    /// The process of a record that was found in this folder.
    pub(crate) fn found_in(folder: &Path, pid: u32, origin: Option<Origin>) -> Process {
        let is_of_original = origin.as_ref().is_some_and(|origin| origin.is_copied(folder));
        // Of itself the record says no more than that.
        let origin = origin.map(|origin| Origin { folder: origin.folder.filter(|_| is_of_original), ..origin });
        Process { pid, origin, is_of_original }
    }

    /// True if the record names a process of the array whose folder this folder was copied from.
    pub fn is_of_original(&self) -> bool {
        self.is_of_original
    }

    /// The running process that this record names although it was copied, and the folder that its array lies in, as far as that can be seen.
    pub(crate) fn in_original(&self) -> Option<(Process, Option<PathBuf>)> {
        let folder = self.origin.as_ref().and_then(|origin| origin.folder.clone());
        let process = Process::new(self.pid, self.origin.clone().map(|origin| Origin { folder: None, ..origin }));
        let in_proc = process.in_proc().filter(|_| self.is_of_original)?;
        let open = std::fs::read_dir(in_proc.join("fd")).into_iter().flatten().flatten();
        let files = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let mut folders =
            files.flat_map(|file| file.ancestors().skip(1).take(2).map(Path::to_path_buf).collect::<Vec<_>>());
        let dir = folders.find(|path| path.is_absolute() && FolderIdentity::of(path) == folder);
        Some((process, dir))
    }

    /// The process that has this number here now, if there is one.
    pub(crate) fn here(pid: u32) -> Option<Process> {
        let mut process = Process::own().sibling(pid);
        let (_open, number) = process.open().ok()?;
        process.origin.as_mut()?.began = Some(Stat::read(&number.to_string()).ok()?.began);
        Some(process)
    }

    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    /// Another process, whose number is from the same place.
    pub fn sibling(&self, pid: u32) -> Process {
        let is_it = pid == self.pid;
        let origin = self.origin.clone().map(|origin| Origin { began: origin.began.filter(|_| is_it), ..origin });
        Process { pid, origin, is_of_original: self.is_of_original }
    }

    /// True if its number is one of this machine, this boot and this PID namespace.
    pub fn is_here(&self) -> bool {
        let place = |origin: &Origin| (origin.boot.clone(), origin.namespace);
        let is_of_here = self.origin.as_ref().map(place).is_some_and(|of| OWN.as_ref().map(place) == Some(of));
        is_of_here && !self.is_of_original
    }

    /// True if its number is known to be one of another machine, boot or PID namespace.
    pub fn is_elsewhere(&self) -> bool {
        self.origin.is_some() && !self.is_here() && !self.is_of_original
    }

    /// True if it is known that it has ended. A process that runs elsewhere may have ended as well: only its lease tells. One of the original of
    /// a copied folder never was a process of this array.
    pub fn has_ended(&self) -> bool {
        matches!(self.open(), Err(NotTold::Ended))
    }

    pub fn signal(&self, signal: Signal) -> Result<(), NotTold> {
        // Without the time of its beginning, the number may have been used again.
        if !self.is_of_original && self.origin.as_ref().is_none_or(|origin| origin.began.is_none()) {
            return Err(NotTold::Elsewhere);
        }
        match pidfd_send_signal(self.open()?.0, signal) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::SRCH) => Err(NotTold::Ended),
            Err(_) => Err(NotTold::Refused),
        }
    }

    /// True if it runs here, and is suspended: by SIGSTOP, by a terminal, or by a debugger.
    pub fn is_suspended(&self) -> bool {
        let stat = self.open().ok().and_then(|(_process, number)| Stat::read(&number.to_string()).ok());
        stat.is_some_and(|stat| stat.is_suspended)
    }

    /// Its folder in /proc; none if it does not run here.
    pub fn in_proc(&self) -> Option<PathBuf> {
        let (_process, number) = self.open().ok()?;
        Some(PathBuf::from(format!("/proc/{number}")))
    }

    /// The open process, whose identity was checked, and its number in /proc.
    fn open(&self) -> Result<(OwnedFd, u32), NotTold> {
        let Some(origin) = &self.origin else { return Err(NotTold::Elsewhere) };
        if self.is_of_original {
            return Err(NotTold::Ended);
        }
        if !self.is_here() {
            return Err(NotTold::Elsewhere);
        }
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or(NotTold::Ended)?;
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => return Err(NotTold::Ended),
            Err(_) => return Err(NotTold::Elsewhere),
        };
        // What is in /proc may have the numbers of another namespace.
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).unwrap_or_default();
        let number = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i64>().ok());
        let number = match number {
            Some(-1) => return Err(NotTold::Ended),
            number => number.and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0),
        };
        let number = number.ok_or(NotTold::Elsewhere)?;
        match Stat::read(&number.to_string()) {
            Ok(stat) if stat.has_ended || origin.began.is_some_and(|began| began != stat.began) => Err(NotTold::Ended),
            Ok(_) => Ok((process, number)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NotTold::Ended),
            Err(_) => Err(NotTold::Elsewhere),
        }
    }
}

/// Names the process for people.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if self.is_of_original {
            return f.write_str(" of the array that this folder is a copy of");
        }
        match (&self.origin, &*OWN) {
            (Some(origin), Some(own)) if origin.boot != own.boot => {
                f.write_str(" of another machine, or before its restart")
            }
            (Some(origin), Some(own)) if origin.namespace != own.namespace => f.write_str(" of another container"),
            _ => Ok(()),
        }
    }
}

/// What `/proc/N/stat` says. A reader may wait while the process executes another program, which may wait for a mount. `/proc/N/status` lets
/// nobody wait, but does not say when a process began. So the thread that serves a mount does not read it.
struct Stat {
    /// It has ended, and waits for its parent.
    has_ended: bool,
    is_suspended: bool,
    began: u64,
}

impl Stat {
    fn read(process: &str) -> io::Result<Stat> {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
        // The name in parentheses may contain anything. The state is the third field, and the beginning the 22nd.
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let began = fields.get(19).and_then(|began| began.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let is_one_of = |states: [&str; 2]| states.contains(&fields[0]);
        Ok(Stat { has_ended: is_one_of(["Z", "X"]), is_suspended: is_one_of(["T", "t"]), began })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Sleeper {
            Sleeper(Command::new("sleep").arg("60").spawn().expect("there is a program sleep"))
        }

        fn recorded(&self) -> Process {
            let began = Stat::read(&self.0.id().to_string()).expect("it runs").began;
            Process::new(self.0.id(), Origin::own().map(|own| Origin { began: Some(began), ..own }))
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_of_another_place_or_time_is_neither_believed_nor_signalled() {
        let mut sleeper = Sleeper::new();
        let recorded = sleeper.recorded();
        let own = recorded.origin.clone().expect("there is a /proc");
        let other = |origin: Origin| Process::new(recorded.pid, Some(origin));
        let elsewhere = [
            other(Origin { namespace: own.namespace + 1, ..own.clone() }),
            other(Origin { boot: "another".into(), ..own.clone() }),
            Process::new(recorded.pid, None),
        ];
        for process in &elsewhere {
            assert_eq!(process.signal(Signal::KILL), Err(NotTold::Elsewhere), "{process}");
            assert!(!process.has_ended() && process.in_proc().is_none(), "{process}");
        }
        let earlier = other(Origin { began: own.began.map(|began| began - 1), ..own.clone() });
        assert_eq!(earlier.signal(Signal::KILL), Err(NotTold::Ended));
        assert!(earlier.has_ended());
        let sibling = Process::own().sibling(recorded.pid);
        assert!(!sibling.has_ended());
        assert_eq!(sibling.signal(Signal::KILL), Err(NotTold::Elsewhere), "a number alone may have been used again");
        assert!(sleeper.0.try_wait().expect("it is a child").is_none(), "it was not signalled");

        assert!(recorded.is_here() && !recorded.has_ended() && !recorded.is_suspended());
        assert_eq!(recorded.signal(Signal::STOP), Ok(()));
        while !recorded.is_suspended() {
            std::thread::yield_now();
        }
        assert_eq!((recorded.signal(Signal::TERM), recorded.signal(Signal::CONT)), (Ok(()), Ok(())));
        while !recorded.has_ended() {
            std::thread::yield_now();
        }
        assert_eq!(recorded.signal(Signal::TERM), Err(NotTold::Ended), "it is not waited for yet");
    }
}
