//! Transcripts: pages with commands and what is expected of each. They are tests of what commands say, above all about users' mistakes.
//!
//! A section of a page (`## `) is one test, in a folder of its own. In its blocks marked `transcript`, `$ COMMAND   # comment` is run by bash,
//! with the functions in `transcripts/functions.sh`. The comment says what is expected: `status 3: CODE` an error with this exit status and
//! code, `status 3, …` this status, and any other one that it succeeds. If it begins with `soon`, the command is repeated until all is as
//! expected. The lines below the command expect more:
//!
//! | line | what |
//! | --- | --- |
//! | `~ some words`, `! some words` | standard output or standard error contains these words; neither does |
//! | `.volumes[0].name = "vol0"`, `.disk != null` | the JSON output has this value there; another one |
//! | `.epoch > 1` | a number that is greater |
//! | `.text ~ some words` | a value that contains these words |
//! | below an error: other lines | words of its message or hint |
//! | otherwise: other lines | all lines of the output |

use crate::console::{Block, Command, blocks};
use crate::program::{Outcome, braid_bin, run};
use crate::scratch::path_text;
use crate::{Scratch, poll_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long `soon` is.
const SOON: Duration = Duration::from_secs(30);

/// The folder of the transcripts.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts")
}

/// A section of a page.
#[derive(Debug)]
pub struct Section {
    /// The page and the heading.
    pub name: String,
    blocks: Vec<Block>,
}

/// The sections of a page that has this name.
pub fn sections(name: &str, page: &str) -> Vec<Section> {
    let mut sections: Vec<(usize, Section)> = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let section = |heading| Section { name: format!("{name}: {heading}"), blocks: Vec::new() };
        sections.extend(line.strip_prefix("## ").map(|heading| (number, section(heading))));
    }
    for block in blocks(page).unwrap_or_else(|error| panic!("{name}: {error}")) {
        let line = block.commands.first().map_or(0, |command| command.line);
        let section = sections.iter_mut().rfind(|(begin, _)| *begin < line);
        section.unwrap_or_else(|| panic!("{name}: a block is in no section, or is empty")).1.blocks.push(block);
    }
    sections.into_iter().map(|(_, section)| section).collect()
}

impl Section {
    /// Runs its commands in their order. It is skipped without the file that its heading demands.
    pub fn run(&self) {
        let needed = self.name.strip_suffix(')').and_then(|name| name.split_once(" (needs "));
        if needed.is_some_and(|(_, file)| !Path::new(file).exists()) {
            return eprintln!("skipped: {}", self.name);
        }
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.path("bin")).expect("it is new");
        std::os::unix::fs::symlink(braid_bin(), scratch.path("bin/braid")).expect("it is new");
        let _ending = Ending(&scratch);
        for command in self.blocks.iter().flat_map(|block| &block.commands) {
            let Expected { is_soon, .. } = Expected::of(command);
            let attempt = || {
                let outcome = self.outcome(command, &scratch);
                difference(command, &outcome).map_or(Ok(()), |difference| Err(format!("{difference}: {outcome}")))
            };
            match is_soon {
                true => poll_until(SOON, attempt),
                false => attempt().unwrap_or_else(|wrong| panic!("{wrong}")),
            }
        }
    }

    fn outcome(&self, command: &Command, scratch: &Scratch) -> Outcome {
        let functions = folder().join("functions.sh");
        let script = format!("cd {}\n. {}\n{}", scratch.text(""), path_text(&functions), command.text);
        let line = format!("{}, line {}: {}", self.name, command.line, command.text);
        Outcome { line, ..run("bash", &["-c", &script]) }
    }
}

/// Ends the processes that were started in the folder of a section, and its mounts, when it is dropped.
struct Ending<'a>(&'a Scratch);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = process.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
            let is_here = |folder: PathBuf| folder.starts_with(self.0.path(""));
            if let Some(pid) = pid.filter(|_| std::fs::read_link(process.path().join("cwd")).is_ok_and(is_here)) {
                // It may just have ended.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| place.starts_with(&self.0.text(""))) {
            run("umount", &["--lazy", place]);
        }
    }
}

/// What the comment after a command expects.
struct Expected<'a> {
    is_soon: bool,
    status: i32,
    code: Option<&'a str>,
}

impl Expected<'_> {
    fn of(command: &Command) -> Expected<'_> {
        let comment = command.comment.as_str();
        let rest = comment.strip_prefix("soon").map(|rest| rest.trim_start_matches(", "));
        let (is_soon, rest) = (rest.is_some(), rest.unwrap_or(comment));
        let said = rest.strip_prefix("status ").unwrap_or("0,");
        let end = said.find([':', ',']).unwrap_or_else(|| panic!("neither : nor , after a status: {comment}"));
        let status = said[..end].parse().unwrap_or_else(|_| panic!("no status: {comment}"));
        let code = said[end..].strip_prefix(": ");
        Expected { is_soon, status, code }
    }
}

/// The first difference from what is expected; none if there is no difference.
fn difference(command: &Command, outcome: &Outcome) -> Option<String> {
    let Expected { status, code, .. } = Expected::of(command);
    if outcome.status != Some(status) {
        return Some(format!("expected exit status {status}"));
    }
    let is_mark = |line: &&str| ["~ ", "! ", "."].iter().any(|mark| line.starts_with(mark));
    let (marked, others): (Vec<&str>, Vec<&str>) = command.said.iter().map(String::as_str).partition(is_mark);
    let said = if marked.iter().any(|line| line.starts_with('.')) { outcome.json() } else { Value::Null };
    let has = |words: &str| [&outcome.stdout, &outcome.stderr].iter().any(|output| output.contains(words));
    let is_so = |line: &str| match line.split_once(' ') {
        Some(("~", words)) => has(words),
        Some(("!", words)) => !has(words),
        Some((path, rest)) => holds(path, rest, &said),
        None => panic!("not PATH = VALUE: {line}"),
    };
    let missing = match code.map(|code| outcome.refused(status, code)) {
        Some(error) => others.iter().find(|words| !error.contains(**words)).map(|words| format!("expected {words}")),
        None if others.is_empty() || outcome.stdout.lines().eq(others.iter().copied()) => None,
        None => Some(format!("expected the output {others:?}")),
    };
    missing.or_else(|| marked.iter().find(|line| !is_so(line)).map(|line| format!("expected {line}")))
}

/// True if what a line expects of JSON output is so: at this path, and after it.
fn holds(path: &str, rest: &str, said: &Value) -> bool {
    let (operator, wished) = rest.split_once(' ').unwrap_or_else(|| panic!("not PATH = VALUE: {path} {rest}"));
    let found = said.pointer(&path.replace(['.', '['], "/").replace(']', "")).unwrap_or(&Value::Null);
    let value = || serde_json::from_str::<Value>(wished).expect("a value");
    match operator {
        "=" => *found == value(),
        "!=" => *found != value(),
        ">" => found.as_u64().is_some_and(|found| found > wished.parse().expect("a number")),
        "~" => found.as_str().map_or_else(|| found.to_string(), str::to_string).contains(wished),
        _ => panic!("not =, !=, > or ~: {path} {rest}"),
    }
}
