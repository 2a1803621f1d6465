//! Clients that lose their connection and reconnect: no earlier request of a client takes effect after the answer to a request on its new
//! connection.

use crate::prelude::*;

/// The size of each write.
const BLOCK: usize = 4096;
/// Writes in flight when the connection ends.
const IN_FLIGHT: usize = 16;
/// The same, where the other connection is open already: so few that the end of the connection reaches the server's socket at once. The
/// server can't know of an end that waits behind data for which its socket has no room.
const IN_FLIGHT_OF_TWO: usize = 3;
/// How long a device is suspended: shorter than its lease, so that it stays in.
const STALL: Duration = Duration::from_millis(400);
/// How long the test looks for older content. A write that was refused is retried sooner.
const LOOK: Duration = Duration::from_millis(700);
/// The time limit of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_client_that_reconnects_is_never_overtaken_by_its_own_older_writes() {
    let array = Array::of_processes(&SMALL);
    let devices = array.first_device_pids();
    // Reads of the other host make writes lose, so that they are retried with higher stamps.
    let (_other, other) = array.host();
    let ended = AtomicBool::new(false);
    let trials = if soak() { 60 } else { 10 };
    let overtaken = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reader = Client::open(&other);
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                for trial in 0..4 {
                    reader.read(trial * BLOCK as u64, BLOCK).expect("a read works");
                }
                rest(begun.elapsed());
            }
        });
        let overtaken: Vec<usize> = (0..trials)
            .filter(|trial| {
                let offset = (trial % 4 * BLOCK) as u64;
                let (older, newer) = (vec![2 * *trial as u8 + 1; BLOCK], vec![2 * *trial as u8 + 2; BLOCK]);
                let mut first = Client::open(&array.nbd());
                let mut second = Client::open(&array.nbd());
                let stopped = Stopped::new(devices[trial % devices.len()]);
                for _ in 0..if trial % 2 == 0 { IN_FLIGHT } else { IN_FLIGHT_OF_TWO } {
                    first.send_write(offset, &older).expect("it can be sent");
                }
                drop(first);
                if trial % 2 == 0 {
                    second = Client::open(&array.nbd());
                }
                let begun = Instant::now();
                let cookie = second.send_write(offset, &newer).expect("it can be sent");
                std::thread::sleep(STALL);
                drop(stopped);
                assert_eq!(second.reply().expect("an answer comes"), (cookie, 0), "trial {trial}");
                assert!(begun.elapsed() < REQUEST_LIMIT, "trial {trial} took {:?}", begun.elapsed());
                let answered = Instant::now();
                let mut seen = second.read(offset, BLOCK).expect("a read works");
                while seen == newer && answered.elapsed() < LOOK {
                    rest(Duration::from_millis(1));
                    seen = second.read(offset, BLOCK).expect("a read works");
                }
                assert!(seen == newer || seen == older, "the content is one of the two writes, complete");
                seen == older
            })
            .collect();
        ended.store(true, Ordering::Relaxed);
        reader.join().expect("the reader continues");
        overtaken
    });
    assert_eq!(overtaken, [0usize; 0], "of {trials} trials, in these the older write came last");
    array.assert_sound("vol0");
}

#[test]
fn a_client_that_reconnects_waits_no_longer_than_a_request_may_while_a_device_stands_still() {
    let array = Array::of_processes(&[&SMALL[..], &["--layout", "raid0:5", "--unavailable", "fail"]].concat());
    let stopped = Stopped::new(array.first_device_pids()[0]);
    let mut client = Client::open(&array.nbd());
    let begun = Instant::now();
    // A part of the range lies on the suspended device.
    client.send_write(0, &vec![1; 1 << 20]).expect("it can be sent");
    drop(client);
    let mut client = Client::open(&array.nbd());
    assert!(begun.elapsed() < Duration::from_secs(10), "a connection opens: {:?}", begun.elapsed());
    let _ = client.write(0, &vec![2; 1 << 20]);
    assert!(begun.elapsed() < REQUEST_LIMIT + Duration::from_secs(5), "answered after {:?}", begun.elapsed());
    drop(stopped);
}
