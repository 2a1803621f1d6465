//! The program `planted` proves that the attack finds bugs: it plants each of `bugs/*.patch` in a copy of the tree, and demands a
//! failure.
//!
//! A patch that begins with `scenario: NAME` has a bug that the attack can't see: the scripted scenario of that name must fail instead.
//!
//! See `bugs/README.md`. The copy is in a temporary folder and is removed at the end; the tree itself is not touched. This program,
//! built from the copy, also runs the attack: it takes much less time to build than the command `braid`.

use braid_cluster::attack::Attack;
use braid_cluster::{Choices, Kind};
use braid_ordering::{Atomicity, Ordering};
use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::str::FromStr;

const USAGE: &str = "usage: planted [--runs N] [NAME…], or planted --attack [--runs N] [ORDERING or ATOMICITY or FAULT]
  --runs N   seeds in which each bug must be found (1000 unless told otherwise)
  NAME       plant only bugs/NAME.patch
  --attack   plant nothing: attack the tree that this was built from, with the seeds from 0 on";

fn main() -> ExitCode {
    let mut runs = 1_000;
    let mut attacks = false;
    let mut names = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), word.starts_with('-')) {
            ("--runs", _) => match words.next().and_then(|number| number.parse().ok()) {
                Some(number) => runs = number,
                None => return usage("--runs needs a number"),
            },
            ("--attack", _) => attacks = true,
            (_, true) => return usage(&format!("there is no option '{word}'")),
            _ => names.push(word),
        }
    }
    if attacks {
        return attack(runs, names.first());
    }
    match plant_all(runs, &names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}\n{USAGE}");
    ExitCode::from(2)
}

/// Runs the attack; executed from the copy.
fn attack(runs: u64, only: Option<&String>) -> ExitCode {
    let (ordering, atomicity) = (parsed::<Ordering>(only), parsed::<Atomicity>(only));
    let also = parsed::<Kind>(only).into_iter().collect::<Vec<_>>();
    if let Some(word) = only.filter(|_| ordering.is_none() && atomicity.is_none() && also.is_empty()) {
        return usage(&format!("'{word}' is neither an ordering nor an atomicity, nor a kind of fault"));
    }
    let choices = Choices { ordering, atomicity, also, ..Choices::default() };
    let attack = Attack { seed: 0, runs: Some(runs), until: None, choices, threads: None, keep_going: false };
    let outcome = attack.run(|_, _| ());
    match outcome.failures.first() {
        Some(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
        None => {
            println!("{}", outcome.sum);
            ExitCode::SUCCESS
        }
    }
}

fn parsed<T: FromStr>(word: Option<&String>) -> Option<T> {
    word.and_then(|word| word.parse().ok())
}

/// True if every bug was found.
fn plant_all(runs: u64, names: &[String]) -> Result<bool, Box<dyn Error>> {
    // Not the tree from which this program was built: a bug may have been planted in it, and it may have been removed.
    let root = std::env::current_dir()?;
    let patches = patches(&root.join("bugs"), names)?;
    // The tests show that the attack finds nothing in the tree as it is.
    let copy = Copy::of(&root)?;
    let mut all_found = true;
    for patch in patches {
        let name = patch.file_stem().unwrap_or(OsStr::new("?")).to_string_lossy().into_owned();
        let scenario = scenario_of(&patch)?;
        let by = match &scenario {
            Some(scenario) => By::Scenario(scenario),
            None => By::Attack { runs, only: only_of(&name) },
        };
        let (found, said) = copy.look_for(&patch, &by)?;
        match (said.lines().find(|line| line.starts_with("FAILED")), &by) {
            (Some(line), By::Attack { .. }) if found => println!("found      {name}: {line}"),
            (_, By::Scenario(scenario)) if found => println!("found      {name}: FAILED scenario {scenario}"),
            (_, By::Attack { .. }) => {
                all_found = false;
                println!("NOT FOUND  {name} in {runs} runs");
            }
            (_, By::Scenario(scenario)) => {
                all_found = false;
                println!("NOT FOUND  {name} by the scenario {scenario}");
            }
        }
    }
    Ok(all_found)
}

/// What must find a bug.
enum By<'a> {
    Attack { runs: u64, only: Option<&'a str> },
    Scenario(&'a str),
}

/// The scenario that must find a bug instead of the attack, which the patch names in its first line.
fn scenario_of(patch: &Path) -> Result<Option<String>, Box<dyn Error>> {
    let text = fs::read_to_string(patch)?;
    Ok(text.lines().next().and_then(|line| line.strip_prefix("scenario: ")).map(str::to_string))
}

/// The ordering, atomicity or kind of fault that a bug needs, which is the prefix of its name: a few hundred seeds with it say as
/// much as thousands of all seeds.
fn only_of(name: &str) -> Option<&'static str> {
    let names = Ordering::ALL.map(Ordering::name).into_iter().chain(Atomicity::ALL.map(Atomicity::name));
    let mut names = names.chain(Kind::all().map(Kind::name));
    names.find(|word| name.starts_with(word))
}

fn patches(folder: &Path, names: &[String]) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension() == Some(OsStr::new("patch")) && (names.is_empty() || names.contains(&stem)) {
            patches.push(path);
        }
    }
    patches.sort();
    if patches.is_empty() || (!names.is_empty() && patches.len() < names.len()) {
        return Err(format!("there is no such patch in {}", folder.display()).into());
    }
    Ok(patches)
}

