//! Reading and writing a volume: the same bytes that NBD clients see, without NBD. It uses the last mebibyte of `vol0`, and restores its
//! content.
//!
//! ```console
//! $ braid up                                      # in another terminal; this uses ./braid-data, or what BRAID_ARRAY names
//! $ cargo run --release -p braid-client --example volume
//! ```

use braid_client::{Array, ArrayOptions, Error, wait};
use std::time::{Duration, Instant};

const BYTES: usize = 1 << 20;

fn main() -> Result<(), Error> {
    wait(run())
}

async fn run() -> Result<(), Error> {
    let array = Array::connect(ArrayOptions::default().name("volume").deadline(Duration::from_secs(10))).await?;
    let volume = array.volume("vol0").await?;
    let offset = volume.size() - BYTES as u64;
    let before = volume.read(offset, BYTES).await?;

    // Up to 4 MiB are written atomically, over all devices, and are durable when this returns.
    let begun = Instant::now();
    volume.write(offset, vec![0x5a; BYTES]).await?;
    println!("wrote 1 MiB in {:?}", begun.elapsed());

    let begun = Instant::now();
    let read = volume.read(offset, BYTES).await?;
    println!("read it in {:?}; it is what was written: {}", begun.elapsed(), read.iter().all(|byte| *byte == 0x5a));

    volume.write(offset, before).await?;
    array.close().await;
    Ok(())
}
