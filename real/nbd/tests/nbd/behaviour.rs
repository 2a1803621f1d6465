//! Misbehaving clients, and the effects of clients on each other.

use crate::running::Running;
use crate::wire::{Client, DISC, READ, WRITE, header};
use braid_nbd::{BindError, Server, Settings};
use braid_shell::{Address, BUDGET_MIN, Budget};
use std::time::Duration;
use tokio::sync::watch;

/// Longer than the slowest machine takes; a test that reaches it has failed.
const PATIENCE: Duration = Duration::from_secs(20);

fn start() -> Running {
    Running::start(Settings::default())
}

/// Waits until this many requests wait at the gate.
fn await_waiting(server: &Running, count: usize) {
    await_count(&server.backend.waiting, count);
}

fn await_count(counter: &watch::Sender<usize>, count: usize) {
    let mut counted = counter.subscribe();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let counted = async { tokio::time::timeout(PATIENCE, counted.wait_for(|now| *now == count)).await };
    assert!(runtime.block_on(counted).is_ok(), "not {count}, but {}", *counter.borrow());
}

fn assert_works(client: &mut Client) {
    client.send(&[header(WRITE, 1, 4095, 3), vec![1, 2, 3]].concat());
    assert_eq!(client.reply(), (1, 0));
    client.request(READ, 2, 4094, 5);
    assert_eq!(client.reply(), (2, 0));
    assert_eq!(client.take(5), [0, 1, 2, 3, 0]);
}

#[test]
fn garbage_ends_its_own_connection_only() {
    let server = start();
    let mut good = Client::open(&server.address, "disk");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 64], b"\0\0\0\x03GET / HTTP/1.1\r\n\r\n"] {
        let mut bad = Client::connect(&server.address);
        bad.send(garbage);
        assert_eq!(bad.rest().len(), 18, "after its greeting the server says nothing");
    }
    let mut bad = Client::open(&server.address, "disk");
    bad.send(&[0x77; 64]);
    assert!(bad.rest().is_empty());
    assert_works(&mut good);
}

#[test]
fn a_client_that_stalls_in_the_handshake_is_hung_up_on() {
    let server = Running::start(Settings { handshake_timeout: Duration::from_millis(20), ..Settings::default() });
    let mut good = Client::open(&server.address, "disk");
    let mut bad = Client::connect(&server.address);
    bad.send(b"\0\0\0\x03IHAVE");
    assert_eq!(bad.rest().len(), 18);
    assert_works(&mut good);
}

#[test]
fn half_a_write_is_no_write() {
    let server = start();
    let mut bad = Client::open(&server.address, "disk");
    bad.send(&[header(WRITE, 1, 0, 100_000), vec![0x55; 50_000]].concat());
    bad.finish();
    assert!(bad.rest().is_empty());
    let mut good = Client::open(&server.address, "disk");
    good.request(READ, 1, 0, 100_000);
    assert_eq!(good.reply(), (1, 0));
    assert_eq!(good.take(100_000), vec![0; 100_000]);
}

#[test]
fn a_request_that_waits_holds_up_no_other() {
    let server = start();
    let mut slow = Client::open(&server.address, "stuck");
    slow.request(READ, 1, 0, 512);
    await_waiting(&server, 1);
    assert_works(&mut Client::open(&server.address, "disk"));
    // A second request on the same connection is not held up either: it is refused, and so answered first.
    slow.request(READ, 2, u64::MAX, 512);
    assert_eq!(slow.reply(), (2, 22));
    server.backend.gate.send_replace(true);
    assert_eq!(slow.reply(), (1, 0));
}

#[test]
fn no_more_is_read_from_a_client_than_it_may_have_in_flight() {
    for settings in
        [Settings { requests_max: 4, ..Settings::default() }, Settings { bytes_max: 4 << 10, ..Settings::default() }]
    {
        let server = Running::start(settings);
        let mut client = Client::open(&server.address, "stuck");
        let requests: Vec<u8> = (0..1000).flat_map(|cookie| header(READ, cookie, 0, 1024)).collect();
        client.send(&requests);
        await_waiting(&server, 4);
        server.backend.gate.send_replace(true);
        let mut cookies: Vec<u64> = (0..1000)
            .map(|_| {
                let (cookie, error) = client.reply();
                assert_eq!(error, 0);
                client.take(1024);
                cookie
            })
            .collect();
        cookies.sort();
        assert_eq!(cookies, (0..1000).collect::<Vec<_>>());
    }
}

#[test]
fn a_client_that_leaves_gets_what_it_had_asked_for() {
    let server = start();
    let mut leaving = Client::open(&server.address, "stuck");
    leaving.request(READ, 1, 0, 512);
    leaving.request(DISC, 2, 0, 0);
    await_waiting(&server, 1);
    server.backend.gate.send_replace(true);
    assert_eq!(leaving.rest().len(), 16 + 512);
}

