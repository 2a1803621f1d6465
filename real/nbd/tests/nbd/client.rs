//! This crate's client against its server.

use crate::memory::DISK_BYTES;
use crate::running::{Running, scratch};
use braid_nbd::{Client, ClientError, Settings};
use braid_shell::Address;
use bytes::Bytes;
use std::io::{Read, Write};
use std::sync::Arc;
use tokio::task::JoinSet;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn many_requests_in_flight_each_get_their_own_answer() {
    for server in [Running::start(Settings::default()), Running::start_unix()] {
        block_on(async {
            let client = Arc::new(Client::open(&server.address, "disk").await.unwrap());
            assert_eq!(client.bytes(), DISK_BYTES);
            // Of different lengths, so that a mismatched answer is detected.
            let content = |number: u64| vec![number as u8 + 1; 1000 + 3000 * number as usize];
            let mut writes = JoinSet::new();
            for number in 0..100 {
                let client = client.clone();
                writes.spawn(async move { client.write(number << 19, &content(number)).await });
            }
            assert!(writes.join_all().await.into_iter().all(|done| done == Ok(())));
            let mut reads = JoinSet::new();
            for number in 0..100 {
                let client = client.clone();
                reads.spawn(async move { (number, client.read(number << 19, content(number).len()).await) });
            }
            for (number, there) in reads.join_all().await {
                assert!(there == Ok(Bytes::from(content(number))), "{number}");
            }
        });
    }
}

#[test]
fn refusals_are_answered_and_the_connection_continues() {
    let server = Running::start(Settings::default());
    block_on(async {
        let client = Client::open(&server.address, "broken").await.unwrap();
        assert_eq!(client.read(0, 4096).await, Err(ClientError::Refused { number: 5 }));
        let client = Client::open(&server.address, "disk").await.unwrap();
        assert_eq!(client.write(DISK_BYTES, &[1]).await, Err(ClientError::Refused { number: 28 }));
        assert_eq!(client.write(DISK_BYTES - 1, &[1]).await, Ok(()));
        let missing = Client::open(&server.address, "nowhere").await.unwrap_err();
        assert!(matches!(&missing, ClientError::NoExport { export, .. } if export == "nowhere"), "{missing}");
    });
}

#[test]
fn pending_requests_fail_when_the_server_ends() {
    let address = Address::Unix(scratch("goes-away"));
    let Address::Unix(path) = &address else { unreachable!("just made") };
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
        let mut asked = [0; 4 + 16 + 4 + 1 + 2];
        stream.read_exact(&mut asked).unwrap();
        for (reply, body) in [(3u32, &b"\0\0\0\0\0\0\0\0\x10\0\0\x01"[..]), (1, b"")] {
            stream.write_all(b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07").unwrap();
            stream.write_all(&reply.to_be_bytes()).unwrap();
            stream.write_all(&(body.len() as u32).to_be_bytes()).unwrap();
            stream.write_all(body).unwrap();
        }
        // The server disconnects on the first request.
        stream.read_exact(&mut [0; 28]).unwrap();
    });
    block_on(async {
        let client = Client::open(&address, "x").await.unwrap();
        assert_eq!(client.bytes(), 4096);
        for _ in 0..2 {
            assert!(matches!(client.read(0, 512).await, Err(ClientError::Broken(_))));
        }
    });
    server.join().unwrap();
}

#[test]
fn a_peer_that_is_no_server_is_refused() {
    let address = Address::Unix(scratch("no-server"));
    let Address::Unix(path) = &address else { unreachable!("just made") };
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    });
    assert_eq!(block_on(Client::open(&address, "x")).unwrap_err(), ClientError::NotUnderstood);
    other.join().unwrap();
    assert!(matches!(block_on(Client::open(&Address::Unix(scratch("nobody")), "x")), Err(ClientError::Broken(_))));
}
