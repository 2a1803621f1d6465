//! Machines over real sockets: which messages arrive, which connections are refused, and how connections are re-established.

mod toy;

use braid_base::{ArrayId, DeviceId, Generation, Level, NodeId};
use braid_machine::HostError;
use braid_shell::{Address, EngineChoice, Listener, unix};
use braid_wire::Hello;
use braid_wire::frame::{HEADER_BYTES, VERSION};
use braid_wire::hello::HELLO_BYTES;
use bytes::Bytes;
use std::future::poll_fn;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use toy::{
    ARRAY, Folder, LONG, MIB, Running, connect, connect_silently, echo, echo_of, encode, greet, in_time, large_read_of,
    read, start_device, start_device_behind, start_host, wait_until, write,
};

/// A device whose disk is a file in a new folder of this name.
async fn device_in(folder: &str, engine: EngineChoice) -> (Folder, Address, Running) {
    let folder = Folder::new(folder);
    let (address, device) = start_device(0, &folder.file("disk", 8 * MIB), &Address::loopback(0), engine).await;
    (folder, address, device)
}

#[tokio::test]
async fn writes_over_tcp_are_read_back() {
    written_is_read_back(Address::loopback(0), "tcp").await;
}

#[tokio::test]
async fn writes_over_a_unix_socket_are_read_back() {
    let folder = Folder::new("unix-socket");
    let path = folder.0.join("socket");
    // A socket file left by a killed process does not matter.
    drop(std::os::unix::net::UnixListener::bind(&path));
    assert!(path.exists());
    written_is_read_back(Address::Unix(path.clone()), "unix").await;
    assert!(!path.exists(), "dropping the listener removes the socket's file");
}

async fn written_is_read_back(address: Address, name: &str) {
    let folder = Folder::new(&format!("read-back-{name}"));
    let (address, device) = start_device(3, &folder.file("disk", 256 * MIB), &address, EngineChoice::Automatic).await;
    let (client, _addresses, host) = start_host(ARRAY, 1, [(3, address)]);
    let mut calls = Vec::new();
    for index in 0..64_u64 {
        let client = client.clone();
        calls.push(tokio::spawn(async move {
            let length = if index % 16 == 0 { 3 * MIB as usize } else { 4096 * (1 + index as usize % 5) };
            let (offset, data) = (index * 4 * MIB, Bytes::from(vec![index as u8 + 1; length]));
            write(&client, 3, offset, data.clone()).await.expect("written");
            assert_eq!(read(&client, 3, offset, length).await, Ok(data));
        }));
    }
    for call in calls {
        in_time(call).await.expect("success");
    }
    host.stop().await;
    assert_eq!(echo(&client, 3).await, Err(HostError::Stopped));
    device.stop().await;
}

/// Messages pass as they are: nothing is encoded.
#[tokio::test]
async fn writes_within_the_process_are_read_back_without_a_socket() {
    let folder = Folder::new("read-back-pipe");
    let file = folder.file("disk", 16 * MIB);
    let mut address = Address::loopback(0);
    let mut host = None;
    for round in 1..=2 {
        // The second listener has the same address: the host reconnects to it.
        let mut listener = Listener::bind(&address).await.expect("a place to listen at");
        listener.open_to_this_process();
        let (at, device) = start_device_behind(listener, 3, &file, EngineChoice::Automatic);
        let (client, _, _) = host.get_or_insert_with(|| start_host(ARRAY, 1, [(3, at.clone())]));
        address = at;
        let data = Bytes::from(vec![round; 3 * MIB as usize]);
        in_time(write(client, 3, 0, data.clone())).await.expect("written");
        assert_eq!(in_time(read(client, 3, 0, data.len())).await, Ok(data));
        let encoded = ["socket_reads", "socket_writes", "bytes_received"].map(|name| device.counters.value(name));
        assert_eq!(encoded, [0; 3]);
        assert!(device.counters.value("frames_received") > 0, "they came through the pipe");
        device.stop().await;
    }
    host.expect("started").2.stop().await;
}

