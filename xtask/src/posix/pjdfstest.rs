//! pjdfstest: each case is the rule for a system call in one situation.

use super::mounts::On;
use super::outcome::{Case, Outcome};
use super::tools::Tools;
use crate::prelude::*;

/// Everything that the suite can test on Linux. Remounting is left out: it uses mount(8), which would start a program by the type of the
/// file system. Users and groups are those of every Debian.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// The suite builds paths of PATH_MAX bytes from names of this length, with a separator. It fails if the path of its directory leaves a
/// multiple of it.
const NAME_BYTES: usize = 127;
/// The names of its temporary directories, one in the other.
const TEMPORARY: usize = 2 * "/.tmp123456".len();

/// How long the suite may take: it takes minutes.
const PATIENCE: Duration = Duration::from_secs(3600);

pub fn run(on: &On, tools: &Tools, cases: &[String], interrupt: &Interrupt) -> Result<Vec<Outcome>> {
    let configuration = on.local().join("pjdfstest.toml");
    std::fs::write(&configuration, CONFIGURATION)?;
    let log = on.log("pjdfstest");
    let mut command = on.command(tools.pjdfstest());
    command.arg("-c").arg(&configuration).arg("-p").arg(directory(on)?).arg("-s").arg(on.local()).args(cases);
    let status = Process::start(&mut command, &log)?.status(PATIENCE, interrupt)?;
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    ensure!(text.contains("Summary"), "pjdfstest ended with {status}, without a summary: {}", log.display());
    let outcomes = outcomes(&text, on);
    ensure!(!outcomes.is_empty(), "pjdfstest has no such case");
    Ok(outcomes)
}

fn directory(on: &On) -> Result<PathBuf> {
    let directory = on.directory("pjdfstest")?;
    let rest = |directory: &PathBuf| (4095 - directory.as_os_str().len() - TEMPORARY) % NAME_BYTES;
    if rest(&directory) > 1 { Ok(directory) } else { on.directory("pjdfstest-") }
}

/// Each case is a line with a name and a word. Lines about it follow.
fn outcomes(text: &str, on: &On) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for line in text.lines().map(without_colours) {
        let mut words = line.split_whitespace();
        let case = match (words.next(), words.next(), words.next()) {
            (Some(name), Some(word), None) if name.contains("::") => match word {
                "ok" => Some((name, Case::Ok)),
                "skipped" => Some((name, Case::Skipped)),
                "FAILED" => Some((name, Case::Failed)),
                _ => None,
            },
            _ => None,
        };
        match (case, outcomes.last_mut()) {
            (Some((name, case)), _) => {
                let (name, text) = (name.to_string(), String::new());
                outcomes.push(Outcome { tool: "pjdfstest", kind: on.kind, name, case, text });
            }
            (None, Some(last)) if last.text.is_empty() => last.text = line.trim().to_string(),
            _ => {}
        }
    }
    outcomes
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}
