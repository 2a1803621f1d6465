//! Loss of the monitor's state, or of the whole folder, and its recovery from the devices.

use crate::prelude::*;

const HALF: usize = SMALL_BYTES as usize / 2;

/// An array that is running, with content in the whole volume, and an epoch above the first.
fn written() -> (Array, Vec<u8>) {
    let array = Array::small();
    let content = noise(seed(), 2 * HALF);
    Client::open(&array.nbd()).write(0, &content[..HALF]).expect("a write works");
    array.braid(&["device", "fail", "1"]).done();
    // Device 1 misses this write, and is resynchronised.
    Client::open(&array.nbd()).write(HALF as u64, &content[HALF..]).expect("a write works");
    array.braid(&["device", "readmit", "1", "--wait"]).done();
    assert!(number(&array.status()["epoch"]) > 1);
    (array, content)
}

fn state(array: &Array) -> PathBuf {
    array.dir().join("monitor.state")
}

#[track_caller]
fn assert_all_there(array: &Array, content: &[u8]) {
    array.await_volume(0, "healthy");
    array.assert_reads(0, content);
    array.assert_sound("vol0");
}

#[test]
fn a_lost_state_is_reported_and_made_anew() {
    let (mut array, content) = written();
    array.braid(&["monitor", "recover"]).refused(1, "already-up");
    let before = number(&array.status()["epoch"]);
    array.down();
    array.braid(&["monitor", "recover"]).refused(1, "nothing-to-recover");
    std::fs::remove_file(state(&array)).expect("it can be removed");
    array.assert_start_refused(4, "monitor-state-lost", &["braid monitor recover"]);
    // No monitor creates a new state, whichever process starts it.
    array.braid(&["monitord"]).refused_naming(4, "monitor-state-lost", &["braid monitor recover"]);
    let shown = array.braid(&["monitor", "recover", "--dry-run"]).done().json();
    assert!(!state(&array).exists() && shown["recovered"] == false, "{shown}");
    assert_eq!(number(&shown["newest"]), before, "{shown}");
    let made = array.braid(&["monitor", "recover"]).done().json();
    assert!(made["recovered"] == true && number(&made["epoch"]) > before, "{made}");
    assert!((0..5).all(|device| made["devices"][device]["member_state"] == "in"), "{made}");
    array.braid(&["monitor", "recover"]).refused(1, "nothing-to-recover");
    array.start(&[]);
    assert_all_there(&array, &content);
    // The array works normally.
    array.braid(&["device", "fail", "2"]).done();
    Client::open(&array.nbd()).write(0, &content[HALF..]).expect("a write works");
    array.braid(&["device", "readmit", "2", "--wait"]).done();
    assert_all_there(&array, &[&content[HALF..], &content[HALF..]].concat());
}

#[test]
fn an_old_copy_of_the_state_is_not_served_from() {
    let mut array = Array::small();
    let aside = array.scratch().path("aside");
    array.down();
    std::fs::copy(state(&array), &aside).expect("it can be copied");
    array.start(&[]);
    let content = noise(seed(), SMALL_BYTES as usize);
    array.braid(&["device", "fail", "3"]).done();
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    array.down();
    // According to this state device 3 is in, but it lacks all that was written.
    std::fs::copy(&aside, state(&array)).expect("it can be copied");
    array.assert_start_refused(4, "monitor-state-old", &["braid monitor recover"]);
    let made = array.braid(&["monitor", "recover"]).done().json();
    assert_eq!(made["devices"][3]["member_state"], "out", "{made}");
    array.start(&[]);
    assert_all_there(&array, &content);
}

#[test]
fn an_older_description_is_not_served_from() {
    let (mut array, content) = written();
    let path = array.dir().join("array.json");
    let older = std::fs::read(&path).expect("it exists");
    array.braid(&["volume", "create", "late", "--size", "1MiB"]).done();
    await_copies(&array);
    array.down();
    let before = array.description();
    // According to this description the volume does not exist, so that its number would be used again.
    std::fs::write(&path, &older).expect("it can be replaced");
    array.assert_start_refused(4, "description-old", &["braid monitor recover"]);
    // The copies are unchanged.
    std::fs::remove_file(&path).expect("it can be removed");
    let files: Vec<String> = (0..5).map(|device| path_text(&array.device_file(device)).to_string()).collect();
    let recover: Vec<&str> =
        ["monitor", "recover", "--from"].into_iter().chain(files.iter().map(String::as_str)).collect();
    array.braid(&recover).done();
    let made = array.description();
    assert_eq!(made["volumes"], before["volumes"]);
    array.start(&[]);
    assert_all_there(&array, &content);
}

#[test]
fn a_device_that_is_returning_when_the_state_is_lost_is_brought_the_rest() {
    let mut array = Array::small();
    let content = noise(seed(), SMALL_BYTES as usize);
    array.braid(&["device", "fail", "1"]).done();
    Client::open(&array.nbd()).write(0, &content).expect("a write works");
    array.braid(&["rebuild", "pause"]).done();
    array.braid(&["device", "readmit", "1"]).done();
    array.await_member(1, "returning");
    array.kill();
    std::fs::remove_file(state(&array)).expect("it can be removed");
    let made = array.braid(&["monitor", "recover"]).done().json();
    assert_eq!(made["devices"][1]["member_state"], "returning", "{made}");
    array.start(&[]);
    assert_all_there(&array, &content);
}

