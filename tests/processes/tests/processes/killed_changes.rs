//! Commands that change the ordering of a volume, or migrate it, are killed at random moments, while two hosts write and verify the same
//! blocks. The next command completes or reverts the change: with `braid up`, which does so, too, and with daemons alone.

use crate::prelude::*;
use braid_description::{Change, PlacementEntry, VolumeEntry, VolumeState};

/// How long the next command may be refused, because the killed one still has a lease.
const REFUSED_MAX: Duration = Duration::from_secs(15);
/// The longest pause of a writer: the lease of the killed command, two changes, and a busy machine.
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Kills that wait for a stage come within this time.
const STAGE_MAX: Duration = Duration::from_millis(10);
/// Between two looks at the stage.
const LOOK_PAUSE: Duration = Duration::from_micros(500);
/// Where the content begins that no writer changes; behind the cells of the writers.
const STILL_BEGIN: u64 = 4 << 20;

/// The places of the volume: layout, unit and devices. The first one is where it is created.
const PLACES: [(&str, &str, u64, &str); 3] = [
    ("raid5:4+1", "4KiB", 4096, "0,1,2,3,4"),
    ("raid1:2", "16KiB", 16384, "1,3"),
    ("raid5:2+1", "64KiB", 65536, "0,2,4"),
];
const ORDERINGS: [&str; 4] = ["timestamp", "device-lock", "server-lock", "callback-lock"];

#[test]
fn changes_of_the_ordering_and_migrations_that_are_killed_are_settled_by_the_next_command() {
    Bed::with_up().kill_changes(if soak() { 20 } else { 2 });
}

#[test]
fn without_braid_up_they_are_settled_by_the_next_command() {
    let bed = Bed::of_daemons();
    // A server that starts while the volume is on hold names it, and serves it later.
    let arguments = ["volume", "set-ordering", "vol0", "device-lock"].map(str::to_string);
    let draining = Stage { is_committed: false, is_end: false };
    wait_until("a change is killed while the volume is on hold", REFUSED_MAX, || {
        bed.kill_at(&arguments, Some(draining), Duration::ZERO).0.hold.is_some()
    });
    let (host, uri) = bed.array.host();
    let reader = std::thread::spawn(move || Client::open(&uri).read(STILL_BEGIN, 4096));
    bed.change_ordering_to("timestamp");
    let there = reader.join().expect("it does not panic").expect("a read works");
    assert!(there == bed.still[..4096]);
    assert_eq!(host.end(Signal::TERM), Some(0));
    bed.kill_changes(if soak() { 20 } else { 1 });
}

#[test]
fn changes_are_settled_by_braid_up_after_all_processes_were_killed() {
    let mut bed = Bed::with_up();
    let unclaimed = bed.unclaimed();
    for round in 0..if soak() { 12 } else { 2 } {
        let kind = if round % 2 == 0 { Kind::Migration } else { Kind::Ordering };
        // Writers expect zeros where they begin.
        let begin = STILL_BEGIN + bed.still.len() as u64 + round * (1 << 20) + 100;
        let load = bed.load(begin, true);
        load.go_on();
        let before = bed.described();
        let (found, _) = bed.kill_one(kind, &before, Duration::from_millis(if soak() { 1500 } else { 600 }), None);
        // While the volume is on hold, or is being settled, or later.
        std::thread::sleep(Duration::from_millis(bed.rng.below(1600)));
        let left = bed.kill_all(&found);
        let mut record = load.ended();
        bed.restart();
        let mut expected = left.settled();
        wait_until("the change is settled", REFUSED_MAX, || bed.described().hold.is_none());
        assert_eq!(bed.described(), expected, "after {left:?}");
        if let Some(target) = expected.target.take() {
            bed.next(&["volume", "migrate", "vol0"]);
            expected.place = target;
        }
        bed.assert_is(&expected);
        for uri in &bed.hosts {
            record.verify(uri);
        }
        bed.verify_still();
        bed.array.assert_sound("vol0");
    }
    bed.assert_nothing_left(&unclaimed);
}

