//! The modules of a crate: the modules that each imports, the structs and methods that it declares, and the methods that it calls on
//! `self`. Unit tests are ignored.

use crate::world::{Import, each_import};
use crate::{reached, root, sources_in};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::Visit;

/// The modules that each module uses.
pub type Edges = BTreeMap<String, BTreeSet<String>>;

/// A module with its own file.
#[derive(Debug, Default)]
pub struct Module {
    /// Modules of the same crate that it imports.
    pub imports: BTreeSet<String>,
    /// The number of fields of each struct that it declares.
    pub fields: BTreeMap<String, usize>,
    /// The number of methods that it defines for each type of its crate, without those of traits.
    pub methods: BTreeMap<String, usize>,
    /// The names of the methods that it defines for each type of its crate, with those of traits.
    defines: BTreeMap<String, BTreeSet<String>>,
    /// The types and names of methods that it calls on `self` or by `Self::`.
    calls: BTreeSet<(String, String)>,
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
        modules.insert(path.clone(), module_of(&path, &text, &paths));
    }
    modules
}

/// The module with this path and source. `paths`: all modules of its crate.
pub fn module_of(path: &str, text: &str, paths: &BTreeSet<String>) -> Module {
    let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut reader = Reader { path: path.to_string(), paths, implements: None, module: Module::default() };
    reader.visit_file(&parsed);
    reader.module
}

/// The imports of each module.
pub fn imports(modules: &BTreeMap<String, Module>) -> Edges {
    modules.iter().map(|(path, module)| (path.clone(), module.imports.clone())).collect()
}

/// The imports of each module, and the modules whose methods it calls on `self`: a type may be implemented in several modules. Types are
/// told apart by name only; a method that the calling module defines itself is taken for the one called.
pub fn imports_and_calls(modules: &BTreeMap<String, Module>) -> Edges {
    let mut edges = imports(modules);
    let defines = |module: &Module, of: &str, method: &str| {
        module.defines.get(of).is_some_and(|methods| methods.contains(method))
    };
    for (path, module) in modules {
        for (of, method) in module.calls.iter().filter(|(of, method)| !defines(module, of, method)) {
            let definers = modules.iter().filter(|(_, module)| defines(module, of, method)).map(|(path, _)| path);
            let definers = definers.filter(|path| !path.is_empty()).cloned();
            edges.get_mut(path).expect("every module has edges").extend(definers);
        }
    }
    edges
}

/// The groups of modules that use each other in a circle. The root, which only lists what is public, is ignored.
pub fn circles(edges: &Edges) -> Vec<BTreeSet<String>> {
    let of = |from: &String| reached(from, |module| edges[module].iter().cloned().collect());
    let reaches: Edges = edges.keys().map(|from| (from.clone(), of(from))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (from, to) in &reaches {
        let circle: BTreeSet<String> = to.iter().filter(|other| reaches[*other].contains(from)).cloned().collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
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
    /// The type whose `impl` block is being read.
    implements: Option<String>,
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

    /// Records a call of a method of the type whose `impl` block is being read.
    fn calls(&mut self, method: String) {
        if let Some(of) = &self.implements {
            self.module.calls.insert((of.clone(), method));
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    /// Re-exports are ignored.
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) {
            each_import("", &item.tree, &mut |import| {
                let (Import::Name { path, .. } | Import::Glob { path }) = import;
                let words: Vec<String> = path.split("::").map(str::to_string).collect();
                self.names(&words);
            });
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if words.len() > 1 {
            self.names(&words);
        }
        if let [first, method] = words.as_slice()
            && (first == "Self" || self.implements.as_ref() == Some(first))
        {
            self.calls(method.clone());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if is_self(&call.receiver) {
            self.calls(call.method.to_string());
        }
        syn::visit::visit_expr_method_call(self, call);
    }

    /// The arguments of macros are not parsed: calls are found in their text.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        for method in calls_on_self(&call.tokens.to_string()) {
            self.calls(method);
        }
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
        let syn::Type::Path(path) = &*item.self_ty else { return syn::visit::visit_item_impl(self, item) };
        let name = path.path.segments.last().expect("a path has a last word").ident.to_string();
        let methods = item.items.iter().filter_map(|item| match item {
            syn::ImplItem::Fn(method) => Some(method.sig.ident.to_string()),
            _ => None,
        });
        let methods: Vec<String> = methods.collect();
        if item.trait_.is_none() {
            *self.module.methods.entry(name.clone()).or_default() += methods.len();
        }
        self.module.defines.entry(name.clone()).or_default().extend(methods);
        let outer = self.implements.replace(name);
        syn::visit::visit_item_impl(self, item);
        self.implements = outer;
    }
}

/// True for `self`, `(self)`, `&mut *self` and the like.
fn is_self(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Path(path) => path.path.is_ident("self"),
        syn::Expr::Paren(inner) => is_self(&inner.expr),
        syn::Expr::Reference(inner) => is_self(&inner.expr),
        syn::Expr::Unary(inner) => is_self(&inner.expr),
        _ => false,
    }
}

/// The methods that a text of tokens calls on `self`.
fn calls_on_self(tokens: &str) -> Vec<String> {
    let is_in_a_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut found = Vec::new();
    for (at, word) in tokens.match_indices("self") {
        let rest = tokens[at + word.len()..].trim_start();
        let Some(rest) = rest.strip_prefix('.').map(str::trim_start) else { continue };
        let (name, after) = rest.split_at(rest.find(|letter| !is_in_a_name(letter)).unwrap_or(rest.len()));
        if !tokens[..at].ends_with(is_in_a_name) && after.trim_start().starts_with('(') {
            found.push(name.to_string());
        }
    }
    found
}

pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_test = |attribute: &syn::Attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    };
    attributes.iter().any(is_test)
}