/// A copy of the tree, removed when dropped. It shares the target folder of the tree, so that crates without the bug are built already.
///
/// Cargo distinguishes artifacts of a copy from those of the tree only by their profile. So the crates with the bug are built in a
/// profile of their own ([`profile_of_its_own`]), and the tree's own artifacts never contain the bug.
struct Copy {
    root: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

impl Copy {
    fn of(root: &Path) -> Result<Copy, Box<dyn Error>> {
        let folder = std::env::temp_dir().join(format!("braid-planted-{}", std::process::id()));
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let copy = Copy { root: root.to_path_buf(), folder, target: std::path::absolute(target)? };
        copy_folder(root, &copy.folder)?;
        Ok(copy)
    }

    /// Plants the bug, looks for it, and restores the copy; returns whether it was found, and the output.
    fn look_for(&self, patch: &Path, by: &By) -> Result<(bool, String), Box<dyn Error>> {
        self.git_apply(patch)?;
        let patched = patched_files(&fs::read_to_string(patch)?);
        let outcome = match by {
            By::Attack { runs, only } => self.attack(&patched, *runs, *only),
            By::Scenario(scenario) => self.play(&patched, scenario),
        };
        for file in &patched {
            copy_file(&self.root.join(file), &self.folder.join(file))?;
        }
        outcome
    }

    fn git_apply(&self, patch: &Path) -> Result<(), Box<dyn Error>> {
        let mut git = Command::new("git");
        git.arg("apply").arg(patch).current_dir(&self.folder);
        let output = git.output().map_err(|error| format!("git is needed to apply patches: {error}"))?;
        if !output.status.success() {
            let hint = "the code has changed: plant the bug again and renew the patch";
            return Err(format!("{} does not apply ({hint}):\n{}", patch.display(), text(&output)).into());
        }
        Ok(())
    }

    /// Builds and runs the attack; returns whether it failed, and its output.
    fn attack(&self, patched: &[String], runs: u64, only: Option<&str>) -> Result<(bool, String), Box<dyn Error>> {
        self.build(&["build", "--quiet", "--workspace", "--bin", "planted"], patched)?;
        let mut attack = Command::new(self.target.join("debug/planted"));
        let output = attack.args(["--attack", "--runs", &runs.to_string()]).args(only).output()?;
        Ok((!output.status.success(), text(&output)))
    }

    /// Builds and plays a scenario; returns whether it failed, and its output.
    fn play(&self, patched: &[String], scenario: &str) -> Result<(bool, String), Box<dyn Error>> {
        let test = ["test", "--quiet", "--workspace", "--test", "scenarios"];
        self.build(&[&test[..], &["--no-run"]].concat(), patched)?;
        let output = self.cargo(&test, patched).args(["--", "--exact", scenario]).output()?;
        let said = text(&output);
        if !said.contains("running 1 test") {
            return Err(format!("there is no scenario {scenario}:\n{said}").into());
        }
        Ok((!output.status.success(), said))
    }

    fn build(&self, arguments: &[&str], patched: &[String]) -> Result<(), Box<dyn Error>> {
        let built = self.cargo(arguments, patched).output()?;
        if !built.status.success() {
            return Err(format!("the tree does not build:\n{}", text(&built)).into());
        }
        Ok(())
    }

    /// Cargo in the copy, with the crates that have the bug in a profile of their own.
    fn cargo(&self, arguments: &[&str], patched: &[String]) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(arguments).args(profile_of_its_own(patched));
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", &self.target);
        cargo
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // A folder that remains in the temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let left_out = ["target", ".git", "braid-data"].iter().any(|out| name == OsStr::new(out));
        let (source, place) = (entry.path(), to.join(&name));
        let kind = entry.file_type()?;
        if kind.is_dir() && !left_out {
            copy_folder(&source, &place)?;
        } else if kind.is_file() {
            copy_file(&source, &place)?;
        }
    }
    Ok(())
}

/// Copies a file with its modification time, by which cargo decides whether to build it again.
fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(fs::metadata(from)?.modified()?)
}

/// Options of cargo that give each crate with one of these files another profile. The difference has no effect on the attack.
fn profile_of_its_own(files: &[String]) -> Vec<String> {
    let folders: BTreeSet<&str> = files.iter().filter_map(|file| file.split('/').nth(1)).collect();
    let option = |folder| ["--config".to_string(), format!("profile.dev.package.braid-{folder}.codegen-units=255")];
    folders.into_iter().flat_map(option).collect()
}

fn patched_files(patch: &str) -> Vec<String> {
    patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(str::to_string).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
