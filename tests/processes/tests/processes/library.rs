//! The library `braid-client`: its examples, its deadlines, and futures that are dropped.

use crate::prelude::*;
use braid_client::Array as Client;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

const SECOND: Duration = Duration::from_secs(1);
/// On a busy machine, a call may return so much later than its deadline.
const LATE_MAX: Duration = Duration::from_secs(3);

#[test]
fn the_examples_run_and_do_what_they_say() {
    let array = Array::small();
    let variable = format!("BRAID_ARRAY={}", array.dir().display());
    let said =
        |name: &str| run("env", &[&variable, example(name).to_str().expect("our paths are plain")]).done().stdout;
    let expect = |name: &str, line: &str| {
        let all = said(name);
        assert!(all.lines().any(|said| said.contains(line)), "{name} does not say '{line}':\n{all}");
    };
    expect("counter", "counted to Some(10)");
    expect("volume", "it is what was written: true");
    expect("leader", "the first one is told: too late");
    // Two programs use one lock, and read and write one number in a file.
    std::thread::scope(|scope| {
        scope.spawn(|| expect("lock", "counted to"));
        expect("lock", "counted to");
    });
    let counted = array.braid(&["object", "read", "0:1000"]).done().json()["data"]["text"].to_string();
    assert!(counted.contains("40 so far"), "no count is lost: {counted}");
}

#[test]
fn a_program_administers_an_array_through_the_library() {
    let scratch = Scratch::new();
    let (dir, program, example) = (scratch.text("array"), braid_bin(), example("administer"));
    let arguments = [dir.as_str(), program.to_str().expect("our paths are plain")];
    let said = run(example.to_str().expect("our paths are plain"), &arguments).done().stdout;
    let lines: Vec<&str> = said.lines().collect();
    for line in [
        "created volume example: 1048576 bytes",
        "device 0: healthy",
        "volume example: healthy, nbd://",
        "event throttle-changed: ",
        "deleted volume example",
    ] {
        assert!(lines.iter().any(|said| said.starts_with(line)), "it does not say '{line}':\n{said}");
    }
    assert_eq!((lines.first(), lines.last()), (Some(&"the array is up"), Some(&"the array is down")));
    let list = braid(&["volume", "list", "--array", &dir, "--json"]).done().json();
    let volumes: Vec<_> = list["volumes"].as_array().into_iter().flatten().map(|volume| &volume["name"]).collect();
    assert_eq!(volumes, ["first"], "all is as before");
    assert_eq!(braid(&["status", "--array", &dir]).status, Some(3), "nothing runs");
}

/// Cargo puts the examples beside the folder of the tests, when it builds the workspace's tests.
pub fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its file");
    let path = own.ancestors().nth(2).expect("tests lie in deps").join("examples").join(name);
    assert!(
        path.exists(),
        "{} is not there: `cargo build -p braid-client -p braid-admin --examples` makes it",
        path.display()
    );
    path
}

const COUNT: AttributeName = AttributeName::new(1, 1);
const OTHER: AttributeName = AttributeName::new(1, 2);

#[test]
fn calls_end_with_a_typed_error_within_their_deadline_and_those_that_are_dropped_happen_once_or_not_at_all() {
    let array = Array::of_processes(&SMALL);
    let pid = array.device_pid(1);
    wait(async {
        let library = Client::connect(ArrayOptions::at(array.dir()).name("library")).await.expect("the array is up");
        let object = library.device(1).create().await.expect("the device serves");
        // Each step is quick, but not all together: the deadline covers all steps.
        let short = object.within(SECOND / 3);
        object.truncate(1 << 30).await.expect("holes take no room");
        times_out(SECOND / 3, short.read(0, 1 << 30)).await;

        let stopped = Stopped::new(pid);
        let object = object.within(SECOND);
        times_out(SECOND, object.fetch_and_add(COUNT, 1)).await;
        times_out(SECOND, object.get(COUNT)).await;
        times_out(SECOND, object.write(0, vec![1; 1 << 20])).await;
        times_out(SECOND, object.attributes(None)).await;
        times_out(SECOND, object.space().list()).await;
        drop(stopped);
        let object = object.within(30 * SECOND);
        object.set(OTHER, "x").await.expect("the device serves again");
        let count = object.get(COUNT).await.expect("it serves").as_i64();
        assert!(matches!(count, None | Some(0) | Some(1)), "what timed out has happened once or not: {count:?}");
        futures_are_dropped(&array, &library).await;
        library.close().await;

        // Another process holds the lock of the array's folder.
        let lock = std::fs::File::open(array.dir().join("lock")).expect("arrays have a lock");
        flock(&lock, FlockOperation::LockExclusive).expect("the lock is held briefly");
        times_out(SECOND, Client::connect(ArrayOptions::at(array.dir()).deadline(SECOND))).await;
    });
}

async fn times_out<T>(deadline: Duration, call: impl Future<Output = Result<T, Error>>) {
    let begun = Instant::now();
    let error = call.await.err().expect("it can't be done in time");
    let took = begun.elapsed();
    assert!(matches!(error, Error::TimedOut { .. }) && error.may_have_happened(), "{error:?}");
    assert!(took >= deadline * 9 / 10 && took < deadline + LATE_MAX, "it took {took:?} of {deadline:?}");
}

/// A request of a dropped future happens once or not at all.
async fn futures_are_dropped(array: &Array, library: &Client) {
    const ROUNDS: u32 = 200;
    let object = library.device(1).create().await.expect("the device serves");
    for round in 0..ROUNDS {
        let ask = object.request().fetch_and_add(AttributeName::new(2, round), 1).append("x").send();
        abandon(ask, Duration::from_micros(u64::from(round % 8) * 200));
        if round == ROUNDS / 2 {
            // Requests under way are resent when the device is back.
            array.kill_device(1);
        }
        object.fetch_and_add(COUNT, 1).await.expect("a waiting call is answered");
    }
    // Earlier requests have been executed by now, or are in transit; this host's next request is behind them.
    object.within(10 * SECOND).set(OTHER, "x").await.expect("the array continues");
    let mut done = 0;
    for (name, _) in object.attributes(Some(2)).await.expect("the device serves") {
        assert_eq!(object.get(name).await.expect("it exists").as_i64(), Some(1), "{name:?}: once");
        done += 1;
    }
    let appended = object.stat().await.expect("it exists").length;
    println!("{done} of {ROUNDS} have happened");
    assert_eq!(appended, done, "each of them wholly");
    assert!(done > 0, "some were asked in time");
    let counted = object.get(COUNT).await.expect("it exists").as_i64();
    assert_eq!(counted, Some(i64::from(ROUNDS)), "other operations are not affected");
}

/// Polls a call for a while, and drops it.
fn abandon(call: impl Future, after: Duration) {
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    if call.as_mut().poll(&mut context).is_pending() {
        std::thread::sleep(after);
    }
}