#[tokio::test]
async fn requests_wait_for_the_first_connection_of_a_host() {
    let (_folder, address, device) = device_in("early", EngineChoice::Automatic).await;
    let (client, _addresses, host) = start_host(ARRAY, 1, [(0, address)]);
    assert!(in_time(echo(&client, 0)).await.is_ok());
    assert_eq!(host.counters.value("dropped_unconnected"), 0);
    host.stop().await;
    device.stop().await;
}

#[tokio::test]
async fn a_host_finds_its_device_again_after_a_restart_at_another_address() {
    let folder = Folder::new("restart");
    let file = folder.file("disk", MIB);
    let (address, device) = start_device(0, &file, &Address::loopback(0), EngineChoice::Automatic).await;
    let (client, addresses, host) = start_host(ARRAY, 1, [(0, address.clone())]);
    assert!(in_time(echo(&client, 0)).await.is_ok());
    device.stop().await;

    // At the same address, by trying again.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { echo(&client, 0).await }
    });
    let (_, device) = start_device(0, &file, &address, EngineChoice::Automatic).await;
    assert!(in_time(waiting).await.expect("no panic").is_ok());
    device.stop().await;

    // At another address, by following the new address.
    let (elsewhere, device) = start_device(0, &file, &Address::loopback(0), EngineChoice::Automatic).await;
    addresses.send_replace([(NodeId::Device(DeviceId(0)), elsewhere)].into());
    assert!(in_time(echo(&client, 0)).await.is_ok());
    host.stop().await;
    device.stop().await;
}

#[tokio::test]
async fn an_unacceptable_message_ends_that_connection_and_no_other() {
    let (_folder, address, device) = device_in("garbage", EngineChoice::Automatic).await;
    let (client, _addresses, host) = start_host(ARRAY, 1, [(0, address.clone())]);
    assert!(in_time(echo(&client, 0)).await.is_ok());

    let good = frame(ARRAY, NodeId::Device(DeviceId(0)));
    let damaged = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let two_speakers = {
        let mut bytes = good.clone();
        bytes.extend(frame_of(ARRAY, NodeId::Host(Generation(78)), NodeId::Device(DeviceId(0))));
        bytes
    };
    let refused = [
        b"GET / HTTP/1.1\r\nHost: braid\r\n\r\n".to_vec(),
        vec![0; 100_000],
        damaged(4, 99),
        damaged(12, 255).into_iter().chain([0; 400]).collect(),
        damaged(15, 255),
        damaged(70, 255),
        frame(ArrayId([8; 16]), NodeId::Device(DeviceId(0))),
        frame(ARRAY, NodeId::Device(DeviceId(1))),
        two_speakers,
    ];
    for (index, bytes) in refused.iter().enumerate() {
        let mut stream = connect(&address).await;
        // The connection may be closed before all is sent.
        let _ = stream.write_all(bytes).await;
        assert!(timeout(LONG, stream.read_to_end(&mut Vec::new())).await.is_ok(), "case {index}");
        assert_eq!(device.counters.value("connections_refused"), index as u64 + 1, "case {index}");
    }
    assert!(in_time(echo(&client, 0)).await.is_ok());
    host.stop().await;
    device.stop().await;
}

