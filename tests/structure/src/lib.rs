//! The repository as data for its own tests: crates with their manifests, source files, and the modules of a crate with their imports and
//! declarations. Sources are parsed with `syn`, so that comments and strings are ignored.

pub mod modules;
pub mod packages;
pub mod words;
pub mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

#[derive(Debug)]
pub struct Crate {
    /// Its folder in the workspace, such as `core/host`.
    pub folder: String,
    pub manifest: String,
}

impl Crate {
    /// The packages under `[dependencies]`.
    pub fn dependencies(&self) -> Vec<String> {
        let section = self.manifest.split("\n[dependencies]").nth(1).unwrap_or_default();
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| line.split(['.', '=', ' ']).next());
        names.filter(|name| !name.is_empty() && !name.starts_with('#')).map(str::to_string).collect()
    }

    pub fn name(&self) -> &str {
        let line = self.manifest.lines().find_map(|line| line.strip_prefix("name = "));
        line.expect("a crate has a name").trim_matches('"')
    }

    /// The crates of this workspace that it uses, without the prefix of their names.
    pub fn uses(&self) -> Vec<String> {
        self.dependencies().iter().filter_map(|name| name.strip_prefix("braid-")).map(str::to_string).collect()
    }
}

/// The crates under `core/`, `sim/` and `real/`, the benches, and the code shared by measurements.
pub fn crates() -> Vec<Crate> {
    let mut folders = vec!["benches".to_string(), "benchkit".to_string()];
    for world in ["core", "sim", "real"] {
        for entry in std::fs::read_dir(root().join(world)).expect("the three worlds are there") {
            let name = entry.expect("a folder can be listed").file_name();
            folders.push(format!("{world}/{}", name.to_string_lossy()));
        }
    }
    folders.sort();
    let manifest = |folder: &str| root().join(folder).join("Cargo.toml");
    let read = |folder: String| {
        let manifest = std::fs::read_to_string(manifest(&folder)).expect("a crate has a manifest");
        Crate { folder, manifest }
    };
    folders.into_iter().map(read).collect()
}

/// Whatever `from` uses, directly or indirectly, with itself.
pub fn reached(from: &str, uses: impl Fn(&str) -> Vec<String>) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from.to_string()]);
    while let Some(name) = next.pop() {
        if reached.insert(name.clone()) {
            next.extend(uses(&name));
        }
    }
    reached
}

/// All Rust sources of the workspace.
pub fn sources() -> Vec<PathBuf> {
    ["core", "sim", "real", "tests", "benches", "benchkit", "xtask"]
        .iter()
        .flat_map(|folder| sources_in(&root().join(folder)))
        .collect()
}

/// The pages for readers: those at the root, and all in `docs`, `bugs`, `benches` and `fuzz`.
pub fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["docs", "bugs", "benches", "fuzz"].iter().flat_map(|folder| files_in(&root().join(folder), "md")).collect();
    pages.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|page| root().join(page)));
    pages
}

/// The Rust sources in a folder and its subfolders.
pub fn sources_in(folder: &Path) -> Vec<PathBuf> {
    files_in(folder, "rs")
}

fn files_in(folder: &Path, kind: &str) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter();
    let paths = entries.map(|entry| entry.expect("a folder can be listed").into_path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == kind)).collect()
}
