//! The modules of a crate: the modules that each imports, and the structs and methods that it declares. Unit tests are ignored.

use crate::{root, sources_in};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::Visit;

/// A module with its own file.
#[derive(Debug, Default)]
pub struct Module {
    /// Modules of the same crate that it imports.
    pub imports: BTreeSet<String>,
    /// The number of fields of each struct that it declares.
    pub fields: BTreeMap<String, usize>,
    /// The number of methods that it defines for each type of its crate, without those of traits.
    pub methods: BTreeMap<String, usize>,
}

/// The modules of the crate in a folder, by path, such as `link` or `client::turns`; the path of the root is empty.
pub fn modules_of(folder: &str) -> BTreeMap<String, Module> {
    let source = root().join(folder).join("src");
    let files: Vec<_> = sources_in(&source).into_iter().filter(|file| !file.starts_with(source.join("bin"))).collect();
    let paths: BTreeSet<String> = files.iter().map(|file| path_of(&source, file)).collect();
    let mut modules = BTreeMap::new();
    for file in &files {
        let path = path_of(&source, file);
        let text = std::fs::read_to_string(file).expect("a source file can be read");
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut reader = Reader { path: path.clone(), paths: &paths, module: Module::default() };
        reader.visit_file(&parsed);
        modules.insert(path, reader.module);
    }
    modules
}

/// The groups of modules that import each other in a circle. The root, which only lists what is public, is ignored.
pub fn circles(modules: &BTreeMap<String, Module>) -> Vec<BTreeSet<String>> {
    let reaches: BTreeMap<&str, BTreeSet<&str>> =
        modules.keys().map(|from| (from.as_str(), reached(modules, from))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (from, to) in &reaches {
        let beside = to.iter().filter(|other| reaches[*other].contains(from));
        let circle: BTreeSet<String> = beside.map(ToString::to_string).collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reached<'a>(modules: &'a BTreeMap<String, Module>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = modules[from].imports.iter().map(String::as_str).collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(modules[module].imports.iter().map(String::as_str));
        }
    }
    reached
}

/// The module path of a file: `src/client/turns.rs` is the module `client::turns`.
fn path_of(source: &Path, file: &Path) -> String {
    let inner = file.strip_prefix(source).expect("the file is in the folder").with_extension("");
    let parts: Vec<_> = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match parts.as_slice() {
        [only] if only == "lib" || only == "main" => String::new(),
        [folders @ .., last] if last == "mod" => folders.join("::"),
        parts => parts.join("::"),
    }
}

struct Reader<'a> {
    path: String,
    paths: &'a BTreeSet<String>,
    module: Module,
}

impl Reader<'_> {
    /// Records an import of the path that begins with these words.
    fn names(&mut self, words: &[String]) {
        let own: Vec<String> = self.path.split("::").filter(|word| !word.is_empty()).map(str::to_string).collect();
        let full: Vec<String> = match words {
            [first, rest @ ..] if first == "crate" => rest.to_vec(),
            [first, rest @ ..] if first == "self" => [own.as_slice(), rest].concat(),
            [first, ..] if first == "super" => {
                let up = words.iter().take_while(|word| *word == "super").count();
                [&own[..own.len().saturating_sub(up)], &words[up..]].concat()
            }
            words => [own.as_slice(), words].concat(),
        };
        // The longest prefix of the path that is a module.
        let found =
            (1..=full.len()).rev().map(|length| full[..length].join("::")).find(|path| self.paths.contains(path));
        // References of a module to itself, or to its parent's declarations, are not imports.
        if let Some(found) = found.filter(|found| *found != self.path) {
            self.module.imports.insert(found);
        }
    }

    fn names_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |word: &syn::Ident| [before, &[word.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.names_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.names(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.names(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.names(before),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.names_tree(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    /// Re-exports are ignored.
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.names_tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if words.len() > 1 {
            self.names(&words);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.module.fields.insert(item.ident.to_string(), item.fields.len());
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        if let (None, syn::Type::Path(path)) = (&item.trait_, &*item.self_ty)
            && let Some(name) = path.path.segments.last()
        {
            let methods = item.items.iter().filter(|item| matches!(item, syn::ImplItem::Fn(_))).count();
            *self.module.methods.entry(name.ident.to_string()).or_default() += methods;
        }
        syn::visit::visit_item_impl(self, item);
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(is_test)
}
