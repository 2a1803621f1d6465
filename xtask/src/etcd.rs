//! Builds the etcd that the checks of arrays on several machines run on: what `tests/machines/etcd/go.mod` names, by the proxy for Go modules.

use crate::prelude::*;
use crate::root;

/// The programs, and their packages.
const PROGRAMS: [(&str, &str); 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    ("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
];
/// Where Go is if it is not in the path.
const GO: &str = "/usr/local/go/bin/go";

/// Builds what is not built yet, and returns the folder of the programs.
pub fn build() -> Result<PathBuf> {
    let folder = std::path::absolute(target_folder().join("etcd"))?;
    let go = if Path::new(GO).exists() { GO } else { "go" };
    for (program, package) in PROGRAMS {
        let mut build = Command::new(go);
        build.args(["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o"]).arg(folder.join(program));
        build.arg(package).current_dir(root().join("tests/machines/etcd")).env("CGO_ENABLED", "0");
        run(build).context("etcd is built by Go (https://go.dev/dl): the page on testing says which one")?;
    }
    Ok(folder)
}
