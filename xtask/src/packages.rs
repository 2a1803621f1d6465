//! Debian packages that tasks need; they are installed if they are missing.

use crate::prelude::*;

/// A package, and a file that it contains.
pub type Package = (&'static str, &'static str);

/// The programs that the tests run, and what unpacks kept arrays.
pub const CLIENTS: [Package; 10] = [
    ("fio", "/usr/bin/fio"),
    ("qemu-utils", "/usr/bin/qemu-img"),
    ("libnbd-bin", "/usr/bin/nbdinfo"),
    ("nbdfuse", "/usr/bin/nbdfuse"),
    ("python3-libnbd", "/usr/bin/nbdsh"),
    ("fuse3", "/usr/bin/fusermount3"),
    ("e2fsprogs", "/usr/sbin/mkfs.ext4"),
    ("xz-utils", "/usr/bin/xz"),
    ("etcd-server", "/usr/bin/etcd"),
    ("iproute2", "/usr/sbin/ip"),
];

/// Installs the packages that are missing. `who` begins the error message if that fails, such as "the tests need".
pub fn install(packages: &[Package], who: &str) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().filter(|(_, file)| !Path::new(file).exists()).map(|(package, _)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", missing.join(", "));
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let install = [&["install", "--yes", "--quiet", "--no-install-recommends"], &missing[..]].concat();
    run(apt(&["update", "--quiet"]))
        .and_then(|()| run(apt(&install)))
        .with_context(|| format!("{who} these Debian packages: apt-get install {}", missing.join(" ")))
}
