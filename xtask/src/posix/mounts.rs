//! An array with a file system that is mounted twice.

use super::outcome::Kind;
use crate::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;

const FILE_SYSTEM: &str = "posix";
const DEVICE_BYTES: &str = "4GiB";
const UP_WAIT: Duration = Duration::from_secs(60);
/// The mounts have names of the same length, so that the longest paths are possible on both.
const MOUNTS: [&str; 2] = ["mount-a", "mount-b"];

/// Opens a directory twice, and says what the descriptors refer to.
const OPEN_TWICE: &str = r#"exec 3<"$0" 4<"$0"; readlink /proc/self/fd/3 /proc/self/fd/4"#;

/// The array and its mounts. They end, and their folder is removed, when this is dropped.
pub struct Mounts {
    braid: PathBuf,
    library: PathBuf,
    folder: PathBuf,
    keeps: Cell<bool>,
    array: Option<Process>,
}

/// The mounts on which a tool is to run.
pub struct On<'a> {
    mounts: &'a Mounts,
    pub kind: Kind,
}

impl Mounts {
    pub fn start(braid: &Path, library: &Path, folder: &Path, keeps: bool, interrupt: &Interrupt) -> Result<Mounts> {
        std::fs::create_dir(folder)
            .with_context(|| format!("{} can't be created: name another folder by --dir", folder.display()))?;
        let (braid, library, keeps) = (braid.to_path_buf(), library.to_path_buf(), Cell::new(keeps));
        let folder = folder.canonicalize()?;
        let mut mounts = Mounts { braid, library, folder, keeps, array: None };
        for name in MOUNTS.into_iter().chain(["logs", "local"]) {
            std::fs::create_dir(mounts.folder.join(name))?;
        }
        let mut up = Command::new(&mounts.braid);
        up.args(["up", "--yes", "--dir"]).arg(mounts.array_folder());
        up.args(["--fs", FILE_SYSTEM, "--size", DEVICE_BYTES, "--port", "0"]);
        let array = mounts.array.insert(Process::start(&mut up, &mounts.folder.join("logs/up.log"))?);
        let mut space = braid_on(&mounts.braid, &mounts.folder, &["fs", "space", FILE_SYSTEM]);
        space.stdout(Stdio::null()).stderr(Stdio::null());
        let is_served = |_: &Process| Ok(space.status()?.success().then_some(()));
        array.until(UP_WAIT, interrupt, "the file system was not served", is_served)?;
        let mut mount = mounts.command(&["fs", "mount", FILE_SYSTEM]);
        mount.args(MOUNTS.map(|name| mounts.folder.join(name))).stdout(Stdio::null());
        run(mount)?;
        Ok(mounts)
    }

    /// A command of `braid` about this array.
    fn command(&self, arguments: &[&str]) -> Command {
        braid_on(&self.braid, &self.folder, arguments)
    }

    fn array_folder(&self) -> PathBuf {
        self.folder.join("array")
    }

    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    pub fn keep(&self) {
        self.keeps.set(true);
    }

    /// One mount, or both.
    pub fn on(&self, kind: Kind) -> Result<On<'_>> {
        let on = On { mounts: self, kind };
        on.check()?;
        Ok(on)
    }

    fn mount(&self, which: usize) -> PathBuf {
        self.folder.join(MOUNTS[which])
    }
}

/// A command of `braid` about the array in a folder.
fn braid_on(braid: &Path, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(braid);
    command.args(arguments).arg("--array").arg(folder.join("array"));
    command
}

impl On<'_> {
    /// A directory in the first mount.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.mounts.mount(0).join(name);
        if !directory.exists() {
            std::fs::create_dir(&directory)?;
        }
        Ok(directory)
    }

    /// The first or the second mount.
    pub fn mount(&self, which: usize) -> PathBuf {
        self.mounts.mount(which)
    }

    /// The program `braid`, the folder of the array, and the name of the file system.
    pub fn array(&self) -> [String; 3] {
        let [braid, folder] = [&self.mounts.braid, &self.mounts.array_folder()].map(|path| path.display().to_string());
        [braid, folder, FILE_SYSTEM.to_string()]
    }

    /// A directory that is on no mount.
    pub fn local(&self) -> PathBuf {
        self.mounts.folder.join("local")
    }

    pub fn title(&self) -> &'static str {
        match self.kind {
            Kind::One => "on one mount ",
            Kind::Two => "on two mounts",
        }
    }

    /// A file for what a tool prints.
    pub fn log(&self, tool: &str) -> PathBuf {
        self.mounts.logs().join(format!("{tool}-{}.log", self.kind))
    }

    /// A tool. On two mounts, every other call that it makes goes to the second one.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        if self.kind == Kind::Two {
            let [first, second] = [0, 1].map(|which| self.mounts.mount(which).display().to_string());
            command.env("LD_PRELOAD", &self.mounts.library).env("BRAID_TWO_MOUNTS", format!("{first}:{second}"));
        }
        command
    }

    /// Checks that programs use what they are to use: both mounts, or one.
    fn check(&self) -> Result<()> {
        let mut shell = self.command("sh");
        shell.args(["-c", OPEN_TWICE]).arg(self.mounts.mount(0));
        let seen = String::from_utf8(shell.output()?.stdout)?;
        let seen: BTreeSet<PathBuf> = seen.lines().map(PathBuf::from).collect();
        let expected = match self.kind {
            Kind::One => BTreeSet::from([self.mounts.mount(0)]),
            Kind::Two => BTreeSet::from([self.mounts.mount(0), self.mounts.mount(1)]),
        };
        ensure!(seen == expected, "programs use {seen:?} instead of {expected:?}");
        Ok(())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let mut unmount = self.command(&["fs", "unmount", "--force"]);
        unmount.args([self.mount(0), self.mount(1)]).stdout(Stdio::null()).stderr(Stdio::null());
        if !unmount.status().is_ok_and(|status| status.success()) {
            // Without the processes that serve them, only the kernel can unmount them.
            for which in [0, 1] {
                let _ = rustix::mount::unmount(self.mount(which), rustix::mount::UnmountFlags::DETACH);
            }
        }
        drop(self.array.take());
        if !self.keeps.get()
            && let Err(error) = std::fs::remove_dir_all(&self.folder)
        {
            eprintln!("{} could not be removed: {error}", self.folder.display());
        }
    }
}
