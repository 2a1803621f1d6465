//! `cargo xtask instructions`: counts the instructions of the workloads in `benches/`, and compares them with the figures in the
//! repository.
//!
//! Each workload runs under callgrind in a process of its own. [`count`] eliminates most differences between machines. If some remain, the
//! comparison is less strict: see [`Strictness`].

use crate::compare::process::output_of;
use crate::prelude::*;
use crate::root;
use serde::{Deserialize, Serialize};
use std::fs;

const FIGURES: &str = "benches/instructions.json";
/// The profiles whose figures are kept: that of the tests, in which everything is built already, and that of published figures.
const PROFILES: [&str; 2] = ["dev", "dist"];
/// Rounds counted for each workload. A figure is their average.
const ROUNDS: u64 = 128;
/// How much a figure may differ, in per cent. The same program always has the same figure, but a change elsewhere may cause the compiler
/// to inline differently.
const TOLERANCE: u64 = 3;
/// How much slower a workload may be with another compiler, C library or valgrind, in per cent.
const TOLERANCE_ELSEWHERE: u64 = 25;
/// Time limit of one workload, in seconds; they take about one second.
const DEADLINE: &str = "300";
/// Restricts the C library to vector instructions that every x86-64 processor has. This also avoids repeating string instructions, which
/// callgrind counts once for each byte.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX2,-AVX_Fast_Unaligned_Load,-ERMS";

/// The content of the committed file: instructions per round of each workload, for each profile, and the tools that counted them.
#[derive(Serialize, Deserialize)]
struct Figures {
    made_with: Tools,
    instructions: BTreeMap<String, Counts>,
}

/// Instructions per round of each workload.
type Counts = BTreeMap<String, u64>;

/// The compiler, and everything else outside the repository that figures depend on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Tools {
    architecture: String,
    rustc: String,
    c_library: String,
    valgrind: String,
}

/// How strictly figures counted with different tools are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strictness {
    /// The tools are the same.
    Strict,
    /// Only a large slowdown counts.
    Loose,
    /// No comparison, because the architectures differ.
    Idle,
}

/// The comparison of a figure with the committed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Same,
    Slower,
    Faster,
    New,
}

