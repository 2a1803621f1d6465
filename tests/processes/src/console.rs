//! Commands in the pages of the repository: parses the blocks marked `console`, and runs them.
//!
//! A line of such a block is `$ COMMAND   # comment`. Some comments direct the test: `status 1: …` is the expected exit status, `leave it
//! running` starts a server, `until Ctrl-C` interrupts the command after a second. A block that begins with
//! ```` ```console norun: REASON ```` is not run. The commands of a page are run in their order, in one folder with one array.

use crate::program::{Outcome, braid, braid_bin, run};
use crate::scratch::{Scratch, path_text};
use std::fmt::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// A block of a page.
#[derive(Debug)]
pub struct Block {
    /// The language in its mark: `console`; `transcript` (`crate::transcript`); or `sh` for a part of a script.
    pub language: String,
    /// Why it is not run; none if it is.
    pub norun: Option<String>,
    /// Its commands.
    pub commands: Vec<Command>,
}

/// A command of a block.
#[derive(Debug)]
pub struct Command {
    /// The line in the page.
    pub line: usize,
    pub text: String,
    /// The comment after it.
    pub comment: String,
    /// In a transcript: the lines below it.
    pub said: Vec<String>,
}

impl Command {
    /// The expected exit status.
    fn status(&self) -> i32 {
        let said = self.comment.strip_prefix("status ").and_then(|rest| rest.split_once([':', ',']));
        said.and_then(|(status, _)| status.parse().ok()).unwrap_or(0)
    }

    fn is_left_running(&self) -> bool {
        self.comment.starts_with("leave it running")
    }

    fn is_interrupted(&self) -> bool {
        self.comment.contains("until Ctrl-C")
    }
}

/// The folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

/// The pages for readers, by their paths in the repository.
pub fn pages() -> Vec<String> {
    let folders = ["docs", "bugs", "benches", "fuzz", "peers"].map(|name| root().join(name));
    let entries = folders.iter().flat_map(WalkDir::new).map(|entry| entry.expect("a folder can be listed").into_path());
    let found = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let name_of = |path: PathBuf| path_text(path.strip_prefix(root()).expect("it lies there")).to_string();
    let at_the_root = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(str::to_string);
    let mut pages: Vec<String> = found.map(name_of).chain(at_the_root).collect();
    pages.sort();
    pages
}

/// The blocks of a page with commands for a shell. An error names the line that can't be parsed.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut block: Option<Block> = None;
    for (number, line) in (1..).zip(page.lines()) {
        match (line.strip_prefix("```"), &mut block) {
            (Some(mark), None) => {
                let (language, rest) = mark.split_once(' ').unwrap_or((mark, ""));
                let norun = rest.strip_prefix("norun").map(|reason| reason.trim_start_matches(':').trim().to_string());
                if norun.as_ref().is_some_and(String::is_empty) || norun.is_none() && !rest.is_empty() {
                    return Err(format!("line {number}: a block is marked `norun: REASON` or nothing"));
                }
                block = Some(Block { language: language.to_string(), norun, commands: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(block.take()),
            (None, Some(block)) => {
                let language = block.language.as_str();
                let text = match language {
                    "transcript" if !line.starts_with("$ ") && !block.commands.is_empty() => {
                        block.commands.last_mut().expect("there is one").said.push(line.to_string());
                        None
                    }
                    "console" | "transcript" => {
                        let text = line.strip_prefix("$ ");
                        let wrong = || format!("line {number} of a {language} block does not begin with `$ `");
                        Some(text.ok_or_else(wrong)?)
                    }
                    "sh" => Some(line).filter(|line| !line.is_empty()),
                    _ if line.starts_with("$ ") => return Err(format!("line {number}: mark this block `console`")),
                    _ => None,
                };
                block.commands.extend(text.map(|text| {
                    let (text, comment) = split_comment(text);
                    Command { line: number, text, comment, said: Vec::new() }
                }));
            }
            (None, None) => {}
        }
    }
    blocks.retain(|block| ["console", "transcript", "sh"].contains(&block.language.as_str()));
    Ok(blocks)
}

fn split_comment(line: &str) -> (String, String) {
    let (mut quote, mut before) = (None, ' ');
    for (at, letter) in line.char_indices() {
        match quote {
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if "'\"".contains(letter) => quote = Some(letter),
            None if letter == '#' && before == ' ' => {
                return (line[..at].trim().to_string(), line[at + 1..].trim().to_string());
            }
            None => {}
        }
        before = letter;
    }
    (line.trim().to_string(), String::new())
}

/// The simple commands of a command line, in words, including those of pipes, lists and `$(…)`.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let (mut word, mut has_word, mut quote) = (String::new(), false, None);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let ends_command = quote != Some('\'') && (letter == '$' && letters.peek() == Some(&'('))
            || quote.is_none() && "|&;()".contains(letter);
        if ends_command || quote.is_none() && letter.is_whitespace() {
            if has_word {
                commands.last_mut().expect("there is one").push(std::mem::take(&mut word));
            }
            has_word = false;
            if ends_command {
                commands.push(Vec::new());
            }
            continue;
        }
        has_word = true;
        match quote {
            Some(open) if letter == open => quote = None,
            None if "'\"".contains(letter) => quote = Some(letter),
            _ => word.push(letter),
        }
    }
    if has_word {
        commands.last_mut().expect("there is one").push(word);
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// Checks a command with the programs' own parsers, without executing it. Returns what is wrong. `braid` parses the words up to `--help`,
/// which is appended: it refuses unknown options and values.
pub fn mistake(line: &str) -> Option<String> {
    let chores = std::fs::read_to_string(root().join("xtask/src/main.rs")).expect("a source file can be read");
    for command in simple_commands(line) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let of_braid = match words.as_slice() {
            ["braid", rest @ ..] | ["until" | "while" | "if", "braid", rest @ ..] => rest,
            ["cargo", "run", "--release", "--", rest @ ..] => rest,
            ["cargo", "xtask", chore, ..] => {
                // An arm of the match on the tasks: `Task::Test => …`.
                let name =
                    |line: &str| line.trim().strip_prefix("Task::")?.split([' ', '(']).next().map(str::to_lowercase);
                if !chores.lines().any(|line| name(line).as_deref() == Some(*chore)) {
                    return Some(format!("there is no `cargo xtask {chore}`"));
                }
                continue;
            }
            _ => continue,
        };
        let typed = of_braid.iter().take_while(|word| **word != "--" && !word.contains('>'));
        let mut arguments: Vec<String> = typed.map(|word| word.replace("$BRAID_TOKEN", "1")).collect();
        arguments.push("--help".to_string());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Outcome { status, stderr, .. } = braid(&arguments);
        if status != Some(0) {
            return Some(format!("braid {}\n{stderr}", of_braid.join(" ")));
        }
    }
    None
}

/// Replacements that make commands quick, by shorter durations and smaller sizes, or answer what they would ask at a terminal.
const SHORTER: [(&str, &str); 5] = [
    ("braid up --", "braid up --yes --"),
    ("--size=128m", "--size=8m"),
    ("--size=64m", "--size=8m"),
    ("--runtime=10", "--runtime=1"),
    ("--runtime=20", "--runtime=5"),
];

/// Files that the pages assume.
const FILES: &str = "\
head -c 1000000 /dev/urandom > disk.img
for name in backup.sh serve.sh; do printf '#!/bin/sh\\n' > $name && chmod +x $name; done
echo text > report
";

/// Runs the blocks of a page in their order, in a temporary folder, with an array.
pub fn run_page(blocks: &[Block]) -> Outcome {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("page.sh"), script(blocks, &scratch)).expect("a script can be written");
    run("bash", &[&scratch.text("page.sh")])
}