#[test]
fn a_change_that_is_suspended_is_taken_over_and_what_it_says_on_waking_counts_no_more() {
    let bed = Bed::with_up();
    let load = bed.load(100, false);
    let committed = Stage { is_committed: true, is_end: false };
    let other = |bed: &Bed| if bed.described().ordering == "timestamp" { "device-lock" } else { "timestamp" };
    let mut suspended = loop {
        let mut change = bed.array.command(&["volume", "set-ordering", "vol0", other(&bed)]);
        let mut child = change.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("braid can be started");
        bed.await_stage(&mut child, committed);
        if child.try_wait().expect("it can be asked").is_none() {
            signal(child.id(), Signal::STOP);
            await_stopped(child.id());
            // The command may have ended in between; and while it holds the folder's lock, no other process can take over.
            let locks = fs::read_to_string("/proc/locks").expect("the system lists locks");
            if committed.has_begun(&bed.described()) && !locks.contains(&format!(" {} ", child.id())) {
                break child;
            }
            signal(child.id(), Signal::CONT);
        }
        child.wait().expect("it can be waited for");
    };
    bed.array.await_volume(0, "healthy");
    load.go_on();
    let next = other(&bed);
    bed.change_ordering_to(next);
    load.go_on();
    signal(suspended.id(), Signal::CONT);
    let ended = suspended.wait().expect("it can be waited for");
    assert!(!ended.success(), "it learns that it was fenced: {ended}");
    assert_eq!(bed.volume_shown()["ordering"], next);
    load.go_on();
    load.assert_kept(&bed.array, &[&bed.hosts[0]]);
}

/// A change that can't be completed, because a device of its volume is out, is looked at first, again and again.
#[test]
fn a_change_that_waits_for_a_device_keeps_no_other_volume_on_hold() {
    let array = up();
    array.braid(&["volume", "create", "vol1", "--size", "8MiB", "--layout", "raid1:2", "--devices", "0,1"]).done();
    let suspended = array.device_pid(4);
    signal(suspended, Signal::STOP);
    array.await_member(4, "out");
    // As a command would leave them that was killed in the middle of both changes.
    array.describe(|description| {
        for volume in 0..2 {
            description["volumes"][volume]["state"] =
                json!({ "reordering": { "to": { "ordering": "device-lock" }, "by": 2 } });
        }
        description["revision"] = json!(number(&description["revision"]) + 1);
    });
    let ordering = |volume: usize| text(&array.description()["volumes"][volume]["ordering"]);
    wait_until("the other volume is settled", REFUSED_MAX, || ordering(1) == "device-lock");
    assert_eq!(ordering(0), "timestamp", "its device is suspended");
    array.braid(&["volume", "set-ordering", "vol1", "timestamp"]).done();
    signal(suspended, Signal::CONT);
    wait_until("the first volume is settled, too", PAUSE_MAX, || ordering(0) == "device-lock");
    array.await_volume(0, "healthy");
    array.assert_sound("vol0");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordering,
    Migration,
}

/// An array with two hosts that serve its volume.
struct Bed {
    // Fields are dropped in this order: the folder last.
    daemons: Vec<Daemon>,
    hosts: Vec<String>,
    rng: Rng,
    /// The content that no writer changes.
    still: Vec<u8>,
    array: Array,
    /// `braid up` runs the array.
    is_up: bool,
    seed: u64,
}

/// What the array's folder says of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Described {
    ordering: String,
    place: Place,
    /// The target of a migration.
    target: Option<Place>,
    hold: Option<Hold>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    layout: String,
    unit: u64,
    devices: BTreeSet<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hold {
    /// Nothing can be reverted any more.
    is_committed: bool,
    change: Change,
}

/// A part of a change.
#[derive(Clone, Copy, Debug)]
struct Stage {
    is_committed: bool,
    /// It ends a migration.
    is_end: bool,
}

impl Bed {
    fn new(array: Array, is_up: bool, daemons: Vec<Daemon>, hosts: Vec<String>) -> Bed {
        let seed = seed();
        let still = noise(!seed, if soak() { 12 << 20 } else { 4 << 20 });
        Client::open(&hosts[0]).write(STILL_BEGIN, &still).expect("a write works");
        Bed { daemons, hosts, rng: Rng::new(seed), still, array, is_up, seed }
    }