#[test]
fn requests_of_a_client_are_abandoned_when_it_closes_its_connection() {
    let server = start();
    let mut closing = Client::open(&server.address, "stuck");
    closing.request(READ, 1, 0, 512);
    await_waiting(&server, 1);
    closing.finish();
    assert!(closing.rest().is_empty());
    await_waiting(&server, 0);
}

#[test]
fn waiting_requests_are_abandoned_when_their_client_is_gone_even_if_the_server_has_stopped_reading() {
    let stall_timeout = Duration::from_millis(200);
    let server = Running::start(Settings { requests_max: 2, stall_timeout, ..Settings::default() });
    let mut gone = Client::open(&server.address, "stuck");
    let write = |cookie| [header(WRITE, cookie, 0, 3), vec![1; 3]].concat();
    gone.send(&[write(1), write(2), write(3)].concat());
    await_waiting(&server, 2);
    drop(gone);
    // No other client comes.
    await_waiting(&server, 0);
}

#[test]
fn requests_of_a_gone_client_are_abandoned_before_others_of_its_export_are_served() {
    // The server has stopped reading from the first client, and so does not notice that it is gone.
    let server = Running::start(Settings { requests_max: 2, ..Settings::default() });
    let mut gone = Client::open(&server.address, "stuck");
    let mut other = Client::open(&server.address, "stuck");
    let write = |cookie, fill| [header(WRITE, cookie, 0, 3), vec![fill; 3]].concat();
    gone.send(&[write(1, 1), write(2, 1), write(3, 1), write(4, 1)].concat());
    await_waiting(&server, 2);
    drop(gone);
    other.send(&write(1, 2));
    // Only the other client's request is still there.
    await_waiting(&server, 1);
    server.backend.gate.send_replace(true);
    assert_eq!(other.reply(), (1, 0));
    other.request(READ, 2, 0, 3);
    assert_eq!((other.reply(), other.take(3)), ((2, 0), vec![2; 3]));
}

/// A connection whose task has not run since its client was told that the export is open.
#[test]
fn a_write_over_a_connection_that_is_not_served_yet_does_not_undo_that_of_the_next_one() {
    let server = start();
    let write = |cookie, fill| [header(WRITE, cookie, 0, 3), vec![fill; 3]].concat();
    let mut gone = Client::open(&server.address, "late");
    // So much that the end of the connection is not read together with the write.
    let more = [header(WRITE, 2, 1 << 20, 600 << 10), vec![1; 600 << 10]].concat();
    gone.send(&[write(1, 1), more].concat());
    drop(gone);
    let mut other = Client::open(&server.address, "late");
    other.send(&write(1, 2));
    assert_eq!(other.reply(), (1, 0));
    // The first connection has ended.
    await_count(&server.backend.gone, 1);
    other.request(READ, 2, 0, 3);
    assert_eq!((other.reply(), other.take(3)), ((2, 0), vec![2; 3]));
}

#[test]
fn a_client_that_disconnects_is_not_abandoned_for_others() {
    let server = start();
    let mut leaving = Client::open(&server.address, "stuck");
    leaving.send(&[header(WRITE, 1, 0, 3), vec![1; 3], header(DISC, 2, 0, 0)].concat());
    await_waiting(&server, 1);
    drop(leaving);
    let mut other = Client::open(&server.address, "stuck");
    other.request(READ, 1, 4096, 3);
    await_waiting(&server, 2);
    server.backend.gate.send_replace(true);
    assert_eq!((other.reply(), other.take(3)), ((1, 0), vec![0; 3]));
    await_waiting(&server, 0);
    other.request(READ, 2, 0, 3);
    assert_eq!((other.reply(), other.take(3)), ((2, 0), vec![1; 3]));
}

#[test]
fn a_stop_finishes_what_is_in_flight_and_begins_nothing() {
    let mut server = Running::start(Settings { requests_max: 1, ..Settings::default() });
    let (mut client, mut idle) = (Client::open(&server.address, "stuck"), Client::open(&server.address, "disk"));
    client.send(&[header(READ, 1, 0, 512), header(READ, 2, 0, 512)].concat());
    await_waiting(&server, 1);
    let mut choosing = Client::connect(&server.address);
    server.stop();
    assert!(idle.rest().is_empty(), "it stops");
    assert!(choosing.rest().len() <= 18);
    server.backend.gate.send_replace(true);
    assert_eq!(client.reply(), (1, 0));
    assert_eq!(client.rest().len(), 512);
}

