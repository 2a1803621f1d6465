//! This crate's client against its server.

use crate::memory::DISK_BYTES;
use crate::running::{Running, scratch};
use braid_nbd::{Client, ClientError, Settings};
use braid_shell::Address;
use bytes::Bytes;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::task::JoinSet;

/// An address at which one client is served so.
fn peer(name: &str, serve: impl FnOnce(UnixStream) + Send + 'static) -> (Address, JoinHandle<()>) {
    let path = scratch(name);
    let listener = UnixListener::bind(&path).unwrap();
    (Address::Unix(path), std::thread::spawn(move || serve(listener.accept().unwrap().0)))
}

#[tokio::test]
async fn many_requests_in_flight_each_get_their_own_answer() {
    for address in [Address::loopback(0), Address::Unix(scratch("socket"))] {
        let server = Running::start_at(address, Settings::default());
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
    }
}

#[tokio::test]
async fn refusals_are_answered_and_the_connection_continues() {
    let server = Running::start(Settings::default());
    let client = Client::open(&server.address, "broken").await.unwrap();
    assert_eq!(client.read(0, 4096).await, Err(ClientError::Refused { number: 5 }));
    let client = Client::open(&server.address, "disk").await.unwrap();
    assert_eq!(client.write(DISK_BYTES, &[1]).await, Err(ClientError::Refused { number: 28 }));
    assert_eq!(client.write(DISK_BYTES - 1, &[1]).await, Ok(()));
    let missing = Client::open(&server.address, "nowhere").await.unwrap_err();
    assert!(matches!(&missing, ClientError::NoExport { export, .. } if export == "nowhere"), "{missing}");
}

#[tokio::test]
async fn pending_requests_fail_when_the_server_ends() {
    let (address, server) = peer("goes-away", |mut stream| {
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
    let client = Client::open(&address, "x").await.unwrap();
    assert_eq!(client.bytes(), 4096);
    for _ in 0..2 {
        assert!(matches!(client.read(0, 512).await, Err(ClientError::Broken(_))));
    }
    server.join().unwrap();
}

#[tokio::test]
async fn a_peer_that_is_no_server_is_refused() {
    let (address, other) = peer("no-server", |mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap());
    assert_eq!(Client::open(&address, "x").await.unwrap_err(), ClientError::NotUnderstood);
    other.join().unwrap();
    let nobody = Client::open(&Address::Unix(scratch("nobody")), "x").await;
    assert!(matches!(nobody, Err(ClientError::Broken(_))));
}
