//! The outcomes that are expected although they are no successes: `exceptions.txt`.

use super::outcome::{Case, Kind, Outcome};
use crate::prelude::*;

const LIST: &str = include_str!("exceptions.txt");

#[derive(Debug)]
pub struct Exceptions(Vec<Exception>);

#[derive(Debug)]
struct Exception {
    tool: String,
    /// None: on any number of mounts.
    kind: Option<Kind>,
    /// None: it may succeed or fail.
    case: Option<Case>,
    /// The name of a case; `*` stands for any text.
    pattern: String,
}

impl Exceptions {
    pub fn listed() -> Result<Exceptions> {
        Exceptions::parse(LIST).context("xtask/src/posix/exceptions.txt")
    }

    fn parse(list: &str) -> Result<Exceptions> {
        let lines = list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        lines.map(Exception::parse).collect::<Result<_>>().map(Exceptions)
    }

    /// What is not as listed. `has_run`: whether a tool has run on so many mounts; `all`: with all of its cases.
    pub fn compare(&self, outcomes: &[Outcome], has_run: impl Fn(&str, Kind) -> bool, all: bool) -> Vec<String> {
        let mut unexpected: Vec<String> = outcomes.iter().filter_map(|outcome| self.contradiction(outcome)).collect();
        for exception in self.0.iter().filter(|_| all) {
            let kinds = [Kind::One, Kind::Two].into_iter().filter(|kind| exception.kind.is_none_or(|of| of == *kind));
            for kind in kinds.filter(|kind| has_run(&exception.tool, *kind)) {
                if !outcomes.iter().any(|outcome| outcome.kind == kind && exception.is_of(outcome)) {
                    let Exception { tool, pattern, .. } = exception;
                    unexpected.push(format!("{tool} on {kind}: no case `{pattern}`, which is listed"));
                }
            }
        }
        unexpected
    }

    fn contradiction(&self, outcome: &Outcome) -> Option<String> {
        let Outcome { tool, kind, name, case, text } = outcome;
        let mut listed = self.0.iter().filter(|exception| exception.is_of(outcome));
        let expected = listed.next().map_or(Some(Case::Ok), |exception| exception.case).unwrap_or(*case);
        (*case != expected).then(|| format!("{tool} on {kind}: {name}: {case}, expected: {expected}\n    {text}"))
    }
}

impl Exception {
    /// Tool, number of mounts, outcome, pattern, reason.
    fn parse(line: &str) -> Result<Exception> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [tool, kind, case, pattern, _, ..] = words[..] else {
            bail!("a line has a tool, a number of mounts, an outcome, a case and a reason: {line}");
        };
        let kind = match (kind, Kind::from_str(kind, false)) {
            ("any", _) => None,
            (_, Ok(kind)) => Some(kind),
            _ => bail!("on `one`, `two` or `any` mounts: {line}"),
        };
        let case = match (case, Case::from_str(case, false)) {
            ("varies", _) => None,
            (_, Ok(case)) if case != Case::Ok => Some(case),
            _ => bail!("`skipped`, `failed` or `varies`: {line}"),
        };
        Ok(Exception { tool: tool.to_string(), kind, case, pattern: pattern.to_string() })
    }

    fn is_of(&self, outcome: &Outcome) -> bool {
        self.tool == outcome.tool
            && self.kind.is_none_or(|kind| kind == outcome.kind)
            && matches(&self.pattern, &outcome.name)
    }
}

/// True if the name is the pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name
            .strip_prefix(start)
            .is_some_and(|name| (0..=name.len()).any(|at| name.is_char_boundary(at) && matches(rest, &name[at..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, case: Case, kind: Kind) -> Outcome {
        Outcome { tool: "fsx", kind, name: name.to_string(), case, text: "text".to_string() }
    }

    #[test]
    fn the_list_is_well_formed() {
        Exceptions::listed().expect("it is");
    }

    #[test]
    fn results_that_differ_from_the_list_are_reported() {
        let list = "# comment\n\nfsx two skipped a::*::x  because\nfsx any failed b  of this reason\nfsx any varies v  by chance\n";
        let exceptions = Exceptions::parse(list).expect("it is well-formed");
        let compare = |outcomes: &[Outcome]| exceptions.compare(outcomes, |_, kind| kind == Kind::Two, true).len();
        let varies = outcome("v", Case::Failed, Kind::Two);
        let expected = [outcome("a::1::x", Case::Skipped, Kind::Two), outcome("b", Case::Failed, Kind::Two), varies];
        assert_eq!(compare(&expected), 0);
        assert_eq!(compare(&[&expected[..], &[outcome("a::2::x", Case::Ok, Kind::Two)]].concat()), 1, "succeeds");
        assert_eq!(compare(&[&expected[..], &[outcome("a::2::x", Case::Failed, Kind::Two)]].concat()), 1, "fails");
        assert_eq!(compare(&[&expected[..], &[outcome("a::1::x", Case::Skipped, Kind::One)]].concat()), 1);
        assert_eq!(compare(&[&expected[..], &[outcome("c", Case::Failed, Kind::Two)]].concat()), 1, "is not listed");
        assert_eq!(compare(&expected[1..]), 1, "is listed, and there is no such case");
        assert_eq!(exceptions.compare(&expected[1..], |_, _| true, false).len(), 0, "not all cases have run");
    }

    #[test]
    fn wrong_lines_are_refused() {
        for line in ["fsx two skipped a", "fsx three skipped a b", "fsx two ok a b"] {
            assert!(Exceptions::parse(line).is_err(), "{line}");
        }
    }
}
