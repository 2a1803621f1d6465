//! Serves exports in memory at the given address, to measure the server alone:
//! `cargo run --release -p braid-nbd --example memory -- unix:/tmp/nbd`, then `fio --ioengine=nbd`.

// Tests use the other items of this module.
#[allow(dead_code)]
#[path = "../tests/nbd/memory.rs"]
mod memory;

use braid_nbd::{Server, Settings};
use std::sync::Arc;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let address = std::env::args().nth(1).expect("give an address: HOST:PORT or unix:PATH");
    let address = address.parse().unwrap_or_else(|error| panic!("{error}"));
    let server = Server::bind(&address, Settings::default()).await.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", braid_nbd::uri(server.address(), "disk"));
    let interrupted = async { tokio::signal::ctrl_c().await.expect("signals can be caught") };
    server.run(Arc::new(memory::Memory::new()), interrupted).await;
}
