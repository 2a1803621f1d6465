//! The tools, installed if they are missing.

use super::Tool;
use crate::packages::{self, Package};
use crate::{cargo, run, target_folder};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The versions whose cases `exceptions.txt` lists.
const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
const FSX: (&str, &str) = ("fsx", "0.3.2");
const STRESS_NG: Package = ("stress-ng", "/usr/bin/stress-ng");
const DBENCH: Package = ("dbench", "/usr/bin/dbench");

/// Where the tools from crates.io are.
#[derive(Debug)]
pub struct Tools {
    root: PathBuf,
}

impl Tools {
    pub fn pjdfstest(&self) -> PathBuf {
        self.root.join("bin/pjdfstest")
    }

    pub fn fsx(&self) -> PathBuf {
        self.root.join("bin/fsx")
    }
}

pub fn install(tools: &[Tool]) -> Result<Tools> {
    let root = std::path::absolute(target_folder().join("posix"))?;
    for tool in tools {
        match tool {
            Tool::Pjdfstest => install_crate(&root, PJDFSTEST)?,
            Tool::Fsx => install_crate(&root, FSX)?,
            Tool::StressNg => packages::install(&[STRESS_NG], "`--only stress-ng` needs")?,
            Tool::Dbench => packages::install(&[DBENCH], "`--only dbench` needs")?,
        }
    }
    Ok(Tools { root })
}

/// Cargo does nothing if this version is there already, and needs no network then.
fn install_crate(root: &Path, (name, version): (&str, &str)) -> Result<()> {
    let at = root.to_string_lossy();
    let build = root.join("build");
    let mut install = cargo(&["install", "--quiet", "--locked", "--root", &at, "--version", &format!("={version}")]);
    install.arg("--target-dir").arg(build).arg(name);
    if is_installed(root, name, version) {
        return Ok(());
    }
    println!("installing {name} {version} into {at}");
    run(install).with_context(|| {
        format!(
            "{name} {version} can't be installed from crates.io. Without a network, copy its program to {at}/bin on \
             a machine with one: cargo install --locked --root {at} --version ={version} {name}"
        )
    })
}

/// Cargo keeps a list of what it has installed.
fn is_installed(root: &Path, name: &str, version: &str) -> bool {
    let list = std::fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
    list.contains(&format!("\"{name} {version} ")) && root.join("bin").join(name).exists()
}
