//! The tools, installed if they are missing.

use super::Tool;
use crate::prelude::*;

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

    /// The folder in which git is built, with the programs of its tests.
    pub fn git(&self) -> PathBuf {
        self.root.join("git")
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
            Tool::Cpython | Tool::Git | Tool::Sqlite | Tool::Postgresql => {
                let suite = tool.suite().expect("each of these is in the table");
                packages::install(suite.packages, &format!("`--only {}` needs", suite.name))?;
            }
        }
    }
    let tools_at = Tools { root };
    if tools.contains(&Tool::Git) {
        build_git(&tools_at.git())?;
    }
    Ok(tools_at)
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

/// Builds git from Debian's source, unless that is done already.
fn build_git(at: &Path) -> Result<()> {
    if at.join("built").exists() {
        return Ok(());
    }
    println!("building git in {}", at.display());
    let mut build = Command::new("sh");
    build.args(["-c", include_str!("suites/git-build.sh"), "git-build.sh"]).arg(at).stdout(Stdio::null());
    run(build).with_context(|| {
        format!("git can't be built: remove {} and try again, or leave it out by --only", at.display())
    })
}
