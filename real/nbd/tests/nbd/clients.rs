//! Third-party clients against the server. A missing program fails its test.

use crate::memory::{DISK_BYTES, Memory};
use crate::running::{Running, scratch};
use braid_nbd::Settings;
use std::path::Path;
use std::process::Command;

fn start() -> Running<Memory> {
    Running::start(Settings::default())
}

/// Runs a client to its end. Returns its output, and whether it succeeded.
fn run(program: &str, arguments: &[&str]) -> (String, bool) {
    let mut command = Command::new("timeout");
    command.arg("300").arg(program).args(arguments);
    // nbdsh starts python3, and only the system's python3 has libnbd.
    command.env("PATH", format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default()));
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let missing = output.status.code() == Some(127);
    assert!(!missing, "{program} is missing: apt-get install libnbd-bin python3-libnbd qemu-utils fio");
    (said, output.status.success())
}

fn run_well(program: &str, arguments: &[&str]) -> String {
    let (said, content) = run(program, arguments);
    assert!(content, "{program} {arguments:?}: {said}");
    said
}

/// A file of the size of the disk, half of it random, the rest a hole.
fn image() -> std::path::PathBuf {
    let path = scratch("image");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes = vec![0; DISK_BYTES as usize];
    for word in bytes[1 << 20..48 << 20].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    for server in [start(), Running::start_unix()] {
        let said = run_well("nbdinfo", &["--json", &server.uri("disk")]);
        for expected in [
            "\"protocol\": \"newstyle-fixed\"",
            "\"structured\": true",
            "\"export-size\": 100663296",
            "\"description\": \"the disk export\"",
            "\"base:allocation\"",
            "\"is_read_only\": false",
            "\"can_cache\": true",
            "\"can_df\": true",
            "\"can_fast_zero\": true",
            "\"can_flush\": true",
            "\"can_fua\": true",
            "\"can_multi_conn\": true",
            "\"can_trim\": true",
            "\"can_zero\": true",
            "\"block_size_minimum\": 1",
            "\"block_size_preferred\": 4096",
            "\"block_size_maximum\": 33554432",
        ] {
            assert!(said.contains(expected), "{expected} is missing in {said}");
        }
        let said = run_well("nbdinfo", &["--list", &server.uri("")]);
        for name in ["disk", "odd", "broken", "stuck"] {
            assert!(said.contains(&format!("export=\"{name}\"")), "{name} is missing in {said}");
        }
        let (said, content) = run("nbdinfo", &[&server.uri("nowhere")]);
        assert!(!content && said.contains("No such file or directory for export: nowhere"), "{said}");
    }
}

#[test]
fn nbdcopy_copies_in_and_out() {
    for server in [start(), Running::start_unix()] {
        let (image, copy) = (image(), scratch("copy"));
        run_well("nbdcopy", &["--flush", text(&image), &server.uri("disk")]);
        run_well("nbdcopy", &["--connections=4", &server.uri("disk"), text(&copy)]);
        run_well("cmp", &[text(&image), text(&copy)]);
        let map = run_well("nbdinfo", &["--map", "--totals", &server.uri("disk")]);
        assert!(map.contains("hole,zero"), "{map}");
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    let server = start();
    let (image, disk) = (image(), server.uri("disk"));
    run_well("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&image), &disk]);
    run_well("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &disk]);
    let map = run_well("qemu-img", &["map", "--output=json", "-f", "raw", &disk]);
    assert!(map.contains("\"zero\": true, \"data\": false"), "{map}");
}

#[test]
fn qemu_io_writes_zeroes_discards_and_reads_at_any_offset() {
    let server = start();
    let said = run_well(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "write -P 0x11 0 64k",
            "-c",
            "write -P 0x22 -f 513 1000",
            "-c",
            "read -P 0x22 513 1000",
            "-c",
            "read -P 0x11 0 513",
            "-c",
            "write -z 1000 5000",
            "-c",
            "read -P 0 1000 5000",
            "-c",
            "write -z -u 8k 8k",
            "-c",
            "write -z -u -n 16k 4k",
            "-c",
            "discard 32k 8k",
            "-c",
            "read -P 0 8k 12k",
            "-c",
            "read -P 0x11 20k 12k",
            "-c",
            "write -P 0x33 1M 32M",
            "-c",
            "read -P 0x33 1M 32M",
            "-c",
            "flush",
            &server.uri("disk"),
        ],
    );
    assert!(!said.contains("verification failed") && !said.contains("error"), "{said}");
    let (said, content) = run("qemu-io", &["-f", "raw", "-c", "write 0 4k", &server.uri("broken")]);
    assert!(!content && said.contains("Input/output error"), "{said}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    let server = start();
    let uri = format!("--uri={}", server.uri("disk"));
    run_well(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=512-128k",
            "--bs_unaligned",
            "--size=64m",
            "--iodepth=32",
            "--verify=crc32c",
            "--verify_fatal=1",
        ],
    );
}

#[test]
fn libnbd_finds_every_promise_kept() {
    let server = start();
    let address = format!("address = '{}'", server.uri(""));
    run_well("nbdsh", &["-c", &address, "-c", include_str!("promises.py")]);
}