fn script(blocks: &[Block], scratch: &Scratch) -> String {
    let commands: Vec<&Command> = blocks
        .iter()
        .filter(|block| block.language == "console" && block.norun.is_none())
        .flat_map(|block| &block.commands)
        .collect();
    let ports = [free_port(), free_port()];
    let mut script = format!("cd {}\n", path_text(scratch.path("page.sh").parent().expect("it lies in a folder")));
    let mut add = |text: &str| writeln!(script, "{text}").expect("a string takes everything");
    add("exec 2>&1 < /dev/null\nservers=()\ntrap 'kill \"${servers[@]}\" 2> /dev/null; wait' EXIT");
    add("mkdir bin");
    add(&format!("ln -s {} bin/braid\nPATH=$PWD/bin:$PATH", path_text(&braid_bin())));
    add(FILES);
    add("failed() { echo \"FAILED: $*\"; cat ready.* 2> /dev/null; exit 1; }");
    let (text, comment) = ("braid up".to_string(), "leave it running".to_string());
    let up = Command { line: 0, text, comment, said: Vec::new() };
    let brings_up = commands.iter().any(|command| command.text == up.text);
    let needs_array = commands.iter().any(|command| command.text.contains("braid") || command.text.contains("nbd://"));
    let first = Some(&up).filter(|_| needs_array && !brings_up);
    for command in first.into_iter().chain(commands) {
        let mut text = command.text.replace("10809", &ports[0].to_string()).replace("10810", &ports[1].to_string());
        SHORTER.iter().for_each(|(long, short)| text = text.replace(long, short));
        if text == up.text {
            text = format!("braid up --port {} --size 1GiB --lease 1s", ports[0]);
        }
        let Command { line, comment, .. } = command;
        add(&format!("echo {}", quoted(&format!("line {line}: {text}"))));
        if command.is_left_running() {
            add(&format!("{text} > ready.{line} &\nservers+=($!)"));
            add(&format!("until grep -q nbd:// ready.{line}; do"));
            add(&format!(
                "    kill -0 $! 2> /dev/null || failed 'line {line}: the server ended'\n    sleep 0.02\ndone"
            ));
        } else if command.is_interrupted() {
            add(&format!(
                "timeout --preserve-status --signal=INT 1 {text} || failed 'line {line}: ended with status' $?"
            ));
        } else {
            let expected = command.status();
            add(&format!("{text}\nstatus=$?"));
            add(&format!(
                "[ $status -eq {expected} ] || failed \"line {line}: ended with status $status, not {expected}\" {}",
                quoted(comment)
            ));
        }
    }
    script
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}