#[test]
fn a_folder_that_is_lost_is_made_anew_from_the_files_of_devices() {
    let (mut array, content) = written();
    let early = array.scratch().path("early");
    await_copies(&array);
    std::fs::copy(array.device_file(0), &early).expect("it can be copied");
    array.braid(&["volume", "create", "late", "--size", "1MiB", "--ordering", "device-lock"]).done();
    let before = array.description();
    await_copies(&array);
    let generation = generation(&array);
    array.down();
    lose_folder(&array);
    array.assert_start_refused(1, "left-overs", &["braid monitor recover --from"]);
    let files: Vec<String> = (0..5).map(|device| path_text(&array.device_file(device)).to_string()).collect();
    let files = files.iter().map(String::as_str);
    let recover: Vec<&str> = ["monitor", "recover", "--from"].into_iter().chain(files).collect();
    let shown = array.braid(&[&recover[..], &["--dry-run"]].concat()).done().json();
    assert!(shown["recovered"] == false && !array.dir().join("array.json").exists(), "{shown}");
    // Copies from before the volume was created: the devices hold more than the copies describe.
    let kept: Vec<Vec<u8>> = (0..5).map(|device| set_copies(&array.device_file(device), &copies_of(&early))).collect();
    let said = array.braid(&recover).refused(4, "copy-outdated");
    assert!(!array.dir().join("array.json").exists(), "{said}");
    for (device, kept) in kept.iter().enumerate().skip(3) {
        set_copies(&array.device_file(device), kept);
    }
    // The newest copy counts.
    let made = array.braid(&recover).done().json();
    assert!(made["restored_description"] == true && made["restored_generations"] == true, "{made}");
    assert!(number(&made["generations"]) > generation, "no generation is used again: {made}");
    let after = array.description();
    assert_eq!((&before["devices"], &before["volumes"]), (&after["devices"], &after["volumes"]));
    array.start(&[]);
    assert_all_there(&array, &content);
    // The array works normally.
    array.braid(&["volume", "delete", "late", "--yes"]).done();
    array.braid(&["volume", "create", "later", "--size", "1MiB"]).done();
    array.assert_sound("later");
}

/// Where a small array's devices end, and the copies begin.
const STORE_BYTES: u64 = 64 << 20;

fn copies_of(file: &Path) -> Vec<u8> {
    std::fs::read(file).expect("it can be read").split_off(STORE_BYTES as usize)
}

/// Replaces the copies in a device's file. Returns the previous ones.
fn set_copies(file: &Path, copies: &[u8]) -> Vec<u8> {
    let before = copies_of(file);
    let file = File::options().write(true).open(file).expect("it can be opened");
    file.set_len(STORE_BYTES).and_then(|()| file.write_all_at(copies, STORE_BYTES)).expect("it can be written");
    before
}

#[track_caller]
pub fn await_copies(array: &Array) {
    let revision = format!("\"revision\":{},", array.description()["revision"]);
    wait_until("the copies are written", Duration::from_secs(20), || {
        let has = |device| {
            copies_of(&array.device_file(device)).windows(revision.len()).any(|part| part == revision.as_bytes())
        };
        (0..5).all(has)
    });
}

/// Removes all files except those of devices.
fn lose_folder(array: &Array) {
    for entry in std::fs::read_dir(array.dir()).expect("it exists") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_none_or(|extension| extension != "braid") {
            let gone = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            gone.expect("it can be removed");
        }
    }
}

fn generation(array: &Array) -> u64 {
    let text = std::fs::read(array.dir().join("generations")).expect("it exists");
    number(&serde_json::from_slice::<Value>(&text).expect("it is replaced as a whole")["last"])
}

#[test]
fn a_device_that_is_missing_is_needed_unless_the_operator_does_without_it() {
    let (mut array, content) = written();
    array.down();
    std::fs::remove_file(state(&array)).expect("it can be removed");
    let (file, aside) = (array.device_file(3), array.scratch().path("aside"));
    std::fs::rename(&file, &aside).expect("it can be moved");
    array.braid(&["monitor", "recover"]).refused_naming(3, "devices-missing", &["d3", "--without d3"]);
    assert!(!state(&array).exists());
    let made = array.braid(&["monitor", "recover", "--without", "d3"]).done().json();
    assert_eq!(made["devices"][3]["member_state"], "left-out", "{made}");
    // The lost disk returns, but what was written there alone is unknown.
    std::fs::rename(&aside, &file).expect("it can be moved back");
    array.start(&[]);
    array.await_status("device 3 is out, and refused", |status| {
        status["devices"][3]["member_state"] == "out" && !status["devices"][3]["refused"].is_null()
    });
    array.assert_reads(0, &content);
    array.braid(&["device", "replace", "3", "--wait"]).done();
    assert_all_there(&array, &content);
}