/// A client that reconnects repeats them at the host that follows, which an answer would keep it from.
#[test]
fn requests_that_a_host_gives_up_as_it_ends_get_no_answer() {
    let server = start();
    let mut client = Client::open(&server.address, "ending");
    client.request(READ, 1, 0, 512);
    assert!(client.rest().is_empty());
    assert_works(&mut Client::open(&server.address, "disk"));
}

#[test]
fn a_stop_waits_for_no_client_for_ever() {
    let mut server = Running::start(Settings { stop_timeout: Duration::from_millis(20), ..Settings::default() });
    let mut busy = Client::open(&server.address, "stuck");
    busy.request(READ, 1, 0, 512);
    await_waiting(&server, 1);
    server.stop();
    assert!(busy.rest().is_empty());
    server.join();
}

#[test]
fn clients_that_choose_no_export_do_not_lock_others_out() {
    let server = Running::start(Settings { clients_max: 3, ..Settings::default() });
    let mut first = Client::open(&server.address, "disk");
    let mut idle = [Client::connect(&server.address), Client::connect(&server.address)];
    // Both are being served.
    idle.iter_mut().for_each(|client| drop(client.take(18)));
    let mut second = Client::open(&server.address, "disk");
    assert!(idle[0].rest().is_empty(), "the oldest is disconnected");
    let mut third = Client::open(&server.address, "disk");
    assert!(idle[1].rest().is_empty());
    assert!(Client::connect(&server.address).rest().is_empty(), "now all have chosen");
    [&mut first, &mut second, &mut third].into_iter().for_each(assert_works);
}

#[test]
fn an_idle_client_makes_room_for_a_new_one_and_a_busy_one_does_not() {
    let server = Running::start(Settings { clients_max: 2, idle_min: Duration::ZERO, ..Settings::default() });
    let mut busy = Client::open(&server.address, "stuck");
    busy.request(READ, 1, 0, 512);
    await_waiting(&server, 1);
    let mut idle = Client::open(&server.address, "disk");
    let mut newcomer = Client::open(&server.address, "stuck");
    assert!(idle.rest().is_empty());
    newcomer.request(READ, 1, 0, 512);
    await_waiting(&server, 2);
    assert!(Client::connect(&server.address).rest().is_empty(), "all are busy");
    server.backend.gate.send_replace(true);
    assert_eq!((busy.reply(), newcomer.reply()), ((1, 0), (1, 0)));
}

#[test]
fn a_client_that_does_not_read_its_replies_is_disconnected() {
    let stall_timeout = Duration::from_millis(200);
    let server = Running::start(Settings { stall_timeout, ..Settings::default() });
    let mut deaf = Client::open(&server.address, "disk");
    for cookie in 0..3 {
        deaf.request(READ, cookie, 0, 32 << 20);
    }
    await_count(&server.backend.gone, 1);
    assert!(deaf.rest().len() < 3 << 25);
    assert_works(&mut Client::open(&server.address, "disk"));
}

#[test]
fn a_client_that_does_not_finish_a_request_is_disconnected() {
    let stall_timeout = Duration::from_millis(200);
    let server = Running::start(Settings { stall_timeout, ..Settings::default() });
    let mut slow = Client::open(&server.address, "disk");
    slow.send(&header(WRITE, 1, 0, 4096)[..20]);
    assert!(slow.rest().is_empty());
}

/// Within the smallest budget, clients that read nothing hold a part of it, and others work.
#[test]
fn clients_that_hold_replies_share_a_budget_and_leave_some_to_others() {
    static BUDGET: Budget = Budget::new(BUDGET_MIN);
    let server = Running::start(Settings { budget: &BUDGET, ..Settings::default() });
    let mut deaf: Vec<_> = (0..8).map(|_| Client::open(&server.address, "disk")).collect();
    for client in &mut deaf {
        for cookie in 0..4 {
            client.request(READ, cookie, 0, 8 << 20);
        }
    }
    let mut honest = Client::open(&server.address, "disk");
    for _ in 0..100 {
        assert_works(&mut honest);
        honest.request(READ, 3, 0, 1 << 20);
        assert_eq!(honest.reply(), (3, 0));
        honest.take(1 << 20);
        assert!(BUDGET.used() <= BUDGET_MIN, "{}", BUDGET.used());
    }
    // Whoever reads gets everything.
    for cookie in 0..4 {
        assert_eq!(deaf[0].reply(), (cookie, 0));
        deaf[0].take(8 << 20);
    }
}

#[tokio::test]
async fn an_address_in_use_is_refused() {
    let first = Server::bind(&Address::loopback(0), Settings::default()).await.unwrap();
    let second = Server::bind(first.address(), Settings::default()).await;
    assert!(matches!(second, Err(BindError::InUse { .. })), "{second:?}");
}
