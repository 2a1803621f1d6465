//! The commands of `braid fs` that work on files.

use super::listing;
use super::target::{Anywhere, Target, Trying, anywhere, put_name, put_names, target};
use crate::report;
use braid_admin::Failure;
use braid_admin::file_copy::{self, CopyProgress, Place};
use braid_base::units::format_size;
use braid_client::{Files, FilesError, OpenOptions, Value};
use braid_control::ControlPlane;
use braid_terminal::{Common, output};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How much `cat` reads at a time, in bytes.
const PART_BYTES: usize = 4 << 20;
/// How often the progress bar of a copy is drawn.
const REDRAW: Duration = Duration::from_millis(100);

#[derive(clap::Subcommand)]
pub enum Command {
    /// List directories
    Ls(listing::Ls),
    /// Show the attributes of files
    Stat(listing::Stat),
    /// Show how much space a file system has
    Space(listing::Space),
    /// Copy files into, out of or within a file system
    ///
    /// SRC and DST are NAME:PATH for a path in a file system of the array, or a path on this machine; at least one of them is in the array. A
    /// path on this machine that contains a colon begins with `./` or `/`. If DST is a directory, the copy gets the name of SRC in it.
    /// Permission bits are copied; owners and times are not. What was copied is durable in the array when the command ends.
    #[command(after_long_help = COPY_EXAMPLES)]
    Cp(Cp),
    /// Write the bytes of files to standard output
    Cat(Cat),
    /// Create directories
    Mkdir {
        /// The directories: NAME:PATH
        #[arg(value_name = "DIRECTORY", required = true, value_parser = target())]
        directories: Vec<Target>,
        /// Create those on the path, too; it is no failure if the directory exists
        #[arg(short, long)]
        parents: bool,
        #[command(flatten)]
        trying: Trying,
    },
    /// Move or rename a file or directory
    ///
    /// The move is atomic: at every moment there is one of both names. A file that had the new name is replaced; if TO is a directory, FROM
    /// is moved into it. Both are in the same file system.
    Mv(Mv),
    /// Remove files, and with -r directories
    ///
    /// A file that a program has open exists until it is closed.
    Rm {
        /// What to remove: NAME:PATH
        #[arg(value_name = "FILE", required = true, value_parser = target())]
        files: Vec<Target>,
        /// Remove directories with everything in them
        #[arg(short, long)]
        recursive: bool,
        #[command(flatten)]
        trying: Trying,
    },
}

const COPY_EXAMPLES: &str = "\
Examples:
  braid fs cp notes.txt home:/notes.txt
  braid fs cp -r photos home:/              makes home:/photos
  braid fs cp -r home:/photos ./copy
  tar c src | braid fs cp /dev/stdin home:/src.tar";

#[derive(clap::Args)]
pub struct Cp {
    /// What to copy: NAME:PATH, or a path on this machine
    #[arg(value_parser = anywhere())]
    src: Anywhere,
    /// Where to: NAME:PATH, or a path on this machine
    #[arg(value_parser = anywhere())]
    dst: Anywhere,
    /// Copy directories with everything in them; symbolic links are copied as such
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    pub trying: Trying,
}

#[derive(clap::Args)]
pub struct Cat {
    /// The files: NAME:PATH
    #[arg(value_name = "FILE", required = true, value_parser = target())]
    files: Vec<Target>,
    #[command(flatten)]
    pub trying: Trying,
}

#[derive(clap::Args)]
pub struct Mv {
    /// The present name: NAME:PATH
    #[arg(value_parser = target())]
    from: Target,
    /// The new name: NAME:PATH
    #[arg(value_parser = target())]
    to: Target,
    /// Fail if the new name exists
    #[arg(short, long)]
    no_replace: bool,
    #[command(flatten)]
    pub trying: Trying,
}

/// The file systems that a command has mounted, each once.
pub struct Mounts<'a> {
    trying: &'a Trying,
    common: &'a Common,
    by_name: BTreeMap<String, Files>,
}

