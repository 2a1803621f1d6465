//! The packages that the workspace uses, as listed by `cargo metadata`, and the rules of `deny.toml`. Therefore CI needs no tool besides
//! cargo.

use crate::root;
use serde::Deserialize;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The part of `deny.toml` that is checked. An unknown key is an error, because it would be a rule that is not enforced.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The permitted licences.
    pub licenses: Licenses,
    /// The prohibited packages.
    pub bans: Bans,
    /// The permitted origins of packages.
    pub sources: Sources,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licenses {
    /// SPDX identifiers.
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bans {
    /// `deny`: no package in two versions, except those in `skip`.
    pub multiple_versions: String,
    /// `deny`: no requirement of an arbitrary version.
    pub wildcards: String,
    /// Versions that are permitted in addition to another one.
    pub skip: Vec<Named>,
    /// Packages that must not be used.
    pub deny: Vec<Named>,
}

/// A package, as `name` or `name@major`, and why it is listed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    #[serde(rename = "crate")]
    pub name: String,
    pub reason: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sources {
    /// `deny`: only the registries of `allow_registry`.
    pub unknown_registry: String,
    /// `deny`: only the repositories of `allow_git`.
    pub unknown_git: String,
    /// URLs of registry indexes.
    pub allow_registry: Vec<String>,
    /// URLs of repositories.
    pub allow_git: Vec<String>,
}

/// A package of `cargo metadata`.
#[derive(Debug, Clone, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// The licence expression of its manifest.
    pub license: Option<String>,
    /// Its origin; none for packages of the workspace.
    pub source: Option<String>,
    /// The requirements in its manifest.
    pub dependencies: Vec<Dependency>,
}

/// A requirement of a package.
#[derive(Debug, Clone, Deserialize)]
pub struct Dependency {
    /// The required package.
    pub name: String,
    /// The required versions.
    pub req: String,
    /// The required origin; none for packages of the workspace.
    pub source: Option<String>,
}

/// The rules of `deny.toml`.
pub fn rules() -> Rules {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("the rules are there");
    toml::from_str(&text).unwrap_or_else(|error| panic!("deny.toml: {error}"))
}

/// All packages that the workspace uses, on any platform. Cargo uses the network only for packages that are missing on this machine.
pub fn packages() -> Vec<Package> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let ask = |offline: &[&str]| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["metadata", "--format-version", "1", "--locked"]).args(offline).current_dir(root());
        cargo.output().expect("cargo runs this test")
    };
    let mut said = ask(&["--offline"]);
    if !said.status.success() {
        said = ask(&[]);
    }
    assert!(said.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&said.stderr));
    serde_json::from_slice::<Metadata>(&said.stdout).expect("cargo's own format").packages
}

pub fn violations(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for rule in [
        &rules.bans.multiple_versions,
        &rules.bans.wildcards,
        &rules.sources.unknown_registry,
        &rules.sources.unknown_git,
    ] {
        if rule != "deny" {
            wrong.push(format!("deny.toml: only `deny` is supported, not `{rule}`"));
        }
    }
    wrong.extend(licences(&rules.licenses, packages));
    wrong.extend(bans(&rules.bans, packages));
    wrong.extend(packages.iter().filter_map(|package| unknown_source(&rules.sources, package)));
    wrong
}

fn licences(rules: &Licenses, packages: &[Package]) -> Vec<String> {
    let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
    for Package { name, version, license, .. } in packages {
        let Some(expression) = license else {
            wrong.push(format!("{name} {version} has no licence"));
            continue;
        };
        let mut allows = |licence: &LicenseReq| {
            let licence = licence.to_string();
            let is_allowed = rules.allow.contains(&licence);
            met.insert(licence);
            is_allowed
        };
        // Old packages write `/` for `OR`.
        let parsed = Expression::parse_mode(expression, ParseMode::LAX);
        if !parsed.is_ok_and(|parsed| parsed.evaluate(&mut allows)) {
            wrong.push(format!("{name} {version}: the licence `{expression}` is not allowed"));
        }
    }
    let unused = rules.allow.iter().filter(|allowed| !met.contains(*allowed));
    wrong.extend(unused.map(|allowed| format!("deny.toml: no package has the licence {allowed}")));
    wrong
}

fn bans(rules: &Bans, packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        if let Some(Named { reason, .. }) = rules.deny.iter().find(|named| is_named(named, package)) {
            wrong.push(format!("{} {} is banned: {reason}", package.name, package.version));
        }
        let anything = package.dependencies.iter().filter(|of| of.req == "*" && of.source.is_some());
        // Requirements in packages of others are not checked.
        if package.source.is_none() {
            wrong.extend(anything.map(|of| format!("{} asks for any version of {}", package.name, of.name)));
        }
    }
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages.iter().filter(|package| !rules.skip.iter().any(|named| is_named(named, package))) {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let several = versions.iter().filter(|(_, versions)| versions.len() > 1);
    wrong.extend(several.map(|(name, versions)| format!("{name} is used in several versions: {versions:?}")));
    for named in &rules.skip {
        if !packages.iter().any(|package| is_named(named, package)) {
            wrong.push(format!("deny.toml: {} is skipped, but not used", named.name));
        }
    }
    wrong
}

fn is_named(named: &Named, package: &Package) -> bool {
    match named.name.split_once('@') {
        None => named.name == package.name,
        Some((name, major)) => name == package.name && package.version.split('.').next() == Some(major),
    }
}

fn unknown_source(rules: &Sources, package: &Package) -> Option<String> {
    let source = package.source.as_deref()?;
    let known = match source.split_once('+') {
        Some(("registry" | "sparse", address)) => rules.allow_registry.iter().any(|known| known == address),
        Some(("git", address)) => rules.allow_git.iter().any(|known| address.starts_with(known.as_str())),
        _ => false,
    };
    (!known).then(|| format!("{} {} is from {source}", package.name, package.version))
}
