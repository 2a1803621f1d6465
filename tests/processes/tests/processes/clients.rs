//! Common NBD clients. A missing client fails its test.

use crate::prelude::*;

/// A file of the volume's size: noise with a hole in the middle.
fn image(scratch: &Scratch) -> String {
    let part = SMALL_BYTES as usize / 4;
    let noise = noise(seed(), 2 * part);
    let bytes = [&noise[..part], &vec![0; 2 * part], &noise[part..]].concat();
    std::fs::write(scratch.path("image"), bytes).expect("there is room");
    scratch.text("image")
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    let array = Array::small();
    let said = tool("nbdinfo", &["--json", &array.nbd()]);
    for expected in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-size\": 33554432",
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
    let uri = array.nbd();
    let server = uri.strip_suffix("vol0").expect("the address ends with the name of the volume");
    assert!(tool("nbdinfo", &["--list", server]).contains("export=\"vol0\""));
    let nowhere = std::process::Command::new("nbdinfo").arg(format!("{server}nowhere")).output().unwrap();
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(!nowhere.status.success() && said.contains("for export: nowhere"), "{said}");
}

#[test]
fn nbdcopy_copies_in_and_out_and_finds_the_holes() {
    let array = Array::small();
    let (image, copy) = (image(array.scratch()), array.scratch().text("copy"));
    let map = tool("nbdinfo", &["--map", &array.nbd()]);
    let fields: Vec<&str> = map.split_whitespace().collect();
    assert_eq!(fields, ["0", "33554432", "3", "hole,zero"], "nothing was written yet");
    tool("nbdcopy", &["--flush", &image, &array.nbd()]);
    tool("nbdcopy", &["--connections=4", "--requests=16", &array.nbd(), &copy]);
    tool("cmp", &[&image, &copy]);
    let map = tool("nbdinfo", &["--map", &array.nbd()]);
    let middle = map.lines().find(|line| line.contains("hole,zero")).unwrap_or_else(|| panic!("no hole: {map}"));
    let numbers: Vec<u64> = middle.split_whitespace().take(2).map(|field| field.parse().expect("a number")).collect();
    assert_eq!(numbers, [SMALL_BYTES / 4, SMALL_BYTES / 2], "the hole of the image is one: {map}");
    array.assert_sound("vol0");
}

#[test]
fn a_copy_with_many_connections_and_odd_request_sizes_is_the_same() {
    let array = Array::small();
    let (image, copy) = (image(array.scratch()), array.scratch().text("copy"));
    tool("nbdcopy", &["--connections=4", "--threads=2", "--request-size=32768", "--flush", &image, &array.nbd()]);
    tool("nbdcopy", &["--connections=1", "--request-size=33554432", &array.nbd(), &copy]);
    tool("cmp", &[&image, &copy]);
    array.assert_sound("vol0");
}

#[test]
fn qemu_img_converts_and_compares_both_ways() {
    let array = Array::small();
    let (image, copy, nbd) = (image(array.scratch()), array.scratch().text("copy"), array.nbd());
    tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &nbd]);
    tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &nbd]);
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &nbd, &copy]);
    tool("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &nbd, &copy]);
    tool("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &image, &copy]);
    tool("qemu-io", &["-f", "raw", "-c", "write -P 0x5a 4711 16", &nbd]);
    let differs = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &nbd]);
    assert_eq!(differs.status, Some(1), "some bytes differ: {differs}");
    array.assert_sound("vol0");
}

#[test]
fn qemu_io_writes_zeroes_discards_and_reads_at_any_offset() {
    let array = Array::small();
    let commands = [
        "write -P 0x11 0 1M",
        "write -P 0x22 -f 513 1000",
        "read -P 0x22 513 1000",
        "read -P 0x11 0 513",
        "read -P 0x11 1513 100000",
        "write -z 1000 5000",
        "read -P 0x22 513 487",
        "read -P 0 1000 5000",
        "read -P 0x11 6000 4000",
        "write -z -u 64k 300k",
        "read -P 0 64k 300k",
        "write -z -u -n 500k 4k",
        "read -P 0 500k 4k",
        "discard 600k 200k",
        "read -P 0 600k 200k",
        "read -P 0x11 800k 200k",
        "write -P 0x33 262143 262146",
        "read -P 0x33 262143 262146",
        "read -P 0x11 -s 0 -l 100 0 512",
        "write -P 0x44 0 32M",
        "read -P 0x44 0 32M",
        "flush",
    ];
    let nbd = array.nbd();
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&nbd);
    let said = tool("qemu-io", &arguments);
    assert!(!said.contains("verification failed") && !said.contains("rror"), "{said}");
    array.assert_sound("vol0");
}

#[test]
fn fio_verifies_what_two_jobs_wrote_in_mixed_sizes_at_any_offset() {
    let array = Array::small();
    let uri = format!("--uri={}", array.nbd());
    tool(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=512-256k",
            "--bs_unaligned",
            "--size=15m",
            "--offset_increment=16m",
            "--numjobs=2",
            "--thread",
            "--iodepth=32",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            &format!("--randseed={}", seed() >> 1),
        ],
    );
    array.assert_sound("vol0");
}

#[test]
fn libnbd_finds_every_promise_kept() {
    let array = Array::small();
    let address = format!("address = '{}'", array.nbd());
    tool("nbdsh", &["-c", &address, "-c", include_str!("promises.py")]);
    array.assert_sound("vol0");
}