impl Mounts<'_> {
    pub async fn of(&mut self, target: &Target) -> Result<Files, Failure> {
        let name = &target.file_system;
        if let Some(files) = self.by_name.get(name) {
            return Ok(files.clone());
        }
        let files = self.trying.mount(name, self.common).await?;
        self.by_name.insert(name.clone(), files.clone());
        Ok(files)
    }

    /// The array's folder.
    pub fn control(&self) -> ControlPlane {
        self.common.control()
    }

    async fn place(&mut self, anywhere: &Anywhere) -> Result<Place, Failure> {
        Ok(match anywhere {
            Anywhere::Local(path) => Place::Local(path.clone()),
            Anywhere::Mounted(target) => self.place_of(target).await?,
        })
    }

    async fn place_of(&mut self, target: &Target) -> Result<Place, Failure> {
        let array = self.common.control().describe().await?.array;
        Ok(Place::mounted(self.of(target).await?, &target.file_system, array, target.path.clone()))
    }
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let trying = match &command {
        Command::Ls(listing::Ls { trying, .. })
        | Command::Stat(listing::Stat { trying, .. })
        | Command::Space(listing::Space { trying, .. })
        | Command::Cp(Cp { trying, .. })
        | Command::Cat(Cat { trying, .. })
        | Command::Mkdir { trying, .. }
        | Command::Mv(Mv { trying, .. })
        | Command::Rm { trying, .. } => trying,
    };
    let mut mounts = Mounts { trying, common, by_name: BTreeMap::new() };
    let outcome = execute(&command, &mut mounts, common.json).await;
    if outcome.is_ok() {
        for files in mounts.by_name.into_values() {
            files.close().await;
        }
    }
    // What did not answer a request does not answer an unmount either: a mount that is dropped has a second, and is fenced then.
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn execute(command: &Command, mounts: &mut Mounts<'_>, as_json: bool) -> Result<(), Failure> {
    match command {
        Command::Ls(arguments) => listing::ls(arguments, mounts, as_json).await,
        Command::Stat(arguments) => listing::stat(arguments, mounts, as_json).await,
        Command::Space(arguments) => listing::space(arguments, mounts, as_json).await,
        Command::Cp(arguments) => cp(arguments, mounts, as_json).await,
        Command::Cat(arguments) => cat(arguments, mounts, as_json).await,
        Command::Mkdir { directories, parents, .. } => {
            for target in directories {
                let files = mounts.of(target).await?;
                let created = match parents {
                    true => files.create_dir_all(&target.path).await,
                    false => files.create_dir(&target.path).await,
                };
                created.map_err(|error| Failure::from(error).of(target))?;
            }
            report::print(as_json, names("created", directories), String::new);
            Ok(())
        }
        Command::Mv(arguments) => mv(arguments, mounts, as_json).await,
        Command::Rm { files: targets, recursive, .. } => {
            for target in targets {
                let files = mounts.of(target).await?;
                remove(&files, target, *recursive).await?;
            }
            report::print(as_json, names("removed", targets), String::new);
            Ok(())
        }
    }
}

async fn cp(Cp { src, dst, recursive, .. }: &Cp, mounts: &mut Mounts<'_>, as_json: bool) -> Result<(), Failure> {
    if let (Anywhere::Local(_), Anywhere::Local(_)) = (src, dst) {
        return Err(Failure::usage("no-file-system", "neither of both is in a file system of the array")
            .hint("name a path in the array as NAME:PATH, such as home:/notes.txt"));
    }
    let (from, to) = (mounts.place(src).await?, mounts.place(dst).await?);
    let progress = Arc::new(CopyProgress::default());
    let bar = output::bytes(0, "copied");
    let mut copy = std::pin::pin!(file_copy::copy(from, to, *recursive, progress.clone()));
    let copied = loop {
        tokio::select! {
            copied = &mut copy => break copied,
            () = tokio::time::sleep(REDRAW) => {
                bar.set_length(progress.found.load(Ordering::Relaxed));
                bar.set_position(progress.bytes.load(Ordering::Relaxed));
            }
        }
    };
    bar.finish_and_clear();
    copied?;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let CopyProgress { bytes, files, directories, links, skipped, .. } = &*progress;
    if count(skipped) > 0 {
        braid_terminal::tell!("{} named pipes, sockets and device files were not copied", count(skipped));
    }
    let json = json!({
        "files": count(files),
        "directories": count(directories),
        "links": count(links), "skipped": count(skipped),
        "bytes": count(bytes),
    });
    report::print(as_json, json, || match (recursive, count(files)) {
        (false, _) => String::new(),
        (true, 1) => format!("1 file, {}\n", format_size(count(bytes))),
        (true, number) => format!("{number} files, {}\n", format_size(count(bytes))),
    });
    Ok(())
}

