//! Each source file begins with its purpose, has a bounded length, and contains no unfinished code. The files that pages name and link
//! to exist, and so do the tests that the page on testing names.

use braid_structure::{crates, pages, root, sources, sources_in};
use std::path::PathBuf;

/// The maximal number of lines of a file.
const LINES_MAX: usize = 800;

#[test]
fn every_file_says_what_it_is_for_and_is_one_room() {
    let mut untidy = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        if !text.starts_with("//!") {
            untidy.push(format!("{} does not begin with a comment on its purpose", file.display()));
        }
        if text.lines().count() > LINES_MAX {
            untidy.push(format!("{} has over {LINES_MAX} lines: divide it", file.display()));
        }
        for word in ["todo!(", "unimplemented!(", "#[ignore", "dbg!("] {
            if text.contains(word) && !file.ends_with("tidiness.rs") {
                untidy.push(format!("{} has {word}", file.display()));
            }
        }
    }
    assert!(untidy.is_empty(), "{}", untidy.join("\n"));
}

/// A test is named after its subject: it begins with a noun, and neither with a pronoun nor with a clause.
#[test]
fn tests_are_named_after_their_subject() {
    const CLAUSES: [&str; 14] = [
        "what_",
        "who_",
        "whoever_",
        "nothing_",
        "nobody_",
        "everything_",
        "it_",
        "they_",
        "so_",
        "how_",
        "one_that_",
        "one_whose_",
        "one_with_",
        "one_without_",
    ];
    let mut riddles = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).expect("a source file can be read");
        let attributed = text.split("test]\n").skip(1).map(|test| test.split_once("fn ").map_or("", |(_, rest)| rest));
        // In a table of stories, a name is followed by a colon.
        let told = text.match_indices("():\n").filter_map(|(at, _)| text[..at].rsplit("fn ").next());
        for name in attributed.chain(told).map(|test| test.split('(').next().unwrap_or_default()) {
            if CLAUSES.iter().any(|clause| name.starts_with(clause)) {
                riddles.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(riddles.is_empty(), "{}", riddles.join("\n"));
}

/// A library without tests is not built a second time for them; with `test = false`, none would run.
#[test]
fn libraries_are_built_for_tests_if_they_have_some() {
    let mut wrong = Vec::new();
    for a_crate in crates() {
        let source = root().join(&a_crate.folder).join("src");
        if !source.join("lib.rs").exists() {
            continue;
        }
        let section = a_crate.manifest.split("[lib]").nth(1).unwrap_or_default();
        let runs = !section.lines().take_while(|line| !line.starts_with('[')).any(|line| line == "test = false");
        let has_tests = |file: &PathBuf| std::fs::read_to_string(file).expect("it can be read").contains("#[test]");
        if runs != sources_in(&source).iter().any(has_tests) {
            wrong.push(format!("{}: a library has `test = false` if, and only if, it has no tests", a_crate.folder));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A planted bug is a patch. What it takes away, with the lines around, stands in the file once.
#[test]
fn planted_bugs_fit_into_the_code() {
    let mut unfit = Vec::new();
    for entry in std::fs::read_dir(root().join("bugs")).expect("there are planted bugs") {
        let path = entry.expect("a folder can be read").path();
        let patch = std::fs::read_to_string(&path).expect("a patch can be read");
        for of_file in patch.split("\n+++ b/").skip(1).filter(|_| path.extension().is_some_and(|it| it == "patch")) {
            let (file, hunks) = of_file.split_at(of_file.find('\n').expect("hunks follow"));
            let code = std::fs::read_to_string(root().join(file)).unwrap_or_default();
            for hunk in hunks.split("\n@@ -").skip(1) {
                let lines = hunk.lines().take_while(|line| !line.starts_with("--- "));
                let before =
                    lines.skip(1).filter_map(|line| line.strip_prefix([' ', '-'])).map(|line| format!("{line}\n"));
                if code.matches(&before.collect::<String>()).count() != 1 {
                    unfit.push(format!(
                        "{}: {file} has not what it changes at {}",
                        path.display(),
                        &hunk[..20.min(hunk.len())]
                    ));
                }
            }
        }
    }
    assert!(unfit.is_empty(), "{}", unfit.join("\n"));
}

#[test]
fn pages_name_source_files_that_are_there() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        let is_in_a_path = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
        let words = text.split(|letter| !is_in_a_path(letter)).filter(|word| word.ends_with(".rs"));
        for path in words.filter(|word| word.contains('/') && !word.starts_with("//")) {
            let beside = page.parent().expect("a page lies in a folder").join(path);
            if !root().join(path).exists() && !beside.exists() {
                wrong.push(format!("{} names {path}, which does not exist", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A file name without a folder: in a row of a table, it refers to the folder named before it; elsewhere, to any folder.
#[test]
fn file_names_without_a_folder_are_those_of_files() {
    let all = sources();
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page can be read");
    let wrong = unknown_names(&page, |folder, name| match folder {
        Some(folder) => root().join(folder).join(name).is_file(),
        None => all.iter().any(|file| file.ends_with(name)),
    });
    assert!(wrong.is_empty(), "ARCHITECTURE.md names files that do not exist: {wrong:?}");
}

#[test]
fn a_file_name_that_is_not_there_is_found() {
    let is_known = |folder: Option<&str>, name: &str| match folder {
        Some(folder) => folder == "core/a/src" && ["one.rs", "two.rs"].contains(&name),
        None => name == "three.rs",
    };
    let page = "| 1 | `core/a/src/one.rs`, `two.rs` | `one.rs` |\nThen `three.rs`.\n";
    assert_eq!(unknown_names(page, is_known), Vec::<String>::new());
    let page = "| 1 | `core/a/src/one.rs`, `three.rs` | text |\n| 2 | `core/b`, `two.rs` |\nThen `one.rs`.\n";
    assert_eq!(unknown_names(page, is_known), ["three.rs", "two.rs", "one.rs"]);
}

/// The file names without a folder on a page that are not known. In a row of a table, the path before a name gives its folder.
fn unknown_names(page: &str, is_known: impl Fn(Option<&str>, &str) -> bool) -> Vec<String> {
    let mut unknown = Vec::new();
    for line in page.lines() {
        let mut before = None;
        for word in line.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs")) {
            match word.rsplit_once('/') {
                Some((folder, _)) => before = Some(folder).filter(|_| line.starts_with('|')),
                None if is_known(before, word) => {}
                None => unknown.push(word.to_string()),
            }
        }
    }
    unknown
}

/// In the tables of the page on testing, the names after a file are those of its test functions.
#[test]
fn tests_that_the_page_on_testing_names_are_there() {
    let all = sources();
    let page = std::fs::read_to_string(root().join("docs/testing.md")).expect("the page can be read");
    let unknown = unknown_tests(&page, |file, test| {
        let text = |path: &PathBuf| std::fs::read_to_string(path).expect("a source file can be read");
        all.iter().filter(|path| path.ends_with(file)).any(|path| text(path).contains(&format!("fn {test}(")))
    });
    assert!(unknown.is_empty(), "docs/testing.md names tests that do not exist: {unknown:?}");
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let is_known = |file: &str, test: &str| (file, test) == ("a/one.rs", "it_works");
    let page = "| 1 | `host` | `a/one.rs`: `it_works` |\nThen `b_fails`.\n| 2 | `no_file` | `a/one.rs`, `b_fails` |\n";
    assert_eq!(unknown_tests(page, is_known), ["a/one.rs: b_fails"]);
    assert_eq!(unknown_tests("| `one.rs`: `it_works` |\n", is_known), ["one.rs: it_works"]);
}

/// The tests in tables of a page that are not known. The name of a test contains an underscore, and follows that of its file.
fn unknown_tests(page: &str, is_known: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let is_test = |word: &str| {
        word.contains('_') && word.chars().all(|letter| letter.is_ascii_lowercase() || "_0123456789".contains(letter))
    };
    let mut unknown = Vec::new();
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let mut file = None;
        for word in row.split('`').skip(1).step_by(2) {
            match file {
                _ if word.ends_with(".rs") => file = Some(word),
                Some(file) if is_test(word) && !is_known(file, word) => unknown.push(format!("{file}: {word}")),
                _ => {}
            }
        }
    }
    unknown
}

#[test]
fn pages_link_to_what_is_there() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if path.is_empty() { page.clone() } else { page.with_file_name(path) };
            let has_anchor = |text: String| anchor.is_empty() || headings(&text).any(|heading| heading == anchor);
            let is_there = linked.is_dir() || std::fs::read(&linked).is_ok_and(|_| anchor.is_empty());
            if !is_there && !std::fs::read_to_string(&linked).is_ok_and(has_anchor) {
                wrong.push(format!("{} links to {target}, which does not exist", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The anchors of a page's headings: lower case, with hyphens for spaces, and without other signs.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let heading = |line: &str| -> String {
        let kept =
            line.trim_start_matches('#').trim().chars().filter(|sign| sign.is_alphanumeric() || "-_ ".contains(*sign));
        kept.map(|sign| if sign == ' ' { '-' } else { sign.to_ascii_lowercase() }).collect()
    };
    page.lines().filter(|line| line.starts_with('#')).map(heading)
}
