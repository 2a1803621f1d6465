//! Peers that do what no node does: which of their frames reach a machine, whose answers they get, and what others notice of them.

mod toy;

use braid_base::{DeviceId, Epoch, Generation, LockServerId, NodeId, ObjectId, Time, TransactionId};
use braid_shell::{Address, EngineChoice};
use braid_wire::frame::HEADER_BYTES;
use braid_wire::{Answer, Frame, Message, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest, Partial, Reply};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use toy::{ARRAY, Folder, LONG, MIB, Running, connect, echo_of, in_time, large_read_of, start_device, wait_until};

const DEVICE: NodeId = NodeId::Device(DeviceId(0));

#[tokio::test]
async fn a_message_that_its_sender_may_not_send_ends_the_connection() {
    let (_folder, address, device) = device("kinds").await;
    let transaction = TransactionId { host: Generation(5), sequence: 1 };
    let partial = Partial { epoch: Epoch(1), transaction, object: ObjectId(1), pieces: Vec::new() };
    let lease = MonitorReply::Lease {
        sent: Time(1),
        length: Duration::from_secs(4),
        throttle: Default::default(),
        stamps: Default::default(),
        level: Default::default(),
    };
    let lease = MonitorAnswer { membership: None, unavailable: Vec::new(), reply: lease };
    let reply = Reply::Written { transaction, waited: false };
    let answer = Answer { epoch: Epoch(1), confirmed: Vec::new(), reply };
    let fence = MonitorCommand::Fence { ticket: 1, below: Generation(9), except: Vec::new(), also: Vec::new() };
    let fence = MonitorRequest { epoch: Epoch(1), command: fence };
    let host = NodeId::Host(Generation(5));
    let refused = [
        (NodeId::Monitor, Message::MonitorAnswer(lease)),
        (host, Message::Partial(partial)),
        (NodeId::Device(DeviceId(1)), Message::Answer(answer)),
        (NodeId::Device(DeviceId(1)), echo_of(5)),
        (NodeId::LockServer(LockServerId(0)), echo_of(5)),
        (host, Message::MonitorRequest(fence)),
    ];
    for (index, (from, message)) in refused.into_iter().enumerate() {
        let mut stream = connect(&address).await;
        stream.write_all(&encode(from, message)).await.expect("sent");
        let mut rest = Vec::new();
        in_time(stream.read_to_end(&mut rest)).await.expect("closed");
        assert_eq!((rest.len(), device.counters.value("connections_refused")), (0, index as u64 + 1), "case {index}");
    }
    assert_eq!(device.counters.value("inputs"), 0, "none of them reached the machine");
    device.stop().await;
}

