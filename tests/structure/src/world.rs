//! Finds uses of the world in a pure source: clocks, threads, files, sockets, and state without an owner. Sources are parsed, so that neither
//! a group of imports nor another name hides a use. The arguments of macros are read as text.

use crate::modules::is_for_tests;
use std::collections::BTreeMap;
use syn::visit::Visit;

/// Paths that neither pure sources nor their tests may name, and why.
const WORLD: [(&str, &str); 9] = [
    ("std::time::Instant", "time comes in as an argument"),
    ("std::time::SystemTime", "time comes in as an argument"),
    ("std::time::UNIX_EPOCH", "time comes in as an argument"),
    ("std::thread", "a machine does not know threads"),
    ("std::net", "messages are effects"),
    ("std::fs", "disk commands are effects"),
    ("std::os", "disk commands and messages are effects"),
    ("std::env", "settings come in as arguments"),
    ("std::process", "a machine does not know processes"),
];

/// Paths that pure sources may not name outside tests, and why.
const STATE: [(&str, &str); 11] = [
    ("std::cell", "state has one owner"),
    ("std::sync::atomic", "state has one owner"),
    ("std::sync::mpsc", "a machine does not know threads"),
    ("std::sync::Mutex", "state has one owner"),
    ("std::sync::RwLock", "state has one owner"),
    ("std::sync::Once", "state has one owner"),
    ("std::sync::OnceLock", "state has one owner"),
    ("std::sync::LazyLock", "state has one owner"),
    ("std::sync::Condvar", "a machine does not know threads"),
    ("std::sync::Barrier", "a machine does not know threads"),
    ("std::thread_local", "state has one owner"),
];

/// A test may check whether it is failing, to print how to reproduce the failure.
const PERMITTED_IN_TESTS: &str = "std::thread::panicking";

/// What a source names of the world, with the reason why it must not. `is_for_tests`: the whole file is a test.
pub fn found_in(text: &str, is_for_tests: bool) -> Vec<String> {
    let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut names = Names::default();
    names.visit_file(&parsed);
    let mut reader = Reader { names: names.0, is_for_tests, found: Vec::new() };
    reader.visit_file(&parsed);
    reader.found.sort();
    reader.found.dedup();
    reader.found
}

/// The names that a file's imports give to modules and other things, with their full paths.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        each_import("", &item.tree, &mut |import| {
            if let Import::Name { path, name } = import {
                self.0.insert(name, path);
            }
        });
    }
}

/// One import of a `use`.
pub(crate) enum Import {
    Name {
        path: String,
        name: String,
    },
    /// All that a module has.
    Glob {
        path: String,
    },
}

/// Each import of a tree, below this path.
pub(crate) fn each_import(before: &str, tree: &syn::UseTree, act: &mut impl FnMut(Import)) {
    let with = |word: &syn::Ident| match (before, word.to_string()) {
        ("", word) => word,
        (before, word) if word == "self" => before.to_string(),
        (before, word) => format!("{before}::{word}"),
    };
    match tree {
        syn::UseTree::Path(path) => each_import(&with(&path.ident), &path.tree, act),
        syn::UseTree::Name(name) => {
            let path = with(&name.ident);
            let name = path.rsplit("::").next().unwrap_or(&path).to_string();
            act(Import::Name { path, name });
        }
        syn::UseTree::Rename(rename) => {
            act(Import::Name { path: with(&rename.ident), name: rename.rename.to_string() });
        }
        syn::UseTree::Glob(_) => act(Import::Glob { path: before.to_string() }),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| each_import(before, tree, act)),
    }
}

struct Reader {
    names: BTreeMap<String, String>,
    is_for_tests: bool,
    found: Vec<String>,
}

impl Reader {
    /// The full path of a path in this file: `time::Instant` after `use std::time`. What `core` and `alloc` have, `std` has, too.
    fn full(&self, path: &str) -> String {
        let mut full = path.to_string();
        // A name can stand for another name; more than a few steps would be a circle.
        for _ in 0..4 {
            let (first, rest) = full.split_at(full.find("::").unwrap_or(full.len()));
            let Some(named) = self.names.get(first).filter(|named| *named != first) else { break };
            full = format!("{named}{rest}");
        }
        match full.split_once("::") {
            Some(("core" | "alloc", rest)) => format!("std::{rest}"),
            _ => full,
        }
    }

    fn rules(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let state = if self.is_for_tests { &[] } else { STATE.as_slice() };
        WORLD.iter().chain(state).copied()
    }

    fn names(&mut self, path: &str) {
        let full = self.full(path);
        if self.is_for_tests && full == PERMITTED_IN_TESTS {
            return;
        }
        let broken = self.rules().filter(|(banned, _)| is_in(&full, banned));
        let broken: Vec<String> = broken.map(|(banned, why)| format!("`{path}` is in `{banned}`: {why}")).collect();
        self.found.extend(broken);
    }

    /// All that a module has is imported, or the module is made public under another path.
    fn opens(&mut self, path: &str) {
        let full = self.full(path);
        let banned = self.rules().filter(|(banned, _)| is_in(banned, &full) || is_in(&full, banned));
        let broken: Vec<String> = banned.map(|(banned, why)| format!("`{path}::*` has `{banned}`: {why}")).collect();
        self.found.extend(broken);
    }
}

/// True if the path is this module, or in it.
fn is_in(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        each_import("", &item.tree, &mut |import| match import {
            Import::Name { path, .. } if is_public => self.opens(&path),
            Import::Name { path, .. } => self.names(&path),
            Import::Glob { path } => self.opens(&path),
        });
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if words.len() > 1 {
            self.names(&words.join("::"));
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.is_ident("thread_local") {
            self.names("std::thread_local");
        }
        // Strings are left out: each is one token, between quotes.
        let tokens = call.tokens.to_string().replace(" :: ", "::").replace(":: ", "::");
        let code: String = tokens.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        let is_in_a_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        for path in code.split(|letter| !is_in_a_path(letter)).filter(|word| word.contains("::")) {
            self.names(path.trim_matches(':'));
        }
        syn::visit::visit_macro(self, call);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        if !self.is_for_tests && matches!(item.mutability, syn::StaticMutability::Mut(_)) {
            self.found.push(format!("`static mut {}`: state has one owner", item.ident));
        }
        syn::visit::visit_item_static(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let outer = self.is_for_tests;
        self.is_for_tests |= is_for_tests(&item.attrs);
        syn::visit::visit_item_mod(self, item);
        self.is_for_tests = outer;
    }
}