#[tokio::test]
async fn a_peer_of_a_release_that_is_too_far_away_is_answered_and_refused() {
    let (_folder, address, device) = device_in("release", EngineChoice::Automatic).await;
    let ours = Hello::ours(ARRAY, Level::FIRST);
    let beyond = Level(Level::KNOWN.0 + 1);
    for (index, (hello, answered)) in [
        (Hello { versions: (VERSION + 1, VERSION + 9), ..ours.clone() }, true),
        (Hello { level: beyond, knows: beyond, ..ours.clone() }, true),
        (Hello { array: ArrayId([8; 16]), ..ours.clone() }, false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stream = connect_silently(&address).await;
        stream.write_all(&hello.encode()).await.expect("sent");
        let mut answer = Vec::new();
        in_time(stream.read_to_end(&mut answer)).await.expect("closed");
        assert_eq!(Hello::decode(&answer), Ok(answered.then(|| (ours.clone(), answer.len()))), "case {index}");
        assert_eq!(device.counters.value("connections_refused"), index as u64 + 1, "case {index}");
    }
    // A newer release that speaks this version, too, gets on.
    let mut stream = connect_silently(&address).await;
    let newer = Hello { versions: (VERSION, VERSION + 1), knows: beyond, ..ours };
    stream.write_all(&newer.encode()).await.expect("sent");
    stream.write_all(&frame(ARRAY, NodeId::Device(DeviceId(0)))).await.expect("sent");
    in_time(stream.read_exact(&mut [0; HELLO_BYTES + HEADER_BYTES])).await.expect("an answer");
    device.stop().await;
}

#[tokio::test]
async fn half_a_frame_and_silence_block_no_other_connection() {
    let (_folder, address, device) = device_in("half", EngineChoice::Automatic).await;
    let good = frame(ARRAY, NodeId::Device(DeviceId(0)));
    let mut stalled = Vec::new();
    for length in [1, 3, HEADER_BYTES - 1, HEADER_BYTES, good.len() - 1] {
        let mut stream = connect(&address).await;
        stream.write_all(&good[..length]).await.expect("sent");
        stalled.push(stream);
    }
    let (client, _addresses, host) = start_host(ARRAY, 1, [(0, address.clone())]);
    for _ in 0..50 {
        assert!(in_time(echo(&client, 0)).await.is_ok());
    }
    // A slow frame that is completed is answered.
    let mut slow = stalled.pop().expect("the last");
    slow.write_all(&good[good.len() - 1..]).await.expect("sent");
    let mut header = [0; HEADER_BYTES];
    in_time(slow.read_exact(&mut header)).await.expect("an answer");
    host.stop().await;
    device.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_has_fallen_silent_is_given_up() {
    let (_folder, address, device) = device_in("silent-host", EngineChoice::Threads).await;
    let mut stream = connect(&address).await;
    stream.write_all(&frame(ARRAY, NodeId::Device(DeviceId(0)))).await.expect("sent");
    let begun = tokio::time::Instant::now();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("closed");
    assert!(answer.len() >= HEADER_BYTES);
    assert!(begun.elapsed() >= Duration::from_secs(30), "live hosts may be silent for a while");
    assert_eq!(device.counters.value("connections_refused"), 0);
    device.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_does_not_answer_is_connected_to_anew_and_one_that_was_not_asked_is_not() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = Address::loopback(silent.local_addr().expect("bound").port());
    let (client, _addresses, host) = start_host(ARRAY, 1, [(0, address)]);
    let (mut first, _) = in_time(silent.accept()).await.expect("the host connects");
    greet(&mut first).await;
    assert!(timeout(LONG, silent.accept()).await.is_err(), "silence is normal while no answer is due");
    let call = tokio::spawn(async move { echo(&client, 0).await });
    in_time(silent.accept()).await.expect("the host connects again");
    call.abort();
    drop(host);
}

/// One host does not read its answers: eventually the device drops answers to it, and serves the other host as before.
#[tokio::test]
async fn a_reader_that_stalls_does_not_stall_others() {
    let (_folder, address, device) = device_in("stalled-reader", EngineChoice::Automatic).await;
    let (client, _addresses, host) = start_host(ARRAY, 1, [(0, address.clone())]);

    let mut stalled = connect(&address).await;
    // More than the device keeps for a host. It reads no further requests of this host.
    let (host_77, device_0) = (NodeId::Host(Generation(77)), NodeId::Device(DeviceId(0)));
    let large_reads = encode(ARRAY, host_77, device_0, large_read_of(77, 1)).repeat(12);
    in_time(stalled.write_all(&large_reads)).await.expect("a device reads on");
    wait_until(|| device.counters.value("dropped_full") > 0).await;
    for _ in 0..100 {
        assert!(in_time(echo(&client, 0)).await.is_ok());
    }
    drop(stalled);
    host.stop().await;
    device.stop().await;
}

/// A device that accepts a connection and does not read from it does not delay messages to others.
#[tokio::test]
async fn a_device_that_reads_nothing_does_not_stall_requests_to_others() {
    let (_folder, address, device) = device_in("deaf-device", EngineChoice::Automatic).await;
    let deaf = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let deaf_address = Address::loopback(deaf.local_addr().expect("bound").port());
    let (client, _addresses, host) = start_host(ARRAY, 1, [(0, address), (1, deaf_address)]);
    let (_held, _) = in_time(deaf.accept()).await.expect("the host connects");

    let data = Bytes::from(vec![1; 2 << 20]);
    let writes: Vec<_> = (0..8)
        .map(|_| {
            let (client, data) = (client.clone(), data.clone());
            tokio::spawn(async move { write(&client, 1, 0, data).await })
        })
        .collect();
    wait_until(|| host.counters.value("dropped_full") > 0).await;
    for _ in 0..100 {
        assert!(in_time(echo(&client, 0)).await.is_ok());
    }
    assert!(writes.iter().all(|write| !write.is_finished()));
    drop(host);
    device.stop().await;
}

#[tokio::test]
async fn a_socket_in_use_is_left_alone() {
    let folder = Folder::new("in-use");
    let address = Address::Unix(folder.0.join("socket"));
    let (_, device) = start_device(0, &folder.file("disk", MIB), &address, EngineChoice::Automatic).await;
    let second = braid_shell::Listener::bind(&address).await;
    assert_eq!(second.expect_err("in use").kind(), std::io::ErrorKind::AddrInUse);
    let (client, _addresses, host) = start_host(ARRAY, 1, [(0, address)]);
    assert!(in_time(echo(&client, 0)).await.is_ok());
    host.stop().await;
    device.stop().await;
}

/// An echo request from host 77.
fn frame(array: ArrayId, to: NodeId) -> Vec<u8> {
    frame_of(array, NodeId::Host(Generation(77)), to)
}

fn frame_of(array: ArrayId, from: NodeId, to: NodeId) -> Vec<u8> {
    encode(array, from, to, echo_of(77))
}

/// Lets each client know its number, until the listener is asked to end.
fn serve(mut listener: unix::Listener) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        for number in 0.. {
            let mut stream = poll_fn(|cx| listener.poll_accept(cx)).await.expect("a client");
            let _ = stream.write_u8(number).await;
        }
    })
}

