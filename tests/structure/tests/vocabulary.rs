//! One noun has one meaning: names and phrases that `vocabulary.toml` lists as replaced are not used again.

use braid_structure::words::{Part, parts, says, words};
use braid_structure::{pages, root, sources};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Deserialize)]
struct Vocabulary {
    name: Vec<Entry>,
    phrase: Vec<Entry>,
}

/// A name or phrase, and the paths where it is banned.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    was: String,
    now: String,
    #[serde(default, rename = "in")]
    within: Vec<String>,
    #[serde(default)]
    not: Vec<String>,
}

impl Entry {
    fn applies(&self, file: &str) -> bool {
        let begins = |prefix: &String| file.starts_with(prefix.as_str());
        (self.within.is_empty() || self.within.iter().any(begins)) && !self.not.iter().any(begins)
    }
}

fn vocabulary() -> Vocabulary {
    let file = root().join("tests/structure/vocabulary.toml");
    toml::from_str(&fs::read_to_string(file).expect("the file can be read"))
        .expect("it is a table of names and phrases")
}

/// The banned names and phrases that a file contains.
fn found(file: &str, text: &str, vocabulary: &Vocabulary) -> Vec<String> {
    let is_rust = file.ends_with(".rs");
    let phrases: Vec<&Entry> = vocabulary.phrase.iter().filter(|entry| entry.applies(file)).collect();
    let mut names: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in vocabulary.name.iter().filter(|entry| entry.applies(file)) {
        names.entry(&entry.was).or_default().push(entry);
    }
    let mut found = Vec::new();
    let prose = |text: &str| {
        let said = phrases.iter().filter(|entry| says(text, &entry.was));
        said.map(|entry| format!("{file}: '{}' is called '{}'", entry.was, entry.now)).collect::<Vec<_>>()
    };
    for part in if is_rust { parts(text).collect() } else { vec![Part::Prose(text)] } {
        match part {
            Part::Prose(text) => found.extend(prose(text)),
            Part::Code(text) => {
                let used = words(text).filter_map(|word| names.get(word)).flatten();
                found.extend(used.map(|entry| format!("{file}: {} is called {}", entry.was, entry.now)));
            }
        }
    }
    found
}

#[test]
fn terms_with_a_standard_name_are_called_by_it() {
    let vocabulary = vocabulary();
    let root = root();
    let read = |path: &Path| {
        let file = path.strip_prefix(&root).expect("it lies in the workspace").to_string_lossy().into_owned();
        found(&file, &fs::read_to_string(path).expect("it can be read"), &vocabulary)
    };
    let (history, own) = (root.join("CHANGELOG.md"), root.join("tests/structure"));
    let mut files = sources();
    files.extend(pages().into_iter().filter(|page| *page != history));
    files.retain(|file| !file.starts_with(&own));
    let mut found: Vec<String> = files.iter().flat_map(|path| read(path)).collect();
    found.dedup();
    assert!(found.is_empty(), "{} old names:\n{}", found.len(), found.join("\n"));
}

#[test]
fn an_old_name_is_found() {
    let vocabulary = vocabulary();
    let old = "//! The helper sees to it.\nstruct Standing;\nconst NAME: &str = \"its helper\";\n";
    assert_eq!(found("core/host/src/new.rs", old, &vocabulary).len(), 3);
    let is_named_in_code = "// A Standing in prose is an English word.\n";
    assert_eq!(found("core/host/src/new.rs", is_named_in_code, &vocabulary), Vec::<String>::new());
}

#[test]
fn every_entry_says_what_to_write_instead() {
    let Vocabulary { name, phrase } = vocabulary();
    for entry in name.iter().chain(&phrase) {
        assert!(!entry.was.is_empty() && !entry.now.is_empty() && entry.was != entry.now, "{}", entry.was);
    }
}