/// Count the instructions of the workloads in benches/, and compare them with benches/instructions.json
///
/// Installs valgrind. The profile is that of the tests, or with --dist that of published figures.
#[derive(clap::Args)]
pub struct Arguments {
    /// Count in the profile of published figures
    #[arg(long, conflicts_with = "write")]
    dist: bool,
    /// Update the file for both profiles
    #[arg(long, conflicts_with = "names")]
    write: bool,
    /// Only workloads whose names begin so
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// The task; see its help.
pub fn instructions(Arguments { dist, write, names }: &Arguments) -> Result<()> {
    packages::install(&[("valgrind", "/usr/bin/valgrind")], "counting needs")?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if *write { write_figures() } else { compare(if *dist { "dist" } else { "dev" }, &names) }
}

/// Counts workloads, and compares them with the committed figures of this profile.
fn compare(profile: &str, names: &[&str]) -> Result<()> {
    let program = build(profile)?;
    let text = fs::read(root().join(FIGURES)).with_context(|| format!("{FIGURES} can't be read"))?;
    let committed: Figures = serde_json::from_slice(&text).with_context(|| format!("{FIGURES} can't be parsed"))?;
    let before = committed.instructions.get(profile).cloned().unwrap_or_default();
    let tools = Tools::here()?;
    let strictness = Strictness::between(&committed.made_with, &tools);

    println!("{:40} {:>12} {:>12} {:>9}", "instructions per round", "then", "now", "change");
    let now = count_all(&program, names)?;
    let mut verdicts = BTreeMap::new();
    for (name, figure) in &now {
        let then = before.get(name).copied();
        let verdict = judge(then, *figure, strictness);
        println!("{}", row(name, then, *figure, verdict));
        verdicts.insert(name.clone(), verdict);
    }
    if committed.made_with != tools {
        match strictness {
            Strictness::Idle => println!("\nThe committed figures are of another architecture: nothing is compared."),
            _ => println!(
                "\nThe committed figures were counted with other tools: only slowdowns over {TOLERANCE_ELSEWHERE} % count."
            ),
        }
        println!("  then {}\n  here {}", committed.made_with, tools);
    }
    let gone = before.keys().filter(|name| names.is_empty() && !now.contains_key(*name));
    conclude(profile, &verdicts, &gone.cloned().collect::<Vec<_>>())
}

/// Counts all workloads in all profiles, and writes the committed file.
fn write_figures() -> Result<()> {
    let counted = |profile: &str| Ok((profile.to_string(), count_all(&build(profile)?, &[])?));
    let instructions = PROFILES.into_iter().map(counted).collect::<Result<_>>()?;
    let text = serde_json::to_string_pretty(&Figures { made_with: Tools::here()?, instructions })? + "\n";
    fs::write(root().join(FIGURES), text).with_context(|| format!("{FIGURES} can't be written"))
}

/// Builds the program that runs workloads, and returns its path.
fn build(profile: &str) -> Result<PathBuf> {
    let mut build = cargo(&["build", "--profile", profile, "--locked", "--workspace", "--bin", "counted"]);
    // Incremental builds divide crates otherwise, and then inline otherwise.
    build.env_remove("RUSTFLAGS").env("CARGO_INCREMENTAL", "0");
    run(build)?;
    Ok(target_folder().join(folder_of(profile)).join("counted"))
}

/// The folder in `target/` with the programs of a profile.
fn folder_of(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}

/// Counts the workloads whose names begin with one of these, or all; two at once, since no other process changes a count.
fn count_all(program: &Path, names: &[&str]) -> Result<Counts> {
    let listed = output_of(&mut Command::new(program))?;
    let wanted = |name: &&str| names.is_empty() || names.iter().any(|begin| name.starts_with(begin));
    let workloads: Vec<&str> = listed.lines().filter(wanted).collect();
    ensure!(!workloads.is_empty(), "there is no such workload; the workloads are:\n{listed}");
    let count = |name: &&str| Ok((name.to_string(), count(program, name)?));
    let (left, right) = workloads.split_at(workloads.len() / 2);
    std::thread::scope(|scope| {
        let left = scope.spawn(|| left.iter().map(count).collect::<Result<Vec<_>>>());
        let right = right.iter().map(count).collect::<Result<Vec<_>>>()?;
        let left = left.join().expect("counting does not panic")?;
        Ok(left.into_iter().chain(right).collect())
    })
}

/// Counts the instructions of a round. The folder, the name of the program and the environment are always the same, because they are at the
/// start of the stack, and copies take longer if it is aligned differently. Valgrind presents every processor with AVX2 as the same one;
/// for other processors, see [`TUNABLES`].
fn count(program: &Path, name: &str) -> Result<u64> {
    let folder = program.parent().context("the program has no parent folder")?;
    let profile = folder.join(profile_of(name));
    let mut callgrind = Command::new("/usr/bin/timeout");
    callgrind
        .args([DEADLINE, "/usr/bin/valgrind", "--quiet", "--tool=callgrind", "--toggle-collect=*counted_rounds*"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .args(["./counted", name, &ROUNDS.to_string()])
        .current_dir(folder)
        .env_clear()
        .env("GLIBC_TUNABLES", TUNABLES);
    output_of(&mut callgrind).with_context(|| format!("{name} could not be counted"))?;
    let text = fs::read_to_string(&profile).with_context(|| format!("{} can't be read", profile.display()))?;
    let total = total(&text).with_context(|| format!("{} has no total of instructions", profile.display()))?;
    ensure!(total > 0, "callgrind did not find `counted_rounds` in {name}: has the function been inlined?");
    Ok((total + ROUNDS / 2) / ROUNDS)
}

/// The file name of a workload's profile, in the folder of the program.
fn profile_of(name: &str) -> String {
    format!("callgrind.{}", name.replace('/', "."))
}

/// The total of instructions in a profile: the first number after "totals:".
fn total(profile: &str) -> Option<u64> {
    let line = profile.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn judge(then: Option<u64>, now: u64, strictness: Strictness) -> Verdict {
    let Some(then) = then else { return Verdict::New };
    match strictness {
        Strictness::Strict if 100 * now > (100 + TOLERANCE) * then => Verdict::Slower,
        Strictness::Strict if 100 * now < (100 - TOLERANCE) * then => Verdict::Faster,
        Strictness::Loose if 100 * now > (100 + TOLERANCE_ELSEWHERE) * then => Verdict::Slower,
        _ => Verdict::Same,
    }
}

fn row(name: &str, then: Option<u64>, now: u64, verdict: Verdict) -> String {
    let (then_text, change) = match then {
        Some(then) => (then.to_string(), format!("{:+.1} %", 100.0 * (now as f64 / then as f64 - 1.0))),
        None => (String::new(), String::new()),
    };
    let remark = match verdict {
        Verdict::Same => "",
        Verdict::Slower => "  slower",
        Verdict::Faster => "  faster",
        Verdict::New => "  new",
    };
    format!("{name:40} {then_text:>12} {now:>12} {change:>9}{remark}")
}

/// An error that says what to do, unless all figures are unchanged.
fn conclude(profile: &str, verdicts: &BTreeMap<String, Verdict>, gone: &[String]) -> Result<()> {
    let of = |wanted| -> Vec<&str> {
        verdicts.iter().filter(|(_, verdict)| **verdict == wanted).map(|(name, _)| name.as_str()).collect()
    };
    let (slower, faster, new) = (of(Verdict::Slower), of(Verdict::Faster), of(Verdict::New));
    let renew = "`cargo xtask instructions --write`, and commit the file";
    if let Some(first) = slower.first() {
        bail!(
            "slower: {}.\n\
             callgrind_annotate target/{}/{} shows where the instructions go.\n\
             If they are the price of something, renew the figures with {renew}, and say in the commit what they buy.",
            slower.join(", "),
            folder_of(profile),
            profile_of(first),
        );
    }
    ensure!(faster.is_empty(), "faster: {}.\nTo keep the gain, renew the figures with {renew}.", faster.join(", "));
    if !new.is_empty() || !gone.is_empty() {
        bail!(
            "the workloads differ from those of {FIGURES}: new {new:?}, gone {gone:?}.\nRenew the figures with {renew}."
        );
    }
    Ok(())
}

impl Strictness {
    fn between(then: &Tools, here: &Tools) -> Strictness {
        match () {
            () if then == here => Strictness::Strict,
            () if then.architecture == here.architecture => Strictness::Loose,
            () => Strictness::Idle,
        }
    }
}

impl Tools {
    fn here() -> Result<Tools> {
        let line = |program: &str, arguments: &[&str]| -> Result<String> {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(root());
            Ok(output_of(&mut command)?.trim().to_string())
        };
        Ok(Tools {
            architecture: std::env::consts::ARCH.to_string(),
            rustc: line("rustc", &["--version"])?,
            c_library: line("getconf", &["GNU_LIBC_VERSION"])?,
            valgrind: line("/usr/bin/valgrind", &["--version"])?,
        })
    }
}

impl std::fmt::Display for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, {}, {}", self.architecture, self.rustc, self.c_library, self.valgrind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(c_library: &str) -> Tools {
        let text = |text: &str| text.to_string();
        Tools { architecture: text("x86_64"), rustc: text("r"), c_library: text(c_library), valgrind: text("v") }
    }

    #[test]
    fn a_difference_beyond_the_tolerance_is_reported() {
        let judge = |now| judge(Some(1000), now, Strictness::between(&tools("2.36"), &tools("2.36")));
        assert_eq!([judge(969), judge(970), judge(1000)], [Verdict::Faster, Verdict::Same, Verdict::Same]);
        assert_eq!([judge(1030), judge(1031)], [Verdict::Same, Verdict::Slower]);
    }

    #[test]
    fn with_other_tools_only_what_is_much_slower_counts() {
        let judge_with = |here, now| judge(Some(1000), now, Strictness::between(&tools("2.36"), &here));
        assert_eq!(judge_with(tools("2.41"), 1250), Verdict::Same);
        assert_eq!(judge_with(tools("2.41"), 1251), Verdict::Slower);
        assert_eq!(judge_with(tools("2.41"), 1), Verdict::Same);
        let other = Tools { architecture: "aarch64".to_string(), ..tools("2.36") };
        assert_eq!(judge_with(other, 9000), Verdict::Same);
        assert_eq!(judge(None, 1, Strictness::Idle), Verdict::New);
    }

    #[test]
    fn every_difference_ends_in_an_error_that_says_what_to_do() {
        let end = |verdict, gone: &[String]| {
            let verdicts = BTreeMap::from([("wire/same".to_string(), Verdict::Same), ("wire/it".to_string(), verdict)]);
            conclude("dev", &verdicts, gone).map_err(|error| error.to_string())
        };
        assert_eq!(end(Verdict::Same, &[]), Ok(()));
        let slower = end(Verdict::Slower, &[]).unwrap_err();
        assert!(slower.contains("slower: wire/it.") && slower.contains("debug/callgrind.wire.it"), "{slower}");
        for error in [end(Verdict::Faster, &[]), end(Verdict::New, &[]), end(Verdict::Same, &["wire/old".to_string()])]
        {
            assert!(error.unwrap_err().contains("cargo xtask instructions --write"));
        }
    }

    #[test]
    fn the_total_of_a_profile_is_found() {
        assert_eq!(total("version: 1\nevents: Ir\nfn=(1) main\n7 12\n\ntotals: 1234 5\n"), Some(1234));
        assert_eq!(total("totals: 0"), Some(0));
        assert_eq!(total("events: Ir"), None);
    }
}