async fn cat(Cat { files: targets, .. }: &Cat, mounts: &mut Mounts<'_>, as_json: bool) -> Result<(), Failure> {
    let mut shown = Vec::new();
    for target in targets {
        let of = |error: FilesError| Failure::from(error).of(target);
        let place = mounts.place_of(target).await?;
        if !as_json && file_copy::is_open_at(std::io::stdout().as_fd(), &place).await {
            return Err(Failure::failed("same-file", format!("{target} is the output itself")));
        }
        let file = mounts.of(target).await?.open(&target.path, OpenOptions::new().read(true)).await.map_err(of)?;
        if as_json {
            let data = file.read_at(0, PART_BYTES + 1).await.map_err(of)?;
            if data.len() > PART_BYTES {
                return Err(Failure::usage("too-large", "more than 4 MiB can't be printed as JSON").of(target));
            }
            let mut json = json!({"data": crate::values::to_json(&Value::from(data))});
            put_name(&mut json, "file", &target.bytes());
            shown.push(json);
            continue;
        }
        let mut offset = 0;
        loop {
            let data = file.read_at(offset, PART_BYTES).await.map_err(of)?;
            if data.is_empty() {
                break;
            }
            if !output::write(&data) {
                return Ok(());
            }
            offset += data.len() as u64;
        }
    }
    if as_json {
        report::print(true, json!({"files": shown}), String::new);
    }
    Ok(())
}

async fn mv(Mv { from, to, no_replace, .. }: &Mv, mounts: &mut Mounts<'_>, as_json: bool) -> Result<(), Failure> {
    if from.file_system != to.file_system {
        return Err(Failure::usage("two-file-systems", "a file can't be moved to another file system")
            .hint("copy it with `braid fs cp -r`, and remove it with `braid fs rm -r`"));
    }
    let files = mounts.of(from).await?;
    let mut to = to.clone();
    if files.metadata(&to.path).await.is_ok_and(|found| found.is_dir())
        && let Some(name) = from.path.file_name()
    {
        to.path.push(name);
    }
    let moved = match no_replace {
        true => files.rename_no_replace(&from.path, &to.path).await,
        false => files.rename(&from.path, &to.path).await,
    };
    moved.map_err(|error| Failure::from(error).of(format!("{from} to {to}")))?;
    let mut moved = json!({});
    put_name(&mut moved, "from", &from.bytes());
    put_name(&mut moved, "to", &to.bytes());
    report::print(as_json, moved, String::new);
    Ok(())
}

async fn remove(files: &Files, target: &Target, recursive: bool) -> Result<(), Failure> {
    let removed = match files.remove_file(&target.path).await {
        Err(FilesError::IsADirectory | FilesError::InvalidName) if recursive => {
            files.remove_dir_all(&target.path).await
        }
        Err(FilesError::IsADirectory) => {
            let failure = Failure::failed("is-a-directory", "it is a directory").of(target);
            return Err(failure.hint("remove it with -r, and everything in it"));
        }
        outcome => outcome,
    };
    removed.map_err(|error| Failure::from(error).of(target))
}

fn names(key: &str, targets: &[Target]) -> serde_json::Value {
    put_names(key, targets.iter().map(Target::bytes).collect())
}
