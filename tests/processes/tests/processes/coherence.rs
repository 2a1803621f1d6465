//! Two mounts show the same bytes, whichever way a program reads them: also through the kernel's pages. The ways and the model are in
//! `coherence.py`, since mapped memory can't be read here without `unsafe`. Without `/dev/fuse` the tests say that they are skipped.

use crate::mounts::Mounts;
use crate::prelude::*;

#[test]
fn every_way_of_reading_shows_what_either_mount_has_changed() {
    let Some(mounts) = Mounts::new() else { return };
    let [a, b] = [0, 1].map(|mount| mounts.path(mount, ""));
    let (seeds, seconds) = if soak() { (99, 60) } else { (1, 1) };
    let seconds = std::env::var("BRAID_CONTEND_SECONDS").unwrap_or(seconds.to_string());
    for seed in 1..=seeds {
        let seed = seed.to_string();
        let script = include_str!("coherence.py");
        tool("python3", &["-c", script, path_text(&a), path_text(&b), &seed, "30", &seconds]);
    }
    mounts.end();
}
