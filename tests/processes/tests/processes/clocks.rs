//! A wall clock that is ahead for a while and is then corrected, as on a machine whose time service starts late. It is the clock of all
//! processes of an array.

use crate::prelude::*;

/// Sets the wall clock of a process ahead by the seconds in the file `$CLOCK_AHEAD`: eight bytes, which may change at any time.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long long *ahead;
__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_AHEAD");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) abort();
    void *at = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) abort();
    ahead = at;
    close(file);
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && ahead) time->tv_sec += *ahead;
    return result;
}
"#;
const BLOCK: usize = 4096;
/// The time limit for requests to an array whose clocks are right.
const PROMPT: Duration = Duration::from_secs(5);
const AN_HOUR: i64 = 3_600;

/// A wall clock set by the test.
struct WallClock {
    ahead: File,
    /// The launcher that gives this clock to a process and its children.
    launcher: [String; 3],
    _scratch: Scratch,
}

impl WallClock {
    fn new() -> WallClock {
        let scratch = Scratch::new();
        let (source, ahead) = (scratch.path("clock.c"), scratch.path("ahead"));
        std::fs::write(&source, LIBRARY).expect("there is room");
        tool("cc", &["-shared", "-fPIC", "-O1", "-o", &scratch.text("clock.so"), &scratch.text("clock.c")]);
        std::fs::write(&ahead, 0i64.to_le_bytes()).expect("there is room");
        let file = File::options().write(true).open(&ahead).expect("it was just made");
        let preload = format!("LD_PRELOAD={}", scratch.text("clock.so"));
        let launcher = ["env".to_string(), preload, format!("CLOCK_AHEAD={}", scratch.text("ahead"))];
        WallClock { ahead: file, launcher, _scratch: scratch }
    }

    fn launcher(&self) -> Vec<&str> {
        self.launcher.iter().map(String::as_str).collect()
    }

    /// Starts an array with this clock.
    fn start(&self, array: &mut Array) {
        array.try_start_by(&self.launcher(), &[]).unwrap_or_else(|outcome| panic!("{outcome}"));
    }

    fn set_ahead(&self, seconds: i64) {
        self.ahead.write_all_at(&seconds.to_le_bytes(), 0).expect("it can be written");
    }
}

/// Reads and writes blocks that were accessed while the clock was ahead, and others.
fn goes_on_at_once(array: &Array, what: &str) {
    let mut client = Client::open(&array.nbd());
    for offset in [0, 8 << 20, 1 << 20, 16 << 20] {
        let begun = Instant::now();
        let block = client.read(offset, BLOCK).unwrap_or_else(|error| panic!("{what}: read at {offset}: {error:?}"));
        client.write(offset, &block).unwrap_or_else(|error| panic!("{what}: write at {offset}: {error:?}"));
        assert!(begun.elapsed() < PROMPT, "{what}: {:?} at {offset}", begun.elapsed());
    }
}

#[test]
fn an_array_goes_on_at_once_when_the_clock_was_an_hour_ahead_and_is_set_right_and_the_doctor_finds_one_that_differs() {
    let clock = WallClock::new();
    let mut array = Array::small();
    array.down();
    clock.start(&mut array);
    goes_on_at_once(&array, "before");
    assert!(array.status()["stamps_ahead_millis"].is_null());
    clock.set_ahead(AN_HOUR);
    let mut client = Client::open(&array.nbd());
    for offset in [0, 1 << 20] {
        client.write(offset, &[7; BLOCK]).expect("all clocks agree");
    }
    drop(client);
    clock.set_ahead(0);
    goes_on_at_once(&array, "when the clock was set right");
    // The monitor hears of it within a heartbeat, and publishes it within another one.
    let begun = Instant::now();
    let ahead = loop {
        match array.status()["stamps_ahead_millis"].as_u64() {
            Some(ahead) => break ahead,
            None => assert!(begun.elapsed() < PROMPT, "the status says so: the clock was really ahead"),
        }
    };
    assert!(ahead > 3_500_000 && ahead < 3_610_000, "{ahead}");
    array.down();
    clock.start(&mut array);
    goes_on_at_once(&array, "after `down` and `up`");
    array.braid(&["volume", "check", "vol0"]).done();

    // A clock that differs is found. It is the doctor's clock here; the difference is the same.
    let clock = WallClock::new();
    clock.set_ahead(8);
    let bin = braid_bin();
    let arguments = [path_text(&bin), "doctor", "--json", "--array", path_text(array.dir())];
    let report = run("env", &[&clock.launcher()[1..], &arguments].concat()).failed_check();
    let found = findings(&report, "clocks").iter().filter(|finding| finding["severity"] == "error");
    let found: Vec<_> = found.map(|finding| (text(&finding["subject"]), text(&finding["text"]))).collect();
    let of_devices = found.iter().filter(|(subject, _)| subject.starts_with("device")).count();
    assert_eq!(of_devices, 5, "{found:?}");
    assert!(found.iter().all(|(_, text)| text.contains("behind")), "{found:?}");
    assert!(found.iter().any(|(subject, _)| subject.starts_with("host")), "{found:?}");
}