/// Connects until a client is let in at this path.
async fn is_served(path: &Path) -> bool {
    let served = async {
        loop {
            if let Ok(mut stream) = unix::connect(path).await
                && stream.read_u8().await.is_ok()
            {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(3 * Duration::from_secs(1), served).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_listener_whose_file_or_folder_was_removed_listens_again() {
    let folder = Folder::new("listens-again");
    let path = folder.0.join("run/socket");
    std::fs::create_dir(folder.0.join("run")).expect("made");
    let server = serve(unix::Listener::bind(&path).expect("bound"));
    assert!(is_served(&path).await);
    let damages: [&dyn Fn(); 4] = [
        &|| std::fs::remove_file(&path).expect("removed"),
        &|| std::fs::remove_dir_all(folder.0.join("run")).expect("removed"),
        // The socket of a process that has ended.
        &|| {
            std::fs::remove_file(&path).expect("removed");
            drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        },
        &|| std::fs::rename(&path, folder.0.join("moved")).expect("renamed"),
    ];
    for (index, damage) in damages.iter().enumerate() {
        damage();
        assert!(is_served(&path).await, "damage {index}");
    }
    server.abort();
    let _ = server.await;
    assert!(!path.exists(), "it leaves nothing behind");
}

#[tokio::test(start_paused = true)]
async fn a_listener_takes_no_socket_from_another_and_no_file() {
    let folder = Folder::new("no-theft");
    let path = folder.0.join("socket");
    let server = serve(unix::Listener::bind(&path).expect("bound"));
    assert!(is_served(&path).await);
    std::fs::remove_file(&path).expect("removed");
    let other = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    sleep(3 * Duration::from_secs(1)).await;
    let mut client = std::os::unix::net::UnixStream::connect(&path).expect("connected");
    std::io::Write::write_all(&mut client, b"x").expect("sent");
    drop((other, client));
    assert!(is_served(&path).await, "the other one has ended");
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, "precious").expect("written");
    sleep(3 * Duration::from_secs(1)).await;
    server.abort();
    let _ = server.await;
    assert_eq!(std::fs::read(&path).expect("it is there"), b"precious");
}