#[tokio::test]
async fn a_newcomer_gets_no_answers_of_a_host_that_is_connected() {
    let (_folder, address, device) = device("newcomer").await;
    let (mut owner, mut newcomer) = (connect(&address).await, connect(&address).await);
    assert!(is_answered(&mut owner, 5).await);
    newcomer.write_all(&encode(NodeId::Host(Generation(5)), echo_of(5))).await.expect("sent");
    wait_until(|| device.counters.value("frames_received") == 2).await;
    for _ in 0..20 {
        assert!(is_answered(&mut owner, 5).await);
    }
    assert_eq!(device.counters.value("frames_sent"), 21, "the newcomer's request has not reached the machine");
    // The host itself has a second connection for a moment whenever it reconnects: what it sent meanwhile is not lost.
    drop(owner);
    read_answer(&mut newcomer).await;
    assert!(is_answered(&mut newcomer, 5).await);
    device.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_waits_in_vain_is_disconnected() {
    let (_folder, address, device) = device("in-vain").await;
    let (mut owner, mut newcomer) = (connect(&address).await, connect(&address).await);
    assert!(is_answered(&mut owner, 5).await);
    newcomer.write_all(&encode(NodeId::Host(Generation(5)), echo_of(5))).await.expect("sent");
    let closed = tokio::spawn(async move {
        let mut rest = Vec::new();
        newcomer.read_to_end(&mut rest).await.expect("closed");
        rest.len()
    });
    let begun = Instant::now();
    while !closed.is_finished() {
        assert!(is_answered(&mut owner, 5).await);
        sleep(Duration::from_millis(500)).await;
        assert!(begun.elapsed() < LONG, "the newcomer is still connected");
    }
    assert_eq!(closed.await.expect("no panic"), 0);
    device.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_has_its_route_back_when_the_connection_that_took_it_ends() {
    let (_folder, address, device) = device("route-back").await;
    let mut first = connect(&address).await;
    assert!(is_answered(&mut first, 5).await);
    sleep(Duration::from_secs(8)).await;
    let mut second = connect(&address).await;
    assert!(is_answered(&mut second, 5).await, "the first connection was silent for longer than a living host");
    drop(second);
    for _ in 0..20 {
        assert!(is_answered(&mut first, 5).await);
    }
    device.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_trickles_its_first_frame_is_disconnected_after_ten_seconds() {
    let (_folder, address, device) = device("trickle").await;
    let frame = encode(NodeId::Host(Generation(5)), echo_of(5));
    let (mut read, mut write) = connect(&address).await.into_split();
    let begun = Instant::now();
    let closed = tokio::spawn(async move {
        let mut rest = Vec::new();
        let _ = read.read_to_end(&mut rest).await;
    });
    for byte in &frame {
        if closed.is_finished() {
            break;
        }
        // The connection may be closed at any moment.
        let _ = write.write_all(std::slice::from_ref(byte)).await;
        sleep(Duration::from_secs(1)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    device.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_its_answers_is_disconnected() {
    let (_folder, address, device) = device("unread").await;
    let mut stream = connect(&address).await;
    let begun = Instant::now();
    let mut sequence = 0;
    while device.counters.value("connections_refused") == 0 {
        // It sends heartbeats, so to speak, and reads that are answered with much.
        sequence += 1;
        let _ = stream.write_all(&encode(NodeId::Host(Generation(5)), large_read_of(5, sequence))).await;
        // The clock stands still until the disk has read. Further requests are not read.
        let counted = |name| device.counters.value(name);
        wait_until(|| counted("frames_sent") >= sequence.min(2) || counted("connections_refused") > 0).await;
        sleep(Duration::from_millis(500)).await;
        assert!(begun.elapsed() < 2 * LONG, "it is still connected");
    }
    assert!(begun.elapsed() >= Duration::from_secs(10), "a moment's pause is no harm");
    device.stop().await;
}

#[tokio::test]
async fn requests_of_a_peer_that_does_not_read_wait() {
    let (_folder, address, device) = device("congested").await;
    let mut stream = connect(&address).await;
    let answered = || device.counters.value("frames_sent") + device.counters.value("dropped_full");
    // Each after the answer to the one before, until one is not answered.
    let mut sequence = 0;
    loop {
        sequence += 1;
        stream.write_all(&encode(NodeId::Host(Generation(5)), large_read_of(5, sequence))).await.expect("sent");
        let waiting = async {
            while answered() < sequence {
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(Duration::from_millis(500), waiting).await.is_err() {
            break;
        }
        assert!(sequence < 20, "the device reads its disk for a peer that does not read");
    }
    assert_eq!(device.counters.value("dropped_full"), 0);
    // Once it reads, everything comes.
    for _ in 0..sequence {
        in_time(read_answer(&mut stream)).await;
    }
    device.stop().await;
}

async fn device(name: &str) -> (Folder, Address, Running) {
    let folder = Folder::new(&format!("hostile-{name}"));
    let file = folder.file("disk", 8 * MIB);
    let (address, device) = start_device(0, &file, &Address::loopback(0), EngineChoice::Threads).await;
    (folder, address, device)
}

fn encode(from: NodeId, message: Message) -> Vec<u8> {
    toy::encode(ARRAY, from, DEVICE, message)
}

/// Sends a request as this host; true if it is answered.
async fn is_answered(stream: &mut TcpStream, host: u32) -> bool {
    stream.write_all(&encode(NodeId::Host(Generation(host)), echo_of(host))).await.expect("sent");
    timeout(LONG, read_answer(stream)).await.is_ok()
}

async fn read_answer(stream: &mut TcpStream) {
    let mut header = vec![0; HEADER_BYTES];
    stream.read_exact(&mut header).await.expect("an answer");
    let length = Frame::header(&header).expect("valid").expect("whole").frame_bytes - HEADER_BYTES;
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await.expect("all of it");
}
