//! Suites of programs: their own tests, and loads whose result is checked. Each is a script in `suites`, which prints a line for each case:
//! its name, `ok`, `skipped` or `failed`, and a text.

use super::mounts::On;
use super::outcome::{Case, Kind, Outcome};
use super::tools::Tools;
use crate::prelude::*;

#[derive(Debug)]
pub struct Suite {
    pub name: &'static str,
    pub packages: &'static [Package],
    interpreter: &'static str,
    script: &'static str,
    /// On how many mounts it runs: calls are not distributed among them, as for the other tools.
    pub kind: Kind,
    way: Way,
}

/// What a script is given, after the folders in which it works and one that is on no mount.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Nothing. It runs in a local folder first: only what is otherwise on the mount counts.
    Compared,
    /// The folder of its build, and the beginnings of its cases. Compared as well.
    Selected(&'static [&'static str]),
    /// For how many seconds it runs; the program `braid`, the folder of the array, whose processes it kills, and the file system.
    WithFaults,
}

/// How long a suite may take: all that can be chosen of git takes hours.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Tests of git that say much about files, and are short: a command of git takes some twenty times as long on a mount.
const GIT_USUAL: [&str; 8] = ["t0001", "t0003", "t0020", "t0060", "t1000", "t1050", "t1410", "t5304"];

pub const SUITES: [Suite; 4] = [
    Suite {
        name: "cpython",
        packages: &[("libpython3.11-testsuite", "/usr/lib/python3.11/test/test_os.py")],
        interpreter: "/usr/bin/python3",
        script: include_str!("suites/cpython.py"),
        kind: Kind::One,
        way: Way::Compared,
    },
    Suite {
        name: "git",
        packages: &[("make", "/usr/bin/make"), ("gcc", "/usr/bin/gcc"), ("zlib1g-dev", "/usr/include/zlib.h")],
        interpreter: "/bin/sh",
        script: include_str!("suites/git.sh"),
        kind: Kind::One,
        way: Way::Selected(&GIT_USUAL),
    },
    Suite {
        name: "sqlite",
        packages: &[("python3", "/usr/bin/python3")],
        interpreter: "/usr/bin/python3",
        script: include_str!("suites/sqlite.py"),
        kind: Kind::Two,
        way: Way::WithFaults,
    },
    Suite {
        name: "postgresql",
        packages: &[("postgresql", "/usr/share/doc/postgresql")],
        interpreter: "/bin/sh",
        script: include_str!("suites/postgresql.sh"),
        kind: Kind::One,
        way: Way::WithFaults,
    },
];

impl Suite {
    pub fn run(
        &self,
        on: &On,
        tools: &Tools,
        cases: &[String],
        seconds: u64,
        interrupt: &Interrupt,
    ) -> Result<Vec<Outcome>> {
        let folder = on.directory(self.name)?;
        let mut expected = BTreeMap::new();
        let mut more = Vec::new();
        match self.way {
            Way::Compared => {}
            Way::Selected(usual) => {
                more.push(tools.git().display().to_string());
                more.extend(usual.iter().filter(|_| cases.is_empty()).map(|usual| usual.to_string()));
                more.extend(cases.iter().cloned());
            }
            Way::WithFaults => {
                more.push(seconds.to_string());
                more.extend(on.array());
            }
        }
        let scratch = |place: &str| on.local().join(format!("{}-{place}", self.name));
        let is_compared = !matches!(self.way, Way::WithFaults);
        if is_compared {
            let folder = on.local().join(self.name);
            std::fs::create_dir_all(&folder)?;
            let local = self.script(on, &[&folder, &scratch("local")], &more, interrupt)?;
            expected.extend(local.into_iter().map(|outcome| (outcome.name, outcome.case)));
        }
        let folders = match self.kind {
            Kind::One if !is_compared => vec![on.mount(0)],
            Kind::One => vec![folder],
            Kind::Two => vec![folder, on.mount(1).join(self.name)],
        };
        let scratch = scratch("mount");
        let folders: Vec<&Path> = folders.iter().map(|folder| folder.as_path()).chain([scratch.as_path()]).collect();
        let mut outcomes = self.script(on, &folders, &more, interrupt)?;
        if is_compared {
            // What does not succeed locally either says nothing about the mount.
            outcomes.retain(|outcome| expected.get(&outcome.name).is_none_or(|local| *local == Case::Ok));
            let ran = |name: &str| outcomes.iter().any(|outcome| outcome.name == name);
            let absent = expected.iter().filter(|(name, local)| **local == Case::Ok && !ran(name));
            let absent: Vec<Outcome> =
                absent.map(|(name, _)| self.outcome(name, Case::Failed, "did not run")).collect();
            outcomes.extend(absent);
        }
        Ok(outcomes)
    }

    /// Runs the script, and reads what it prints.
    fn script(&self, on: &On, folders: &[&Path], more: &[String], interrupt: &Interrupt) -> Result<Vec<Outcome>> {
        let scratch = folders.last().expect("there is one");
        std::fs::create_dir_all(scratch)?;
        let place = scratch.file_name().expect("it has a name").to_string_lossy().into_owned();
        let (said, log) = (on.log(&place).with_extension("cases"), on.log(&place));
        let program = scratch.join("script");
        std::fs::write(&program, self.script)?;
        let mut command = Command::new(self.interpreter);
        command.arg(&program).args(folders).args(more);
        command.stdout(File::create(&said)?).stderr(File::create(&log)?);
        let mut script = Process::start_with(&mut command, &log)?;
        let status = script.status(PATIENCE, interrupt).inspect_err(|_| drop(script.kill_group()))?;
        let text = String::from_utf8_lossy(&std::fs::read(&said)?).into_owned();
        let outcomes: Vec<Outcome> = text.lines().filter_map(|line| self.parse(line)).collect();
        if !status.success() || outcomes.is_empty() {
            bail!("the suite {} ended with {status}: {}", self.name, log.display());
        }
        Ok(outcomes)
    }

    fn parse(&self, line: &str) -> Option<Outcome> {
        let (name, rest) = line.split_once(' ')?;
        let (word, text) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(self.outcome(name, Case::from_str(word, false).ok()?, text))
    }

    fn outcome(&self, name: &str, case: Case, text: &str) -> Outcome {
        Outcome { tool: self.name, kind: self.kind, name: name.to_string(), case, text: text.to_string() }
    }
}