    /// An array that `braid up` runs. One of the hosts is its own.
    fn with_up() -> Bed {
        let array = up();
        let (host, other) = array.host();
        let hosts = vec![array.nbd(), other];
        Bed::new(array, true, vec![host], hosts)
    }

    /// An array of daemons that were started one by one: a change that was interrupted is settled by commands alone.
    fn of_daemons() -> Bed {
        let mut array = up();
        let mut daemons = array.start_daemons();
        let mut hosts = Vec::new();
        for name in ["nbd-0", "nbd-1"] {
            let host = array.daemon(name, &["nbd", "--listen", "127.0.0.1:0"]);
            hosts.push(text(&host.ready["volumes"][0]["nbd"]));
            daemons.push(host);
        }
        Bed::new(array, false, daemons, hosts)
    }

    /// Starts changes of each kind and kills them, under load.
    fn kill_changes(mut self, kills: usize) {
        let unclaimed = self.unclaimed();
        // Writers expect zeros where they begin.
        for (kind, begin) in [(Kind::Ordering, 100), (Kind::Migration, STILL_BEGIN / 2)] {
            println!("{kind:?}");
            self.kill_changes_of(kind, kills, begin);
        }
        self.assert_nothing_left(&unclaimed);
    }

    fn kill_changes_of(&mut self, kind: Kind, kills: usize, begin: u64) {
        let load = self.load(begin, false);
        load.go_on();
        // As long as a change takes, so that kills hit all of it.
        let begun = Instant::now();
        match kind {
            Kind::Ordering => self.change_ordering_to("device-lock"),
            Kind::Migration => self.move_to(1),
        }
        let whole = begun.elapsed();
        let (mut found, mut pauses) = (BTreeMap::<String, usize>::new(), Vec::new());
        // Every run hits these, however few kills it has.
        let ends = if kind == Kind::Migration { &[false, true][..] } else { &[false] };
        let mut wanted: Vec<Stage> = ends.iter().map(|is_end| Stage { is_committed: true, is_end: *is_end }).collect();
        let mut killed = 0;
        while killed < kills || !wanted.is_empty() {
            assert!(killed < kills + 50, "{wanted:?} is never hit: {found:?}");
            if self.is_up || self.described().hold.is_none() {
                load.go_on();
                load.take_longest();
            }
            let before = self.described();
            let (state, was_killed) = self.kill_one(kind, &before, whole, wanted.last().copied());
            if !was_killed {
                continue;
            }
            wanted.pop_if(|stage| stage.has_begun(&state));
            killed += 1;
            *found.entry(state.name()).or_default() += 1;
            // Once in a while the command that settles is killed, too.
            if killed < kills && wanted.is_empty() && self.rng.chance(1, 4) {
                continue;
            }
            self.settle(kind, &state);
            load.go_on();
            pauses.push(load.take_longest());
            if soak() {
                self.verify_still();
            }
        }
        pauses.sort();
        println!("the kills found the volume: {found:?}; {whole:?} is one change");
        println!("pauses of writers: {pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= PAUSE_MAX), "{pauses:?}");
        let mut record = load.stop();
        println!("{} operations of clients were verified", record.operations);
        for uri in &self.hosts {
            record.verify(uri);
        }
        self.verify_still();
        self.array.assert_sound("vol0");
    }

    /// Writers that use both hosts, and share blocks.
    fn load(&self, begin: u64, hosts_may_go: bool) -> Load {
        Load::start(Plan { begin, hosts_may_go, seed: self.seed, ..Plan::of(&self.hosts) })
    }

    /// Kills all processes. Returns what they leave.
    fn kill_all(&mut self, found: &Described) -> Described {
        self.daemons.drain(..).for_each(Daemon::kill);
        self.array.kill();
        let left = self.described();
        println!("all processes are killed: {} before, {} now", found.name(), left.name());
        left
    }

    /// Starts `braid up` and the other host again.
    fn restart(&mut self) {
        self.array.start(&[]);
        let (host, other) = self.array.host();
        (self.daemons, self.hosts) = (vec![host], vec![self.array.nbd(), other]);
    }

    /// Starts one change, and kills it at a random moment, or at the beginning of the stage `wanted`. Returns what it leaves, and false if it
    /// had ended before.
    fn kill_one(
        &mut self,
        kind: Kind,
        before: &Described,
        whole: Duration,
        wanted: Option<Stage>,
    ) -> (Described, bool) {
        let arguments = match kind {
            Kind::Ordering => {
                let others: Vec<_> = ORDERINGS.into_iter().filter(|other| *other != before.ordering).collect();
                let to = others[self.rng.below(others.len() as u64) as usize];
                ["volume", "set-ordering", "vol0", to].map(str::to_string).to_vec()
            }
            Kind::Migration => self.migration(before),
        };
        // At any moment, or soon after a stage has begun: the stages are short, and most kills would miss them.
        let upon = self.rng.chance(1, 2).then(|| Stage {
            is_committed: self.rng.chance(2, 3),
            is_end: before.target.is_some() || kind == Kind::Migration && self.rng.chance(1, 2),
        });
        let within = if upon.is_some() { STAGE_MAX } else { whole };
        let moment = within.mul_f64(self.rng.below(1100) as f64 / 1000.0);
        let (upon, moment) = if wanted.is_some() { (wanted, Duration::ZERO) } else { (upon, moment) };
        self.kill_at(&arguments, upon, moment)
    }

    /// Starts a command, and kills it: this long after it has started, or has come to a stage. Returns what it leaves, and false if it had
    /// ended before.
    fn kill_at(&self, arguments: &[String], upon: Option<Stage>, moment: Duration) -> (Described, bool) {
        let mut command = self.array.command(&["--json"]);
        command.args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("braid can be started");
        upon.iter().for_each(|stage| self.await_stage(&mut child, *stage));
        std::thread::sleep(moment);
        let had_ended = child.try_wait().expect("it can be asked").is_some();
        child.kill().expect("it was not waited for, or has ended");
        let output = child.wait_with_output().expect("it can be waited for");
        let after = self.described();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let ended = if had_ended { "had ended; " } else { "" };
        println!("{arguments:?} {moment:?} after {upon:?}: {ended}{}", after.name());
        if had_ended && !output.status.success() {
            let said: Value = serde_json::from_str(&said).unwrap_or_default();
            assert!(has_to_wait(&said), "{arguments:?}: {said} {}", String::from_utf8_lossy(&output.stderr));
        }
        (after, !had_ended)
    }

    /// Waits until a change has come to a stage, or has ended.
    fn await_stage(&self, child: &mut Child, stage: Stage) {
        while !stage.has_begun(&self.described()) && child.try_wait().expect("it can be asked").is_none() {
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    /// A command that begins a migration, or continues or aborts the one under way: by the state that it finds once an interrupted change is
    /// settled.
    fn migration(&mut self, before: &Described) -> Vec<String> {
        let before = before.settled();
        let migrate =
            |more: &[&str]| [&["volume", "migrate", "vol0"], more].concat().iter().map(|w| w.to_string()).collect();
        if before.target.is_some() {
            return if self.rng.chance(1, 2) { migrate(&[]) } else { migrate(&["--abort"]) };
        }
        let others: Vec<_> = PLACES.iter().filter(|place| Place::of(place) != before.place).collect();
        let (layout, unit, _, devices) = others[self.rng.below(others.len() as u64) as usize];
        let to = ["--layout", layout, "--unit", unit, "--devices", devices];
        // Some take longer, so that they are killed while they copy.
        let rate: &[&str] = if self.rng.chance(1, 2) { &["--rate", "8MiB"] } else { &[] };
        migrate(&[&to[..], rate].concat())
    }

    /// Runs the next command after a change was killed, and checks what becomes of that.
    fn settle(&mut self, kind: Kind, found: &Described) {
        let mut expected = found.settled();
        let change = found.hold.as_ref().map(|hold| &hold.change);
        match (kind, expected.target.clone(), change) {
            (Kind::Ordering, ..) => {
                let said = self.next(&["volume", "set-ordering", "vol0", &expected.ordering]);
                assert_eq!(said["changed"], false, "{found:?}");
            }
            (Kind::Migration, Some(target), _) => match self.rng.below(3) {
                0 => {
                    self.next(&["volume", "migrate", "vol0", "--abort"]);
                    expected.target = None;
                }
                1 => {
                    self.next(&["volume", "migrate", "vol0"]);
                    (expected.place, expected.target) = (target, None);
                }
                _ => {
                    self.next(&target.migrate());
                    (expected.place, expected.target) = (target, None);
                }
            },
            // It was reverted, and begins again.
            (Kind::Migration, None, Some(Change::Move(target))) => {
                expected.place = Place::described(target);
                self.next(&expected.place.migrate());
            }
            (Kind::Migration, None, Some(Change::EndMove)) => self.end(&["volume", "migrate", "vol0"], "no-target"),
            (Kind::Migration, None, Some(Change::GiveUpMove)) => {
                self.end(&["volume", "migrate", "vol0", "--abort"], "not-moving");
            }
            (Kind::Migration, None, _) => {}
        }
        self.assert_is(&expected);
    }

    /// Folder and status say this of the volume.
    #[track_caller]
    fn assert_is(&self, expected: &Described) {
        assert_eq!(self.described(), *expected);
        let volume = self.volume_shown();
        assert_eq!(volume["ordering"], expected.ordering, "{volume:#}");
        assert_eq!(volume["layout"], expected.place.layout, "{volume:#}");
    }

    /// Runs a command that ends a migration, unless the process that runs the array has done it: then the command says so.
    #[track_caller]
    fn end(&self, arguments: &[&str], over: &str) {
        let outcome = self.outcome_of(arguments);
        if outcome.status == Some(0) || outcome.json()["error"]["code"] != over {
            outcome.done();
        }
    }

    /// Runs a command, which must succeed once no killed one has a lease. Returns its output.
    #[track_caller]
    fn next(&self, arguments: &[impl AsRef<str>]) -> Value {
        self.outcome_of(arguments).done().json()
    }

    fn outcome_of(&self, arguments: &[impl AsRef<str>]) -> Outcome {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let begun = Instant::now();
        loop {
            let outcome: Outcome = self.array.braid(&arguments);
            let refused = outcome.status.is_some_and(|status| status > 0) && has_to_wait(&outcome.json());
            if !refused || begun.elapsed() > REFUSED_MAX {
                println!("    then {arguments:?}: {:?} after {:?}", outcome.status, begun.elapsed());
                return outcome;
            }
            std::thread::sleep(LEASE / 20);
        }
    }

    fn change_ordering_to(&self, ordering: &str) {
        self.next(&["volume", "set-ordering", "vol0", ordering]);
    }

    fn move_to(&self, place: usize) {
        self.next(&Place::of(&PLACES[place]).migrate());
    }

    fn described(&self) -> Described {
        Described::of(&self.array.description()["volumes"][0])
    }

    /// What `braid status` says of the volume.
    fn volume_shown(&self) -> Value {
        if !self.is_up {
            // It can't tell whether daemons serve that it did not start.
            let outcome = self.array.braid(&["status"]);
            assert_eq!(outcome.status, Some(3), "{outcome}");
            return outcome.json()["volumes"][0].clone();
        }
        let volume = self.array.status()["volumes"][0].clone();
        assert_eq!(volume["state"], "healthy", "{volume:#}");
        volume
    }

    /// The blocks that no object has, on each device. Only `braid up` tells.
    fn unclaimed(&self) -> Vec<u64> {
        if !self.is_up {
            return Vec::new();
        }
        let status = self.array.status();
        let devices = items(&status["devices"]).to_vec();
        devices.iter().map(|device| number(&device["counters"]["blocks_unclaimed"])).collect()
    }

    fn verify_still(&self) {
        for uri in &self.hosts {
            let there = Client::open(uri).read(STILL_BEGIN, self.still.len()).expect("a read works");
            assert!(there == self.still, "content that no client changed is the same");
        }
    }

    /// The volume has its place, and no device has anything else: at home as at the beginning, and at two devices alone.
    fn assert_nothing_left(mut self, unclaimed: &[u64]) {
        if self.described().place != Place::of(&PLACES[0]) {
            self.move_to(0);
        }
        assert_eq!(self.unclaimed(), unclaimed, "as much space is free as at the beginning");
        self.move_to(1);
        self.verify_still();
        self.array.assert_sound("vol0");
        // On a busy machine a lease may be late for a moment.
        let is_healthy = || number(&self.array.braid(&["doctor"]).json()["errors"]) == 0;
        wait_until("the doctor finds no error", REFUSED_MAX, is_healthy);
        // Hosts end first.
        while let Some(daemon) = self.daemons.pop() {
            daemon.end(Signal::TERM);
        }
        if self.is_up {
            self.array.down();
        }
        for device in 0..5 {
            let file = self.array.device_file(device);
            let found = braid(&["device", "check", path_text(&file), "--json"]).done().json();
            let has_part = Place::of(&PLACES[1]).devices.contains(&(device as u16));
            assert_eq!(number(&found["objects"]), u64::from(has_part), "device {device}: {found}");
            assert_eq!(number(&found["undecided"]), 0, "device {device}: {found}");
        }
    }
}

impl Described {
    fn of(entry: &Value) -> Described {
        let entry: VolumeEntry = serde_json::from_value(entry.clone()).expect("it describes a volume");
        let VolumeEntry { layout, unit, devices, ordering, moving, state, .. } = entry;
        let hold = match state {
            VolumeState::Draining { to: change, .. } => Some(Hold { is_committed: false, change }),
            VolumeState::Reordering { to: change, .. } => Some(Hold { is_committed: true, change }),
            _ => None,
        };
        let place = Place { layout, unit, devices: devices.into_iter().collect() };
        Described { ordering, place, target: moving.as_ref().map(Place::described), hold }
    }

    /// The same, once a change that was interrupted is completed or reverted.
    fn settled(&self) -> Described {
        let mut settled = Described { hold: None, ..self.clone() };
        if let Some(Hold { is_committed: true, change }) = self.hold.clone() {
            match change {
                Change::Ordering(to) => settled.ordering = to,
                Change::Move(to) => settled.target = Some(Place::described(&to)),
                Change::EndMove => settled.place = settled.target.take().expect("a migration that ends was under way"),
                Change::GiveUpMove => settled.target = None,
                Change::Grow(_) => unreachable!("no volume grows here"),
            }
        }
        settled
    }

    /// The state, in words.
    fn name(&self) -> String {
        let Some(Hold { is_committed, change }) = &self.hold else {
            return if self.target.is_some() { "moving" } else { "ready" }.to_string();
        };
        let change = match change {
            Change::Ordering(_) => "ordering",
            Change::Move(_) => "move",
            Change::EndMove => "end of move",
            Change::GiveUpMove => "abort of move",
            Change::Grow(_) => "growth",
        };
        format!("{} for {change}", if *is_committed { "reordering" } else { "draining" })
    }
}

impl Stage {
    fn has_begun(self, described: &Described) -> bool {
        described.hold.as_ref().is_some_and(|hold| {
            let is_end = matches!(hold.change, Change::EndMove | Change::GiveUpMove);
            hold.is_committed == self.is_committed && is_end == self.is_end
        })
    }
}

impl Place {
    fn of((layout, _, unit, devices): &(&str, &str, u64, &str)) -> Place {
        let devices = devices.split(',').map(|device| device.parse().expect("a number")).collect();
        Place { layout: layout.to_string(), unit: *unit, devices }
    }

    fn described(target: &PlacementEntry) -> Place {
        Place { layout: target.layout.clone(), unit: target.unit, devices: target.devices.iter().copied().collect() }
    }

    /// The command that moves the volume there.
    fn migrate(&self) -> Vec<String> {
        let devices: Vec<String> = self.devices.iter().map(u16::to_string).collect();
        let (unit, devices) = (self.unit.to_string(), devices.join(","));
        let words = ["volume", "migrate", "vol0", "--layout", &self.layout, "--unit", &unit, "--devices", &devices];
        words.map(str::to_string).to_vec()
    }
}

/// True if a command was refused for now: a change that was killed before holds the volume until the end of its lease; or a device was out
/// for a moment, because the machine is busy.
fn has_to_wait(said: &Value) -> bool {
    said["error"]["code"] == "volume-reordering" || said["error"]["code"] == "volume-degraded"
}

fn up() -> Array {
    // During a migration a device reserves space for the source, the target, and the gap between them.
    let volume = if soak() { "vol0:32MiB" } else { "vol0:12MiB" };
    Array::of_processes(&["--size", "256MiB", "--volume", volume, "--unit", "4KiB"])
}
