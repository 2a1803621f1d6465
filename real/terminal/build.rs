//! Passes the name of the cargo profile to the program. Cargo gives that name to build scripts only as a part of their output folder.

use std::path::Path;

fn main() {
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    // target/PROFILE/build/PACKAGE/out
    let folder = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    let profile = match folder.map(|name| name.to_string_lossy()) {
        Some(name) if name == "debug" => "dev".to_string(),
        Some(name) => name.into_owned(),
        None => "unknown".to_string(),
    };
    println!("cargo::rustc-env=BRAID_PROFILE={profile}");
    println!("cargo::rerun-if-changed=build.rs");
}
