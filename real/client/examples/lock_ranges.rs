//! Locks random ranges of a space, one after the other, and writes down when. Several of these programs, on several hosts, contend for the
//! ranges; their histories show whether any two had conflicting locks at once. Each line is written before the next step, so that it is there
//! even if the program is killed.
//!
//! ```console
//! $ braid up                                      # in another terminal; this uses ./braid-data, or what BRAID_ARRAY names
//! $ cargo run --release -p braid-client --example lock_ranges -- shelf 64 1000 1
//! ask 5213470915311 17 20 shared
//! have 5213471288120
//! leave 5213471291502
//! ```
//!
//! Arguments: the space, its bytes, the number of locks, the seed. Times are nanoseconds since this machine started.

use braid_client::{Array, ArrayOptions, LockMode, now, wait};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    wait(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [space, numbers @ ..] = &arguments[..] else { return Err("SPACE BYTES LOCKS SEED".into()) };
    let numbers: Vec<u64> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [bytes, locks, seed] = numbers[..] else { return Err("SPACE BYTES LOCKS SEED".into()) };

    let array = Array::connect(ArrayOptions::default().name(space).deadline(Duration::from_secs(20))).await?;
    // Programs with odd seeds keep some bytes around what they lock.
    let ranges = array.ranges(space).widened(seed % 2 * 8);
    let mut random = seed;
    // The generator SplitMix64: the same seed gives the same ranges.
    let mut below = move |limit: u64| {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)) % limit
    };
    for _ in 0..locks {
        let start = below(bytes);
        let range = start..(start + 1 + below(5)).min(bytes);
        let mode = if below(2) == 0 { LockMode::Shared } else { LockMode::Exclusive };
        let ask = |mode| {
            let mode = if mode == LockMode::Shared { "shared" } else { "exclusive" };
            println!("ask {} {} {} {mode}", now().0, range.start, range.end);
        };
        ask(mode);
        let mut lock = ranges.lock(range.clone(), mode).await?;
        println!("have {}", now().0);
        if mode == LockMode::Shared && below(4) == 0 {
            println!("leave {}", now().0);
            ask(LockMode::Exclusive);
            lock.convert(LockMode::Exclusive).await?;
            println!("have {}", now().0);
        }
        if below(50) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("leave {}", now().0);
        lock.unlock().await?;
    }
    array.close().await;
    Ok(())
}
